-- Leases of remote workers: prolonged, handed back, and what their workers are to be told (see remote_reports.sql).
-- Moves: running → queued | paused | canceled. Roles: remote.

-- Prolong leases of many workers, and say which of them they still have. A lease that somebody else has locked is
-- answered as it is, without being prolonged.
create or replace function remote_extend(
  tenants text[], workers text[], job_ids uuid[], attempts integer[], lengths double precision[]
) returns table (
  item integer, owned boolean, directive text, lease_expires_at timestamptz, lease_remaining double precision,
  timeout_remaining double precision)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  asked record;
  lease leases;
begin
  for asked in
    select a.place::integer as place, l.job_id, j.type, a.seconds, a.worker, a.tenant
    from unnest(tenants, workers, job_ids, attempts, lengths) with ordinality
      as a (tenant, worker, job_id, attempt, seconds, place)
    left join leases l on l.job_id = a.job_id and l.attempt = a.attempt and l.worker = a.worker
    left join jobs j on j.id = l.job_id and j.tenant = a.tenant
    order by l.job_id, a.place
  loop
    perform check_remote(asked.tenant, asked.worker);
    item := asked.place;
    owned := asked.type is not null;
    directive := null;
    lease_expires_at := null;
    lease_remaining := null;
    timeout_remaining := null;
    if owned then
      select l.* into lease from leases l where l.job_id = asked.job_id and l.worker = asked.worker for update skip locked;
      if found then
        select h.* into directive, lease_expires_at, lease_remaining from hold_on(lease, asked.type, asked.seconds, true) h;
      else
        select l.* into lease from leases l where l.job_id = asked.job_id and l.worker = asked.worker;
        owned := found;
        if owned then
          directive := remote_directive(asked.worker, told_interrupt(lease.interrupt), is_late(lease, asked.type));
          lease_expires_at := readable(lease.expires_at);
          lease_remaining := extract(epoch from lease.expires_at - clock_timestamp());
        end if;
      end if;
      timeout_remaining := extract(epoch from lease.claimed_at - clock_timestamp()) + timeout_of(asked.type);
    end if;
    return next;
  end loop;
end
$$;

-- Hand back jobs of many workers, free of charge, or as canceled or paused where somebody decided so. Answers the job's
-- state; null for a lease that is lost.
create or replace function remote_release(
  tenants text[], workers text[], job_ids uuid[], attempts integer[], reasons text[]
) returns table (item integer, fault text, detail text, state text)
language plpgsql security definer
set search_path from current
set lock_timeout = '250ms'
as $$
#variable_conflict use_column
declare
  lease leases;
  type  text;
begin
  for position in 1 .. coalesce(cardinality(workers), 0) loop
    item := position;
    fault := null;
    detail := null;
    state := null;
    begin
      perform check_remote(tenants[position], workers[position]);
      select l.* into lease
      from leases l
      where l.job_id = job_ids[position] and l.attempt = attempts[position] and l.worker = workers[position]
      for update;
      perform from jobs j where j.id = lease.job_id for no key update;
      select j.type into type from jobs j where j.id = job_ids[position] and j.tenant = tenants[position];
      if found then
        select nullif(s.state, 'lease-lost') into state
        from settle(
          workers[position], job_ids[position:position], attempts[position:position],
          array[case when is_late(lease, type) then 'timeout' else 'released' end], null, null,
          reasons[position:position], null, null, null, null) s;
      end if;
    exception
      when lock_not_available or deadlock_detected or serialization_failure
        or sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        fault := sqlstate;
        detail := sqlerrm;
    end;
    return next;
  end loop;
end
$$;

-- Note that workers live: those that have called since the last time. Answers which of them are to claim no more.
create or replace function remote_beat(workers text[]) returns table (worker text)
language sql security definer
set search_path from current
as $$
  with alive as materialized (
    select w.id from workers w where w.id = any (remote_beat.workers) and w.kind = 'remote' order by w.id for update skip locked
  ), beaten as (
    update workers w set heartbeat_at = now() from alive where w.id = alive.id
  )
  select w.id from workers w where w.id = any (remote_beat.workers) and w.kind = 'remote' and w.quiet_at is not null
$$;

-- Forget what pulls were answered more than five minutes ago, the oldest first. Each call begins at the beginning: what it
-- forgets is gone. Roles: worker.
create or replace function forget_pulls(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  delete from remote_pulls p
  where p.ctid = any (array(
    select o.ctid
    from remote_pulls o
    where o.pulled_at < now() - interval '5 minutes'
    order by o.pulled_at
    limit max_rows
    for update skip locked));
  get diagnostics mended = row_count;
  reached := case when mended = max_rows then array['more'] end;
  return next;
end
$$;
