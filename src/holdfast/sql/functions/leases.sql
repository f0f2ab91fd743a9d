-- What keeps a lease, and what its worker is told. Moves: none. Roles: worker.

-- Prolong a worker's leases, all in one statement, and say which of them somebody wants to interrupt.
-- Answers a row for each lease that the worker still has; the others were lost. A lease that another transaction is
-- settling or sweeping right now is answered as it is, without being prolonged. Moves: none. Roles: worker.
create or replace function renew(worker text, job_ids uuid[], attempts integer[])
returns table (job_id uuid, attempt integer, lease_remaining double precision, interrupt text)
language sql security definer
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  with asked as (
    select * from unnest(job_ids, attempts) as a (job_id, attempt)
  ), free as materialized (
    select l.job_id
    from asked
    join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = renew.worker
    order by l.job_id
    for update of l skip locked
  ), prolonged as (
    update leases l
    set expires_at = now() + make_interval(secs => l.lease_seconds)
    from free
    where l.job_id = free.job_id
    returning l.job_id, l.attempt, l.expires_at, l.interrupt
  )
  select p.job_id, p.attempt, extract(epoch from p.expires_at - now())::double precision, told_interrupt(p.interrupt)
  from prolonged p
  union all
  select l.job_id, l.attempt, extract(epoch from l.expires_at - now())::double precision, told_interrupt(l.interrupt)
  from asked
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = renew.worker
  where l.job_id not in (select p.job_id from prolonged p)
$$;

-- Which of a worker's jobs somebody wants to interrupt. This is the cheap check between renewals. Roles: worker.
create or replace function interrupted(worker text, job_ids uuid[], attempts integer[])
returns table (job_id uuid, attempt integer, interrupt text)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select l.job_id, l.attempt, told_interrupt(l.interrupt)
  from unnest(job_ids, attempts) as asked (job_id, attempt)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt
  where l.worker = interrupted.worker and l.interrupt is not null
$$;
