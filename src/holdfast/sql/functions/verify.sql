-- The invariants, as one read of the live database: a row for each violation, none if all is well.
-- Moves: none. Roles: worker, operator.

-- Check the invariants over the live tables; a row for each violation.
create or replace function verify(max_offences integer default 100)
returns table (invariant text, job_id uuid, detail text)
language sql security definer stable
set search_path from current
as $$
  (select 'open jobs have their side row', b.job_id, b.fault
   from broken_jobs('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff') b
   limit max_offences)
  union all
  (select 'a lease belongs to a running attempt', l.job_id, format('lease of attempt %s, job is %s, attempt %s', l.attempt, j.state, j.attempt)
   from leases l
   left join jobs j on j.id = l.job_id
   where j.state is distinct from 'running' or j.attempt <> l.attempt
   limit max_offences)
  union all
  (select 'a ready entry belongs to a queued job', r.job_id, format('stream %s, job is %s', r.stream, coalesce(j.state, 'missing'))
   from ready r
   left join jobs j on j.id = r.job_id
   where j.state is distinct from 'queued'
   limit max_offences)
  union all
  (select 'a job stands in ready once', r.job_id, format('%s entries', count(*))
   from ready r
   group by r.job_id
   having count(*) > 1
   limit max_offences)
  union all
  (select 'what stands in line is offered to workers', r.job_id, format('stream %s', stream_of(r.stream))
   from ready r
   join jobs j on j.id = r.job_id
   where r.ready_at < now() - interval '1 minute'
     and is_maintained()
     and not exists (
       select from streams s
       where s.id = stream_of(r.stream) and s.closed_in is null and (s.tenant, s.queue, s.type) = (j.tenant, j.queue, j.type))
   limit max_offences)
  union all
  (select 'what is hidden from claims is parked', r.job_id, format('stream %s', stream_of(r.stream))
   from ready r
   where is_parked(r.stream)
     and not exists (select from parked p where p.stream = stream_of(r.stream) and p.rank = r.rank and p.seq = r.seq)
   limit max_offences)
  union all
  (select 'a due entry belongs to a scheduled or retrying job', d.job_id, coalesce(j.state, 'missing')
   from due d
   left join jobs j on j.id = d.job_id and j.run_at = d.run_at
   where j.state is null or j.state not in ('scheduled', 'retry')
   limit max_offences)
  union all
  (select 'a dormant entry belongs to a job that is created, paused or in error', d.job_id, coalesce(j.state, 'missing')
   from dormant d
   left join jobs j on j.id = d.job_id
   where j.state is null or not is_dormant(j.state)
   limit max_offences)
  union all
  (select 'one job of a target is under way', min(j.id::text)::uuid, format('target %s of %s: %s jobs', j.target, j.tenant, count(*))
   from jobs j
   join leases l on l.job_id = j.id
   where j.target is not null
   group by j.tenant, j.target
   having count(*) > 1
   limit max_offences)
  union all
  (select 'only the head of a target is ready', r.job_id, format('target %s of %s', j.target, j.tenant)
   from ready r
   join jobs j on j.id = r.job_id and j.target is not null
   left join heads h on h.tenant = j.tenant and h.target = j.target
   where h.job_id is distinct from j.id
   limit max_offences)
  union all
  (select 'the head of a target has not ended', h.job_id, format('target %s of %s, job is %s', h.target, h.tenant, coalesce(j.state, 'missing'))
   from heads h
   left join jobs j on j.id = h.job_id
   where j.state is null or j.state in ('created', 'success', 'dead', 'canceled')
   limit max_offences)
  union all
  (select 'a line has a head, or was called for', min(w.job_id::text)::uuid, format('target %s of %s', w.target, w.tenant)
   from waiting w
   where not exists (select from heads h where h.tenant = w.tenant and h.target = w.target)
     and not exists (select from calls c where c.tenant = w.tenant and c.target = w.target)
   group by w.tenant, w.target
   limit max_offences)
  union all
  (select 'a dead job has a dead letter', j.id, null
   from jobs j
   where j.state = 'dead' and not exists (select from dead_letters d where d.job_id = j.id)
   limit max_offences)
  union all
  (select 'an ended job knows when', j.id, j.state
   from jobs j
   where (j.state in ('success', 'dead', 'canceled')) <> (j.finished_at is not null)
   limit max_offences)
  union all
  (select 'every ended attempt left a row', j.id, format('%s rows for attempt %s, %s', count(t.job_id), j.attempt, j.state)
   from jobs j
   left join job_attempts t on t.job_id = j.id
   where j.attempt > 0
   group by j.id, j.attempt, j.state
   having count(t.job_id) <> j.attempt - case when j.state = 'running' then 1 else 0 end
   limit max_offences)
  union all
  (select 'failures stay within the budget', j.id, format('%s of %s', j.failures, coalesce(j.max_attempts, t.max_attempts))
   from jobs j
   left join job_types t on t.name = j.type
   where j.state in ('queued', 'retry') and j.failures >= coalesce(j.max_attempts, t.max_attempts)
   limit max_offences)
  union all
  (select 'who waits for a target is not its head', w.job_id, format('target %s of %s', w.target, w.tenant)
   from waiting w
   join heads h on h.tenant = w.tenant and h.target = w.target and h.job_id = w.job_id
   limit max_offences)
  union all
  (select 'who waits for a target is queued, or paused', w.job_id, coalesce(j.state, 'missing')
   from waiting w
   left join jobs j on j.id = w.job_id
   where j.state is distinct from case w.turn when 0 then 'paused' else 'queued' end
   limit max_offences)
  union all
  (select 'a held job blocks its target', j.id, format('target %s of %s: it is %s', j.target, j.tenant, j.state)
   from jobs j
   where j.state in ('paused', 'error')
     and j.target is not null
     and not exists (select from heads h where h.tenant = j.tenant and h.target = j.target and h.job_id = j.id)
     and not exists (
       select from waiting w where w.tenant = j.tenant and w.target = j.target and w.turn = 0 and w.place = j.seq)
   limit max_offences)
  union all
  (select 'a pending decision has a request', d.job_id, format('to %s, request %s', d.decision, d.request_id)
   from pending_decisions d
   where not exists (select from jobs r where r.id = d.request_id and r.state not in ('success', 'dead', 'canceled'))
   limit max_offences)
  union all
  (select 'an ended job keeps no dedup key', j.id, j.dedup_key
   from jobs j
   where j.state in ('success', 'dead', 'canceled') and j.dedup_key is not null
   limit max_offences)
  union all
  (select 'the key of a job is kept', j.id, j.idempotency_key
   from jobs j
   where j.idempotency_key is not null
     and not exists (
       select from idempotency_keys k
       where k.tenant = j.tenant and k.key = j.idempotency_key and k.job_id = j.id)
   limit max_offences)
  union all
  (select 'a circuit shuts its types while it is not closed', null, format('%s: it is %s', replace(c.name, chr(31), '/'), coalesce(b.state, 'missing'))
   from controls c
   full join circuits b on c.kind = 'circuit' and c.name = circuit_key(b.tenant, b.name)
   where (c.kind = 'circuit' and coalesce(b.state, 'closed') = 'closed') or (c.name is null and b.state <> 'closed')
   limit max_offences)
$$;
