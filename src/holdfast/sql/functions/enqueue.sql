-- Record intents. Moves: (nothing) → created | scheduled | queued. Roles: api, worker, operator.
--
-- Options of a job, as a JSON object: priority, run_at or delay (seconds), idempotency_key, dedup_key,
-- correlation_id, parent_id, max_attempts, target, queue, hold, target_count, traceparent.
-- Each job answers with one row: `created`; `existing`, when its idempotency or dedup key already has a
-- job; or `conflict`, when the idempotency key answered a request with another type or payload (then nothing was
-- recorded for it). Nothing here takes a lock that a claim or a settlement waits for.
--
-- An idempotency key is recorded first, with the fingerprint of its request. Whoever records it owns it: either a job
-- is made for it, or, where a dedup key is met, the key is bound to the job that was there. Its repeats are answered
-- with that job for as long as that has a row, whether or not it has ended.

-- Record many jobs at once; a row for each, by position.
create or replace function enqueue_many(
  types      text[],
  payloads   jsonb[],
  options    jsonb[] default null,
  tenant     text default 'default',
  created_by text default null,
  ids        uuid[] default null
) returns table (item integer, job_id uuid, state text, outcome text)
language plpgsql security definer
set search_path from current
as $$
begin
  perform check_enqueue(types, payloads, options, tenant);
  perform check_texts(created_by, null);
  return query select * from record_jobs(types, payloads, options, tenant, created_by, ids);
end
$$;

-- The shortest way in, for jobs of one type with no options but, perhaps, a queue. The caller gives the ids and
-- so knows them: only what was not simply recorded (`created`, in state `queued`, under its id) is answered.
-- `alone` is the caller's word that this statement is a transaction of its own (see `wake`); nobody can tell from
-- the clock, because a large batch takes long to arrive. Inside a longer transaction it must not be said: until
-- that ends, workers would hear of no other job of the stream.
-- What it cannot record at once, for whatever reason, goes the long way, which refuses it or answers in detail.
create or replace function enqueue_plain(
  type       text,
  payloads   jsonb[],
  ids        uuid[],
  queue      text default null,
  tenant     text default 'default',
  created_by text default null,
  alone      boolean default false
) returns table (item integer, job_id uuid, state text, outcome text)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  asked    integer := coalesce(cardinality(payloads), 0);
  home     integer;
  line     text;
  place    bigint;
  most     bigint;
  surely   bigint;
  recorded boolean := false;
begin
  if cardinality(ids) is distinct from asked then
    raise exception 'payloads and ids must have the same length' using errcode = 'HF002';
  end if;
  if not starts_with(type, 'holdfast.') and array_position(ids, null) is null
    and (created_by is null or length(created_by) <= 500) then
    -- Where there is a stream, type, queue and tenant have been found good before.
    select s.id, s.queue into home, line
    from streams s
    where s.type = enqueue_plain.type
      and s.queue = coalesce(
        enqueue_plain.queue, (select t.queue from job_types t where t.name = enqueue_plain.type), 'default')
      and s.queue <> 'holdfast'
      and s.tenant = enqueue_plain.tenant
      and s.closed_in is null
      -- The long way refuses a closed type. Where none ever was, the first look reads no page, and is the only one.
      and (
        not exists (select from closed_types)
        or not exists (select from closed_types c where c.name = enqueue_plain.type))
    order by s.id
    limit 1;
  end if;

  if home is null then
    null;
  elsif asked = 1 then
    if jsonb_typeof(payloads[1]) = 'object' and (
      is_small(payloads[1])
      or is_storable(payloads[1], payload_limit())
    ) then
      insert into jobs (id, seq, stream, state, tenant, type, queue, created_by, payload)
      values (
        ids[1], nextval('places'), home, 'queued', enqueue_plain.tenant, enqueue_plain.type, line,
        enqueue_plain.created_by, payloads[1])
      on conflict do nothing
      returning seq into place;
      if place is not null then
        insert into ready (stream, rank, seq, job_id)
        values (home, ready_rank(100, false), place, ids[1]);
        recorded := true;
      end if;
    end if;
  elsif alone then
    -- Far cheaper than `on conflict`. A transaction of many batches would have too many subtransactions.
    -- Small payloads are not measured: no number of up to 6400 digits takes more than 400 times its size as text. What is
    -- shorter to write and has more (1e131071) can make such a payload 13 MB, and comes from hand-written SQL alone.
    most := payload_limit();
    surely := least(most / 400, 1500);
    begin
      with entry as (
        insert into jobs (id, seq, stream, state, tenant, type, queue, created_by, payload)
        select
          job.id, nextval('places'), home, 'queued', enqueue_plain.tenant, enqueue_plain.type, line,
          enqueue_plain.created_by,
          case
            when jsonb_typeof(job.payload) = 'object' and (
              pg_column_size(job.payload) <= surely
              or is_small(job.payload)
              or is_storable(job.payload, most))
            then job.payload
          end
        from unnest(ids, payloads) as job (id, payload)
        returning id, seq
      )
      insert into ready (stream, rank, seq, job_id)
      select home, ready_rank(100, false), seq, id
      from entry;
      recorded := true;
    exception
      when unique_violation or not_null_violation then
        null;
    end;
  end if;

  if not recorded then
    return query
    select e.item, e.job_id, e.state, e.outcome
    from enqueue_many(
      array_fill(enqueue_plain.type, array[asked]), payloads,
      case when enqueue_plain.queue is not null then
        array_fill(jsonb_build_object('queue', enqueue_plain.queue), array[asked])
      end,
      enqueue_plain.tenant, enqueue_plain.created_by, ids) e
    where (e.outcome, e.state, e.job_id) is distinct from ('created', 'queued', ids[e.item]);
  elsif not alone or pg_try_advisory_xact_lock(hashtext(current_schema() || '.ready'), home) then
    perform pg_notify(current_schema() || '.ready', home::text);
  end if;
end
$$;

-- Record a job, in the caller's own transaction; its id, and whether it is new.
create or replace function enqueue(
  type            text,
  payload         jsonb default '{}',
  priority        integer default null,
  run_at          timestamptz default null,
  delay           double precision default null,
  idempotency_key text default null,
  dedup_key       text default null,
  correlation_id  text default null,
  parent_id       uuid default null,
  max_attempts    integer default null,
  target          text default null,
  queue           text default null,
  hold            boolean default null,
  target_count    bigint default null,
  tenant          text default 'default',
  created_by      text default null
) returns table (job_id uuid, state text, outcome text)
language sql security definer
set search_path from current
as $$
  select e.job_id, e.state, e.outcome
  from enqueue_many(
    array[enqueue.type],
    array[enqueue.payload],
    array[jsonb_strip_nulls(jsonb_build_object(
      'priority', priority, 'run_at', run_at, 'delay', delay, 'idempotency_key', idempotency_key,
      'dedup_key', dedup_key, 'correlation_id', correlation_id, 'parent_id', parent_id,
      'max_attempts', max_attempts, 'target', target, 'queue', queue, 'hold', hold,
      'target_count', target_count))],
    enqueue.tenant, enqueue.created_by) e
$$;

-- Refuse what is wrong before anything is written, and say what to do.
create or replace function check_enqueue(types text[], payloads jsonb[], options jsonb[], tenant text)
returns void
language plpgsql
set search_path from current
set plan_cache_mode = force_generic_plan
as $$
declare
  wrong text;
begin
  if coalesce(cardinality(types), -1) <> coalesce(cardinality(payloads), -2)
    or cardinality(types) <> coalesce(cardinality(options), cardinality(types)) then
    raise exception 'types, payloads and options must have the same length' using errcode = 'HF002';
  elsif coalesce(length(tenant), 0) not between 1 and 200 then
    raise exception 'tenant must have 1 to 200 characters' using errcode = 'HF002';
  end if;

  select case
      when coalesce(length(type), 0) not between 1 and 200 then 'a job type must have 1 to 200 characters'
      when starts_with(type, 'holdfast.') then format('job types beginning with "holdfast." are reserved: %s', type)
      when payload is null or jsonb_typeof(payload) <> 'object' then format('the payload of %s must be a JSON object', type)
    end into wrong
  from unnest(types, payloads) as job (type, payload)
  where coalesce(length(type), 0) not between 1 and 200
    or starts_with(type, 'holdfast.')
    or payload is null
    or jsonb_typeof(payload) <> 'object'
  limit 1;

  if wrong is null and options is not null then
    select case
          when unknown.key = 'run_at' then 'run_at must be a time with its zone, before the year 10000'
          when unknown.named then format('%s must be a string', unknown.key)
          when unknown.key is not null then format(
            'unknown option %s; known are priority, run_at, delay, idempotency_key, dedup_key, correlation_id, '
            'parent_id, max_attempts, target, queue, hold, target_count, traceparent', quote_ident(unknown.key))
          when jsonb_typeof(option) <> 'object' then 'options must be a JSON object'
          when not is_number(option -> 'priority', 0, 1000000000, true) then 'priority must be 0 or more, at most 1000000000, a whole number'
          when not is_number(option -> 'max_attempts', 1, 2147483647, true) then 'max_attempts must be 1 or more, at most 2147483647, a whole number'
          when not is_number(option -> 'target_count', 1, 9223372036854775807, true) then 'target_count must be 1 or more, a whole number'
          when not is_number(option -> 'delay', 0, 3153600000, false) then 'delay must be a number of seconds, 0 or more, at most 3153600000 (100 years)'
          when jsonb_typeof(option -> 'hold') not in ('boolean', 'null') then 'hold must be true or false'
          when (option ->> 'parent_id') !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then 'parent_id must be a UUID'
          when (option ->> 'idempotency_key') !~ '^[\x21-\x7e]{1,255}$' then 'idempotency_key must be 1 to 255 visible ASCII characters'
          when length(option ->> 'dedup_key') not between 1 and 255 then 'dedup_key must have 1 to 255 characters'
          when length(option ->> 'correlation_id') not between 1 and 255 then 'correlation_id must have 1 to 255 characters'
          when length(option ->> 'target') not between 1 and 255 then 'target must have 1 to 255 characters'
          when length(option ->> 'queue') not between 1 and 200 then 'queue must have 1 to 200 characters'
          when unprintable(option ->> 'dedup_key') then 'dedup_key must not contain control characters'
          when unprintable(option ->> 'correlation_id') then 'correlation_id must not contain control characters'
          when unprintable(option ->> 'target') then 'target must not contain control characters'
          when (option ->> 'traceparent') !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then 'traceparent must be as in W3C Trace Context'
          when option ->> 'queue' = 'holdfast' then 'the queue "holdfast" is reserved'
          when option ? 'run_at' and option ? 'delay' then 'give run_at or delay, not both'
          when option ? 'run_at' and not is_moment(option ->> 'run_at') then 'run_at must be a time with its zone, before the year 10000'
        end into wrong
    from unnest(options) as option
    left join lateral (
      -- Also what is a name, and not a string: `->>` would take [] for the name "[]".
      select key, kind.named
      from jsonb_object_keys(case when jsonb_typeof(option) = 'object' then option end) as key
      cross join lateral (
        select key in ('run_at', 'idempotency_key', 'dedup_key', 'correlation_id', 'parent_id', 'target', 'queue',
          'traceparent')) as kind (named)
      where case
          when kind.named then jsonb_typeof(option -> key) not in ('string', 'null')
          else key not in ('priority', 'delay', 'max_attempts', 'hold', 'target_count')
        end
      limit 1) unknown on true
    where option is not null
    order by 1 nulls last
    limit 1;
  end if;

  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
  perform check_payloads(types, payloads);
end
$$;

-- Whether a JSON value is a number (or absent) within bounds.
create or replace function is_number(value jsonb, low numeric, high numeric, whole boolean) returns boolean
language sql immutable parallel safe
as $$
  select case coalesce(jsonb_typeof(value), 'null')
    when 'null' then true
    when 'number' then value::numeric between low and high and (not whole or value::numeric % 1 = 0)
    else false
  end
$$;

-- Whether a text (or none) is a time that every client can read back.
create or replace function is_moment(value text) returns boolean
language plpgsql stable parallel safe
as $$
begin
  return coalesce(value::timestamptz between '0002-01-01 00:00Z' and '9999-12-30 00:00Z', true);
exception
  when data_exception then
    return false;
end
$$;

-- The recording itself, for callers that were checked. Positions are answered in order.
create or replace function record_jobs(
  types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]
) returns table (item integer, job_id uuid, state text, outcome text)
language plpgsql
set search_path from current
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  positions integer[];
  found_ids uuid[];
  states    text[];
  missed    integer[];
  place     integer;
  woken     integer[];
  taken     integer[] := '{}';
  queues    text[];
  homes     integer[];
  soon      boolean;
  called    boolean;
  twice     boolean;
begin
  if exists (select from unnest(options) as option where option ->> 'idempotency_key' is not null) then
    ids := array(
      select coalesce(job.id, uuid_v7())
      from unnest(types, ids) with ordinality as job (type, id, position)
      order by job.position);
    taken := taken_keys(types, payloads, options, record_jobs.tenant, ids);
  end if;
  if exists (select from unnest(options) as option where option ->> 'parent_id' is not null) then
    options := with_lineage(options, record_jobs.tenant, taken);
  end if;
  if exists (select from closed_types) then
    perform refuse_closed(types, taken);
  end if;

  -- Looked up once: whoever looks again may find that a type has another queue now, or that a stream was closed. One that
  -- is closed after this look takes jobs until this transaction ends (see streams.sql).
  queues := array(
    select case when job.position <> all (taken) then coalesce(job.option ->> 'queue', t.queue, 'default') end
    from unnest(types, options) with ordinality as job (type, option, position)
    left join job_types t on t.name = job.type
    order by job.position);
  homes := find_streams(record_jobs.tenant, queues, types);

  with asked as (
    select
      job.position::integer as position,
      job.id as given_id,
      job.type,
      job.payload,
      job.option,
      job.queue,
      job.stream,
      coalesce(
        (job.option ->> 'run_at')::timestamptz,
        now() + make_interval(secs => (job.option ->> 'delay')::double precision),
        now()) as run_at,
      coalesce((job.option ->> 'hold')::boolean, false) as hold
    from unnest(types, payloads, options, ids, queues, homes) with ordinality
      as job (type, payload, option, id, queue, stream, position)
    where job.queue is not null
  ), placed as (
    select
      asked.*,
      case when asked.hold then 'created' when asked.run_at > now() then 'scheduled' else 'queued' end as state
    from asked
    order by asked.position
  ), wish as materialized (
    -- Above the sort: a batch is released in its own order, whatever way it was joined.
    select placed.*, coalesce(placed.given_id, uuid_v7()) as id, nextval('places') as seq
    from placed
  ), recorded as (
    insert into jobs (
      id, seq, run_at, stream, priority, max_attempts, state, tenant, type, queue, target, idempotency_key,
      dedup_key, correlation_id, parent_id, retry_of, created_by, target_count, traceparent, payload, reason)
    select
      id, seq, run_at, stream,
      coalesce((option ->> 'priority')::integer, 100),
      (option ->> 'max_attempts')::integer,
      state,
      record_jobs.tenant,
      type,
      queue,
      option ->> 'target',
      option ->> 'idempotency_key',
      option ->> 'dedup_key',
      option ->> 'correlation_id',
      (option ->> 'parent_id')::uuid,
      (option ->> 'retry_of')::uuid,
      record_jobs.created_by,
      (option ->> 'target_count')::bigint,
      option ->> 'traceparent',
      payload,
      -- Its length counts, not the moment: see clock.sql.
      case when state = 'scheduled' and option ? 'delay' then 'delayed' end
    from wish
    order by option ->> 'dedup_key', position
    on conflict do nothing
    returning id, seq, stream, state, priority, target, run_at
  ), lined as (
    insert into ready (stream, rank, seq, job_id)
    select stream, 2 * priority + 2, seq, id
    from recorded
    where state = 'queued' and target is null
  ), deferred as (
    insert into due (run_at, job_id)
    select run_at, id
    from recorded
    where state = 'scheduled'
  ), queued_behind as (
    insert into waiting (tenant, target, turn, place, job_id)
    select record_jobs.tenant, target, 1, seq, id
    from recorded
    where state = 'queued' and target is not null
  ), calling as (
    insert into calls (tenant, target)
    select distinct record_jobs.tenant, target
    from recorded
    where state = 'queued' and target is not null
  )
  select
    array_agg(wish.position order by wish.position),
    array_agg(r.id order by wish.position),
    array_agg(r.state order by wish.position),
    array_agg(wish.position order by wish.position) filter (where r.id is null),
    array_agg(distinct r.stream) filter (where r.state = 'queued' and r.target is null),
    coalesce(bool_or(r.state = 'scheduled' and r.run_at < now() + interval '2 seconds'), false),
    coalesce(bool_or(r.state = 'queued' and r.target is not null), false),
    count(r.id) > (select count(*) from recorded)
  into positions, found_ids, states, missed, woken, soon, called, twice
  from wish
  left join recorded r using (id);
  if twice then
    raise exception 'the ids of a batch must differ' using errcode = 'HF002';
  elsif coalesce(cardinality(positions), 0) + cardinality(taken) <> cardinality(types) then
    raise exception 'not every job of a batch found its place';
  end if;

  if woken is not null then
    perform wake('ready', woken);
  end if;
  if soon or called then
    perform wake('duty', array[0]);
  end if;

  return query
  select done.position, done.id, done.state, 'created'
  from unnest(positions, found_ids, states) as done (position, id, state)
  where done.id is not null;

  missed := taken || missed;
  if cardinality(missed) > 0 then
    -- In order: of those with the same key the first one owns it, and its job is found before the others look.
    foreach place in array array(select position from unnest(missed) as position order by position) loop
      return query
      select place, found.job_id, found.state, found.outcome
      from existing_job(
        types[place], payloads[place], options[place], record_jobs.tenant, record_jobs.created_by, ids[place]) found;
    end loop;
    perform vouch();
  end if;
end
$$;

-- Record the idempotency keys of a batch for the ids of their jobs-to-be, in the order of the keys, so that no two
-- batches wait for each other. Answers the positions whose key is somebody else's, or an earlier position's.
create or replace function taken_keys(types text[], payloads jsonb[], options jsonb[], tenant text, ids uuid[])
returns integer[]
language sql
set search_path from current
as $$
  with wish as materialized (
    select
      job.position::integer as position,
      job.id,
      job.option ->> 'idempotency_key' as key,
      job_fingerprint(job.type, job.payload) as fingerprint
    from unnest(types, payloads, options, ids) with ordinality as job (type, payload, option, id, position)
    where job.option ->> 'idempotency_key' is not null
  ), first as (
    select distinct on (key) key, id, fingerprint
    from wish
    order by key, position
  ), recorded as (
    insert into idempotency_keys (tenant, key, job_id, fingerprint)
    select taken_keys.tenant, key, id, fingerprint
    from first
    order by key
    on conflict do nothing
    returning key, job_id
  )
  select coalesce(array_agg(wish.position), '{}')
  from wish
  where not exists (select from recorded r where r.key = wish.key and r.job_id = wish.id)
$$;

-- The job that answers an intent whose key was taken, or that stood in the way of its insert. If that has gone in the
-- meantime, the intent is recorded anew.
create or replace function existing_job(
  type text, payload jsonb, option jsonb, tenant text, created_by text, id uuid
) returns table (job_id uuid, state text, outcome text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  asked    text := option ->> 'idempotency_key';
  bound_to uuid;
  print    bytea;
  standing text;
  other    jobs;
begin
  if asked is not null then
    select k.job_id, k.fingerprint, j.state into bound_to, print, standing
    from idempotency_keys k
    left join jobs j on j.id = k.job_id and j.tenant = k.tenant
    where k.tenant = existing_job.tenant and k.key = asked;
    if standing is not null then
      return query select bound_to, standing, case
        when print = job_fingerprint(existing_job.type, existing_job.payload) then 'existing'
        else 'conflict'
      end;
      return;
    end if;
  end if;

  -- By its id first: a batch that is sent again asks for the job that it made, not for one that came after it.
  select j.* into other
  from jobs j
  where j.id = existing_job.id and j.tenant = existing_job.tenant and j.type = existing_job.type;
  if not found then
    select j.* into other
    from jobs j
    where j.tenant = existing_job.tenant and j.type = existing_job.type and j.dedup_key = option ->> 'dedup_key';
  end if;
  if found and (asked is null or bound_to = existing_job.id) then
    if asked is not null and other.id <> existing_job.id then
      -- The key is ours, and has had no job so far.
      update idempotency_keys k
      set job_id = other.id
      where k.tenant = existing_job.tenant and k.key = asked;
    end if;
    return query select other.id, other.state, 'existing';
    return;
  end if;

  if exists (select from jobs j where j.id = existing_job.id) then
    raise exception 'the id % belongs to another job', existing_job.id using errcode = 'HF002';
  end if;
  -- A key that has no job is our own, or was left behind by retention: it is recorded again with the intent.
  delete from idempotency_keys k
  where k.tenant = existing_job.tenant and k.key = asked and k.job_id = bound_to;
  return query
  select r.job_id, r.state, r.outcome
  from record_jobs(
    array[existing_job.type], array[existing_job.payload], array[existing_job.option], existing_job.tenant,
    existing_job.created_by, array[existing_job.id]) r;
end
$$;

-- Options of children: where none is given, the correlation id is the parent's. A parent must be a job of the same tenant.
-- Positions in `taken` are answered with other jobs. A job that is run again keeps its parent, though that may be gone.
create or replace function with_lineage(options jsonb[], tenant text, taken integer[]) returns jsonb[]
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  unknown text;
  related jsonb[];
begin
  select
    array_agg(
      case
        when parent.id is not null and option ->> 'correlation_id' is null
        then option || jsonb_build_object('correlation_id', coalesce(parent.correlation_id, parent.id::text))
        else option
      end
      order by position),
    min(option ->> 'parent_id') filter (
      where parent.id is null and option ->> 'retry_of' is null and position <> all (taken))
  into related, unknown
  from unnest(options) with ordinality as job (option, position)
  left join lateral (
    select j.id, j.correlation_id
    from jobs j
    where j.id = (option ->> 'parent_id')::uuid and j.tenant = with_lineage.tenant
    offset 0) parent on true;
  if unknown is not null then
    raise exception 'parent_id must be the id of a job of the same tenant; there is none with the id %', unknown
      using errcode = 'HF002';
  end if;
  return related;
end
$$;

-- What makes two intents the same: type and payload.
create or replace function job_fingerprint(type text, payload jsonb) returns bytea
language sql immutable parallel safe
as $$
  select sha256(convert_to(type || ' ' || payload::text, 'UTF8'))
$$;

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
  -- Where their stream was forgotten, maintenance brings it back: whoever makes a row holds it until the end of their
  -- transaction, which may be a long one here.
  if called or soon or not all_open(woken) then
    perform wake('duty', array[0]);
  end if;

  perform vouch();
  return query
  select asked.id, case
    when asked.id = any (moved) then 'released'
    when j.id is null then 'not-found'
    when j.state in ('success', 'dead', 'canceled') then 'already-final'
    else 'not-held'
  end
  from unnest(job_ids) as asked (id)
  left join jobs j on j.id = asked.id and (only_tenant is null or j.tenant = only_tenant);
end
$$;
