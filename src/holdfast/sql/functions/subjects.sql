-- Queues, types, lanes and tenants as operators see them. Moves: none. Roles: operator.
--
-- Counts of waiting jobs end at 10 000 and then say so: a large backlog must not make the answer expensive. They count
-- jobs that wait for a worker; jobs behind the head of their target are counted with the target.

-- What operators have paused, limited and weighted.
create or replace function list_steering() returns setof controls
language sql security definer stable
set search_path from current
as $$
  select c.* from controls c where c.kind <> 'circuit' order by c.kind, c.name
$$;

-- Who paused something and why, as far as the caller may know it. A tenant sees who of its own operators paused it and
-- why. For a pause by the installation's operators it sees the reason if that is public, and never the name.
create or replace function shown_pause(pause controls, only_tenant text) returns table (by text, note text)
language sql immutable
as $$
  select case when own.known then pause.paused_by end, case when own.known or pause.paused_public then pause.paused_note end
  from (select only_tenant is null or coalesce(pause.paused_tenant = only_tenant, false)) as own (known)
$$;

-- Workers that live: those with a heartbeat within the last 15 seconds; remote ones, which may have nothing to say for
-- longer, within the last 90.
create or replace function live_workers() returns setof workers
language sql stable
set search_path from current
as $$
  select w.* from workers w where not is_lost(w)
$$;

-- Whether a worker has been silent for too long.
create or replace function is_lost(worker workers) returns boolean
language sql stable
as $$
  select worker.heartbeat_at not between
    now() - case when worker.kind = 'remote' then interval '90 seconds' else interval '15 seconds' end
    and now() + interval '5 seconds'
$$;

-- The lanes: fast and general, and custom lanes that a job type, a live worker or a pause names.
create or replace function known_lanes() returns table (lane text)
language sql stable
set search_path from current
as $$
  select unnest(array['fast', 'general'])
  union
  select t.lane from job_types t
  union
  select jsonb_object_keys(w.lanes) from live_workers() w
  union
  select c.name from controls c where c.kind = 'lane'
$$;

-- The known names, up to `max_names`, if the given name is unknown; null if it is known. A job type is known once a
-- worker has published it, and while a live remote worker serves it; a queue, if it has jobs, or if a job type or a live
-- worker names it. Roles: api, worker, operator.
create or replace function other_names(kind text, name text, max_names integer default 1000) returns text[]
language sql security definer stable
set search_path from current
as $$
  with known as materialized (
    select t.name from job_types t where other_names.kind = 'type'
    union
    select served.type
    from live_workers() w
    cross join lateral unnest(w.types) as served (type)
    where other_names.kind = 'type' and w.kind = 'remote'
    union
    select t.queue from job_types t where other_names.kind = 'queue'
    union
    select s.queue from streams s where other_names.kind = 'queue'
    union
    select served.queue
    from live_workers() w
    cross join lateral unnest(w.queues) as served (queue)
    where other_names.kind = 'queue'
  )
  select case when other_names.name not in (select k.name from known k) then
    array(select k.name from known k order by k.name limit max_names)
  end
$$;

-- Subjects of one kind by name, page by page; for a tenant, only those that concern its jobs.
create or replace function subject_figures(
  kind text, only_tenant text, only_name text, after text, max_names integer
) returns table (
  name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamptz, paused_by text,
  paused_note text, limit_count integer, rate_count integer, rate_seconds real, weight real)
language sql stable
set search_path from current
set jit = off
as $$
  with line as (
    select s.id, case subject_figures.kind
        when 'queue' then s.queue when 'type' then s.type when 'tenant' then s.tenant
        else coalesce((select t.lane from job_types t where t.name = s.type), 'general')
      end as name
    from streams s
    where s.queue <> 'holdfast' and s.closed_in is null and (only_tenant is null or s.tenant = only_tenant)
  ), known as (
    select line.name from line
    union
    select l.lane from known_lanes() l
    where subject_figures.kind = 'lane' and (only_tenant is null or l.lane in ('fast', 'general'))
    union
    select t.queue from job_types t where subject_figures.kind = 'queue' and only_tenant is null
    union
    select t.name from job_types t where subject_figures.kind = 'type' and only_tenant is null
    union
    select c.name from closed_types c where subject_figures.kind = 'type' and only_tenant is null
    union
    select k.tenant from api_keys k
    where subject_figures.kind = 'tenant' and (only_tenant is null or k.tenant = only_tenant)
    union
    select c.name from controls c
    where c.kind = subject_figures.kind and (only_tenant is null or (c.kind = 'tenant' and c.name = only_tenant))
    union
    select only_name
    where only_name is not null and (subject_figures.kind <> 'tenant' or only_tenant is null or only_tenant = only_name)
  ), page as (
    select known.name
    from known
    where (only_name is null or known.name = only_name) and (after is null or known.name > after)
    order by known.name
    limit max_names
  ), streamed as materialized (
    select page.name, array_agg(line.id) as ids
    from page
    join line on line.name = page.name
    group by page.name
  ), leased as materialized (
    select l.stream, count(*) as count from leases l group by l.stream
  )
  select page.name, least(counted.count, 10000), counted.count > 10000,
    coalesce((select sum(leased.count) from leased where leased.stream = any (streamed.ids)), 0)::bigint,
    c.paused_at, shown.by, shown.note, c.limit_count, c.rate_count, c.rate_seconds, c.weight
  from page
  left join streamed on streamed.name = page.name
  left join controls c on c.kind = subject_figures.kind and c.name = page.name
  cross join lateral shown_pause(c, only_tenant) shown
  cross join lateral (select count_ready(streamed.ids, 10001) as count) counted
  order by page.name
$$;

-- How many entries these streams have, parked ones included, counted no further than asked.
create or replace function count_ready(streams integer[], up_to integer) returns bigint
language sql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select count(*)
  from (
    select
    from unnest(streams) as s (id)
    cross join lateral (
      select from ready r where r.stream = s.id
      union all
      select from ready r where r.stream = parked_stream(s.id)) entry
    limit up_to) counted
$$;

-- Queues by name, with waiting and running jobs, pauses and limits.
create or replace function list_queues(
  only_tenant text default null, only_name text default null, after text default null, max_names integer default 50
) returns table (
  name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamptz, paused_by text,
  paused_note text, limit_count integer, rate_count integer, rate_seconds real)
language sql security definer stable
set search_path from current
as $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, f.limit_count,
    f.rate_count, f.rate_seconds
  from subject_figures('queue', only_tenant, only_name, after, max_names) f
$$;

-- Job types by name, with waiting and running jobs, pauses and limits, what workers published about the type, and how
-- many live workers know it.
create or replace function list_types(
  only_tenant text default null, only_name text default null, after text default null, max_names integer default 50
) returns table (
  name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamptz, paused_by text,
  paused_note text, limit_count integer, rate_count integer, rate_seconds real, queue text, lane text, version integer,
  declared_limit integer, declared_limit_key text, declared_rate_count integer, declared_rate_seconds real,
  declared_rate_key text, workers bigint)
language sql security definer stable
set search_path from current
as $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, f.limit_count,
    f.rate_count, f.rate_seconds, coalesce(t.queue, 'default'), coalesce(t.lane, 'general'), t.version, t.limit_count,
    t.limit_key, t.rate_count, t.rate_seconds, t.rate_key,
    (select count(*) from live_workers() w where f.name = any (w.types) and not w.draining)
  from subject_figures('type', only_tenant, only_name, after, max_names) f
  left join job_types t on t.name = f.name
  order by f.name
$$;

-- The slots of each lane of live workers that do not drain, and how many of them are in use. Slots count for the lane
-- that they belong to, because general slots also run jobs of other lanes. Workers report their use with the heartbeat. For
-- workers that do not, and for one tenant alone, it is estimated from leases: jobs use slots of their own lane
-- as far as there are any.
create or replace function lane_slots(only_tenant text default null)
returns table (lane text, slots bigint, used bigint)
language sql security definer stable
set search_path from current
set jit = off
as $$
  with host as (
    select w.id, w.lanes, case when only_tenant is null then w.used end as used
    from live_workers() w
    where not w.draining
  ), claimed as (
    select l.worker, coalesce(t.lane, 'general') as lane, count(*) as jobs
    from leases l
    join streams s on s.id = l.stream
    left join job_types t on t.name = s.type
    where l.worker in (select host.id from host where host.used is null)
      and (only_tenant is null or s.tenant = only_tenant)
    group by 1, 2
  ), part as (
    select host.id, host.used, offered.key as lane, offered.value::numeric::bigint as slots, coalesce(claimed.jobs, 0) as jobs
    from host
    cross join lateral jsonb_each_text(host.lanes) offered
    left join claimed on claimed.worker = host.id and claimed.lane = offered.key
  ), rest as (
    -- Jobs for which there is no slot of their own lane.
    select all_jobs.worker, all_jobs.jobs - coalesce(own.jobs, 0) as jobs
    from (select c.worker, sum(c.jobs)::bigint as jobs from claimed c group by c.worker) all_jobs
    left join (
      select p.id, sum(least(p.slots, p.jobs))::bigint as jobs from part p where p.lane <> 'general' group by p.id
    ) own on own.id = all_jobs.worker
  ), busy as (
    select part.lane, part.slots,
      least(part.slots, coalesce(
        (part.used ->> part.lane)::numeric::bigint, case when part.lane = 'general' then rest.jobs else part.jobs end, 0)) as used
    from part
    left join rest on rest.worker = part.id
  )
  select names.lane, coalesce(sum(busy.slots), 0)::bigint, coalesce(sum(busy.used), 0)::bigint
  from (select unnest(array['fast', 'general']) as lane union select part.lane from part) names
  left join busy on busy.lane = names.lane
  group by names.lane
  order by names.lane
$$;

-- The lanes, with waiting and running jobs, pauses, slots and how many of them are in use. Jobs count for the lane of
-- their type; `utilisation` is the fraction of the lane's own slots that is in use.
create or replace function list_lanes(only_tenant text default null, only_name text default null)
returns table (
  name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamptz, paused_by text,
  paused_note text, slots bigint, utilisation double precision)
language sql security definer stable
set search_path from current
as $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, coalesce(offered.slots, 0),
    round(offered.used::numeric / nullif(offered.slots, 0), 3)::double precision
  from subject_figures('lane', only_tenant, only_name, null, 100) f
  left join lane_slots(only_tenant) offered on offered.lane = f.name
  order by f.name
$$;

-- Tenants by name, with waiting and running jobs, pauses, limits and weights.
create or replace function list_tenants(
  only_tenant text default null, only_name text default null, after text default null, max_names integer default 50
) returns table (
  name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamptz, paused_by text,
  paused_note text, limit_count integer, rate_count integer, rate_seconds real, weight real)
language sql security definer stable
set search_path from current
as $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, f.limit_count,
    f.rate_count, f.rate_seconds, f.weight
  from subject_figures('tenant', only_tenant, only_name, after, max_names) f
$$;
