-- What an attempt reports about its job before it ends: items, a cursor, its progress. Moves: none, or
-- running → success if the report ends the job. Roles: worker.
--
-- 1. A report counts only while its worker has the lease of its attempt. Otherwise the answer is `lease-lost`, and
--    nothing changes.
-- 2. `seq` numbers the reports of an attempt from 1; gaps are allowed. A report that has counted before is answered
--    with `duplicate` and changes nothing, even if this worker's attempt has ended since.
-- 3. Items are `{key, data}`; an item without a key has the hash of its data as key. An item is stored once per key of
--    its collection, which belongs to the job's tenant. A collection without a name is the job's own, stored under its
--    id; a name that looks like an id is stored in another form (`collection_key`).
-- 4. `progress_count` counts what was reported (items, plus `progress`), `result_count` what was stored. When the
--    latter reaches the job's `target_count`, the answer says so.
-- 5. `ends` says what then becomes of the job: the caller decides (`later`), or it ends in this very transaction, if
--    the target is reached (`at-target`) or in any case (`now`).
create or replace function report(
  worker       text,
  job_id       uuid,
  attempt      integer,
  seq          integer,
  items        jsonb default null,
  collection   text default null,
  cursor       jsonb default null,
  progress     bigint default 0,
  done_reason  text default null,
  ends         text default 'later',
  result       jsonb default null,
  log_excerpt  text default null
) returns table (
  state text, duplicate boolean, progress_count bigint, result_count bigint, target_count bigint,
  target_reached boolean)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  owned   boolean;
  job     record;
  known   job_progress;
  stored  bigint := 0;
  reached boolean;
begin
  perform check_report(seq, items, report.collection, progress, report.done_reason, ends);
  perform check_report_size(items, report.cursor);
  perform from leases l
  where l.job_id = report.job_id and l.attempt = report.attempt and l.worker = report.worker
  for update;
  owned := found;
  select j.tenant, j.state, j.target_count into job
  from jobs j
  where j.id = report.job_id and j.attempt >= report.attempt;
  select p.* into known from job_progress p where p.job_id = report.job_id;
  if known.attempt = report.attempt and known.seqs @> seq::bigint and (owned or exists (
    select from job_attempts t
    where t.job_id = report.job_id and t.attempt = report.attempt and t.worker = report.worker)) then
    perform vouch();
    return query
    select job.state, true, known.progress_count, known.result_count, job.target_count,
      coalesce(known.result_count >= job.target_count, false);
    return;
  elsif not owned or job.state is distinct from 'running' then
    return query select 'lease-lost', false, null::bigint, null::bigint, null::bigint, false;
    return;
  end if;

  if known.progress_count::numeric + coalesce(jsonb_array_length(items), 0) + progress > 9223372036854775807
    or coalesce(jsonb_array_length(items), 0)::numeric + progress > 9223372036854775807
  then
    raise exception 'the progress of a job adds up to at most 9223372036854775807' using errcode = 'HF002';
  end if;
  if jsonb_array_length(items) > 0 then
    -- In the order of their keys, so that two reports to one collection cannot wait for each other. The numbers follow
    -- all that the job has reported, which is at least what it has stored.
    insert into job_items (job_id, id, tenant, collection, key, data)
    select report.job_id,
      coalesce(known.progress_count, 0) + row_number() over (order by item.key, item.ordinality), job.tenant,
      coalesce(collection_key(report.collection), report.job_id::text), item.key, item.data
    from (
      select coalesce(i.value ->> 'key', data_hash(i.value -> 'data')) as key, i.value -> 'data' as data, i.ordinality
      from jsonb_array_elements(items) with ordinality i) item
    order by item.key, item.ordinality
    on conflict on constraint job_items_key do nothing;
    get diagnostics stored = row_count;
  end if;

  reached := coalesce(coalesce(known.result_count, 0) + stored >= job.target_count, false);
  insert into job_progress as p (job_id, attempt, seqs, progress_count, result_count, cursor, done_reason)
  values (report.job_id, report.attempt, counted_with('{}', seq), coalesce(jsonb_array_length(items), 0) + progress, stored,
    report.cursor, case when reached then 'target_reached' else report.done_reason end)
  on conflict on constraint job_progress_pkey do update
    set attempt = excluded.attempt,
      seqs = case when p.attempt = excluded.attempt then counted_with(p.seqs, report.seq) else excluded.seqs end,
      progress_count = p.progress_count + excluded.progress_count,
      result_count = p.result_count + excluded.result_count,
      cursor = coalesce(excluded.cursor, p.cursor),
      last_progress_at = greatest(now(), p.last_progress_at + interval '1 microsecond'),
      done_reason = coalesce(excluded.done_reason, case when p.attempt = excluded.attempt then p.done_reason end),
      log_excerpt = case when p.attempt = excluded.attempt then p.log_excerpt end
  returning p.* into known;

  if ends = 'now' or (ends = 'at-target' and reached) then
    select c.state into job.state
    from complete(
      report.worker, array[report.job_id], array[report.attempt], array[report.result], null,
      array[report.log_excerpt]) c;
  end if;
  return query select job.state, false, known.progress_count, known.result_count, job.target_count, reached;
end
$$;

-- Raise unless a report has only what may be reported.
create or replace function check_report(
  seq integer, items jsonb, collection text, progress bigint, done_reason text, ends text
) returns void
language plpgsql immutable
as $$
declare
  fault text;
begin
  fault := case
    when coalesce(seq, 0) < 1 then 'seq must be 1 or more'
    when coalesce(progress, -1) < 0 then 'progress must be 0 or more'
    when length(collection) not between 1 and 200 then 'a collection is named by 1 to 200 characters'
    when done_reason not in ('worker_done', 'target_reached', 'no_more_results') then
      'done_reason is worker_done, target_reached or no_more_results'
    when coalesce(ends, '') not in ('later', 'at-target', 'now') then 'ends is later, at-target or now'
    when jsonb_typeof(items) <> 'array' then 'items must be a list'
  end;
  if fault is null and items is not null then
    fault := case
      when jsonb_array_length(items) > 10000 then 'a report has 10000 items at most'
      when exists (
        select from jsonb_array_elements(items) item
        where jsonb_typeof(item) <> 'object' or not item ? 'data') then
        'an item is an object with data, and perhaps a key'
      when exists (
        select from jsonb_array_elements(items) item
        where jsonb_typeof(item -> 'key') not in ('string', 'null')
          or length(item ->> 'key') not between 1 and 255) then
        'the key of an item is a text of 1 to 255 characters'
    end;
  end if;
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;

-- Refuse a report that is too large. A cursor, and the data of an item, may be as large as a result; all items of a
-- report together 64 MiB.
create or replace function check_report_size(items jsonb, cursor jsonb) returns void
language plpgsql stable
set search_path from current
as $$
declare
  most  bigint := result_limit();
  bytes bigint := octet_length(items::text);
  fault text := json_fault('the cursor', cursor, most, 'RESULT_MAX_BYTES', 'keep where to go on from, not what was found');
begin
  if fault is null and bytes > 67108864 then
    fault := format('the items take %s bytes as JSON, and one report 67108864 at most: report them in several', bytes);
  elsif fault is null and (bytes > most or not is_small(items)) then
    select json_fault(
      'the data of an item', item -> 'data', most, 'RESULT_MAX_BYTES',
      'store it elsewhere and report where it is, or raise the limit') into fault
    from jsonb_array_elements(items) as item
    where not is_storable(item -> 'data', most)
    limit 1;
  end if;
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;

-- The key of an item that has none: a hash of its data. Equal jsonb values have the same text.
create or replace function data_hash(data jsonb) returns text
language sql immutable
as $$
  select encode(sha256(convert_to(data::text, 'UTF8')), 'hex')
$$;

-- The numbers of the reports that have counted, plus one more. Numbers without gaps form one range. If there are very
-- many gaps, the older half is closed, so that the row stays small: nobody repeats a report after so many later ones.
create or replace function counted_with(counted int8multirange, seq integer) returns int8multirange
language plpgsql immutable
as $$
declare
  bigger int8multirange := counted + int8multirange(int8range(seq, seq, '[]'));
begin
  if pg_column_size(bigger) < 2000 then
    return bigger;
  end if;
  return bigger + int8multirange(int8range(lower(bigger), (
    select lower(r.range) from unnest(bigger) with ordinality r (range, place) order by place desc offset 50 limit 1)));
end
$$;

-- The cursor that earlier attempts left. Volatile, so that a claim which calls it sees everything that was committed up
-- to that moment. Roles: worker.
create or replace function last_cursor(job_id uuid) returns jsonb
language plpgsql volatile security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  return (select p.cursor from job_progress p where p.job_id = last_cursor.job_id);
end
$$;

-- Delete up to `max_items` items of jobs. Answers whether none is left.
create or replace function drop_items(job_ids uuid[], max_items integer default 10000) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  dropped integer;
begin
  delete from job_items i
  where i.ctid = any (array(select e.ctid from job_items e where e.job_id = any (job_ids) limit max_items));
  get diagnostics dropped = row_count;
  return dropped < max_items;
end
$$;

-- How the name of a shared collection is stored: a name that is an id, such as that of a correlation, must not be the own
-- collection of that job.
create or replace function collection_key(name text) returns text
language sql immutable parallel safe
as $$
  select case when name ~ '^=*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then '=' || name else name end
$$;

-- The name of a collection, as it was given.
create or replace function collection_name(key text) returns text
language sql immutable parallel safe
as $$
  select case when key ~ '^=+[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then substr(key, 2) else key end
$$;
