-- What a job that can be claimed waits for: those before it. Moves: none.

-- Whether the workers that could run the job are busy, and how many jobs of its tenant and lane are before it, counted
-- up to 10 000. Jobs that are paused or at a limit do not count. Jobs of other tenants are not before it: they share
-- the slots (see shares.sql). A tenant is told neither about others nor how large or busy the installation is.
create or replace function behind_others(job jobs, lane text, rank integer, seq bigint, only_tenant text)
returns table (code text, text text, culprit jsonb)
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  slots  bigint;
  free   bigint;
  hosts  bigint;
  shut   integer[] := shut_streams(array(select s.id from streams s where s.closed_in is null));
  before bigint;
  rivals bigint;
  crowd  text;
  rest   text;
  whole  boolean := only_tenant is null;
begin
  with host as (
    -- Remote workers have no slots: one that runs something counts as busy.
    select w.id, w.lanes,
      case w.kind
        when 'remote' then greatest(1, (select count(*) from leases l where l.worker = w.id))::integer
        else usable_slots(w.lanes, behind_others.lane)
      end as slots
    from live_workers() w
    where job.type = any (w.types)
      and coalesce(job.queue = any (w.queues), true)
      and coalesce(job.tenant = any (w.tenants), true)
      and not w.draining and (w.kind <> 'remote' or w.quiet_at is null)
  ), claimed as (
    select l.worker, coalesce(t.lane, 'general') as lane, count(*) as jobs
    from leases l
    join streams s on s.id = l.stream
    left join job_types t on t.name = s.type
    group by 1, 2
  ), taken as (
    -- Jobs of other lanes take general slots as far as their own do not suffice.
    select host.id,
      sum(case
        when claimed.lane in ('general', behind_others.lane) then claimed.jobs
        else greatest(0, claimed.jobs - coalesce((host.lanes ->> claimed.lane)::numeric, 0))
      end) as jobs
    from host
    join claimed on claimed.worker = host.id
    group by host.id
  )
  select coalesce(sum(host.slots), 0), count(*), coalesce(sum(greatest(0, host.slots - coalesce(taken.jobs, 0))), 0)
  into slots, hosts, free
  from host
  left join taken on taken.id = host.id
  where host.slots > 0;

  with line as materialized (
    select s.id, s.tenant
    from streams s
    where s.queue <> 'holdfast'
      and s.closed_in is null
      and (whole or s.tenant = job.tenant)
      and s.id <> all (shut)
      and coalesce((select t.lane from job_types t where t.name = s.type), 'general') = behind_others.lane
      and exists (
        select from live_workers() w
        where s.type = any (w.types)
          and coalesce(s.queue = any (w.queues), true)
          and coalesce(s.tenant = any (w.tenants), true))
  )
  select
    (select count(*)
     from (
       select
       from line
       cross join lateral (
         select
         from ready r
         where r.stream = line.id and (r.rank, r.seq) < (behind_others.rank, behind_others.seq)) entry
       where line.tenant = job.tenant
       limit 10001) counted),
    (select count(distinct line.tenant)
     from line
     where line.tenant <> job.tenant and exists (select from ready r where r.stream = line.id))
  into before, rivals;
  crowd := case
    when before = 0 then null
    else format('%s job%s of its tenant stand%s before it', case when before > 10000 then 'more than 10000' else before::text end,
      case when before = 1 then '' else 's' end, case when before = 1 then 's' else '' end) end;
  rest := case
    when rivals = 0 then ''
    else format('; %s other tenant%s share%s the slots by weight', rivals, case when rivals = 1 then '' else 's' end,
      case when rivals = 1 then 's' else '' end) end;

  if free <= 0 then
    return query select 'busy', concat_ws(' and ', format('waits because %s busy', case
        when not whole then 'the workers that may run it are'
        when slots = 1 then 'the one slot of the worker that may run it is'
        else format('all %s slots of the workers that may run it (%s alive) are', slots, hosts) end), crowd) || rest,
      jsonb_strip_nulls(jsonb_build_object(
        'kind', 'lane', 'name', behind_others.lane, 'slots', case when whole then slots end, 'before', before,
        'tenants', nullif(rivals, 0)));
  elsif before > 0 then
    return query select 'behind', 'waits because ' || crowd || rest,
      jsonb_strip_nulls(jsonb_build_object(
        'kind', 'lane', 'name', behind_others.lane, 'slots', case when whole then slots end, 'before', before,
        'tenants', nullif(rivals, 0)));
  else
    return query select 'starting', 'will start in a moment', null::jsonb;
  end if;
end
$$;
