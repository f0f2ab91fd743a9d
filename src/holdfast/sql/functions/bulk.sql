-- Bulk operations: one action on all jobs that fit a filter (docs/decisions/030-failures.md). Moves: none here; those
-- of requests and letters. Roles: operator starts, looks and stops; worker (maintenance) does the work.
--
-- 1. A bulk operation is a row of `bulks`. First the jobs that fit are noted in `bulk_jobs`, in portions (`fixing`), then
--    they are worked on in portions (`running`). No job is missed that fits from the start until its turn, wherever
--    it moves meanwhile (bulk_work.sql says why).
-- 2. A portion is one transaction with its counters, and what it has done is no longer in `bulk_jobs`. So a crash at any
--    moment repeats nothing and loses nothing.
-- 3. A portion runs under a lock on the row of `bulks`; a second leader takes another operation.
-- 4. Each job is judged by the filter again at its turn. Jobs that were recorded after the start never fit.

-- A query with what an action adds to it. Only jobs that the action may change and that are not newer than `upto`, no
-- requests of the engine except to acknowledge their letters, and only letters that nobody has acknowledged, unless the
-- query asks for others.
create or replace function bulk_tree(action text, tree jsonb, upto timestamptz) returns jsonb
language sql immutable
set search_path from current
as $$
  select jsonb_build_object('and', jsonb_build_array(
      tree,
      jsonb_build_object('field', 'state', 'op', '=', 'value', bulk_states(action, tree)),
      jsonb_build_object('field', 'created', 'op', '<=', 'value', upto))
    || case when action <> 'ack' then '[{"not": {"field": "type", "op": "=", "value": ["holdfast.*"]}}]' else '[]' end::jsonb
    || case
      when action in ('requeue', 'ack') and not jsonb_path_exists(tree, '$.**.field ? (@ == "acknowledged")')
        then '[{"field": "acknowledged", "op": "=", "value": false}]'
      else '[]'
    end::jsonb)
$$;

-- Where the jobs that fit are looked for: in the tables of the states that the query allows. Letters come last: a job that
-- has left the other tables when they are read has died before, or does not fit any more. Only jobs that ended well or were
-- canceled have no other table than `jobs`. It is also walked over while it is not known yet which jobs are dormant, and for
-- one tenant if very many jobs of all tenants are due later: `due` does not know whose they are (`source_rows`).
create or replace function bulk_sources(tree jsonb, only_tenant text) returns text[]
language plpgsql stable
set search_path from current
as $$
declare
  allowed text[] := allowed_states(tree);
begin
  if allowed && array['success', 'canceled']
    or allowed && array['created', 'paused', 'error'] and exists (select from walks w where w.name = 'dormant')
    or only_tenant is not null and allowed && array['scheduled', 'retry']
      and pg_relation_size('due') > search_limit('due', 8388608) then
    return array['jobs'];
  end if;
  return array(
    select s.source
    from unnest(
      array['due', 'waiting', 'ready', 'leases', 'dormant', 'letters'],
      array['scheduled retry', 'queued', 'queued', 'running', 'created paused error', 'dead'])
      with ordinality as s (source, states, place)
    where allowed && string_to_array(s.states, ' ')
    order by s.place);
end
$$;

-- The rows of a table of open jobs that a search among one tenant's jobs ($1, null for all) looks at, as `s`. Those of
-- one tenant in `ready` come in the order of its key. Where a page ends depends on these rows only, so it tells nothing about the jobs of others.
create or replace function source_rows(source text, only_tenant text) returns text
language sql immutable
set search_path from current
as $$
  select case
    -- Paused jobs, which have turn 0, are dormant.
    when source = 'waiting' then
      '(select w.* from waiting w where w.turn <> 0' || case when only_tenant is null then '' else ' and w.tenant = $1' end || ') s'
    when only_tenant is null then format('%I s', source)
    when source = 'dormant' then '(select d.* from dormant d where d.tenant = $1) s'
    when source = 'ready' then
      '(select r.* from unnest(entered_streams($1)) as t (id) cross join lateral (
          select e.* from ready e where e.stream = t.id order by e.stream, e.rank, e.seq) r) s'
    else format('(select e.* from %I e where exists (select from jobs o where o.id = e.job_id and o.tenant = $1)) s', source)
  end
$$;

-- The streams with entries in `ready` that belong to a tenant, or whose row is not there: it comes back later than an entry
-- may (see streams.sql). Each stream is looked up once, however many entries it has.
create or replace function entered_streams(only_tenant text) returns integer[]
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  with recursive found as (
    select min(r.stream) as stream from ready r
    union all
    select (select min(r.stream) from ready r where r.stream > f.stream) from found f where f.stream is not null
  )
  select array(
    select f.stream
    from found f
    where f.stream is not null
      and not exists (select from streams s where s.id = stream_of(f.stream) and s.tenant <> only_tenant)
    order by f.stream)
$$;

-- Some of the jobs that fit, and where to go on; `reached` is null at the end. Jobs move between the tables of open
-- jobs, and within them: a walk over these is complete only if all of it sees one moment.
create or replace function bulk_page(
  tree jsonb, only_tenant text, sources text[], place text[], max_jobs integer, max_visited integer
) returns table (ids uuid[], reached text[])
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  step   integer := coalesce(place[1]::integer, 1);
  source text := sources[step];
  keys   text;
  start  text;
  seen   bigint;
begin
  if source = 'letters' then
    select s.ids, case when s.reached_id is not null then
        array[step::text, to_jsonb(s.reached_at) #>> '{}', s.reached_id::text]
      end
    into ids, reached
    from search_letters(
      tree, only_tenant, case when tree -> 'and' @> '[{"field": "acknowledged", "value": false}]' then false end, null,
      place[2]::timestamptz, place[3]::uuid, max_jobs, max_visited) s;
  elsif source = 'jobs' then
    select s.ids, case when s.reached is not null then array[step::text, s.reached::text] end
    into ids, reached
    from search_jobs(tree, only_tenant, place[2]::uuid, max_jobs, max_visited) s;
  elsif source is not null then
    keys := case source
      when 'due' then 's.run_at, s.job_id'
      when 'waiting' then 's.tenant, s.target, s.turn, s.place'
      when 'ready' then 's.stream, s.rank, s.seq'
      when 'leases' then 's.job_id'
      when 'dormant' then case when only_tenant is null then 's.job_id' else 's.tenant, s.job_id' end
    end;
    start := case source
      when 'due' then '$3[2]::timestamptz, $3[3]::uuid'
      when 'waiting' then '$3[2], $3[3], $3[4]::smallint, $3[5]::bigint'
      when 'ready' then '$3[2]::integer, $3[3]::integer, $3[4]::bigint'
      when 'leases' then '$3[2]::uuid'
      when 'dormant' then case when only_tenant is null then '$3[2]::uuid' else '$3[2], $3[3]::uuid' end
    end;
    execute format($q$
      select coalesce(array_agg(w.job_id order by w.number) filter (where w.fits), '{}'),
        (array_agg(array_to_json(w.keys) order by w.number desc))[1], count(*)
      from (
        select s.job_id, s.keys, s.number, exists (
            select from jobs j where j.id = s.job_id and ($1 is null or j.tenant = $1) and (%1$s)) as fits
        from (
          select s.job_id, array[%2$s] as keys, row_number() over (%3$s) as number
          from %4$s
          where %5$s
          %3$s
          limit $4) s) w
      $q$,
      query_condition(tree),
      case source when 'due' then $x$to_jsonb(s.run_at) #>> '{}', s.job_id::text$x$
        else array_to_string(array(select k || '::text' from unnest(string_to_array(keys, ', ')) as k), ', ') end,
      -- A tenant's entries come in this order; the planner does not know that, and would sort all of them for each page.
      case when source <> 'ready' or only_tenant is null then 'order by ' || keys end,
      source_rows(source, only_tenant), case when place[2] is null then 'true' else format('(%s) > (%s)', keys, start) end)
    into ids, start, seen
    using only_tenant, null, place, max_jobs, null, null, tree;
    reached := case when seen = max_jobs then
      array[step::text] || array(select jsonb_array_elements_text(start::jsonb))
    end;
  end if;
  ids := coalesce(ids, '{}');
  if reached is null and step < cardinality(sources) then
    reached := array[(step + 1)::text];
  end if;
  return next;
end
$$;

-- Raise unless an action exists and takes these arguments.
create or replace function check_bulk(action text, args jsonb) returns void
language plpgsql immutable
set search_path from current
as $$
declare
  actions text[] := array['cancel', 'pause', 'resume', 'retry', 'requeue', 'ack', 'delete', 'reprioritize'];
  taken   text[] := case action when 'requeue' then array['options'] when 'reprioritize' then array['priority'] else '{}' end;
  other   text;
begin
  if octet_length(args::text) > 100000 or args ? 'options' and jsonb_typeof(args -> 'options') <> 'object' then
    raise exception 'args must be a JSON object of at most 100000 bytes, and so must its options' using errcode = 'HF002';
  elsif action <> all (actions) then
    raise exception 'unknown action %; known are %', action, array_to_string(actions, ', ') using errcode = 'HF002';
  elsif action = 'reprioritize'
    and (args ->> 'priority' is null or not is_number(args -> 'priority', 0, 1000000000, true)) then
    raise exception 'priority must be 0 or more, at most 1000000000, a whole number' using errcode = 'HF002';
  end if;
  select k.name into other from jsonb_object_keys(args) as k (name) where k.name <> all (taken) limit 1;
  if found then
    raise exception '% takes no argument %', action, other using errcode = 'HF002';
  elsif args -> 'options' ?| array['correlation_id', 'parent_id', 'idempotency_key'] then
    raise exception 'a requeued job keeps its correlation_id and parent_id, and needs no idempotency_key: '
      'a repeated requeue answers the same job' using errcode = 'HF002';
  end if;
end
$$;

-- How many jobs a bulk operation would be about, and some of them. It is not exact if counting ended early, after
-- `max_matches` jobs or two seconds.
create or replace function preview_bulk(
  action text, tree jsonb, args jsonb default '{}', only_tenant text default null, max_matches integer default 10000
) returns table (matches bigint, exact boolean, sample uuid[])
language plpgsql security definer stable
set search_path from current
as $$
#variable_conflict use_column
declare
  wanted  jsonb;
  sources text[];
  ends_at timestamptz := clock_timestamp() + make_interval(secs => search_limit('seconds', 2)::double precision);
  page    record;
  place   text[];
begin
  perform check_bulk(action, args);
  -- Before anything is derived from it.
  perform check_query_size(tree);
  wanted := bulk_tree(action, tree, now());
  -- All is seen as it is at one moment, so every job is found once.
  sources := bulk_sources(wanted, only_tenant);
  matches := 0;
  sample := '{}';
  exact := true;
  loop
    select p.* into page from bulk_page(wanted, only_tenant, sources, place, least(2500, max_matches), 20000) p;
    matches := matches + cardinality(page.ids);
    sample := (sample || page.ids)[:10];
    place := page.reached;
    exit when place is null;
    if matches >= max_matches or clock_timestamp() > ends_at then
      exact := false;
      exit;
    end if;
  end loop;
  return next;
end
$$;

-- Start a bulk operation. `only_tenant` null means the jobs of all tenants.
create or replace function start_bulk(
  action text, query text, tree jsonb, by text, args jsonb default '{}', note text default null,
  only_tenant text default null, by_key uuid default null
) returns uuid
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  wanted jsonb;
  id     uuid := uuid_v7();
begin
  args := coalesce(args, '{}');
  perform check_signed(by, note);
  perform check_bulk(action, args);
  -- Whatever is wrong with the query or the options is told now, and not to the leader.
  if length(query) > 2000 then
    raise exception 'a query may have at most 2000 characters' using errcode = 'HF002';
  end if;
  if args ? 'options' then
    perform check_enqueue(array['any'], array['{}'::jsonb], array[args -> 'options'], coalesce(only_tenant, 'default'));
  end if;
  perform check_query_size(tree);
  wanted := bulk_tree(action, tree, now());
  perform query_condition(wanted);
  if (select count(*) from bulks b
      where b.state in ('fixing', 'running', 'stopping') and b.tenant is not distinct from only_tenant) >= 20 then
    raise exception '20 bulk operations are under way: wait until one has ended, or stop one' using errcode = 'HF001';
  end if;
  insert into bulks (id, tenant, action, query, tree, args, by, by_key, note, sources)
  values (
    id, only_tenant, start_bulk.action, start_bulk.query, wanted, start_bulk.args, start_bulk.by, start_bulk.by_key,
    start_bulk.note, bulk_sources(wanted, only_tenant));
  perform note_audit(by, by_key, only_tenant, 'bulk.start', id::text, jsonb_strip_nulls(jsonb_build_object(
    'action', start_bulk.action, 'q', start_bulk.query, 'args', nullif(start_bulk.args, '{}'), 'note', start_bulk.note)));
  perform wake('duty', array[0]);
  return id;
end
$$;

-- Ask a bulk operation to stop; what it has done stays done. Answers its state, null if there is none.
create or replace function stop_bulk(
  id uuid, by text, note text default null, only_tenant text default null, by_key uuid default null
) returns text
language plpgsql security definer
set search_path from current
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  bulk bulks;
begin
  perform check_signed(by, note);
  select b.* into bulk
  from bulks b
  where b.id = stop_bulk.id and (only_tenant is null or b.tenant = only_tenant)
  for update;
  if bulk.state in ('fixing', 'running') then
    update bulks b set state = 'stopping' where b.id = stop_bulk.id;
    perform note_audit(by, by_key, bulk.tenant, 'bulk.stop', bulk.id::text, jsonb_strip_nulls(jsonb_build_object(
      'action', bulk.action, 'q', bulk.query, 'note', stop_bulk.note)));
    perform wake('duty', array[0]);
    return 'stopping';
  end if;
  perform vouch();
  return bulk.state;
exception
  when lock_not_available then
    raise exception 'the operation is in the middle of a portion, which takes long; ask again to stop it'
      using errcode = '55P03';
end
$$;

-- Bulk operations, newest first, before the given one.
create or replace function list_bulks(
  only_tenant text default null, before uuid default null, max_bulks integer default 50, only_id uuid default null
) returns setof bulks
language sql security definer stable
set search_path from current
as $$
  select b.*
  from bulks b
  where (only_tenant is null or b.tenant = only_tenant)
    and (before is null or b.id < before)
    and (only_id is null or b.id = only_id)
  order by b.id desc
  limit max_bulks
$$;
