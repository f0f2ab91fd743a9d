-- Record intents. Moves: (nothing) → created | scheduled | queued. Roles: api, worker, operator.
--
-- Options of a job, as a JSON object: priority, run_at or delay (seconds), idempotency_key, dedup_key,
-- correlation_id, parent_id, max_attempts, target, queue, hold, target_count, traceparent.
-- Each job is answered with one row: `created`; `existing`, if its idempotency or dedup key already has a job; or
-- `conflict`, if the idempotency key belongs to a request with another type or payload (then nothing was recorded for
-- it). Nothing here takes a lock that a claim or a settlement waits for.
--
-- An idempotency key is recorded first, with the fingerprint of its request. The caller that records it owns it: either
-- a job is created for it, or, if the dedup key already has a job, the key is bound to that job. Repeats are answered
-- with this job for as long as its row exists, whether or not it has ended.

-- Record many jobs at once. Answers a row for each, by position.
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

-- Record jobs of one type in the cheapest way, without options except for the queue. The caller gives the ids and
-- therefore knows them: a row is returned only for a job that was not simply recorded (`created`, `queued`, under its
-- id). With `alone` the caller promises that this statement is a transaction of its own (see `wake`). The clock cannot
-- tell, because a large batch takes long to arrive. Inside a longer transaction it must be false: until that
-- transaction ends, workers would not hear of any other job of the stream. Jobs that cannot be recorded at once, for
-- any reason, go through `enqueue_many`, which refuses them or answers in detail.
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
  if not is_request(type) and array_position(ids, null) is null
    and (created_by is null or length(created_by) <= 500) then
    -- If there is a stream, its type, queue and tenant were found valid before.
    select s.id, s.queue into home, line
    from streams s
    where s.type = enqueue_plain.type
      and s.queue = coalesce(
        enqueue_plain.queue, (select t.queue from job_types t where t.name = enqueue_plain.type), 'default')
      and s.queue <> 'holdfast'
      and s.tenant = enqueue_plain.tenant
      and s.closed_in is null
      -- `enqueue_many` refuses a closed type. If no type was ever closed, the first check reads no page, and is the
      -- only one.
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
    -- Far cheaper than `on conflict`. A transaction with many batches would have too many subtransactions. Small
    -- payloads are not measured: as text, a number of up to 6400 digits takes at most 400 times its stored size. A
    -- number with more digits that is short to write (1e131071) comes only from hand-written SQL; such a payload can
    -- reach 13 MB.
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

-- Record a job in the caller's own transaction. Answers its id, and whether it is new.
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

-- Record jobs whose arguments were checked. Positions are answered in order.
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

  -- Looked up once: a second look may find that a type has another queue, or that a stream was closed. A stream that is
  -- closed after this look takes jobs until this transaction ends (see streams.sql).
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
    -- After the sort, so that a batch is queued in its own order, however it was joined.
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
      -- The length of the delay counts, not the moment: see clock.sql.
      case when state = 'scheduled' and option ? 'delay' then 'delayed' end
    from wish
    order by option ->> 'dedup_key', position
    on conflict do nothing
    returning id, seq, stream, state, priority, target, run_at
  ), lined as (
    insert into ready (stream, rank, seq, job_id)
    select stream, ready_rank(priority, false), seq, id
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
    raise exception 'some jobs of a batch were neither recorded nor answered';
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
    -- In order: of several positions with one key the first owns it, and its job is found before the others look.
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
