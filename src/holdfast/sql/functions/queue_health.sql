-- What operators ask first with psql: how many jobs of each type are in which state. Moves: none. Roles: operator.

-- How many jobs of each type wait, run, failed or died, and since when the oldest of them does. Ended jobs are not
-- counted, except dead ones that nobody has acknowledged, nor are jobs that wait for a moment or a person: no small
-- table has their types. `pending` can run now, or waits behind others of its target; `failed` waits for its retry;
-- `error` is held for a person. It calls no function of the engine: a view's functions run with the reader's rights.
create or replace view job_queue_health as
select h.type, h.status, sum(h.count)::bigint as count, min(h.oldest_at) as oldest_at,
  greatest(0, floor(extract(epoch from now() - min(h.oldest_at)) / 60))::bigint as oldest_minutes
from (
  -- Entries that are parked have the negative number of their stream.
  select s.type, 'pending' as status, r.count, r.oldest_at
  from (
    select abs(e.stream) as stream, count(*) as count, min(e.ready_at) as oldest_at from ready e group by 1) r
  join streams s on s.id = r.stream
  where s.queue <> 'holdfast'
  union all
  select j.type, 'pending', count(*), min(j.run_at)
  from waiting w
  cross join lateral (select j.type, j.run_at from jobs j where j.id = w.job_id offset 0) j
  group by j.type
  union all
  select s.type, 'processing', count(*), min(l.claimed_at)
  from leases l
  join streams s on s.id = l.stream
  where s.queue <> 'holdfast'
  group by s.type
  union all
  select j.type, case j.state when 'retry' then 'failed' else j.state end, count(*), min(j.last_error_at)
  from (
    select g.job_id, g.attempt from failing g
    union all
    select f.job_id, f.attempt from failures f) w
  cross join lateral (
    select j.type, j.state, j.queue, j.last_error_at
    from jobs j
    where j.id = w.job_id and j.attempt = w.attempt and j.state in ('retry', 'error')
    offset 0) j
  where j.queue <> 'holdfast'
  group by j.type, j.state
  union all
  select d.type, 'dead', count(*), min(d.died_at)
  from dead_letters d
  where d.acknowledged_at is null
  group by d.type) h
group by h.type, h.status;
