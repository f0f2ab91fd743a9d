-- What operators see: a bounded search over jobs, and figures. Moves: none. Roles: operator.

-- A query's tree (see holdfast.model.query) as a condition on `jobs j`. Values stay in the tree, which is the parameter
-- $7 of the statement: nothing in the tree is executed, and the server's log does not show it when a search is canceled
-- or fails. Names come from the lists here.
create or replace function query_condition(tree jsonb) returns text
language plpgsql immutable
set search_path from current
as $$
begin
  perform check_query_size(tree);
  return condition_at(tree, '{}');
end
$$;

-- Raise if a query is too large. The memory that its condition takes grows with the square of the terms: their number is
-- bounded here, too, for callers that did not parse a query.
create or replace function check_query_size(tree jsonb) returns void
language plpgsql immutable
as $$
begin
  if octet_length(tree::text) > 100000 or regexp_count(tree::text, '"(and|or|not|op|text|json)":') > 300 then
    raise exception 'a query has too many terms' using errcode = 'HF002';
  end if;
end
$$;

-- The condition of the part of a tree that is at `place` in the whole tree.
create or replace function condition_at(tree jsonb, place text[]) returns text
language plpgsql immutable
set search_path from current
as $$
declare
  field    text := tree ->> 'field';
  op       text := case when tree ->> 'op' in ('=', '>', '<', '>=', '<=') then tree ->> 'op' end;
  exact    boolean := coalesce((tree ->> 'exact')::boolean, false);
  operand  text;
  compared text;
begin
  if tree ? 'and' or tree ? 'or' then
    field := case when tree ? 'and' then 'and' else 'or' end;
    return coalesce(
      (select '(' || string_agg(condition_at(part, place || field || (number - 1)::text), format(' %s ', field)) || ')'
       from jsonb_array_elements(tree -> field) with ordinality as parts (part, number)),
      case field when 'and' then 'true' else 'false' end);
  elsif tree ? 'not' then
    return format('(%s) is not true', condition_at(tree -> 'not', place || 'not'::text));
  elsif tree ? 'text' then
    operand := format($x$'%%' || like_escaped(%s) || '%%'$x$, term_at(place || 'text'::text));
    return format('(j.payload::text ilike %1$s or j.last_error ilike %1$s)', operand);
  elsif tree ? 'json' then
    operand := format('(j.%I #> array(select jsonb_array_elements_text($7 #> %L)))',
      case tree ->> 'json' when 'result' then 'result' else 'payload' end, place || 'path'::text);
    -- A number comes as text, with all its digits. Its exponent is bounded, because it is expanded for every job.
    if tree ? 'number' and (tree ->> 'number' ~ '^-?[0-9]+([.][0-9]+)?([eE][+-]?0*[0-9]{1,4})?$') is not true then
      raise exception 'a number in a query is not valid' using errcode = 'HF002';
    end if;
    compared := case
      when tree ? 'number' then format('to_jsonb((%s)::numeric)', term_at(place || 'number'::text))
      else format('($7 #> %L)', place || 'value'::text)
    end;
    if op = '=' then
      return format('%s = %s', operand, compared);
    end if;
    return format('(jsonb_typeof(%1$s) = %2$L and %1$s %3$s %4$s)', operand,
      case when tree ? 'number' then 'number' else jsonb_typeof(tree -> 'value') end, op, compared);
  end if;

  operand := case field
    when 'id' then 'j.id::text' when 'state' then 'j.state' when 'type' then 'j.type' when 'queue' then 'j.queue'
    when 'target' then 'j.target' when 'tenant' then 'j.tenant'
    when 'correlation' then 'coalesce(j.correlation_id, j.id::text)'
    when 'key' then 'j.idempotency_key' when 'dedup' then 'j.dedup_key' when 'by' then 'j.created_by'
    when 'parent' then 'j.parent_id::text' when 'error' then 'j.last_error' when 'reason' then 'j.reason'
    when 'attempt' then 'j.attempt' when 'failures' then 'j.failures' when 'priority' then 'j.priority'
    when 'created' then 'j.created_at' when 'updated' then 'j.updated_at' when 'finished' then 'j.finished_at'
    when 'run_at' then 'j.run_at'
    when 'acknowledged' then acknowledged_operand()
    when 'fingerprint' then fingerprint_operand()
    when 'age' then 'extract(epoch from now() - j.created_at)'
    when 'wait' then $x$greatest(0, extract(epoch from coalesce(j.started_at, j.finished_at, now()) - greatest(j.created_at, j.run_at)))$x$
    when 'running' then $x$case when j.state = 'running' then greatest(0, extract(epoch from now() - j.started_at)) end$x$
  end;
  if operand is null or op is null then
    raise exception 'unknown field % in a query', coalesce(field, '(none)') using errcode = 'HF002';
  elsif field in ('attempt', 'failures', 'priority', 'age', 'wait', 'running') then
    if jsonb_typeof(tree -> 'value') is distinct from 'number' then
      raise exception '% must be compared with a number', field using errcode = 'HF002';
    end if;
    return format('%s %s (%s)::numeric', operand, op, term_at(place || 'value'::text));
  elsif field = 'acknowledged' then
    if jsonb_typeof(tree -> 'value') is distinct from 'boolean' or op <> '=' then
      raise exception 'acknowledged must be true or false' using errcode = 'HF002';
    end if;
    return format('%s = (%s)::boolean', operand, term_at(place || 'value'::text));
  elsif field in ('created', 'updated', 'finished', 'run_at') then
    return format('%s %s (%s)::timestamptz', operand, op, term_at(place || 'value'::text));
  end if;
  return (
    select '(' || string_agg(
      case
        when field = 'error' then format($x$j.last_error ilike '%%' || %s || '%%'$x$, shape.pattern)
        when strpos(part, '*') > 0 and not exact then format('%s like %s', operand, shape.pattern)
        else format('%s = %s', operand, shape.term)
      end, ' or ') || ')'
    from jsonb_array_elements_text(tree -> 'value') with ordinality as parts (part, number)
    cross join lateral (
      select term_at(place || 'value'::text || (number - 1)::text) as term) named
    cross join lateral (
      select named.term, format(case when exact then 'like_escaped(%s)' else $x$replace(like_escaped(%s), '*', '%%')$x$ end,
        named.term) as pattern) shape);
end
$$;

-- The SQL expression for whether the letter of a dead job is acknowledged; null for a job that is not dead.
create or replace function acknowledged_operand() returns text
language sql immutable
as $$
  select 'case when j.state = ''dead'' then (
    select l.acknowledged_at is not null from dead_letters l where l.job_id = j.id) end'
$$;

-- The SQL expression for the fingerprint of the failure that a job died of, or of an open job's last one.
create or replace function fingerprint_operand() returns text
language sql immutable
as $$
  select 'case
    when j.state = ''dead'' then (select d.fingerprint from dead_letters d where d.job_id = j.id)
    when j.state not in (''success'', ''canceled'') then (select g.fingerprint from failing g where g.job_id = j.id)
    end'
$$;

-- The SQL expression for a value of the tree, as text.
create or replace function term_at(place text[]) returns text
language sql immutable
as $$
  select format('($7 #>> %L)', place)
$$;

-- A text as a pattern of `like` that matches nothing else.
create or replace function like_escaped(value text) returns text
language sql immutable parallel safe
as $$
  select replace(replace(replace(value, '\', '\\'), '%', '\%'), '_', '\_')
$$;

-- Jobs that match, newest first, among the `max_visited` jobs before `before`. `reached` is the oldest job that was
-- looked at, null if there is none older. With a tenant, only its own jobs are looked at and counted: where a page ends
-- must not reveal anything about the jobs of others. A page that reads payloads, results or errors ends early, after at
-- least one job, when it has taken two seconds or when these values exceed 32 MiB as stored: one tenant's large jobs
-- must not keep others waiting. A search for a fingerprint looks only at the jobs that have it.
create or replace function search_jobs(
  tree jsonb, only_tenant text default null, before uuid default null, max_jobs integer default 50,
  max_visited integer default 100000
) returns table (ids uuid[], reached uuid, reached_at timestamptz)
language plpgsql security definer stable
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
  condition text := query_condition(tree);
  -- The sizes of the large columns that the condition reads. This text contains nothing that the caller wrote.
  read_size text := (
    select string_agg(format('coalesce(pg_column_size(j.%I), 0)', large), ' + ')
    from unnest(array['payload', 'result', 'last_error']) as large
    where strpos(condition, 'j.' || large) > 0);
  prints    text[] := fingerprints_wanted(tree);
  alike     uuid[] := case when prints is not null then jobs_with_fingerprint(prints, only_tenant, before, max_visited) end;
  -- The jobs that are walked over, newest first. Those of a tenant are walked over by the index that has nothing else:
  -- no other index has this order, whatever the statistics say of the tenant.
  walk      text := case
    when prints is not null then 'where j.id = any ($8) and ($1 is null or j.tenant = $1) order by j.id desc'
    when coalesce(only_tenant, 'default') = 'default' then
      'where ($2 is null or j.id < $2) and ($1 is null or j.tenant = $1) order by j.id desc'
    else
      $w$where j.tenant <> 'default'
        and (j.tenant, j.id) >= ($1, '00000000-0000-0000-0000-000000000000')
        and (j.tenant, j.id) < ($1, coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
      order by j.tenant desc, j.id desc$w$
  end;
  ends_at   timestamptz := clock_timestamp() + make_interval(secs => search_limit('seconds', 2)::double precision);
  found_ids uuid[];
  last_seen uuid;
  last      record;
begin
  if read_size is null then
    execute format($q$
      select array_agg(page.id order by page.id desc)
      from (
        select j.id
        from (
          select j.*
          from jobs j
          %s
          limit $4) j
        where not is_request(j.type) and %s
        limit $3) page
      $q$, walk, condition)
    into found_ids
    using only_tenant, before, max_jobs, max_visited, null, null, tree, alike;
  else
    execute format($q$
      select array_agg(page.id order by page.id desc) filter (where page.fits),
        (array_agg(page.previous order by page.id desc) filter (where page.fits is null))[1]
      from (
        select seen.id, seen.previous, seen.fits
        from (
          select j.id, j.previous,
            case
              when j.previous is not null and (clock_timestamp() > $5 or j.spent > $6) then null
              else coalesce((%s), false)
            end as fits
          from (
            select j.*, lag(j.id) over walk as previous,
              sum(%s) over (walk rows between unbounded preceding and 1 preceding) as spent
            from (
              select j.*
              from jobs j
              %s
              limit $4) j
            window walk as (order by j.id desc)) j
          where not is_request(j.type)
          offset 0) seen
        where seen.fits is distinct from false
        limit $3) page
      $q$, condition, read_size, walk)
    into found_ids, last_seen
    using only_tenant, before, max_jobs, max_visited, ends_at, search_limit('bytes', 33554432), tree, alike;
  end if;

  if last_seen is not null then
    select j.id, j.created_at into last from jobs j where j.id = last_seen;
  elsif cardinality(found_ids) = max_jobs then
    select j.id, j.created_at into last from jobs j where j.id = found_ids[max_jobs];
  elsif prints is not null then
    select a.id, j.created_at into last
    from (select alike[max_visited] as id) a
    left join jobs j on j.id = a.id;
  else
    execute format('select j.id, j.created_at from jobs j %s offset $3 - 1 limit 1', walk)
    into last
    using only_tenant, before, max_visited;
  end if;
  return query select coalesce(found_ids, '{}'), last.id, last.created_at;
end
$$;

-- How much time or data one page of a search may take, unless the session sets a limit (`holdfast.search_seconds`).
create or replace function search_limit(what text, usual numeric) returns numeric
language sql stable
as $$
  select coalesce(nullif(current_setting('holdfast.search_' || what, true), '')::numeric, usual)
$$;

-- A page of the ended attempts of a job, oldest first, after the given number.
create or replace function attempts_after(id uuid, only_tenant text, after integer, max_attempts integer)
returns setof job_attempts
language sql security definer stable
set search_path from current
as $$
  select t.*
  from job_attempts t
  where t.job_id = attempts_after.id
    and t.attempt > attempts_after.after
    and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
  order by t.attempt
  limit attempts_after.max_attempts
$$;

-- A page of a job's history, oldest first, without the first `after` events. Pages do not use the event's own
-- number, because it would reveal how much happens to the jobs of others.
create or replace function events_after(id uuid, only_tenant text, after bigint, max_events integer)
returns setof job_events
language sql security definer stable
set search_path from current
as $$
  select e.*
  from job_events e
  where e.job_id = events_after.id
    and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
  order by e.id
  offset events_after.after
  limit max_events
$$;

-- How many jobs are ready and running, per tenant, queue and type.
create or replace function job_statistics(only_tenant text default null)
returns table (tenant text, queue text, type text, ready bigint, running bigint, oldest_ready_at timestamptz)
language sql security definer stable
set search_path from current
as $$
  select s.tenant, s.queue, s.type, coalesce(sum(r.count), 0)::bigint, coalesce(sum(l.count), 0)::bigint, min(r.oldest)
  from streams s
  left join (
    select stream_of(stream) as stream, count(*) as count, min(ready_at) as oldest from ready group by 1) r on r.stream = s.id
  left join (select stream, count(*) as count from leases group by stream) l on l.stream = s.id
  where s.queue <> 'holdfast'
    and (only_tenant is null or s.tenant = only_tenant)
    and coalesce(r.count, l.count) is not null
  group by s.tenant, s.queue, s.type
  order by s.tenant, s.queue, s.type
$$;

-- How many jobs are scheduled or retrying, how many wait behind a target's head, and how many dead ones are
-- unacknowledged.
create or replace function job_totals(only_tenant text default null)
returns table (due bigint, waiting bigint, dead bigint)
language sql security definer stable
set search_path from current
as $$
  select
    case when only_tenant is null then (select count(*) from due)
      else (select count(*) from due d join jobs j on j.id = d.job_id where j.tenant = only_tenant) end,
    (select count(*) from waiting w where only_tenant is null or w.tenant = only_tenant),
    (select count(*) from dead_letters d
     where d.acknowledged_at is null and (only_tenant is null or d.tenant = only_tenant))
$$;
