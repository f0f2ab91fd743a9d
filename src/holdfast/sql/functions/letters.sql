-- Dead letters: list, show, acknowledge and requeue them. Moves: none; a requeue records a new job. Roles: operator.
--
-- A letter has only what lists show and sort by, who acknowledged it, and the job that it was requeued as. The rest is
-- read from the dead job, which cannot change any more: an erasure has one place to erase.

-- Dead letters as they may be read with psql, with the dead job itself and the end of its last attempt.
create or replace view dead_letter_jobs as
select
  d.job_id as id,
  jsonb_build_object(
    'id', j.id, 'type', j.type, 'queue', j.queue, 'tenant', j.tenant, 'state', j.state, 'payload', j.payload,
    'priority', j.priority, 'attempt', j.attempt, 'failures', j.failures,
    'max_attempts', coalesce(j.max_attempts, t.max_attempts, (
      select coalesce(s.value, s.default_value)::integer from settings s where s.name = 'MAX_ATTEMPTS_DEFAULT')),
    'target', j.target, 'target_count', j.target_count, 'idempotency_key', j.idempotency_key,
    'correlation_id', coalesce(j.correlation_id, j.id::text), 'parent_id', j.parent_id, 'retry_of', j.retry_of,
    'created_by', j.created_by, 'traceparent', j.traceparent, 'created_at', j.created_at, 'run_at', j.run_at,
    'started_at', j.started_at, 'finished_at', j.finished_at, 'last_error', j.last_error,
    'last_error_at', j.last_error_at) as original_job,
  d.error_message,
  (
    select jsonb_build_object(
      'attempt', a.attempt, 'worker', a.worker, 'outcome', a.outcome, 'started_at', a.started_at,
      'finished_at', a.finished_at, 'queue_ms', a.queue_ms, 'duration_ms', a.duration_ms, 'error_type', a.error_type,
      'error_message', a.error_message, 'traceback', a.traceback, 'log_excerpt', a.log_excerpt)
    from job_attempts a
    where a.job_id = d.job_id
    order by a.attempt desc
    limit 1) as error_details,
  d.died_at,
  d.acknowledged_at is not null as acknowledged,
  d.acknowledged_by,
  d.acknowledged_at
from dead_letters d
left join jobs j on j.id = d.job_id
left join job_types t on t.name = j.type;

-- The condition of a part of a query, where a letter says by itself whether it is acknowledged, and of which fingerprint.
create or replace function letter_condition(tree jsonb, place text[]) returns text
language plpgsql immutable
set search_path from current
as $$
begin
  perform check_query_size(tree);
  return replace(
    replace(condition_at(tree, place), acknowledged_operand(), 'j.acknowledged'), fingerprint_operand(), 'j.print');
end
$$;

-- What a letter says by itself of its job, by the names of jobs; `acknowledged` and `print` (its fingerprint) are its own.
create or replace function letter_columns() returns text[]
language sql immutable parallel safe
as $$
  select array['id', 'tenant', 'type', 'state', 'finished_at', 'acknowledged', 'print']
$$;

-- Those of the conditions that all letters of a query must meet which a letter can answer by itself; null if there is none.
create or replace function early_condition(tree jsonb, place text[]) returns text
language plpgsql immutable
set search_path from current
as $$
declare
  condition text;
begin
  if tree ? 'and' then
    return (
      select string_agg(early.condition, ' and ' order by part.number)
      from jsonb_array_elements(tree -> 'and') with ordinality as part (tree, number)
      cross join lateral (
        select early_condition(part.tree, place || 'and'::text || (part.number - 1)::text) as condition) early);
  end if;
  condition := letter_condition(tree, place);
  return case
    when array(select used[1] from regexp_matches(condition, $p$\mj\.(\w+)$p$, 'g') as used) <@ letter_columns()
    then condition
  end;
end
$$;

-- Letters whose jobs match a query (see browse.sql), newest first, among the `max_visited` letters before the given
-- place. `acknowledged` null means all. `reached` is the oldest letter that was looked at, null if there is none older.
-- With a tenant, only its own letters are looked at and counted. Only letters are walked over, never jobs. The dead
-- jobs are read if the query asks for more than a letter has, and then a page ends early as one of `search_jobs` does.
create or replace function search_letters(
  tree jsonb, only_tenant text, acknowledged boolean, only_fingerprint text, before_at timestamptz, before_id uuid,
  max_letters integer, max_visited integer
) returns table (ids uuid[], reached_at timestamptz, reached_id uuid)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_sort = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  condition text := letter_condition(tree, '{}');
  -- The columns of jobs that the condition reads. It contains nothing that the caller wrote.
  needed    text[] := array(select distinct found[1] from regexp_matches(condition, $p$\mj\.(\w+)$p$, 'g') as found);
  read_size text := (
    select string_agg(format('coalesce(pg_column_size(j.%I), 0)', large), ' + ')
    from unnest(array['payload', 'result', 'last_error']) as large
    where large = any (needed));
  of_letter boolean := needed <@ letter_columns();
  -- With a tenant, the order begins with it: then only indexes of tenants have this order, whatever the statistics say.
  sorting   text := case when only_tenant is not null then 'd.tenant desc, ' else '' end || 'd.died_at desc, d.job_id desc';
  walk      text := format('from dead_letters d where %s and %s order by %s',
    case
      when only_tenant is not null then
        $w$(d.tenant, d.died_at, d.job_id) >= ($1, '-infinity', '00000000-0000-0000-0000-000000000000')
        and (d.tenant, d.died_at, d.job_id) < (
          $1, coalesce($2, 'infinity'), coalesce($3, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))$w$
      when before_at is not null then '(d.died_at, d.job_id) < ($2, $3)'
      else 'true'
    end,
    case when not search_letters.acknowledged then 'd.acknowledged_at is null' else 'true' end,
    sorting);
  -- No index has acknowledged letters alone, nor fingerprints in this order. So these are looked for, and all count. What
  -- a letter can say by itself is asked first: then no job is read for the letters that do not fit.
  chosen    text := concat_ws(' and ',
    case when search_letters.acknowledged then 'j.acknowledged' else 'true' end,
    case when only_fingerprint is not null then 'j.print = $6' end,
    early_condition(tree, '{}'));
  letters   text := format('select j.*, d.died_at, (%s) is true as chosen %s limit $4', chosen,
    replace(walk, 'from dead_letters d', $w$from dead_letters d
      cross join lateral (
        select d.job_id as id, d.tenant, d.type, 'dead' as state, d.died_at as finished_at,
          d.acknowledged_at is not null as acknowledged, d.fingerprint as print) j$w$));
  -- Looked up for each letter, in their order, whatever the statistics say: a page takes the first ones.
  of_job    text := 'cross join lateral (select j.* from jobs j where j.id = d.id offset 0) j';
  -- Reading the jobs as well takes three to ten times as long.
  visits    integer := greatest(1, case when of_letter then max_visited when read_size is null then max_visited / 4 else max_visited / 8 end);
  found_ids uuid[];
  last_seen uuid;
begin
  if read_size is null then
    execute format($q$
      select array_agg(page.id order by page.died_at desc, page.id desc)
      from (
        select j.id, j.died_at
        from (
          select %s
          from (%s) d
          %s) j
        where j.chosen and %s
        limit $5) page
      $q$,
      case when of_letter then 'd.*' else 'j.*, d.died_at, d.acknowledged, d.print, d.chosen' end,
      letters, case when not of_letter then of_job end, condition)
    into found_ids
    using only_tenant, before_at, before_id, visits, max_letters, only_fingerprint, tree;
  else
    execute format($q$
      select array_agg(page.id order by page.died_at desc, page.id desc) filter (where page.fits),
        (array_agg(page.previous order by page.died_at desc, page.id desc) filter (where page.fits is null))[1]
      from (
        select seen.id, seen.died_at, seen.previous, seen.fits
        from (
          select j.id, j.died_at, j.previous,
            case
              when j.previous is not null and (clock_timestamp() > $8 or j.spent > $9) then null
              else coalesce((%s), false)
            end as fits
          from (
            select j.*, d.died_at, d.acknowledged, d.print, lag(d.id) over walk as previous,
              sum(%s) over (walk rows between unbounded preceding and 1 preceding) as spent
            from (%s) d
            %s
            where d.chosen
            window walk as (order by %s)) j
          offset 0) seen
        where seen.fits is distinct from false
        limit $5) page
      $q$, condition, read_size, letters, of_job, replace(sorting, 'd.job_id', 'd.id'))
    into found_ids, last_seen
    using only_tenant, before_at, before_id, visits, max_letters, only_fingerprint, tree,
      clock_timestamp() + make_interval(secs => search_limit('seconds', 2)::double precision),
      search_limit('bytes', 33554432);
  end if;

  ids := coalesce(found_ids, '{}');
  if last_seen is null and cardinality(ids) = max_letters then
    last_seen := ids[max_letters];
  end if;
  if last_seen is not null then
    select d.died_at, d.job_id into reached_at, reached_id from dead_letters d where d.job_id = last_seen;
  else
    execute format('select d.died_at, d.job_id %s offset $4 - 1 limit 1', walk)
    into reached_at, reached_id
    using only_tenant, before_at, before_id, visits;
  end if;
  return next;
end
$$;

-- What lists show of letters, in the order of the ids, with texts cut to their maximal length.
create or replace function get_letters(job_ids uuid[], only_tenant text default null)
returns table (
  job_id uuid, tenant text, type text, queue text, error_type text, error_message text, fingerprint text,
  attempts integer, died_at timestamptz, acknowledged boolean, acknowledged_by text, acknowledged_at timestamptz,
  note text, requeued_as uuid)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select d.job_id, left(d.tenant, 200), left(d.type, 200), left(j.queue, 200), left(d.error_type, 200),
    left(d.error_message, 1000), left(d.fingerprint, 255), j.attempt, readable(d.died_at), d.acknowledged_at is not null,
    left(d.acknowledged_by, 500), readable(d.acknowledged_at), left(d.note, 1000), d.requeued_as
  from unnest(job_ids) with ordinality as asked (id, place)
  join dead_letters d on d.job_id = asked.id
  join jobs j on j.id = d.job_id
  where only_tenant is null or d.tenant = only_tenant
  order by asked.place
$$;

-- Acknowledge letters: somebody knows of the failure, and from now on retention applies. The first acknowledgement
-- stays. Answers for each job `acknowledged`; `unchanged`, if it was before; `not-found`; or `not-dead`, and its state.
create or replace function acknowledge_letters(
  job_ids uuid[], by text, note text default null, only_tenant text default null, by_key uuid default null
) returns table (job_id uuid, outcome text, state text)
language plpgsql security definer
set search_path from current
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  wanted uuid;
  whose  text;
begin
  perform check_signed(by, note);
  -- In the order of the ids, so that no two callers wait for each other.
  for wanted in select distinct asked.id from unnest(job_ids) as asked (id) order by 1 loop
    select d.tenant into whose from dead_letters d where d.job_id = wanted and (only_tenant is null or d.tenant = only_tenant);
    if found and acknowledge_letter(wanted, by, note) then
      perform note_audit(
        by, by_key, whose, 'letter.ack', wanted::text,
        jsonb_strip_nulls(jsonb_build_object('note', acknowledge_letters.note)));
      return query select wanted, 'acknowledged', 'dead';
    else
      return query
      select wanted, case s.outcome when 'dead' then 'unchanged' else s.outcome end, s.state
      from letter_standing(wanted, only_tenant) s;
    end if;
  end loop;
  perform vouch();
end
$$;

-- Acknowledge one letter. False if somebody has before.
create or replace function acknowledge_letter(id uuid, by text, note text) returns boolean
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
begin
  update dead_letters d
  set acknowledged_at = now(), acknowledged_by = acknowledge_letter.by, note = acknowledge_letter.note
  where d.job_id = acknowledge_letter.id and d.acknowledged_at is null;
  return found;
end
$$;

-- Run dead jobs again as new ones, once each, with the same correlation id and another payload or other options if they
-- are given (for all of them; an option that is given as null is left to the job type). This acknowledges their letters.
-- Answers for each job `requeued` and the new job; `repeated` and the same new job, if it was requeued or retried
-- before; `erased`, if its content was; `request`, if it is a request, which can be made again instead; `not-found`; or
-- `not-dead`, and its state.
create or replace function requeue_letters(
  job_ids uuid[], by text, note text default null, payload jsonb default null, options jsonb default null,
  only_tenant text default null, by_key uuid default null
) returns table (job_id uuid, outcome text, state text, runs_as uuid)
language plpgsql security definer
set search_path from current
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  wanted uuid;
  answer record;
begin
  perform check_signed(by, note);
  if options ?| array['correlation_id', 'parent_id', 'idempotency_key'] then
    raise exception 'a requeued job keeps its correlation_id and parent_id, and needs no idempotency_key: '
      'a repeated requeue answers the same job' using errcode = 'HF002';
  end if;
  for wanted in select distinct asked.id from unnest(job_ids) as asked (id) order by 1 loop
    select s.outcome, s.state, s.type, s.tenant, null::uuid as runs_as into answer
    from letter_standing(wanted, only_tenant) s;
    if answer.outcome = 'dead' then
      if payload is not null or options is not null then
        perform check_enqueue(
          array[answer.type], array[coalesce(requeue_letters.payload, '{}')],
          array[coalesce(requeue_letters.options, '{}')], answer.tenant);
      end if;
      select r.outcome, answer.state, answer.type, answer.tenant, r.runs_as into answer
      from requeue_letter(wanted, requeue_letters.payload, requeue_letters.options, by, note) r;
    end if;
    if answer.outcome = 'requeued' then
      perform note_audit(
        by, by_key, answer.tenant, 'letter.requeue', wanted::text,
        jsonb_strip_nulls(jsonb_build_object(
          'note', note, 'runs_as', answer.runs_as, 'payload', case when payload is not null then 'changed' end,
          'options', (select jsonb_agg(o.name) from jsonb_object_keys(options) as o (name)))));
    end if;
    return query select wanted, answer.outcome, answer.state, answer.runs_as;
  end loop;
  perform vouch();
end
$$;

-- Run one dead job again, or answer the job that it runs again as. The letter is locked meanwhile, so that all who ask
-- at once are answered with the same job.
create or replace function requeue_letter(
  id uuid, payload jsonb, options jsonb, by text, note text, out outcome text, out runs_as uuid
)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  letter dead_letters;
  job    jobs;
begin
  select d.* into letter from dead_letters d where d.job_id = requeue_letter.id for update;
  -- Read after the lock: an erasure also has to wait for it.
  select j.* into job from jobs j where j.id = requeue_letter.id and j.state = 'dead';
  outcome := case
    when letter.job_id is null or job.id is null then 'not-found'
    when letter.requeued_as is not null then 'repeated'
    when is_request(job.type) then 'request'
    when is_erased(job.id) then 'erased'
    else 'requeued'
  end;
  runs_as := letter.requeued_as;
  if outcome <> 'requeued' then
    return;
  end if;
  runs_as := run_again_with(job, by, payload, options);
  if not exists (select from jobs j where j.id = runs_as and j.retry_of = job.id) then
    raise exception 'the dedup_key % belongs to the open job %: leave it out, or wait until that job has ended',
      quote_nullable(options ->> 'dedup_key'), runs_as using errcode = 'HF001';
  end if;
  update dead_letters d
  set requeued_as = runs_as,
    acknowledged_at = coalesce(d.acknowledged_at, now()),
    acknowledged_by = case when d.acknowledged_at is null then requeue_letter.by else d.acknowledged_by end,
    note = case when d.acknowledged_at is null then requeue_letter.note else d.note end
  where d.job_id = requeue_letter.id;
end
$$;

-- Whether there is a letter: `dead`, or why there is none.
create or replace function letter_standing(
  id uuid, only_tenant text, out outcome text, out state text, out type text, out tenant text
)
language sql stable
set search_path from current
as $$
  select case
      when j.id is null then 'not-found'
      when j.state <> 'dead' then 'not-dead'
      when d.job_id is null then 'not-found'
      else 'dead'
    end, j.state, j.type, j.tenant
  from (select letter_standing.id) as asked (id)
  left join jobs j on j.id = asked.id and (only_tenant is null or j.tenant = only_tenant)
  left join dead_letters d on d.job_id = j.id
$$;

-- Raise unless a decision says who made it.
create or replace function check_signed(by text, note text) returns void
language plpgsql immutable
set search_path from current
as $$
begin
  perform check_texts(by, note);
  if by is null then
    raise exception '`by` is required' using errcode = 'HF002';
  end if;
end
$$;
