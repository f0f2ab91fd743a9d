-- Make jobs eligible that were enqueued with `hold`. They are then treated as if they had been enqueued now.

-- Release held jobs. Moves: created → queued | scheduled. Roles: api, worker, operator.
create or replace function release_held(job_ids uuid[], by text default null, only_tenant text default null)
returns table (job_id uuid, outcome text)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  woken  integer[];
  called boolean;
  soon   boolean;
  moved  uuid[];
begin
  perform check_texts(by, null);
  with held as materialized (
    select j.id
    from jobs j
    where j.id = any (job_ids)
      and j.state = 'created'
      and (only_tenant is null or j.tenant = only_tenant)
    order by j.id
    for update
  ), released as (
    update jobs j
    set state = case when j.run_at > now() then 'scheduled' else 'queued' end,
      seq = nextval('places'),
      reason = 'released',
      updated_at = now()
    from held
    where j.id = held.id and j.state = 'created'
    returning j.id, j.seq, j.stream, j.state, j.priority, j.tenant, j.target, j.run_at
  ), lined as (
    insert into ready (stream, rank, seq, job_id)
    select stream, ready_rank(priority, false), seq, id from released where state = 'queued' and target is null
  ), deferred as (
    insert into due (run_at, job_id)
    select run_at, id from released where state = 'scheduled'
  ), queued_behind as (
    insert into waiting (tenant, target, turn, place, job_id)
    select tenant, target, 1, seq, id from released where state = 'queued' and target is not null
  ), calling as (
    insert into calls (tenant, target)
    select distinct tenant, target from released where state = 'queued' and target is not null
  ), noted as (
    insert into job_events (job_id, event, by)
    select id, 'released', release_held.by from released
  )
  select
    array_agg(id),
    array_agg(distinct stream) filter (where state = 'queued' and target is null),
    coalesce(bool_or(state = 'queued' and target is not null), false),
    coalesce(bool_or(state = 'scheduled' and run_at < now() + interval '2 seconds'), false)
  into moved, woken, called, soon
  from released;

  if woken is not null then
    perform wake('ready', woken);
  end if;
  -- If their stream was forgotten, maintenance brings it back: a row that is created here stays locked until the end of
  -- the caller's transaction, which may be a long one.
  if called or soon or not all_open(woken) then
    perform wake('duty', array[0]);
  end if;

  perform vouch();
  return query
  select asked.id, case
    when asked.id = any (moved) then 'released'
    when j.id is null then 'not-found'
    when has_ended(j.state) then 'already-final'
    else 'not-held'
  end
  from unnest(job_ids) as asked (id)
  left join jobs j on j.id = asked.id and (only_tenant is null or j.tenant = only_tenant);
end
$$;
