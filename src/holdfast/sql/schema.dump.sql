CREATE SCHEMA holdfast;
ALTER SCHEMA holdfast OWNER TO holdfast_owner;
CREATE SCHEMA holdfast_views;
ALTER SCHEMA holdfast_views OWNER TO holdfast_owner;
CREATE TYPE holdfast.claim_entry AS (
	tid tid,
	job_id uuid,
	stream integer,
	rank integer,
	seq bigint,
	ready_at timestamp with time zone,
	range integer
);
ALTER TYPE holdfast.claim_entry OWNER TO holdfast_owner;
CREATE TYPE holdfast.claim_permit AS (
	gate text,
	slot integer,
	number integer,
	job_id uuid
);
ALTER TYPE holdfast.claim_permit OWNER TO holdfast_owner;
CREATE TYPE holdfast.claim_share AS (
	range integer,
	stream integer,
	rank integer,
	seq bigint,
	ceiling integer,
	share integer,
	party integer,
	portion integer,
	allowed integer,
	keyed boolean
);
ALTER TYPE holdfast.claim_share OWNER TO holdfast_owner;
CREATE FUNCTION holdfast.accepted_payloads(types text[], known text[]) RETURNS TABLE(type text, mode text, digest text, shape text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  with rule as materialized (
    select setting('VALIDATE_PAYLOADS') as mode
  ), live as materialized (
    select distinct served.type, w.shapes ->> served.type as digest
    from live_workers() w
    cross join lateral unnest(w.types) as served (type)
    where not w.draining and served.type = any (accepted_payloads.types)
      -- Remote workers publish nothing. What Python workers publish holds for them, too, as long as one lives: a key of one
      -- tenant must not end a check that all tenants rely on.
      and (w.kind = 'python' or not exists (
        select from live_workers() p where p.kind = 'python' and not p.draining and served.type = any (p.types)))
  ), last as (
    select distinct on (s.type) s.type, s.digest
    from payload_shapes s
    where s.type = any (accepted_payloads.types) and not exists (select from live where live.type = s.type)
    order by s.type, s.published_at desc, s.digest
  ), counting as materialized (
    select c.type, c.digest, s.shape, s.published_at
    from (select l.type, l.digest from live l union all select l.type, l.digest from last l) c
    left join payload_shapes s on s.type = c.type and s.digest = c.digest
  ), verdict as (
    select asked.type, case
        when rule.mode = 'off' or exists (select from counting c where c.type = asked.type and c.shape is null) then 'off'
        -- A deploy never runs more than 8 versions at once.
        when (select count(*) from counting c where c.type = asked.type) > 8 then 'off'
        else rule.mode
      end as mode
    from (select distinct unnest(accepted_payloads.types)) as asked (type)
    cross join rule
  )
  select v.type, v.mode, c.digest, case when c.digest <> all (accepted_payloads.known) then c.shape::text end
  from verdict v
  left join counting c on c.type = v.type and v.mode <> 'off'
  order by v.type, c.published_at desc, c.digest
$$;
ALTER FUNCTION holdfast.accepted_payloads(types text[], known text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.accepted_payloads(types text[], known text[]) IS 'The shapes by which payloads of these types are judged, newest first: those of live workers that go on claiming; if there are none, the last one that was published.';
CREATE FUNCTION holdfast.acknowledge_letter(id uuid, by text, note text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  update dead_letters d
  set acknowledged_at = now(), acknowledged_by = acknowledge_letter.by, note = acknowledge_letter.note
  where d.job_id = acknowledge_letter.id and d.acknowledged_at is null;
  return found;
end
$$;
ALTER FUNCTION holdfast.acknowledge_letter(id uuid, by text, note text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.acknowledge_letter(id uuid, by text, note text) IS 'Acknowledge one letter.';
CREATE FUNCTION holdfast.acknowledge_letters(job_ids uuid[], by text, note text DEFAULT NULL::text, only_tenant text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS TABLE(job_id uuid, outcome text, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '2s'
    AS $$
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
ALTER FUNCTION holdfast.acknowledge_letters(job_ids uuid[], by text, note text, only_tenant text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.acknowledge_letters(job_ids uuid[], by text, note text, only_tenant text, by_key uuid) IS 'Acknowledge letters: somebody knows of the failure, and from now on retention applies.';
CREATE FUNCTION holdfast.acknowledged_operand() RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
  select 'case when j.state = ''dead'' then (
    select l.acknowledged_at is not null from dead_letters l where l.job_id = j.id) end'
$$;
ALTER FUNCTION holdfast.acknowledged_operand() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.acknowledged_operand() IS 'The SQL expression for whether the letter of a dead job is acknowledged; null for a job that is not dead.';
CREATE FUNCTION holdfast.act_by_hand(verb text, id uuid, by text, words text, will_retry boolean, priority integer, only_tenant text, by_key uuid) RETURNS TABLE(outcome text, state text, decided text, decided_by text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  job     jobs;
  verdict text := case when verb = 'kill' then 'kill' when verb = 'fail' and will_retry then 'retry' when verb = 'fail' then 'fail' end;
  flagged integer;
  request uuid;
  event   bigint;
begin
  if verb is null or verb <> all (hand_verbs()) then
    raise exception 'unknown verb %; known are %', verb, array_to_string(hand_verbs(), ', ') using errcode = 'HF002';
  elsif verb = 'reprioritize' and (priority is null or not is_number(to_jsonb(priority), 0, 1000000000, true)) then
    raise exception 'priority must be 0 or more, at most 1000000000, a whole number' using errcode = 'HF002';
  end if;
  perform check_texts(by, words);
  -- If the attempt ends while its lease is looked for, the job is looked at again.
  for round in 1..5 loop
    if verdict is not null then
      perform keep_waiting(act_by_hand.id, only_tenant);
    end if;
    select j.* into job
    from jobs j
    where j.id = act_by_hand.id and (only_tenant is null or j.tenant = only_tenant) and not is_request(j.type);
    outcome := case when not found then 'not-found' else hand_answer(verb, verdict, job.state) end;
    exit when outcome <> 'accepted' or verdict is null;
    if job.state <> 'running' then
      select d.decision, d.by into decided, decided_by
      from pending_decision(job.id) d
      where firmness(d.decision) >= firmness(verdict);
      exit;
    end if;
    flagged := flag_attempt(job.id, verdict, by, words, null);
    select coalesce(l.verdict, l.interrupt), l.interrupted_by into decided, decided_by
    from leases l
    where l.job_id = job.id and l.attempt = flagged;
    exit when found;
    flagged := null;
  end loop;
  state := job.state;
  if decided <> verdict then
    outcome := 'overruled';
  elsif outcome = 'accepted' then
    decided := null;
    decided_by := null;
    if verb = 'reprioritize' then
      insert into job_events (job_id, event, by, note)
      values (job.id, 'reprioritized', act_by_hand.by, concat_ws(': ', format('priority %s', priority), nullif(words, '')))
      returning job_events.id into event;
    end if;
    select r.job_id into request
    from record_jobs(
      array['holdfast.' || verb],
      array[jsonb_strip_nulls(jsonb_build_object(
        'job_id', job.id, 'by', by, 'note', words, 'verdict', verdict, 'priority', priority, 'event', event,
        'attempt', case when verb = 'expire-lease' then job.attempt else flagged end))],
      array[jsonb_strip_nulls(jsonb_build_object(
        'queue', 'holdfast', 'priority', 100,
        'dedup_key', case
          when verb = 'expire-lease' then concat_ws(' ', job.id, job.attempt)
          when verdict is not null then concat_ws(' ', job.id, verdict, flagged)
        end))],
      job.tenant, by, null) r;
    if verdict is not null and flagged is null then
      perform note_decision(job.id, request, verdict, by, words, null);
    end if;
    perform wake('duty', array[0]);
    perform note_audit(by, by_key, job.tenant, 'job.' || verb, job.id::text, jsonb_strip_nulls(jsonb_build_object(
      'note', words, 'will_retry', case when verb = 'fail' then will_retry end, 'priority', priority,
      'priority_before', case when verb = 'reprioritize' then job.priority end)));
  end if;
  perform vouch();
  return next;
end
$$;
ALTER FUNCTION holdfast.act_by_hand(verb text, id uuid, by text, words text, will_retry boolean, priority integer, only_tenant text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.act_by_hand(verb text, id uuid, by text, words text, will_retry boolean, priority integer, only_tenant text, by_key uuid) IS 'Decide something about a job in an operator''s name, and write down who did.';
CREATE FUNCTION holdfast.add_failures(after bigint DEFAULT 0, max_rows integer DEFAULT 1000) RETURNS TABLE(added integer, reached bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  taken   failures[];
  crowded text[];
  whose   text;
begin
  added := 0;
  reached := after;
  if not sole_adder() then
    return next;
    return;
  end if;
  with gone as (
    delete from failures f
    where f.id = any (array(select e.id from failures e where e.id > add_failures.after order by e.id limit max_rows))
    returning f.*
  )
  select array_agg(gone.*::failures), count(*), coalesce(max(gone.id), add_failures.after)
  into taken, added, reached
  from gone;
  if added = 0 then
    return next;
    return;
  end if;
  with sums as materialized (
    -- The sample is the last one whose message is there.
    select distinct on (j.tenant, t.fingerprint) j.tenant, t.fingerprint, j.type, t.job_id,
      coalesce(d.error_type, a.error_type) as error_type, coalesce(d.error_message, a.error_message) as error_message,
      a.outcome, count(*) over alike as count, min(t.at) over alike as first_seen, max(t.at) over alike as last_seen
    from unnest(taken) t
    join jobs j on j.id = t.job_id
    left join job_attempts a on a.job_id = t.job_id and a.attempt = t.attempt
    left join dead_letters d on d.job_id = t.job_id and d.fingerprint = t.fingerprint
    window alike as (partition by j.tenant, t.fingerprint)
    order by j.tenant, t.fingerprint, coalesce(d.error_message, a.error_message) is null, t.id desc
  ), summed as (
    insert into fingerprints as f (
      tenant, fingerprint, type, error_type, message, count, first_seen, last_seen, sample_job_id)
    select s.tenant, s.fingerprint, s.type, s.error_type,
      message_shown(s.fingerprint, s.type, s.error_type, s.error_message, s.outcome), s.count, s.first_seen,
      least(s.last_seen, clock_timestamp()), s.job_id
    from sums s
    on conflict (tenant, fingerprint) do update
    set count = f.count + excluded.count,
      -- A moment that lies ahead is of a clock that was set back since.
      first_seen = least(f.first_seen, excluded.first_seen),
      last_seen = least(greatest(f.last_seen, excluded.last_seen), clock_timestamp()),
      -- The message is that of the sample, always.
      message = coalesce(excluded.message, f.message),
      sample_job_id = case
        when excluded.message is null and f.message is not null then f.sample_job_id
        else excluded.sample_job_id
      end
    returning f.tenant, f.xmax = 0 as is_new
  )
  select array_agg(c.tenant) into crowded
  from (
    select s.tenant from summed s where s.is_new group by s.tenant order by count(*) desc limit 8) c;
  insert into failing as f (job_id, tenant, fingerprint, attempt)
  select distinct on (t.job_id) t.job_id, j.tenant, t.fingerprint, t.attempt
  from unnest(taken) t
  join jobs j on j.id = t.job_id
  where not has_ended(j.state)
  order by t.job_id, t.attempt desc
  on conflict (job_id) do update
  set fingerprint = excluded.fingerprint, attempt = excluded.attempt
  where f.attempt < excluded.attempt;
  -- The letters of dead jobs say what they died of.
  delete from failing f
  where f.job_id = any (array(
    select t.job_id from unnest(taken) t join jobs j on j.id = t.job_id where has_ended(j.state)));
  foreach whose in array coalesce(crowded, '{}') loop
    perform trim_fingerprints(whose);
  end loop;
  return next;
end
$$;
ALTER FUNCTION holdfast.add_failures(after bigint, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.add_failures(after bigint, max_rows integer) IS 'Add up failures behind `after`, up to `max_rows` of them.';
CREATE FUNCTION holdfast.admit(after text DEFAULT ''::text, max_gates integer DEFAULT 200) RETURNS TABLE(looked integer, reached text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  spot record;
  room bigint;
begin
  looked := 0;
  for spot in
    with recursive line as (
      (select p.gate, p.stream, p.rank, p.seq
       from parked p
       where p.gate > after
       order by p.gate, p.stream, p.rank, p.seq
       limit 1)
      union all
      select following.gate, following.stream, following.rank, following.seq
      from line
      cross join lateral (
        select p.gate, p.stream, p.rank, p.seq
        from parked p
        where (p.gate, p.stream) > (line.gate, line.stream)
        order by p.gate, p.stream, p.rank, p.seq
        limit 1) following
    )
    select line.gate, line.stream, j.id as job_id, rule.capacity, rule.seconds
    from (select * from line limit max_gates) line
    left join ready r on r.stream = parked_stream(line.stream) and r.rank = line.rank and r.seq = line.seq
    left join jobs j on j.id = r.job_id
    left join lateral (
      select k.capacity, k.seconds from key_gates(j.type, j.tenant, j.payload) k where k.gate = line.gate) rule on true
  loop
    looked := looked + 1;
    reached := spot.gate;
    room := case
      when spot.capacity is null then 1000
      else spot.capacity - (
        select count(*)
        from permits p
        cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, spot.seconds, now()) state
        where p.gate = spot.gate and not state.free)
    end;
    if room > 0 then
      perform unpark(array[spot.gate], array[spot.stream], array[room]);
    end if;
  end loop;
  if looked < max_gates then
    reached := '';
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.admit(after text, max_gates integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.admit(after text, max_gates integer) IS 'Bring back parked jobs for which there is room: a permit became free with time, or unnoticed, or the limit was changed.';
CREATE FUNCTION holdfast.adopt(gate text, capacity integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  if starts_with(gate, gate_of('key', '', null)) then
    return false;
  end if;
  insert into permits (gate, slot, job_id, attempt, granted_at)
  select adopt.gate,
    greatest(capacity, (select max(p.slot) from permits p where p.gate = adopt.gate)) + row_number() over (),
    l.job_id, l.attempt, now()
  from leases l
  join streams s on s.id = l.stream
  where exists (
      select from limitable_by(s.tenant, s.queue, s.type) subject
      where gate_of(subject.kind, subject.name, null) = adopt.gate)
    and not exists (
      select from permits p where p.gate = adopt.gate and p.job_id = l.job_id and p.attempt = l.attempt)
  on conflict do nothing;
  return found;
end
$$;
ALTER FUNCTION holdfast.adopt(gate text, capacity integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.adopt(gate text, capacity integer) IS 'Give permits beyond the capacity to jobs that were running when a limit was set, so that they count.';
CREATE FUNCTION holdfast.advance_bulk(id uuid, max_jobs integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
#variable_conflict use_column
declare
  bulk  bulks;
  fault text;
  began timestamptz := clock_timestamp();
  took  double precision;
  share double precision;
begin
  select b.* into bulk
  from bulks b
  where b.id = advance_bulk.id and b.state in ('fixing', 'running', 'stopping')
  for update skip locked;
  if not found then
    return;
  end if;
  -- After a portion that was not finished, the next one has a quarter of its size.
  share := bulk.pace * max_jobs / 4 ^ greatest(0, bulk.tries - 1);
  begin
    if bulk.state = 'fixing' then
      perform fix_bulk(bulk, greatest(1, (20 * share)::integer));
    elsif bulk.state = 'running' then
      perform work_bulk(bulk, greatest(1, (share / case when bulk.action in ('requeue', 'ack') then 1 else 10 end)::integer));
    else
      perform end_bulk(bulk, 50 * max_jobs);
    end if;
  exception
    when serialization_failure or deadlock_detected or lock_not_available then
      update bulks b set rests_until = now() + interval '1 second' where b.id = bulk.id;
    when others then
      get stacked diagnostics fault = message_text;
      update bulks b set state = 'stopping', error = left(fault, 1000) where b.id = bulk.id;
  end;
  took := extract(epoch from clock_timestamp() - began);
  update bulks b
  set tries = 0,
    turned_at = clock_timestamp() + make_interval(secs => took),
    pace = least(1, greatest(0.0001, share / max_jobs * case when took > 0.4 then 0.5 when took < 0.1 then 2 else 1 end))
  where b.id = bulk.id;
end
$$;
ALTER FUNCTION holdfast.advance_bulk(id uuid, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.advance_bulk(id uuid, max_jobs integer) IS 'Do a portion of a bulk operation whose turn it is, of up to `max_jobs` jobs if they are quick.';
CREATE FUNCTION holdfast.age(max_jobs integer DEFAULT 500) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  step     record;
  stream   integer;
  rank     integer;
  any_rank integer;
  mixed    boolean := false;
  total    integer := 0;
begin
  for look in 0..1 loop
    stream := 0;
    rank := 0;
    while stream is not null and total < max_jobs loop
      select a.* into step from age_lines(stream, rank, 10000, look * (max_jobs - total), mixed) a;
      any_rank := coalesce(any_rank, step.lowest);
      mixed := mixed or coalesce(step.lowest <> any_rank or step.highest <> any_rank, false);
      total := total + step.aged;
      stream := step.reached_stream;
      rank := step.reached_rank;
    end loop;
  end loop;
  return total;
end
$$;
ALTER FUNCTION holdfast.age(max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.age(max_jobs integer) IS 'Let jobs that have waited for long go first: the whole walk in one call, for leaders of older releases and for tests.';
CREATE FUNCTION holdfast.age_from(after_stream integer DEFAULT 0, after_rank integer DEFAULT 0, max_lines integer DEFAULT 2000, max_jobs integer DEFAULT 500, mixed boolean DEFAULT false, shared boolean DEFAULT false) RETURNS TABLE(aged integer, reached_stream integer, reached_rank integer, lowest integer, highest integer, first_tenant text, last_tenant text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select a.aged, a.reached_stream, a.reached_rank, a.lowest, a.highest, '', ''
  from age_lines(after_stream, after_rank, max_lines, max_jobs, mixed) a
$$;
ALTER FUNCTION holdfast.age_from(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean, shared boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.age_from(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean, shared boolean) IS 'Let jobs that have waited for long go first, for leaders of the previous release.';
CREATE FUNCTION holdfast.age_lines(after_stream integer DEFAULT 0, after_rank integer DEFAULT 0, max_lines integer DEFAULT 2000, max_jobs integer DEFAULT 500, mixed boolean DEFAULT false) RETURNS TABLE(aged integer, reached_stream integer, reached_rank integer, lowest integer, highest integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  oldest timestamptz := now() - make_interval(secs => least(setting('AGEING_SECONDS')::double precision, 1e9));
  lines  integer[];
  ranks  integer[];
  tids   tid[];
  last   integer;
begin
  with recursive line as (
    (select r.stream, r.rank, 1 as number
     from ready r
     where (r.stream, r.rank) > (after_stream, after_rank)
     order by r.stream, r.rank
     limit 1)
    union all
    select following.stream, following.rank, line.number + 1
    from line
    cross join lateral (
      select r.stream, r.rank
      from ready r
      where (r.stream, r.rank) > (line.stream, line.rank)
      order by r.stream, r.rank
      limit 1) following
    where line.number < max_lines
  )
  select array_agg(line.stream order by line.number), array_agg(line.rank order by line.number),
    min(line.rank), max(line.rank)
  into lines, ranks, lowest, highest
  from line;
  if cardinality(lines) = max_lines then
    reached_stream := lines[max_lines];
    reached_rank := ranks[max_lines];
  end if;
  if mixed or lowest < highest then
    -- The entries of a line are in order of arrival: if the first is not old, none is.
    select array_agg(old.tid), max(old.number) into tids, last
    from (
      select entry.tid, line.number::integer
      from unnest(lines, ranks) with ordinality as line (stream, rank, number)
      cross join lateral (
        select r.ready_at
        from ready r
        where r.stream = line.stream and r.rank = line.rank
        order by r.seq
        limit 1) first
      cross join lateral (
        select r.ctid as tid, r.ready_at
        from ready r
        where r.stream = line.stream and r.rank = line.rank
        order by r.seq
        limit max_jobs) entry
      where line.rank > 0 and first.ready_at < oldest and entry.ready_at < oldest
      limit max_jobs) old;
  end if;
  -- Not an update, which would fail permanently if a stray entry has that place already.
  with free as materialized (
    select r.ctid as tid
    from ready r
    where r.ctid = any (tids) and r.ready_at < oldest
    for update skip locked
  ), taken as (
    delete from ready r
    using free
    where r.ctid = free.tid
    returning r.stream, r.seq, r.job_id, r.ready_at
  ), moved as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select taken.stream, 0, taken.seq, taken.job_id, taken.ready_at from taken
    on conflict do nothing
  )
  select count(*) into aged from taken;
  if aged > 0 and cardinality(tids) = max_jobs then
    reached_stream := lines[last];
    reached_rank := ranks[last] - 1;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.age_lines(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.age_lines(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean) IS 'Let jobs that have waited for long go first.';
CREATE FUNCTION holdfast.all_open(ids integer[]) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select not exists (
    select
    from unnest(ids) as asked (id)
    where not exists (select from streams s where s.id = asked.id and s.closed_in is null))
$$;
ALTER FUNCTION holdfast.all_open(ids integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.all_open(ids integer[]) IS 'Whether all of these streams are offered to workers.';
CREATE FUNCTION holdfast.all_states() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array['created', 'scheduled', 'queued', 'running', 'retry', 'paused', 'error', 'success', 'dead', 'canceled']
$$;
ALTER FUNCTION holdfast.all_states() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.all_states() IS 'Every state of a job.';
CREATE FUNCTION holdfast.allowed_states(tree jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  allowed text[] := all_states();
  part    jsonb;
begin
  if tree ? 'and' then
    for part in select p.part from jsonb_array_elements(tree -> 'and') as p (part) loop
      allowed := array(select unnest(allowed) intersect select unnest(allowed_states(part)));
    end loop;
  elsif tree ? 'or' then
    allowed := array(
      select distinct s.state
      from jsonb_array_elements(tree -> 'or') as p (part), unnest(allowed_states(p.part)) as s (state));
  elsif tree -> 'not' ->> 'field' = 'state' then
    allowed := array(select unnest(allowed) except select unnest(allowed_states(tree -> 'not')));
  elsif tree ->> 'field' = 'state' then
    allowed := array(
      select s.state
      from unnest(allowed) as s (state)
      where exists (
        select from jsonb_array_elements_text(tree -> 'value') as v (value)
        where s.state like replace(like_escaped(v.value), '*', '%')));
  end if;
  return allowed;
end
$$;
ALTER FUNCTION holdfast.allowed_states(tree jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.allowed_states(tree jsonb) IS 'The states that a query allows; all, where it does not say.';
CREATE FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) RETURNS TABLE(job_id uuid, state text, outcome text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(answered_key.tenant);
  return query
  select j.id, j.state, case
      when k.fingerprint = job_fingerprint(answered_key.type, answered_key.payload) then 'existing'
      else 'conflict'
    end
  from idempotency_keys k
  join jobs j on j.id = k.job_id and j.tenant = k.tenant
  where k.tenant = answered_key.tenant and k.key = answered_key.key;
end
$$;
ALTER FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) IS 'The job that belongs to an idempotency key, as `enqueue` would answer it; no row if there is none.';
CREATE FUNCTION holdfast.as_caller(by text, address text, request_id text) RETURNS text
    LANGUAGE plpgsql
    AS $$
begin
  perform set_config('holdfast.caller_address', coalesce(left(address, 255), ''), true);
  perform set_config('holdfast.caller_request_id', coalesce(left(request_id, 128), ''), true);
  return by;
end
$$;
ALTER FUNCTION holdfast.as_caller(by text, address text, request_id text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.as_caller(by text, address text, request_id text) IS 'Set the caller''s address and request id for what another function writes down.';
CREATE FUNCTION holdfast.ask_to_repeat() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  raise exception 'the schema was migrated while the statement waited; repeat it' using errcode = '40001';
end
$$;
ALTER FUNCTION holdfast.ask_to_repeat() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.ask_to_repeat() IS 'Refuse to go on with an old body: the statement is to be repeated, and finds the new one.';
CREATE TABLE holdfast.job_attempts (
    job_id uuid NOT NULL,
    attempt integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    queue_ms integer,
    duration_ms integer,
    outcome text NOT NULL,
    worker text NOT NULL,
    error_type text,
    error_message text,
    traceback text,
    log_excerpt text,
    taken_back boolean,
    report_digest bytea,
    CONSTRAINT job_attempts_outcome_check CHECK ((outcome = ANY (ARRAY['success'::text, 'failed'::text, 'lost'::text, 'timeout'::text, 'canceled'::text, 'paused'::text, 'snoozed'::text, 'released'::text])))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.5');
ALTER TABLE holdfast.job_attempts OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.job_attempts IS 'A row for each attempt that has ended, with its outcome, duration and log excerpt.';
CREATE FUNCTION holdfast.attempts_after(id uuid, only_tenant text, after integer, max_attempts integer) RETURNS SETOF holdfast.job_attempts
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select t.*
  from job_attempts t
  where t.job_id = attempts_after.id
    and t.attempt > attempts_after.after
    and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
  order by t.attempt
  limit attempts_after.max_attempts
$$;
ALTER FUNCTION holdfast.attempts_after(id uuid, only_tenant text, after integer, max_attempts integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.attempts_after(id uuid, only_tenant text, after integer, max_attempts integer) IS 'A page of the ended attempts of a job, oldest first, after the given number.';
CREATE FUNCTION holdfast.attempts_allowed(of_job integer, of_type integer, by_default integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select coalesce(of_job, of_type, by_default)
$$;
ALTER FUNCTION holdfast.attempts_allowed(of_job integer, of_type integer, by_default integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.attempts_allowed(of_job integer, of_type integer, by_default integer) IS 'How many failures end a job: its own number, else that of its type, else the default.';
CREATE FUNCTION holdfast.attempts_page(id uuid, only_tenant text, after integer, max_attempts integer) RETURNS TABLE(job_id uuid, attempt integer, started_at timestamp with time zone, finished_at timestamp with time zone, queue_ms integer, duration_ms integer, outcome text, worker text, error_type text, error_message text, traceback text, log_excerpt text, more boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  bytes bigint;
  spent bigint := 0;
  given integer := 0;
  rest  boolean := false;
begin
  for bytes in
    select octet_length(concat(left(t.error_message, 10000), left(t.traceback, 50000), left(t.log_excerpt, 10000)))
    from job_attempts t
    where t.job_id = attempts_page.id
      and t.attempt > coalesce(attempts_page.after, 0)
      and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
    order by t.job_id, t.attempt
    limit attempts_page.max_attempts + 1
  loop
    spent := spent + coalesce(bytes, 0);
    rest := given >= attempts_page.max_attempts or (given > 0 and spent > page_bytes());
    exit when rest;
    given := given + 1;
  end loop;
  return query
  select t.job_id, t.attempt, readable(t.started_at), readable(t.finished_at), t.queue_ms, t.duration_ms, t.outcome,
    left(t.worker, 255), left(t.error_type, 200), left(t.error_message, 10000), left(t.traceback, 50000),
    left(t.log_excerpt, 10000), rest
  from job_attempts t
  where t.job_id = attempts_page.id
    and t.attempt > coalesce(attempts_page.after, 0)
    and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
  order by t.job_id, t.attempt
  limit given;
end
$$;
ALTER FUNCTION holdfast.attempts_page(id uuid, only_tenant text, after integer, max_attempts integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.attempts_page(id uuid, only_tenant text, after integer, max_attempts integer) IS 'Ended attempts, oldest first, after the given number.';
CREATE FUNCTION holdfast.await_claims() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '800ms'
    AS $$
declare
  patience interval := nullif(current_setting('idle_in_transaction_session_timeout')::interval, '0');
begin
  perform pg_advisory_xact_lock(claim_barrier());
  if coalesce(patience > '5s', true) then
    perform set_config('idle_in_transaction_session_timeout', '5s', true);
  end if;
exception
  when lock_not_available then
    raise exception 'a claim has been under way for longer than 0.8 seconds; try again' using errcode = '55P03';
end
$$;
ALTER FUNCTION holdfast.await_claims() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.await_claims() IS 'Wait until no claim is under way that does not know of a new limit yet.';
CREATE FUNCTION holdfast.backlog() RETURNS TABLE(measure text, count bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select 'ready', count(*) from ready
  union all select 'running', count(*) from leases
  union all select 'due', count(*) from due
  union all select 'waiting', count(*) from waiting
  union all select 'dead', count(*) from dead_letters where acknowledged_at is null
  union all select 'repairs', coalesce(sum(r.count), 0)::bigint from repairs r
$$;
ALTER FUNCTION holdfast.backlog() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.backlog() IS 'How many jobs are ready, running, due, waiting and dead, from the small tables: cheap with any number of ended jobs.';
CREATE FUNCTION holdfast.backoff_seconds(failures integer, base double precision, factor double precision, max double precision, jitter double precision) RETURNS double precision
    LANGUAGE sql PARALLEL SAFE
    AS $$
  select least(max, base * power(factor, least(failures - 1, 100))) * (1 + random() * jitter)
$$;
ALTER FUNCTION holdfast.backoff_seconds(failures integer, base double precision, factor double precision, max double precision, jitter double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.backoff_seconds(failures integer, base double precision, factor double precision, max double precision, jitter double precision) IS 'The delay before the next attempt: min(max, base × factor^(failures - 1)), plus up to `jitter` of it.';
CREATE FUNCTION holdfast.beat(id text, draining boolean) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  update workers w set heartbeat_at = now(), draining = beat.draining where w.id = beat.id returning true
$$;
ALTER FUNCTION holdfast.beat(id text, draining boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.beat(id text, draining boolean) IS 'Record that a worker is alive; no row if it is unknown.';
CREATE FUNCTION holdfast.beat_with_slots(id text, draining boolean, used jsonb) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select check_lanes(used);
  update workers w
  set heartbeat_at = now(), draining = beat_with_slots.draining, used = beat_with_slots.used
  where w.id = beat_with_slots.id
  returning true
$$;
ALTER FUNCTION holdfast.beat_with_slots(id text, draining boolean, used jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.beat_with_slots(id text, draining boolean, used jsonb) IS 'Record that a worker is alive, and how many slots of each lane it uses.';
CREATE FUNCTION holdfast.begin_limit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  before jsonb := case tg_op when 'UPDATE' then to_jsonb(old) else '{}' end;
  after  jsonb := to_jsonb(new);
  anew   boolean := after ->> 'limit_count' is not null
    and (before ->> 'limit_count' is null or before -> 'limit_key' is distinct from after -> 'limit_key');
begin
  if after ->> 'kind' = 'circuit' then
    return null;
  end if;
  -- A type for which operators set no limit has the one that its code declares.
  if anew or new.limit_count < (before ->> 'limit_count')::integer
    or (new.limit_count is null and before ->> 'limit_count' is not null and after ->> 'kind' = 'type') then
    perform await_claims();
  end if;
  if anew then
    delete from permits p
    where p.gate = gate_of(case tg_table_name when 'controls' then after ->> 'kind' else 'type' end, new.name, null);
  end if;
  return null;
end
$$;
ALTER FUNCTION holdfast.begin_limit() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.begin_limit() IS 'Wait for open claims when a limit is set or lowered: they do not see the limit, and nobody sees the jobs they take.';
CREATE TABLE holdfast.jobs (
    id uuid NOT NULL,
    seq bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    stream integer NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    priority integer DEFAULT 100 NOT NULL,
    max_attempts integer,
    state text NOT NULL,
    reason text,
    tenant text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL,
    target text,
    idempotency_key text,
    fingerprint bytea,
    dedup_key text COLLATE pg_catalog."C",
    correlation_id text COLLATE pg_catalog."C",
    parent_id uuid,
    retry_of uuid,
    created_by text,
    target_count bigint,
    payload jsonb NOT NULL,
    result jsonb,
    last_error text,
    last_error_at timestamp with time zone,
    traceparent text,
    CONSTRAINT jobs_max_attempts_check CHECK ((max_attempts > 0)),
    CONSTRAINT jobs_priority_check CHECK (((priority >= 0) AND (priority <= 1000000000))),
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['created'::text, 'scheduled'::text, 'queued'::text, 'running'::text, 'retry'::text, 'paused'::text, 'error'::text, 'success'::text, 'dead'::text, 'canceled'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_insert_scale_factor='0.1', autovacuum_analyze_scale_factor='0.02', autovacuum_vacuum_cost_delay='0', fillfactor='33');
ALTER TABLE holdfast.jobs OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.jobs IS 'Every job: identity, intent, state and attempt; use the functions of this schema to change it.';
COMMENT ON COLUMN holdfast.jobs.fingerprint IS 'Not used since step 6; see idempotency_keys.';
CREATE FUNCTION holdfast.behind_others(job holdfast.jobs, lane text, rank integer, seq bigint, only_tenant text) RETURNS TABLE(code text, text text, culprit jsonb)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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
ALTER FUNCTION holdfast.behind_others(job holdfast.jobs, lane text, rank integer, seq bigint, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.behind_others(job holdfast.jobs, lane text, rank integer, seq bigint, only_tenant text) IS 'Whether the workers that could run the job are busy, and how many jobs of its tenant and lane are before it, counted up to 10 000.';
CREATE FUNCTION holdfast.bounds() RETURNS TABLE(name text, low numeric, high numeric, whole boolean)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  values
    ('lease', 0.1, 604800, false),
    ('timeout', 0.001, 31536000, false),
    ('max_attempts', 1, 2147483647, true),
    ('version', 0, 2147483647, true),
    ('backoff_base', 0, 2592000, false),
    ('backoff_factor', 1, 1000, false),
    ('backoff_max', 0, 2592000, false),
    ('backoff_jitter', 0, 1, false),
    ('delay', 0, 3153600000, false),
    ('limit', 1, 10000, true),
    ('rate', 0.001, 2678400, false),
    ('weight', 0.001, 1000, false),
    ('priority', 0, 1000000000, true),
    ('target_count', 1, 9223372036854775807, true),
    ('retention_days', 0, 36500, false),
    ('ageing', 0, 3153600000, false),
    ('result_bytes', 1, 104857600, true),
    ('streams', 1, 10000000, true),
    ('schedules', 1, 1000000, true),
    ('stream_idle', 0, 3153600000, false),
    ('payload_bytes', 1024, 104857600, true),
    ('page', 1, 10000, true),
    ('requests_per_second', 0.001, 1000000, false),
    ('key_lifetime', 0.001, 3153600000, false),
    ('slots', 0, 1000000, true),
    ('term', 0.001, 86400, false),
    ('elapsed', 0, 3153600000, false),
    ('circuits', 1, 10000, true),
    ('circuit_forced', 0.1, 31536000, false),
    ('circuit_open', 4, 86400, false),
    ('failure_threshold', 1, 1000000, true),
    ('failure_share', 0.001, 1, false),
    ('window', 1, 86400, false),
    ('open_for', 0.1, 86400, false),
    ('probes', 1, 1000, true),
    ('success_threshold', 1, 1000, true),
    ('every', 1, 31622400, false),
    ('catch_up', 0, 2678400, false),
    ('jitter', 0, 86400, false)
$$;
ALTER FUNCTION holdfast.bounds() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bounds() IS 'The lowest and the highest value of every number that is checked.';
CREATE FUNCTION holdfast.bounds_fault(what text, bound text, value numeric) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select format('%s must be %sfrom %s to %s, not %s', what, case when b.whole then 'a whole number ' end, b.low, b.high, value)
  from bounds() b
  where b.name = bound and not (value between b.low and b.high and (not b.whole or value % 1 = 0))
$$;
ALTER FUNCTION holdfast.bounds_fault(what text, bound text, value numeric) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bounds_fault(what text, bound text, value numeric) IS 'What is wrong with a number, in words; null if it is within its bounds or missing.';
CREATE FUNCTION holdfast.broken_among(ids uuid[]) RETURNS TABLE(job_id uuid, fault text)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select j.id, case j.state
    when 'queued' then 'queued-without-ready'
    when 'running' then 'running-without-lease'
    when 'scheduled' then 'waiting-without-due'
    when 'retry' then 'waiting-without-due'
    when 'created' then 'dormant-without-row'
    when 'paused' then 'dormant-without-row'
    when 'error' then 'dormant-without-row'
    else 'ended-by-hand'
  end
  from jobs j
  where j.id = any (ids)
    and case j.state
      when 'queued' then
        -- Most jobs are here, so look here first: the other places cost several times as much.
        not exists (
          select from ready r
          where j.target is null
            and r.stream = j.stream and r.rank = ready_rank(j.priority, false) and r.seq = j.seq)
        and not exists (
          select from waiting w
          where w.tenant = j.tenant and w.target = j.target and w.turn = 1 and w.place = j.seq)
        and not exists (select from ready_entry(j.stream, j.priority, j.seq))
        and (j.target is null or not exists (
          select from heads h
          cross join lateral ready_entry(j.stream, j.priority, h.seq)
          where h.tenant = j.tenant and h.target = j.target and h.job_id = j.id))
      when 'running' then
        not exists (select from leases l where l.job_id = j.id and l.attempt = j.attempt)
      when 'scheduled' then
        not exists (select from due d where d.run_at = j.run_at and d.job_id = j.id)
      when 'retry' then
        not exists (select from due d where d.run_at = j.run_at and d.job_id = j.id)
      else is_dormant(j.state) and not exists (select from dormant d where d.job_id = j.id)
        -- Those from before there was this table are not broken (`note_dormant`).
        and not exists (select from walks w where w.name = 'dormant')
        or has_ended(j.state) and (j.finished_at is null or j.dedup_key is not null)
    end
$$;
ALTER FUNCTION holdfast.broken_among(ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.broken_among(ids uuid[]) IS 'Those of the given jobs that are open and lack their side row, or that have ended without a time or with a dedup key.';
CREATE FUNCTION holdfast.broken_jobs(first uuid, last uuid) RETURNS TABLE(job_id uuid, fault text)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select b.job_id, b.fault
  from broken_among(array(
    select j.id
    from jobs j
    where j.id >= first and j.id <= last
      and j.state in ('queued', 'running', 'scheduled', 'retry', 'created', 'paused', 'error'))) b
$$;
ALTER FUNCTION holdfast.broken_jobs(first uuid, last uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.broken_jobs(first uuid, last uuid) IS 'Open jobs whose side row is missing, from the first id to the last.';
CREATE FUNCTION holdfast.budget_of(job holdfast.jobs) RETURNS integer
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select attempts_allowed(
    job.max_attempts, (select t.max_attempts from job_types t where t.name = job.type),
    setting('MAX_ATTEMPTS_DEFAULT')::integer)
$$;
ALTER FUNCTION holdfast.budget_of(job holdfast.jobs) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.budget_of(job holdfast.jobs) IS 'How many failures end a job.';
CREATE TABLE holdfast.bulks (
    id uuid NOT NULL,
    tenant text COLLATE pg_catalog."C",
    action text NOT NULL,
    query text NOT NULL,
    tree jsonb NOT NULL,
    args jsonb DEFAULT '{}'::jsonb NOT NULL,
    by text NOT NULL,
    by_key uuid,
    note text,
    state text DEFAULT 'fixing'::text NOT NULL,
    sources text[] NOT NULL,
    reached text[],
    last_place bigint DEFAULT 0 NOT NULL,
    place bigint DEFAULT 0 NOT NULL,
    rests_until timestamp with time zone,
    matched bigint DEFAULT 0 NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    error text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    turned_at timestamp with time zone,
    tries smallint DEFAULT 0 NOT NULL,
    pace double precision DEFAULT 1 NOT NULL,
    CONSTRAINT bulks_state_check CHECK ((state = ANY (ARRAY['fixing'::text, 'running'::text, 'stopping'::text, 'stopped'::text, 'done'::text])))
);
ALTER TABLE holdfast.bulks OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.bulks IS 'Bulk operations: one action on all jobs that fit a filter, and how far it is.';
CREATE FUNCTION holdfast.bulk_act(bulk holdfast.bulks, id uuid) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  job     jobs;
  verdict text;
begin
  select j.* into job from jobs j where j.id = bulk_act.id;
  if bulk.action = 'ack' then
    verdict := case when acknowledge_letter(id, bulk."by", bulk.note) then 'done' end;
  elsif bulk.action = 'requeue' or (bulk.action = 'retry' and job.state = 'dead') then
    if bulk.args ? 'options' then
      perform check_enqueue(array[job.type], array['{}'::jsonb], array[bulk.args -> 'options'], job.tenant);
    end if;
    select r.outcome into verdict from requeue_letter(id, null, bulk.args -> 'options', bulk."by", bulk.note) r;
  elsif bulk.action = 'retry' and job.state in ('success', 'canceled') then
    if not is_erased(id) then
      perform run_again(job, bulk."by");
      verdict := 'done';
    end if;
  elsif bulk.action = 'reprioritize' then
    if job.state in ('created', 'scheduled', 'queued', 'retry', 'paused', 'error')
      and job.priority <> (bulk.args ->> 'priority')::integer then
      if not reprioritized(job, (bulk.args ->> 'priority')::integer) then
        return 'later';
      end if;
      insert into job_events (job_id, event, by, note)
      values (id, 'reprioritized', bulk."by",
        concat_ws(': ', format('priority %s', bulk.args ->> 'priority'), nullif(bulk.note, '')));
      verdict := 'done';
    end if;
  else
    verdict := carry_out(bulk.action, id, null, bulk."by", bulk.note, null);
    if verdict = 'when-ended' or (bulk.action = 'delete' and verdict = 'later') then
      -- What has to wait for the end of the attempt, or is too much for one go, becomes a request of its own.
      perform record_requests(bulk.action, array[id], bulk."by", bulk.note, null, null, false, false);
    elsif verdict = 'later' then
      return 'later';
    end if;
  end if;
  return case
    when verdict is null or verdict in ('repeated', 'request', 'erased', 'not-found', 'already-final', 'not-possible')
      and not (bulk.action = 'delete' and verdict = 'erased') then 'skipped'
    else 'done'
  end;
end
$$;
ALTER FUNCTION holdfast.bulk_act(bulk holdfast.bulks, id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bulk_act(bulk holdfast.bulks, id uuid) IS 'Do what a bulk operation does to one job: `done`, `skipped`, or `later` if somebody else has locked it.';
CREATE FUNCTION holdfast.bulk_page(tree jsonb, only_tenant text, sources text[], place text[], max_jobs integer, max_visited integer) RETURNS TABLE(ids uuid[], reached text[])
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $_$
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
$_$;
ALTER FUNCTION holdfast.bulk_page(tree jsonb, only_tenant text, sources text[], place text[], max_jobs integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bulk_page(tree jsonb, only_tenant text, sources text[], place text[], max_jobs integer, max_visited integer) IS 'Some of the jobs that fit, and where to go on; `reached` is null at the end.';
CREATE FUNCTION holdfast.bulk_sources(tree jsonb, only_tenant text) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.bulk_sources(tree jsonb, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bulk_sources(tree jsonb, only_tenant text) IS 'Where the jobs that fit are looked for: in the tables of the states that the query allows.';
CREATE FUNCTION holdfast.bulk_states(action text, tree jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select array(
    select s.state
    from unnest(case action
      when 'cancel' then array['created', 'scheduled', 'queued', 'running', 'retry', 'paused', 'error']
      when 'pause' then array['scheduled', 'queued', 'running', 'retry']
      when 'resume' then array['paused', 'error']
      when 'retry' then array['scheduled', 'retry', 'paused', 'error', 'dead']
        || array(select unnest(named_states(tree)) intersect select unnest(array['success', 'canceled']))
      when 'requeue' then array['dead']
      when 'ack' then array['dead']
      when 'reprioritize' then array['created', 'scheduled', 'queued', 'retry', 'paused', 'error']
      else all_states()
    end) as s (state)
    where s.state = any (allowed_states(tree)))
$$;
ALTER FUNCTION holdfast.bulk_states(action text, tree jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bulk_states(action text, tree jsonb) IS 'The states in which an action may change a job, of those that the filter allows.';
CREATE FUNCTION holdfast.bulk_tree(action text, tree jsonb, upto timestamp with time zone) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;
ALTER FUNCTION holdfast.bulk_tree(action text, tree jsonb, upto timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bulk_tree(action text, tree jsonb, upto timestamp with time zone) IS 'A query with what an action adds to it.';
CREATE FUNCTION holdfast.bury(job holdfast.jobs, verdict text, by text, words text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  update jobs j
  set reason = verdict_event(verdict), last_error = operator_words(verdict, by, words), last_error_at = now()
  where j.id = job.id;
  insert into dead_letters (job_id, tenant, type, error_type, error_message, fingerprint)
  select job.id, job.tenant, job.type, said.error, said.words, fingerprint_of(job.type, said.error, said.words)
  from (select operator_error(verdict) as error, operator_words(verdict, by, words) as words) said
  on conflict do nothing;
  insert into failures (job_id, attempt, fingerprint)
  select d.job_id, 0, d.fingerprint from dead_letters d where d.job_id = job.id and d.fingerprint is not null;
  insert into job_events (job_id, event, by, note) values (job.id, verdict_event(verdict), by, words);
$$;
ALTER FUNCTION holdfast.bury(job holdfast.jobs, verdict text, by text, words text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.bury(job holdfast.jobs, verdict text, by text, words text) IS 'Write the dead letter of a job that an operator ended while it waited, and its history.';
CREATE FUNCTION holdfast.carry_out(verb text, id uuid, flagged integer, by text, note text, message text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  job  jobs;
  goal text;
begin
  for round in 1..5 loop
    select j.* into job from jobs j where j.id = carry_out.id;
    if not found then
      return 'not-found';
    elsif has_ended(job.state) then
      if verb = 'delete' then
        return case when forgotten(job.id, by) then 'erased' else 'later' end;
      end if;
      return 'already-final';
    elsif verb in ('cancel', 'resolve', 'pause') and flagged is not null then
      return 'flagged';
    elsif job.state = 'running' then
      if verb in ('resume', 'retry') then
        return 'not-possible';
      elsif flag_attempt(
        job.id, case verb when 'delete' then 'cancel' else verb end, by, note, message) is not null then
        return case when verb = 'delete' then 'when-ended' else 'flagged' end;
      elsif exists (select from leases l where l.job_id = job.id and l.verdict = 'retry') then
        return 'when-ended';
      end if;
      continue;
    end if;
    goal := case
      when verb in ('cancel', 'resolve', 'delete') then 'canceled'
      when verb = 'pause' and job.state in ('scheduled', 'queued', 'retry') then 'paused'
      when verb in ('resume', 'retry') and job.state = 'error' then 'queued'
      when verb in ('resume', 'retry') and job.state = 'paused' then
        case when verb = 'resume' and job.run_at > now() then 'scheduled' else 'queued' end
      when verb = 'retry' and job.state in ('scheduled', 'retry') then 'queued'
    end;
    if goal is null then
      return 'not-possible';
    elsif move_waiting(job, goal, by, note, message, verb = 'resolve') then
      if verb = 'delete' and not forgotten(job.id, by) then
        return 'later';
      end if;
      return goal;
    end if;
  end loop;
  return 'later';
end
$$;
ALTER FUNCTION holdfast.carry_out(verb text, id uuid, flagged integer, by text, note text, message text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.carry_out(verb text, id uuid, flagged integer, by text, note text, message text) IS 'Execute one request on one job.';
CREATE FUNCTION holdfast.carry_out_by_hand(verb text, ask jsonb) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  wanted  uuid := ask ->> 'job_id';
  verdict text := ask ->> 'verdict';
  who     text := ask ->> 'by';
  words   text := ask ->> 'note';
  flagged integer := ask ->> 'attempt';
  job     jobs;
begin
  for round in 1..5 loop
    select j.* into job from jobs j where j.id = wanted;
    if not found then
      return 'not-found';
    elsif verb = 'expire-lease' and (job.state <> 'running' or job.attempt <> flagged) then
      return 'already-ended';
    elsif has_ended(job.state) then
      return 'already-final';
    elsif verb = 'expire-lease' then
      if lease_expired(job.id, who, words) then
        return 'expired';
      end if;
    elsif verb = 'reprioritize' then
      if exists (
        select from job_events e
        where e.job_id = job.id and e.id > (ask ->> 'event')::bigint and e.event = 'reprioritized') then
        return 'superseded';
      elsif reprioritized(job, (ask ->> 'priority')::integer) then
        return 'reprioritized';
      end if;
    elsif flagged is not null then
      return 'flagged';
    elsif job.state = 'running' then
      if flag_attempt(job.id, verdict, who, words, null) is not null then
        return 'flagged';
      end if;
    elsif hand_answer(verb, verdict, job.state) = 'accepted' then
      if move_waiting(job, 'dead', who, words, null, false) then
        perform bury(job, verdict, who, words);
        return 'dead';
      end if;
    else
      return case when job.state in ('queued', 'scheduled') then 'when-ended' else 'not-possible' end;
    end if;
  end loop;
  return 'later';
end
$$;
ALTER FUNCTION holdfast.carry_out_by_hand(verb text, ask jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.carry_out_by_hand(verb text, ask jsonb) IS 'Carry out one decision on one job: as `carry_out`, with the same order of locks.';
CREATE FUNCTION holdfast.change_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision, by text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform check_texts(by, null);
  perform check_limits(change_limits.kind, change_limits.name, changes, change_limits.limit_count,
    change_limits.rate_count, change_limits.rate_seconds, change_limits.weight);
  if num_nonnulls(change_limits.limit_count, change_limits.rate_count, change_limits.weight) = 0 and not exists (
    select from controls c where c.kind = change_limits.kind and c.name = change_limits.name) then
    return false;
  end if;
  insert into controls as c (kind, name, limit_count, rate_count, rate_seconds, weight, updated_by)
  values (
    change_limits.kind, change_limits.name, change_limits.limit_count, change_limits.rate_count,
    change_limits.rate_seconds, change_limits.weight, change_limits.by)
  on conflict on constraint controls_pkey do update
    set limit_count = case when 'limit' = any (changes) then excluded.limit_count else c.limit_count end,
      rate_count = case when 'rate' = any (changes) then excluded.rate_count else c.rate_count end,
      rate_seconds = case when 'rate' = any (changes) then excluded.rate_seconds else c.rate_seconds end,
      weight = case when 'weight' = any (changes) then excluded.weight else c.weight end,
      updated_at = now(), updated_by = excluded.updated_by
    where ('limit' = any (changes) and c.limit_count is distinct from excluded.limit_count)
      or ('rate' = any (changes)
        and (c.rate_count, c.rate_seconds) is distinct from (excluded.rate_count, excluded.rate_seconds))
      or ('weight' = any (changes) and c.weight is distinct from excluded.weight);
  if not found then
    return false;
  end if;
  perform note_steering(
    change_limits.kind, change_limits.name, case changes when '{weight}' then 'weight' else 'limit' end, by, by_key,
    jsonb_build_object('limit', change_limits.limit_count, 'rate_count', change_limits.rate_count,
      'rate_seconds', change_limits.rate_seconds, 'weight', change_limits.weight));
  return true;
end
$$;
ALTER FUNCTION holdfast.change_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision, by text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.change_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision, by text, by_key uuid) IS 'Set or clear (null) the values named in `changes`: `limit`, `rate` and, for a tenant, `weight`.';
CREATE FUNCTION holdfast.change_setting(name text, value text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  before settings;
begin
  perform check_signed(by, note);
  select s.* into before from settings s where s.name = change_setting.name for update;
  if not found then
    return null;
  elsif before.value is not distinct from change_setting.value then
    return false;
  end if;
  update settings s
  set value = change_setting.value, updated_at = now(), updated_by = by
  where s.name = change_setting.name;
  perform note_audit(
    by, by_key, null, case when value is null then 'setting.reset' else 'setting.set' end, change_setting.name,
    jsonb_strip_nulls(jsonb_build_object('from', before.value, 'to', value, 'note', note)));
  return true;
end
$$;
ALTER FUNCTION holdfast.change_setting(name text, value text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.change_setting(name text, value text, by text, note text, by_key uuid) IS 'Store a value for a setting, or (null) remove it, so that environment and default apply.';
CREATE FUNCTION holdfast.check_bulk(action text, args jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.check_bulk(action text, args jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_bulk(action text, args jsonb) IS 'Raise unless an action exists and takes these arguments.';
CREATE FUNCTION holdfast.check_by_tenant(kind text, name text, by_tenant text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  if by_tenant is not null and (kind, name) is distinct from ('tenant', by_tenant) then
    raise exception 'operators of the tenant % can pause and resume only that tenant', by_tenant using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_by_tenant(kind text, name text, by_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_by_tenant(kind text, name text, by_tenant text) IS 'Refuse operators of a tenant that pause or resume anything but their own tenant.';
CREATE FUNCTION holdfast.check_circuit_change(name text, tenant text, by text, reason text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  fault text := circuit_name_fault(name, tenant);
begin
  perform check_signed(by, reason);
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_circuit_change(name text, tenant text, by text, reason text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_circuit_change(name text, tenant text, by text, reason text) IS 'Refuse a change of a circuit that does not name the circuit, or who makes it.';
CREATE FUNCTION holdfast.check_circuit_reports(worker text, asked jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  wrong text;
begin
  if coalesce(length(worker), 0) not between 1 and 255 then
    raise exception 'the name of a worker must have 1 to 255 characters' using errcode = 'HF002';
  elsif jsonb_typeof(asked) is distinct from 'array' or jsonb_array_length(asked) > highest('circuits') then
    raise exception 'circuits must be a list of objects' using errcode = 'HF002';
  end if;
  select coalesce(
      case
        when jsonb_typeof(each) <> 'object' or jsonb_typeof(each -> 'tenant') is distinct from 'string'
          or jsonb_typeof(each -> 'name') is distinct from 'string' then 'a circuit must be an object with tenant and name'
        when jsonb_typeof(each -> 'successes') is distinct from 'number'
          or jsonb_typeof(each -> 'failures') is distinct from 'number'
          or jsonb_typeof(each -> 'generation') is distinct from 'number'
          then 'a circuit must have generation, successes and failures'
        when (each ->> 'successes')::numeric not between 0 and 9007199254740991
          or (each ->> 'failures')::numeric not between 0 and 9007199254740991
          or (each ->> 'generation')::numeric not between 0 and 9007199254740991
          then 'successes, failures and generation must be whole numbers, 0 or more'
        else circuit_name_fault(each ->> 'name', each ->> 'tenant')
      end,
      (select bounds_fault(number.key, number.key, case jsonb_typeof(number.value)
          when 'number' then number.value::numeric else 'NaN' end)
       from jsonb_each(case jsonb_typeof(each -> 'policy') when 'object' then each -> 'policy' else '{}' end) number
       where bounds_fault(number.key, number.key, case jsonb_typeof(number.value)
          when 'number' then number.value::numeric else 'NaN' end) is not null
       limit 1)) into wrong
  from jsonb_array_elements(asked) as each
  order by 1 nulls last
  limit 1;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_circuit_reports(worker text, asked jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_circuit_reports(worker text, asked jsonb) IS 'Refuse malformed reports.';
CREATE FUNCTION holdfast.check_enqueue(types text[], payloads jsonb[], options jsonb[], tenant text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
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
      when is_request(type) then format('job types beginning with "holdfast." are reserved: %s', type)
      when payload is null or jsonb_typeof(payload) <> 'object' then format('the payload of %s must be a JSON object', type)
    end into wrong
  from unnest(types, payloads) as job (type, payload)
  where coalesce(length(type), 0) not between 1 and 200
    or is_request(type)
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
      -- Also names that are not strings: `->>` would read [] as the name "[]".
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
$_$;
ALTER FUNCTION holdfast.check_enqueue(types text[], payloads jsonb[], options jsonb[], tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_enqueue(types text[], payloads jsonb[], options jsonb[], tenant text) IS 'Refuse invalid intents before anything is written, and say what to do.';
CREATE FUNCTION holdfast.check_lanes(lanes jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  wrong text;
begin
  if jsonb_typeof(lanes) is distinct from 'object' then
    raise exception 'lanes must be an object with the slots of each lane' using errcode = 'HF002';
  end if;
  if (select count(*) from jsonb_object_keys(lanes)) > 1000
    or exists (select from jsonb_object_keys(lanes) as name where length(name) not between 1 and 200)
  then
    raise exception 'lanes must have names of 1 to 200 characters, and at most 1000 of them' using errcode = 'HF002';
  end if;
  select lane.key into wrong
  from jsonb_each(lanes) lane
  where case jsonb_typeof(lane.value)
      when 'number' then bounds_fault('slots', 'slots', lane.value::numeric) is not null
      else true
    end
  limit 1;
  if wrong is not null then
    raise exception 'the slots of lane % must be a whole number from 0 to %', wrong, highest('slots') using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_lanes(lanes jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_lanes(lanes jsonb) IS 'Refuse slots that are not counts: adding up the slots of all workers would fail.';
CREATE FUNCTION holdfast.check_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  fault text;
begin
  perform check_subject(kind, name, case
    when 'weight' = any (changes) then array['tenant'] else array['queue', 'type', 'tenant'] end);
  fault := case
    when not coalesce(changes <@ '{limit,rate,weight}' and cardinality(changes) > 0, false) then
      'what can be changed is limit, rate and weight'
    when limit_count is not null and 'limit' <> all (changes)
      or rate_count is not null and 'rate' <> all (changes)
      or weight is not null and 'weight' <> all (changes) then '`changes` must name every value that is given'
    when limit_count not between 0 and 10000 then 'a limit must be 0 to 10000'
    when num_nulls(rate_count, rate_seconds) = 1
      or rate_count not between 1 and 10000
      or rate_seconds not between 0.001 and 2678400 then
      'a rate must be 1 to 10000 jobs in 0.001 to 2678400 seconds (31 days)'
    when weight not between 0.001 and 1000 then 'a weight must be 0.001 to 1000'
  end;
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision) IS 'Raise unless these limits can be set.';
CREATE FUNCTION holdfast.check_payloads(types text[], payloads jsonb[]) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  most bigint;
  bad  record;
begin
  if not exists (select from unnest(payloads) as payload where not is_small(payload)) then
    return;
  end if;
  most := payload_limit();
  select job.payload, fault.text into bad
  from unnest(types, payloads) as job (type, payload)
  cross join lateral (
    select json_fault(
      'the payload of ' || job.type, job.payload, most, 'PAYLOAD_MAX_BYTES',
      'send less, store it elsewhere and send where it is, or raise the limit') as text
    offset 0) fault
  where fault.text is not null
  limit 1;
  if found then
    raise exception '%', bad.text using errcode = 'HF002',
      constraint = case when octet_length(bad.payload::text) > most then 'payload_max_bytes' else 'payload' end;
  end if;
end
$$;
ALTER FUNCTION holdfast.check_payloads(types text[], payloads jsonb[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_payloads(types text[], payloads jsonb[]) IS 'Refuse payloads that cannot be stored.';
CREATE FUNCTION holdfast.check_query_size(tree jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  if octet_length(tree::text) > 100000 or regexp_count(tree::text, '"(and|or|not|op|text|json)":') > 300 then
    raise exception 'a query has too many terms' using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_query_size(tree jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_query_size(tree jsonb) IS 'Raise if a query is too large.';
CREATE FUNCTION holdfast.check_remote(tenant text, worker text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  if coalesce(tenant, '') = '' then
    raise exception 'no tenant was named' using errcode = 'HF003';
  elsif worker is null or not starts_with(worker, 'remote:') then
    raise exception 'the name of a remote worker begins with "remote:"' using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_remote(tenant text, worker text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_remote(tenant text, worker text) IS 'Refuse a request without a tenant, or of a worker that is none of those who come over HTTP.';
CREATE FUNCTION holdfast.check_remote_report(report jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  most  bigint := result_limit();
  wrong record;
begin
  if octet_length(report::text) < 1024 and is_small(report) then
    return;
  end if;
  select part.pointer, fault.text into wrong
  from (
    select '/items/' || (i.place - 1) || '/data', 'the data of an item', i.value -> 'data'
    from jsonb_array_elements(case when jsonb_typeof(report -> 'items') = 'array' then report -> 'items' else '[]' end)
      with ordinality as i (value, place)
    union all
    select '/cursor', 'the cursor', report -> 'cursor'
    union all
    select '/result', 'the result', report -> 'result') as part (pointer, what, value)
  cross join lateral (
    select json_fault(
      part.what, part.value, most, 'RESULT_MAX_BYTES', 'store it elsewhere and report where it is') as text
    offset 0) fault
  where fault.text is not null
  limit 1;
  if found then
    raise exception '%', wrong.text using errcode = 'HF002', column = wrong.pointer;
  end if;
end
$$;
ALTER FUNCTION holdfast.check_remote_report(report jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_remote_report(report jsonb) IS 'Refuse a report with something that is too large to be stored, and say where it stands.';
CREATE FUNCTION holdfast.check_report(seq integer, items jsonb, collection text, progress bigint, done_reason text, ends text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
  fault text;
begin
  fault := case
    when coalesce(seq, 0) < 1 then 'seq must be 1 or more'
    when coalesce(progress, -1) < 0 then 'progress must be 0 or more'
    when length(collection) not between 1 and 200 then 'the name of a collection must have 1 to 200 characters'
    when done_reason not in ('worker_done', 'target_reached', 'no_more_results') then
      'done_reason is worker_done, target_reached or no_more_results'
    when coalesce(ends, '') not in ('later', 'at-target', 'now') then 'ends must be later, at-target or now'
    when jsonb_typeof(items) <> 'array' then 'items must be a list'
  end;
  if fault is null and items is not null then
    fault := case
      when jsonb_array_length(items) > 10000 then 'a report may have at most 10000 items'
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
ALTER FUNCTION holdfast.check_report(seq integer, items jsonb, collection text, progress bigint, done_reason text, ends text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_report(seq integer, items jsonb, collection text, progress bigint, done_reason text, ends text) IS 'Raise unless a report has only what may be reported.';
CREATE FUNCTION holdfast.check_report_size(items jsonb, cursor jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.check_report_size(items jsonb, cursor jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_report_size(items jsonb, cursor jsonb) IS 'Refuse a report that is too large.';
CREATE FUNCTION holdfast.check_results(job_ids uuid[], results jsonb[]) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  most  bigint := result_limit();
  fault text;
begin
  select json_fault(
    'the result of ' || coalesce((select j.type from jobs j where j.id = job_ids[r.place]), 'an unknown job'),
    r.result, most, 'RESULT_MAX_BYTES',
    'return less, store it elsewhere and return where it is, or raise the limit') into fault
  from unnest(results) with ordinality as r (result, place)
  where (most < 1024 or not is_small(r.result))
    and not is_storable(r.result, most)
  limit 1;
  if found then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_results(job_ids uuid[], results jsonb[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_results(job_ids uuid[], results jsonb[]) IS 'Refuse results that are too large.';
CREATE FUNCTION holdfast.check_room_for_schedule(tenant text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  most  integer := setting('SCHEDULES_PER_TENANT');
  found integer := (
    select count(*)
    from (
      select
      from schedules s
      where s.tenant = check_room_for_schedule.tenant and s.retired_at is null
      limit most) counted);
begin
  if found >= most then
    raise exception
      'tenant % has % schedules, and may have % (SCHEDULES_PER_TENANT): delete schedules that nobody needs, or raise the limit',
      tenant, found, most
      using errcode = 'HF002', constraint = 'schedules_per_tenant';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_room_for_schedule(tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_room_for_schedule(tenant text) IS 'Raise if the tenant has as many schedules as it may.';
CREATE FUNCTION holdfast.check_schedule(definition jsonb, tenant text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  name  text := definition ->> 'name';
  wrong text;
begin
  if jsonb_typeof(definition) is distinct from 'object' then
    raise exception 'a schedule must be a JSON object' using errcode = 'HF002';
  end if;
  select format('unknown field %s of a schedule', quote_ident(field)) into wrong
  from jsonb_object_keys(definition) as field
  where field not in ('name', 'tenant', 'cron', 'every', 'tz', 'type', 'payload', 'options', 'overlap', 'catch_up', 'jitter')
  limit 1;
  wrong := coalesce(wrong, case
    when jsonb_typeof(definition -> 'name') is distinct from 'string' or length(name) not between 1 and 200
      or unprintable(name) or strpos(name, '/') > 0
      then 'the name of a schedule must have 1 to 200 characters, no control characters and no slash'
    when num_nonnulls(definition ->> 'cron', definition ->> 'every') <> 1 then 'a schedule needs either cron or every'
    when jsonb_typeof(coalesce(definition -> 'cron', '""')) not in ('string', 'null') or length(definition ->> 'cron') not between 1 and 200
      then 'cron must be a string of 1 to 200 characters'
    when jsonb_typeof(coalesce(definition -> 'every', '0')) not in ('number', 'null') then 'every must be a number of seconds'
    when jsonb_typeof(definition -> 'tz') is distinct from 'string' or length(definition ->> 'tz') not between 1 and 100
      then 'tz must be the name of a time zone'
    when definition ->> 'overlap' is null or definition ->> 'overlap' not in ('skip', 'queue', 'allow')
      then 'overlap must be skip, queue or allow'
    when jsonb_typeof(definition -> 'catch_up') is distinct from 'number' then 'catch_up must be a number of seconds'
    when jsonb_typeof(definition -> 'jitter') is distinct from 'number' then 'jitter must be a number of seconds'
    else coalesce(
      bounds_fault('every', 'every', (definition ->> 'every')::numeric),
      bounds_fault('catch_up', 'catch_up', (definition ->> 'catch_up')::numeric),
      bounds_fault('jitter', 'jitter', (definition ->> 'jitter')::numeric))
  end);
  if wrong is null then
    select format('a schedule does not take the option %s: it would be the same for all of its jobs', option) into wrong
    from unnest(array['run_at', 'delay', 'idempotency_key', 'parent_id', 'hold', 'traceparent']) as option
    where definition -> 'options' ? option
    limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
  perform check_enqueue(
    array[definition ->> 'type'], array[definition -> 'payload'], array[definition -> 'options'], tenant);
end
$$;
ALTER FUNCTION holdfast.check_schedule(definition jsonb, tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_schedule(definition jsonb, tenant text) IS 'Raise unless this is the definition of a schedule.';
CREATE FUNCTION holdfast.check_scope(kind text, name text, kinds text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform ask_to_repeat();
end
$$;
ALTER FUNCTION holdfast.check_scope(kind text, name text, kinds text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_scope(kind text, name text, kinds text[]) IS 'Called by what operators decide.';
CREATE FUNCTION holdfast.check_seconds(what text, bound text, lengths double precision[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  fault text;
begin
  select bounds_fault(what, bound, length::numeric) into fault
  from unnest(lengths) as length
  where length is not null
  order by 1 nulls last
  limit 1;
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_seconds(what text, bound text, lengths double precision[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_seconds(what text, bound text, lengths double precision[]) IS 'Refuse numbers of seconds that are out of bounds.';
CREATE FUNCTION holdfast.check_signed(by text, note text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform check_texts(by, note);
  if by is null then
    raise exception '`by` is required' using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_signed(by text, note text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_signed(by text, note text) IS 'Raise unless a decision says who made it.';
CREATE FUNCTION holdfast.check_subject(kind text, name text, kinds text[]) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  if kind is null or kind <> all (kinds) then
    raise exception 'unknown kind %; known are %', kind, array_to_string(kinds, ', ') using errcode = 'HF002';
  elsif kind = 'everything' then
    if name is distinct from '' then
      raise exception 'the kind everything takes no name' using errcode = 'HF002';
    end if;
  elsif coalesce(length(name), 0) not between 1 and 200 then
    raise exception 'the name of a % must have 1 to 200 characters', kind using errcode = 'HF002';
  elsif unprintable(name) then
    raise exception 'the name of a % must not contain control characters', kind using errcode = 'HF002';
  elsif kind = 'lane' and name not in (select l.lane from known_lanes() l) then
    raise exception 'unknown lane %; known are %', name,
      (select string_agg(l.lane, ', ' order by l.lane) from known_lanes() l) using errcode = 'HF002';
  elsif kind = 'queue' and name = 'holdfast' or kind = 'type' and is_request(name) then
    raise exception 'names beginning with "holdfast" are reserved for maintenance' using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_subject(kind text, name text, kinds text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_subject(kind text, name text, kinds text[]) IS 'Raise unless such a subject can exist.';
CREATE FUNCTION holdfast.check_texts(who text, reason text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  if length(who) > 500 then
    raise exception '`by` must have at most 500 characters' using errcode = 'HF002';
  elsif length(reason) > 1000 then
    raise exception 'a reason must have at most 1000 characters' using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_texts(who text, reason text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_texts(who text, reason text) IS 'Refuse names of callers and workers, and reasons, that are too long to be stored with every job that they concern.';
CREATE FUNCTION holdfast.check_types(definitions jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  wrong text;
begin
  if jsonb_typeof(definitions) is distinct from 'array' then
    raise exception 'job types must be a list of objects' using errcode = 'HF002';
  elsif jsonb_array_length(definitions) > 10000 then
    raise exception 'at most 10000 job types are published at once' using errcode = 'HF002';
  end if;
  select case
      when jsonb_typeof(definition) <> 'object' then 'job types must be a list of objects'
      when length(definition ->> 'name') between 1 and 200 and jsonb_typeof(definition -> 'name') = 'string' then
        format('job type %s: %s', definition ->> 'name', case
          when field.most is null then format('%s must be a number', field.name)
          when field.required then format('%s must be a string of 1 to %s characters', field.name, field.most)
          else format('%s must be a string of at most %s characters', field.name, field.most)
        end)
      else 'the name of a job type must be a string of 1 to 200 characters'
    end into wrong
  from jsonb_array_elements(definitions) as definition
  cross join (values
    ('name', 200, true), ('queue', 200, true), ('lane', 200, true), ('on_failure', 200, true), ('limit_key', 1000, false),
    ('rate_key', 1000, false), ('version', null, true), ('backoff_base', null, false), ('backoff_factor', null, false),
    ('backoff_max', null, false), ('backoff_jitter', null, false))
    as field (name, most, required)
  where jsonb_typeof(definition) <> 'object'
    or case coalesce(jsonb_typeof(definition -> field.name), 'null')
      when 'null' then field.required
      when 'string' then field.most is null
        or length(definition ->> field.name) not between field.required::integer and field.most
      else field.most is not null
    end
  limit 1;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
  select format('job type %s: %s', definition ->> 'name', case jsonb_typeof(definition -> field.name)
      when 'number' then bounds_fault(field.name, field.bound, (definition ->> field.name)::numeric)
      else format('%s must be a number', field.name)
    end) into wrong
  from jsonb_array_elements(definitions) as definition
  cross join (values
    ('max_attempts', 'max_attempts'), ('version', 'version'), ('lease_seconds', 'lease'), ('timeout_seconds', 'timeout'),
    ('backoff_base', 'backoff_base'), ('backoff_factor', 'backoff_factor'), ('backoff_max', 'backoff_max'),
    ('backoff_jitter', 'backoff_jitter'), ('limit_count', 'limit'), ('rate_count', 'limit'), ('rate_seconds', 'rate'))
    as field (name, bound)
  where case coalesce(jsonb_typeof(definition -> field.name), 'null')
      when 'null' then false
      when 'number' then bounds_fault(field.name, field.bound, (definition ->> field.name)::numeric) is not null
      else true
    end
  limit 1;
  if wrong is null then
    select format('job type %s: a rate needs both rate_count and rate_seconds', definition ->> 'name') into wrong
    from jsonb_array_elements(definitions) as definition
    where num_nulls(definition ->> 'rate_count', definition ->> 'rate_seconds') = 1
    limit 1;
  end if;
  if wrong is null then
    select format('job type %s: %s', definition ->> 'name', case
        when definition ->> 'on_failure' not in ('retry', 'hold') then 'on_failure must be retry or hold'
        when length(definition ->> 'payload_shape') > 131072 then 'payload_shape must have at most 131072 characters'
        when definition ->> 'circuit' is not null then coalesce(
          circuit_name_fault(definition ->> 'circuit', ''), 'circuit_per_tenant must be true or false')
        else 'payload_schema must have at most 1048576 characters'
      end) into wrong
    from jsonb_array_elements(definitions) as definition
    where definition ->> 'on_failure' not in ('retry', 'hold') or length(definition ->> 'payload_schema') > 1048576
      or length(definition ->> 'payload_shape') > 131072
      or (definition ->> 'circuit' is not null and (
        circuit_name_fault(definition ->> 'circuit', '') is not null
        or jsonb_typeof(definition -> 'circuit_per_tenant') is distinct from 'boolean'))
    limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_types(definitions jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_types(definitions jsonb) IS 'Refuse a declaration that is incomplete, or whose numbers or texts are out of bounds, and name it.';
CREATE FUNCTION holdfast.check_worker(id text, host text, version text, types text[], queues text[], tenants text[] DEFAULT NULL::text[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  wrong text;
begin
  wrong := case
    when coalesce(length(id), 0) not between 1 and 255 then 'the name of a worker must have 1 to 255 characters'
    when host is null or length(host) > 255 then 'the host of a worker must be a text of at most 255 characters'
    when version is null or length(version) > 255 then 'the version of a worker must be a text of at most 255 characters'
    when types is null then 'a worker must name its job types'
  end;
  if wrong is null then
    select case
        when cardinality(list.names) > 10000 then format('a worker may name at most 10000 %s', list.what)
        else format('%s of a worker must be names of 1 to 200 characters', list.what)
      end into wrong
    from (values ('job types', types), ('queues', queues), ('tenants', tenants)) as list (what, names)
    where cardinality(list.names) > 10000
      or exists (select from unnest(list.names) as name where coalesce(length(name), 0) not between 1 and 200)
    limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
end
$$;
ALTER FUNCTION holdfast.check_worker(id text, host text, version text, types text[], queues text[], tenants text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.check_worker(id text, host text, version text, types text[], queues text[], tenants text[]) IS 'Refuse workers that could not be listed: `holdfast workers` and the dashboard show all workers at once.';
CREATE FUNCTION holdfast.circuit_key(tenant text, name text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select tenant || chr(31) || name
$$;
ALTER FUNCTION holdfast.circuit_key(tenant text, name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_key(tenant text, name text) IS 'The name of a circuit among the controls and gates.';
CREATE TABLE holdfast.circuits (
    tenant text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    failure_threshold integer,
    failure_share double precision NOT NULL,
    window_seconds double precision NOT NULL,
    open_seconds double precision,
    probes integer NOT NULL,
    success_threshold integer NOT NULL,
    state text DEFAULT 'closed'::text NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    openings integer DEFAULT 0 NOT NULL,
    opening_seconds double precision,
    probe_successes integer DEFAULT 0 NOT NULL,
    opened_at timestamp with time zone,
    half_opened_at timestamp with time zone,
    next_probe_at timestamp with time zone,
    last_failure_at timestamp with time zone,
    last_error text,
    forced_by text,
    forced_note text,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT circuits_state_check CHECK ((state = ANY (ARRAY['closed'::text, 'open'::text, 'half_open'::text])))
);
ALTER TABLE holdfast.circuits OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.circuits IS 'Circuit breakers: what is open, since when, and when it is tried again.';
CREATE FUNCTION holdfast.circuit_limits(circuit holdfast.circuits) RETURNS TABLE(failure_threshold integer, open_seconds double precision)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(circuit.failure_threshold, setting('CIRCUIT_FAILURE_THRESHOLD')::integer),
    coalesce(circuit.open_seconds, setting('CIRCUIT_OPEN_SECONDS')::double precision)
$$;
ALTER FUNCTION holdfast.circuit_limits(circuit holdfast.circuits) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_limits(circuit holdfast.circuits) IS 'How many failures open a circuit, and for how long it stays open the first time: its own numbers, else the settings.';
CREATE FUNCTION holdfast.circuit_name_fault(name text, tenant text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select case
    when coalesce(length(name), 0) not between 1 and 200 then 'the name of a circuit must have 1 to 200 characters'
    when unprintable(name) then 'the name of a circuit must not contain control characters'
    when tenant is null or length(tenant) > 200 or unprintable(tenant) then 'the tenant of a circuit must have at most 200 characters, and no control characters'
  end
$$;
ALTER FUNCTION holdfast.circuit_name_fault(name text, tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_name_fault(name text, tenant text) IS 'What is wrong with the name of a circuit, or null.';
CREATE TABLE holdfast.job_types (
    name text NOT NULL COLLATE pg_catalog."C",
    queue text DEFAULT 'default'::text NOT NULL,
    lane text DEFAULT 'general'::text NOT NULL,
    max_attempts integer,
    backoff_base real,
    backoff_factor real,
    backoff_max real,
    backoff_jitter real,
    timeout_seconds real,
    lease_seconds real,
    on_failure text DEFAULT 'retry'::text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    payload_schema jsonb,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    limit_count integer,
    limit_key text,
    rate_count integer,
    rate_seconds real,
    rate_key text,
    circuit text COLLATE pg_catalog."C",
    circuit_per_tenant boolean,
    CONSTRAINT job_types_bounds_check CHECK (((max_attempts > 0) AND (version >= 0) AND ((lease_seconds >= (0.1)::double precision) AND (lease_seconds <= (604800)::double precision)) AND ((timeout_seconds >= (0.001)::double precision) AND (timeout_seconds <= (31536000)::double precision)) AND ((backoff_base >= (0)::double precision) AND (backoff_base <= (2592000)::double precision)) AND ((backoff_factor >= (1)::double precision) AND (backoff_factor <= (1000)::double precision)) AND ((backoff_max >= (0)::double precision) AND (backoff_max <= (2592000)::double precision)) AND ((backoff_jitter >= (0)::double precision) AND (backoff_jitter <= (1)::double precision)))),
    CONSTRAINT job_types_limit_check CHECK (((limit_count >= 1) AND (limit_count <= 10000))),
    CONSTRAINT job_types_on_failure_check CHECK ((on_failure = ANY (ARRAY['retry'::text, 'hold'::text]))),
    CONSTRAINT job_types_rate_check CHECK ((((rate_count >= 1) AND (rate_count <= 10000)) AND ((rate_seconds >= (0.001)::double precision) AND (rate_seconds <= (2678400)::double precision)))),
    CONSTRAINT job_types_rate_whole_check CHECK ((num_nulls(rate_count, rate_seconds) <> 1))
);
ALTER TABLE holdfast.job_types OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.job_types IS 'What workers publish about the job types that they can run.';
CREATE FUNCTION holdfast.circuit_of(declared holdfast.job_types, tenant text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when declared.circuit is not null then
      circuit_key(case when declared.circuit_per_tenant then tenant else '' end, declared.circuit)
  end
$$;
ALTER FUNCTION holdfast.circuit_of(declared holdfast.job_types, tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_of(declared holdfast.job_types, tenant text) IS 'The key of the circuit that a job type names, for the jobs of a tenant; null without one.';
CREATE FUNCTION holdfast.circuit_policy(policy jsonb) RETURNS TABLE(failure_threshold integer, failure_share double precision, window_seconds double precision, open_seconds double precision, probes integer, success_threshold integer)
    LANGUAGE sql IMMUTABLE
    AS $$
  select (policy ->> 'failure_threshold')::integer, coalesce((policy ->> 'failure_share')::double precision, 0.5),
    coalesce((policy ->> 'window')::double precision, 60), (policy ->> 'open_for')::double precision,
    coalesce((policy ->> 'probes')::integer, 1), coalesce((policy ->> 'success_threshold')::integer, 1)
$$;
ALTER FUNCTION holdfast.circuit_policy(policy jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_policy(policy jsonb) IS 'A policy with its defaults.';
CREATE FUNCTION holdfast.circuit_text(circuit holdfast.circuits, only_tenant text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select case
    when circuit.state = 'half_open' then ', which is tried with a few jobs now'
    when circuit.next_probe_at = 'infinity' then format(', which was opened by hand%s until somebody resets it', by_hand.who)
    when circuit.forced_by is not null then
      format(', which was opened by hand%s and is tried again at %s', by_hand.who, moment(circuit.next_probe_at))
    else format(', which is open since %s and is tried again at %s', moment(circuit.opened_at), moment(circuit.next_probe_at))
  end
  from (
    select case when only_tenant is null then
      told(left(circuit.forced_by, 500), null, left(circuit.forced_note, 1000)) end as who) by_hand
$$;
ALTER FUNCTION holdfast.circuit_text(circuit holdfast.circuits, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_text(circuit holdfast.circuits, only_tenant text) IS 'What a circuit that is not closed is doing, as the rest of a sentence; tenants are not told who opened it.';
CREATE FUNCTION holdfast.circuit_totals(circuit holdfast.circuits) RETURNS TABLE(successes bigint, failures bigint, last_failure_at timestamp with time zone, last_error text)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(sum(k.successes), 0)::bigint, coalesce(sum(k.failures), 0)::bigint, max(k.last_failure_at),
    (array_agg(k.last_error order by k.last_failure_at desc nulls last))[1]
  from circuit_counts k
  where k.tenant = circuit.tenant and k.name = circuit.name and k.generation = circuit.generation
    and k.reported_at > now() - make_interval(secs => circuit.window_seconds)
$$;
ALTER FUNCTION holdfast.circuit_totals(circuit holdfast.circuits) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_totals(circuit holdfast.circuits) IS 'What all workers together have counted within the window of a circuit.';
CREATE FUNCTION holdfast.circuit_wait(circuit holdfast.circuits) RETURNS TABLE(wait_seconds double precision, spread_seconds double precision)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select case circuit.state
      when 'open' then least(longest_opening(), greatest(0, coalesce(
        extract(epoch from nullif(circuit.next_probe_at, 'infinity') - now())::double precision, longest_opening())))
      when 'half_open' then least(5, coalesce(circuit.opening_seconds, 20) / 4)
      else 0
    end,
    case circuit.state when 'closed' then 0 else least(60, greatest(0.1, coalesce(circuit.opening_seconds, 240) / 4)) end
$$;
ALTER FUNCTION holdfast.circuit_wait(circuit holdfast.circuits) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.circuit_wait(circuit holdfast.circuits) IS 'For how long to put off a job that may not call now, and over how much more time to spread such jobs.';
CREATE FUNCTION holdfast.claim(worker text, types text[], max_jobs integer DEFAULT 1, queues text[] DEFAULT NULL::text[], tenants text[] DEFAULT NULL::text[], lease_seconds double precision DEFAULT NULL::double precision) RETURNS TABLE(job_id uuid, attempt integer, type text, queue text, tenant text, payload jsonb, correlation_id text, target text, lease_expires_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
  select c.job_id, c.attempt, s.type, s.queue, s.tenant, c.payload, c.correlation_id, c.target,
    c.claimed_at + make_interval(secs => c.lease_seconds_given)
  from claim_streams(
    worker, array(select e.id from eligible_streams(types, queues, tenants) e), max_jobs, claim.lease_seconds) c
  join streams s on s.id = c.stream
  order by c.rank, c.seq;
end
$$;
ALTER FUNCTION holdfast.claim(worker text, types text[], max_jobs integer, queues text[], tenants text[], lease_seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claim(worker text, types text[], max_jobs integer, queues text[], tenants text[], lease_seconds double precision) IS 'Claim jobs by type, queue and tenant, for callers that keep no hints.';
CREATE FUNCTION holdfast.claim_barrier() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select hashtextextended(current_schema() || '.claims', 0)
$$;
ALTER FUNCTION holdfast.claim_barrier() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claim_barrier() IS 'The key of the lock that every claim shares until its transaction ends.';
CREATE FUNCTION holdfast.claim_by_id(worker text, id uuid, lease_seconds double precision DEFAULT NULL::double precision, only_tenant text DEFAULT NULL::text) RETURNS TABLE(job_id uuid, attempt integer, type text, queue text, tenant text, payload jsonb, correlation_id text, target text, lease_expires_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  job   jobs;
  entry record;
begin
  select j.* into job
  from jobs j
  where j.id = claim_by_id.id
    and (only_tenant is null or j.tenant = only_tenant)
    and not is_request(j.type);
  if not found then
    return;
  end if;
  if job.state = 'running' then
    perform lapse(array[job.id], null);
  elsif job.state = 'retry' and job.run_at <= now() then
    perform promote_jobs(array[job.id]);
  end if;
  select j.* into job from jobs j where j.id = claim_by_id.id and j.state = 'queued';
  if not found then
    return;
  end if;
  -- Pauses and limits are looked up by stream.
  perform serve_streams(array[job.stream], array[job.id]);
  if not all_open(array[job.stream]) then
    return;
  end if;
  select r.rank, r.seq into entry
  from ready_entry(job.stream, job.priority, ready_seq(job)) spot
  join ready r on r.stream = spot.stream and r.rank = spot.rank and r.seq = spot.seq
  where r.job_id = job.id and not is_parked(r.stream)
  for update of r skip locked;
  if not found then
    return;
  end if;
  -- A claim passes over a job that somebody has locked, and takes the next one.
  perform from jobs j where j.id = job.id and j.state = 'queued' for no key update skip locked;
  if not found then
    return;
  end if;
  -- If its key had no permit, this job would be parked, and the claim would take the job behind it.
  if exists (
    select from key_gates(job.type, job.tenant, job.payload) g
    where cardinality(grab(g.gate, g.capacity, g.seconds, 1, '{}')) = 0
  ) then
    return;
  end if;
  -- The entry is the first of the range, and both it and its job are already locked by this transaction.
  return query
  select c.job_id, c.attempt, job.type, job.queue, job.tenant, c.payload, c.correlation_id, c.target,
    c.claimed_at + make_interval(secs => c.lease_seconds_given)
  from claim_from(
    worker, 1, claim_by_id.lease_seconds, array[job.stream], array[entry.rank], array[entry.seq - 1],
    array[entry.rank + 1]) c;
end
$$;
ALTER FUNCTION holdfast.claim_by_id(worker text, id uuid, lease_seconds double precision, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claim_by_id(worker text, id uuid, lease_seconds double precision, only_tenant text) IS 'Claim one job by its id: when queued (and head of its target), when its retry is due, or when its lease has lapsed.';
CREATE FUNCTION holdfast.claim_from(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[]) RETURNS TABLE(job_id uuid, attempt integer, stream integer, rank integer, seq bigint, payload jsonb, correlation_id text, target text, failures integer, max_attempts integer, created_at timestamp with time zone, ready_at timestamp with time zone, claimed_at timestamp with time zone, lease_seconds_given double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
  select c.job_id, c.attempt, c.stream, c.rank, c.seq, c.payload, c.correlation_id, c.target, c.failures, c.max_attempts,
    c.created_at, c.ready_at, c.claimed_at, c.lease_seconds_given
  from claim_jobs(
    worker, max_jobs, claim_from.lease_seconds, streams, from_ranks, from_seqs, to_ranks, max_jobs, null, false) c;
end
$$;
ALTER FUNCTION holdfast.claim_from(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claim_from(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[]) IS 'Claim as `claim_jobs` does, for a worker that does not number its jobs: all of them count as begun.';
CREATE FUNCTION holdfast.claim_jobs(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[], at_once integer, next_number bigint, records boolean) RETURNS TABLE(job_id uuid, attempt integer, stream integer, rank integer, seq bigint, payload jsonb, correlation_id text, target text, failures integer, max_attempts integer, created_at timestamp with time zone, ready_at timestamp with time zone, claimed_at timestamp with time zone, lease_seconds_given double precision, last_chance boolean, number bigint, traceparent text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '1s'
    AS $$
#variable_conflict use_column
declare
  unhindered       boolean := pg_try_advisory_xact_lock_shared(claim_barrier());
  default_seconds  double precision := lease_length(setting('LEASE_SEC_DEFAULT')::double precision);
  default_attempts integer := setting('MAX_ATTEMPTS_DEFAULT');
  locked_by_us     boolean;
  wanted    integer := max_jobs;
  heads     integer[];
  standing  integer[];
  places    bigint[];
  various   boolean;
  many      boolean;
  dealt     boolean;
  ties      integer;
  shares    claim_share[];
  share     claim_share;
  bound     integer;
  entries   claim_entry[];
  ids       uuid[];
  origins   integer[];
  kinds     integer[];
  one_kind  boolean;
  terms     double precision[];
  found     integer;
  budgets   integer[];
  policies  text[];
  started   integer;
  placed    integer := 0;
  moment    timestamptz;
  locked    boolean;
  free      record;
  guarded   boolean;
  shut      integer[];
  permits   claim_permit[];
  granted   record;
begin
  if length(worker) > 255 then
    raise exception 'the name of a worker must have at most 255 characters' using errcode = 'HF002';
  end if;
  if lease_seconds is not null then
    perform check_seconds('lease_seconds', 'lease', array[claim_jobs.lease_seconds]);
  end if;
  if not unhindered then
    perform pg_advisory_xact_lock_shared(claim_barrier());
  end if;
  guarded := exists (select from controls)
    or exists (select from limited_types());
  if guarded then
    shut := shut_streams(streams);
    select array_agg(range.stream), array_agg(range.from_rank), array_agg(range.from_seq), array_agg(range.to_rank)
    into streams, from_ranks, from_seqs, to_ranks
    from unnest(streams, from_ranks, from_seqs, to_ranks) as range (stream, from_rank, from_seq, to_rank)
    where range.stream <> all (shut);
  end if;
  for round in 1..16 loop
    exit when wanted <= 0;
    select array_agg(head.range), array_agg(head.rank), array_agg(head.seq), min(head.stream) < max(head.stream)
    into heads, standing, places, various
    from (
      select range.position as range, range.stream, first.rank, first.seq
      from unnest(streams, from_ranks, from_seqs, to_ranks) with ordinality
        as range (stream, from_rank, from_seq, to_rank, position)
      cross join lateral (
        select r.rank, r.seq
        from ready r
        where r.stream = range.stream
          and (r.rank, r.seq) > (range.from_rank, range.from_seq)
          and r.rank < range.to_rank
        order by r.rank, r.seq
        limit 1) first
      order by first.rank, first.seq
    ) head;
    exit when heads is null;
    dealt := false;
    if various then
      many := coalesce(many, several_tenants());
      if many then
        shares := deal_shares(heads, standing, places, array(select streams[range] from unnest(heads) as range), wanted);
        dealt := shares is not null;
      end if;
    end if;
    if not dealt then
      ties := cardinality(array_positions(standing, standing[1]));
      if ties = 1 then
        shares := array[row(
          heads[1], streams[heads[1]], standing[1], places[1], coalesce(standing[2], 2147483647), wanted,
          null, null, null, null)::claim_share];
      else
        ties := least(ties, 8, wanted);
        shares := array(
          select row(
            heads[nth], streams[heads[nth]], standing[1], places[nth], standing[1], (wanted + ties - 1) / ties,
            null, null, null, null)::claim_share
          from generate_series(1, ties) as nth);
      end if;
    end if;
    bound := wanted;
    if guarded then
      select t.shares, t.permits into shares, permits from lock_permits(shares, round, dealt) t;
      bound := (select sum(s.share) from unnest(shares) s);
    end if;
    -- From the first entry that was seen: the entries before it may be dead, and were walked over once already.
    select
      array_agg(row(
        entry.tid, entry.job_id, entry.stream, entry.rank, entry.seq, entry.ready_at, entry.range)::claim_entry),
      array_agg(entry.job_id), array_agg(entry.range)
    into entries, ids, origins
    from (
      select entry.tid, entry.job_id, head.stream, entry.rank, entry.seq, entry.ready_at, head.range
      from unnest(shares) as head
      cross join lateral (
        select r.ctid as tid, r.job_id, r.rank, r.seq, r.ready_at
        from ready r
        where r.stream = head.stream
          and (r.rank, r.seq) >= (head.rank, head.seq)
          and r.rank < to_ranks[head.range]
          and r.rank <= head.ceiling
        order by r.rank, r.seq
        limit head.share
        for update skip locked) entry
      limit bound) entry;
    if guarded and entries is not null then
      select * into granted from pass_permits(entries, wanted, shares, permits);
      entries := (select array_agg(entries[p] order by p) from unnest(granted.passed) p);
    end if;
    locked := false;
    if entries is not null then
      -- Not now(): since the transaction began, another attempt of the same job or target may have ended.
      moment := clock_timestamp();
      if lease_seconds is null or records then
        select array_agg(s.id), array_agg(t.lease_seconds), array_agg(t.max_attempts), array_agg(t.on_failure)
        into kinds, terms, budgets, policies
        from streams s
        left join lateral (
          select t.lease_seconds, t.max_attempts, t.on_failure from job_types t where t.name = s.type offset 0) t on true
        where s.id = any (array(select s.stream from unnest(shares) s));
        one_kind := cardinality(kinds) = 1;  -- almost always: spares three searches per job
      end if;
      if dealt then
        -- In turns, so that the jobs which a worker starts last are not all of one tenant.
        entries := array(
          select e
          from unnest(entries) as e
          join unnest(shares) as head on head.stream = e.stream
          order by
            (row_number() over (partition by head.party order by e.rank, e.seq, e.job_id) - 0.5) / head.portion,
            e.rank, e.seq, e.job_id);
      elsif ties > 1 then
        entries := array(select e from unnest(entries) as e order by e.rank, e.seq, e.job_id);
      end if;
      -- First the jobs that certainly nobody has locked. If some are left, those whose rows this claim has locked now.
      foreach locked_by_us in array array[false, true] loop
        return query
        with entry as (
          select e.tid, e.job_id, e.stream, e.rank, e.seq, e.ready_at, e.place::integer as place,
            case when one_kind then 1 else array_position(kinds, e.stream) end as kind
          from unnest(entries) with ordinality as e (tid, job_id, stream, rank, seq, ready_at, range, place)
        ), begun as (
          update jobs j
          set state = 'running', attempt = j.attempt + 1, started_at = moment, updated_at = moment, reason = null
          from entry
          where j.id = any (ids)
            and j.id = entry.job_id
            and j.state = 'queued'
            and j.stream = entry.stream
            and (j.xmax = '0' or locked_by_us)
            and j.id <> all (array(select l.job_id from leases l where l.job_id = any (ids)))
          returning j.id, j.attempt, j.stream, entry.place, entry.tid, entry.rank, entry.seq, entry.ready_at,
            j.payload, j.correlation_id, j.target, j.failures,
            attempts_allowed(j.max_attempts, budgets[entry.kind], default_attempts) as max_attempts,
            j.created_at, j.traceparent,
            coalesce(claim_jobs.lease_seconds, terms[entry.kind], default_seconds) as seconds,
            records and next_state(
              'lost', null, null, coalesce(policies[entry.kind], 'retry'),
              failures_after('lost', j.failures),
              attempts_allowed(j.max_attempts, budgets[entry.kind], default_attempts),
              null) <> 'queued' as last_chance,
            case
              when placed + entry.place > at_once then next_number - 1 + placed + entry.place - at_once
            end as number
        ), taken as (
          delete from ready r
          where r.ctid = any (array(select b.tid from begun b))
        ), leased as (
          insert into leases (job_id, attempt, stream, lease_seconds, claimed_at, ready_at, expires_at, worker, number)
          select b.id, b.attempt, b.stream, b.seconds, moment, b.ready_at, moment + make_interval(secs => b.seconds),
            claim_jobs.worker,
            case when b.last_chance then 0 else b.number end
          from begun b
        )
        select b.id, b.attempt, b.stream, b.rank, b.seq, b.payload, b.correlation_id, b.target, b.failures,
          b.max_attempts, b.created_at, b.ready_at, moment, b.seconds, b.last_chance,
          case when not b.last_chance then b.number end, b.traceparent
        from begun b
        order by b.place;
        get diagnostics started = row_count;
        wanted := wanted - started;
        found := cardinality(entries);
        placed := placed + found;
        exit when started = found;
        if locked_by_us then
          perform drop_entries(array(select e.tid from unnest(entries) as e));
          wanted := wanted - (found - started);
        else
          entries := unlocked_entries(array(select e.tid from unnest(entries) as e));
          locked := coalesce(cardinality(entries), 0) < found - started;
          exit when entries is null;
        end if;
      end loop;
      if guarded then
        perform hand_out(granted.permits);
      end if;
    end if;
    exit when wanted <= 0;
    -- No other stream had anything, and this one has given all it had: most claims of a calm system end here.
    exit when cardinality(heads) = 1 and not guarded and not locked;
    -- A stream that gave less than its share has nothing more up to the ceiling: the entries that are still visible
    -- there belong to others.
    foreach share in array shares loop
      if coalesce(cardinality(array_positions(origins, share.range)), 0) < greatest(1, share.share) then
        from_ranks[share.range] := share.ceiling;
        from_seqs[share.range] := 9223372036854775807;
      elsif locked then
        -- The next jobs may be locked as well, any number of them.
        select f.rank, f.seq into free from first_free(share.stream, share.rank, share.seq, to_ranks[share.range]) f;
        from_ranks[share.range] := free.rank;
        from_seqs[share.range] := free.seq - 1;
      end if;
    end loop;
  end loop;
  -- With the first number of a lane, record that no job of this lane has begun.
  if placed > at_once and number_in_lane(next_number) = 1 then
    perform may_begin(worker, array[next_number - 1]);
  end if;
end
$$;
ALTER FUNCTION holdfast.claim_jobs(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[], at_once integer, next_number bigint, records boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claim_jobs(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[], at_once integer, next_number bigint, records boolean) IS 'Claim up to `max_jobs` jobs from ranges of streams, for workers that remember how far they have come.';
CREATE FUNCTION holdfast.claim_mark(OUT claimed_until timestamp with time zone, OUT before_number bigint) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select now(), pg_snapshot_xmax(pg_current_snapshot())::text::bigint
$$;
ALTER FUNCTION holdfast.claim_mark(OUT claimed_until timestamp with time zone, OUT before_number bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claim_mark(OUT claimed_until timestamp with time zone, OUT before_number bigint) IS 'A mark: every lease that is claimed after this call is younger.';
CREATE FUNCTION holdfast.claim_streams(worker text, streams integer[], max_jobs integer, lease_seconds double precision) RETURNS TABLE(job_id uuid, attempt integer, stream integer, rank integer, seq bigint, payload jsonb, correlation_id text, target text, failures integer, max_attempts integer, created_at timestamp with time zone, ready_at timestamp with time zone, claimed_at timestamp with time zone, lease_seconds_given double precision)
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select *
  from claim_from(
    worker, max_jobs, lease_seconds, streams,
    array_fill(-1, array[cardinality(streams)]),
    array_fill(0::bigint, array[cardinality(streams)]),
    array_fill(2147483647, array[cardinality(streams)]))
$$;
ALTER FUNCTION holdfast.claim_streams(worker text, streams integer[], max_jobs integer, lease_seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claim_streams(worker text, streams integer[], max_jobs integer, lease_seconds double precision) IS 'Claim from whole streams.';
CREATE FUNCTION holdfast.claimed_payloads(worker text, job_ids uuid[], attempts integer[]) RETURNS TABLE(job_id uuid, payload text, cursor text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select l.job_id, j.payload::text,
    case when l.attempt > 1 then (select p.cursor::text from job_progress p where p.job_id = l.job_id) end
  from unnest(job_ids, attempts) as asked (job_id, attempt)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = claimed_payloads.worker
  join jobs j on j.id = l.job_id
$$;
ALTER FUNCTION holdfast.claimed_payloads(worker text, job_ids uuid[], attempts integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claimed_payloads(worker text, job_ids uuid[], attempts integer[]) IS 'Payloads of jobs that this worker has claimed, with the cursors that earlier attempts left; no row for jobs it has lost.';
CREATE FUNCTION holdfast.claims_end_within(hundredths integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  claiming text[] := claims_under_way();
begin
  for look in 1..hundredths loop
    exit when claiming = '{}';
    perform pg_sleep(0.01);
    claiming := claims_under_way(claiming);
  end loop;
  return claiming = '{}';
end
$$;
ALTER FUNCTION holdfast.claims_end_within(hundredths integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claims_end_within(hundredths integer) IS 'Wait for claims that are under way now, for so many hundredths of a second at most.';
CREATE FUNCTION holdfast.claims_ended() RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select claims_end_within(50)
$$;
ALTER FUNCTION holdfast.claims_ended() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claims_ended() IS 'Wait until all claims have ended that are under way now, half a second at most: they may not have seen what was just committed, such as a pause, and may take jobs that are recorded after it.';
CREATE FUNCTION holdfast.claims_under_way(among text[] DEFAULT NULL::text[]) RETURNS text[]
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(array_agg(l.virtualtransaction), '{}')
  from pg_locks l
  where l.locktype = 'advisory'
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and (l.classid::bigint << 32) | l.objid::bigint = claim_barrier()
    and l.objsubid = 1
    and l.mode = 'ShareLock'
    and l.granted
    and (among is null or l.virtualtransaction = any (among))
$$;
ALTER FUNCTION holdfast.claims_under_way(among text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.claims_under_way(among text[]) IS 'The transactions that are claiming now, of those given, or of all.';
CREATE FUNCTION holdfast.clamp_backoff(after_run_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, after_job uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid, max_rows integer DEFAULT 1000) RETURNS TABLE(changed integer, reached_run_at timestamp with time zone, reached_job uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  times timestamptz[];
  ids   uuid[];
begin
  changed := 0;
  if not clock_is_known() then
    return next;
    return;
  end if;
  select array_agg(d.run_at), array_agg(d.job_id) into times, ids
  from (
    select d.run_at, d.job_id
    from due d
    where (d.run_at, d.job_id) > (greatest(after_run_at, now()), after_job)
    order by d.run_at, d.job_id
    limit max_rows) d;
  with ahead as materialized (
    select d.run_at, d.job_id, really.began_at
    from unnest(times, ids) as looked (run_at, job_id)
    join jobs j on j.id = looked.job_id and j.run_at = looked.run_at
    join due d on d.run_at = looked.run_at and d.job_id = looked.job_id
    cross join lateral (
      select now() - make_interval(secs => least(
        waited_seconds(j.updated_at, d.entered, now()), extract(epoch from j.run_at - j.updated_at))) as began_at) really
    where (j.state = 'retry' or (j.state = 'scheduled' and j.reason in ('snoozed', 'delayed')))
      and j.updated_at > really.began_at + interval '0.5 seconds'
    order by d.run_at, d.job_id
    for update of d skip locked
  ), gone as (
    delete from due d
    using ahead
    where d.run_at = ahead.run_at and d.job_id = ahead.job_id
    returning d.run_at, d.job_id, ahead.began_at
  ), nearer as (
    update jobs j
    set run_at = gone.began_at + (j.run_at - j.updated_at), updated_at = gone.began_at
    from gone
    where j.id = gone.job_id and j.run_at = gone.run_at and j.state in ('retry', 'scheduled')
    returning j.run_at, j.id
  ), entered as (
    insert into due (run_at, job_id, entered) select n.run_at, n.id, place_after_steps() from nearer n
    on conflict do nothing
  )
  select count(*) into changed from nearer;
  if cardinality(ids) >= max_rows then
    reached_run_at := times[max_rows];
    reached_job := ids[max_rows];
  end if;
  if changed > 0 then
    perform wake('duty', array[0]);
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.clamp_backoff(after_run_at timestamp with time zone, after_job uuid, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.clamp_backoff(after_run_at timestamp with time zone, after_job uuid, max_rows integer) IS 'Correct the waiting time of jobs that failed, were snoozed, or were enqueued with a delay.';
CREATE FUNCTION holdfast.clamp_leases(after uuid DEFAULT NULL::uuid, max_rows integer DEFAULT 1000) RETURNS TABLE(job_id uuid, attempt integer, lease_seconds double precision, was timestamp with time zone, expires_at timestamp with time zone, reached uuid)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select *
  from review_leases(clamp_leases.after, clamp_leases.max_rows) r
  where r.was is distinct from r.expires_at or r.job_id is null
$$;
ALTER FUNCTION holdfast.clamp_leases(after uuid, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.clamp_leases(after uuid, max_rows integer) IS 'Bring the ends of leases nearer as `review_leases` does, but answer only the leases that were changed.';
CREATE FUNCTION holdfast.clamp_rates(after_gate text DEFAULT 'rate'::text, after_slot integer DEFAULT 0, max_rows integer DEFAULT 1000) RETURNS TABLE(changed integer, reached_gate text, reached_slot integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  clock   timestamptz := clock_timestamp();
  longest double precision := highest('rate');
  gates   text[];
  slots   integer[];
begin
  changed := 0;
  if not clock_is_known() then
    return next;
    return;
  end if;
  select array_agg(p.gate), array_agg(p.slot) into gates, slots
  from (
    select p.gate, p.slot
    from permits p
    where (p.gate, p.slot) > (after_gate, after_slot) and p.gate < past_rates()
    order by p.gate, p.slot
    limit max_rows) p;
  with ahead as materialized (
    select p.gate, p.slot, really.granted_at
    from unnest(gates, slots) as looked (gate, slot)
    join permits p on p.gate = looked.gate and p.slot = looked.slot
    cross join lateral (
      select clock - make_interval(secs => least(waited_seconds(p.granted_at, p.entered, clock), longest)) as granted_at) really
    where p.granted_at > clock - make_interval(secs => longest)
      and p.granted_at > really.granted_at + interval '0.5 seconds'
    order by p.gate, p.slot
    for update of p skip locked
  )
  update permits p
  set granted_at = ahead.granted_at, entered = place_after_steps()
  from ahead
  where p.gate = ahead.gate and p.slot = ahead.slot;
  get diagnostics changed = row_count;
  if cardinality(gates) >= max_rows then
    reached_gate := gates[max_rows];
    reached_slot := slots[max_rows];
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.clamp_rates(after_gate text, after_slot integer, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.clamp_rates(after_gate text, after_slot integer, max_rows integer) IS 'Let no permit of a rate count as granted later than now.';
CREATE FUNCTION holdfast.clean_up_as(by text, dry_run boolean, after uuid DEFAULT NULL::uuid, max_visited integer DEFAULT 5000, by_key uuid DEFAULT NULL::uuid) RETURNS TABLE(success bigint, canceled bigint, dead bigint, reached uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  origin  uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
  over_at timestamptz := retention_horizon(false);
  died    timestamptz := retention_horizon(true);
  recent  boolean;
begin
  perform check_signed(by, null);
  if dry_run then
    select count(*) filter (where chunk.over and chunk.state = 'success'),
      count(*) filter (where chunk.over and chunk.state = 'canceled'),
      count(*) filter (where chunk.over and chunk.state = 'dead'),
      case when count(*) = max_visited then (array_agg(chunk.id))[max_visited] end,
      bool_and(chunk.created_at >= greatest(over_at, died))
    into success, canceled, dead, reached, recent
    from (select c.id, c.created_at, c.state, c.over from judged(origin, over_at, died) c limit max_visited) chunk;
    -- As the deletion does: the following jobs are younger still, up to ids of another kind.
    if recent and reached >= first_id(greatest(over_at, died)) then
      reached := greatest(reached, first_id(now() + interval '1 day'));
    end if;
    return next;
    return;
  end if;
  if not exists (
    select from leaders l
    where l.renewed_at between now() - interval '10 seconds' and now() + interval '1 second') then
    raise exception 'no process does maintenance, so a step of the clock would go unnoticed; start a worker'
      using errcode = 'HF001';
  end if;
  if after is null then
    perform note_audit(by, by_key, null, 'jobs.cleanup', 'everything', jsonb_strip_nulls(jsonb_build_object(
      'ended_before', readable(over_at), 'acknowledged_before', readable(died))));
  end if;
  return query
  select r.success::bigint, r.canceled::bigint, r.dead::bigint, r.reached
  from retire_counted(clock_timestamp(), after, max_visited, max_visited) r;
end
$$;
ALTER FUNCTION holdfast.clean_up_as(by text, dry_run boolean, after uuid, max_visited integer, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.clean_up_as(by text, dry_run boolean, after uuid, max_visited integer, by_key uuid) IS 'Delete ended jobs whose retention is over, now; or only count them.';
CREATE FUNCTION holdfast.client_message(state text, outcome text, kind text, error_type text, error_message text, interrupt_message text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when state = 'error' then
      case
        when kind = 'hold' and coalesce(error_type, '') not in ('InvalidInput', 'InvalidPayload', 'PayloadTooLarge')
        then error_message
      end
    else coalesce(interrupt_message, case when state = 'paused' and outcome = 'paused' then error_message end)
  end
$$;
ALTER FUNCTION holdfast.client_message(state text, outcome text, kind text, error_type text, error_message text, interrupt_message text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.client_message(state text, outcome text, kind text, error_type text, error_message text, interrupt_message text) IS 'What clients are told about an attempt that ended paused, held or canceled: what somebody asked for in their name, the text of the handler''s `Hold`, or that the attempt was interrupted.';
CREATE FUNCTION holdfast.clock_is_known() RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select not exists (
    select from leaders l where l.name = 'maintenance' and l.renewed_at > clock_timestamp() + interval '0.5 seconds')
$$;
ALTER FUNCTION holdfast.clock_is_known() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.clock_is_known() IS 'Whether every step back has been recorded.';
CREATE FUNCTION holdfast.clock_lead(within interval) RETURNS interval
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select case when coalesce(max(k.lead), 0) <= highest('delay') then make_interval(secs => greatest(max(k.lead), 0)) end
  from known_clock_steps() k
  where k.seconds_ago < extract(epoch from clock_lead.within)
$$;
ALTER FUNCTION holdfast.clock_lead(within interval) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.clock_lead(within interval) IS 'The largest error of an age because the clock was set ahead within this time.';
CREATE FUNCTION holdfast.close_circuit(tenant text, name text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  update circuits c
  set state = 'closed', generation = c.generation + 1, openings = 0, opening_seconds = null, probe_successes = 0,
    opened_at = null, half_opened_at = null, next_probe_at = null, forced_by = null, forced_note = null,
    updated_at = now()
  where c.tenant = close_circuit.tenant and c.name = close_circuit.name;
  delete from controls c where c.kind = 'circuit' and c.name = circuit_key(close_circuit.tenant, close_circuit.name);
  delete from permits p
  where p.gate = gate_of('circuit', circuit_key(close_circuit.tenant, close_circuit.name), null);
  select pg_notify(current_schema() || '.ready', '');
$$;
ALTER FUNCTION holdfast.close_circuit(tenant text, name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.close_circuit(tenant text, name text) IS 'Close a circuit, whose row the caller has locked.';
CREATE FUNCTION holdfast.close_type(name text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform check_subject('type', close_type.name, array['type']);
  perform check_signed(by, note);
  insert into closed_types (name, closed_by, closed_note)
  values (close_type.name, by, note)
  on conflict do nothing;
  if not found then
    return false;
  end if;
  perform note_audit(
    by, by_key, null, 'type.close', close_type.name, jsonb_strip_nulls(jsonb_build_object('note', note)));
  return true;
end
$$;
ALTER FUNCTION holdfast.close_type(name text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.close_type(name text, by text, note text, by_key uuid) IS 'Close a job type to new jobs.';
CREATE FUNCTION holdfast.collection_key(name text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select case when name ~ '^=*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then '=' || name else name end
$_$;
ALTER FUNCTION holdfast.collection_key(name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.collection_key(name text) IS 'How the name of a shared collection is stored: a name that is an id, such as that of a correlation, must not be the own collection of that job.';
CREATE FUNCTION holdfast.collection_name(key text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select case when key ~ '^=+[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then substr(key, 2) else key end
$_$;
ALTER FUNCTION holdfast.collection_name(key text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.collection_name(key text) IS 'The name of a collection, as it was given.';
CREATE FUNCTION holdfast.complete(worker text, job_ids uuid[], attempts integer[], results jsonb[] DEFAULT NULL::jsonb[], durations_ms integer[] DEFAULT NULL::integer[], log_excerpts text[] DEFAULT NULL::text[]) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET lock_timeout TO '2s'
    AS $$
#variable_conflict use_column
declare
  settled uuid[];
  numbers integer[];
  tenants text[];
  targets text[];
  -- Not now(): a handler's own transaction (`ctx.transaction()`) may have begun long before its job ends.
  moment  timestamptz := clock_timestamp();
begin
  if results is not null then
    perform check_results(job_ids, results);
  end if;
  -- As in a claim, ids are looked up all at once. Both sides of the join come in the order of the ids, so that leases
  -- are locked in that order, whichever side drives the join. The joined rows are small: otherwise the join would not
  -- fit into memory and would come in parts. The other columns are found by position. Whether an attempt was logged
  -- before is looked up one by one, because a job may have had very many attempts.
  with gone as (
    delete from leases l
    using (
      select r.job_id, r.attempt, r.position
      from unnest(job_ids, attempts) with ordinality as r (job_id, attempt, position)
      order by r.job_id) report
    where l.job_id = any (job_ids) and l.job_id = report.job_id and l.attempt = report.attempt
      and l.worker = complete.worker
    returning l.job_id, l.attempt, l.claimed_at, l.ready_at, l.worker, report.position,
      coalesce(l.verdict, l.interrupt) as decision, l.interrupted_by, l.interrupt_note
  ), ended as (
    update jobs j
    set state = 'success', result = results[gone.position], finished_at = moment, updated_at = moment, dedup_key = null
    from gone
    where j.id = any (job_ids) and j.id = gone.job_id and j.state = 'running' and j.attempt = gone.attempt
    returning j.id, j.attempt, j.tenant, j.target, gone.claimed_at, gone.ready_at, gone.worker, gone.position,
      gone.decision, gone.interrupted_by, gone.interrupt_note
  ), late as (
    -- Success wins. What somebody had decided about this attempt is in the history, at least.
    insert into job_events (job_id, event, by, note)
    select e.id, 'too-late', e.interrupted_by, too_late_note(e.decision, e.interrupt_note)
    from ended e
    where e.decision is not null
  ), logged as (
    insert into job_attempts (
      job_id, attempt, started_at, finished_at, queue_ms, duration_ms, outcome, worker, log_excerpt)
    select e.id, e.attempt, e.claimed_at, moment, milliseconds(e.claimed_at - e.ready_at),
      greatest(coalesce(durations_ms[e.position], milliseconds(moment - e.claimed_at)), 0), 'success', e.worker,
      left(log_excerpts[e.position], 10000)
    from ended e
    where (select true from job_attempts t where t.job_id = e.id and t.attempt = e.attempt limit 1) is null
  )
  select
    array_agg(e.id),
    array_agg(e.attempt),
    array_agg(e.tenant) filter (where e.target is not null),
    array_agg(e.target) filter (where e.target is not null)
  into settled, numbers, tenants, targets
  from ended e;
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  if exists (select from limited_types()) then
    perform make_room(settled);
  end if;
  if cardinality(settled) = cardinality(job_ids) then
    return query select a.id, a.number, 'success' from unnest(job_ids, attempts) as a (id, number);
  else
    perform vouch();
    return query
    select * from settlement_answer(
      worker, job_ids, attempts, settled, numbers, array_fill('success'::text, array[coalesce(cardinality(settled), 0)]));
  end if;
end
$$;
ALTER FUNCTION holdfast.complete(worker text, job_ids uuid[], attempts integer[], results jsonb[], durations_ms integer[], log_excerpts text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.complete(worker text, job_ids uuid[], attempts integer[], results jsonb[], durations_ms integer[], log_excerpts text[]) IS 'Record that attempts have succeeded, with their results.';
CREATE FUNCTION holdfast.condition_at(tree jsonb, place text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;
ALTER FUNCTION holdfast.condition_at(tree jsonb, place text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.condition_at(tree jsonb, place text[]) IS 'The condition of the part of a tree that is at `place` in the whole tree.';
CREATE FUNCTION holdfast.correlated_ids(correlation text, only_tenant text, after uuid, max_jobs integer) RETURNS uuid[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $_$
#variable_conflict use_column
declare
  origin  uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
  root    uuid := case when correlation ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then correlation::uuid end;
  tenants text[] := case when only_tenant is not null then array[only_tenant] else correlated_tenants(correlation) end;
begin
  return array(
    select found.id
    from (
      select page.id
      from unnest(tenants) as own (tenant)
      cross join lateral (
        select j.id
        from jobs j
        where j.correlation_id = correlation and j.tenant = own.tenant and j.id > origin
        order by j.id
        limit max_jobs) page
      union all
      select j.id
      from jobs j
      where j.id = root and j.correlation_id is null and j.id > origin
        and (only_tenant is null or j.tenant = only_tenant)) found
    order by found.id
    limit max_jobs);
end
$_$;
ALTER FUNCTION holdfast.correlated_ids(correlation text, only_tenant text, after uuid, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.correlated_ids(correlation text, only_tenant text, after uuid, max_jobs integer) IS 'The jobs of one correlation id, oldest first, after the given one.';
CREATE FUNCTION holdfast.correlated_tenants(correlation text) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  found_one text := '';
  tenants   text[] := '{}';
begin
  while cardinality(tenants) < 1000 loop
    select j.tenant into found_one
    from jobs j
    where j.correlation_id = correlation and j.tenant > found_one
    order by j.tenant
    limit 1;
    exit when not found;
    tenants := tenants || found_one;
  end loop;
  return tenants;
end
$$;
ALTER FUNCTION holdfast.correlated_tenants(correlation text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.correlated_tenants(correlation text) IS 'The tenants that have jobs of this correlation id, at most a thousand.';
CREATE FUNCTION holdfast.costs_attempt(outcome text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select outcome in ('failed', 'timeout', 'lost')
$$;
ALTER FUNCTION holdfast.costs_attempt(outcome text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.costs_attempt(outcome text) IS 'Whether an attempt with this outcome counts against `max_attempts`.';
CREATE FUNCTION holdfast.count_ready(streams integer[], up_to integer) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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
ALTER FUNCTION holdfast.count_ready(streams integer[], up_to integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.count_ready(streams integer[], up_to integer) IS 'How many entries these streams have, parked ones included, counted no further than asked.';
CREATE FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(count_repeats.tenant);
  return (
    select count(*)
    from unnest(types, keys, dedup_keys) as asked (type, key, dedup_key)
    where exists (
        select
        from idempotency_keys k
        join jobs j on j.id = k.job_id and j.tenant = k.tenant
        where k.tenant = count_repeats.tenant and k.key = asked.key)
      or asked.key is null and exists (
        select
        from jobs j
        where j.tenant = count_repeats.tenant and j.type = asked.type and j.dedup_key = asked.dedup_key));
end
$$;
ALTER FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) IS 'How many of these intents only repeat what their idempotency or dedup key has a job for.';
CREATE FUNCTION holdfast.counted_with(counted int8multirange, seq integer) RETURNS int8multirange
    LANGUAGE plpgsql IMMUTABLE
    AS $$
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
ALTER FUNCTION holdfast.counted_with(counted int8multirange, seq integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.counted_with(counted int8multirange, seq integer) IS 'The numbers of the reports that have counted, plus one more.';
CREATE TABLE holdfast.api_keys (
    id uuid NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    digest bytea NOT NULL,
    scopes text[] NOT NULL,
    requests_per_second real,
    max_waiting integer,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    created_by text,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    replaced_by uuid,
    last_used_at timestamp with time zone,
    CONSTRAINT api_keys_expiry_check CHECK (((expires_at >= '0002-01-01 00:00:00+00'::timestamp with time zone) AND (expires_at <= '9999-12-30 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT api_keys_rate_check CHECK (((requests_per_second > (0)::double precision) AND (requests_per_second <= (1000000)::double precision))),
    CONSTRAINT api_keys_scopes_check CHECK (((cardinality(scopes) > 0) AND (scopes <@ ARRAY['submit'::text, 'read'::text, 'work'::text, 'operate'::text, 'metrics'::text, 'admin'::text]))),
    CONSTRAINT api_keys_waiting_check CHECK ((max_waiting >= 0))
)
WITH (fillfactor='50');
ALTER TABLE holdfast.api_keys OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.api_keys IS 'Who may use the control plane: a key is known by the hash of its secret.';
CREATE FUNCTION holdfast.create_key(id uuid, tenant text, name text, prefix text, digest bytea, scopes text[], lifetime_seconds double precision, requests_per_second double precision, max_waiting integer, by text, by_key uuid DEFAULT NULL::uuid) RETURNS SETOF holdfast.api_keys
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  if coalesce(length(create_key.tenant), 0) not between 1 and 200 then
    raise exception 'tenant must have 1 to 200 characters' using errcode = 'HF002';
  elsif coalesce(length(create_key.name), 0) not between 1 and 200 then
    raise exception 'the name of a key must have 1 to 200 characters' using errcode = 'HF002';
  elsif unprintable(create_key.tenant) or unprintable(create_key.name) then
    raise exception 'tenant and name of a key must not contain control characters' using errcode = 'HF002';
  elsif octet_length(create_key.digest) is distinct from 32 then
    raise exception 'the digest of a key must be a SHA-256' using errcode = 'HF002';
  elsif coalesce(cardinality(create_key.scopes), 0) = 0
    or not create_key.scopes <@ array['submit', 'read', 'work', 'operate', 'metrics', 'admin'] then
    raise exception 'scopes must be one or more of submit, read, work, operate, metrics and admin' using errcode = 'HF002';
  elsif lifetime_seconds <= 0 then
    raise exception 'the lifetime of a key must be positive' using errcode = 'HF002';
  end if;
  perform check_texts(by, null);
  perform check_seconds('lifetime_seconds', 'key_lifetime', array[create_key.lifetime_seconds]);
  perform check_seconds('requests_per_second', 'requests_per_second', array[create_key.requests_per_second]);
  perform note_audit(by, by_key, create_key.tenant, 'key.create', create_key.id::text,
    jsonb_build_object('name', create_key.name, 'scopes', create_key.scopes));
  return query
  insert into api_keys (
    id, tenant, name, prefix, digest, scopes, expires_at, requests_per_second, max_waiting, created_by)
  values (
    create_key.id, create_key.tenant, create_key.name, create_key.prefix, create_key.digest,
    array(select distinct scope from unnest(create_key.scopes) as scope order by scope),
    now() + make_interval(secs => lifetime_seconds), create_key.requests_per_second, create_key.max_waiting,
    create_key.by)
  returning *;
end
$$;
ALTER FUNCTION holdfast.create_key(id uuid, tenant text, name text, prefix text, digest bytea, scopes text[], lifetime_seconds double precision, requests_per_second double precision, max_waiting integer, by text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.create_key(id uuid, tenant text, name text, prefix text, digest bytea, scopes text[], lifetime_seconds double precision, requests_per_second double precision, max_waiting integer, by text, by_key uuid) IS 'Create a key.';
CREATE FUNCTION holdfast.data_hash(data jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
  select encode(sha256(convert_to(data::text, 'UTF8')), 'hex')
$$;
ALTER FUNCTION holdfast.data_hash(data jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.data_hash(data jsonb) IS 'The key of an item that has none: a hash of its data.';
CREATE FUNCTION holdfast.deal_shares(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer) RETURNS holdfast.claim_share[]
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  owners  integer[];
  names   text[];
  memory  jsonb;
  known   jsonb;
  load    jsonb;
  busy    jsonb;
  lot     double precision;
  dealt   integer[];
  lowest  integer[];
  highest integer[];
  turns   jsonb;
  added   jsonb;
  chosen  claim_share[];
begin
  with owner as materialized (
    select line.position, coalesce(s.tenant, '') as tenant, dense_rank() over (order by coalesce(s.tenant, '')) as party
    from unnest(lines) with ordinality as line (id, position)
    left join (select s.id, s.tenant from streams s where s.id = any (lines)) s on s.id = line.id
  )
  select array(select o.party from owner o order by o.position),
    array(select distinct o.tenant from owner o order by o.tenant)
  into owners, names;
  if cardinality(names) = 1 then
    return null;
  end if;
  memory := recalled_turns();
  known := memory -> 'turns';
  load := running_jobs(memory);
  busy := load -> 'running';
  if not known ?| names then
    lot := random();
  end if;
  with party as materialized (
    select p.number, p.tenant, coalesce(c.weight, 1)::double precision as weight,
      coalesce((busy ->> p.tenant)::double precision, 0) as running,
      coalesce((known -> p.tenant ->> 0)::double precision, 0) as turn,
      head.lowest, head.ceiling, head.oldest
    from unnest(names) with ordinality as p (tenant, number)
    join (
      select h.party, min(h.rank) as lowest, min(h.oldest) as oldest,
        case
          when (array_agg(h.ties order by h.rank))[1] > 1 then min(h.rank)
          else coalesce((array_agg(h.rank order by h.rank))[2], 2147483647)
        end as ceiling
      from (
        select h.party, h.rank, count(*) as ties, min(h.seq) as oldest
        from unnest(owners, ranks, seqs) as h (party, rank, seq)
        group by h.party, h.rank) h
      group by h.party) head on head.party = p.number
    left join (
      select c.name, c.weight from controls c where c.kind = 'tenant' and c.weight is not null) c on c.name = p.tenant
  ), entitled as (
    -- All tenants are filled up to one level: the lowest of those that the least busy ones would reach by themselves.
    select p.*,
      floor(greatest(0, p.weight * min((wanted + p.busy_up_to) / p.weights) over () - p.running) + 1e-9)::integer as whole
    from (
      select p.*, p.weight / sum(p.weight) over () as share, sum(p.running) over () + wanted as slots,
        sum(p.weight) over fill as weights, sum(p.running) over fill as busy_up_to
      from party p
      window fill as (order by p.running / p.weight, p.number rows unbounded preceding)) p
  ), settled as (
    -- The remaining slots, less than one for each, go to tenants that are still below their share of all slots.
    select e.*, e.whole + case
        when wanted - sum(e.whole) over () >= row_number() over (
          order by e.share * e.slots - e.running - e.whole > 1e-9 desc,
            e.drawn desc, e.turn + wanted * (e.share - (e.running + e.whole) / e.slots) desc, e.share desc, e.oldest)
        then 1 else 0
      end as portion
    from (
      select e.*, coalesce(lot >= sum(e.share) over lots - e.share and lot < sum(e.share) over lots, false) as drawn
      from entitled e
      window lots as (order by e.number rows unbounded preceding)) e
  )
  select array_agg(p.portion), array_agg(p.lowest), array_agg(p.ceiling),
    jsonb_object_agg(p.tenant, jsonb_build_array(
      greatest(-1, least(1,
        p.turn + wanted * (p.share - (p.running + p.portion) / p.slots)))::real,
      load -> 'now')),
    jsonb_object_agg(p.tenant, p.running + p.portion)
  into dealt, lowest, highest, turns, added
  from (select s.* from settled s order by s.number) p;
  select array_agg(row(
    h.range, h.line, h.lowest, h.seq, h.ceiling,
    h.portion / h.streams + case when h.nth <= h.portion % h.streams then 1 else 0 end,
    h.party, h.portion, null, null)::claim_share)
  into chosen
  from (
    select h.*, least(8, h.portion, count(*) over (partition by h.party))::integer as streams
    from (
      select h.range, h.line, h.seq, h.party, lowest[h.party] as lowest, highest[h.party] as ceiling,
        dealt[h.party] as portion, row_number() over (partition by h.party order by h.seq) as nth
      from unnest(owners, ranges, ranks, seqs, lines) as h (party, range, rank, seq, line)
      where dealt[h.party] > 0 and h.rank = lowest[h.party]) h) h
  where h.nth <= h.streams;
  perform remember_turns(memory, turns, load, added);
  return chosen;
end
$$;
ALTER FUNCTION holdfast.deal_shares(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.deal_shares(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer) IS 'The heads from which a claim takes jobs, and how many from each.';
CREATE FUNCTION holdfast.deal_slots(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer, OUT tied integer[], OUT lows integer[], OUT firsts bigint[], OUT ceilings integer[], OUT shares integer[], OUT parties integer[], OUT portions integer[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform ask_to_repeat();
end
$$;
ALTER FUNCTION holdfast.deal_slots(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer, OUT tied integer[], OUT lows integer[], OUT firsts bigint[], OUT ceilings integer[], OUT shares integer[], OUT parties integer[], OUT portions integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.deal_slots(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer, OUT tied integer[], OUT lows integer[], OUT firsts bigint[], OUT ceilings integer[], OUT shares integer[], OUT parties integer[], OUT portions integer[]) IS 'Called by claims.';
CREATE FUNCTION holdfast.decided_state(decision text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when decision = 'pause' then 'paused'
    when decision in ('cancel', 'resolve') then 'canceled'
    when decision in ('fail', 'kill') then 'dead'
  end
$$;
ALTER FUNCTION holdfast.decided_state(decision text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.decided_state(decision text) IS 'In which state a decision leaves a job.';
CREATE FUNCTION holdfast.declare_schedules(worker text, definitions jsonb) RETURNS TABLE(tenant text, name text, fault text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
#variable_conflict use_column
declare
  asked record;
begin
  if jsonb_typeof(definitions) is distinct from 'array' or jsonb_array_length(definitions) > 100000 then
    raise exception 'schedules must be a list of at most 100000 objects' using errcode = 'HF002';
  end if;
  update workers w
  set schedules = array(select md5(d.value::text) from jsonb_array_elements(definitions) as d)
  where w.id = declare_schedules.worker;
  update schedules s
  set declared_at = now()
  from (
    select same.id
    from jsonb_array_elements(definitions) as d
    join schedules same on same.tenant = d.value ->> 'tenant' and same.name = d.value ->> 'name'
    where same.digest = md5(d.value::text) and same.retired_at is null
      and (same.declared_at < now() - interval '30 minutes' or same.declared_at > now())
    order by same.id
    for update of same skip locked) known
  where s.id = known.id;
  -- One at a time: two that make the same schedule at once would collide.
  if exists (
    select from jsonb_array_elements(definitions) as d
    where not exists (
      select from schedules s
      where s.tenant = d.value ->> 'tenant' and s.name = d.value ->> 'name' and s.digest = md5(d.value::text)
        and s.retired_at is null)) then
    perform pg_advisory_xact_lock(hashtext(current_schema() || '.schedules'), 0);
  end if;
  for asked in
    select d.value as definition, md5(d.value::text) as digest, d.value ->> 'tenant' as tenant, d.value ->> 'name' as name,
      s.id, s.digest as current, s.retired_at, s.replaced
    from jsonb_array_elements(definitions) as d
    left join schedules s on s.tenant = d.value ->> 'tenant' and s.name = d.value ->> 'name'
    where s.id is null or s.digest is distinct from md5(d.value::text) or s.retired_at is not null
    order by 3, 4
  loop
    if asked.id is not null and asked.current is null then
      return query select asked.tenant, asked.name, 'an operator has made a schedule with this name: delete that one, or rename this one'::text;
    elsif asked.digest = any (asked.replaced) and asked.retired_at is null
      and exists (select from live_workers() w where w.schedules @> array[asked.current]) then
      continue;  -- an older process of a rolling deploy
    else
      begin
        perform check_schedule(asked.definition, asked.tenant);
        perform store_schedule(asked.definition, asked.tenant, 'worker:' || worker, asked.digest);
        perform note_audit(
          'worker:' || worker, null, asked.tenant, case when asked.id is null then 'schedule.declare' else 'schedule.redeclare' end,
          asked.name, asked.definition - 'name' - 'tenant' - 'payload');
      exception
        when sqlstate 'HF002' or sqlstate 'HF001' then
          return query select asked.tenant, asked.name, sqlerrm;
      end;
    end if;
  end loop;
end
$$;
ALTER FUNCTION holdfast.declare_schedules(worker text, definitions jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.declare_schedules(worker text, definitions jsonb) IS 'What the code of a live worker declares.';
CREATE FUNCTION holdfast.declared_shapes(definitions jsonb) RETURNS TABLE(type text, digest text, shape jsonb)
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select distinct on (1) definition ->> 'name', shape_digest(given.shape), given.shape
  from jsonb_array_elements(definitions) as definition
  cross join lateral (select nullif(definition -> 'payload_shape', 'null')) as given (shape)
  order by 1
$$;
ALTER FUNCTION holdfast.declared_shapes(definitions jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.declared_shapes(definitions jsonb) IS 'The types of declarations, each with its shape, or null.';
CREATE FUNCTION holdfast.delete_schedule(name text, tenant text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  select s.* into old
  from schedules s
  where s.tenant = delete_schedule.tenant and s.name = delete_schedule.name
  for update;
  if not found then
    return null;
  elsif old.digest is not null and old.retired_at is null then
    return 'declared';
  end if;
  -- What became of its fire times is forgotten by the leader: it may be much.
  delete from schedules s where s.id = old.id;
  perform note_audit(by, by_key, tenant, 'schedule.delete', old.name, jsonb_strip_nulls(jsonb_build_object(
    'note', note, 'cron', old.cron, 'every', old.every_seconds, 'type', old.type)));
  return 'deleted';
end
$$;
ALTER FUNCTION holdfast.delete_schedule(name text, tenant text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.delete_schedule(name text, tenant text, by text, note text, by_key uuid) IS 'Remove an operator''s schedule, or one that was retired.';
CREATE FUNCTION holdfast.drain_progress(kind text DEFAULT 'everything'::text, name text DEFAULT ''::text, only_tenant text DEFAULT NULL::text) RETURNS TABLE(paused_at timestamp with time zone, paused_by text, paused_note text, running bigint, drained boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  began timestamptz;
  ended boolean;
begin
  perform check_subject(
    drain_progress.kind, drain_progress.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  select c.paused_at into began from controls c where c.kind = drain_progress.kind and c.name = drain_progress.name;
  if began is not null then
    ended := claims_end_within(20);
  end if;
  return query
  select c.paused_at, shown.by, shown.note, leased.count,
    coalesce(c.paused_at = began and ended and leased.count = 0, false)
  from (
    select count(*) as count
    from leases l
    join streams s on s.id = l.stream
    left join job_types t on t.name = s.type
    join lateral pausable_by(s.tenant, s.queue, s.type, t.lane) subject
      on subject.kind = drain_progress.kind and subject.name = drain_progress.name
    where s.queue <> 'holdfast' and (only_tenant is null or s.tenant = only_tenant)) leased
  left join controls c on c.kind = drain_progress.kind and c.name = drain_progress.name
  cross join lateral shown_pause(c, only_tenant) shown;
end
$$;
ALTER FUNCTION holdfast.drain_progress(kind text, name text, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drain_progress(kind text, name text, only_tenant text) IS 'Whether claims of a subject are stopped, by whom and why, how many of its jobs still run, and whether it is `drained`: it is paused, none of its jobs runs, and no claim from before the pause is under way.';
CREATE FUNCTION holdfast.drain_state(only_tenant text DEFAULT NULL::text) RETURNS TABLE(paused_at timestamp with time zone, paused_by text, paused_note text, running bigint)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select d.paused_at, d.paused_by, d.paused_note, d.running from drain_progress('everything', '', only_tenant) d
$$;
ALTER FUNCTION holdfast.drain_state(only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drain_state(only_tenant text) IS 'Whether claiming is stopped everywhere, and how many jobs still run.';
CREATE FUNCTION holdfast.drop_entries(entries tid[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  dropped bigint;
begin
  delete from ready r where r.ctid = any (entries);
  get diagnostics dropped = row_count;
  perform note_repair('ready-dropped', dropped);
end
$$;
ALTER FUNCTION holdfast.drop_entries(entries tid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_entries(entries tid[]) IS 'Drop the remaining entries: their jobs do not fit.';
CREATE FUNCTION holdfast.drop_items(job_ids uuid[], max_items integer DEFAULT 10000) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
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
ALTER FUNCTION holdfast.drop_items(job_ids uuid[], max_items integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_items(job_ids uuid[], max_items integer) IS 'Delete up to `max_items` items of jobs.';
CREATE FUNCTION holdfast.drop_recovered(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  ids := array(
    select g.job_id
    from failing g
    where g.job_id > coalesce(after[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by g.job_id
    limit max_rows);
  delete from failing f
  where f.ctid = any (array(
    select s.ctid
    from failing s
    where s.job_id = any (ids)
      and not exists (select from jobs j where j.id = s.job_id and not has_ended(j.state))
    for update skip locked));
  get diagnostics mended = row_count;
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.drop_recovered(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_recovered(after text[], max_rows integer) IS 'Take out of `failing` what has ended since, or is gone.';
CREATE FUNCTION holdfast.drop_stray_decisions(max_rows integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  dropped integer;
begin
  delete from pending_decisions d
  where d.ctid = any (array(
    select e.ctid
    from (select s.ctid, s.request_id from pending_decisions s limit max_rows) e
    where not exists (
      select from jobs r where r.id = e.request_id and not has_ended(r.state))));
  get diagnostics dropped = row_count;
  perform note_repair('decision-dropped', dropped);
  return dropped;
end
$$;
ALTER FUNCTION holdfast.drop_stray_decisions(max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_stray_decisions(max_rows integer) IS 'Drop decisions whose request has ended: hand-written SQL ended it, or a repeat met it in its last moment.';
CREATE FUNCTION holdfast.drop_stray_dormant(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids    uuid[];
  locked uuid[];
begin
  ids := array(
    select d.job_id
    from dormant d
    where d.job_id > coalesce(after[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by d.job_id
    limit max_rows);
  locked := array(
    select d.job_id
    from dormant d
    where d.job_id = any (ids)
      and not exists (select from jobs j where j.id = d.job_id and is_dormant(j.state))
    for update skip locked);
  delete from dormant d
  where d.job_id = any (locked)
    and not exists (select from jobs j where j.id = d.job_id and is_dormant(j.state));
  get diagnostics mended = row_count;
  perform note_repair('dormant-dropped', mended);
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.drop_stray_dormant(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_stray_dormant(after text[], max_rows integer) IS 'Drop rows of jobs that are gone or not dormant.';
CREATE FUNCTION holdfast.drop_stray_due(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET "DateStyle" TO 'iso, ymd'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  tids tid[];
begin
  select
    array_agg(v.tid) filter (where not due_fits(v.run_at, v.job_id)),
    max(array[v.run_at::text, v.job_id::text]) filter (where v.number = max_rows)
  into tids, reached
  from (
    select d.ctid as tid, d.run_at, d.job_id, row_number() over (order by d.run_at, d.job_id) as number
    from due d
    where (d.run_at, d.job_id) > (
        coalesce(after[1]::timestamptz, '-infinity'),
        coalesce(after[2]::uuid, '00000000-0000-0000-0000-000000000000'))
    order by d.run_at, d.job_id
    limit max_rows) v;
  mended := 0;
  if tids is not null then
    tids := array(select d.ctid from due d where d.ctid = any (tids) for update skip locked);
    delete from due d where d.ctid = any (tids) and not due_fits(d.run_at, d.job_id);
    get diagnostics mended = row_count;
  end if;
  perform note_repair('due-dropped', mended);
  return next;
end
$$;
ALTER FUNCTION holdfast.drop_stray_due(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_stray_due(after text[], max_rows integer) IS 'Drop entries of `due` whose job does not wait for that moment.';
CREATE FUNCTION holdfast.drop_stray_entries(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  tids tid[];
begin
  select
    array_agg(v.tid) filter (where not entry_fits(v.stream, v.rank, v.seq, v.job_id)),
    max(array[v.stream::text, v.rank::text, v.seq::text]) filter (where v.number = max_rows)
  into tids, reached
  from (
    select r.ctid as tid, r.stream, r.rank, r.seq, r.job_id,
      row_number() over (order by r.stream, r.rank, r.seq) as number
    from ready r
    where (r.stream, r.rank, r.seq) > (
        coalesce(after[1]::integer, -2147483648), coalesce(after[2]::integer, 0), coalesce(after[3]::bigint, 0))
    order by r.stream, r.rank, r.seq
    limit max_rows) v;
  mended := 0;
  if tids is not null then
    tids := array(select r.ctid from ready r where r.ctid = any (tids) for update skip locked);
    delete from ready r where r.ctid = any (tids) and not entry_fits(r.stream, r.rank, r.seq, r.job_id);
    get diagnostics mended = row_count;
  end if;
  perform note_repair('ready-dropped', mended);
  return next;
end
$$;
ALTER FUNCTION holdfast.drop_stray_entries(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_stray_entries(after text[], max_rows integer) IS 'Drop entries of `ready` whose job is gone, is not queued, or has its entry elsewhere.';
CREATE FUNCTION holdfast.drop_stray_leases(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  ids := array(
    select l.job_id
    from leases l
    where l.job_id > coalesce(after[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by l.job_id
    limit max_rows);
  delete from leases l
  where l.ctid = any (array(
    select s.ctid
    from leases s
    where s.job_id = any (ids)
      and not exists (select from jobs j where j.id = s.job_id and j.state = 'running' and j.attempt = s.attempt)
    for update skip locked));
  get diagnostics mended = row_count;
  perform note_repair('lease-dropped', mended);
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
  else
    mended := mended + drop_stray_decisions(max_rows);
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.drop_stray_leases(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_stray_leases(after text[], max_rows integer) IS 'Drop leases of jobs that do not run, or that run another attempt; at the end of the walk also decisions that nobody will carry out.';
CREATE FUNCTION holdfast.drop_strays(max_rows integer DEFAULT 500) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  dropped integer := whole_walk('drop_stray_leases', max_rows) + whole_walk('show_hidden', max_rows);
begin
  perform whole_walk('replace_heads'), whole_walk('serve_ready');
  return dropped;
end
$$;
ALTER FUNCTION holdfast.drop_strays(max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.drop_strays(max_rows integer) IS 'Drop side rows whose job does not fit: whole walks in one call, as leaders of 0.2.0 ask for them.';
CREATE FUNCTION holdfast.due_fits(run_at timestamp with time zone, job_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select exists (
    select from jobs j where j.id = due_fits.job_id and j.run_at = due_fits.run_at and j.state in ('scheduled', 'retry'))
$$;
ALTER FUNCTION holdfast.due_fits(run_at timestamp with time zone, job_id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.due_fits(run_at timestamp with time zone, job_id uuid) IS 'Whether the job of an entry waits for that moment.';
CREATE FUNCTION holdfast.due_schedules(max_schedules integer DEFAULT 100, after_tenant text DEFAULT NULL::text) RETURNS TABLE(id bigint, tenant text, name text, revision integer, cron text, every_seconds double precision, anchor timestamp with time zone, tz text, next_fire_at timestamp with time zone, reckoned_from timestamp with time zone, catch_up double precision, clock timestamp with time zone, next_in_seconds double precision)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  chosen  bigint[];
  waiting text[] := '{}';
  reached text;
begin
  chosen := array(select s.id from schedules s where s.look_at <= now() order by s.look_at, s.id limit max_schedules);
  if cardinality(chosen) >= max_schedules then
    select w.waiting, w.reached into waiting, reached from tenants_due(max_schedules, after_tenant) w;
    chosen := array(
      select first.id
      from (
        select taken.id, min(taken.turn) as turn, min(taken.look_at) as look_at
        from (
          select own.id, own.look_at, row_number() over (partition by t.tenant order by own.look_at, own.id) as turn
          from unnest(waiting) as t (tenant)
          cross join lateral (
            select s.id, s.look_at
            from schedules s
            where s.tenant = t.tenant and s.look_at <= now()
            order by s.look_at, s.id
            limit max_schedules) own
          union all
          select s.id, s.look_at, max_schedules + 1 from schedules s where s.id = any (chosen)) taken
        group by taken.id) first
      order by first.turn, first.look_at, first.id
      limit max_schedules);
  end if;
  return query
    select s.id, s.tenant, s.name, s.revision, s.cron, s.every_seconds, s.anchor, s.tz, s.next_fire_at, s.reckoned_from,
      s.catch_up, now(), null::double precision
    from schedules s
    where s.id = any (chosen)
    order by array_position(chosen, s.id);
  return query
    select null::bigint, reached, null::text, null::integer, null::text, null::double precision, null::timestamptz, null::text,
      null::timestamptz, null::timestamptz, null::double precision, now(), (
        select extract(epoch from s.look_at - now())::double precision
        from schedules s
        where s.look_at > now()
        order by s.look_at
        limit 1);
end
$$;
ALTER FUNCTION holdfast.due_schedules(max_schedules integer, after_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.due_schedules(max_schedules integer, after_tenant text) IS 'Schedules that the leader is to look at, and last a row without id that says in how many seconds the next one follows (null: none does).';
CREATE FUNCTION holdfast.due_text(run_at timestamp with time zone, template text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select case
    when run_at > now() then format(template, moment(run_at))
    when is_maintained() then format(template, moment(run_at)) || ', which is now'
    else format(template, moment(run_at)) || ', but no process does maintenance'
  end
$$;
ALTER FUNCTION holdfast.due_text(run_at timestamp with time zone, template text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.due_text(run_at timestamp with time zone, template text) IS 'What will happen at a time, or should have happened already.';
CREATE FUNCTION holdfast.early_condition(tree jsonb, place text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;
ALTER FUNCTION holdfast.early_condition(tree jsonb, place text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.early_condition(tree jsonb, place text[]) IS 'Those of the conditions that all letters of a query must meet which a letter can answer by itself; null if there is none.';
CREATE FUNCTION holdfast.elect(max_targets integer DEFAULT 500) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select e.called from elect_from(0, max_targets) e
$$;
ALTER FUNCTION holdfast.elect(max_targets integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.elect(max_targets integer) IS 'Seat the heads of targets that enqueueing called for, in one call.';
CREATE FUNCTION holdfast.elect_from(after bigint DEFAULT 0, max_targets integer DEFAULT 500) RETURNS TABLE(called integer, reached bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  called_tenants text[];
  called_targets text[];
begin
  with answered as (
    delete from calls k
    where k.ctid = any (array(
      select c.ctid
      from calls c
      where c.id > after
      order by c.id
      limit max_targets
      for update skip locked))
    returning k.id, k.tenant, k.target
  )
  select array_agg(a.tenant), array_agg(a.target), max(a.id) into called_tenants, called_targets, reached from answered a;
  if called_targets is not null then
    perform seat(called_tenants, called_targets);
  end if;
  called := coalesce(cardinality(called_targets), 0);
  reached := coalesce(reached, after);
  return next;
end
$$;
ALTER FUNCTION holdfast.elect_from(after bigint, max_targets integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.elect_from(after bigint, max_targets integer) IS 'Seat the heads of targets that enqueueing called for.';
CREATE FUNCTION holdfast.eligible_streams(types text[], queues text[] DEFAULT NULL::text[], tenants text[] DEFAULT NULL::text[]) RETURNS TABLE(id integer, tenant text, queue text, type text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select s.id, s.tenant, s.queue, s.type
  from streams s
  where s.type = any (types)
    and s.closed_in is null
    and not is_request(s.type)
    and (queues is null or s.queue = any (queues))
    and (tenants is null or s.tenant = any (tenants))
$$;
ALTER FUNCTION holdfast.eligible_streams(types text[], queues text[], tenants text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.eligible_streams(types text[], queues text[], tenants text[]) IS 'The streams from which a worker may claim.';
CREATE FUNCTION holdfast.end_bulk(bulk holdfast.bulks, max_jobs integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  dropped   integer;
  last_seen bigint;
  is_last   boolean;
begin
  select count(*), max(portion.place) into dropped, last_seen
  from (
    select e.place from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs) portion;
  delete from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place and e.place <= last_seen;
  delete from bulk_found f
  where f.bulk_id = bulk.id
    and f.part = any (array(
      select g.part from bulk_found g where g.bulk_id = bulk.id order by g.part limit greatest(1, max_jobs / 10)));
  is_last := dropped < max_jobs and not exists (select from bulk_found f where f.bulk_id = bulk.id);
  update bulks b
  set place = coalesce(last_seen, b.place),
    state = case when is_last then 'stopped' else b.state end,
    finished_at = case when is_last then now() end
  where b.id = bulk.id;
end
$$;
ALTER FUNCTION holdfast.end_bulk(bulk holdfast.bulks, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.end_bulk(bulk holdfast.bulks, max_jobs integer) IS 'Forget what is left of a bulk operation that was stopped, some of it at a time.';
CREATE FUNCTION holdfast.end_probe(worker text, job_id uuid, attempt integer, tenant text, name text, begun_in bigint, succeeded boolean, error text) RETURNS TABLE(state text, generation bigint, wait_seconds double precision, spread_seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  circuit circuits;
begin
  select c.* into circuit
  from circuits c
  where c.tenant = end_probe.tenant and c.name = end_probe.name
  for no key update;
  if circuit.state = 'half_open' and circuit.generation = end_probe.begun_in
    and exists (
      select from leases l
      where l.job_id = end_probe.job_id and l.attempt = end_probe.attempt and l.worker = end_probe.worker)
  then
    update permits p
    set job_id = null, attempt = null
    where p.gate = gate_of('circuit', circuit_key(circuit.tenant, circuit.name), null)
      and p.job_id = end_probe.job_id and p.attempt = end_probe.attempt;
    if found and succeeded then
      if circuit.probe_successes + 1 >= circuit.success_threshold then
        perform close_circuit(circuit.tenant, circuit.name);
      else
        update circuits c
        set probe_successes = c.probe_successes + 1, updated_at = now()
        where c.tenant = circuit.tenant and c.name = circuit.name;
        perform pg_notify(current_schema() || '.ready', '');
      end if;
    elsif found and not succeeded then
      perform trip_circuit(circuit, left(error, 1000));
    end if;
  end if;
  return query
  select c.state, c.generation, w.wait_seconds, w.spread_seconds
  from circuits c
  cross join lateral circuit_wait(c) w
  where c.tenant = end_probe.tenant and c.name = end_probe.name;
end
$$;
ALTER FUNCTION holdfast.end_probe(worker text, job_id uuid, attempt integer, tenant text, name text, begun_in bigint, succeeded boolean, error text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.end_probe(worker text, job_id uuid, attempt integer, tenant text, name text, begun_in bigint, succeeded boolean, error text) IS 'Record how a probe ended: with success, with a failure, or (null) with neither.';
CREATE TABLE holdfast.leases (
    job_id uuid NOT NULL,
    attempt integer NOT NULL,
    stream integer NOT NULL,
    lease_seconds real NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    ready_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    worker text NOT NULL,
    interrupt text,
    interrupted_by text,
    interrupt_note text,
    number bigint,
    interrupt_message text,
    verdict text,
    CONSTRAINT leases_bounds_check CHECK ((((lease_seconds >= (0)::double precision) AND (lease_seconds <= (604800)::double precision)) AND ((expires_at >= '0002-01-01 00:00:00+00'::timestamp with time zone) AND (expires_at <= '9999-12-30 00:00:00+00'::timestamp with time zone)))),
    CONSTRAINT leases_interrupt_check CHECK ((interrupt = ANY (ARRAY['cancel'::text, 'pause'::text, 'resolve'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE holdfast.leases OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.leases IS 'Which worker runs which attempt, and until when.';
CREATE FUNCTION holdfast.end_remote_probe(lease holdfast.leases, tenant text, type text, succeeded boolean, name text, error text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select end_probe(
    lease.worker, lease.job_id, lease.attempt, c.tenant, c.name, c.generation,
    case when succeeded or c.name = end_remote_probe.name then succeeded end, end_remote_probe.error)
  from job_types t
  join circuits c on circuit_key(c.tenant, c.name) = circuit_of(t, end_remote_probe.tenant)
  where t.name = end_remote_probe.type and c.state = 'half_open'
$$;
ALTER FUNCTION holdfast.end_remote_probe(lease holdfast.leases, tenant text, type text, succeeded boolean, name text, error text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.end_remote_probe(lease holdfast.leases, tenant text, type text, succeeded boolean, name text, error text) IS 'Decide about the probe of an attempt whose type declares a circuit, if it has the permit.';
CREATE FUNCTION holdfast.end_with_error(lease holdfast.leases, tenant text, type text, failures integer, error jsonb, log text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  late    boolean := is_late(lease, type);
  kind    text := coalesce(error ->> 'kind', 'retryable');
  delay   double precision := (error ->> 'delay_sec')::double precision;
  circuit text := error ->> 'circuit';
  snoozed boolean;
  barred  double precision;
  told    text;
begin
  perform check_seconds('delay_sec', 'delay', array[delay]);
  if circuit is not null and kind <> 'snooze' then
    barred := remote_call_failed(lease, tenant, type, circuit, error ->> 'message');
    if barred is not null and kind = 'retryable' then
      kind := 'snooze';
      delay := greatest(delay, barred);
    end if;
  elsif kind = 'snooze' then
    delay := coalesce(delay, remote_circuit_delay(tenant, circuit), 0);
  end if;
  snoozed := kind = 'snooze' and not late;
  select s.state into told
  from settle(
    lease.worker, array[lease.job_id], array[lease.attempt],
    array[case when snoozed then 'snoozed' when late then 'timeout' else 'failed' end],
    array[case
      when kind = 'snooze' then null
      when kind = 'retryable' and delay is not null and not late then 'retry'
      else kind
    end],
    array[coalesce(error ->> 'type', case
      when snoozed and circuit is not null then 'CircuitOpen'
      when snoozed then null
      when late then 'TimeoutError'
      else 'RemoteError'
    end)],
    array[error ->> 'message'], array[error ->> 'traceback'], array[log],
    array[case when snoozed then delay when kind <> 'snooze' and delay is not null then delay
      else remote_backoff(type, failures) end],
    null) s;
  return told;
end
$$;
ALTER FUNCTION holdfast.end_with_error(lease holdfast.leases, tenant text, type text, failures integer, error jsonb, log text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.end_with_error(lease holdfast.leases, tenant text, type text, failures integer, error jsonb, log text) IS 'End an attempt as its worker says it failed.';
CREATE FUNCTION holdfast.ended_attempts(job_ids uuid[], attempts integer[]) RETURNS TABLE(job_id uuid, attempt integer, type text, tenant text, queue text, outcome text, failures integer, duration_seconds double precision, queue_seconds double precision, correlation_id text, worker text, error_type text, error_message text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select a.job_id, a.attempt, j.type, j.tenant, j.queue, a.outcome, j.failures,
    coalesce(a.duration_ms / 1000.0, greatest(extract(epoch from a.finished_at - a.started_at), 0))::double precision,
    coalesce(a.queue_ms, 0) / 1000.0::double precision, coalesce(j.correlation_id, j.id::text), a.worker,
    a.error_type, left(a.error_message, 10000)
  from unnest(job_ids, attempts) as named (job_id, attempt)
  cross join lateral (
    select a.*
    from job_attempts a
    where a.job_id = named.job_id and a.attempt = named.attempt
    offset 0) a
  join jobs j on j.id = named.job_id
$$;
ALTER FUNCTION holdfast.ended_attempts(job_ids uuid[], attempts integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.ended_attempts(job_ids uuid[], attempts integer[]) IS 'Ended attempts with the names of their jobs, for the log of a process that settled them in place of their worker.';
CREATE FUNCTION holdfast.enlist(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[], definitions jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select publish_types(enlist.definitions);
  select enlist_worker(
    enlist.id, enlist.host, enlist.pid, enlist.version, enlist.lanes, enlist.types, enlist.queues, enlist.tenants);
  update workers w
  set shapes = (select jsonb_object_agg(d.type, d.digest) from declared_shapes(enlist.definitions) d)
  where w.id = enlist.id
$$;
ALTER FUNCTION holdfast.enlist(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[], definitions jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.enlist(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[], definitions jsonb) IS 'Register a worker and publish its job types, so that payloads which one of its handlers accepts are not refused.';
CREATE FUNCTION holdfast.enlist_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select check_worker(id, host, version, types, queues, tenants);
  select register_worker(
    enlist_worker.id, enlist_worker.host, enlist_worker.pid, enlist_worker.version, enlist_worker.lanes,
    enlist_worker.types, enlist_worker.queues);
  update workers w set tenants = enlist_worker.tenants
  where w.id = enlist_worker.id and w.tenants is distinct from enlist_worker.tenants
$$;
ALTER FUNCTION holdfast.enlist_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.enlist_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[]) IS 'Register a worker as `register_worker` does, with the tenants that it serves; null for all.';
CREATE FUNCTION holdfast.enqueue(type text, payload jsonb DEFAULT '{}'::jsonb, priority integer DEFAULT NULL::integer, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay double precision DEFAULT NULL::double precision, idempotency_key text DEFAULT NULL::text, dedup_key text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, parent_id uuid DEFAULT NULL::uuid, max_attempts integer DEFAULT NULL::integer, target text DEFAULT NULL::text, queue text DEFAULT NULL::text, hold boolean DEFAULT NULL::boolean, target_count bigint DEFAULT NULL::bigint, tenant text DEFAULT 'default'::text, created_by text DEFAULT NULL::text) RETURNS TABLE(job_id uuid, state text, outcome text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.enqueue(type text, payload jsonb, priority integer, run_at timestamp with time zone, delay double precision, idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, max_attempts integer, target text, queue text, hold boolean, target_count bigint, tenant text, created_by text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.enqueue(type text, payload jsonb, priority integer, run_at timestamp with time zone, delay double precision, idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, max_attempts integer, target text, queue text, hold boolean, target_count bigint, tenant text, created_by text) IS 'Record a job in the caller''s own transaction.';
CREATE FUNCTION holdfast.enqueue_many(types text[], payloads jsonb[], options jsonb[] DEFAULT NULL::jsonb[], tenant text DEFAULT 'default'::text, created_by text DEFAULT NULL::text, ids uuid[] DEFAULT NULL::uuid[]) RETURNS TABLE(item integer, job_id uuid, state text, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform check_enqueue(types, payloads, options, tenant);
  perform check_texts(created_by, null);
  return query select * from record_jobs(types, payloads, options, tenant, created_by, ids);
end
$$;
ALTER FUNCTION holdfast.enqueue_many(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.enqueue_many(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) IS 'Record many jobs at once.';
CREATE FUNCTION holdfast.enqueue_plain(type text, payloads jsonb[], ids uuid[], queue text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, created_by text DEFAULT NULL::text, alone boolean DEFAULT false) RETURNS TABLE(item integer, job_id uuid, state text, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.enqueue_plain(type text, payloads jsonb[], ids uuid[], queue text, tenant text, created_by text, alone boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.enqueue_plain(type text, payloads jsonb[], ids uuid[], queue text, tenant text, created_by text, alone boolean) IS 'Record jobs of one type in the cheapest way, without options except for the queue.';
CREATE FUNCTION holdfast.entered_streams(only_tenant text) RETURNS integer[]
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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
ALTER FUNCTION holdfast.entered_streams(only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.entered_streams(only_tenant text) IS 'The streams with entries in `ready` that belong to a tenant, or whose row is not there: it comes back later than an entry may (see streams.sql).';
CREATE FUNCTION holdfast.entry_fits(stream integer, rank integer, seq bigint, job_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select exists (
    select
    from jobs j
    left join heads h on h.tenant = j.tenant and h.target = j.target
    where j.id = entry_fits.job_id
      and j.state = 'queued'
      and j.stream = stream_of(entry_fits.stream)
      and case when j.target is null then j.seq else h.seq end = entry_fits.seq
      and (j.target is null or h.job_id = j.id)
      and not exists (
        select from ready_entry(j.stream, j.priority, entry_fits.seq) r
        where r.job_id = j.id
          and (is_parked(r.stream), r.rank) <> (is_parked(entry_fits.stream), entry_fits.rank)
          and ((is_parked(r.stream), r.rank) < (is_parked(entry_fits.stream), entry_fits.rank)
            or entry_fits.rank <> all (ready_ranks(j.priority)))))
$$;
ALTER FUNCTION holdfast.entry_fits(stream integer, rank integer, seq bigint, job_id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.entry_fits(stream integer, rank integer, seq bigint, job_id uuid) IS 'Whether an entry has the place of its job, and is the only one or the first of its entries.';
CREATE FUNCTION holdfast.entry_moved(job holdfast.jobs, priority integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  moved boolean;
begin
  with taken as (
    delete from ready r
    where r.ctid in (
      select e.ctid
      from ready_entry(job.stream, job.priority, ready_seq(job)) spot
      join ready e on e.stream = spot.stream and e.rank = spot.rank and e.seq = spot.seq
      where e.job_id = job.id
      for update of e skip locked)
    returning r.stream, r.rank, r.seq, r.job_id, r.ready_at
  ), shown as (
    -- If somebody has locked this row, it is left: one without an entry is dropped when its turn comes.
    delete from parked p
    where p.ctid in (
      select k.ctid
      from taken t
      join parked k on k.stream = stream_of(t.stream) and k.rank = t.rank and k.seq = t.seq
      where is_parked(t.stream)
      for update of k skip locked)
  ), placed as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select stream_of(t.stream),
      case
        when t.rank = 0 and entry_moved.priority < job.priority then 0
        else ready_rank(entry_moved.priority, t.rank = ready_rank(job.priority, true))
      end,
      t.seq, t.job_id,
      case when t.rank = 0 and entry_moved.priority > job.priority then now() else t.ready_at end
    from taken t
    on conflict do nothing
  )
  select count(*) > 0 into moved from taken;
  return moved;
end
$$;
ALTER FUNCTION holdfast.entry_moved(job holdfast.jobs, priority integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.entry_moved(job holdfast.jobs, priority integer) IS 'Move the entry of a queued job to the rank of another priority.';
CREATE FUNCTION holdfast.entry_streams(stream integer) RETURNS integer[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array[stream, -stream]
$$;
ALTER FUNCTION holdfast.entry_streams(stream integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.entry_streams(stream integer) IS 'Both numbers under which entries of a stream are stored.';
CREATE TABLE holdfast.job_events (
    id bigint NOT NULL,
    job_id uuid NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    event text NOT NULL,
    by text,
    note text,
    message text
);
ALTER TABLE holdfast.job_events OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.job_events IS 'The rarer moves of jobs, with who made them and why.';
CREATE FUNCTION holdfast.events_after(id uuid, only_tenant text, after bigint, max_events integer) RETURNS SETOF holdfast.job_events
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select e.*
  from job_events e
  where e.job_id = events_after.id
    and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
  order by e.id
  offset events_after.after
  limit max_events
$$;
ALTER FUNCTION holdfast.events_after(id uuid, only_tenant text, after bigint, max_events integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.events_after(id uuid, only_tenant text, after bigint, max_events integer) IS 'A page of a job''s history, oldest first, without the first `after` events.';
CREATE FUNCTION holdfast.events_page(id uuid, only_tenant text, after bigint, max_events integer) RETURNS TABLE(job_id uuid, at timestamp with time zone, event text, by text, note text, more boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  bytes bigint;
  spent bigint := 0;
  given integer := 0;
  rest  boolean := false;
begin
  for bytes in
    select octet_length(concat(left(e.by, 500), left(e.note, 10000)))
    from job_events e
    where e.job_id = events_page.id
      and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
    order by e.id
    offset coalesce(events_page.after, 0)
    limit max_events + 1
  loop
    spent := spent + coalesce(bytes, 0);
    rest := given >= max_events or (given > 0 and spent > page_bytes());
    exit when rest;
    given := given + 1;
  end loop;
  return query
  select e.job_id, readable(e.at), left(e.event, 255), left(e.by, 500), left(e.note, 10000), rest
  from job_events e
  where e.job_id = events_page.id
    and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
  order by e.id
  offset coalesce(events_page.after, 0)
  limit given;
end
$$;
ALTER FUNCTION holdfast.events_page(id uuid, only_tenant text, after bigint, max_events integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.events_page(id uuid, only_tenant text, after bigint, max_events integer) IS 'A job''s history, oldest first, without the first `after` events: an event''s own number would reveal how much happens to the jobs of others.';
CREATE FUNCTION holdfast.events_seal(digest bytea, job_id uuid, till bigint) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select sha256(digest || sha256(digest || convert_to('holdfast events', 'UTF8') || uuid_send(job_id) || int8send(till)))
$$;
ALTER FUNCTION holdfast.events_seal(digest bytea, job_id uuid, till bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.events_seal(digest bytea, job_id uuid, till bigint) IS 'The proof that this installation issued a token.';
CREATE FUNCTION holdfast.execute_requests(max_requests integer DEFAULT 10) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
#variable_conflict use_column
declare
  ask     record;
  verb    text;
  verdict text;
  done    integer := 0;
  fault   text;
begin
  for ask in
    select c.job_id, c.attempt, s.type, c.payload
    from claim_streams('maintenance', request_streams(), max_requests, null) c
    join streams s on s.id = c.stream
  loop
    verb := substr(ask.type, 10);
    begin
      verdict := foregone_answer(verb, (ask.payload ->> 'job_id')::uuid, ask.job_id);
      if verdict is null then
        verdict := case
          when verb = any (hand_verbs()) then carry_out_by_hand(verb, ask.payload)
          else carry_out(
            case when (ask.payload ->> 'resolves')::boolean then 'resolve' else verb end,
            (ask.payload ->> 'job_id')::uuid, (ask.payload ->> 'attempt')::integer, ask.payload ->> 'by',
            ask.payload ->> 'note', ask.payload ->> 'message')
        end;
      end if;
      if verdict not in ('later', 'when-ended') then
        perform forget_decision((ask.payload ->> 'job_id')::uuid, ask.job_id, verdict);
      end if;
    exception
      when serialization_failure or deadlock_detected or lock_not_available then
        verdict := 'later';
      when others then
        get stacked diagnostics fault = message_text;
        verdict := null;
    end;
    if verdict is null then
      delete from pending_decisions d where d.request_id = ask.job_id;
      perform fail('maintenance', array[ask.job_id], array[ask.attempt], array['fatal'], array['RequestFailed'], array[fault]);
    elsif verdict in ('later', 'when-ended') then
      -- A handler may run on for days before its job can be erased, and each look leaves a row. So the next look comes
      -- after as long as this request has waited by now.
      perform snooze('maintenance', array[ask.job_id], array[ask.attempt], array[case verdict
        when 'later' then 0.5 else least(60, 0.25 * 2 ^ least(ask.attempt, 10)) end]);
    else
      perform complete('maintenance', array[ask.job_id], array[ask.attempt], array[jsonb_build_object('outcome', verdict)]);
    end if;
    done := done + 1;
  end loop;
  return done;
end
$$;
ALTER FUNCTION holdfast.execute_requests(max_requests integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.execute_requests(max_requests integer) IS 'Execute recorded requests.';
CREATE FUNCTION holdfast.existing_job(type text, payload jsonb, option jsonb, tenant text, created_by text, id uuid) RETURNS TABLE(job_id uuid, state text, outcome text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
  -- By id first: a batch that is sent again asks for the job that it created, not for a later one.
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
      -- The key belongs to this request, and had no job so far.
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
  -- A key without a job is our own, or was left behind by retention: it is recorded again with the intent.
  delete from idempotency_keys k
  where k.tenant = existing_job.tenant and k.key = asked and k.job_id = bound_to;
  return query
  select r.job_id, r.state, r.outcome
  from record_jobs(
    array[existing_job.type], array[existing_job.payload], array[existing_job.option], existing_job.tenant,
    existing_job.created_by, array[existing_job.id]) r;
end
$$;
ALTER FUNCTION holdfast.existing_job(type text, payload jsonb, option jsonb, tenant text, created_by text, id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.existing_job(type text, payload jsonb, option jsonb, tenant text, created_by text, id uuid) IS 'The job that answers an intent whose key was taken, or whose insert conflicted.';
CREATE FUNCTION holdfast.explain(job_id uuid, only_tenant text DEFAULT NULL::text) RETURNS TABLE(code text, sentence text, culprit jsonb)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  job  jobs;
  head jobs;
begin
  select j.* into job from jobs j where j.id = explain.job_id and (only_tenant is null or j.tenant = only_tenant);
  if not found then
    return query select 'unknown', format('There is no job %s.', explain.job_id), null::jsonb;
    return;
  end if;
  if job.state = 'queued' and job.target is not null then
    select j.* into head
    from heads h
    join jobs j on j.id = h.job_id
    where h.tenant = job.tenant and h.target = job.target and not has_ended(j.state);
    if head.id is null then
      return query select 'seating', 'The job ' || case
        when is_maintained() then 'is called to the head of its target in a moment.'
        else 'waits to be called to the head of its target, but no process does maintenance.' end,
        jsonb_build_object('kind', 'maintenance');
      return;
    elsif head.id <> job.id then
      return query
      select 'target', format('The job waits behind job %s of its target %s, which %s.', head.id, quoted(job.target), s.text),
        jsonb_build_object('kind', 'job', 'id', head.id, 'state', head.state, 'target', job.target, 'code', s.code,
          'culprit', s.culprit)
      from situation(head, only_tenant) s;
      return;
    end if;
  end if;
  return query
  select s.code, format('The job %s%s.', s.text, case when s.code not in ('ended', 'interrupted') then pending_text(job.id) end),
    s.culprit
  from situation(job, only_tenant) s;
end
$$;
ALTER FUNCTION holdfast.explain(job_id uuid, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.explain(job_id uuid, only_tenant text) IS 'Why a job does not run, or what it is doing.';
CREATE FUNCTION holdfast.fail(worker text, job_ids uuid[], attempts integer[], kinds text[] DEFAULT NULL::text[], error_types text[] DEFAULT NULL::text[], error_messages text[] DEFAULT NULL::text[], tracebacks text[] DEFAULT NULL::text[], log_excerpts text[] DEFAULT NULL::text[], delays double precision[] DEFAULT NULL::double precision[], outcomes text[] DEFAULT NULL::text[], durations_ms integer[] DEFAULT NULL::integer[]) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  if exists (select from unnest(outcomes) as o (outcome) where coalesce(outcome, '') not in ('failed', 'timeout'))
    or exists (select from unnest(kinds) as k (kind) where kind not in ('retryable', 'retry', 'fatal', 'hold')) then
    raise exception 'the outcome of a failure must be failed or timeout, and its kind retryable, retry, fatal or hold' using errcode = 'HF002';
  end if;
  perform check_seconds('the delay of a retry', 'delay', delays);
  return query
  select * from settle(
    named(worker), job_ids, attempts, coalesce(outcomes, array_fill('failed'::text, array[cardinality(job_ids)])),
    kinds, error_types, error_messages, tracebacks, log_excerpts, delays, durations_ms);
end
$$;
ALTER FUNCTION holdfast.fail(worker text, job_ids uuid[], attempts integer[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], outcomes text[], durations_ms integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fail(worker text, job_ids uuid[], attempts integer[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], outcomes text[], durations_ms integer[]) IS 'Record failures of all kinds.';
CREATE FUNCTION holdfast.failures_after(outcome text, failures integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when costs_attempt(outcome) then least(failures::bigint + 1, 2147483647)::integer
    else failures
  end
$$;
ALTER FUNCTION holdfast.failures_after(outcome text, failures integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.failures_after(outcome text, failures integer) IS 'How many failures a job has after an attempt with this outcome.';
CREATE FUNCTION holdfast.find_events_token(key_id uuid, job_id uuid, till bigint, seal bytea) RETURNS TABLE(any_key boolean, id uuid, tenant text, name text, scopes text[], requests_per_second real, max_waiting integer, seconds_left double precision)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (select from api_keys), k.id, k.tenant, k.name, k.scopes, k.requests_per_second, k.max_waiting,
    least(extract(epoch from k.expires_at - now()), till - extract(epoch from now()))::double precision
  from (values (true)) as always (row)
  left join api_keys k
    on k.id = find_events_token.key_id and is_valid_key(k.revoked_at, k.expires_at)
    and till > extract(epoch from now())
    -- Hashed, so that the time of the comparison tells nothing about the seal.
    and sha256(find_events_token.seal) = sha256(events_seal(k.digest, find_events_token.job_id, till))
$$;
ALTER FUNCTION holdfast.find_events_token(key_id uuid, job_id uuid, till bigint, seal bytea) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.find_events_token(key_id uuid, job_id uuid, till bigint, seal bytea) IS 'The key that an events token stands for, as `find_key` answers it, if both are valid now and the token is for this job.';
CREATE FUNCTION holdfast.find_key(digest bytea) RETURNS TABLE(any_key boolean, id uuid, tenant text, name text, scopes text[], requests_per_second real, max_waiting integer, seconds_left double precision)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (select from api_keys), k.id, k.tenant, k.name, k.scopes, k.requests_per_second, k.max_waiting,
    extract(epoch from k.expires_at - now())::double precision
  from (values (true)) as always (row)
  left join api_keys k
    on k.digest = find_key.digest and is_valid_key(k.revoked_at, k.expires_at)
$$;
ALTER FUNCTION holdfast.find_key(digest bytea) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.find_key(digest bytea) IS 'The key with this digest, if it is valid now; and whether any key exists, valid or not.';
CREATE FUNCTION holdfast.find_streams(tenant text, queues text[], types text[]) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  homes      integer[] := array(
    select (
      select s.id
      from streams s
      where s.type = job.type and s.queue = job.queue and s.tenant = find_streams.tenant and s.closed_in is null
      order by s.id
      limit 1)
    from unnest(queues, types) with ordinality as job (queue, type, position)
    order by job.position);
  new_queues text[];
  new_types  text[];
  asked      integer;
  found      integer;
  most       integer;
begin
  if array_position(homes, null) is null then
    return homes;
  end if;
  select array_agg(lacking.queue), array_agg(lacking.type), count(*) filter (where lacking.queue <> 'holdfast')
  into new_queues, new_types, asked
  from (
    select distinct job.queue, job.type
    from unnest(queues, types, homes) as job (queue, type, home)
    where job.queue is not null and job.home is null
  ) lacking;
  if asked > 0 then
    most := setting('STREAMS_PER_TENANT');
    found := (
      select count(*)
      from (
        select
        from streams s
        where s.tenant = find_streams.tenant and s.closed_in is null and s.queue <> 'holdfast'
        limit most) counted);
    if found + asked > most then
      raise exception
        'tenant % has % combinations of queue and job type in use, and may have % (STREAMS_PER_TENANT): use fewer names of '
        'queues and job types, wait until idle ones are forgotten, or raise the limit', find_streams.tenant, found, most
        using errcode = 'HF002', constraint = 'streams_per_tenant';
    end if;
  end if;
  with made as (
    insert into streams (tenant, queue, type)
    select find_streams.tenant, name.queue, name.type
    from unnest(new_queues, new_types) as name (queue, type)
    order by 2, 3
    returning id, queue, type
  )
  select array_agg(coalesce(job.home, made.id) order by job.position) into homes
  from unnest(queues, types, homes) with ordinality as job (queue, type, home, position)
  left join made using (queue, type);
  return homes;
end
$$;
ALTER FUNCTION holdfast.find_streams(tenant text, queues text[], types text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.find_streams(tenant text, queues text[], types text[]) IS 'The stream of each of these new jobs of a tenant, created if there is none; null for a job without a queue.';
CREATE FUNCTION holdfast.fingerprint_of(type text, error_type text, message text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select left(
    encode(
      sha256(convert_to(
        concat_ws(chr(31), type, coalesce(error_type, ''), coalesce(normalized_message(message), '')), 'UTF8')),
      'hex'),
    16)
$$;
ALTER FUNCTION holdfast.fingerprint_of(type text, error_type text, message text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fingerprint_of(type text, error_type text, message text) IS 'The fingerprint of a failure: 16 characters that are the same for jobs of one type which fail in the same way.';
CREATE FUNCTION holdfast.fingerprint_operand() RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
  select 'case
    when j.state = ''dead'' then (select d.fingerprint from dead_letters d where d.job_id = j.id)
    when j.state not in (''success'', ''canceled'') then (select g.fingerprint from failing g where g.job_id = j.id)
    end'
$$;
ALTER FUNCTION holdfast.fingerprint_operand() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fingerprint_operand() IS 'The SQL expression for the fingerprint of the failure that a job died of, or of an open job''s last one.';
CREATE FUNCTION holdfast.fingerprints_wanted(tree jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select (
    select array(select jsonb_array_elements_text(part -> 'value'))
    from jsonb_array_elements(case when tree ? 'and' then tree -> 'and' else jsonb_build_array(tree) end) as part
    where part ->> 'field' = 'fingerprint' and part ->> 'op' = '='
      and (strpos(part ->> 'value', '*') = 0 or (part ->> 'exact')::boolean)
    limit 1)
$$;
ALTER FUNCTION holdfast.fingerprints_wanted(tree jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fingerprints_wanted(tree jsonb) IS 'The fingerprints that all results of a search must have, null if it names none: then it walks over jobs.';
CREATE FUNCTION holdfast.fire_grace() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select interval '1 minute'
$$;
ALTER FUNCTION holdfast.fire_grace() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fire_grace() IS 'How late a fire time counts as on time: the time that another process takes to become the leader, and more.';
CREATE FUNCTION holdfast.fire_schedules(ids bigint[], revisions integer[], expected timestamp with time zone[], following timestamp with time zone[], missed_to timestamp with time zone[], fire_ids bigint[], fire_ats timestamp with time zone[]) RETURNS TABLE(id bigint, tenant text, name text, fired integer, skipped integer, missed_from timestamp with time zone, fault text, failures integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  schedule schedules;
  moment   timestamptz;
  outcome  text;
  run      record;
begin
  for place in 1..coalesce(cardinality(ids), 0) loop
    select s.* into schedule
    from schedules s
    where s.id = ids[place] and s.revision = revisions[place] and s.look_at is not null
      and s.next_fire_at is not distinct from expected[place]
    for update skip locked;
    -- A caller that stood still meanwhile: what it found in time is too late now.
    continue when not found or exists (
      select from unnest(fire_ids, fire_ats) as f (id, fire_at)
      where f.id = schedule.id and f.fire_at <= now() - make_interval(secs => schedule.catch_up) - fire_grace());
    id := schedule.id;
    tenant := schedule.tenant;
    name := schedule.name;
    fired := 0;
    skipped := 0;
    missed_from := null;
    fault := null;
    failures := 0;
    begin
      if missed_to[place] <= now() - make_interval(secs => schedule.catch_up) - fire_grace() then
        insert into schedule_fires (schedule_id, fire_at, outcome, missed_to)
        values (schedule.id, schedule.next_fire_at, 'missed', missed_to[place])
        -- After a step of the clock, this one may be decided, but not those after it.
        on conflict (schedule_id, fire_at) do update set missed_to = greatest(schedule_fires.missed_to, excluded.missed_to);
        missed_from := schedule.next_fire_at;
      end if;
      for moment in
        select f.fire_at
        from unnest(fire_ids, fire_ats) as f (id, fire_at)
        where f.id = schedule.id and f.fire_at <= now()
        order by f.fire_at
      loop
        outcome := case when schedule.overlap = 'skip' and open_run(schedule.id) is not null then 'skipped' else 'fired' end;
        insert into schedule_fires (schedule_id, fire_at, outcome)
        values (schedule.id, moment, outcome)
        on conflict do nothing;
        continue when not found;
        if outcome = 'skipped' then
          skipped := skipped + 1;
        else
          select r.job_id, r.outcome into run from record_run(schedule, moment) r;
          update schedule_fires f
          set job_id = run.job_id, outcome = case when run.outcome = 'created' then 'fired' else 'existing' end
          where f.schedule_id = schedule.id and f.fire_at = moment;
          schedule.last_job_id := run.job_id;
          fired := fired + 1;
        end if;
        schedule.last_fire_at := greatest(schedule.last_fire_at, moment);
      end loop;
      update schedules s
      set next_fire_at = following[place], reckoned_at = now(), look_at = following[place],
        last_fire_at = schedule.last_fire_at, last_job_id = schedule.last_job_id,
        fired = s.fired + fire_schedules.fired, skipped = s.skipped + fire_schedules.skipped,
        failures = 0, missed_at = case when missed_from is not null then now() else s.missed_at end,
        last_error = null, last_error_at = null
      where s.id = schedule.id;
    exception
      when others then
        if sqlstate in ('40001', '40P01') then
          raise;
        end if;
        fired := 0;
        skipped := 0;
        missed_from := null;
        fault := left(sqlerrm, 1000);
    end;
    if fault is not null then
      failures := schedule_failed(schedule.id, fault);
    end if;
    if fired + skipped > 0 or missed_from is not null or fault is not null then
      return next;
    end if;
  end loop;
end
$$;
ALTER FUNCTION holdfast.fire_schedules(ids bigint[], revisions integer[], expected timestamp with time zone[], following timestamp with time zone[], missed_to timestamp with time zone[], fire_ids bigint[], fire_ats timestamp with time zone[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fire_schedules(ids bigint[], revisions integer[], expected timestamp with time zone[], following timestamp with time zone[], missed_to timestamp with time zone[], fire_ids bigint[], fire_ats timestamp with time zone[]) IS 'Decide fire times.';
CREATE FUNCTION holdfast.firmness(decision text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case decision
    when 'pause' then 1
    when 'retry' then 2
    when 'cancel' then 3
    when 'resolve' then 3
    when 'fail' then 3
    when 'kill' then 3
    else 0
  end
$$;
ALTER FUNCTION holdfast.firmness(decision text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.firmness(decision text) IS 'Which of two decisions about an attempt holds: the firmer one, else the first.';
CREATE FUNCTION holdfast.first_free(stream integer, from_rank integer, from_seq bigint, to_rank integer) RETURNS TABLE(rank integer, seq bigint)
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select coalesce(first.rank, to_rank), coalesce(first.seq, 1)
  from (select 1) one
  left join lateral (
    select r.rank, r.seq
    from (
      select r.job_id, r.rank, r.seq
      from ready r
      where r.stream = first_free.stream
        and (r.rank, r.seq) >= (from_rank, from_seq)
        and r.rank < to_rank
      order by r.rank, r.seq
      limit 10000) r
    left join lateral (
      select j.id from jobs j where j.id = r.job_id for no key update skip locked) free on true
    where free.id is not null or not exists (select from jobs j where j.id = r.job_id)
    order by r.rank, r.seq
    limit 1) first on true
$$;
ALTER FUNCTION holdfast.first_free(stream integer, from_rank integer, from_seq bigint, to_rank integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.first_free(stream integer, from_rank integer, from_seq bigint, to_rank integer) IS 'The first entry, from a place on, whose job is not locked, among the next ten thousand.';
CREATE FUNCTION holdfast.first_id(moment timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE
    AS $$
  select (lpad(to_hex(greatest(extract(epoch from moment) * 1000, 0)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
ALTER FUNCTION holdfast.first_id(moment timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.first_id(moment timestamp with time zone) IS 'The smallest id that a job of this time can have.';
CREATE FUNCTION holdfast.fitting_jobs(bulk holdfast.bulks, ids uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
#variable_conflict use_column
declare
  fitting uuid[];
begin
  execute format($q$
    select array(
      select noted.id
      from unnest($1) as noted (id)
      cross join lateral (
        select from jobs j where j.id = noted.id and ($2 is null or j.tenant = $2) and (%s) offset 0) fits)
    $q$, query_condition(bulk.tree))
  into fitting
  using ids, bulk.tenant, null, null, null, null, bulk.tree;
  return fitting;
end
$_$;
ALTER FUNCTION holdfast.fitting_jobs(bulk holdfast.bulks, ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fitting_jobs(bulk holdfast.bulks, ids uuid[]) IS 'Those of some jobs that fit now.';
CREATE FUNCTION holdfast.fix_bulk(bulk holdfast.bulks, max_jobs integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  if bulk.reached is null and bulk.sources && open_tables() then
    perform gather_bulk(bulk);
  elsif bulk.reached[1] = 'gathered' then
    perform judge_gathered(bulk, max_jobs);
  else
    perform note_found(bulk, p.ids, p.reached)
    from bulk_page(bulk.tree, bulk.tenant, bulk.sources, bulk.reached, max_jobs, 10 * max_jobs) p;
  end if;
end
$$;
ALTER FUNCTION holdfast.fix_bulk(bulk holdfast.bulks, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.fix_bulk(bulk holdfast.bulks, max_jobs integer) IS 'Find some of the jobs that fit, and note them.';
CREATE FUNCTION holdfast.flag_attempt(id uuid, wish text, by text, note text, message text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  number integer;
  held   record;
begin
  select choice.decision, choice.who, choice.note, choice.message into held
  from (
    select d.decision, d.by, d.note, d.message, d.place from pending_decision(flag_attempt.id) d
    union all
    select wish, flag_attempt.by, flag_attempt.note, flag_attempt.message, null) choice (decision, who, note, message, place)
  order by firmness(choice.decision) desc, choice.place nulls last
  limit 1;
  update leases l
  set interrupt = case when is_verdict(held.decision) then 'cancel' else held.decision end,
    verdict = case when is_verdict(held.decision) then held.decision end,
    interrupted_by = held.who, interrupt_note = held.note, interrupt_message = held.message
  where l.job_id = flag_attempt.id and firmness(coalesce(l.verdict, l.interrupt)) < firmness(held.decision)
  returning l.attempt into number;
  if found then
    perform pg_notify(current_schema() || '.interrupt', flag_attempt.id::text);
  else
    select l.attempt into number
    from leases l
    where l.job_id = flag_attempt.id and not (wish = 'pause' and l.verdict is not distinct from 'retry');
  end if;
  return number;
end
$$;
ALTER FUNCTION holdfast.flag_attempt(id uuid, wish text, by text, note text, message text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.flag_attempt(id uuid, wish text, by text, note text, message text) IS 'Ask the worker that runs a job to stop.';
CREATE FUNCTION holdfast.foregone_answer(verb text, id uuid, request_id uuid) RETURNS text
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select case
    when d.settled_by is not null and verb <> 'delete' and (
      j.state = decided_state(d.decision) or not has_ended(j.state)) then 'at-settlement'
    when j.state <> 'running' and not has_ended(j.state) and exists (
      select
      from pending_decisions e
      join jobs r on r.id = e.request_id and not has_ended(r.state)
      where e.job_id = d.job_id and e.settled_by is null and e.place < d.place and e.decision <> d.decision
        and firmness(e.decision) = firmness(d.decision)
        and (decided_state(e.decision) <> 'dead' or j.state in ('retry', 'error'))) then 'later'
  end
  from pending_decisions d
  join jobs j on j.id = d.job_id
  where d.job_id = foregone_answer.id and d.request_id = foregone_answer.request_id
$$;
ALTER FUNCTION holdfast.foregone_answer(verb text, id uuid, request_id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.foregone_answer(verb text, id uuid, request_id uuid) IS 'What maintenance has to answer to a request without carrying it out; null if it has to.';
CREATE FUNCTION holdfast.forget_among(ids integer[], walk_began timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  idle    interval := stream_idle();
  since   timestamptz := least(now() - idle, walk_began);
  oldest  xid8;
  present xid8;
  gone    integer;
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    return 0;
  end if;
  if not exists (
    select from streams s
    where s.id = any (ids) and (s.closed_in is not null or s.used_at not between since and now())
  ) then
    return 0;
  end if;
  oldest := oldest_transaction();
  present := pg_snapshot_xmax(pg_current_snapshot());
  delete from streams s
  where s.ctid = any (array(
    select f.ctid
    from streams f
    where f.id = any (ids)
      and f.unseen_in < oldest
      -- Workers keep a list of streams for some seconds.
      and f.closed_at <= now() - least(idle, interval '1 minute')
      and not exists (select from ready r where r.stream = any (entry_streams(f.id)))
    for update skip locked));
  get diagnostics gone = row_count;
  -- A transaction number from the future comes from another server, from which this database was copied.
  update streams s
  set unseen_in = case when s.closed_in < oldest and s.unseen_in is null then pg_current_xact_id() end,
    closed_in = case when s.closed_in < present then s.closed_in else pg_current_xact_id() end
  where s.ctid = any (array(
    select f.ctid
    from streams f
    where f.id = any (ids)
      and f.closed_in is not null
      and (f.unseen_in is null and f.closed_in < oldest or greatest(f.closed_in, f.unseen_in) >= present)
    for update skip locked));
  update streams s
  set closed_in = case when s.used_at < now() then pg_current_xact_id() end,
    closed_at = case when s.used_at < now() then now() end,
    used_at = least(s.used_at, now())
  where s.ctid = any (array(
    select f.ctid
    from streams f
    where f.id = any (ids)
      and f.closed_in is null
      and f.used_at not between since and now()
      and not exists (select from ready r where r.stream = any (entry_streams(f.id)))
      -- A stream with names that are not allowed any more could not be created again.
      and not (unprintable(f.tenant) or unprintable(f.queue) or unprintable(f.type))
    for update skip locked));
  return gone;
end
$$;
ALTER FUNCTION holdfast.forget_among(ids integer[], walk_began timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_among(ids integer[], walk_began timestamp with time zone) IS 'Do one step for each of these streams that was used neither since the walk began nor within the idle time.';
CREATE FUNCTION holdfast.forget_bulks(max_bulks integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  horizon timestamptz := seen_horizon(false);
  dropped integer;
begin
  delete from bulks b
  where b.id in (
    select o.id from bulks o
    where o.finished_at < horizon
    order by o.finished_at
    limit max_bulks
    for update skip locked);
  get diagnostics dropped = row_count;
  return dropped;
end
$$;
ALTER FUNCTION holdfast.forget_bulks(max_bulks integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_bulks(max_bulks integer) IS 'Forget bulk operations that ended long ago, as ended jobs are.';
CREATE FUNCTION holdfast.forget_decision(id uuid, request_id uuid, answer text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  with over as (
    delete from pending_decisions d
    where d.job_id = forget_decision.id and d.request_id = forget_decision.request_id
    returning d.job_id, d.decision, d.by, d.note
  )
  insert into job_events (job_id, event, by, note)
  select over.job_id, 'too-late', over.by,
    too_late_note(over.decision, case when not is_erased(over.job_id) then over.note end)
  from over
  join jobs j on j.id = over.job_id
  where answer = 'already-final' and j.state <> decided_state(over.decision)
    and not exists (
      select from job_events e
      where e.job_id = over.job_id and e.event = 'too-late' and e.by is not distinct from over.by
        and e.note = too_late_note(over.decision, over.note))
$$;
ALTER FUNCTION holdfast.forget_decision(id uuid, request_id uuid, answer text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_decision(id uuid, request_id uuid, answer text) IS 'Forget a decision whose request has been executed.';
CREATE FUNCTION holdfast.forget_fingerprints(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  horizon timestamptz := seen_horizon(true);
  tenants text[];
  prints  text[];
begin
  mended := 0;
  if not clock_is_known() or not sole_adder() then
    reached := after;
    return next;
    return;
  end if;
  select array_agg(f.tenant), array_agg(f.fingerprint) into tenants, prints
  from (
    select f.tenant, f.fingerprint
    from fingerprints f
    where (f.tenant, f.fingerprint) > (coalesce(after[1], ''), coalesce(after[2], ''))
    order by f.tenant, f.fingerprint
    limit max_rows) f;
  delete from fingerprints f
  using unnest(tenants, prints) as seen (tenant, fingerprint)
  where f.tenant = seen.tenant and f.fingerprint = seen.fingerprint
    and f.last_seen < horizon
    and not has_open_failures(f.tenant, f.fingerprint);
  get diagnostics mended = row_count;
  update fingerprints f
  set last_seen = now(), first_seen = least(f.first_seen, now())
  from unnest(tenants, prints) as seen (tenant, fingerprint)
  where f.tenant = seen.tenant and f.fingerprint = seen.fingerprint and f.last_seen > now() + interval '1 second';
  if cardinality(tenants) = max_rows then
    reached := array[tenants[max_rows], prints[max_rows]];
    -- Who has too many fills whole steps.
    if tenants[1] = tenants[max_rows] then
      mended := mended + trim_fingerprints(tenants[1], max_rows);
    end if;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.forget_fingerprints(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_fingerprints(after text[], max_rows integer) IS 'Forget fingerprints that nobody has seen for as long as dead jobs are kept and that have nothing open, and those of tenants with too many.';
CREATE FUNCTION holdfast.forget_fires(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  horizon timestamptz := now() - interval '7 days' - clock_lead(interval '8 days');
  times   timestamptz[];
  ids     bigint[];
begin
  mended := 0;
  if horizon is not null and clock_is_known() then
    select array_agg(f.fire_at), array_agg(f.schedule_id) into times, ids
    from (
      select f.fire_at, f.schedule_id
      from schedule_fires f
      where (f.fire_at, f.schedule_id) > (coalesce(after[1]::timestamptz, '-infinity'), coalesce(after[2]::bigint, 0))
        and f.fire_at < horizon
      order by f.fire_at, f.schedule_id
      limit max_rows) f;
    with judged as materialized (
      select old.fire_at, old.id
      from unnest(times, ids) as old (fire_at, id)
      left join schedules s on s.id = old.id
      -- Without a bound on the time, nothing but the primary key serves.
      left join lateral (
        select n.fire_at
        from schedule_fires n
        where s.id is not null and n.schedule_id = old.id
        order by n.fire_at desc
        offset 9 limit 1) tenth on true
      where s.id is null or old.fire_at < tenth.fire_at
    )
    delete from schedule_fires f
    using judged
    where f.schedule_id = judged.id and f.fire_at = judged.fire_at;
    get diagnostics mended = row_count;
    if cardinality(ids) >= max_rows then
      reached := array[to_jsonb(times[max_rows]) #>> '{}', ids[max_rows]::text];
    end if;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.forget_fires(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_fires(after text[], max_rows integer) IS 'Forget what became of fire times a week ago, except for the last ten of each schedule.';
CREATE FUNCTION holdfast.forget_idle_permits(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  tids tid[];
begin
  select
    array_agg(v.tid) filter (where v.idle and state.free),
    max(array[v.gate, v.slot::text]) filter (where v.number = max_rows)
  into tids, reached
  from (
    select p.ctid as tid, p.gate, p.slot, p.job_id, p.attempt, p.granted_at,
      p.granted_at < now() - case when is_rate(p.gate) then interval '32 days' else interval '1 hour' end as idle,
      row_number() over (order by p.gate, p.slot) as number
    from permits p
    where (p.gate, p.slot) > (coalesce(after[1], ''), coalesce(after[2]::integer, 0))
    order by p.gate, p.slot
    limit max_rows) v
  cross join lateral permit_state(v.job_id, v.attempt, v.granted_at, null, null) state;
  delete from permits p
  where p.ctid = any (array(
    select s.ctid
    from permits s
    cross join lateral permit_state(s.job_id, s.attempt, s.granted_at, null, null) state
    where s.ctid = any (tids) and state.free
    for update of s skip locked));
  get diagnostics mended = row_count;
  return next;
end
$$;
ALTER FUNCTION holdfast.forget_idle_permits(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_idle_permits(after text[], max_rows integer) IS 'Forget permits of keys that nobody has used for an hour, or, for rates, for longer than any rate lasts.';
CREATE FUNCTION holdfast.forget_message(id uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
begin
  perform pg_advisory_xact_lock(hashtext(current_schema() || '.fingerprints'), 0);
  update fingerprints f
  set sample_job_id = coalesce(another.job_id, f.sample_job_id),
    message = case when another.job_id is not null then f.message end
  from fingerprints s
  cross join lateral (
    select coalesce(
      (select j.id
       from (
         select g.job_id
         from failing g
         where g.fingerprint = s.fingerprint and g.tenant = s.tenant and g.job_id <> forget_message.id
         limit 100) g
       join jobs j on j.id = g.job_id and not has_ended(j.state)
       limit 1),
      (select l.job_id
       from (
         select d.job_id, d.error_message
         from dead_letters d
         where d.fingerprint = s.fingerprint and d.tenant = s.tenant and d.job_id <> forget_message.id
         limit 100) l
       where l.error_message is not null
       limit 1)) as job_id) another
  where s.sample_job_id = forget_message.id and f.tenant = s.tenant and f.fingerprint = s.fingerprint;
end
$$;
ALTER FUNCTION holdfast.forget_message(id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_message(id uuid) IS 'Take the message of a job that is erased out of the fingerprints that show this job as their sample.';
CREATE FUNCTION holdfast.forget_permits(max_permits integer DEFAULT 1000) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select whole_walk('forget_idle_permits', max_permits)
$$;
ALTER FUNCTION holdfast.forget_permits(max_permits integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_permits(max_permits integer) IS 'Forget permits of keys that nobody uses, in one call, as leaders of 0.2.0 ask for it.';
CREATE FUNCTION holdfast.forget_pulls(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
begin
  delete from remote_pulls p
  where p.ctid = any (array(
    select o.ctid
    from remote_pulls o
    where o.pulled_at < now() - interval '5 minutes'
    order by o.pulled_at
    limit max_rows
    for update skip locked));
  get diagnostics mended = row_count;
  reached := case when mended = max_rows then array['more'] end;
  return next;
end
$$;
ALTER FUNCTION holdfast.forget_pulls(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_pulls(after text[], max_rows integer) IS 'Forget what pulls were answered more than five minutes ago, the oldest first.';
CREATE FUNCTION holdfast.forget_shapes() RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  delete from payload_shapes s
  where s.ctid = any (array(
    select o.ctid
    from payload_shapes o
    where o.published_at < now() - interval '1 day'
      and exists (select from payload_shapes n where n.type = o.type and n.published_at > o.published_at)
      and not exists (select from workers w where w.shapes ->> o.type = o.digest)
    limit 1000
    for update skip locked))
$$;
ALTER FUNCTION holdfast.forget_shapes() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_shapes() IS 'Forget shapes that were replaced more than a day ago and that no worker has, a thousand at a time.';
CREATE FUNCTION holdfast.forget_streams(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET "DateStyle" TO 'iso, ymd'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  began timestamptz := coalesce(after[3]::timestamptz, now());
  ids   uuid[];
  seen  integer[];
begin
  mended := 0;
  if after[1] = 'streams' then
    seen := array(
      select s.id from streams s where s.id > after[2]::integer order by s.id limit max_rows);
    mended := forget_among(seen, began);
    if cardinality(seen) = max_rows then
      reached := array['streams', seen[max_rows]::text, began::text];
    end if;
  else
    select array_agg(l.job_id), array_agg(l.stream) into ids, seen
    from (
      select l.job_id, l.stream
      from leases l
      where l.job_id > coalesce(after[2]::uuid, '00000000-0000-0000-0000-000000000000')
      order by l.job_id
      limit max_rows) l;
    if ids is not null then
      perform serve_streams(array(select distinct stream from unnest(seen) as stream), ids);
    end if;
    reached := case
      when cardinality(ids) = max_rows then array['leases', ids[max_rows]::text, began::text]
      else array['streams', '0', began::text]
    end;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.forget_streams(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_streams(after text[], max_rows integer) IS 'Forget idle streams.';
CREATE FUNCTION holdfast.forget_workers() RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select forget_shapes();
  with gone as (
    delete from workers w
    where w.ctid = any (array(
      select s.ctid from workers s where s.heartbeat_at < now() - interval '1 day' limit 1000 for update skip locked))
    returning w.id
  ), also as (
    delete from beginnings b using gone where b.worker = gone.id
  )
  select count(*)::integer from gone
$$;
ALTER FUNCTION holdfast.forget_workers() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forget_workers() IS 'Forget workers that have been silent for a day, a thousand at a time, and shapes that no worker has any more.';
CREATE FUNCTION holdfast.forgotten(id uuid, by text, max_rows integer DEFAULT 5000) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  start      erasures;
  attempts   integer;
  events     integer;
  to_attempt integer;
  to_event   bigint;
begin
  -- Locked, so that nobody deletes it meanwhile.
  perform from jobs j where j.id = forgotten.id and has_ended(j.state) for update;
  if not found or not drop_items(array[id]) then
    return false;
  end if;
  select e.* into start from erasures e where e.job_id = forgotten.id;
  start.attempt := coalesce(start.attempt, -2147483648);
  start.event := coalesce(start.event, -9223372036854775808);
  select count(*), max(portion.attempt) into attempts, to_attempt
  from (
    select t.attempt
    from job_attempts t
    where t.job_id = forgotten.id and t.attempt > start.attempt
    order by t.attempt
    limit max_rows) portion;
  update job_attempts t
  set error_message = null, traceback = null, log_excerpt = null
  where t.job_id = forgotten.id and t.attempt > start.attempt and t.attempt <= to_attempt
    and (t.error_message is not null or t.traceback is not null or t.log_excerpt is not null);
  select count(*), max(portion.id) into events, to_event
  from (
    select e.id
    from job_events e
    where e.job_id = forgotten.id and e.id > start.event
    order by e.id
    limit max_rows) portion;
  update job_events e
  set note = null, message = null
  where e.job_id = forgotten.id and e.id > start.event and e.id <= to_event
    and (e.note is not null or e.message is not null);
  if attempts = max_rows or events = max_rows then
    insert into erasures (job_id, attempt, event)
    values (forgotten.id, coalesce(to_attempt, start.attempt), coalesce(to_event, start.event))
    on conflict (job_id) do update set attempt = excluded.attempt, event = excluded.event;
    return false;
  end if;
  delete from erasures e where e.job_id = forgotten.id;
  update jobs j
  set payload = '{}', result = null, last_error = null, updated_at = now()
  where j.id = forgotten.id;
  update dead_letters d set error_message = null, note = null where d.job_id = forgotten.id;
  -- Whoever adds up failures and whoever erases their messages take turns: only if there was a failure.
  perform forget_message(forgotten.id) from jobs j where j.id = forgotten.id and j.last_error_at is not null;
  delete from job_progress p where p.job_id = forgotten.id;
  insert into job_events (job_id, event, by)
  select forgotten.id, 'erased', forgotten.by
  where not is_erased(forgotten.id);
  return true;
end
$$;
ALTER FUNCTION holdfast.forgotten(id uuid, by text, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.forgotten(id uuid, by text, max_rows integer) IS 'Erase the content of an ended job, or as much of it as one call may, and keep its tombstone.';
CREATE FUNCTION holdfast.free_entries(entries tid[], OUT tids tid[], OUT ids uuid[], OUT lines integer[], OUT ranks integer[], OUT seqs bigint[], OUT times timestamp with time zone[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform ask_to_repeat();
end
$$;
ALTER FUNCTION holdfast.free_entries(entries tid[], OUT tids tid[], OUT ids uuid[], OUT lines integer[], OUT ranks integer[], OUT seqs bigint[], OUT times timestamp with time zone[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.free_entries(entries tid[], OUT tids tid[], OUT ids uuid[], OUT lines integer[], OUT ranks integer[], OUT seqs bigint[], OUT times timestamp with time zone[]) IS 'Called by claims that met locked entries.';
CREATE FUNCTION holdfast.full_gate(job holdfast.jobs) RETURNS TABLE(code text, text text, culprit jsonb)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  with gate as (
    select * from gates_of(job.stream)
    union all
    select * from key_gates(job.type, job.tenant, job.payload)
  ), used as (
    select gate.*, permit.count, permit.oldest, case
        when gate.gate = gate_of(gate.kind, gate.name, null) then greatest(permit.count, (
          select count(*)
          from leases l
          join streams s on s.id = l.stream
          where case gate.kind when 'queue' then s.queue when 'tenant' then s.tenant else s.type end = gate.name))
        else permit.count
      end as taken
    from gate
    cross join lateral (
      select count(*) as count, min(p.granted_at) as oldest
      from permits p
      cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, gate.seconds, now()) state
      where p.gate = gate.gate and p.slot <= gate.capacity and not state.free) permit
  )
  select case when u.seconds is null then 'limit' else 'rate' end,
    case
      when u.seconds is null then
        format('waits because the limit of its %s %s%s is reached: %s of %s run', u.kind, quoted(u.name),
          ' for ' || quoted(u.key), u.taken, u.capacity)
      else
        format('waits because the rate of its %s %s%s, %s, is used up: the next may start at %s', u.kind, quoted(u.name),
          ' for ' || quoted(u.key), written_rate(u.capacity, u.seconds),
          moment(u.oldest + make_interval(secs => u.seconds)))
    end,
    jsonb_strip_nulls(jsonb_build_object('kind', u.kind, 'name', u.name, 'key', u.key, 'gate', u.gate, 'taken', u.taken,
      'limit', u.capacity, 'seconds', u.seconds))
  from used u
  where u.taken >= u.capacity
  order by u.seconds nulls first, u.gate
  limit 1
$$;
ALTER FUNCTION holdfast.full_gate(job holdfast.jobs) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.full_gate(job holdfast.jobs) IS 'The first limit or rate that has no permit left for the job; no row if there is none.';
CREATE FUNCTION holdfast.gate_of(kind text, name text, seconds real) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when seconds is null then '' else 'rate of ' end || kind || ':' || name
$$;
ALTER FUNCTION holdfast.gate_of(kind text, name text, seconds real) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.gate_of(kind text, name text, seconds real) IS 'The gate of a limit or rate: the key under which its permits are stored.';
CREATE FUNCTION holdfast.gates_of(stream integer) RETURNS TABLE(gate text, capacity integer, seconds real, kind text, name text, key text)
    LANGUAGE sql STABLE
    AS $$
  select gate_of(subject.kind, subject.name, g.seconds), g.capacity, g.seconds, subject.kind, subject.name, null::text
  from streams s
  cross join lateral limitable_by(s.tenant, s.queue, s.type) subject
  cross join lateral limits_of(subject.kind, subject.name) l
  cross join lateral (values (l.limit_count, null::real), (l.rate_count, l.rate_seconds)) as g (capacity, seconds)
  where s.id = gates_of.stream and g.capacity is not null and not is_request(s.type)
  union all
  -- A circuit that has opened again since the streams were looked at lets nothing through.
  select gate_of(c.kind, c.name, null), case when c.paused_at is null then c.limit_count else 0 end, null, c.kind, c.name,
    null
  from streams s
  join job_types t on t.name = s.type
  join controls c on c.kind = 'circuit' and c.name = circuit_of(t, s.tenant)
  where s.id = gates_of.stream
$$;
ALTER FUNCTION holdfast.gates_of(stream integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.gates_of(stream integer) IS 'The gates of which every job of a stream needs a permit: their capacity, and for rates the seconds for which a permit stays used.';
CREATE FUNCTION holdfast.gather_bulk(bulk holdfast.bulks) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
  tables  text[] := array(select unnest(bulk.sources) intersect select unnest(open_tables()));
  ends_at timestamptz := clock_timestamp() + make_interval(secs => search_limit('seconds', 2)::double precision);
  is_much boolean;
  id      uuid;
  chunk   uuid[] := '{}';
  chunks  integer := 0;
begin
  -- What an earlier version of the engine left to be found again.
  delete from bulk_found f where f.bulk_id = bulk.id;
  select sum(pg_relation_size(format('%I', t.name)::regclass)) > search_limit('tables', 536870912) into is_much
  from unnest(tables) as t (name);
  if not is_much then
    -- One statement, so one moment.
    for id in
      execute (
        select string_agg(format('select s.job_id from %s', source_rows(t.name, bulk.tenant)), ' union all ')
        from unnest(tables) as t (name))
      using bulk.tenant
    loop
      chunk := chunk || id;
      if cardinality(chunk) = 200 then
        chunks := chunks + 1;
        insert into bulk_found (bulk_id, part, ids) values (bulk.id, chunks, chunk);
        chunk := '{}';
        is_much := clock_timestamp() > ends_at;
        exit when is_much;
      end if;
    end loop;
  end if;
  if is_much then
    delete from bulk_found f where f.bulk_id = bulk.id;
    update bulks b set sources = array['jobs'] where b.id = bulk.id;
  else
    insert into bulk_found (bulk_id, part, ids) values (bulk.id, chunks + 1, chunk);
    update bulks b set reached = array['gathered'] where b.id = bulk.id;
  end if;
end
$$;
ALTER FUNCTION holdfast.gather_bulk(bulk holdfast.bulks) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.gather_bulk(bulk holdfast.bulks) IS 'Gather the ids of all open jobs that may fit, as they are at one moment.';
CREATE FUNCTION holdfast.get_attempts(id uuid, only_tenant text DEFAULT NULL::text) RETURNS SETOF holdfast.job_attempts
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select t.*
  from job_attempts t
  where t.job_id = get_attempts.id
    and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
  order by t.attempt
$$;
ALTER FUNCTION holdfast.get_attempts(id uuid, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.get_attempts(id uuid, only_tenant text) IS 'The ended attempts of a job, oldest first.';
CREATE FUNCTION holdfast.get_events(id uuid, only_tenant text DEFAULT NULL::text) RETURNS SETOF holdfast.job_events
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select e.*
  from job_events e
  where e.job_id = get_events.id
    and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
  order by e.id
$$;
ALTER FUNCTION holdfast.get_events(id uuid, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.get_events(id uuid, only_tenant text) IS 'A job''s history of cancels, pauses and the like, oldest first.';
CREATE FUNCTION holdfast.get_items(job_id uuid, after bigint DEFAULT NULL::bigint, max_items integer DEFAULT 100, only_tenant text DEFAULT NULL::text) RETURNS TABLE(id bigint, collection text, key text, data jsonb, created_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select i.id, collection_name(i.collection), i.key, i.data, i.created_at
  from job_items i
  where i.job_id = get_items.job_id
    and i.id > coalesce(get_items.after, 0)
    and (only_tenant is null or i.tenant = only_tenant)
  order by i.job_id, i.id
  limit max_items
$$;
ALTER FUNCTION holdfast.get_items(job_id uuid, after bigint, max_items integer, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.get_items(job_id uuid, after bigint, max_items integer, only_tenant text) IS 'The items of a job, in the order in which it stored them; `after` is the last id of the previous page.';
CREATE FUNCTION holdfast.readable(moment timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when moment is not null then least(greatest(moment, '0002-01-01 00:00+00'), '9999-12-30 00:00+00') end
$$;
ALTER FUNCTION holdfast.readable(moment timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.readable(moment timestamp with time zone) IS 'A moment that every client can read, whatever hand-written SQL has stored.';
CREATE FUNCTION holdfast.setting(name text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(s.value, own_setting(s.name), s.default_value) from settings s where s.name = setting.name
$$;
ALTER FUNCTION holdfast.setting(name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.setting(name text) IS 'The value in force of a setting: the row, else the session''s environment, else the default.';
CREATE FUNCTION holdfast.told_interrupt(interrupt text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case interrupt when 'resolve' then 'cancel' else interrupt end
$$;
ALTER FUNCTION holdfast.told_interrupt(interrupt text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.told_interrupt(interrupt text) IS 'The interrupt as workers are told it: they know only cancel and pause, and resolving a job means canceling it.';
CREATE VIEW holdfast.job_details AS
 SELECT j.id,
    j.type,
    j.queue,
    COALESCE(t.lane, 'general'::text) AS lane,
    j.tenant,
    j.state,
    j.reason,
    j.priority,
    j.attempt,
    j.failures,
    holdfast.attempts_allowed(j.max_attempts, t.max_attempts, (holdfast.setting('MAX_ATTEMPTS_DEFAULT'::text))::integer) AS max_attempts,
    j.target,
    j.idempotency_key,
    j.dedup_key,
    COALESCE(j.correlation_id, (j.id)::text) AS correlation_id,
    j.parent_id,
    j.retry_of,
    j.created_by,
    holdfast.readable(j.created_at) AS created_at,
    holdfast.readable(j.updated_at) AS updated_at,
    holdfast.readable(j.run_at) AS run_at,
    holdfast.readable(j.started_at) AS started_at,
    holdfast.readable(j.finished_at) AS finished_at,
    j.last_error,
    holdfast.readable(j.last_error_at) AS last_error_at,
    j.target_count,
    l.worker AS lease_owner,
    holdfast.readable(l.expires_at) AS lease_expires_at,
    holdfast.told_interrupt(l.interrupt) AS interrupt,
    j.payload,
    j.result,
    j.traceparent
   FROM ((holdfast.jobs j
     LEFT JOIN holdfast.job_types t ON ((t.name = j.type)))
     LEFT JOIN holdfast.leases l ON (((l.job_id = j.id) AND (l.attempt = j.attempt))));
ALTER VIEW holdfast.job_details OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast.job_details IS 'Jobs as they may be read, with the lane of their type.';
CREATE FUNCTION holdfast.get_jobs(job_ids uuid[], only_tenant text DEFAULT NULL::text) RETURNS SETOF holdfast.job_details
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select d.*
  from job_details d
  where d.id = any (job_ids) and (only_tenant is null or d.tenant = only_tenant)
$$;
ALTER FUNCTION holdfast.get_jobs(job_ids uuid[], only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.get_jobs(job_ids uuid[], only_tenant text) IS 'Jobs by their ids, with payload and result.';
CREATE FUNCTION holdfast.get_letters(job_ids uuid[], only_tenant text DEFAULT NULL::text) RETURNS TABLE(job_id uuid, tenant text, type text, queue text, error_type text, error_message text, fingerprint text, attempts integer, died_at timestamp with time zone, acknowledged boolean, acknowledged_by text, acknowledged_at timestamp with time zone, note text, requeued_as uuid)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select d.job_id, left(d.tenant, 200), left(d.type, 200), left(j.queue, 200), left(d.error_type, 200),
    left(d.error_message, 1000), left(d.fingerprint, 255), j.attempt, readable(d.died_at), d.acknowledged_at is not null,
    left(d.acknowledged_by, 500), readable(d.acknowledged_at), left(d.note, 1000), d.requeued_as
  from unnest(job_ids) with ordinality as asked (id, place)
  join dead_letters d on d.job_id = asked.id
  join jobs j on j.id = d.job_id
  where only_tenant is null or d.tenant = only_tenant
  order by asked.place
$$;
ALTER FUNCTION holdfast.get_letters(job_ids uuid[], only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.get_letters(job_ids uuid[], only_tenant text) IS 'What lists show of letters, in the order of the ids, with texts cut to their maximal length.';
CREATE FUNCTION holdfast.get_progress(job_ids uuid[]) RETURNS TABLE(job_id uuid, progress_count bigint, result_count bigint, cursor jsonb, last_progress_at timestamp with time zone, done_reason text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select p.job_id, p.progress_count, p.result_count, p.cursor, p.last_progress_at,
    case when j.state = 'success' then coalesce(p.done_reason, 'worker_done') end
  from job_progress p
  join jobs j on j.id = p.job_id
  where p.job_id = any (job_ids)
$$;
ALTER FUNCTION holdfast.get_progress(job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.get_progress(job_ids uuid[]) IS 'What jobs have reported; no row for a job without reports.';
CREATE FUNCTION holdfast.grab(gate text, capacity integer, seconds real, wanted integer, ours integer[]) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  slots  integer[];
  moment timestamptz := clock_timestamp();
begin
  -- Attempts without a permit of the limit, because it was lowered or set while they ran, count too. As long as there
  -- are any, one claim at a time counts them; the others do not wait for it, but try again later.
  if seconds is null and running_outside(gate, capacity) > 0 then
    if not pg_try_advisory_xact_lock(hashtextextended(current_schema() || '.' || grab.gate, 0)) then
      return '{}';
    end if;
    wanted := least(wanted, capacity - cardinality(ours) - (
      select count(*)::integer
      from permits p
      cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, null, moment) state
      where p.gate = grab.gate and not state.free));
    if wanted <= 0 then
      return '{}';
    end if;
  end if;
  for round in 1..2 loop
    slots := array(
      select p.slot
      from permits p
      cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, grab.seconds, moment) state
      where p.gate = grab.gate and p.slot <= capacity and p.slot <> all (ours) and state.free
      order by p.slot
      limit wanted
      for update of p skip locked);
    exit when cardinality(slots) >= wanted or round = 2;
    -- Only the lock holder creates permits; others skip, so two claims with two gates cannot wait for each other.
    exit when capacity <= (select count(*) from permits p where p.gate = grab.gate and p.slot <= capacity)
      or not pg_try_advisory_xact_lock(hashtextextended(current_schema() || '.' || grab.gate, 0));
    insert into permits (gate, slot, granted_at)
    select grab.gate, n, now() - make_interval(secs => coalesce(seconds, 0)) from generate_series(1, capacity) n
    on conflict do nothing;
    if seconds is null and adopt(gate, capacity) then
      return grab(gate, capacity, seconds, wanted, ours);
    end if;
  end loop;
  -- Another claim may have used a permit and committed after the look and before the lock. Now that it is locked, look
  -- again.
  return array(
    select p.slot
    from permits p
    cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, grab.seconds, moment) state
    where p.gate = grab.gate and p.slot = any (slots) and state.free
    order by p.slot);
end
$$;
ALTER FUNCTION holdfast.grab(gate text, capacity integer, seconds real, wanted integer, ours integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.grab(gate text, capacity integer, seconds real, wanted integer, ours integer[]) IS 'Lock up to `wanted` free permits of a gate, in addition to those that this claim already has.';
CREATE FUNCTION holdfast.half_open_circuits() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  circuit circuits;
begin
  if not exists (select from circuits c where c.state = 'open') then
    return;
  end if;
  update circuits c
  set next_probe_at = now() + make_interval(secs => c.opening_seconds)
  where c.state = 'open' and c.next_probe_at > now() + make_interval(secs => c.opening_seconds + 1);
  for circuit in
    select c.*
    from circuits c
    where c.state = 'open' and c.next_probe_at <= now()
    order by c.tenant, c.name
    for update skip locked
  loop
    update circuits c
    set state = 'half_open', generation = c.generation + 1, half_opened_at = now(), probe_successes = 0, updated_at = now()
    where c.tenant = circuit.tenant and c.name = circuit.name;
    -- What tried before does not count now.
    delete from permits p where p.gate = gate_of('circuit', circuit_key(circuit.tenant, circuit.name), null);
    insert into controls as c (kind, name, limit_count, updated_by)
    values ('circuit', circuit_key(circuit.tenant, circuit.name), circuit.probes, 'circuit breaker')
    on conflict on constraint controls_pkey do update
      set paused_at = null, paused_by = null, limit_count = excluded.limit_count, updated_at = now();
    perform pg_notify(current_schema() || '.ready', '');
  end loop;
end
$$;
ALTER FUNCTION holdfast.half_open_circuits() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.half_open_circuits() IS 'Let probes through all circuits whose time has come.';
CREATE FUNCTION holdfast.hand_answer(verb text, verdict text, state text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when has_ended(state) then 'already-final'
    when state = 'running' or verb = 'reprioritize' then 'accepted'
    when verdict in ('fail', 'kill') and state in ('retry', 'error') then 'accepted'
    else 'not-possible'
  end
$$;
ALTER FUNCTION holdfast.hand_answer(verb text, verdict text, state text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.hand_answer(verb text, verdict text, state text) IS 'Whether a job in this state may be failed, killed and so on.';
CREATE FUNCTION holdfast.hand_back(worker text, job_ids uuid[], attempts integer[], reason text DEFAULT NULL::text) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select * from settle(
    named(worker), job_ids, attempts, array_fill('released'::text, array[cardinality(job_ids)]),
    null, null, array_fill(reason, array[cardinality(job_ids)]), null, null, null, null)
$$;
ALTER FUNCTION holdfast.hand_back(worker text, job_ids uuid[], attempts integer[], reason text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.hand_back(worker text, job_ids uuid[], attempts integer[], reason text) IS 'Hand back jobs that were not run, or not to their end.';
CREATE FUNCTION holdfast.hand_back_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  ids     uuid[];
  numbers integer[];
begin
  select array_agg(l.job_id), array_agg(l.attempt) into ids, numbers
  from leases l
  where l.worker = hand_back_unheard.worker
    and l.job_id <> all (job_ids)
    and l.claimed_at <= claimed_until
    and (before_number is null or age(l.xmin) > age((before_number % 4294967296)::text::xid));
  if ids is null then
    return 0;
  end if;
  perform from hand_back(hand_back_unheard.worker, ids, numbers, 'the answer to the claim was lost');
  return cardinality(ids);
end
$$;
ALTER FUNCTION holdfast.hand_back_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.hand_back_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) IS 'Hand back jobs whose claim the worker never heard of.';
CREATE FUNCTION holdfast.hand_out(permits holdfast.claim_permit[]) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  update permits p
  set job_id = l.job_id, attempt = l.attempt, granted_at = clock_timestamp(), entered = nextval('places')
  from unnest(hand_out.permits) as given
  join leases l on l.job_id = given.job_id
  where p.gate = given.gate and p.slot = given.slot
$$;
ALTER FUNCTION holdfast.hand_out(permits holdfast.claim_permit[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.hand_out(permits holdfast.claim_permit[]) IS 'Give attempts that have begun the permits that were locked for them.';
CREATE FUNCTION holdfast.hand_verbs() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array['fail', 'kill', 'expire-lease', 'reprioritize']
$$;
ALTER FUNCTION holdfast.hand_verbs() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.hand_verbs() IS 'The verbs.';
CREATE FUNCTION holdfast.has_ended(state text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select state in ('success', 'dead', 'canceled')
$$;
ALTER FUNCTION holdfast.has_ended(state text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.has_ended(state text) IS 'Whether a job in this state has ended: nothing moves it any more.';
CREATE FUNCTION holdfast.has_keys(stream integer) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (
    select from streams s
    cross join lateral limits_of('type', s.type) l
    where s.id = has_keys.stream and l.keyed)
$$;
ALTER FUNCTION holdfast.has_keys(stream integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.has_keys(stream integer) IS 'Whether jobs of a stream have keys with limits of their own.';
CREATE FUNCTION holdfast.has_open_failures(tenant text, fingerprint text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select exists (
      select from failing g
      where g.fingerprint = has_open_failures.fingerprint and g.tenant = has_open_failures.tenant)
    or exists (
      select from dead_letters d
      where (d.fingerprint, d.tenant, d.acknowledged_at is null)
          >= (has_open_failures.fingerprint, has_open_failures.tenant, true)
        and (d.fingerprint, d.tenant, d.acknowledged_at is null)
          <= (has_open_failures.fingerprint, has_open_failures.tenant, true))
$$;
ALTER FUNCTION holdfast.has_open_failures(tenant text, fingerprint text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.has_open_failures(tenant text, fingerprint text) IS 'Whether a job of this tenant still fails in this way, or died of it and nobody has acknowledged that.';
CREATE FUNCTION holdfast.headless_targets(max_targets integer DEFAULT 500) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select whole_walk('seat_headless', max_targets)
$$;
ALTER FUNCTION holdfast.headless_targets(max_targets integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.headless_targets(max_targets integer) IS 'Seat targets that have a line but no head, in one call, as leaders of 0.2.0 ask for it.';
CREATE FUNCTION holdfast.highest(bound text) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select b.high::double precision from bounds() b where b.name = bound
$$;
ALTER FUNCTION holdfast.highest(bound text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.highest(bound text) IS 'The highest value that a bound allows.';
CREATE FUNCTION holdfast.hold_on(lease holdfast.leases, type text, seconds double precision, always boolean) RETURNS TABLE(directive text, lease_expires_at timestamp with time zone, lease_remaining double precision)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  moment  timestamptz := clock_timestamp();
  expires timestamptz := lease.expires_at;
begin
  perform check_seconds('the length of a lease', 'lease', array[seconds]);
  if not is_late(lease, type) and (
    seconds is not null or always or expires - moment < make_interval(secs => lease.lease_seconds / 2))
  then
    expires := greatest(expires, least(
      moment + make_interval(secs => coalesce(seconds, lease.lease_seconds)), remote_end(lease.claimed_at, type)));
    update leases l set expires_at = expires where l.job_id = lease.job_id;
  end if;
  directive := remote_directive(lease.worker, told_interrupt(lease.interrupt), is_late(lease, type));
  lease_expires_at := readable(expires);
  lease_remaining := extract(epoch from expires - moment);
  return next;
end
$$;
ALTER FUNCTION holdfast.hold_on(lease holdfast.leases, type text, seconds double precision, always boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.hold_on(lease holdfast.leases, type text, seconds double precision, always boolean) IS 'Prolong a lease that its worker still has, and say what the worker is to do.';
CREATE FUNCTION holdfast.interrupted(worker text, job_ids uuid[], attempts integer[]) RETURNS TABLE(job_id uuid, attempt integer, interrupt text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select l.job_id, l.attempt, told_interrupt(l.interrupt)
  from unnest(job_ids, attempts) as asked (job_id, attempt)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt
  where l.worker = interrupted.worker and l.interrupt is not null
$$;
ALTER FUNCTION holdfast.interrupted(worker text, job_ids uuid[], attempts integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.interrupted(worker text, job_ids uuid[], attempts integer[]) IS 'Which of a worker''s jobs somebody wants to interrupt.';
CREATE TABLE holdfast.circuit_counts (
    tenant text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    worker text NOT NULL COLLATE pg_catalog."C",
    generation bigint NOT NULL,
    successes bigint NOT NULL,
    failures bigint NOT NULL,
    last_failure_at timestamp with time zone,
    last_error text,
    reported_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE holdfast.circuit_counts OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.circuit_counts IS 'How many calls each worker has seen succeed and fail lately, per circuit breaker.';
CREATE FUNCTION holdfast.is_counting(counted holdfast.circuit_counts, circuit holdfast.circuits) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
  select counted.generation = circuit.generation
    and counted.reported_at > now() - make_interval(secs => circuit.window_seconds)
$$;
ALTER FUNCTION holdfast.is_counting(counted holdfast.circuit_counts, circuit holdfast.circuits) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_counting(counted holdfast.circuit_counts, circuit holdfast.circuits) IS 'Whether a worker''s counts are of now: of this generation of the circuit, and within its window.';
CREATE FUNCTION holdfast.is_dormant(state text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select state in ('created', 'paused', 'error')
$$;
ALTER FUNCTION holdfast.is_dormant(state text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_dormant(state text) IS 'Whether a job in this state has a row in `dormant`.';
CREATE FUNCTION holdfast.is_erased(id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (select from job_events e where e.job_id = is_erased.id and e.event = 'erased')
$$;
ALTER FUNCTION holdfast.is_erased(id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_erased(id uuid) IS 'Whether the content of a job was erased on request.';
CREATE FUNCTION holdfast.is_late(lease holdfast.leases, type text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select clock_timestamp() > lease.claimed_at + make_interval(secs => timeout_of(type))
$$;
ALTER FUNCTION holdfast.is_late(lease holdfast.leases, type text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_late(lease holdfast.leases, type text) IS 'Whether an attempt has run for longer than it may.';
CREATE TABLE holdfast.workers (
    id text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT now() NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    lanes jsonb NOT NULL,
    types text[] NOT NULL,
    queues text[],
    tenants text[],
    used jsonb,
    shapes jsonb,
    schedules text[],
    kind text DEFAULT 'python'::text NOT NULL,
    quiet_at timestamp with time zone,
    quiet_by text,
    quiet_note text,
    CONSTRAINT workers_kind_check CHECK ((kind = ANY (ARRAY['python'::text, 'remote'::text])))
)
WITH (fillfactor='50');
ALTER TABLE holdfast.workers OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.workers IS 'Workers, with their slots, job types and last heartbeat.';
CREATE FUNCTION holdfast.is_lost(worker holdfast.workers) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
  select worker.heartbeat_at not between
    now() - case when worker.kind = 'remote' then interval '90 seconds' else interval '15 seconds' end
    and now() + interval '5 seconds'
$$;
ALTER FUNCTION holdfast.is_lost(worker holdfast.workers) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_lost(worker holdfast.workers) IS 'Whether a worker has been silent for too long.';
CREATE FUNCTION holdfast.is_maintained() RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (select from leaders l where l.expires_at > now())
$$;
ALTER FUNCTION holdfast.is_maintained() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_maintained() IS 'Whether some process is the leader, which promotes, sweeps and carries out requests.';
CREATE FUNCTION holdfast.is_moment(value text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
begin
  return coalesce(value::timestamptz between '0002-01-01 00:00Z' and '9999-12-30 00:00Z', true);
exception
  when data_exception then
    return false;
end
$$;
ALTER FUNCTION holdfast.is_moment(value text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_moment(value text) IS 'Whether a text (or null) is a time that every client can read back.';
CREATE FUNCTION holdfast.is_number(value jsonb, low numeric, high numeric, whole boolean) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case coalesce(jsonb_typeof(value), 'null')
    when 'null' then true
    when 'number' then value::numeric between low and high and (not whole or value::numeric % 1 = 0)
    else false
  end
$$;
ALTER FUNCTION holdfast.is_number(value jsonb, low numeric, high numeric, whole boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_number(value jsonb, low numeric, high numeric, whole boolean) IS 'Whether a JSON value is a number (or absent) within bounds.';
CREATE FUNCTION holdfast.is_parked(stream integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select stream < 0
$$;
ALTER FUNCTION holdfast.is_parked(stream integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_parked(stream integer) IS 'Whether an entry with this number is parked.';
CREATE FUNCTION holdfast.is_quiet(worker text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (select from workers w where w.id = is_quiet.worker and w.quiet_at is not null)
$$;
ALTER FUNCTION holdfast.is_quiet(worker text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_quiet(worker text) IS 'Whether an operator has told a worker to stop claiming.';
CREATE FUNCTION holdfast.is_rate(gate text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select starts_with(gate, 'rate of ')
$$;
ALTER FUNCTION holdfast.is_rate(gate text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_rate(gate text) IS 'Whether a gate belongs to a rate.';
CREATE FUNCTION holdfast.is_request(type text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select starts_with(type, 'holdfast.')
$$;
ALTER FUNCTION holdfast.is_request(type text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_request(type text) IS 'Whether jobs of this type are requests (see requests.sql).';
CREATE FUNCTION holdfast.is_small(value jsonb) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select octet_length(value::text) <= 1024 and pg_column_size(value) <= 1500
$$;
ALTER FUNCTION holdfast.is_small(value jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_small(value jsonb) IS 'Whether a payload is so small that it breaks no limit: no limit is below 1024 bytes of text, and a level of nesting takes 8 bytes.';
CREATE FUNCTION holdfast.is_storable(value jsonb, most bigint) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select json_fault('', value, most, '', '') is null
$$;
ALTER FUNCTION holdfast.is_storable(value jsonb, most bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_storable(value jsonb, most bigint) IS 'Whether a JSON value can be stored: it is not too large, and every client can read it.';
CREATE FUNCTION holdfast.is_troubled(circuit holdfast.circuits) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (
    select
    from circuit_counts k
    where k.tenant = circuit.tenant and k.name = circuit.name and k.generation = circuit.generation and k.failures > 0
      and k.reported_at > now() - make_interval(secs => circuit.window_seconds))
$$;
ALTER FUNCTION holdfast.is_troubled(circuit holdfast.circuits) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_troubled(circuit holdfast.circuits) IS 'Whether some worker has counted a failure within the window of a circuit.';
CREATE FUNCTION holdfast.is_valid_key(revoked_at timestamp with time zone, expires_at timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
  select revoked_at is null and coalesce(expires_at > now(), true)
$$;
ALTER FUNCTION holdfast.is_valid_key(revoked_at timestamp with time zone, expires_at timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_valid_key(revoked_at timestamp with time zone, expires_at timestamp with time zone) IS 'Whether a key is valid now.';
CREATE FUNCTION holdfast.is_verdict(decision text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select decision in ('retry', 'fail', 'kill')
$$;
ALTER FUNCTION holdfast.is_verdict(decision text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.is_verdict(decision text) IS 'Whether a decision is an operator''s verdict, which workers do not know: they are told to cancel.';
CREATE FUNCTION holdfast.issue_events_token(digest bytea, job_id uuid, seconds double precision) RETURNS TABLE(token bytea, expires_at timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  if not coalesce(seconds between 1 and 3600, false) then
    raise exception 'a token must be valid for 1 to 3600 seconds' using errcode = 'HF002';
  end if;
  return query
  select uuid_send(k.id) || int8send(till.second) || events_seal(k.digest, issue_events_token.job_id, till.second),
    to_timestamp(till.second)
  from api_keys k
  cross join lateral (select ceil(extract(epoch from now() + make_interval(secs => seconds)))::bigint as second) till
  where k.digest = issue_events_token.digest and is_valid_key(k.revoked_at, k.expires_at);
end
$$;
ALTER FUNCTION holdfast.issue_events_token(digest bytea, job_id uuid, seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.issue_events_token(digest bytea, job_id uuid, seconds double precision) IS 'Issue a token that a browser''s EventSource can use, because it cannot send a header with a key.';
CREATE FUNCTION holdfast.items_page(job_id uuid, only_tenant text, after bigint, max_items integer) RETURNS TABLE(id bigint, collection text, key text, data text, created_at timestamp with time zone, more boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  bytes bigint;
  spent bigint := 0;
  given integer := 0;
  rest  boolean := false;
begin
  for bytes in
    select octet_length(i.data::text)
    from job_items i
    where i.job_id = items_page.job_id
      and i.id > coalesce(items_page.after, 0)
      and (only_tenant is null or i.tenant = only_tenant)
    order by i.job_id, i.id
    limit max_items + 1
  loop
    spent := spent + coalesce(bytes, 0);
    rest := given >= max_items or (given > 0 and spent > page_bytes());
    exit when rest;
    given := given + 1;
  end loop;
  return query
  select i.id, collection_name(left(i.collection, 237)), left(i.key, 255), i.data::text, readable(i.created_at), rest
  from job_items i
  where i.job_id = items_page.job_id
    and i.id > coalesce(items_page.after, 0)
    and (only_tenant is null or i.tenant = only_tenant)
  order by i.job_id, i.id
  limit given;
end
$$;
ALTER FUNCTION holdfast.items_page(job_id uuid, only_tenant text, after bigint, max_items integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.items_page(job_id uuid, only_tenant text, after bigint, max_items integer) IS 'The items of a job, in the order in which it stored them, after the item with that id.';
CREATE FUNCTION holdfast.job_family(id uuid, only_tenant text, max_jobs integer DEFAULT 500, max_depth integer DEFAULT 50) RETURNS TABLE(job_id uuid, depth integer, complete boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
  own     jobs;
  parent  uuid;
  members uuid[];
  depths  integer[] := '{0}';
  level   uuid[];
  whole   boolean := true;
begin
  select j.* into own from jobs j where j.id = job_family.id and (only_tenant is null or j.tenant = only_tenant);
  if not found then
    return;
  end if;
  members := array[own.id];
  parent := own.parent_id;
  for number in 1..max_depth loop
    select j.parent_id, j.id into parent, own.id from jobs j where j.id = parent and j.tenant = own.tenant;
    exit when not found or own.id = any (members);
    if cardinality(members) = max_jobs or number = max_depth and exists (
      select from jobs j where j.id = parent and j.tenant = own.tenant) then
      whole := false;
    end if;
    exit when cardinality(members) = max_jobs;
    members := own.id || members;
    depths := -number || depths;
  end loop;
  level := array[job_family.id];
  for number in 1..max_depth loop
    level := array(
      select child.id
      from unnest(level) with ordinality as elder (id, place)
      cross join lateral (
        select j.id
        from jobs j
        where j.parent_id = elder.id and j.tenant = own.tenant
        order by j.id
        limit max_jobs + 1) child
      limit max_jobs - cardinality(members) + 1);
    exit when cardinality(level) = 0;
    if cardinality(members) + cardinality(level) > max_jobs then
      whole := false;
      level := level[: max_jobs - cardinality(members)];
    elsif number = max_depth and exists (
      select from unnest(level) as elder (id)
      cross join lateral (
        select from jobs j where j.parent_id = elder.id and j.tenant = own.tenant limit 1) child) then
      whole := false;
    end if;
    members := members || level;
    depths := depths || array_fill(number, array[cardinality(level)]);
    exit when not whole and cardinality(members) >= max_jobs;
  end loop;
  return query
  select m.id, m.depth, whole
  from unnest(members, depths) with ordinality as m (id, depth, place)
  order by m.place;
end
$$;
ALTER FUNCTION holdfast.job_family(id uuid, only_tenant text, max_jobs integer, max_depth integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.job_family(id uuid, only_tenant text, max_jobs integer, max_depth integer) IS 'The family of a job: its ancestors (negative depths, the oldest first), the job itself (0), and its descendants, level by level.';
CREATE FUNCTION holdfast.job_fingerprint(type text, payload jsonb) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select sha256(convert_to(type || ' ' || payload::text, 'UTF8'))
$$;
ALTER FUNCTION holdfast.job_fingerprint(type text, payload jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.job_fingerprint(type text, payload jsonb) IS 'The identity of an intent: a hash of its type and payload.';
CREATE FUNCTION holdfast.job_result(tenant text, job_id uuid) RETURNS TABLE(id uuid, state text, result jsonb, error_type text, error_message text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(job_result.tenant);
  return query
  select j.id, j.state, j.result,
    case when j.state in ('dead', 'error') then last.error_type end,
    case
      when j.state not in ('dead', 'error') then null
      when last.error_type in (operator_error('kill'), operator_error('fail')) then 'an operator ended the job'
      else coalesce(last.error_message, j.last_error)
    end
  from jobs j
  left join lateral (
    select t.error_type, t.error_message
    from job_attempts t
    where t.job_id = j.id
    order by t.attempt desc
    limit 1) last on true
  where j.id = job_result.job_id and j.tenant = job_result.tenant and not is_request(j.type);
end
$$;
ALTER FUNCTION holdfast.job_result(tenant text, job_id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.job_result(tenant text, job_id uuid) IS 'How a job ended: its result, and the error of its last attempt.';
CREATE FUNCTION holdfast.job_standings(tenants text[], job_ids uuid[]) RETURNS TABLE(id uuid, tenant text, type text, state text, target text, created_at timestamp with time zone, updated_at timestamp with time zone, progress_count bigint, result_count bigint, target_count bigint, last_progress_at timestamp with time zone, done_reason text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select v.id, v.tenant, v.type, v.state, v.target, v.created_at, v.updated_at, v.progress_count, v.result_count,
    v.target_count, v.last_progress_at, v.done_reason
  from visible_jobs(tenants, job_ids) v
$$;
ALTER FUNCTION holdfast.job_standings(tenants text[], job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.job_standings(tenants text[], job_ids uuid[]) IS 'The public fields of jobs for servers of older releases, which do not know messages.';
CREATE FUNCTION holdfast.job_statistics(only_tenant text DEFAULT NULL::text) RETURNS TABLE(tenant text, queue text, type text, ready bigint, running bigint, oldest_ready_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.job_statistics(only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.job_statistics(only_tenant text) IS 'How many jobs are ready and running, per tenant, queue and type.';
CREATE FUNCTION holdfast.job_totals(only_tenant text DEFAULT NULL::text) RETURNS TABLE(due bigint, waiting bigint, dead bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select
    case when only_tenant is null then (select count(*) from due)
      else (select count(*) from due d join jobs j on j.id = d.job_id where j.tenant = only_tenant) end,
    (select count(*) from waiting w where only_tenant is null or w.tenant = only_tenant),
    (select count(*) from dead_letters d
     where d.acknowledged_at is null and (only_tenant is null or d.tenant = only_tenant))
$$;
ALTER FUNCTION holdfast.job_totals(only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.job_totals(only_tenant text) IS 'How many jobs are scheduled or retrying, how many wait behind a target''s head, and how many dead ones are unacknowledged.';
CREATE FUNCTION holdfast.jobs_with_fingerprint(prints text[], only_tenant text, before uuid, max_jobs integer) RETURNS uuid[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
declare
  first   uuid := '00000000-0000-0000-0000-000000000000';
  upto    uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  tenants text[] := case when only_tenant is null then tenants_alike(prints, 100) else array[only_tenant] end;
begin
  if tenants is null then
    -- With very many tenants, reading all is quicker than looking at each.
    return array(
      select c.job_id
      from (
        select g.job_id from failing g where g.fingerprint = any (prints) and g.job_id < upto
        union
        select d.job_id from dead_letters d where d.fingerprint = any (prints) and d.job_id < upto) c
      order by c.job_id desc
      limit max_jobs);
  end if;
  return array(
    select c.job_id
    from (
      select alike.job_id
      from unnest(prints) as p (print)
      cross join unnest(tenants) as t (tenant)
      cross join lateral (
        select g.job_id
        from failing g
        where (g.fingerprint, g.tenant, g.job_id) >= (p.print, t.tenant, first)
          and (g.fingerprint, g.tenant, g.job_id) < (p.print, t.tenant, upto)
        order by g.fingerprint desc, g.tenant desc, g.job_id desc
        limit max_jobs) alike
      union
      select alike.job_id
      from unnest(prints) as p (print)
      cross join unnest(tenants) as t (tenant)
      cross join unnest(array[true, false]) as o (is_open)
      cross join lateral (
        select d.job_id
        from dead_letters d
        where (d.fingerprint, d.tenant, d.acknowledged_at is null, d.job_id) >= (p.print, t.tenant, o.is_open, first)
          and (d.fingerprint, d.tenant, d.acknowledged_at is null, d.job_id) < (p.print, t.tenant, o.is_open, upto)
        order by d.fingerprint desc, d.tenant desc, (d.acknowledged_at is null) desc, d.job_id desc
        limit max_jobs) alike) c
    order by c.job_id desc
    limit max_jobs);
end
$$;
ALTER FUNCTION holdfast.jobs_with_fingerprint(prints text[], only_tenant text, before uuid, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.jobs_with_fingerprint(prints text[], only_tenant text, before uuid, max_jobs integer) IS 'The jobs that have one of these fingerprints, newest first: those that still fail, and the dead ones.';
CREATE FUNCTION holdfast.join_circuit(tenant text, name text, policy jsonb) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  most constant integer := highest('circuits');
begin
  if not exists (select from circuits c where c.tenant = join_circuit.tenant and c.name = join_circuit.name)
    and most <= (select count(*) from circuits)
  then
    delete from circuits c
    where (c.tenant, c.name) in (
      select idle.tenant, idle.name
      from circuits idle
      where idle.state = 'closed' and idle.used_at < now() - interval '1 day'
      order by idle.tenant, idle.name
      for update skip locked);
    if most <= (select count(*) from circuits) then
      return format('there are %s circuits, which is as many as there may be: use fewer names', most);
    end if;
  end if;
  insert into circuits as c (
    tenant, name, failure_threshold, failure_share, window_seconds, open_seconds, probes, success_threshold)
  select join_circuit.tenant, join_circuit.name, p.failure_threshold, p.failure_share, p.window_seconds, p.open_seconds,
    p.probes, p.success_threshold
  from circuit_policy(policy) p
  on conflict on constraint circuits_pkey do update
    set failure_threshold = excluded.failure_threshold, failure_share = excluded.failure_share,
      window_seconds = excluded.window_seconds, open_seconds = excluded.open_seconds, probes = excluded.probes,
      success_threshold = excluded.success_threshold, used_at = now()
    where (c.failure_threshold, c.failure_share, c.window_seconds, c.open_seconds, c.probes, c.success_threshold)
      is distinct from (excluded.failure_threshold, excluded.failure_share, excluded.window_seconds,
        excluded.open_seconds, excluded.probes, excluded.success_threshold)
      or c.used_at < now() - interval '1 hour';
  -- Workers never come back under the same name, so each that joins clears away what others have left.
  delete from circuit_counts k
  where k.ctid = any (array(
    select old.ctid
    from circuit_counts old
    where old.tenant = join_circuit.tenant and old.name = join_circuit.name
      and old.reported_at < now() - interval '1 day'
    for update skip locked));
  return null;
end
$$;
ALTER FUNCTION holdfast.join_circuit(tenant text, name text, policy jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.join_circuit(tenant text, name text, policy jsonb) IS 'Create a circuit, or give it the policy that its code declares now.';
CREATE FUNCTION holdfast.json_fault(what text, value jsonb, most bigint, limit_name text, advice text) RETURNS text
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $_$
declare
  bytes bigint := octet_length(value::text);
begin
  return case
    when bytes > most then format('%s takes %s bytes as JSON, more than %s (%s): %s', what, bytes, limit_name, most, advice)
    when pg_column_size(value) > 1500 and jsonb_path_exists(value, 'strict $.**{190}') then
      format('%s has more than 190 levels of lists and objects', what)
    when bytes > 4300 and jsonb_path_exists(value, 'strict $.** ? (@ >= 1e4300 || @ <= -1e4300)') then
      format('%s contains a number of more than 4300 digits, which nobody could read again', what)
  end;
end
$_$;
ALTER FUNCTION holdfast.json_fault(what text, value jsonb, most bigint, limit_name text, advice text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.json_fault(what text, value jsonb, most bigint, limit_name text, advice text) IS 'What is wrong with a JSON value, in words; null if nothing is.';
CREATE FUNCTION holdfast.judge_circuit(tenant text, name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  circuit circuits;
  total   record;
begin
  select c.* into circuit
  from circuits c
  where c.tenant = judge_circuit.tenant and c.name = judge_circuit.name and c.state = 'closed';
  if not found then
    return;
  end if;
  select t.* into total from circuit_totals(circuit) t;
  if total.failures >= (select l.failure_threshold from circuit_limits(circuit) l)
    and total.failures >= circuit.failure_share * (total.failures + total.successes)
  then
    perform trip_circuit(circuit, total.last_error);
  end if;
end
$$;
ALTER FUNCTION holdfast.judge_circuit(tenant text, name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.judge_circuit(tenant text, name text) IS 'Open a closed circuit if enough calls failed, and a large enough share of them.';
CREATE FUNCTION holdfast.judge_gathered(bulk holdfast.bulks, max_jobs integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
  gathered uuid[];
  next     text[] := array['gathered'];
begin
  with portion as (
    delete from bulk_found f
    where f.bulk_id = bulk.id
      and f.part = any (array(
        select g.part from bulk_found g where g.bulk_id = bulk.id order by g.part limit greatest(1, max_jobs / 200)))
    returning f.part, f.ids
  ),
  rest as (
    insert into bulk_found (bulk_id, part, ids)
    select bulk.id, -p.part, p.ids[max_jobs + 1:]
    from portion p
    where max_jobs < cardinality(p.ids)
  )
  select array_agg(i.id order by p.part, i.place) into gathered
  from portion p, unnest(p.ids[:max_jobs]) with ordinality as i (id, place);
  if not exists (select from bulk_found f where f.bulk_id = bulk.id) then
    next := array[array_position(bulk.sources, 'letters')::text];
  end if;
  perform note_found(bulk, fitting_jobs(bulk, gathered), nullif(next, array[null::text]));
end
$$;
ALTER FUNCTION holdfast.judge_gathered(bulk holdfast.bulks, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.judge_gathered(bulk holdfast.bulks, max_jobs integer) IS 'Judge some of the jobs that were gathered by the filter, and note those that fit.';
CREATE FUNCTION holdfast.judged(origin uuid, ended timestamp with time zone, died timestamp with time zone) RETURNS TABLE(id uuid, created_at timestamp with time zone, state text, over boolean)
    LANGUAGE sql STABLE
    AS $$
  select j.id, j.created_at, j.state, coalesce(case
      when j.state in ('success', 'canceled') then j.finished_at < ended
      when j.state = 'dead' then exists (
        select from dead_letters d where d.job_id = j.id and d.acknowledged_at < died)
    end, false)
  from jobs j
  where j.id > origin
  order by j.id
$$;
ALTER FUNCTION holdfast.judged(origin uuid, ended timestamp with time zone, died timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.judged(origin uuid, ended timestamp with time zone, died timestamp with time zone) IS 'Jobs after the given one, by id, and whether their retention is over: that of dead ones begins when they are acknowledged.';
CREATE FUNCTION holdfast.keep_log(job_id uuid, attempt integer, log text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  insert into job_progress as p (job_id, attempt, seqs, progress_count, result_count, log_excerpt)
  values (keep_log.job_id, keep_log.attempt, '{}', 0, 0, keep_log.log)
  on conflict on constraint job_progress_pkey do update
    set log_excerpt = excluded.log_excerpt, attempt = excluded.attempt,
      seqs = case when p.attempt = excluded.attempt then p.seqs else '{}' end
$$;
ALTER FUNCTION holdfast.keep_log(job_id uuid, attempt integer, log text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.keep_log(job_id uuid, attempt integer, log text) IS 'Keep what an attempt has logged until it ends.';
CREATE FUNCTION holdfast.keep_settings() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  raise exception 'rows of settings cannot be deleted; to reset a setting, set its value to null'
    using errcode = 'HF002';
end
$$;
ALTER FUNCTION holdfast.keep_settings() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.keep_settings() IS 'Refuse to delete settings: without its row a setting has no default, and every claim would fail.';
CREATE FUNCTION holdfast.keep_waiting(id uuid, only_tenant text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
#variable_conflict use_column
begin
  perform
  from jobs j
  where j.id = keep_waiting.id and (only_tenant is null or j.tenant = only_tenant)
    and j.state <> 'running'
    and not has_ended(j.state)
  for no key update;
exception
  when lock_not_available then
    null;
end
$$;
ALTER FUNCTION holdfast.keep_waiting(id uuid, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.keep_waiting(id uuid, only_tenant text) IS 'Lock a job that does not run, so that claims pass over it until this transaction ends: an attempt that began and ended meanwhile would not see what is decided now.';
CREATE FUNCTION holdfast.key_gates(job_type text, tenant text, payload jsonb) RETURNS TABLE(gate text, capacity integer, seconds real, kind text, name text, key text)
    LANGUAGE sql STABLE
    AS $$
  select gate_of('key', jsonb_build_array(job_type, tenant, field.value)::text, g.seconds), g.capacity, g.seconds,
    'type', job_type, field.value
  from limits_of('type', job_type) l
  cross join lateral (values
    (l.key_limit_count, null::real, l.limit_key), (l.key_rate_count, l.rate_seconds, l.rate_key)
  ) as g (capacity, seconds, path)
  cross join lateral (select payload #>> string_to_array(g.path, '.') as whole) given
  cross join lateral (
    select case when length(given.whole) > 200 then md5(given.whole) else given.whole end as value) field
  where g.capacity is not null
$$;
ALTER FUNCTION holdfast.key_gates(job_type text, tenant text, payload jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.key_gates(job_type text, tenant text, payload jsonb) IS 'The gates of a job whose type is limited per value of a field of its payload.';
CREATE FUNCTION holdfast.keys_after(only_tenant text, after uuid, max_keys integer) RETURNS SETOF holdfast.api_keys
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select k.*
  from api_keys k
  where (only_tenant is null or k.tenant = only_tenant)
    and (keys_after.after is null
      or (k.created_at, k.id) > (select last.created_at, last.id from api_keys last where last.id = keys_after.after))
  order by k.created_at, k.id
  limit max_keys
$$;
ALTER FUNCTION holdfast.keys_after(only_tenant text, after uuid, max_keys integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.keys_after(only_tenant text, after uuid, max_keys integer) IS 'A page of keys, oldest first, after the given one.';
CREATE FUNCTION holdfast.known_clock_steps() RETURNS TABLE(id bigint, seconds_ago double precision, lead double precision)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select s.id, extract(epoch from now() - s.noticed_at)::double precision - (sum(s.seconds) over later - s.seconds),
    sum(s.seconds) over later
  from clock_steps s
  window later as (order by s.id desc)
$$;
ALTER FUNCTION holdfast.known_clock_steps() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.known_clock_steps() IS 'The steps of the clock, with the time that has really passed since each (`seconds_ago`: later steps do not count) and the sum of all steps from this one on (`lead`).';
CREATE FUNCTION holdfast.known_lanes() RETURNS TABLE(lane text)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select unnest(array['fast', 'general'])
  union
  select t.lane from job_types t
  union
  select jsonb_object_keys(w.lanes) from live_workers() w
  union
  select c.name from controls c where c.kind = 'lane'
$$;
ALTER FUNCTION holdfast.known_lanes() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.known_lanes() IS 'The lanes: fast and general, and custom lanes that a job type, a live worker or a pause names.';
CREATE FUNCTION holdfast.lane_of(number bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select (number >> 48)::integer
$$;
ALTER FUNCTION holdfast.lane_of(number bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lane_of(number bigint) IS 'The lane of a claim''s number: the upper 16 bits.';
CREATE FUNCTION holdfast.lane_slots(only_tenant text DEFAULT NULL::text) RETURNS TABLE(lane text, slots bigint, used bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
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
ALTER FUNCTION holdfast.lane_slots(only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lane_slots(only_tenant text) IS 'The slots of each lane of live workers that do not drain, and how many of them are in use.';
CREATE FUNCTION holdfast.lapse(job_ids uuid[], patience double precision) RETURNS TABLE(job_id uuid, attempt integer, worker text, state text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  ids := array(
    select l.job_id
    from leases l
    where l.job_id = any (job_ids)
      and l.expires_at < now()
      and l.lease_seconds <= coalesce(patience, leader_patience())
    order by l.job_id
    for update skip locked);
  if cardinality(ids) > 0 then
    return query select * from lose(ids);
  end if;
end
$$;
ALTER FUNCTION holdfast.lapse(job_ids uuid[], patience double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lapse(job_ids uuid[], patience double precision) IS 'Close lapsed leases among the given jobs, of any worker.';
CREATE FUNCTION holdfast.last_cursor(job_id uuid) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return (select p.cursor from job_progress p where p.job_id = last_cursor.job_id);
end
$$;
ALTER FUNCTION holdfast.last_cursor(job_id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.last_cursor(job_id uuid) IS 'The cursor that earlier attempts left.';
CREATE TABLE holdfast.job_progress (
    job_id uuid NOT NULL,
    attempt integer NOT NULL,
    seqs int8multirange NOT NULL,
    progress_count bigint NOT NULL,
    result_count bigint NOT NULL,
    cursor jsonb,
    last_progress_at timestamp with time zone DEFAULT now() NOT NULL,
    done_reason text,
    log_excerpt text,
    CONSTRAINT job_progress_done_reason_check CHECK ((done_reason = ANY (ARRAY['worker_done'::text, 'target_reached'::text, 'no_more_results'::text])))
)
WITH (fillfactor='50');
ALTER TABLE holdfast.job_progress OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.job_progress IS 'How far jobs have come, for those that report it.';
CREATE FUNCTION holdfast.late_report(worker text, job_id uuid, attempt integer, report jsonb, final boolean, seq integer, job_state text, known holdfast.job_progress) RETURNS TABLE(verdict text, state text, owned boolean, directive text, lease_expires_at timestamp with time zone, lease_remaining double precision, progress_count bigint, result_count bigint, outcome text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  ended job_attempts;
begin
  perform vouch();
  owned := false;
  select t.* into ended
  from job_attempts t
  where t.job_id = late_report.job_id and t.attempt = late_report.attempt and t.worker = late_report.worker;
  if not found or ended.outcome = 'lost' or ended.taken_back is true then
    verdict := 'lease-lost';
  elsif (final and ended.report_digest = remote_digest(report))
    or (not final and known.attempt = late_report.attempt and known.seqs @> seq::bigint) then
    verdict := 'repeated';
    state := job_state;
    directive := remote_directive(worker, null, false);
    progress_count := coalesce(known.progress_count, 0);
    result_count := coalesce(known.result_count, 0);
  else
    verdict := 'already-reported';
    outcome := ended.outcome;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.late_report(worker text, job_id uuid, attempt integer, report jsonb, final boolean, seq integer, job_state text, known holdfast.job_progress) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.late_report(worker text, job_id uuid, attempt integer, report jsonb, final boolean, seq integer, job_state text, known holdfast.job_progress) IS 'The answer to a report about an attempt that its worker does not own any more: a repeat of what ended it, or of what it reported before; too late; or of a lease that was lost.';
CREATE FUNCTION holdfast.lead(name text, candidate text, seconds double precision) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select p.leads from preside(lead.name, lead.candidate, lead.seconds) p
$$;
ALTER FUNCTION holdfast.lead(name text, candidate text, seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lead(name text, candidate text, seconds double precision) IS 'Become or stay the leader, for leaders of older releases.';
CREATE FUNCTION holdfast.leader_patience() RETURNS double precision
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(max(l.patience_seconds), 0)
  from leaders l
  where l.name = 'maintenance'
    and l.renewed_at between clock_timestamp() - interval '4 seconds' and clock_timestamp() + interval '1 second'
$$;
ALTER FUNCTION holdfast.leader_patience() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.leader_patience() IS 'For how long the leader has been in touch with the database; 0 if there is no leader, or if its last renewal does not fit the clock.';
CREATE FUNCTION holdfast.lease_expired(id uuid, by text, words text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform from take_back(array[id], 'LeaseLost', format(
    'its lease was ended by %s%s', coalesce(lease_expired.by, 'an operator'), ': ' || nullif(words, '')));
  if found then
    insert into job_events (job_id, event, by, note)
    values (lease_expired.id, 'lease-expired', lease_expired.by, words);
    -- Its worker may live, and is told at once that this attempt is not its own any more.
    perform pg_notify(current_schema() || '.interrupt', lease_expired.id::text);
    return true;
  end if;
  return false;
end
$$;
ALTER FUNCTION holdfast.lease_expired(id uuid, by text, words text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lease_expired(id uuid, by text, words text) IS 'Close the attempt of a running job as lost, although its lease has not lapsed.';
CREATE FUNCTION holdfast.lease_length(seconds double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select least(greatest(seconds, 0.1), 604800)
$$;
ALTER FUNCTION holdfast.lease_length(seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lease_length(seconds double precision) IS 'A lease length, cut to its bounds: a setting may be out of them.';
CREATE FUNCTION holdfast.letter_columns() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array['id', 'tenant', 'type', 'state', 'finished_at', 'acknowledged', 'print']
$$;
ALTER FUNCTION holdfast.letter_columns() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.letter_columns() IS 'What a letter says by itself of its job, by the names of jobs; `acknowledged` and `print` (its fingerprint) are its own.';
CREATE FUNCTION holdfast.letter_condition(tree jsonb, place text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform check_query_size(tree);
  return replace(
    replace(condition_at(tree, place), acknowledged_operand(), 'j.acknowledged'), fingerprint_operand(), 'j.print');
end
$$;
ALTER FUNCTION holdfast.letter_condition(tree jsonb, place text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.letter_condition(tree jsonb, place text[]) IS 'The condition of a part of a query, where a letter says by itself whether it is acknowledged, and of which fingerprint.';
CREATE FUNCTION holdfast.letter_standing(id uuid, only_tenant text, OUT outcome text, OUT state text, OUT type text, OUT tenant text) RETURNS record
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.letter_standing(id uuid, only_tenant text, OUT outcome text, OUT state text, OUT type text, OUT tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.letter_standing(id uuid, only_tenant text, OUT outcome text, OUT state text, OUT type text, OUT tenant text) IS 'Whether there is a letter: `dead`, or why there is none.';
CREATE FUNCTION holdfast.like_escaped(value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select replace(replace(replace(value, '\', '\\'), '%', '\%'), '_', '\_')
$$;
ALTER FUNCTION holdfast.like_escaped(value text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.like_escaped(value text) IS 'A text as a pattern of `like` that matches nothing else.';
CREATE FUNCTION holdfast.limitable_by(tenant text, queue text, type text) RETURNS TABLE(kind text, name text)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select subject.kind, subject.name
  from (values ('tenant', tenant), ('queue', queue), ('type', type)) as subject (kind, name)
$$;
ALTER FUNCTION holdfast.limitable_by(tenant text, queue text, type text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.limitable_by(tenant text, queue text, type text) IS 'The subjects by which a job can be limited.';
CREATE FUNCTION holdfast.limited_types() RETURNS SETOF holdfast.job_types
    LANGUAGE sql STABLE
    AS $$
  select t.* from job_types t where t.limit_count is not null or t.rate_count is not null
$$;
ALTER FUNCTION holdfast.limited_types() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.limited_types() IS 'The job types that declare a limit.';
CREATE TABLE holdfast.controls (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    paused_at timestamp with time zone,
    paused_by text,
    paused_note text,
    limit_count integer,
    rate_count integer,
    rate_seconds real,
    weight real,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_by text,
    paused_tenant text COLLATE pg_catalog."C",
    paused_public boolean DEFAULT false NOT NULL,
    CONSTRAINT controls_limit_check CHECK (((limit_count >= 0) AND (limit_count <= 10000))),
    CONSTRAINT controls_rate_check CHECK ((((rate_count >= 1) AND (rate_count <= 10000)) AND ((rate_seconds >= (0.001)::double precision) AND (rate_seconds <= (2678400)::double precision)))),
    CONSTRAINT controls_rate_whole_check CHECK ((num_nulls(rate_count, rate_seconds) <> 1)),
    CONSTRAINT controls_weight_check CHECK (((weight >= (0.001)::double precision) AND (weight <= (1000)::double precision)))
);
ALTER TABLE holdfast.controls OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.controls IS 'What operators paused, limited or weighted, and circuits that are not closed.';
CREATE FUNCTION holdfast.limits_by(decided holdfast.controls, declared holdfast.job_types) RETURNS TABLE(limit_count integer, rate_count integer, rate_seconds real, key_limit_count integer, key_rate_count integer, limit_key text, rate_key text, keyed boolean, limited boolean)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select
    case when declared.limit_key is null then most.at_once end,
    case when declared.rate_key is null then most.starts end,
    coalesce(decided.rate_seconds, declared.rate_seconds),
    case when declared.limit_key is not null then most.at_once end,
    case when declared.rate_key is not null then most.starts end,
    declared.limit_key,
    declared.rate_key,
    (declared.limit_key is not null and most.at_once is not null)
      or (declared.rate_key is not null and most.starts is not null),
    most.at_once is not null or most.starts is not null
  from (
    select coalesce(decided.limit_count, declared.limit_count) as at_once,
      coalesce(decided.rate_count, declared.rate_count) as starts) most
$$;
ALTER FUNCTION holdfast.limits_by(decided holdfast.controls, declared holdfast.job_types) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.limits_by(decided holdfast.controls, declared holdfast.job_types) IS 'The rule: which limits a subject has, given what operators set for it and, for a job type, what its code declares.';
CREATE FUNCTION holdfast.limits_in_force() RETURNS TABLE(kind text, name text, limit_count integer, rate_count integer, rate_seconds real, keyed boolean)
    LANGUAGE sql STABLE
    AS $$
  select c.kind, c.name, l.limit_count, l.rate_count, l.rate_seconds, l.keyed
  from controls c
  left join job_types t on c.kind = 'type' and t.name = c.name
  cross join lateral limits_by(c, t) l
  where l.limited
  union all
  select 'type', t.name, l.limit_count, l.rate_count, l.rate_seconds, l.keyed
  from limited_types() t
  cross join lateral limits_by(null, t) l
  where not exists (select from controls c where c.kind = 'type' and c.name = t.name)
$$;
ALTER FUNCTION holdfast.limits_in_force() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.limits_in_force() IS 'All limits in force, a row for each subject that has any.';
CREATE FUNCTION holdfast.limits_of(kind text, name text) RETURNS TABLE(limit_count integer, rate_count integer, rate_seconds real, key_limit_count integer, key_rate_count integer, limit_key text, rate_key text, keyed boolean)
    LANGUAGE sql STABLE
    AS $$
  select l.limit_count, l.rate_count, l.rate_seconds, l.key_limit_count, l.key_rate_count, l.limit_key, l.rate_key,
    l.keyed
  from (values (true)) as always (row)
  left join controls c on c.kind = limits_of.kind and c.name = limits_of.name
  left join job_types t on limits_of.kind = 'type' and t.name = limits_of.name
  cross join lateral limits_by(c, t) l
$$;
ALTER FUNCTION holdfast.limits_of(kind text, name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.limits_of(kind text, name text) IS 'The limits in force for one subject.';
CREATE TABLE holdfast.audit_log (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    key_id uuid,
    tenant text,
    action text NOT NULL,
    subject text,
    detail jsonb,
    address text,
    request_id text
);
ALTER TABLE holdfast.audit_log OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.audit_log IS 'What operators and keys did; it is only ever added to.';
CREATE FUNCTION holdfast.list_audit(only_tenant text DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max_entries integer DEFAULT 50) RETURNS SETOF holdfast.audit_log
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select a.id, a.at, a.actor, a.key_id, a.tenant, a.action, a.subject,
    case when jsonb_typeof(a.detail) = 'object' and is_storable(a.detail, 20000) then a.detail end,
    a.address, a.request_id
  from audit_log a
  where (before is null or a.id < before) and (only_tenant is null or a.tenant = only_tenant)
  order by a.id desc
  limit max_entries
$$;
ALTER FUNCTION holdfast.list_audit(only_tenant text, before bigint, max_entries integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_audit(only_tenant text, before bigint, max_entries integer) IS 'What operators and keys did, newest first; `before` is the last id of the previous page.';
CREATE FUNCTION holdfast.list_bulks(only_tenant text DEFAULT NULL::text, before uuid DEFAULT NULL::uuid, max_bulks integer DEFAULT 50, only_id uuid DEFAULT NULL::uuid) RETURNS SETOF holdfast.bulks
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select b.*
  from bulks b
  where (only_tenant is null or b.tenant = only_tenant)
    and (before is null or b.id < before)
    and (only_id is null or b.id = only_id)
  order by b.id desc
  limit max_bulks
$$;
ALTER FUNCTION holdfast.list_bulks(only_tenant text, before uuid, max_bulks integer, only_id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_bulks(only_tenant text, before uuid, max_bulks integer, only_id uuid) IS 'Bulk operations, newest first, before the given one.';
CREATE FUNCTION holdfast.list_circuits(only_tenant text DEFAULT NULL::text, only_name text DEFAULT NULL::text, after_name text DEFAULT NULL::text, after_tenant text DEFAULT NULL::text, max_circuits integer DEFAULT 50) RETURNS TABLE(name text, tenant text, state text, failure_count bigint, success_count bigint, opened_at timestamp with time zone, half_opened_at timestamp with time zone, next_probe_at timestamp with time zone, last_failure_at timestamp with time zone, last_error text, forced_by text, forced_note text, failure_threshold integer, failure_share double precision, window_seconds double precision, open_seconds double precision, probes integer, success_threshold integer, updated_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select c.name, c.tenant, c.state, t.failures, t.successes, c.opened_at, c.half_opened_at,
    nullif(c.next_probe_at, 'infinity'), greatest(t.last_failure_at, c.last_failure_at),
    coalesce(t.last_error, c.last_error), c.forced_by, c.forced_note, l.failure_threshold, c.failure_share,
    c.window_seconds, l.open_seconds, c.probes, c.success_threshold, c.updated_at
  from circuits c
  cross join lateral circuit_totals(c) t
  cross join lateral circuit_limits(c) l
  where (only_name is null or c.name = only_name)
    and (only_tenant is null or c.tenant = only_tenant)
    and (after_name is null or (c.name, c.tenant) > (after_name, coalesce(after_tenant, '')))
  order by c.name, c.tenant
  limit max_circuits
$$;
ALTER FUNCTION holdfast.list_circuits(only_tenant text, only_name text, after_name text, after_tenant text, max_circuits integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_circuits(only_tenant text, only_name text, after_name text, after_tenant text, max_circuits integer) IS 'Circuits by name, with what all workers have counted.';
CREATE TABLE holdfast.closed_types (
    name text NOT NULL COLLATE pg_catalog."C",
    closed_at timestamp with time zone DEFAULT now() NOT NULL,
    closed_by text NOT NULL,
    closed_note text
);
ALTER TABLE holdfast.closed_types OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.closed_types IS 'Job types that take no new jobs, with who closed them and why.';
CREATE FUNCTION holdfast.list_closed_types() RETURNS SETOF holdfast.closed_types
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select c.* from closed_types c order by c.name
$$;
ALTER FUNCTION holdfast.list_closed_types() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_closed_types() IS 'Job types that take no new jobs, by name.';
CREATE FUNCTION holdfast.list_controls() RETURNS SETOF holdfast.controls
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select * from list_steering()
$$;
ALTER FUNCTION holdfast.list_controls() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_controls() IS 'What operators have paused, limited and weighted.';
CREATE FUNCTION holdfast.list_failures(only_tenant text DEFAULT NULL::text, only_type text DEFAULT NULL::text, before_seen timestamp with time zone DEFAULT NULL::timestamp with time zone, before_fingerprint text DEFAULT NULL::text, before_tenant text DEFAULT NULL::text, max_rows integer DEFAULT 50, max_pending integer DEFAULT 5000) RETURNS TABLE(tenant text, fingerprint text, type text, error_type text, message text, count bigint, open_count bigint, open_more boolean, first_seen timestamp with time zone, last_seen timestamp with time zone, sample_job_id uuid)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $_$
#variable_conflict use_column
declare
  -- Each walk has an index with its order and nothing else. A tenant has a bounded number of fingerprints.
  walk text := case
    when only_tenant is not null then
      $w$where f.tenant = $1 and ($2 is null or f.type = $2) and not is_request(f.type)
        and (f.last_seen, f.fingerprint) < ($3, $4)
      order by f.last_seen desc, f.fingerprint desc$w$
    when only_type is not null then
      $w$where f.type = $2 and (f.last_seen, f.fingerprint, f.tenant) < ($3, $4, $5)
      order by f.last_seen desc, f.fingerprint desc, f.tenant desc$w$
    else
      $w$where (f.last_seen, f.fingerprint, f.tenant) < ($3, $4, $5)
      order by f.last_seen desc, f.fingerprint desc, f.tenant desc$w$
  end;
begin
  return query execute format($q$
    with pending as materialized (
      select p.id, p.at, p.job_id, p.attempt, p.fingerprint, j.tenant, j.type,
        not has_ended(j.state)
          and not exists (select from failing g where g.job_id = p.job_id and g.fingerprint = p.fingerprint) as is_open
      from (select f.* from failures f order by f.id desc limit $7) p
      join jobs j on j.id = p.job_id
      where ($1 is null or (j.tenant = $1 and not is_request(j.type))) and ($2 is null or j.type = $2)
    ), recent as materialized (
      select p.tenant, p.fingerprint, p.type, count(*) as count, min(p.at) as first_seen,
        least(max(p.at), clock_timestamp()) as last_seen,
        (array_agg(p.job_id order by p.id desc))[1] as job_id, (array_agg(p.attempt order by p.id desc))[1] as attempt,
        count(distinct p.job_id) filter (where p.is_open) as open_count
      from pending p
      group by p.tenant, p.fingerprint, p.type
    ), stored as materialized (
      select f.*
      from fingerprints f
      %s
      limit $6 + (select count(*) from recent)
    ), page as (
      select s.tenant, s.fingerprint, s.type, s.error_type, s.message, s.count, 0 as open_count, s.first_seen, s.last_seen,
        s.sample_job_id, null::integer as attempt
      from stored s
      where not exists (select from recent r where r.tenant = s.tenant and r.fingerprint = s.fingerprint)
      union all
      select r.tenant, r.fingerprint, r.type, f.error_type, f.message, r.count + coalesce(f.count, 0), r.open_count,
        least(r.first_seen, f.first_seen), greatest(r.last_seen, f.last_seen), r.job_id, r.attempt
      from recent r
      left join lateral (
        select f.* from fingerprints f where f.tenant = r.tenant and f.fingerprint = r.fingerprint offset 0) f on true
      where (greatest(r.last_seen, f.last_seen), r.fingerprint, r.tenant) < ($3, $4, $5)
      order by last_seen desc, fingerprint desc, tenant desc
      limit $6
    )
    select p.tenant, p.fingerprint, p.type, coalesce(p.error_type, a.error_type),
      coalesce(p.message, message_shown(p.fingerprint, p.type, a.error_type, a.error_message, a.outcome)), p.count,
      least(p.open_count + still.failing + still.letters, $8),
      p.open_count + still.failing + still.letters > $8, readable(p.first_seen), readable(p.last_seen),
      sample_of(p.tenant, p.fingerprint, p.sample_job_id)
    from page p
    left join lateral (
      select a.* from job_attempts a where a.job_id = p.sample_job_id and a.attempt = p.attempt offset 0) a on true
    cross join lateral (
      select
        (select count(*) from (
          select from failing g where g.fingerprint = p.fingerprint and g.tenant = p.tenant limit $8 + 1) g) as failing,
        (select count(*) from (
          select from dead_letters d
          where (d.fingerprint, d.tenant, d.acknowledged_at is null) >= (p.fingerprint, p.tenant, true)
            and (d.fingerprint, d.tenant, d.acknowledged_at is null) <= (p.fingerprint, p.tenant, true)
          limit $8 + 1) d) as letters) still
    order by p.last_seen desc, p.fingerprint desc, p.tenant desc
    $q$, walk)
  using only_tenant, only_type, coalesce(before_seen, 'infinity'), coalesce(before_fingerprint, ''),
    coalesce(before_tenant, ''), max_rows, max_pending,
    search_limit('open', 10000)::bigint;
end
$_$;
ALTER FUNCTION holdfast.list_failures(only_tenant text, only_type text, before_seen timestamp with time zone, before_fingerprint text, before_tenant text, max_rows integer, max_pending integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_failures(only_tenant text, only_type text, before_seen timestamp with time zone, before_fingerprint text, before_tenant text, max_rows integer, max_pending integer) IS 'Failures by fingerprint, the most recent first, before the given place: how many there were, and how many jobs still fail so or died of it unacknowledged (up to 10,000 are counted).';
CREATE FUNCTION holdfast.list_fires(schedule_id bigint, before timestamp with time zone DEFAULT NULL::timestamp with time zone, max_fires integer DEFAULT 20) RETURNS TABLE(fire_at timestamp with time zone, outcome text, job_id uuid, state text, missed_to timestamp with time zone, by text, decided_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select f.fire_at, f.outcome, f.job_id, j.state, f.missed_to, f.by, f.decided_at
  from schedule_fires f
  left join jobs j on j.id = f.job_id
  where f.schedule_id = list_fires.schedule_id and (before is null or f.fire_at < before)
  order by f.fire_at desc
  limit max_fires
$$;
ALTER FUNCTION holdfast.list_fires(schedule_id bigint, before timestamp with time zone, max_fires integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_fires(schedule_id bigint, before timestamp with time zone, max_fires integer) IS 'What became of the last fire times of a schedule, newest first, with the state of their jobs.';
CREATE FUNCTION holdfast.list_jobs(states text[] DEFAULT NULL::text[], types text[] DEFAULT NULL::text[], queues text[] DEFAULT NULL::text[], only_tenant text DEFAULT NULL::text, only_target text DEFAULT NULL::text, correlation text DEFAULT NULL::text, before uuid DEFAULT NULL::uuid, max_jobs integer DEFAULT 50, max_visited integer DEFAULT 200000) RETURNS SETOF holdfast.job_details
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select d.*
  from unnest(listed_ids(states, types, queues, only_tenant, only_target, correlation, before, max_jobs, max_visited))
    as page (id)
  join job_details d on d.id = page.id
  order by d.id desc
$$;
ALTER FUNCTION holdfast.list_jobs(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_jobs(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) IS 'Jobs, newest first, for programs that read few of them in psql or in their own statements.';
CREATE FUNCTION holdfast.list_keys(only_tenant text DEFAULT NULL::text) RETURNS SETOF holdfast.api_keys
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select k.* from api_keys k where only_tenant is null or k.tenant = only_tenant order by k.created_at, k.id
$$;
ALTER FUNCTION holdfast.list_keys(only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_keys(only_tenant text) IS 'All keys, or those of one tenant, oldest first.';
CREATE FUNCTION holdfast.list_lanes(only_tenant text DEFAULT NULL::text, only_name text DEFAULT NULL::text) RETURNS TABLE(name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamp with time zone, paused_by text, paused_note text, slots bigint, utilisation double precision)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, coalesce(offered.slots, 0),
    round(offered.used::numeric / nullif(offered.slots, 0), 3)::double precision
  from subject_figures('lane', only_tenant, only_name, null, 100) f
  left join lane_slots(only_tenant) offered on offered.lane = f.name
  order by f.name
$$;
ALTER FUNCTION holdfast.list_lanes(only_tenant text, only_name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_lanes(only_tenant text, only_name text) IS 'The lanes, with waiting and running jobs, pauses, slots and how many of them are in use.';
CREATE FUNCTION holdfast.list_queues(only_tenant text DEFAULT NULL::text, only_name text DEFAULT NULL::text, after text DEFAULT NULL::text, max_names integer DEFAULT 50) RETURNS TABLE(name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamp with time zone, paused_by text, paused_note text, limit_count integer, rate_count integer, rate_seconds real)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, f.limit_count,
    f.rate_count, f.rate_seconds
  from subject_figures('queue', only_tenant, only_name, after, max_names) f
$$;
ALTER FUNCTION holdfast.list_queues(only_tenant text, only_name text, after text, max_names integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_queues(only_tenant text, only_name text, after text, max_names integer) IS 'Queues by name, with waiting and running jobs, pauses and limits.';
CREATE TABLE holdfast.schedules (
    id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    cron text,
    every_seconds double precision,
    anchor timestamp with time zone DEFAULT now() NOT NULL,
    tz text DEFAULT 'UTC'::text NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    overlap text DEFAULT 'skip'::text NOT NULL,
    catch_up double precision NOT NULL,
    jitter double precision DEFAULT 0 NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    digest text COLLATE pg_catalog."C",
    replaced text[] DEFAULT '{}'::text[] NOT NULL,
    declared_at timestamp with time zone,
    retired_at timestamp with time zone,
    paused_at timestamp with time zone,
    paused_by text,
    paused_note text,
    next_fire_at timestamp with time zone,
    reckoned_from timestamp with time zone DEFAULT now() NOT NULL,
    reckoned_at timestamp with time zone DEFAULT now() NOT NULL,
    look_at timestamp with time zone DEFAULT now(),
    last_fire_at timestamp with time zone,
    last_job_id uuid,
    fired bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    last_error text,
    last_error_at timestamp with time zone,
    missed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    created_by text NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_by text NOT NULL,
    CONSTRAINT schedules_check CHECK ((num_nonnulls(cron, every_seconds) = 1)),
    CONSTRAINT schedules_overlap_check CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue'::text, 'allow'::text])))
)
WITH (fillfactor='80');
ALTER TABLE holdfast.schedules OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.schedules IS 'Schedules: when they fire, what they record, and the next fire time.';
CREATE FUNCTION holdfast.list_schedules(only_tenant text DEFAULT NULL::text, only_name text DEFAULT NULL::text, after_tenant text DEFAULT NULL::text, after_name text DEFAULT NULL::text, max_schedules integer DEFAULT 50) RETURNS SETOF holdfast.schedules
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select s.*
  from schedules s
  where (only_tenant is null or s.tenant = only_tenant)
    and (only_name is null or s.name = only_name)
    and (after_name is null or (s.tenant, s.name) > (after_tenant, after_name))
  order by s.tenant, s.name
  limit max_schedules
$$;
ALTER FUNCTION holdfast.list_schedules(only_tenant text, only_name text, after_tenant text, after_name text, max_schedules integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_schedules(only_tenant text, only_name text, after_tenant text, after_name text, max_schedules integer) IS 'Schedules by name, after the given tenant and name; only this one if `only_name` says so.';
CREATE FUNCTION holdfast.list_settings(only_name text DEFAULT NULL::text) RETURNS TABLE(name text, value text, origin text, default_value text, description text, updated_at timestamp with time zone, updated_by text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select s.name, setting(s.name),
    case
      when s.value is not null then 'database'
      when own_setting(s.name) is not null then 'environment'
      else 'default'
    end,
    s.default_value, s.description, s.updated_at, s.updated_by
  from settings s
  where only_name is null or s.name = only_name
  order by s.name
$$;
ALTER FUNCTION holdfast.list_settings(only_name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_settings(only_name text) IS 'All settings by name: the value that is in force for the caller''s session, and where it comes from.';
CREATE FUNCTION holdfast.list_steering() RETURNS SETOF holdfast.controls
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select c.* from controls c where c.kind <> 'circuit' order by c.kind, c.name
$$;
ALTER FUNCTION holdfast.list_steering() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_steering() IS 'What operators have paused, limited and weighted.';
CREATE FUNCTION holdfast.list_targets(only_tenant text DEFAULT NULL::text, only_blocked boolean DEFAULT false, after_tenant text DEFAULT NULL::text, after_target text DEFAULT NULL::text, max_targets integer DEFAULT 50, max_visited integer DEFAULT 10000) RETURNS TABLE(tenants text[], targets text[], reached_tenant text, reached_target text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_sort TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
#variable_conflict use_column
declare
  floor_tenant text := coalesce(after_tenant, only_tenant, '');
  floor_target text := case when after_tenant is null then '' else coalesce(after_target, '') end;
begin
  select array_agg(page.tenant order by page.tenant, page.target), array_agg(page.target order by page.tenant, page.target)
  into tenants, targets
  from (
    select visited.tenant, visited.target
    from (
      select h.tenant, h.target, h.job_id
      from heads h
      where (h.tenant, h.target) > (floor_tenant, floor_target) and (only_tenant is null or h.tenant = only_tenant)
      order by h.tenant, h.target
      limit max_visited) visited
    join jobs j on j.id = visited.job_id
    where not only_blocked or j.state in ('paused', 'error')
    limit max_targets) page;
  tenants := coalesce(tenants, '{}');
  targets := coalesce(targets, '{}');
  if cardinality(targets) = max_targets then
    reached_tenant := tenants[max_targets];
    reached_target := targets[max_targets];
  else
    select h.tenant, h.target into reached_tenant, reached_target
    from heads h
    where (h.tenant, h.target) > (floor_tenant, floor_target) and (only_tenant is null or h.tenant = only_tenant)
    order by h.tenant, h.target
    offset max_visited - 1
    limit 1;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.list_targets(only_tenant text, only_blocked boolean, after_tenant text, after_target text, max_targets integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_targets(only_tenant text, only_blocked boolean, after_tenant text, after_target text, max_targets integer, max_visited integer) IS 'The names of one page, by tenant and target, among the `max_visited` targets after (after_tenant, after_target) that have open jobs.';
CREATE FUNCTION holdfast.list_tenants(only_tenant text DEFAULT NULL::text, only_name text DEFAULT NULL::text, after text DEFAULT NULL::text, max_names integer DEFAULT 50) RETURNS TABLE(name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamp with time zone, paused_by text, paused_note text, limit_count integer, rate_count integer, rate_seconds real, weight real)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, f.limit_count,
    f.rate_count, f.rate_seconds, f.weight
  from subject_figures('tenant', only_tenant, only_name, after, max_names) f
$$;
ALTER FUNCTION holdfast.list_tenants(only_tenant text, only_name text, after text, max_names integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_tenants(only_tenant text, only_name text, after text, max_names integer) IS 'Tenants by name, with waiting and running jobs, pauses, limits and weights.';
CREATE FUNCTION holdfast.list_types(only_tenant text DEFAULT NULL::text, only_name text DEFAULT NULL::text, after text DEFAULT NULL::text, max_names integer DEFAULT 50) RETURNS TABLE(name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamp with time zone, paused_by text, paused_note text, limit_count integer, rate_count integer, rate_seconds real, queue text, lane text, version integer, declared_limit integer, declared_limit_key text, declared_rate_count integer, declared_rate_seconds real, declared_rate_key text, workers bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select f.name, f.waiting, f.waiting_more, f.running, f.paused_at, f.paused_by, f.paused_note, f.limit_count,
    f.rate_count, f.rate_seconds, coalesce(t.queue, 'default'), coalesce(t.lane, 'general'), t.version, t.limit_count,
    t.limit_key, t.rate_count, t.rate_seconds, t.rate_key,
    (select count(*) from live_workers() w where f.name = any (w.types) and not w.draining)
  from subject_figures('type', only_tenant, only_name, after, max_names) f
  left join job_types t on t.name = f.name
  order by f.name
$$;
ALTER FUNCTION holdfast.list_types(only_tenant text, only_name text, after text, max_names integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_types(only_tenant text, only_name text, after text, max_names integer) IS 'Job types by name, with waiting and running jobs, pauses and limits, what workers published about the type, and how many live workers know it.';
CREATE FUNCTION holdfast.list_workers(only_tenant text DEFAULT NULL::text, only_worker text DEFAULT NULL::text, after text DEFAULT NULL::text, max_rows integer DEFAULT 50) RETURNS TABLE(worker text, host text, pid integer, version text, kind text, lanes jsonb, used jsonb, types text[], queues text[], tenants text[], started_at timestamp with time zone, heartbeat_at timestamp with time zone, state text, quiet_at timestamp with time zone, quiet_by text, quiet_note text, running bigint, jobs jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  with page as materialized (
    select w.*
    from workers w
    where (only_worker is null or w.id = only_worker)
      and (list_workers.after is null or w.id > list_workers.after)
      and (only_tenant is null or w.tenants is null or only_tenant = any (w.tenants))
    order by w.id
    limit least(greatest(max_rows, 0), 10000)
  ), begun as (
    select l.worker, l.job_id, l.attempt, l.claimed_at, s.type, s.tenant, s.queue,
      row_number() over (partition by l.worker order by l.claimed_at, l.job_id) as place
    from leases l
    join streams s on s.id = l.stream
    where l.worker in (select page.id from page)
      and (only_tenant is null or s.tenant = only_tenant)
      and (l.number is null or exists (
        select from beginnings b
        where b.worker = l.worker and b.lane = lane_of(l.number) and l.number between 1 and b.number))
  ), busy as (
    select b.worker, count(*) as running,
      jsonb_agg(
        jsonb_build_object(
          'job_id', b.job_id, 'type', left(b.type, 200), 'tenant', left(b.tenant, 200), 'queue', left(b.queue, 200),
          'attempt', b.attempt, 'started_at', readable(b.claimed_at))
        order by b.place) filter (where b.place <= 100) as jobs
    from begun b
    group by b.worker
  )
  select page.id, page.host, page.pid, page.version, page.kind, page.lanes,
    case when only_tenant is null and live.id is not null then page.used end, page.types, page.queues,
    case when only_tenant is null or page.tenants is null then page.tenants else array[only_tenant] end,
    readable(page.started_at), readable(page.heartbeat_at),
    case
      when live.id is null then 'lost'
      when page.draining or page.quiet_at is not null then 'draining'
      else 'live'
    end,
    readable(page.quiet_at),
    case when only_tenant is null then page.quiet_by end,
    case when only_tenant is null then page.quiet_note end,
    coalesce(busy.running, 0), coalesce(busy.jobs, '[]')
  from page
  left join live_workers() live on live.id = page.id
  left join busy on busy.worker = page.id
  order by page.id
$$;
ALTER FUNCTION holdfast.list_workers(only_tenant text, only_worker text, after text, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.list_workers(only_tenant text, only_worker text, after text, max_rows integer) IS 'Workers by id, with the jobs that they run: up to a hundred for each, oldest first; not those that were claimed ahead of the slots and have not begun.';
CREATE FUNCTION holdfast.listed_ids(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer DEFAULT 200000) RETURNS uuid[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select array(
    select recent.id
    from (
      select j.id, j.state, j.type, j.queue, j.tenant, j.target, j.correlation_id
      from jobs j
      where before is null or j.id < before
      order by j.id desc
      limit max_visited) recent
    where (states is null or recent.state = any (states))
      and (types is null or recent.type = any (types))
      and (types is not null or not is_request(recent.type))
      and (queues is null or recent.queue = any (queues))
      and (only_tenant is null or recent.tenant = only_tenant)
      and (only_target is null or recent.target = only_target)
      and (correlation is null or coalesce(recent.correlation_id, recent.id::text) = correlation)
    limit max_jobs)
$$;
ALTER FUNCTION holdfast.listed_ids(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.listed_ids(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) IS 'The ids of a list, newest first; `before` is the last id of the previous page.';
CREATE FUNCTION holdfast.live_workers() RETURNS SETOF holdfast.workers
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select w.* from workers w where not is_lost(w)
$$;
ALTER FUNCTION holdfast.live_workers() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.live_workers() IS 'Workers that live: those with a heartbeat within the last 15 seconds; remote ones, which may have nothing to say for longer, within the last 90.';
CREATE FUNCTION holdfast.lock_head(tenant text, target text, patience integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    AS $$
begin
  -- Only for this call, because of the setting above.
  perform set_config('lock_timeout', patience::text, true);
  perform from heads h where h.tenant = lock_head.tenant and h.target = lock_head.target for update;
  return found;
exception
  when lock_not_available then
    return null;
end
$$;
ALTER FUNCTION holdfast.lock_head(tenant text, target text, patience integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lock_head(tenant text, target text, patience integer) IS 'Lock the row of a target that another session has locked.';
CREATE FUNCTION holdfast.lock_permits(INOUT shares holdfast.claim_share[], round integer, dealt boolean, OUT permits holdfast.claim_permit[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  asked   integer[] := array(select s.stream from unnest(shares) s);
  parties integer[] := case when dealt then array(select s.party from unnest(shares) s) end;
  wanted  integer[] := array(select s.share from unnest(shares) s);
  starts  integer[] := array_fill(0, array[cardinality(asked)]);
  capped  boolean[] := array_fill(false, array[cardinality(asked)]);
  step    record;
  wish    record;
  got     integer[];
  more    integer;
  rest    integer;
  before  integer;
  visits  integer;
begin
  permits := '{}';
  for step in select t.number, t.part, t.tenant from permit_turns(asked, parties) t order by t.turn loop
    continue when step.part is null and dealt and not capped[step.number];
    more := wanted[step.number] - starts[step.number];
    before := cardinality(permits);
    visits := 0;
    for wish in select g.gate, g.capacity, g.seconds, g.kind, g.name from gates_of(asked[step.number]) g loop
      if step.part < 1 and (wish.kind, wish.name) <> ('tenant', step.tenant) then
        rest := floor(wish.capacity * step.part + 1e-9) - permits_of(wish.gate, wish.seconds, step.tenant) - (
          select count(*)::integer
          from unnest(permits) p
          where p.gate = wish.gate and parties[p.number] = parties[step.number]);
        capped[step.number] := capped[step.number] or rest < more;
        more := greatest(0, least(more, rest));
      end if;
      exit when more = 0;
      got := grab(
        wish.gate, wish.capacity, wish.seconds, more,
        array(select p.slot from unnest(permits) p where p.gate = wish.gate));
      more := cardinality(got);
      visits := visits + 1;
      exit when more = 0;
      permits := permits || array(
        select row(wish.gate, slot, step.number, null)::claim_permit from unnest(got) as slot);
    end loop;
    if visits > 1 or more = 0 then
      -- Permits that the next gate could not match are left to other streams.
      permits := array(
        select row(p.gate, p.slot, p.number, null)::claim_permit
        from (
          select p.*, row_number() over (partition by p.place > before, p.gate order by p.slot) as nth
          from unnest(permits) with ordinality as p (gate, slot, number, job_id, place)) p
        where p.place <= before or p.nth <= more
        order by p.place);
    end if;
    starts[step.number] := starts[step.number] + more;
  end loop;
  shares := array(
    select row(
        s.range, s.stream, s.rank, s.seq, s.ceiling,
        case
          when keyed.yes then
            least(greatest(1000, starts[s.number]), (starts[s.number] + 8) * (1 << least(2 * (round - 1), 16)))
          else starts[s.number]
        end,
        s.party, s.portion, starts[s.number], keyed.yes)::claim_share
    from unnest(shares) with ordinality
      as s (range, stream, rank, seq, ceiling, share, party, portion, allowed, keyed, number)
    cross join lateral (select starts[s.number] > 0 and has_keys(s.stream) as yes) keyed
    order by s.number);
end
$$;
ALTER FUNCTION holdfast.lock_permits(INOUT shares holdfast.claim_share[], round integer, dealt boolean, OUT permits holdfast.claim_permit[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lock_permits(INOUT shares holdfast.claim_share[], round integer, dealt boolean, OUT permits holdfast.claim_permit[]) IS 'Lock permits for a share of each stream.';
CREATE FUNCTION holdfast.longest_opening() RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select 900::double precision
$$;
ALTER FUNCTION holdfast.longest_opening() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.longest_opening() IS 'The longest time for which a circuit stays open by itself, however often it opened, and the longest delay of a job.';
CREATE FUNCTION holdfast.lose(job_ids uuid[]) RETURNS TABLE(job_id uuid, attempt integer, worker text, state text)
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select * from take_back(job_ids, 'LeaseLost', 'the worker stopped renewing its lease')
$$;
ALTER FUNCTION holdfast.lose(job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lose(job_ids uuid[]) IS 'Close the attempts of these jobs as lost: their workers stopped renewing their leases.';
CREATE FUNCTION holdfast.lose_each(job_ids uuid[]) RETURNS TABLE(job_id uuid, attempt integer, worker text, state text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  one uuid;
begin
  begin
    return query select * from lose(job_ids);
    return;
  exception
    when query_canceled or lock_not_available or deadlock_detected or serialization_failure or admin_shutdown
      or insufficient_resources or read_only_sql_transaction then
      raise;
    when others then
      raise warning 'lapsed leases are settled one by one: %', sqlerrm;
  end;
  foreach one in array job_ids loop
    begin
      return query select * from lose(array[one]);
    exception
      when query_canceled then
        raise;
      when others then
        raise warning 'the lapsed lease of job % cannot be settled: %', one, sqlerrm;
        update leases l set expires_at = now() + make_interval(secs => l.lease_seconds) where l.job_id = one;
        perform note_repair('lapse-refused', 1);
    end;
  end loop;
end
$$;
ALTER FUNCTION holdfast.lose_each(job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.lose_each(job_ids uuid[]) IS 'Close the attempts of these jobs, all at once, or one by one if that fails: a row that cannot be settled must not keep the others.';
CREATE FUNCTION holdfast.make_room(job_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  gates   text[];
  lines   integer[];
  counts  bigint[];
begin
  select array_agg(g.gate), array_agg(g.stream), array_agg(g.number) into gates, lines, counts
  from (
    select k.gate, s.id as stream, count(*) as number
    from jobs j
    cross join lateral key_gates(j.type, j.tenant, j.payload) k
    join streams s on s.type = j.type and s.tenant = j.tenant and s.closed_in is null
    where j.id = any (job_ids) and k.seconds is null
    group by k.gate, s.id) g;
  if gates is not null then
    perform unpark(gates, lines, counts);
  end if;
  lines := array(
    select s.id
    from streams s
    where s.type = any (array(
        select kind.name
        from (select distinct j.type from jobs j where j.id = any (job_ids)) as kind (name)
        cross join lateral limits_of('type', kind.name) l
        where l.limit_count is not null))
      and s.closed_in is null
    limit 65);
  if cardinality(lines) > 0 and (
    cardinality(lines) > 64 or exists (select from ready r where r.stream = any (lines))
  ) then
    perform wake('ready', lines);
  end if;
end
$$;
ALTER FUNCTION holdfast.make_room(job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.make_room(job_ids uuid[]) IS 'Bring back parked jobs after attempts have ended: as many as ended for each key, in every queue of the type, because it is unknown here which queue is served.';
CREATE FUNCTION holdfast.may_begin(worker text, numbers bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  insert into beginnings as b (worker, lane, number)
  select may_begin.worker, lane_of(n.number), n.number from unnest(numbers) as n (number)
  on conflict on constraint beginnings_pkey do update set number = greatest(b.number, excluded.number);
end
$$;
ALTER FUNCTION holdfast.may_begin(worker text, numbers bigint[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.may_begin(worker text, numbers bigint[]) IS 'Record that jobs up to these numbers, one per lane, are about to begin.';
CREATE FUNCTION holdfast.mend(id uuid, fault text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  job jobs;
begin
  select j.* into job from jobs j where j.id = mend.id for update skip locked;
  if not found or not exists (
    select from broken_among(array[mend.id]) b where b.fault = mend.fault
  ) then
    return false;
  end if;
  if fault = 'waiting-without-due' then
    insert into due (run_at, job_id) values (job.run_at, job.id) on conflict do nothing;
    return true;
  end if;
  if fault = 'dormant-without-row' then
    perform note_dormancy(job, null);
    return true;
  end if;
  if fault = 'ended-by-hand' then
    update jobs j set finished_at = coalesce(j.finished_at, now()), updated_at = now(), dedup_key = null where j.id = job.id;
    return true;
  end if;
  if fault = 'running-without-lease' then
    -- Give it the missing lease, then settle it like any other lost attempt.
    insert into leases (job_id, attempt, stream, lease_seconds, claimed_at, ready_at, expires_at, worker)
    values (job.id, job.attempt, job.stream, 0, coalesce(job.started_at, job.updated_at),
      coalesce(job.started_at, job.updated_at), now(), 'unknown')
    on conflict on constraint leases_pkey do update set attempt = excluded.attempt, worker = excluded.worker;
    perform from settle(
      null, array[job.id], array[job.attempt], array['lost'], null, array['LeaseMissing'],
      array['the lease of this attempt was missing'], null, null, null, null);
    return true;
  end if;
  if job.target is null then
    insert into ready (stream, rank, seq, job_id)
    values (job.stream, ready_rank(job.priority, job.attempt > 0), job.seq, job.id)
    on conflict do nothing;
    perform wake_again(array[job.stream]);
  else
    if not exists (
      select from heads h where h.tenant = job.tenant and h.target = job.target and h.job_id = job.id) then
      insert into waiting (tenant, target, turn, place, job_id)
      values (job.tenant, job.target, 1, job.seq, job.id)
      on conflict do nothing;
    end if;
    perform seat(array[job.tenant], array[job.target]);
  end if;
  return true;
end
$$;
ALTER FUNCTION holdfast.mend(id uuid, fault text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.mend(id uuid, fault text) IS 'Give one job its missing row, if it is still missing once the job is locked.';
CREATE FUNCTION holdfast.message_shown(fingerprint text, type text, error_type text, error_message text, outcome text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when fingerprint_of(type, error_type, coalesce(error_message, outcome)) = fingerprint
    then normalized_message(coalesce(error_message, outcome))
  end
$$;
ALTER FUNCTION holdfast.message_shown(fingerprint text, type text, error_type text, error_message text, outcome text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.message_shown(fingerprint text, type text, error_type text, error_message text, outcome text) IS 'The message of a failure as it is shown for its fingerprint; null if the attempt does not have it any more, because its job was erased.';
CREATE FUNCTION holdfast.milliseconds(length interval) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select greatest(0, least(2147483647, date_part('epoch', length) * 1000))::integer
$$;
ALTER FUNCTION holdfast.milliseconds(length interval) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.milliseconds(length interval) IS 'A length of time in milliseconds, from 0 to the largest integer.';
CREATE FUNCTION holdfast.moment(at timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
$$;
ALTER FUNCTION holdfast.moment(at timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.moment(at timestamp with time zone) IS 'A moment as it is written in a sentence.';
CREATE FUNCTION holdfast.most_fingerprints() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select 10000
$$;
ALTER FUNCTION holdfast.most_fingerprints() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.most_fingerprints() IS 'How many fingerprints a tenant may have.';
CREATE FUNCTION holdfast.move_waiting(job holdfast.jobs, goal text, by text, note text, message text, resolves boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  moved    jobs;
  heads_it boolean := false;
begin
  -- The line of a target may change only while its row in `heads` is locked.
  if job.target is not null then
    insert into heads (tenant, target) values (job.tenant, job.target) on conflict do nothing;
    perform from heads h where h.tenant = job.tenant and h.target = job.target for update;
    if not found then
      return false;
    end if;
    heads_it := exists (
      select from heads h where h.tenant = job.tenant and h.target = job.target and h.job_id = job.id);
  end if;
  if job.state = 'queued' then
    perform from waiting w
    where w.tenant = job.tenant and w.target = job.target and w.turn in (0, 1) and w.place = job.seq
    for update skip locked;
    if (not found or job.target is null) and not take_entry(job.stream, job.priority, ready_seq(job)) then
      return false;
    end if;
  elsif job.state in ('scheduled', 'retry') then
    delete from due d
    where d.ctid in (
      select e.ctid from due e where e.run_at = job.run_at and e.job_id = job.id for update skip locked);
    if not found then
      return false;
    end if;
  end if;
  update jobs j
  set state = goal,
    seq = case
      when goal = 'queued' and (job.target is null or (job.state = 'scheduled' and not heads_it)) then nextval('places')
      else j.seq
    end,
    run_at = case when goal = 'queued' then least(j.run_at, now()) else j.run_at end,
    failures = case when job.state in ('paused', 'error') and goal not in ('canceled', 'dead') then 0 else j.failures end,
    reason = case
      when resolves then 'resolved'
      when goal in ('canceled', 'dead', 'paused') then goal
      else 'resumed' end,
    updated_at = now(),
    finished_at = case when goal in ('canceled', 'dead') then now() end,
    dedup_key = case when goal in ('canceled', 'dead') then null else j.dedup_key end
  where j.id = job.id and j.state = job.state and j.seq = job.seq and j.run_at = job.run_at
  returning j.* into moved;
  if not found then
    raise exception 'job % changed while its entry was locked', job.id using errcode = '40001';
  end if;
  if goal <> 'dead' then
    insert into job_events (job_id, event, by, note, message)
    values (
      job.id, case when resolves then 'resolved' when goal in ('queued', 'scheduled') then 'resumed' else goal end,
      move_waiting.by, move_waiting.note, move_waiting.message);
  end if;
  if goal = 'scheduled' then
    insert into due (run_at, job_id) values (moved.run_at, moved.id);
  elsif goal = 'queued' and moved.target is null then
    insert into ready (stream, rank, seq, job_id)
    values (moved.stream, ready_rank(moved.priority, false), moved.seq, moved.id);
    perform wake_again(array[moved.stream]);
  end if;
  if job.target is not null then
    if not heads_it then
      delete from waiting w
      where w.tenant = job.tenant and w.target = job.target and w.turn in (0, 1) and w.place = job.seq;
      if goal in ('queued', 'paused') then
        insert into waiting (tenant, target, turn, place, job_id)
        values (job.tenant, job.target, case goal when 'paused' then 0 else 1 end, moved.seq, moved.id);
      end if;
    end if;
    perform seat(array[job.tenant], array[job.target]);
  end if;
  return true;
end
$$;
ALTER FUNCTION holdfast.move_waiting(job holdfast.jobs, goal text, by text, note text, message text, resolves boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.move_waiting(job holdfast.jobs, goal text, by text, note text, message text, resolves boolean) IS 'Move a job that is not running.';
CREATE FUNCTION holdfast.named(worker text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select coalesce(worker, '')
$$;
ALTER FUNCTION holdfast.named(worker text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.named(worker text) IS 'The name of a worker.';
CREATE FUNCTION holdfast.named_states(tree jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  named text[] := all_states();
  part  jsonb;
begin
  if tree ? 'and' then
    return array(
      select distinct s.state
      from jsonb_array_elements(tree -> 'and') as p (part), unnest(named_states(p.part)) as s (state));
  elsif tree ? 'or' then
    for part in select p.part from jsonb_array_elements(tree -> 'or') as p (part) loop
      named := array(select unnest(named) intersect select unnest(named_states(part)));
    end loop;
    return named;
  elsif tree ->> 'field' = 'state' then
    return array(select jsonb_array_elements_text(tree -> 'value'));
  end if;
  return '{}';
end
$$;
ALTER FUNCTION holdfast.named_states(tree jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.named_states(tree jsonb) IS 'The states that a query names itself: by a term of its own (`state:success`), not by excluding others (`-state:queued`).';
CREATE FUNCTION holdfast.never_began(job_id uuid, attempt integer, worker text, number bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return number is not null
    and (
      number = 0
      or exists (
        select from beginnings b
        where b.worker = never_began.worker and b.lane = lane_of(never_began.number) and b.number < never_began.number))
    and 3 > (
      select count(*)
      from job_attempts t
      where t.job_id = never_began.job_id
        and t.attempt between never_began.attempt - 3 and never_began.attempt - 1
        and t.error_type = 'NeverBegan');
end
$$;
ALTER FUNCTION holdfast.never_began(job_id uuid, attempt integer, worker text, number bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.never_began(job_id uuid, attempt integer, worker text, number bigint) IS 'Whether an attempt never began, and may come back without costing an attempt.';
CREATE FUNCTION holdfast.next_state(outcome text, kind text, interrupt text, on_failure text, failures integer, max_attempts integer, delay_seconds double precision) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when outcome = 'success' then 'success'
    when interrupt in ('fail', 'kill') then 'dead'
    when interrupt = 'retry' then
      case when failures < max_attempts then 'retry' when on_failure = 'hold' then 'error' else 'dead' end
    when kind = 'hold' then 'error'
    when outcome = 'canceled' or interrupt in ('cancel', 'resolve') then 'canceled'
    when outcome = 'paused' or interrupt = 'pause' then 'paused'
    when outcome = 'released' then 'queued'
    when outcome = 'snoozed' then case when delay_seconds > 0 then 'scheduled' else 'queued' end
    when kind = 'fatal' then 'dead'
    when on_failure = 'hold' and (kind is distinct from 'retry' or failures >= max_attempts) then 'error'
    when failures >= max_attempts then 'dead'
    when outcome = 'lost' then 'queued'
    else 'retry'
  end
$$;
ALTER FUNCTION holdfast.next_state(outcome text, kind text, interrupt text, on_failure text, failures integer, max_attempts integer, delay_seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.next_state(outcome text, kind text, interrupt text, on_failure text, failures integer, max_attempts integer, delay_seconds double precision) IS 'What becomes of a running job, given what happened to its attempt.';
CREATE FUNCTION holdfast.normalized_message(message text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select left(
    regexp_replace(
      regexp_replace(
        left(message, 2000),
        $p$\Y"(?:[^"\\]|\\.)*(?:"|\\?$)|\Y`[^`]*(?:`|$)|[^\u0001-\u007f]'|\Y'(?:[^'\\]|\\.|'\w)*(?:'\Y|\\?$)|[-+]?(?:[A-Za-z0-9]*|\m[0-9a-fA-F-]*)[0-9][A-Za-z0-9.,:/+_-]*|\m[a-fA-F]{8,}\M$p$,
        '?', 'g'),
      '[?](?:[ ,]*[?])+', '?', 'g'),
    500)
$_$;
ALTER FUNCTION holdfast.normalized_message(message text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.normalized_message(message text) IS 'An error message without what differs from job to job: numbers, ids and quoted text, each of which becomes `?`.';
CREATE FUNCTION holdfast.note_audit(actor text, key_id uuid, tenant text, action text, subject text, detail jsonb DEFAULT NULL::jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  insert into audit_log (actor, key_id, tenant, action, subject, detail, address, request_id)
  values (
    coalesce(actor, 'unknown'), key_id, tenant, action, subject, detail,
    nullif(current_setting('holdfast.caller_address', true), ''),
    nullif(current_setting('holdfast.caller_request_id', true), ''))
$$;
ALTER FUNCTION holdfast.note_audit(actor text, key_id uuid, tenant text, action text, subject text, detail jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_audit(actor text, key_id uuid, tenant text, action text, subject text, detail jsonb) IS 'Write down what somebody did.';
CREATE FUNCTION holdfast.note_clock_step(seconds double precision, place bigint DEFAULT NULL::bigint) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  insert into clock_steps (seconds, place)
  values (least(greatest(note_clock_step.seconds, -1e12), 1e12), note_clock_step.place);
  delete from clock_steps s
  using known_clock_steps() k
  where k.id = s.id and k.seconds_ago > extract(epoch from greatest(retention_of(true), retention_of(false)))
$$;
ALTER FUNCTION holdfast.note_clock_step(seconds double precision, place bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_clock_step(seconds double precision, place bigint) IS 'Record by how many seconds the clock jumped between two renewals of leadership (negative: it was set back), and the place of the first renewal.';
CREATE FUNCTION holdfast.note_control(kind text, name text, verb text, by text, by_key uuid, detail jsonb) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform ask_to_repeat();
end
$$;
ALTER FUNCTION holdfast.note_control(kind text, name text, verb text, by text, by_key uuid, detail jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_control(kind text, name text, verb text, by text, by_key uuid, detail jsonb) IS 'Called by what operators decide.';
CREATE FUNCTION holdfast.note_created() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  insert into dormant (job_id, tenant) values (new.id, new.tenant) on conflict do nothing;
  return null;
end
$$;
ALTER FUNCTION holdfast.note_created() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_created() IS 'Note a new job that is not released yet.';
CREATE FUNCTION holdfast.note_decision(id uuid, request_id uuid, decision text, by text, note text, message text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  insert into pending_decisions (job_id, request_id, decision, by, note, message)
  values (note_decision.id, note_decision.request_id, decision, by, note, message)
  on conflict do nothing
$$;
ALTER FUNCTION holdfast.note_decision(id uuid, request_id uuid, decision text, by text, note text, message text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_decision(id uuid, request_id uuid, decision text, by text, note text, message text) IS 'Write down a decision, unless its request is known: a repeat is the same request.';
CREATE FUNCTION holdfast.note_dormancy(job holdfast.jobs, old_state text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  if is_dormant(job.state) then
    insert into dormant as d (job_id, tenant) values (job.id, job.tenant)
    on conflict (job_id) do update set tenant = excluded.tenant;
  elsif is_dormant(old_state) then
    delete from dormant d where d.job_id = job.id;
  end if;
end
$$;
ALTER FUNCTION holdfast.note_dormancy(job holdfast.jobs, old_state text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_dormancy(job holdfast.jobs, old_state text) IS 'Note a job that becomes dormant, or forget one that no longer is.';
CREATE FUNCTION holdfast.note_dormant(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  place text[];
  ids   uuid[];
begin
  mended := 0;
  select w.reached into place from walks w where w.name = 'dormant' for update skip locked;
  if not found then
    return next;
    return;
  end if;
  ids := array(
    select j.id
    from jobs j
    where j.id > coalesce(place[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by j.id
    limit max_rows);
  insert into dormant (job_id, tenant)
  select j.id, j.tenant from jobs j where j.id = any (ids) and is_dormant(j.state)
  on conflict do nothing;
  get diagnostics mended = row_count;
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
    update walks w set reached = note_dormant.reached where w.name = 'dormant';
  else
    delete from walks w where w.name = 'dormant';
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.note_dormant(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_dormant(after text[], max_rows integer) IS 'Note jobs that were dormant before there was this table.';
CREATE FUNCTION holdfast.note_found(bulk holdfast.bulks, ids uuid[], reached text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  added integer;
begin
  insert into bulk_jobs (bulk_id, place, job_id)
  select bulk.id, bulk.last_place + found.place, found.id
  from unnest(ids) with ordinality as found (id, place)
  on conflict do nothing;
  get diagnostics added = row_count;
  update bulks b
  set matched = b.matched + added, last_place = b.last_place + cardinality(ids), reached = note_found.reached,
    state = case when note_found.reached is null then 'running' else b.state end
  where b.id = bulk.id;
end
$$;
ALTER FUNCTION holdfast.note_found(bulk holdfast.bulks, ids uuid[], reached text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_found(bulk holdfast.bulks, ids uuid[], reached text[]) IS 'Note jobs as those that a bulk operation is about, and how far it has come; null if these were the last.';
CREATE FUNCTION holdfast.note_held(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  place text[];
  ids   uuid[];
begin
  mended := 0;
  select w.reached into place from walks w where w.name = 'held' for update skip locked;
  if not found then
    return next;
    return;
  end if;
  ids := array(
    select j.id
    from jobs j
    where j.id > coalesce(place[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by j.id
    limit max_rows);
  insert into failures (at, job_id, attempt, fingerprint)
  select a.finished_at, j.id, j.attempt, fingerprint_of(j.type, a.error_type, coalesce(a.error_message, a.outcome))
  from jobs j
  join job_attempts a on a.job_id = j.id and a.attempt = j.attempt
  where j.id = any (ids)
    and not has_ended(j.state)
    and (costs_attempt(a.outcome) or j.state = 'error')
    and a.finished_at < (select s.applied_at from schema_steps s where s.step = 31)
    and not exists (select from failing f where f.job_id = j.id);
  get diagnostics mended = row_count;
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
    update walks w set reached = note_held.reached where w.name = 'held';
  else
    delete from walks w where w.name = 'held';
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.note_held(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_held(after text[], max_rows integer) IS 'Have open jobs that failed before there were fingerprints added up like failures of today: those that are held would not be counted among what fails until they fail again.';
CREATE FUNCTION holdfast.note_repair(kind text, times bigint) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  insert into repairs as r (kind, count)
  select note_repair.kind, times
  where times > 0
  on conflict on constraint repairs_pkey do update
    set count = r.count + excluded.count, last_at = now()
$$;
ALTER FUNCTION holdfast.note_repair(kind text, times bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_repair(kind text, times bigint) IS 'Count rows that were found inconsistent, if there were any.';
CREATE FUNCTION holdfast.note_steering(kind text, name text, verb text, by text, by_key uuid, detail jsonb) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  delete from controls c
  where c.kind = note_steering.kind
    and c.name = note_steering.name
    and num_nonnulls(c.paused_at, c.limit_count, c.rate_count, c.weight) = 0;
  select note_audit(
    by, by_key, case when note_steering.kind = 'tenant' then note_steering.name end,
    note_steering.kind || '.' || verb, nullif(note_steering.name, ''), jsonb_strip_nulls(detail));
  select pg_notify(current_schema() || '.ready', '');
$$;
ALTER FUNCTION holdfast.note_steering(kind text, name text, verb text, by text, by_key uuid, detail jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.note_steering(kind text, name text, verb text, by text, by_key uuid, detail jsonb) IS 'Finish a change: delete an empty row, write the audit log, notify workers.';
CREATE FUNCTION holdfast.number_in_lane(number bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select number & ((1::bigint << 48) - 1)
$$;
ALTER FUNCTION holdfast.number_in_lane(number bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.number_in_lane(number bigint) IS 'The number of a claim within its lane: the lower 48 bits.';
CREATE FUNCTION holdfast.offer(types text[], queues text[], tenants text[], served integer[]) RETURNS TABLE(id integer, tenant text, queue text, type text, limited boolean, keyed boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  if cardinality(served) > 0 then
    perform serve_streams(served);
  end if;
  return query select o.* from open_streams(offer.types, offer.queues, offer.tenants) o;
end
$$;
ALTER FUNCTION holdfast.offer(types text[], queues text[], tenants text[], served integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.offer(types text[], queues text[], tenants text[], served integer[]) IS 'The streams from which a worker may claim, for a worker that says from which of them it has claimed since its last call.';
CREATE FUNCTION holdfast.oldest_transaction() RETURNS xid8
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  following bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  oldest    bigint;
begin
  -- The session may have cached older statistics about others.
  perform pg_stat_clear_snapshot();
  -- 32-bit numbers, at most half of their range away. Prepared transactions are read last: until it is prepared, a
  -- transaction belongs to its session.
  select min(following - case when other.back < 2147483648 then other.back else other.back - 4294967296 end) into oldest
  from (
    select (following - number.xid::text::bigint) & 4294967295 as back
    from pg_stat_get_activity(null) a
    cross join lateral (values (a.backend_xmin), (a.backend_xid)) as number (xid)
    where a.datid = (select d.oid from pg_database d where d.datname = current_database()) and a.pid <> pg_backend_pid()
      -- The server's own vacuum has no user. It records no jobs, and may take hours.
      and a.usesysid is not null
    union all
    select (following - p.transaction::text::bigint) & 4294967295
    from pg_prepared_xacts p
    where p.database = current_database()) other;
  return coalesce(oldest, following)::text::xid8;
end
$$;
ALTER FUNCTION holdfast.oldest_transaction() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.oldest_transaction() IS 'The oldest transaction that is open in this database, or whose end another session does not see; if there is none, the next one.';
CREATE FUNCTION holdfast.open_circuit(name text, tenant text, seconds double precision, by text, reason text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  fault text;
begin
  perform check_circuit_change(open_circuit.name, open_circuit.tenant, by, reason);
  fault := coalesce(
    bounds_fault('seconds', 'circuit_forced', open_circuit.seconds::numeric),
    case
      when not exists (select from circuits c where c.tenant = open_circuit.tenant and c.name = open_circuit.name)
        then join_circuit(open_circuit.tenant, open_circuit.name, '{}')
    end);
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
  update circuits c
  set state = 'open', generation = c.generation + 1, opening_seconds = open_circuit.seconds, probe_successes = 0,
    opened_at = now(), half_opened_at = null,
    next_probe_at = coalesce(now() + make_interval(secs => open_circuit.seconds), 'infinity'),
    forced_by = by, forced_note = reason, updated_at = now()
  where c.tenant = open_circuit.tenant and c.name = open_circuit.name;
  perform shut_circuit(open_circuit.tenant, open_circuit.name);
  perform note_audit(by, by_key, nullif(open_circuit.tenant, ''), 'circuit.open', open_circuit.name,
    jsonb_strip_nulls(jsonb_build_object('note', reason, 'seconds', seconds)));
end
$$;
ALTER FUNCTION holdfast.open_circuit(name text, tenant text, seconds double precision, by text, reason text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.open_circuit(name text, tenant text, seconds double precision, by text, reason text, by_key uuid) IS 'Open a circuit by hand for some seconds, after which it is tried again; or, with null, until somebody resets it.';
CREATE FUNCTION holdfast.open_on_pages(first_page bigint, max_pages integer) RETURNS uuid[]
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_indexscan TO 'off'
    SET enable_indexonlyscan TO 'off'
    SET enable_tidscan TO 'on'
    AS $$
  select array(
    select j.id
    from jobs j
    where j.ctid >= format('(%s,0)', least(first_page, 4294967295))::tid
      and j.ctid < format('(%s,0)', least(first_page + max_pages, 4294967295))::tid
      and (
        j.state in ('queued', 'running', 'scheduled', 'retry', 'created', 'paused', 'error')
        or has_ended(j.state) and (j.finished_at is null or j.dedup_key is not null)))
$$;
ALTER FUNCTION holdfast.open_on_pages(first_page bigint, max_pages integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.open_on_pages(first_page bigint, max_pages integer) IS 'The open jobs on some pages of the table, and jobs that somebody ended by hand without the rest: nothing would ever retire them, and they would keep their dedup key.';
CREATE FUNCTION holdfast.open_run(schedule_id bigint) RETURNS uuid
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select j.id
  from (
    select f.job_id
    from schedule_fires f
    where f.schedule_id = open_run.schedule_id and f.job_id is not null
    order by f.fire_at desc
    limit 100) run
  join jobs j on j.id = run.job_id
  where not has_ended(j.state)
  limit 1
$$;
ALTER FUNCTION holdfast.open_run(schedule_id bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.open_run(schedule_id bigint) IS 'The job of a schedule that is still open; null if there is none.';
CREATE FUNCTION holdfast.open_streams(types text[], queues text[] DEFAULT NULL::text[], tenants text[] DEFAULT NULL::text[]) RETURNS TABLE(id integer, tenant text, queue text, type text, limited boolean, keyed boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  with line as materialized (
    select s.id, s.tenant, s.queue, s.type, t.lane, circuit_of(t, s.tenant) as circuit
    from eligible_streams(open_streams.types, open_streams.queues, open_streams.tenants) s
    left join job_types t on t.name = s.type
  ), rule as materialized (
    select l.kind, l.name, l.keyed from limits_in_force() l
  ), shut as materialized (
    select line.id
    from line
    cross join lateral pausable_by(line.tenant, line.queue, line.type, line.lane) subject
    join (
      select c.kind, c.name from controls c where c.paused_at is not null or c.limit_count = 0
    ) stop on stop.kind = subject.kind and stop.name = subject.name
  )
  select line.id, line.tenant, line.queue, line.type,
    num_nonnulls(of_type.name, of_queue.name, of_tenant.name, of_circuit.name) > 0, coalesce(of_type.keyed, false)
  from line
  left join rule of_type on of_type.kind = 'type' and of_type.name = line.type
  left join rule of_queue on of_queue.kind = 'queue' and of_queue.name = line.queue
  left join rule of_tenant on of_tenant.kind = 'tenant' and of_tenant.name = line.tenant
  left join controls of_circuit on of_circuit.kind = 'circuit' and of_circuit.name = line.circuit
  where not exists (select from shut where shut.id = line.id)
$$;
ALTER FUNCTION holdfast.open_streams(types text[], queues text[], tenants text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.open_streams(types text[], queues text[], tenants text[]) IS 'The streams from which a worker may claim, without paused ones, and whether they have limits.';
CREATE FUNCTION holdfast.open_tables() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array['due', 'waiting', 'ready', 'leases', 'dormant']
$$;
ALTER FUNCTION holdfast.open_tables() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.open_tables() IS 'The tables in which open jobs have their rows while they wait or run.';
CREATE FUNCTION holdfast.open_type(name text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  closed closed_types;
begin
  perform check_subject('type', open_type.name, array['type']);
  perform check_texts(by, note);
  delete from closed_types c where c.name = open_type.name returning c.* into closed;
  if not found then
    return false;
  end if;
  perform note_audit(by, by_key, null, 'type.open', open_type.name, jsonb_strip_nulls(jsonb_build_object(
    'note', note, 'closed_by', closed.closed_by, 'closed_at', closed.closed_at)));
  return true;
end
$$;
ALTER FUNCTION holdfast.open_type(name text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.open_type(name text, by text, note text, by_key uuid) IS 'Open a job type to new jobs again.';
CREATE FUNCTION holdfast.operator_error(verdict text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case verdict when 'kill' then 'KilledByOperator' else 'FailedByOperator' end
$$;
ALTER FUNCTION holdfast.operator_error(verdict text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.operator_error(verdict text) IS 'The error that an attempt has failed with under a verdict.';
CREATE FUNCTION holdfast.operator_request(verb text, id uuid, by text, note text DEFAULT NULL::text, only_tenant text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS TABLE(outcome text, runs_as uuid)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select r.outcome, r.runs_as
  from operator_request_as(verb, operator_request.id, by, note, only_tenant, by_key, false) r
$$;
ALTER FUNCTION holdfast.operator_request(verb text, id uuid, by text, note text, only_tenant text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.operator_request(verb text, id uuid, by text, note text, only_tenant text, by_key uuid) IS 'Ask for something about a job, with a note for operators only, as older servers do.';
CREATE FUNCTION holdfast.operator_request_as(verb text, id uuid, by text, note text, only_tenant text, by_key uuid, public boolean) RETURNS TABLE(outcome text, runs_as uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  answer  text;
  created uuid;
begin
  if verb = 'release' then
    select r.outcome into answer from release_held(array[operator_request_as.id], by, only_tenant) r;
  else
    select r.outcome, r.request_id into answer, created
    from record_requests(
      case verb when 'resolve' then 'cancel' else verb end, array[operator_request_as.id], by, note,
      case when public then note end, only_tenant, true, verb = 'resolve') r;
  end if;
  created := case when answer = 'new-job' then created end;
  if answer in ('accepted', 'released', 'new-job') then
    perform note_audit(by, by_key, (select j.tenant from jobs j where j.id = operator_request_as.id), 'job.' || verb,
      operator_request_as.id::text,
      jsonb_strip_nulls(jsonb_build_object('note', note, 'public', nullif(public, false), 'runs_as', created)));
  end if;
  return query select answer, coalesce(created, operator_request_as.id);
end
$$;
ALTER FUNCTION holdfast.operator_request_as(verb text, id uuid, by text, note text, only_tenant text, by_key uuid, public boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.operator_request_as(verb text, id uuid, by text, note text, only_tenant text, by_key uuid, public boolean) IS 'Ask for something in an operator''s name, as `request` and `release_held` do, and write down who did.';
CREATE FUNCTION holdfast.operator_words(verdict text, by text, words text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(nullif(words, ''), format('%s by %s', verdict_event(verdict), coalesce(by, 'an operator')))
$$;
ALTER FUNCTION holdfast.operator_words(verdict text, by text, words text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.operator_words(verdict text, by text, words text) IS 'The message of that error.';
CREATE FUNCTION holdfast.other_names(kind text, name text, max_names integer DEFAULT 1000) RETURNS text[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.other_names(kind text, name text, max_names integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.other_names(kind text, name text, max_names integer) IS 'The known names, up to `max_names`, if the given name is unknown; null if it is known.';
CREATE FUNCTION holdfast.other_shapes(worker text, type text, tenant text, queue text) RETURNS TABLE(shape text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select distinct s.shape::text
  from live_workers() w
  left join payload_shapes s on s.type = other_shapes.type and s.digest = w.shapes ->> other_shapes.type
  where w.id <> other_shapes.worker
    and other_shapes.type = any (w.types)
    and (w.queues is null or other_shapes.queue = any (w.queues))
    and (w.tenants is null or other_shapes.tenant = any (w.tenants))
$$;
ALTER FUNCTION holdfast.other_shapes(worker text, type text, tenant text, queue text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.other_shapes(worker text, type text, tenant text, queue text) IS 'The shapes of other live workers for jobs of this type, tenant and queue; a null shape accepts everything.';
CREATE FUNCTION holdfast.own_setting(name text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select case
    when setting_fault(name, nullif(current_setting('holdfast.' || lower(name), true), '')) is null then
      nullif(current_setting('holdfast.' || lower(name), true), '')
  end
$$;
ALTER FUNCTION holdfast.own_setting(name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.own_setting(name text) IS 'What the session''s environment says about a setting; null if that is nothing, or nothing that the engine can use.';
CREATE FUNCTION holdfast.page_bytes() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select 1048576
$$;
ALTER FUNCTION holdfast.page_bytes() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.page_bytes() IS 'How many bytes of text one read of many rows returns.';
CREATE FUNCTION holdfast.park(entries tid[], gates text[]) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  with taken as (
    delete from ready r
    using unnest(entries, gates) as e (tid, gate)
    where r.ctid = e.tid
    returning r.stream, r.rank, r.seq, r.job_id, r.ready_at, e.gate
  ), hidden as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select parked_stream(t.stream), t.rank, t.seq, t.job_id, t.ready_at from taken t
    on conflict do nothing
  )
  insert into parked as p (stream, rank, seq, gate)
  select t.stream, t.rank, t.seq, t.gate from taken t
  on conflict (stream, rank, seq) do update set gate = excluded.gate
$$;
ALTER FUNCTION holdfast.park(entries tid[], gates text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.park(entries tid[], gates text[]) IS 'Move entries of `ready` to where no claim looks.';
CREATE FUNCTION holdfast.parked_stream(stream integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select -stream
$$;
ALTER FUNCTION holdfast.parked_stream(stream integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.parked_stream(stream integer) IS 'The number under which the parked entries of a stream are stored.';
CREATE FUNCTION holdfast.pass_permits(entries holdfast.claim_entry[], wanted integer, shares holdfast.claim_share[], locked holdfast.claim_permit[], OUT passed integer[], OUT permits holdfast.claim_permit[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  share        claim_share;
  share_number integer := 0;
  line         streams;
  mine         integer[];
  started      integer;
  entry        record;
  wish         record;
  full_gate    text;
  full_gates   text[] := '{}';
  got          integer[];
  kept         integer;
  shut_tids    tid[] := '{}';
  shut_gates   text[] := '{}';
begin
  passed := '{}';
  permits := '{}';
  foreach share in array shares loop
    share_number := share_number + 1;
    mine := array(
      select e.place::integer
      from unnest(entries) with ordinality as e (tid, job_id, stream, rank, seq, ready_at, range, place)
      where e.range = share.range
      order by e.place);
    started := 0;
    if share.keyed then
      select s.* into line from streams s where s.id = share.stream;
      for entry in
        select m.position, j.payload
        from unnest(mine) as m (position)
        join jobs j on j.id = (entries[m.position]).job_id
        order by m.position
      loop
        exit when started >= share.allowed or cardinality(passed) >= wanted;
        full_gate := null;
        kept := cardinality(permits);
        for wish in select g.gate, g.capacity, g.seconds from key_gates(line.type, line.tenant, entry.payload) g loop
          got := case
            when wish.gate = any (full_gates) then '{}'
            else grab(
              wish.gate, wish.capacity, wish.seconds, 1,
              array(select p.slot from unnest(permits) p where p.gate = wish.gate))
          end;
          if cardinality(got) = 0 then
            full_gate := wish.gate;
            exit;
          end if;
          permits := permits || row(wish.gate, got[1], share_number, (entries[entry.position]).job_id)::claim_permit;
        end loop;
        if full_gate is null then
          started := started + 1;
          passed := passed || entry.position;
        else
          permits := permits[1:kept];
          full_gates := full_gates || full_gate;
          shut_tids := shut_tids || (entries[entry.position]).tid;
          shut_gates := shut_gates || full_gate;
        end if;
      end loop;
      mine := passed[cardinality(passed) - started + 1:];
    else
      mine := mine[1:least(share.allowed, wanted - cardinality(passed))];
      passed := passed || mine;
    end if;
    permits := permits || array(
      select row(p.gate, p.slot, share_number, (entries[mine[p.nth::integer]]).job_id)::claim_permit
      from (
        select p.gate, p.slot, row_number() over (partition by p.gate order by p.slot) as nth
        from unnest(locked) p
        where p.number = share_number) p
      where p.nth <= cardinality(mine));
  end loop;
  if cardinality(shut_tids) > 0 then
    perform park(shut_tids, shut_gates);
    perform wake('duty', array[0]);
  end if;
end
$$;
ALTER FUNCTION holdfast.pass_permits(entries holdfast.claim_entry[], wanted integer, shares holdfast.claim_share[], locked holdfast.claim_permit[], OUT passed integer[], OUT permits holdfast.claim_permit[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pass_permits(entries holdfast.claim_entry[], wanted integer, shares holdfast.claim_share[], locked holdfast.claim_permit[], OUT passed integer[], OUT permits holdfast.claim_permit[]) IS 'Of the entries that a claim has locked, those (by place) whose jobs may start, with the permits for each.';
CREATE FUNCTION holdfast.past_rates() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select 'rate of!'
$$;
ALTER FUNCTION holdfast.past_rates() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.past_rates() IS 'A text that sorts after the gates of all rates.';
CREATE FUNCTION holdfast.pausable_by(tenant text, queue text, type text, lane text) RETURNS TABLE(kind text, name text)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select subject.kind, subject.name
  from (values
    ('everything', ''), ('tenant', tenant), ('queue', queue), ('type', type), ('lane', coalesce(lane, 'general'))
  ) as subject (kind, name)
$$;
ALTER FUNCTION holdfast.pausable_by(tenant text, queue text, type text, lane text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pausable_by(tenant text, queue text, type text, lane text) IS 'The subjects by which a job can be paused, in the order in which they are named as the reason for waiting.';
CREATE FUNCTION holdfast.pause_schedule(name text, tenant text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  select s.* into old
  from schedules s
  where s.tenant = pause_schedule.tenant and s.name = pause_schedule.name and s.retired_at is null
  for update;
  if not found then
    return null;
  elsif old.paused_at is not null then
    perform vouch();
    return false;
  end if;
  update schedules s
  set paused_at = now(), paused_by = by, paused_note = note, look_at = null, next_fire_at = null
  where s.id = old.id;
  perform note_audit(
    by, by_key, tenant, 'schedule.pause', old.name, jsonb_strip_nulls(jsonb_build_object('note', note)));
  return true;
end
$$;
ALTER FUNCTION holdfast.pause_schedule(name text, tenant text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pause_schedule(name text, tenant text, by text, note text, by_key uuid) IS 'Stop a schedule from firing.';
CREATE FUNCTION holdfast.pause_scope(kind text, name text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select pause_subject(
    pause_scope.kind, pause_scope.name, by, note, by_key,
    tenant_of_key(pause_scope.kind, pause_scope.name, by_key), false)
$$;
ALTER FUNCTION holdfast.pause_scope(kind text, name text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pause_scope(kind text, name text, by text, note text, by_key uuid) IS 'Stop claims in a queue, type, lane or tenant, or everywhere, for the installation''s operators and for servers of older releases.';
CREATE FUNCTION holdfast.pause_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text, public boolean) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select pause_subject(
    pause_scope_as.kind, pause_scope_as.name, pause_scope_as.by, note, by_key, by_tenant, pause_scope_as.public)
$$;
ALTER FUNCTION holdfast.pause_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text, public boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pause_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text, public boolean) IS 'Stop claims in a queue, type, lane or tenant, or everywhere.';
CREATE FUNCTION holdfast.pause_subject(kind text, name text, by text, reason text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid, by_tenant text DEFAULT NULL::text, public boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  replaced text;
begin
  perform check_subject(pause_subject.kind, pause_subject.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  perform check_texts(by, reason);
  perform check_by_tenant(pause_subject.kind, pause_subject.name, by_tenant);
  select c.paused_by into replaced
  from controls c
  where c.kind = pause_subject.kind and c.name = pause_subject.name
  for update;
  insert into controls as c (kind, name, paused_at, paused_by, paused_note, paused_tenant, paused_public, updated_by)
  values (
    pause_subject.kind, pause_subject.name, now(), pause_subject.by, pause_subject.reason, by_tenant,
    coalesce(public, false), pause_subject.by)
  on conflict on constraint controls_pkey do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_note = excluded.paused_note,
      paused_tenant = excluded.paused_tenant, paused_public = excluded.paused_public, updated_at = now(),
      updated_by = excluded.updated_by
    where c.paused_at is null or (c.paused_tenant is not null and excluded.paused_tenant is null);
  if not found then
    return false;
  end if;
  perform note_steering(pause_subject.kind, pause_subject.name, 'pause', by, by_key,
    jsonb_build_object('note', reason, 'instead_of', replaced, 'public', nullif(public, false)));
  return true;
end
$$;
ALTER FUNCTION holdfast.pause_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text, public boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pause_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text, public boolean) IS 'Stop claims in a queue, type, lane or tenant, or everywhere.';
CREATE FUNCTION holdfast.payload_limit() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select setting('PAYLOAD_MAX_BYTES')::bigint
$$;
ALTER FUNCTION holdfast.payload_limit() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.payload_limit() IS 'How large a payload may be, in bytes.';
CREATE TABLE holdfast.pending_decisions (
    job_id uuid NOT NULL,
    request_id uuid NOT NULL,
    place bigint NOT NULL,
    decision text NOT NULL,
    by text,
    note text,
    message text,
    settled_by integer
);
ALTER TABLE holdfast.pending_decisions OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.pending_decisions IS 'What was accepted about jobs, and maintenance has not carried out yet.';
CREATE FUNCTION holdfast.pending_decision(id uuid) RETURNS SETOF holdfast.pending_decisions
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select d.*
  from pending_decisions d
  where d.job_id = pending_decision.id and d.settled_by is null
  order by firmness(d.decision) desc, d.place
  limit 1
$$;
ALTER FUNCTION holdfast.pending_decision(id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pending_decision(id uuid) IS 'Which of the pending decisions about a job holds: the firmest one, else the first.';
CREATE FUNCTION holdfast.pending_text(id uuid) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select format('; a request to %s it%s %s', d.decision, told(left(d.by, 500), null, left(d.note, 1000)), case
    when is_maintained() then 'is carried out in a moment'
    else 'was accepted, but no process does maintenance to carry it out' end)
  from pending_decision(pending_text.id) d
$$;
ALTER FUNCTION holdfast.pending_text(id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.pending_text(id uuid) IS 'What was decided about a job and not carried out yet, as the end of a sentence about it; null if there is nothing.';
CREATE TABLE holdfast.permits (
    gate text NOT NULL COLLATE pg_catalog."C",
    slot integer NOT NULL,
    job_id uuid,
    attempt integer,
    granted_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    entered bigint
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE holdfast.permits OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.permits IS 'The permits of limits and rates, with the attempts that have them.';
CREATE FUNCTION holdfast.permit_free(permit holdfast.permits, seconds real) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform ask_to_repeat();
end
$$;
ALTER FUNCTION holdfast.permit_free(permit holdfast.permits, seconds real) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.permit_free(permit holdfast.permits, seconds real) IS 'Called by `admit`.';
CREATE FUNCTION holdfast.permit_state(job_id uuid, attempt integer, granted_at timestamp with time zone, seconds real, moment timestamp with time zone) RETURNS TABLE(free boolean)
    LANGUAGE sql STABLE
    AS $$
  select case
    when seconds is null then
      not exists (select from leases l where l.job_id = permit_state.job_id and l.attempt = permit_state.attempt)
    else granted_at <= moment - make_interval(secs => seconds)
  end
$$;
ALTER FUNCTION holdfast.permit_state(job_id uuid, attempt integer, granted_at timestamp with time zone, seconds real, moment timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.permit_state(job_id uuid, attempt integer, granted_at timestamp with time zone, seconds real, moment timestamp with time zone) IS 'Whether a permit is free at a moment.';
CREATE FUNCTION holdfast.permit_turns(asked integer[], parties integer[]) RETURNS TABLE(turn bigint, number integer, part double precision, tenant text)
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  with line as (
    select l.number::integer as number, s.tenant, parties[l.number] as party, coalesce(c.weight, 1)::double precision as weight
    from unnest(asked) with ordinality as l (id, number)
    left join lateral (select s.tenant from streams s where s.id = l.id offset 0) s on true
    left join lateral (
      select c.weight from controls c where c.kind = 'tenant' and c.name = s.tenant offset 0) c on true
  ), party as materialized (
    select l.party, min(l.weight) as weight, min(l.weight) / sum(min(l.weight)) over () as part,
      row_number() over (order by -ln(1 - random()) / min(l.weight)) as lot
    from line l
    group by l.party
  )
  select row_number() over (order by t.again, case when t.again then party.lot end, l.number), l.number,
    case when not t.again then coalesce(party.part, 1) end, l.tenant
  from line l
  left join party on party.party = l.party
  cross join (values (false), (true)) as t (again)
  where not t.again or parties is not null
$$;
ALTER FUNCTION holdfast.permit_turns(asked integer[], parties integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.permit_turns(asked integer[], parties integer[]) IS 'The order in which streams ask for permits.';
CREATE FUNCTION holdfast.permits_of(gate text, seconds real, tenant text) RETURNS integer
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select count(*)::integer
  from (
    select p.*, clock_timestamp() as moment
    from permits p
    where p.gate = permits_of.gate and p.job_id is not null
    order by p.slot
    limit 1000) p
  join jobs j on j.id = p.job_id
  cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, permits_of.seconds, p.moment) state
  where j.tenant = permits_of.tenant and not state.free
$$;
ALTER FUNCTION holdfast.permits_of(gate text, seconds real, tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.permits_of(gate text, seconds real, tenant text) IS 'How many permits of a gate a tenant has; for rates, how many it has used up.';
CREATE FUNCTION holdfast.place_after_steps() RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(max(s.place), 0) + 1 from clock_steps s
$$;
ALTER FUNCTION holdfast.place_after_steps() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.place_after_steps() IS 'The place of a row that already accounts for all recorded steps.';
CREATE FUNCTION holdfast.preside(name text, candidate text, seconds double precision, patience_seconds double precision DEFAULT 0, report jsonb DEFAULT NULL::jsonb, seen_renewals bigint DEFAULT NULL::bigint, seen_seconds double precision DEFAULT 0) RETURNS TABLE(leads boolean, clock timestamp with time zone, server_started timestamp with time zone, unheard boolean, renewals bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
#variable_conflict use_column
declare
  length interval;
  before record;
  step   double precision;
begin
  perform check_seconds('seconds', 'term', array[seconds]);
  perform check_seconds('patience_seconds and seen_seconds', 'elapsed', array[preside.patience_seconds, seen_seconds]);
  length := make_interval(secs => seconds);
  server_started := pg_postmaster_start_time();
  begin
    perform from leaders l where l.name = preside.name for update;
  exception
    when lock_not_available then
      select l.holder = candidate or l.expires_at < now() - 2 * length
          or (l.renewals = seen_renewals and seen_seconds > 3 * seconds),
        l.renewals
      into leads, preside.renewals
      from leaders l
      where l.name = preside.name;
      leads := coalesce(leads, false);
      clock := clock_timestamp();
      unheard := unheard('duty');
      return next;
      return;
  end;
  update leaders l
  set expires_at = now() + length
  where seen_renewals is null
    and l.name = preside.name and l.holder <> candidate and l.expires_at > now() + length + interval '1 second';
  select l.renewed_at, l.place, coalesce(l.renewals = seen_renewals, false) as measured into before
  from leaders l
  where l.name = preside.name;
  update leaders l
  set holder = candidate,
    term = l.term + case when l.holder = candidate then 0 else 1 end,
    expires_at = now() + length,
    renewed_at = now(),
    renewals = l.renewals + 1,
    place = nextval('places'),
    patience_seconds = preside.patience_seconds,
    report = preside.report
  where l.name = preside.name
    and (l.holder = candidate or l.expires_at < now() or (l.renewals = seen_renewals and seen_seconds >= seconds));
  leads := found;
  if leads then
    -- A candidate that has not seen the last renewal cannot tell a step ahead from a time without a leader.
    step := extract(epoch from now() - before.renewed_at)::double precision
      - case when before.measured then seen_seconds else 0 end;
    if (now() < before.renewed_at and step < -0.25)
      or (before.measured and step < -0.25 - 0.1 * seen_seconds)
      or step > (case when before.measured then 10 else 60 end)
    then
      perform note_clock_step(step, case when before.measured or step < 0 then before.place end);
    end if;
  end if;
  if not leads then
    insert into leaders (name, holder, term, expires_at, renewed_at, place)
    values (preside.name, candidate, 1, now() + length, now(), nextval('places'))
    on conflict do nothing;
    leads := found;
  end if;
  select l.renewals into preside.renewals from leaders l where l.name = preside.name;
  clock := clock_timestamp();
  unheard := unheard('duty');
  return next;
end
$$;
ALTER FUNCTION holdfast.preside(name text, candidate text, seconds double precision, patience_seconds double precision, report jsonb, seen_renewals bigint, seen_seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.preside(name text, candidate text, seconds double precision, patience_seconds double precision, report jsonb, seen_renewals bigint, seen_seconds double precision) IS 'Become, stay or learn the leader: one row with holder, term and expiry, on the database''s clock.';
CREATE FUNCTION holdfast.preview_bulk(action text, tree jsonb, args jsonb DEFAULT '{}'::jsonb, only_tenant text DEFAULT NULL::text, max_matches integer DEFAULT 10000) RETURNS TABLE(matches bigint, exact boolean, sample uuid[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.preview_bulk(action text, tree jsonb, args jsonb, only_tenant text, max_matches integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.preview_bulk(action text, tree jsonb, args jsonb, only_tenant text, max_matches integer) IS 'How many jobs a bulk operation would be about, and some of them.';
CREATE FUNCTION holdfast.probe() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET work_mem TO '64kB'
    SET temp_tablespaces TO ''
    AS $$
begin
  if current_setting('transaction_read_only')::boolean then
    raise exception 'the session is read-only' using errcode = 'read_only_sql_transaction';
  end if;
  begin
    perform count(*)
    from (
      select md5(n::text) || repeat('.', 480) as line
      from generate_series(1, 2000) as n
      order by line
    ) as lines;
  exception
    when configuration_limit_exceeded then null;  -- temporary files are limited here, which says nothing about the disk
  end;
  perform pg_logical_emit_message(true, 'holdfast', 'probe');
  return true;
end
$$;
ALTER FUNCTION holdfast.probe() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.probe() IS 'Whether a job could be recorded now.';
CREATE FUNCTION holdfast.promote(max_jobs integer DEFAULT 500, after timestamp with time zone DEFAULT '-infinity'::timestamp with time zone) RETURNS TABLE(promoted integer, next_in_seconds double precision, reached timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  if exists (select from parked) then
    perform from admit();
  end if;
  return query select * from promote_due(max_jobs, after);
end
$$;
ALTER FUNCTION holdfast.promote(max_jobs integer, after timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.promote(max_jobs integer, after timestamp with time zone) IS 'Queue scheduled and retrying jobs whose time has come, in one call.';
CREATE FUNCTION holdfast.promote_behind(from_run_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, from_job_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid, passed text[] DEFAULT '{}'::text[], max_jobs integer DEFAULT 500, max_looked integer DEFAULT 10000) RETURNS TABLE(promoted integer, ended boolean, reached_run_at timestamp with time zone, reached_job_id uuid, left_tenants text[], left_run_at timestamp with time zone[], left_job_ids uuid[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  entries uuid[];
  ids     uuid[];
begin
  select array_agg(entry.job_id), max(entry.run_at), count(*) < max_looked into entries, reached_run_at, ended
  from (
    select d.run_at, d.job_id
    from due d
    where d.run_at <= now() and (d.run_at, d.job_id) >= (from_run_at, from_job_id)
    order by d.run_at, d.job_id
    limit max_looked) entry;
  reached_job_id := entries[max_looked];
  if ended then
    -- Jobs that fall due at this moment may be committed a little later, and are looked for again.
    reached_run_at := now() - interval '0.5 seconds';
    reached_job_id := '00000000-0000-0000-0000-000000000000';
  end if;
  with others as materialized (
    -- One walk over the index for all jobs, not a descent for each. An entry that does not fit its job is left out.
    select j.id, j.run_at, j.tenant
    from jobs j
    where j.id = any (entries) and j.tenant <> all (passed) and j.run_at <= now() and j.state in ('scheduled', 'retry')
  ), turns as (
    select o.*, row_number() over (partition by o.tenant order by o.run_at, o.id) as turn
    from others o
  ), dealt as materialized (
    select t.*, row_number() over (order by t.turn, t.run_at, t.id) <= max_jobs as taken
    from turns t
  ), rest as (
    select distinct on (d.tenant) d.tenant, d.run_at, d.id
    from dealt d
    where not d.taken
    order by d.tenant, d.run_at, d.id
  )
  select array(select d.id from dealt d where d.taken order by d.run_at, d.id),
    array_agg(r.tenant order by r.run_at, r.id), array_agg(r.run_at order by r.run_at, r.id),
    array_agg(r.id order by r.run_at, r.id)
  into ids, left_tenants, left_run_at, left_job_ids
  from rest r;
  -- As in `promote_due`: do not wait for a job or an entry that somebody has locked.
  ids := array(
    select free.id
    from unnest(ids) as chosen (job_id)
    cross join lateral (
      select j.id, j.run_at from jobs j where j.id = chosen.job_id for no key update skip locked) free
    cross join lateral (
      select d.job_id from due d where d.run_at = free.run_at and d.job_id = free.id for update skip locked) entry);
  promoted := cardinality(ids);
  if promoted > 0 then
    perform promote_jobs(ids);
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.promote_behind(from_run_at timestamp with time zone, from_job_id uuid, passed text[], max_jobs integer, max_looked integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.promote_behind(from_run_at timestamp with time zone, from_job_id uuid, passed text[], max_jobs integer, max_looked integer) IS 'Promote due jobs of other tenants behind the backlog of some.';
CREATE FUNCTION holdfast.promote_due(max_jobs integer DEFAULT 500, after timestamp with time zone DEFAULT '-infinity'::timestamp with time zone) RETURNS TABLE(promoted integer, next_in_seconds double precision, reached timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids    uuid[];
  times  timestamptz[];
  last   timestamptz;
  strays integer;
begin
  select array_agg(entry.job_id), array_agg(entry.run_at), max(entry.run_at) into ids, times, last
  from (
    -- A job that somebody has locked is skipped, and does not hold up others; an entry without a job is dropped below.
    select d.job_id, d.run_at
    from due d
    left join lateral (
      select j.id from jobs j where j.id = d.job_id for no key update skip locked) free on true
    where d.run_at <= now()
      and d.run_at >= after
      and (free.id is not null or not exists (select from jobs j where j.id = d.job_id))
    order by d.run_at, d.job_id
    limit max_jobs
    for update of d skip locked) entry;
  if ids is not null then
    perform promote_jobs(ids);
    -- The remaining entries belong to no job that waits for this moment, and would be due for ever.
    delete from due d
    using unnest(ids, times) as entry (job_id, run_at)
    where d.run_at = entry.run_at and d.job_id = entry.job_id;
    get diagnostics strays = row_count;
    perform note_repair('due-dropped', strays);
  end if;
  return query
  select coalesce(cardinality(ids), 0), extract(epoch from following.run_at - clock_timestamp())::double precision,
    coalesce(last, after)
  from (select 1) one
  left join lateral (
    select d.run_at
    from due d
    where d.run_at >= coalesce(last, after)
    order by d.run_at
    limit 1) following on true;
end
$$;
ALTER FUNCTION holdfast.promote_due(max_jobs integer, after timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.promote_due(max_jobs integer, after timestamp with time zone) IS 'Queue scheduled and retrying jobs whose time has come.';
CREATE FUNCTION holdfast.promote_jobs(job_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  woken   integer[];
  tenants text[];
  targets text[];
  dropped bigint;
begin
  with entry as materialized (
    select d.run_at, d.job_id
    from jobs j
    join due d on d.run_at = j.run_at and d.job_id = j.id
    where j.id = any (job_ids) and d.run_at <= now()
    order by d.run_at, d.job_id
    for update of d
  ), gone as (
    delete from due d
    using entry
    where d.run_at = entry.run_at and d.job_id = entry.job_id
    returning d.run_at, d.job_id
  ), moved as (
    update jobs j
    set state = 'queued',
      seq = case
        when exists (select from heads h where h.tenant = j.tenant and h.target = j.target and h.job_id = j.id)
          then j.seq
        else nextval('places')
      end,
      reason = 'due',
      updated_at = now()
    from gone
    where j.id = gone.job_id and j.run_at = gone.run_at and j.state in ('scheduled', 'retry')
    returning j.id, j.seq, j.stream, j.priority, j.tenant, j.target
  ), lined as (
    insert into ready (stream, rank, seq, job_id)
    select stream, ready_rank(priority, false), seq, id from moved where target is null
  ), queued_behind as (
    insert into waiting (tenant, target, turn, place, job_id)
    select m.tenant, m.target, 1, m.seq, m.id
    from moved m
    where m.target is not null
      and not exists (
        select from heads h where h.tenant = m.tenant and h.target = m.target and h.job_id = m.id)
  )
  select
    array_agg(distinct stream) filter (where target is null),
    array_agg(tenant) filter (where target is not null),
    array_agg(target) filter (where target is not null),
    (select count(*) from gone) - count(*)
  into woken, tenants, targets, dropped
  from moved;
  perform note_repair('due-dropped', dropped);
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  if woken is not null then
    perform wake_again(woken);
  end if;
end
$$;
ALTER FUNCTION holdfast.promote_jobs(job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.promote_jobs(job_ids uuid[]) IS 'Move jobs that are due to where workers or their targets find them.';
CREATE FUNCTION holdfast.public_jobs(tenants text[], job_ids uuid[]) RETURNS TABLE(id uuid, tenant text, type text, state text, target text, created_at timestamp with time zone, updated_at timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
begin
  if coalesce(cardinality(tenants), 0) = 0 or array_position(tenants, null) is not null then
    raise exception 'a tenant is required' using errcode = 'HF003';
  end if;
  return query
  select j.id, j.tenant, j.type, j.state, j.target, j.created_at, j.updated_at
  from unnest(tenants, job_ids) as asked (tenant, id)
  join jobs j on j.id = asked.id and j.tenant = asked.tenant
  where not is_request(j.type);
end
$$;
ALTER FUNCTION holdfast.public_jobs(tenants text[], job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.public_jobs(tenants text[], job_ids uuid[]) IS 'The public fields of jobs, each requested for a tenant.';
CREATE FUNCTION holdfast.publish_shapes(definitions jsonb) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  insert into payload_shapes as s (type, digest, shape)
  select d.type, d.digest, d.shape
  from declared_shapes(definitions) d
  order by d.type
  on conflict on constraint payload_shapes_pkey do update set published_at = now()
$$;
ALTER FUNCTION holdfast.publish_shapes(definitions jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.publish_shapes(definitions jsonb) IS 'Store the shapes of declarations as the latest ones.';
CREATE FUNCTION holdfast.publish_types(definitions jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select check_types(definitions);
  select publish_shapes(definitions);
  insert into job_types as t (
    name, queue, lane, max_attempts, backoff_base, backoff_factor, backoff_max, backoff_jitter, timeout_seconds,
    lease_seconds, on_failure, version, payload_schema, limit_count, limit_key, rate_count, rate_seconds, rate_key)
  select
    d.name, d.queue, d.lane, d.max_attempts, d.backoff_base, d.backoff_factor, d.backoff_max, d.backoff_jitter,
    d.timeout_seconds, d.lease_seconds, d.on_failure, d.version, d.payload_schema,
    case when known then d.limit_count else t.limit_count end, case when known then d.limit_key else t.limit_key end,
    case when known then d.rate_count else t.rate_count end, case when known then d.rate_seconds else t.rate_seconds end,
    case when known then d.rate_key else t.rate_key end
  from jsonb_array_elements(definitions) as definition
  -- Older releases declare no limits.
  cross join lateral (select definition ?| array['limit_count', 'rate_count']) as release (known)
  cross join lateral jsonb_to_record(definition) as d (
    name text, queue text, lane text, max_attempts integer, backoff_base real, backoff_factor real,
    backoff_max real, backoff_jitter real, timeout_seconds real, lease_seconds real, on_failure text,
    version integer, payload_schema jsonb, limit_count integer, limit_key text, rate_count integer,
    rate_seconds real, rate_key text)
  left join job_types t on t.name = d.name
  order by d.name
  on conflict on constraint job_types_pkey do update
    set queue = excluded.queue, lane = excluded.lane, max_attempts = excluded.max_attempts,
      backoff_base = excluded.backoff_base, backoff_factor = excluded.backoff_factor,
      backoff_max = excluded.backoff_max, backoff_jitter = excluded.backoff_jitter,
      timeout_seconds = excluded.timeout_seconds, lease_seconds = excluded.lease_seconds,
      on_failure = excluded.on_failure, version = excluded.version,
      payload_schema = excluded.payload_schema, limit_count = excluded.limit_count,
      limit_key = excluded.limit_key, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
      rate_key = excluded.rate_key, updated_at = now()
    where (t.queue, t.lane, t.max_attempts, t.backoff_base, t.backoff_factor, t.backoff_max, t.backoff_jitter,
        t.timeout_seconds, t.lease_seconds, t.on_failure, t.version, t.payload_schema, t.limit_count, t.limit_key,
        t.rate_count, t.rate_seconds, t.rate_key)
      is distinct from (excluded.queue, excluded.lane, excluded.max_attempts, excluded.backoff_base,
        excluded.backoff_factor, excluded.backoff_max, excluded.backoff_jitter, excluded.timeout_seconds,
        excluded.lease_seconds, excluded.on_failure, excluded.version, excluded.payload_schema,
        excluded.limit_count, excluded.limit_key, excluded.rate_count, excluded.rate_seconds, excluded.rate_key)
    and excluded.version >= t.version;
  -- Older releases declare no circuit. The statement above has locked the rows, in the order of their names.
  update job_types t
  set circuit = definition ->> 'circuit', circuit_per_tenant = (definition ->> 'circuit_per_tenant')::boolean,
    updated_at = now()
  from jsonb_array_elements(definitions) as definition
  where t.name = definition ->> 'name'
    and definition ? 'circuit'
    and (definition ->> 'version')::integer >= t.version
    and (t.circuit, t.circuit_per_tenant)
      is distinct from (definition ->> 'circuit', (definition ->> 'circuit_per_tenant')::boolean)
$$;
ALTER FUNCTION holdfast.publish_types(definitions jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.publish_types(definitions jsonb) IS 'Publish what the code of a worker declares about its job types.';
CREATE FUNCTION holdfast.put_off(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[], circuits text[]) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select check_seconds('the delay of a snooze', 'delay', delays);
  select * from settle(
    named(worker), job_ids, attempts, array_fill('snoozed'::text, array[cardinality(job_ids)]), null,
    array(
      select case when c.name is not null then 'CircuitOpen' end
      from unnest(circuits) with ordinality as c (name, place)
      order by c.place),
    array(
      select coalesce(left(c.name, 200), c.note)
      from unnest(circuits, notes) with ordinality as c (name, note, place)
      order by c.place),
    null, null, delays, null)
$$;
ALTER FUNCTION holdfast.put_off(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[], circuits text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.put_off(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[], circuits text[]) IS 'Put jobs off, as `snooze` does, that may not call a service because its circuit is open.';
CREATE FUNCTION holdfast.put_schedule(definition jsonb, tenant text, replace boolean, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  perform check_schedule(definition, put_schedule.tenant);
  -- Of two that make the same schedule at once, the second waits here and then finds the first.
  perform pg_advisory_xact_lock(hashtext(current_schema() || '.schedules'), 0);
  select s.* into old
  from schedules s
  where s.tenant = put_schedule.tenant and s.name = definition ->> 'name'
  for update;
  if found and old.retired_at is null and old.digest is not null then
    return 'declared';
  elsif found and old.retired_at is null and not replace then
    return 'exists';
  end if;
  perform store_schedule(definition, tenant, by, null);
  perform note_audit(
    by, by_key, tenant, case when old.id is null or old.retired_at is not null then 'schedule.create' else 'schedule.change' end,
    definition ->> 'name', jsonb_strip_nulls((definition - 'name' - 'tenant' - 'payload') || jsonb_build_object('note', note)));
  return case when old.id is null or old.retired_at is not null then 'created' else 'changed' end;
end
$$;
ALTER FUNCTION holdfast.put_schedule(definition jsonb, tenant text, replace boolean, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.put_schedule(definition jsonb, tenant text, replace boolean, by text, note text, by_key uuid) IS 'Create a schedule, or (`replace`) change the one with this name.';
CREATE FUNCTION holdfast.query_condition(tree jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform check_query_size(tree);
  return condition_at(tree, '{}');
end
$$;
ALTER FUNCTION holdfast.query_condition(tree jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.query_condition(tree jsonb) IS 'A query''s tree (see holdfast.model.query) as a condition on `jobs j`.';
CREATE FUNCTION holdfast.queue_depths() RETURNS TABLE(type text, depth bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  select s.type, sum(line.depth)::bigint
  from (
    select stream_of(entry.stream) as stream, count(*) as depth
    from (select r.stream from ready r limit 1000000) entry
    group by 1) line
  join streams s on s.id = line.stream
  where not is_request(s.type)
  group by s.type
  order by 2 desc, 1
  limit 1000
$$;
ALTER FUNCTION holdfast.queue_depths() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.queue_depths() IS 'How many jobs of each type wait for a worker, the types with most of them first.';
CREATE FUNCTION holdfast.quiet_worker(worker text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  before workers;
begin
  perform check_signed(by, note);
  select w.* into before from workers w where w.id = quiet_worker.worker for update;
  if not found then
    return null;
  elsif before.quiet_at is not null then
    return false;
  end if;
  update workers w
  set quiet_at = now(), quiet_by = quiet_worker.by, quiet_note = quiet_worker.note
  where w.id = quiet_worker.worker;
  perform note_audit(
    by, by_key, null, 'worker.quiet', worker, jsonb_strip_nulls(jsonb_build_object('note', note)));
  return true;
end
$$;
ALTER FUNCTION holdfast.quiet_worker(worker text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.quiet_worker(worker text, by text, note text, by_key uuid) IS 'Tell a worker to stop claiming: it learns of this with its next heartbeat, and its running jobs continue.';
CREATE FUNCTION holdfast.quoted(value text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select '"' || single_line(value) || '"'
$$;
ALTER FUNCTION holdfast.quoted(value text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.quoted(value text) IS 'A text of a person as it is quoted in a sentence.';
CREATE FUNCTION holdfast.raise_durability() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  perform pg_catalog.set_config('synchronous_commit', 'on', true);
  return null;
end
$$;
ALTER FUNCTION holdfast.raise_durability() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.raise_durability() IS 'Make the commit of the current transaction durable, whatever its session has set.';
CREATE FUNCTION holdfast.read_letters(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  ids := array(
    select d.job_id
    from dead_letters d
    where d.fingerprint is null and d.job_id > coalesce(after[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by d.job_id
    limit max_rows);
  with free as materialized (
    select d.job_id
    from dead_letters d
    where d.job_id = any (ids) and d.fingerprint is null
    order by d.job_id
    for update skip locked
  ), known as (
    update dead_letters d
    set fingerprint = fingerprint_of(d.type, d.error_type, d.error_message)
    from free
    where d.job_id = free.job_id
    returning d.job_id, d.died_at, d.fingerprint
  )
  insert into failures (at, job_id, attempt, fingerprint)
  select k.died_at, k.job_id, j.attempt, k.fingerprint
  from known k
  join jobs j on j.id = k.job_id;
  get diagnostics mended = row_count;
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.read_letters(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.read_letters(after text[], max_rows integer) IS 'Give letters from before there were fingerprints theirs, and have them added up like failures of today.';
CREATE TABLE holdfast.ready (
    stream integer NOT NULL,
    rank integer NOT NULL,
    seq bigint NOT NULL,
    job_id uuid NOT NULL,
    ready_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE holdfast.ready OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.ready IS 'Jobs that can be claimed now, in the order of their stream.';
CREATE FUNCTION holdfast.ready_entry(stream integer, priority integer, seq bigint) RETURNS SETOF holdfast.ready
    LANGUAGE sql STABLE
    AS $$
  select r.*
  from ready r
  where r.stream = any (entry_streams(ready_entry.stream))
    and r.rank = any (ready_ranks(ready_entry.priority))
    and r.seq = ready_entry.seq
$$;
ALTER FUNCTION holdfast.ready_entry(stream integer, priority integer, seq bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.ready_entry(stream integer, priority integer, seq bigint) IS 'The entry of a job, inlined into the caller.';
CREATE FUNCTION holdfast.ready_rank(priority integer, returned boolean) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select 2 * priority + case when returned then 1 else 2 end
$$;
ALTER FUNCTION holdfast.ready_rank(priority integer, returned boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.ready_rank(priority integer, returned boolean) IS 'The rank of a job within its stream; lower ranks go first.';
CREATE FUNCTION holdfast.ready_ranks(priority integer) RETURNS integer[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array[0, ready_rank(priority, true), ready_rank(priority, false)]
$$;
ALTER FUNCTION holdfast.ready_ranks(priority integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.ready_ranks(priority integer) IS 'All ranks that a job of this priority can have.';
CREATE FUNCTION holdfast.ready_seq(job holdfast.jobs) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(
    (select h.seq from heads h where h.tenant = job.tenant and h.target = job.target and h.job_id = job.id), job.seq)
$$;
ALTER FUNCTION holdfast.ready_seq(job holdfast.jobs) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.ready_seq(job holdfast.jobs) IS 'The place of a job in `ready`.';
CREATE FUNCTION holdfast.ready_streams(streams integer[]) RETURNS TABLE(id integer)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select line.id
  from unnest(streams) as line (id)
  cross join lateral (select from ready r where r.stream = line.id limit 1) entry
$$;
ALTER FUNCTION holdfast.ready_streams(streams integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.ready_streams(streams integer[]) IS 'Those of the streams in which something is ready.';
CREATE FUNCTION holdfast.reason_to_wait(job holdfast.jobs, only_tenant text) RETURNS TABLE(code text, text text, culprit jsonb)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  own_lane text := coalesce((select t.lane from job_types t where t.name = job.type), 'general');
  pause    controls;
  who      text;
  why      text;
  entry    ready;
begin
  if is_request(job.type) then
    return query select 'request', case
      when is_maintained() then 'is a request that maintenance carries out in a moment'
      else 'is a request, but no process does maintenance to carry it out' end,
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  select c.* into pause
  from pausable_by(job.tenant, job.queue, job.type, own_lane) with ordinality as subject (kind, name, position)
  join controls c on c.kind = subject.kind and c.name = subject.name and c.paused_at is not null
  order by subject.position
  limit 1;
  if found then
    select left(p.by, 500), left(p.note, 1000) into who, why from shown_pause(pause, only_tenant) p;
    return query select pause.kind || '-paused', format('waits because %s%s', case
        when pause.kind = 'everything' then 'claiming was stopped everywhere'
        else format('its %s %s was paused', pause.kind, quoted(pause.name)) end,
        told(who, pause.paused_at, why)),
      jsonb_strip_nulls(jsonb_build_object('kind', pause.kind, 'name', pause.name, 'by', who, 'note', why,
        'since', pause.paused_at));
    return;
  end if;
  select r.* into entry
  from ready_entry(job.stream, job.priority, ready_seq(job)) r
  where r.job_id = job.id;
  if not found then
    return query select 'misplaced', 'has lost its place in the line, which maintenance mends',
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  if not all_open(array[job.stream]) then
    return query select 'reopening', case
      when is_maintained() then 'came back after its queue had been idle; the queue is offered to workers again in a moment'
      else 'came back after its queue had been idle, but no process does maintenance to offer it to workers again' end,
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  return query
  select 'circuit', format('waits for circuit %s%s', quoted(c.name), circuit_text(c, only_tenant)),
    jsonb_strip_nulls(jsonb_build_object('kind', 'circuit', 'name', c.name, 'state', c.state, 'since', c.opened_at,
      'until', nullif(c.next_probe_at, 'infinity')))
  from job_types t
  join circuits c on circuit_key(c.tenant, c.name) = circuit_of(t, job.tenant) and c.state <> 'closed'
  where t.name = job.type;
  if found then
    return;
  end if;
  return query select f.code, f.text, f.culprit from full_gate(job) f;
  if found then
    return;
  end if;
  return query select u.code, u.text, u.culprit from unserved(job, own_lane) u;
  if found then
    return;
  elsif is_parked(entry.stream) then
    return query select 'starting', 'waited for a permit of its key and starts in a moment',
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  return query
  select b.code, b.text, b.culprit from behind_others(job, own_lane, entry.rank, entry.seq, only_tenant) b;
end
$$;
ALTER FUNCTION holdfast.reason_to_wait(job holdfast.jobs, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.reason_to_wait(job holdfast.jobs, only_tenant text) IS 'Why a queued job was not claimed yet: the first reason that applies.';
CREATE FUNCTION holdfast.recalled_turns() RETURNS jsonb
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  memory jsonb;
  oldest double precision := extract(epoch from pg_catalog.clock_timestamp()) - 60;
begin
  memory := nullif(current_setting('holdfast.turns', true), '')::jsonb;
  -- Every value that is used later is read here, so that a bad one fails here.
  return jsonb_build_object(
    'counted', case
      when (memory #>> '{counted,at}')::double precision < (memory #>> '{counted,until}')::double precision
        and (select bool_and(r.value::double precision >= 0) from jsonb_each_text(memory #> '{counted,running}') r)
      then memory -> 'counted'
    end,
    'turns', coalesce((
      select jsonb_object_agg(t.key, t.value)
      from jsonb_each(memory -> 'turns') t
      where (t.value ->> 1)::double precision > oldest and (t.value ->> 0)::double precision between -1 and 1), '{}'));
exception
  when data_exception then
    return '{"turns": {}}';  -- another program has written to this setting
end
$$;
ALTER FUNCTION holdfast.recalled_turns() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.recalled_turns() IS 'The turns of the last minute, as this session remembers them.';
CREATE FUNCTION holdfast.reconcile(after uuid DEFAULT NULL::uuid, max_jobs integer DEFAULT 1000) RETURNS TABLE(job_id uuid, repair text, last uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  broken record;
  ids    uuid[];
begin
  ids := array(
    select j.id
    from jobs j
    where j.id > coalesce(after, '00000000-0000-0000-0000-000000000000')
    order by j.id
    limit max_jobs);
  last := ids[cardinality(ids)];
  for broken in select b.job_id, b.fault from broken_among(ids) b loop
    if mend(broken.job_id, broken.fault) then
      perform note_repair(broken.fault, 1);
      return query select broken.job_id, broken.fault, last;
    end if;
  end loop;
  return query select null::uuid, null::text, last where last is not null;
end
$$;
ALTER FUNCTION holdfast.reconcile(after uuid, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.reconcile(after uuid, max_jobs integer) IS 'Mend inconsistent jobs by id, a bounded number a call; for leaders of older releases.';
CREATE FUNCTION holdfast.reconcile_pages(first_page bigint DEFAULT 0, max_pages integer DEFAULT 1000, max_repairs integer DEFAULT 500) RETURNS TABLE(job_id uuid, repair text, reached bigint, open_jobs integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  pages  bigint := pg_relation_size('jobs') / current_setting('block_size')::integer;
  ids    uuid[] := open_on_pages(first_page, max_pages);
  broken record;
  mended integer := 0;
begin
  reached := case when first_page + max_pages < pages then first_page + max_pages end;
  if cardinality(ids) > 0 then
    for broken in select b.job_id, b.fault from broken_among(ids) b limit max_repairs loop
      if mend(broken.job_id, broken.fault) then
        perform note_repair(broken.fault, 1);
        mended := mended + 1;
        return query select broken.job_id, broken.fault, null::bigint, null::integer;
      end if;
    end loop;
  end if;
  return query select null::uuid, null::text, case when mended < max_repairs then reached else first_page end, cardinality(ids);
end
$$;
ALTER FUNCTION holdfast.reconcile_pages(first_page bigint, max_pages integer, max_repairs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.reconcile_pages(first_page bigint, max_pages integer, max_repairs integer) IS 'Mend what hand-written SQL or a bug left inconsistent.';
CREATE FUNCTION holdfast.record_beginnings(worker text, job_ids uuid[], attempts integer[]) RETURNS TABLE(job_id uuid, recorded boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  free uuid[];
begin
  free := array(
    select l.job_id
    from unnest(job_ids, attempts) as asked (job_id, attempt)
    join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = record_beginnings.worker
    order by l.job_id
    for update of l skip locked);
  update leases l set number = null where l.job_id = any (free);
  return query
  select l.job_id, l.job_id = any (free)
  from unnest(job_ids, attempts) as asked (job_id, attempt)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = record_beginnings.worker;
end
$$;
ALTER FUNCTION holdfast.record_beginnings(worker text, job_ids uuid[], attempts integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.record_beginnings(worker text, job_ids uuid[], attempts integer[]) IS 'Record that these jobs, each of them at its last chance, are about to begin.';
CREATE FUNCTION holdfast.record_jobs(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) RETURNS TABLE(item integer, job_id uuid, state text, outcome text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
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
ALTER FUNCTION holdfast.record_jobs(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.record_jobs(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) IS 'Record jobs whose arguments were checked.';
CREATE FUNCTION holdfast.record_requests(verb text, job_ids uuid[], by text, note text, message text, only_tenant text, at_once boolean, resolves boolean) RETURNS TABLE(job_id uuid, outcome text, request_id uuid)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  job      jobs;
  decision text;
  wanted   uuid;
  answer   text;
  created  uuid;
  flagged  integer;
begin
  if verb <> all (request_verbs()) then
    raise exception 'unknown request %; known are %', verb, array_to_string(request_verbs(), ', ') using errcode = 'HF002';
  end if;
  perform check_texts(by, note);
  decision := case when verb = 'pause' then 'pause' when resolves then 'resolve' when verb in ('cancel', 'delete') then 'cancel' end;
  -- In order, so that no two callers wait for each other.
  foreach wanted in array array(select i.id from unnest(job_ids) as i (id) order by i.id) loop
    flagged := null;
    -- If the attempt ends while its lease is looked for, the job is looked at again.
    for round in 1..5 loop
      if decision is not null and at_once then
        perform keep_waiting(wanted, only_tenant);
      end if;
      select j.* into job
      from jobs j
      where j.id = wanted and (only_tenant is null or j.tenant = only_tenant) and not is_request(j.type);
      answer := case
        when not found then 'not-found'
        when verb = 'retry' and job.state <> 'dead' and is_erased(job.id) then 'not-possible'
        when verb in ('delete', 'retry') and has_ended(job.state) then 'accepted'
        when has_ended(job.state) then 'already-final'
        when verb in ('cancel', 'delete') then 'accepted'
        when verb = 'pause' and job.state in ('scheduled', 'queued', 'running', 'retry', 'paused') then 'accepted'
        when verb = 'resume' and job.state in ('paused', 'error') then 'accepted'
        when verb = 'retry' and job.state in ('scheduled', 'queued', 'retry', 'paused', 'error') then 'accepted'
        else 'not-possible'
      end;
      exit when answer <> 'accepted' or decision is null or not at_once;
      flagged := flag_attempt(wanted, decision, by, note, message);
      exit when flagged is not null or job.state <> 'running';
    end loop;
    created := null;
    if answer = 'accepted' and verb = 'retry' and job.state = 'dead' then
      select case
          when r.runs_as is not null then 'new-job' when r.outcome = 'not-found' then r.outcome else 'not-possible'
        end, r.runs_as
      into answer, created
      from requeue_letter(wanted, null, null, by, note) r;
    elsif answer = 'accepted' and verb = 'retry' and job.state in ('success', 'canceled') then
      created := run_again(job, by);
      answer := 'new-job';
    elsif answer = 'accepted' then
      select r.job_id into created
      from record_jobs(
        array['holdfast.' || verb],
        array[jsonb_strip_nulls(jsonb_build_object(
          'job_id', wanted, 'by', by, 'note', note, 'message', message, 'attempt', flagged,
          'resolves', nullif(resolves, false)))],
        array[jsonb_strip_nulls(jsonb_build_object(
          'queue', 'holdfast', 'priority', case when cardinality(job_ids) > 100 then 200 else 100 end,
          'dedup_key', case verb
            when 'delete' then wanted::text
            when 'cancel' then concat_ws(' ', wanted, case when resolves then 'resolve' end, flagged)
          end))],
        job.tenant, by, null) r;
      if decision is not null and flagged is null and not has_ended(job.state) then
        perform note_decision(wanted, created, decision, by, note, message);
      end if;
      perform wake('duty', array[0]);
    end if;
    return query select wanted, answer, created;
  end loop;
  perform vouch();
end
$$;
ALTER FUNCTION holdfast.record_requests(verb text, job_ids uuid[], by text, note text, message text, only_tenant text, at_once boolean, resolves boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.record_requests(verb text, job_ids uuid[], by text, note text, message text, only_tenant text, at_once boolean, resolves boolean) IS 'Record requests.';
CREATE FUNCTION holdfast.record_run(schedule holdfast.schedules, fire_at timestamp with time zone, by_hand boolean DEFAULT false) RETURNS TABLE(job_id uuid, outcome text)
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select e.job_id, e.outcome
  from enqueue_many(
    array[schedule.type],
    array[schedule.payload],
    array[
      case when schedule.overlap = 'queue' then jsonb_build_object('target', 'schedule:' || schedule.name) else '{}' end
      || schedule.options
      || case when by_hand then '{}' else jsonb_build_object('run_at', fire_at + make_interval(secs => schedule.jitter
        * (hashtextextended(schedule.name || extract(epoch from fire_at), 0) & 2147483647) / 2147483648.0)) end],
    schedule.tenant,
    'schedule:' || schedule.name) e
$$;
ALTER FUNCTION holdfast.record_run(schedule holdfast.schedules, fire_at timestamp with time zone, by_hand boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.record_run(schedule holdfast.schedules, fire_at timestamp with time zone, by_hand boolean) IS 'Record the job of one fire time.';
CREATE FUNCTION holdfast.recover(clock timestamp with time zone, spared_above double precision[], spared_up_to double precision[], watched uuid[], watched_attempts integer[], watched_until timestamp with time zone[], max_jobs integer DEFAULT 200) RETURNS TABLE(job_id uuid, attempt integer, worker text, state text, expires_at timestamp with time zone, lease_seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  -- Without a clock nothing is in doubt: that is the testing kit, which moves time on purpose.
  if clock_timestamp() not between clock - interval '0.25 seconds' and clock + interval '1 second' then
    return query select null::uuid, null::integer, null, 'too-late', null::timestamptz, null::double precision;
    return;
  end if;
  select array_agg(entry.job_id) into ids
  from (
    -- Jobs that somebody has locked are passed over here already, so that any number of them leaves room for others.
    select l.job_id
    from leases l
    join jobs j on j.id = l.job_id
    where l.expires_at < now()
      and not exists (
        select from unnest(spared_above, spared_up_to) as break (above, up_to)
        where l.lease_seconds > break.above and l.lease_seconds <= break.up_to)
    order by l.expires_at
    limit max_jobs
    for update of l skip locked
    for no key update of j skip locked) entry;
  ids := ids || array(
    select l.job_id
    from unnest(watched, watched_attempts, watched_until) as w (job_id, attempt, expires_at)
    join leases l on l.job_id = w.job_id and l.attempt = w.attempt and l.expires_at = w.expires_at
    where l.job_id <> all (coalesce(ids, '{}'))
    order by l.job_id
    limit max_jobs
    for update of l skip locked);
  if cardinality(ids) > 0 then
    return query
    select s.job_id, s.attempt, s.worker, s.state, null::timestamptz, null::double precision from lose_each(ids) s;
  end if;
  if cardinality(spared_above) > 0 then
    return query
    select l.job_id, l.attempt, l.worker, null, l.expires_at, l.lease_seconds::double precision
    from leases l
    where l.expires_at < now() and l.job_id <> all (coalesce(ids, '{}'))
    order by l.expires_at
    limit 5000;
  end if;
end
$$;
ALTER FUNCTION holdfast.recover(clock timestamp with time zone, spared_above double precision[], spared_up_to double precision[], watched uuid[], watched_attempts integer[], watched_until timestamp with time zone[], max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.recover(clock timestamp with time zone, spared_above double precision[], spared_up_to double precision[], watched uuid[], watched_attempts integer[], watched_until timestamp with time zone[], max_jobs integer) IS 'Take back lapsed leases, for a leader that knows which of them may be judged.';
CREATE FUNCTION holdfast.refuse_audit_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  raise exception 'entries of the audit log cannot be changed or deleted' using errcode = 'HF001';
end
$$;
ALTER FUNCTION holdfast.refuse_audit_change() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_audit_change() IS 'Refuse every change of the audit log except additions.';
CREATE FUNCTION holdfast.refuse_closed(types text[], taken integer[]) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  closed closed_types;
begin
  select c.* into closed
  from unnest(types) with ordinality as job (type, position)
  join closed_types c on c.name = job.type
  where job.position <> all (taken)
  order by job.position
  limit 1;
  if found then
    raise exception 'the job type % takes no new jobs: it was closed%', closed.name,
      told(left(closed.closed_by, 500), closed.closed_at, left(closed.closed_note, 1000))
      using errcode = 'HF001', constraint = 'type_closed';
  end if;
end
$$;
ALTER FUNCTION holdfast.refuse_closed(types text[], taken integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_closed(types text[], taken integer[]) IS 'Raise if one of these types is closed, and say who closed it and why.';
CREATE FUNCTION holdfast.refuse_move() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  leased boolean;
begin
  if tg_op = 'INSERT' and new.fingerprint is not null then
    -- Written by a call that began before the migration that moved the keys to a table of their own.
    raise exception 'the engine was upgraded while this was recorded; try again' using errcode = '40001';
  elsif tg_op = 'INSERT' then
    raise exception 'a job cannot be inserted as %, only as created, scheduled or queued', new.state
      using errcode = 'HF001', hint = 'Use the function enqueue.';
  elsif tg_op = 'DELETE' then
    raise exception 'job % is % and cannot be deleted before it has ended', old.id, old.state
      using errcode = 'HF001', hint = 'Cancel it first.';
  elsif tg_op = 'TRUNCATE' then
    raise exception 'jobs cannot be truncated' using errcode = 'HF001';
  elsif old.id is distinct from new.id then
    raise exception 'the id of job % cannot be changed', old.id using errcode = 'HF001';
  elsif old.state = 'running' and new.state = 'running' and new.attempt = old.attempt + 1 then
    -- The only move that needs a look at another table; none of the engine's own functions makes it. The lease is
    -- locked, not only read: the snapshot of a long transaction may be older than the last renewal, and PostgreSQL then
    -- refuses the lock.
    select l.expires_at >= now() into leased from leases l where l.job_id = old.id for share;
    if leased is not true then
      return new;
    end if;
    raise exception 'job % runs under a lease that has not lapsed', old.id using errcode = 'HF001';
  elsif old.state = new.state then
    raise exception 'job %: attempt cannot go from % to % while it is %', old.id, old.attempt, new.attempt, old.state
      using errcode = 'HF001';
  elsif new.attempt = old.attempt + (new.state = 'running')::integer and new.state = any ((case old.state
      when 'created' then array['scheduled', 'queued', 'canceled']
      when 'scheduled' then array['queued', 'paused', 'canceled']
      when 'queued' then array['running', 'paused', 'canceled']
      when 'running' then
        array['success', 'retry', 'dead', 'error', 'paused', 'canceled', 'queued', 'scheduled']
      when 'retry' then array['running', 'queued', 'dead', 'paused', 'canceled']
      when 'paused' then array['queued', 'scheduled', 'canceled']
      when 'error' then array['queued', 'dead', 'canceled']
    end)::text[]) then
    -- Written here because this function sees these moves anyway, whoever makes them.
    if is_dormant(new.state) or is_dormant(old.state) then
      perform note_dormancy(new, old.state);
    end if;
    return new;
  end if;
  raise exception 'job % cannot go from % to %', old.id, old.state, new.state
    using errcode = 'HF001', hint = 'Use the functions of this schema to move jobs.';
end
$$;
ALTER FUNCTION holdfast.refuse_move() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_move() IS 'Refuse a change of a job that the state machine forbids; note which jobs are dormant (see dormant.sql).';
CREATE FUNCTION holdfast.refuse_no_tenant(tenant text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  if coalesce(tenant, '') = '' then
    raise exception 'a tenant is required' using errcode = 'HF003';
  end if;
end
$$;
ALTER FUNCTION holdfast.refuse_no_tenant(tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_no_tenant(tenant text) IS 'Raise unless a tenant is named.';
CREATE FUNCTION holdfast.refuse_renaming() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  if tg_op = 'DELETE' then
    if not exists (select from ready r where r.stream = any (entry_streams(old.id)))
      and not exists (select from leases l where l.stream = old.id) then
      return old;
    end if;
    raise exception 'stream % has open jobs', old.id
      using errcode = 'HF001', hint = 'Idle streams are forgotten by themselves (STREAM_IDLE_SECONDS).';
  end if;
  raise exception 'tenant, queue and type of % % cannot be changed',
    case tg_table_name when 'jobs' then 'job' else 'stream' end, old.id
    using errcode = 'HF001', hint = 'Cancel the job and enqueue another one.';
end
$$;
ALTER FUNCTION holdfast.refuse_renaming() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_renaming() IS 'Side tables know the tenant, type and queue of a job by its stream.';
CREATE FUNCTION holdfast.refuse_schedule(id bigint, revision integer, fault text) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select schedule_failed(s.id, fault)
  from schedules s
  where s.id = refuse_schedule.id and s.revision = refuse_schedule.revision and s.look_at is not null
$$;
ALTER FUNCTION holdfast.refuse_schedule(id bigint, revision integer, fault text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_schedule(id bigint, revision integer, fault text) IS 'Note that the leader could not compute fire times: its zone or its expression is unknown there.';
CREATE FUNCTION holdfast.refuse_setting() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  fault text := coalesce(setting_fault(new.name, new.value), setting_fault(new.name, new.default_value));
begin
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
  return new;
end
$$;
ALTER FUNCTION holdfast.refuse_setting() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_setting() IS 'Refuse a value of a setting that is out of its bounds.';
CREATE FUNCTION holdfast.refuse_stream() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  raise exception '% must not contain control characters',
    case
      when unprintable(new.tenant) then 'a tenant'
      when unprintable(new.queue) then 'the name of a queue'
      else 'a job type'
    end
    using errcode = 'HF002';
end
$$;
ALTER FUNCTION holdfast.refuse_stream() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refuse_stream() IS 'Checked when a stream is created, once for all jobs of its tenant, queue and type: later jobs pay nothing for it.';
CREATE FUNCTION holdfast.refused_intents(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[]) RETURNS TABLE(item integer, code text, message text, "constraint" text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  for position in 1 .. coalesce(cardinality(types), 0) loop
    perform refuse_no_tenant(tenants[position]);
    begin
      perform check_enqueue(
        types[position:position], payloads[position:position], options[position:position], tenants[position]);
      perform check_texts(creators[position], null);
      if options[position] ->> 'idempotency_key' is null then
        perform refuse_closed(types[position:position], '{}');
        if options[position] ->> 'parent_id' is not null then
          perform with_lineage(options[position:position], tenants[position], '{}');
        end if;
      end if;
    exception
      when sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        get stacked diagnostics code = returned_sqlstate, message = message_text, "constraint" = constraint_name;
        item := position;
        return next;
    end;
  end loop;
end
$$;
ALTER FUNCTION holdfast.refused_intents(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.refused_intents(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[]) IS 'Those of the intents that `submit` refuses whatever else is recorded, each with its error, and nothing is recorded.';
CREATE FUNCTION holdfast.register_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select check_worker(id, host, version, types, queues), check_lanes(lanes);
  insert into workers as w (id, host, pid, version, lanes, types, queues)
  values (register_worker.id, register_worker.host, register_worker.pid, register_worker.version,
    register_worker.lanes, register_worker.types, register_worker.queues)
  on conflict on constraint workers_pkey do update set heartbeat_at = now()
$$;
ALTER FUNCTION holdfast.register_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.register_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[]) IS 'Register a worker, with its slots per lane, its job types and its queues.';
CREATE FUNCTION holdfast.release(worker text, job_ids uuid[], attempts integer[], note text DEFAULT NULL::text) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select * from hand_back(worker, job_ids, attempts, note)
$$;
ALTER FUNCTION holdfast.release(worker text, job_ids uuid[], attempts integer[], note text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.release(worker text, job_ids uuid[], attempts integer[], note text) IS 'Hand back jobs that were not run, or not to their end.';
CREATE FUNCTION holdfast.release_held(job_ids uuid[], by text DEFAULT NULL::text, only_tenant text DEFAULT NULL::text) RETURNS TABLE(job_id uuid, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.release_held(job_ids uuid[], by text, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.release_held(job_ids uuid[], by text, only_tenant text) IS 'Release held jobs.';
CREATE FUNCTION holdfast.release_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select hand_back_unheard(worker, job_ids, claimed_until, before_number)
$$;
ALTER FUNCTION holdfast.release_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.release_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) IS 'Hand back jobs whose claim the worker never heard of.';
CREATE FUNCTION holdfast.release_unknown(worker text, job_ids uuid[]) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select hand_back_unheard(worker, job_ids, 'infinity', null)
$$;
ALTER FUNCTION holdfast.release_unknown(worker text, job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.release_unknown(worker text, job_ids uuid[]) IS 'Hand back jobs that a worker does not know of, for workers of 0.2.0, which have no mark.';
CREATE FUNCTION holdfast.remember_turns(memory jsonb, turns jsonb, load jsonb, running jsonb) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select set_config('holdfast.turns', jsonb_build_object(
    'turns', memory -> 'turns' || turns,
    'counted', case
      when load ->> 'until' is not null then jsonb_set(load, '{running}', load -> 'running' || running)
    end)::text, false)
$$;
ALTER FUNCTION holdfast.remember_turns(memory jsonb, turns jsonb, load jsonb, running jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remember_turns(memory jsonb, turns jsonb, load jsonb, running jsonb) IS 'Keep the turns of tenants for the next claim of this session.';
CREATE FUNCTION holdfast.remote_backoff(type text, failures integer) RETURNS double precision
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select backoff_seconds(
    failures_after('failed', remote_backoff.failures),
    coalesce(t.backoff_base, (select setting('BACKOFF_BASE_SEC')::double precision)),
    coalesce(t.backoff_factor, 2), coalesce(t.backoff_max, (select setting('BACKOFF_MAX_SEC')::double precision)),
    coalesce(t.backoff_jitter, 0.2))
  from (select 1) one
  left join job_types t on t.name = remote_backoff.type
$$;
ALTER FUNCTION holdfast.remote_backoff(type text, failures integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_backoff(type text, failures integer) IS 'How long a job that a remote worker ran waits until it is tried again: as its type declares, else by the settings BACKOFF_BASE_SEC and BACKOFF_MAX_SEC, doubled with each failure, and up to a fifth more.';
CREATE FUNCTION holdfast.remote_beat(workers text[]) RETURNS TABLE(worker text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  with alive as materialized (
    select w.id from workers w where w.id = any (remote_beat.workers) and w.kind = 'remote' order by w.id for update skip locked
  ), beaten as (
    update workers w set heartbeat_at = now() from alive where w.id = alive.id
  )
  select w.id from workers w where w.id = any (remote_beat.workers) and w.kind = 'remote' and w.quiet_at is not null
$$;
ALTER FUNCTION holdfast.remote_beat(workers text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_beat(workers text[]) IS 'Note that workers live: those that have called since the last time.';
CREATE FUNCTION holdfast.remote_call_failed(lease holdfast.leases, tenant text, type text, name text, error text) RETURNS double precision
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  circuit circuits;
  fault   text;
begin
  perform half_open_circuits();
  perform end_remote_probe(lease, tenant, type, false, name, error);
  select c.* into circuit from circuits c where c.tenant = remote_call_failed.tenant and c.name = remote_call_failed.name;
  if not found then
    fault := coalesce(circuit_name_fault(name, tenant), join_circuit(tenant, name, '{}'));
    if fault is not null then
      raise exception '%', fault using errcode = 'HF002', column = '/error/circuit';
    end if;
    select c.* into circuit from circuits c where c.tenant = remote_call_failed.tenant and c.name = remote_call_failed.name;
  end if;
  if circuit.state = 'closed' then
    insert into circuit_counts as k (
      tenant, name, worker, generation, successes, failures, last_failure_at, last_error)
    values (circuit.tenant, circuit.name, lease.worker, circuit.generation, 0, 1, now(), left(error, 1000))
    on conflict on constraint circuit_counts_pkey do update
      set generation = excluded.generation,
        successes = case when is_counting(k, circuit) then k.successes else 0 end,
        failures = case when is_counting(k, circuit) then k.failures else 0 end + 1,
        last_failure_at = now(), last_error = excluded.last_error, reported_at = now();
    perform judge_circuit(tenant, name);
    return null;
  end if;
  if circuit.state = 'half_open' then
    perform trip_circuit(circuit, left(error, 1000));
    select c.* into circuit from circuits c where c.tenant = remote_call_failed.tenant and c.name = remote_call_failed.name;
  end if;
  return remote_circuit_delay(tenant, name);
end
$$;
ALTER FUNCTION holdfast.remote_call_failed(lease holdfast.leases, tenant text, type text, name text, error text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_call_failed(lease holdfast.leases, tenant text, type text, name text, error text) IS 'Count a call that failed.';
CREATE FUNCTION holdfast.remote_call_succeeded(lease holdfast.leases, tenant text, type text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  circuit circuits;
begin
  if not exists (select from circuits c) then
    return;
  end if;
  perform end_remote_probe(lease, tenant, type, true, null, null);
  for circuit in
    select c.*
    from circuit_counts k
    join circuits c on c.tenant = k.tenant and c.name = k.name
    where k.tenant = remote_call_succeeded.tenant and k.worker = lease.worker and c.state in ('closed', 'half_open')
    order by c.tenant, c.name
  loop
    if circuit.state = 'closed' then
      update circuit_counts k
      set successes = k.successes + 1, reported_at = now()
      where k.tenant = circuit.tenant and k.name = circuit.name and k.worker = lease.worker
        and is_counting(k, circuit);
    elsif circuit.probe_successes + 1 < circuit.success_threshold then
      update circuits c
      set probe_successes = c.probe_successes + 1, updated_at = now()
      where c.tenant = circuit.tenant and c.name = circuit.name and c.generation = circuit.generation;
    else
      perform from circuits c
      where c.tenant = circuit.tenant and c.name = circuit.name and c.generation = circuit.generation
      for no key update;
      if found then
        perform close_circuit(circuit.tenant, circuit.name);
      end if;
    end if;
  end loop;
end
$$;
ALTER FUNCTION holdfast.remote_call_succeeded(lease holdfast.leases, tenant text, type text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_call_succeeded(lease holdfast.leases, tenant text, type text) IS 'Count a job that ended with success.';
CREATE FUNCTION holdfast.remote_circuit_delay(tenant text, name text) RETURNS double precision
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select greatest(1, w.wait_seconds + random() * w.spread_seconds)
  from circuits c
  cross join lateral circuit_wait(c) w
  where c.tenant = remote_circuit_delay.tenant and c.name = remote_circuit_delay.name
$$;
ALTER FUNCTION holdfast.remote_circuit_delay(tenant text, name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_circuit_delay(tenant text, name text) IS 'For how long to put off a job that may not call a service; null if there is no such circuit.';
CREATE FUNCTION holdfast.remote_details(worker text, job_ids uuid[], attempts integer[]) RETURNS TABLE(job_id uuid, attempt integer, type text, queue text, payload text, max_attempts integer, correlation_id text, target text, cursor text, progress_count bigint, result_count bigint, target_count bigint, traceparent text, timeout_seconds double precision, lease_seconds double precision, lease_expires_at timestamp with time zone, lease_remaining double precision)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select l.job_id, l.attempt, j.type, j.queue, j.payload::text,
    attempts_allowed(j.max_attempts, t.max_attempts, setting('MAX_ATTEMPTS_DEFAULT')::integer),
    coalesce(j.correlation_id, j.id::text), j.target, p.cursor::text, coalesce(p.progress_count, 0),
    coalesce(p.result_count, 0), j.target_count, left(j.traceparent, 255), timeout_of(j.type),
    l.lease_seconds::double precision, readable(l.expires_at),
    extract(epoch from l.expires_at - clock_timestamp())::double precision
  from unnest(job_ids, attempts) with ordinality as asked (job_id, attempt, place)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = remote_details.worker
  join jobs j on j.id = l.job_id
  left join job_types t on t.name = j.type
  left join job_progress p on p.job_id = l.job_id
  order by asked.place
$$;
ALTER FUNCTION holdfast.remote_details(worker text, job_ids uuid[], attempts integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_details(worker text, job_ids uuid[], attempts integer[]) IS 'What remote workers are told about jobs that they have claimed.';
CREATE FUNCTION holdfast.remote_digest(report jsonb) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $$
  select sha256(convert_to(report::text, 'UTF8'))
$$;
ALTER FUNCTION holdfast.remote_digest(report jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_digest(report jsonb) IS 'What is kept of a final report.';
CREATE FUNCTION holdfast.remote_directive(worker text, interrupt text, late boolean) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(interrupt, case
    when late then 'cancel'
    when is_quiet(worker) then 'drain'
    else 'continue'
  end)
$$;
ALTER FUNCTION holdfast.remote_directive(worker text, interrupt text, late boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_directive(worker text, interrupt text, late boolean) IS 'What a worker is to do with a job: what somebody decided about it, stop when its time is over, or what concerns the worker.';
CREATE FUNCTION holdfast.remote_end(claimed_at timestamp with time zone, type text) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select claimed_at + make_interval(secs => timeout_of(type) + 15)
$$;
ALTER FUNCTION holdfast.remote_end(claimed_at timestamp with time zone, type text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_end(claimed_at timestamp with time zone, type text) IS 'Up to when the lease of an attempt can last at most: its timeout, and a moment to report.';
CREATE FUNCTION holdfast.remote_extend(tenants text[], workers text[], job_ids uuid[], attempts integer[], lengths double precision[]) RETURNS TABLE(item integer, owned boolean, directive text, lease_expires_at timestamp with time zone, lease_remaining double precision, timeout_remaining double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  asked record;
  lease leases;
begin
  for asked in
    select a.place::integer as place, l.job_id, j.type, a.seconds, a.worker, a.tenant
    from unnest(tenants, workers, job_ids, attempts, lengths) with ordinality
      as a (tenant, worker, job_id, attempt, seconds, place)
    left join leases l on l.job_id = a.job_id and l.attempt = a.attempt and l.worker = a.worker
    left join jobs j on j.id = l.job_id and j.tenant = a.tenant
    order by l.job_id, a.place
  loop
    perform check_remote(asked.tenant, asked.worker);
    item := asked.place;
    owned := asked.type is not null;
    directive := null;
    lease_expires_at := null;
    lease_remaining := null;
    timeout_remaining := null;
    if owned then
      select l.* into lease from leases l where l.job_id = asked.job_id and l.worker = asked.worker for update skip locked;
      if found then
        select h.* into directive, lease_expires_at, lease_remaining from hold_on(lease, asked.type, asked.seconds, true) h;
      else
        select l.* into lease from leases l where l.job_id = asked.job_id and l.worker = asked.worker;
        owned := found;
        if owned then
          directive := remote_directive(asked.worker, told_interrupt(lease.interrupt), is_late(lease, asked.type));
          lease_expires_at := readable(lease.expires_at);
          lease_remaining := extract(epoch from lease.expires_at - clock_timestamp());
        end if;
      end if;
      timeout_remaining := extract(epoch from lease.claimed_at - clock_timestamp()) + timeout_of(asked.type);
    end if;
    return next;
  end loop;
end
$$;
ALTER FUNCTION holdfast.remote_extend(tenants text[], workers text[], job_ids uuid[], attempts integer[], lengths double precision[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_extend(tenants text[], workers text[], job_ids uuid[], attempts integer[], lengths double precision[]) IS 'Prolong leases of many workers, and say which of them they still have.';
CREATE FUNCTION holdfast.remote_give(tenant text, worker text, request_id text, wish jsonb, quiet boolean, OUT job_ids uuid[], OUT attempts integer[], OUT repeated boolean) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  streams integer[];
begin
  repeated := false;
  -- First the streams, then earlier answers: whoever takes the last jobs in between has noted it.
  if not quiet then
    streams := remote_streams(tenant, texts_of(wish -> 'types'), texts_of(wish -> 'queues'));
  end if;
  if request_id is not null then
    select k.job_ids, k.attempts into job_ids, attempts from remote_kept(tenant, worker, request_id) k;
    if job_ids is not null then
      repeated := true;
      return;
    end if;
  end if;
  if streams is null then
    return;
  end if;
  if request_id is not null then
    insert into remote_pulls as p (tenant, worker, request_id)
    values (remote_give.tenant, remote_give.worker, remote_give.request_id)
    on conflict on constraint remote_pulls_pkey do nothing;
    if not found then
      -- A repeat has come meanwhile, or the earlier answer holds no longer.
      perform from remote_pulls p
      where p.tenant = remote_give.tenant and p.worker = remote_give.worker and p.request_id = remote_give.request_id
      for update;
      select k.job_ids, k.attempts into job_ids, attempts from remote_kept(tenant, worker, request_id) k;
      if job_ids is not null then
        repeated := true;
        return;
      end if;
    end if;
  end if;
  select array_agg(c.job_id), array_agg(c.attempt) into job_ids, attempts
  from claim_jobs(
    worker, (wish ->> 'max')::integer, (wish ->> 'lease_sec')::double precision, streams,
    array_fill(-1, array[cardinality(streams)]), array_fill(0::bigint, array[cardinality(streams)]),
    array_fill(2147483647, array[cardinality(streams)]), (wish ->> 'max')::integer, null, false) c;
  if job_ids is not null then
    perform serve_streams(array(select distinct l.stream from leases l where l.job_id = any (remote_give.job_ids)));
    perform remote_shorten(worker, job_ids);
    select t.job_ids, t.attempts into job_ids, attempts from remote_trim(worker, job_ids, attempts) t;
  end if;
  if request_id is not null then
    if job_ids is null then
      delete from remote_pulls p
      where p.tenant = remote_give.tenant and p.worker = remote_give.worker and p.request_id = remote_give.request_id;
    else
      update remote_pulls p
      set job_ids = remote_give.job_ids, attempts = remote_give.attempts, pulled_at = now()
      where p.tenant = remote_give.tenant and p.worker = remote_give.worker and p.request_id = remote_give.request_id;
    end if;
  end if;
end
$$;
ALTER FUNCTION holdfast.remote_give(tenant text, worker text, request_id text, wish jsonb, quiet boolean, OUT job_ids uuid[], OUT attempts integer[], OUT repeated boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_give(tenant text, worker text, request_id text, wish jsonb, quiet boolean, OUT job_ids uuid[], OUT attempts integer[], OUT repeated boolean) IS 'What one pull is given: the jobs that its request id was given before, as far as they are still its own, or new ones.';
CREATE FUNCTION holdfast.remote_kept(tenant text, worker text, request_id text) RETURNS TABLE(job_ids uuid[], attempts integer[])
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select array_agg(l.job_id order by given.place), array_agg(l.attempt order by given.place)
  from remote_pulls p
  cross join lateral unnest(p.job_ids, p.attempts) with ordinality as given (job_id, attempt, place)
  join leases l on l.job_id = given.job_id and l.attempt = given.attempt and l.worker = remote_kept.worker
  where p.tenant = remote_kept.tenant and p.worker = remote_kept.worker and p.request_id = remote_kept.request_id
    and p.pulled_at > now() - interval '5 minutes'
$$;
ALTER FUNCTION holdfast.remote_kept(tenant text, worker text, request_id text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_kept(tenant text, worker text, request_id text) IS 'The jobs that a request id was given in the last five minutes, those of them that the worker still owns; nulls if there are none.';
CREATE FUNCTION holdfast.remote_news(job_ids uuid[]) RETURNS TABLE(worker text, job_id uuid, attempt integer, directive text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  if job_ids is null then
    return query
    select l.worker, l.job_id, l.attempt, told_interrupt(l.interrupt)
    from leases l
    where l.interrupt is not null and starts_with(l.worker, 'remote:')
    union all
    select w.id, null, null, 'drain'
    from workers w
    where w.kind = 'remote' and w.quiet_at is not null and not is_lost(w);
    return;
  end if;
  return query
  select l.worker, l.job_id, l.attempt, told_interrupt(l.interrupt)
  from leases l
  where l.job_id = any (job_ids) and l.interrupt is not null and starts_with(l.worker, 'remote:')
  union all
  select t.worker, t.job_id, t.attempt, 'lost'
  from unnest(job_ids) as named (id)
  join lateral (
    select t.* from job_attempts t where t.job_id = named.id order by t.attempt desc limit 1) t on true
  where t.taken_back is true and starts_with(t.worker, 'remote:')
    and not exists (select from leases l where l.job_id = named.id and l.attempt = t.attempt);
end
$$;
ALTER FUNCTION holdfast.remote_news(job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_news(job_ids uuid[]) IS 'What concerns workers that wait: of these jobs, or, without any, of all, those that somebody wants to stop, and those that a worker has lost although its lease had not lapsed.';
CREATE FUNCTION holdfast.remote_present(tenant text, worker text, types text[], queues text[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  known workers;
begin
  select w.* into known from workers w where w.id = worker;
  if found and known.heartbeat_at between now() - interval '45 seconds' and now() + interval '5 seconds'
    and known.types = remote_present.types and known.queues is not distinct from remote_present.queues then
    return known.quiet_at is not null;
  end if;
  perform check_worker(worker, '', '', types, queues, array[tenant]);
  insert into workers as w (id, host, pid, version, lanes, types, queues, tenants, kind)
  values (worker, '', 0, '', '{}', remote_present.types, remote_present.queues, array[tenant], 'remote')
  on conflict on constraint workers_pkey do update
    set types = excluded.types, queues = excluded.queues, heartbeat_at = now(),
      started_at = case when is_lost(w) then now() else w.started_at end,
      quiet_at = case when is_lost(w) then null else w.quiet_at end,
      quiet_by = case when is_lost(w) then null else w.quiet_by end,
      quiet_note = case when is_lost(w) then null else w.quiet_note end
  returning w.quiet_at is not null into known.draining;
  return known.draining;
end
$$;
ALTER FUNCTION holdfast.remote_present(tenant text, worker text, types text[], queues text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_present(tenant text, worker text, types text[], queues text[]) IS 'Note that a worker is there, with what it can run.';
CREATE FUNCTION holdfast.remote_pull(tenants text[], workers text[], request_ids text[], wishes jsonb[]) RETURNS TABLE(item integer, fault text, detail text, directive text, repeated boolean, job_id uuid, attempt integer, type text, queue text, payload text, max_attempts integer, correlation_id text, target text, cursor text, progress_count bigint, result_count bigint, target_count bigint, traceparent text, timeout_seconds double precision, lease_seconds double precision, lease_expires_at timestamp with time zone, lease_remaining double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '250ms'
    AS $$
#variable_conflict use_column
declare
  wish    jsonb;
  quiet   boolean;
  given   record;
begin
  for position in 1 .. coalesce(cardinality(workers), 0) loop
    wish := wishes[position];
    begin
      perform check_remote(tenants[position], workers[position]);
      quiet := remote_present(tenants[position], workers[position], texts_of(wish -> 'types'), texts_of(wish -> 'queues'));
      select g.* into given
      from remote_give(tenants[position], workers[position], request_ids[position], wish, quiet) g;
      return query
      select position, null::text, null::text, case when quiet then 'drain' else 'continue' end, given.repeated, d.*
      from (select 1) one
      left join remote_details(workers[position], given.job_ids, given.attempts) d on true;
    exception
      when lock_not_available or deadlock_detected or serialization_failure
        or sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        item := position;
        fault := sqlstate;
        detail := sqlerrm;
        return next;
        fault := null;
        detail := null;
    end;
  end loop;
end
$$;
ALTER FUNCTION holdfast.remote_pull(tenants text[], workers text[], request_ids text[], wishes jsonb[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_pull(tenants text[], workers text[], request_ids text[], wishes jsonb[]) IS 'Claim jobs for many workers.';
CREATE FUNCTION holdfast.remote_release(tenants text[], workers text[], job_ids uuid[], attempts integer[], reasons text[]) RETURNS TABLE(item integer, fault text, detail text, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '250ms'
    AS $$
#variable_conflict use_column
declare
  lease leases;
  type  text;
begin
  for position in 1 .. coalesce(cardinality(workers), 0) loop
    item := position;
    fault := null;
    detail := null;
    state := null;
    begin
      perform check_remote(tenants[position], workers[position]);
      select l.* into lease
      from leases l
      where l.job_id = job_ids[position] and l.attempt = attempts[position] and l.worker = workers[position]
      for update;
      perform from jobs j where j.id = lease.job_id for no key update;
      select j.type into type from jobs j where j.id = job_ids[position] and j.tenant = tenants[position];
      if found then
        select nullif(s.state, 'lease-lost') into state
        from settle(
          workers[position], job_ids[position:position], attempts[position:position],
          array[case when is_late(lease, type) then 'timeout' else 'released' end], null, null,
          reasons[position:position], null, null, null, null) s;
      end if;
    exception
      when lock_not_available or deadlock_detected or serialization_failure
        or sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        fault := sqlstate;
        detail := sqlerrm;
    end;
    return next;
  end loop;
end
$$;
ALTER FUNCTION holdfast.remote_release(tenants text[], workers text[], job_ids uuid[], attempts integer[], reasons text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_release(tenants text[], workers text[], job_ids uuid[], attempts integer[], reasons text[]) IS 'Hand back jobs of many workers, free of charge, or as canceled or paused where somebody decided so.';
CREATE FUNCTION holdfast.remote_repeats(tenants text[], workers text[], request_ids text[]) RETURNS TABLE(item integer)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select asked.place::integer
  from unnest(tenants, workers, request_ids) with ordinality as asked (tenant, worker, request_id, place)
  join remote_pulls p on p.tenant = asked.tenant and p.worker = asked.worker and p.request_id = asked.request_id
  where p.pulled_at > now() - interval '5 minutes'
    and exists (
      select
      from unnest(p.job_ids, p.attempts) as given (job_id, attempt)
      join leases l on l.job_id = given.job_id and l.attempt = given.attempt and l.worker = asked.worker)
$$;
ALTER FUNCTION holdfast.remote_repeats(tenants text[], workers text[], request_ids text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_repeats(tenants text[], workers text[], request_ids text[]) IS 'Of these pulls, those whose request id was given jobs that their worker still owns.';
CREATE FUNCTION holdfast.remote_report(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) RETURNS TABLE(item integer, fault text, detail text, pointer text, verdict text, state text, owned boolean, directive text, lease_expires_at timestamp with time zone, lease_remaining double precision, progress_count bigint, result_count bigint, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '250ms'
    AS $$
#variable_conflict use_column
declare
  plain integer[] := settle_plain(tenants, workers, job_ids, attempts, reports);
begin
  return query
  select p.place, null::text, null::text, null::text, 'counted', 'success', false,
    remote_directive(workers[p.place], null, false), null::timestamptz, null::double precision, 0::bigint, 0::bigint,
    null::text
  from unnest(plain) as p (place);
  for position in 1 .. coalesce(cardinality(workers), 0) loop
    continue when position = any (plain);
    begin
      return query
      select position, null::text, null::text, null::text, t.*
      from take_report(
        tenants[position], workers[position], job_ids[position], attempts[position], reports[position]::jsonb) t;
    exception
      when lock_not_available or deadlock_detected or serialization_failure or program_limit_exceeded or check_violation
        or sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception or statement_too_complex then
        item := position;
        get stacked diagnostics fault = returned_sqlstate, detail = message_text, pointer = column_name;
        return next;
    end;
  end loop;
end
$$;
ALTER FUNCTION holdfast.remote_report(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_report(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) IS 'Record reports of many workers.';
CREATE FUNCTION holdfast.remote_shorten(worker text, job_ids uuid[]) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  update leases l
  set expires_at = remote_end(l.claimed_at, s.type)
  from streams s
  where l.job_id = any (job_ids) and l.worker = remote_shorten.worker and s.id = l.stream
    and l.expires_at > remote_end(l.claimed_at, s.type)
$$;
ALTER FUNCTION holdfast.remote_shorten(worker text, job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_shorten(worker text, job_ids uuid[]) IS 'Shorten leases that were claimed just now for longer than their job may run.';
CREATE FUNCTION holdfast.remote_stock(tenants text[], types text[], announced integer[], most integer) RETURNS TABLE(id integer, tenant text, type text, queue text, ready integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  found integer[] := announced;
  shut  integer[] := '{}';
begin
  if found is null then
    perform half_open_circuits();  -- perhaps there are no other workers who would
    found := array(
      select s.id
      from unnest(tenants, types) as asked (tenant, type)
      join streams s on s.type = asked.type and s.tenant = asked.tenant and s.closed_in is null
      cross join lateral (select from ready r where r.stream = s.id limit 1) entry);
  end if;
  if found <> '{}' and (exists (select from controls) or exists (select from limited_types())) then
    shut := shut_streams(found);
  end if;
  return query
  select s.id, s.tenant, s.type, s.queue,
    case when s.id <> all (shut) then (
      select count(*)::integer from (select from ready r where r.stream = s.id limit most) counted)
    else 0 end
  from unnest(found) as open (id)
  join streams s on s.id = open.id and s.closed_in is null;
end
$$;
ALTER FUNCTION holdfast.remote_stock(tenants text[], types text[], announced integer[], most integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_stock(tenants text[], types text[], announced integer[], most integer) IS 'How many jobs can be claimed now, counted up to `most`: in those streams of these pairs of tenant and type in which something is ready, or in the streams that were announced, whosever they are.';
CREATE FUNCTION holdfast.remote_streams(tenant text, types text[], queues text[]) RETURNS integer[]
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select array_agg(s.id)
  from open_streams(types, queues, array[tenant]) s
  where s.id in (select r.id from ready_streams(array(
    select e.id from eligible_streams(types, queues, array[tenant]) e)) r)
$$;
ALTER FUNCTION holdfast.remote_streams(tenant text, types text[], queues text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_streams(tenant text, types text[], queues text[]) IS 'Those of a tenant''s streams from which this can be claimed now: open ones with something ready.';
CREATE FUNCTION holdfast.remote_trim(worker text, INOUT job_ids uuid[], INOUT attempts integer[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  kept integer;
begin
  if cardinality(job_ids) > 1
    and (select sum(pg_column_size(j.payload)) from jobs j where j.id = any (remote_trim.job_ids)) > 16384 then
    select count(*) into kept
    from (
      select c.place, sum(octet_length(j.payload::text)) over (order by c.place) as bytes
      from unnest(job_ids) with ordinality as c (job_id, place)
      join jobs j on j.id = c.job_id) line
    where line.place = 1 or line.bytes <= 4194304;
    if kept < cardinality(job_ids) then
      perform from hand_back(worker, job_ids[kept + 1:], attempts[kept + 1:], 'the answer to the pull would be too large');
      job_ids := job_ids[:kept];
      attempts := attempts[:kept];
    end if;
  end if;
end
$$;
ALTER FUNCTION holdfast.remote_trim(worker text, INOUT job_ids uuid[], INOUT attempts integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.remote_trim(worker text, INOUT job_ids uuid[], INOUT attempts integer[]) IS 'Hand back the jobs of a pull whose payloads would make its answer too large: all of them together have 4 MiB at most, or it is only one.';
CREATE FUNCTION holdfast.renew(worker text, job_ids uuid[], attempts integer[]) RETURNS TABLE(job_id uuid, attempt integer, lease_remaining double precision, interrupt text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  with asked as (
    select * from unnest(job_ids, attempts) as a (job_id, attempt)
  ), free as materialized (
    select l.job_id
    from asked
    join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = renew.worker
    order by l.job_id
    for update of l skip locked
  ), prolonged as (
    update leases l
    set expires_at = now() + make_interval(secs => l.lease_seconds)
    from free
    where l.job_id = free.job_id
    returning l.job_id, l.attempt, l.expires_at, l.interrupt
  )
  select p.job_id, p.attempt, extract(epoch from p.expires_at - now())::double precision, told_interrupt(p.interrupt)
  from prolonged p
  union all
  select l.job_id, l.attempt, extract(epoch from l.expires_at - now())::double precision, told_interrupt(l.interrupt)
  from asked
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = renew.worker
  where l.job_id not in (select p.job_id from prolonged p)
$$;
ALTER FUNCTION holdfast.renew(worker text, job_ids uuid[], attempts integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.renew(worker text, job_ids uuid[], attempts integer[]) IS 'Prolong a worker''s leases, all in one statement, and say which of them somebody wants to interrupt.';
CREATE FUNCTION holdfast.replace_heads(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  tenants text[];
  targets text[];
begin
  with visited as materialized (
    select h.tenant, h.target, h.job_id, row_number() over (order by h.tenant, h.target) as number
    from heads h
    where (h.tenant, h.target) > (coalesce(after[1], ''), coalesce(after[2], ''))
    order by h.tenant, h.target
    limit max_rows
  ), lost as (
    select array_agg(v.tenant) as tenants, array_agg(v.target) as targets
    from visited v
    where not exists (
      select from jobs j
      where j.id = v.job_id and j.state <> 'created' and not has_ended(j.state))
  )
  select fault.tenants, fault.targets, (select array[v.tenant, v.target] from visited v where v.number = max_rows)
  into tenants, targets, reached
  from lost
  cross join lateral uncalled(lost.tenants, lost.targets) fault;
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  mended := coalesce(cardinality(targets), 0);
  perform note_repair('head-replaced', mended);
  return next;
end
$$;
ALTER FUNCTION holdfast.replace_heads(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.replace_heads(after text[], max_rows integer) IS 'Replace the heads of targets that have ended or are gone, unless a call for that target is pending.';
CREATE FUNCTION holdfast.report(worker text, job_id uuid, attempt integer, seq integer, items jsonb DEFAULT NULL::jsonb, collection text DEFAULT NULL::text, cursor jsonb DEFAULT NULL::jsonb, progress bigint DEFAULT 0, done_reason text DEFAULT NULL::text, ends text DEFAULT 'later'::text, result jsonb DEFAULT NULL::jsonb, log_excerpt text DEFAULT NULL::text) RETURNS TABLE(state text, duplicate boolean, progress_count bigint, result_count bigint, target_count bigint, target_reached boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
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
    raise exception 'the total progress of a job must be at most 9223372036854775807' using errcode = 'HF002';
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
ALTER FUNCTION holdfast.report(worker text, job_id uuid, attempt integer, seq integer, items jsonb, collection text, cursor jsonb, progress bigint, done_reason text, ends text, result jsonb, log_excerpt text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.report(worker text, job_id uuid, attempt integer, seq integer, items jsonb, collection text, cursor jsonb, progress bigint, done_reason text, ends text, result jsonb, log_excerpt text) IS 'What an attempt reports about its job before it ends: items, a cursor, its progress.';
CREATE FUNCTION holdfast.reprioritized(job holdfast.jobs, priority integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  if job.priority = reprioritized.priority then
    return true;
  end if;
  -- As in `move_waiting`: whoever seats a target reads the priority of its head.
  if job.state = 'queued' and job.target is not null then
    insert into heads (tenant, target) values (job.tenant, job.target) on conflict do nothing;
    perform from heads h where h.tenant = job.tenant and h.target = job.target for update;
    if not found then
      return false;
    end if;
  end if;
  if job.state = 'queued' and not exists (
    select from waiting w
    where w.tenant = job.tenant and w.target = job.target and w.turn = 1 and w.place = job.seq
  ) and not entry_moved(job, reprioritized.priority) then
    return false;
  end if;
  update jobs j
  set priority = reprioritized.priority
  where j.id = job.id and j.state = job.state and j.attempt = job.attempt and j.seq = job.seq and j.run_at = job.run_at
    and j.priority = job.priority;
  if not found then
    raise exception 'job % changed while its entry was locked', job.id using errcode = '40001';
  end if;
  if job.state = 'queued' then
    if job.target is not null then
      perform seat(array[job.tenant], array[job.target]);
    end if;
    perform wake_again(array[job.stream]);
  end if;
  return true;
end
$$;
ALTER FUNCTION holdfast.reprioritized(job holdfast.jobs, priority integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.reprioritized(job holdfast.jobs, priority integer) IS 'Give an open job another priority.';
CREATE FUNCTION holdfast.request(verb text, job_ids uuid[], by text DEFAULT NULL::text, note text DEFAULT NULL::text, only_tenant text DEFAULT NULL::text, at_once boolean DEFAULT true) RETURNS TABLE(job_id uuid, outcome text, request_id uuid)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select r.job_id, r.outcome, r.request_id
  from record_requests(verb, job_ids, by, note, null, only_tenant, at_once, false) r
$$;
ALTER FUNCTION holdfast.request(verb text, job_ids uuid[], by text, note text, only_tenant text, at_once boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.request(verb text, job_ids uuid[], by text, note text, only_tenant text, at_once boolean) IS 'Ask that jobs be canceled, paused, resumed, retried or deleted.';
CREATE FUNCTION holdfast.request_streams() RETURNS integer[]
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select array(
    select s.id
    from streams s
    where s.type = any (array(select 'holdfast.' || v.verb from unnest(request_verbs() || hand_verbs()) as v (verb)))
      and s.queue = 'holdfast'
      and s.closed_in is null)
$$;
ALTER FUNCTION holdfast.request_streams() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.request_streams() IS 'The streams that contain requests, found by their types: most streams of a large system have none.';
CREATE FUNCTION holdfast.request_verbs() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array['cancel', 'pause', 'resume', 'delete', 'retry']
$$;
ALTER FUNCTION holdfast.request_verbs() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.request_verbs() IS 'The verbs that may be asked for.';
CREATE FUNCTION holdfast.requeue_letter(id uuid, payload jsonb, options jsonb, by text, note text, OUT outcome text, OUT runs_as uuid) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.requeue_letter(id uuid, payload jsonb, options jsonb, by text, note text, OUT outcome text, OUT runs_as uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.requeue_letter(id uuid, payload jsonb, options jsonb, by text, note text, OUT outcome text, OUT runs_as uuid) IS 'Run one dead job again, or answer the job that it runs again as.';
CREATE FUNCTION holdfast.requeue_letters(job_ids uuid[], by text, note text DEFAULT NULL::text, payload jsonb DEFAULT NULL::jsonb, options jsonb DEFAULT NULL::jsonb, only_tenant text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS TABLE(job_id uuid, outcome text, state text, runs_as uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '2s'
    AS $$
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
ALTER FUNCTION holdfast.requeue_letters(job_ids uuid[], by text, note text, payload jsonb, options jsonb, only_tenant text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.requeue_letters(job_ids uuid[], by text, note text, payload jsonb, options jsonb, only_tenant text, by_key uuid) IS 'Run dead jobs again as new ones, once each, with the same correlation id and another payload or other options if they are given (for all of them; an option that is given as null is left to the job type).';
CREATE FUNCTION holdfast.reset_circuit(name text, tenant text, by text, reason text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  circuit circuits;
  fault   text;
begin
  perform check_circuit_change(reset_circuit.name, reset_circuit.tenant, by, reason);
  select c.* into circuit
  from circuits c
  where c.tenant = reset_circuit.tenant and c.name = reset_circuit.name
  for no key update;
  if not found then
    fault := join_circuit(reset_circuit.tenant, reset_circuit.name, '{}');
    if fault is not null then
      raise exception '%', fault using errcode = 'HF002';
    end if;
  end if;
  perform close_circuit(reset_circuit.tenant, reset_circuit.name);
  update circuits c
  set last_failure_at = null, last_error = null
  where c.tenant = reset_circuit.tenant and c.name = reset_circuit.name;
  perform note_audit(by, by_key, nullif(reset_circuit.tenant, ''), 'circuit.reset', reset_circuit.name,
    jsonb_strip_nulls(jsonb_build_object('note', reason, 'was', circuit.state, 'forced_by', circuit.forced_by)));
  return circuit.name is not null;
end
$$;
ALTER FUNCTION holdfast.reset_circuit(name text, tenant text, by text, reason text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.reset_circuit(name text, tenant text, by text, reason text, by_key uuid) IS 'Close a circuit, whatever its state, and reset its counts.';
CREATE FUNCTION holdfast.resign(name text, candidate text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  update leaders l set expires_at = '-infinity', patience_seconds = 0 where l.name = resign.name and l.holder = candidate;
  select pg_notify(current_schema() || '.duty', '');
$$;
ALTER FUNCTION holdfast.resign(name text, candidate text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.resign(name text, candidate text) IS 'Give up leadership, so that another process can take it at once.';
CREATE FUNCTION holdfast.resolve_job(id uuid, by text, note text DEFAULT NULL::text, only_tenant text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS text
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select r.outcome from operator_request_as('resolve', resolve_job.id, by, note, only_tenant, by_key, false) r
$$;
ALTER FUNCTION holdfast.resolve_job(id uuid, by text, note text, only_tenant text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.resolve_job(id uuid, by text, note text, only_tenant text, by_key uuid) IS 'Ask, as older servers do, that a job be resolved.';
CREATE FUNCTION holdfast.result_limit() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select setting('RESULT_MAX_BYTES')::bigint
$$;
ALTER FUNCTION holdfast.result_limit() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.result_limit() IS 'How large a result may be, in bytes.';
CREATE FUNCTION holdfast.resume_schedule(name text, tenant text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  select s.* into old
  from schedules s
  where s.tenant = resume_schedule.tenant and s.name = resume_schedule.name and s.retired_at is null
  for update;
  if not found then
    return null;
  elsif old.paused_at is null then
    perform vouch();
    return false;
  end if;
  update schedules s
  set paused_at = null, paused_by = null, paused_note = null, next_fire_at = null, reckoned_from = now(),
    reckoned_at = now(), look_at = now()
  where s.id = old.id;
  perform note_audit(
    by, by_key, tenant, 'schedule.resume', old.name, jsonb_strip_nulls(jsonb_build_object('note', note)));
  perform wake('duty', array[0]);
  return true;
end
$$;
ALTER FUNCTION holdfast.resume_schedule(name text, tenant text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.resume_schedule(name text, tenant text, by text, note text, by_key uuid) IS 'Let a schedule fire again, from now on: fire times during the pause are skipped.';
CREATE FUNCTION holdfast.resume_scope(kind text, name text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid, only_by text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select case
    when only_by is null then resume_subject(resume_scope.kind, resume_scope.name, by, note, by_key, null)
    when (resume_scope.kind, only_by) is distinct from ('tenant', resume_scope.name || '/') then false
    else resume_subject(resume_scope.kind, resume_scope.name, by, note, by_key, resume_scope.name)
  end
$$;
ALTER FUNCTION holdfast.resume_scope(kind text, name text, by text, note text, by_key uuid, only_by text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.resume_scope(kind text, name text, by text, note text, by_key uuid, only_by text) IS 'Let claims go on in a queue, type, lane or tenant, or everywhere.';
CREATE FUNCTION holdfast.resume_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select resume_subject(resume_scope_as.kind, resume_scope_as.name, resume_scope_as.by, note, by_key, by_tenant)
$$;
ALTER FUNCTION holdfast.resume_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.resume_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text) IS 'Let claims go on in a queue, type, lane or tenant, or everywhere.';
CREATE FUNCTION holdfast.resume_subject(kind text, name text, by text, reason text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid, by_tenant text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  paused controls;
begin
  perform check_subject(resume_subject.kind, resume_subject.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  perform check_texts(by, reason);
  perform check_by_tenant(resume_subject.kind, resume_subject.name, by_tenant);
  select c.* into paused
  from controls c
  where c.kind = resume_subject.kind
    and c.name = resume_subject.name
    and c.paused_at is not null
    and (by_tenant is null or c.paused_tenant = by_tenant)
  for update;
  if not found then
    return false;
  end if;
  update controls c
  set paused_at = null, paused_by = null, paused_note = null, paused_tenant = null, paused_public = false,
    updated_at = now(), updated_by = resume_subject.by
  where c.kind = resume_subject.kind and c.name = resume_subject.name;
  perform note_steering(resume_subject.kind, resume_subject.name, 'resume', by, by_key, jsonb_build_object(
    'note', reason, 'paused_by', paused.paused_by, 'paused_at', paused.paused_at));
  return true;
end
$$;
ALTER FUNCTION holdfast.resume_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.resume_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text) IS 'Let claims go on in a queue, type, lane or tenant, or everywhere.';
CREATE FUNCTION holdfast.retention_horizon(dead boolean) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select now() - retention_of(retention_horizon.dead) - clock_lead(retention_of(retention_horizon.dead))
$$;
ALTER FUNCTION holdfast.retention_horizon(dead boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.retention_horizon(dead boolean) IS 'What ended before this moment is kept no longer; what is dead, if it was acknowledged before it.';
CREATE FUNCTION holdfast.retention_of(dead boolean) RETURNS interval
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select make_interval(secs => 86400 * least(
    setting(case when dead then 'RETENTION_DEAD_DAYS' else 'RETENTION_DAYS' end)::double precision,
    highest('retention_days')))
$$;
ALTER FUNCTION holdfast.retention_of(dead boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.retention_of(dead boolean) IS 'How long ended jobs are kept; dead ones from the moment of their acknowledgement.';
CREATE FUNCTION holdfast.retire(after uuid DEFAULT NULL::uuid, max_jobs integer DEFAULT 500) RETURNS TABLE(deleted integer, reached uuid)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select r.deleted, r.reached from retire_from(retire.after, retire.max_jobs, retire.max_jobs) r
$$;
ALTER FUNCTION holdfast.retire(after uuid, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.retire(after uuid, max_jobs integer) IS 'Delete ended jobs whose retention is over, for leaders of older releases.';
CREATE FUNCTION holdfast.retire_counted(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) RETURNS TABLE(success integer, canceled integer, dead integer, visited integer, reached uuid, kept uuid)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  origin  uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
  over_at timestamptz := retention_horizon(false);
  died    timestamptz := retention_horizon(true);
  expired timestamptz := greatest(over_at, died);
  over    uuid[];
  free    uuid[];
  recent  boolean;
begin
  success := 0;
  canceled := 0;
  dead := 0;
  if clock_timestamp() not between retire_counted.clock - interval '1 second' and retire_counted.clock + interval '1 minute' then
    reached := after;
    return next;
    return;
  end if;
  select count(*), (array_agg(chunk.id))[count(*)::integer], array_agg(chunk.id) filter (where chunk.over),
    (array_agg(chunk.id) filter (where not chunk.over))[1], bool_and(chunk.created_at >= expired)
  into visited, reached, over, kept, recent
  from (
    select c.id, c.created_at, c.over from judged(origin, over_at, died) c limit max_visited) chunk;
  if visited = 0 then
    return next;
    return;
  end if;
  if cardinality(over) > max_jobs then
    over := over[:max_jobs];
    reached := over[max_jobs];
    kept := case when kept < reached then kept end;
  elsif recent and reached >= first_id(expired) then
    -- The following jobs are younger still, up to ids of another kind.
    reached := greatest(reached, first_id(now() + interval '1 day'));
  end if;
  -- A job that somebody has locked stays until a later walk.
  free := array(select j.id from jobs j where j.id = any (over) order by j.id for update skip locked);
  if cardinality(free) < cardinality(over) then
    kept := least(kept, (select o.id from unnest(over) as o (id) where o.id <> all (free) order by o.id limit 1));
    over := free;
  end if;
  select count(*) filter (where j.state = 'success'), count(*) filter (where j.state = 'canceled'),
    count(*) filter (where j.state = 'dead')
  into success, canceled, dead
  from jobs j
  where j.id = any (over);
  -- Jobs are deleted after all their other rows. These may be too many for one call: the next one then starts here
  -- again.
  if success + canceled + dead > 0 and not take_away(over) then
    success := 0;
    canceled := 0;
    dead := 0;
    reached := origin;
    kept := null;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.retire_counted(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.retire_counted(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) IS 'Do what `retire_known` does, and count the deleted jobs by state.';
CREATE FUNCTION holdfast.retire_from(after uuid DEFAULT NULL::uuid, max_jobs integer DEFAULT 2000, max_visited integer DEFAULT 10000) RETURNS TABLE(deleted integer, visited integer, reached uuid, kept uuid)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select * from retire_known(null, retire_from.after, retire_from.max_jobs, retire_from.max_visited)
$$;
ALTER FUNCTION holdfast.retire_from(after uuid, max_jobs integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.retire_from(after uuid, max_jobs integer, max_visited integer) IS 'Delete ended jobs whose retention is over, for leaders of older releases, which do not say when they read the clock.';
CREATE FUNCTION holdfast.retire_known(clock timestamp with time zone, after uuid DEFAULT NULL::uuid, max_jobs integer DEFAULT 2000, max_visited integer DEFAULT 10000) RETURNS TABLE(deleted integer, visited integer, reached uuid, kept uuid)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select r.success + r.canceled + r.dead, r.visited, r.reached, r.kept
  from retire_counted(retire_known.clock, retire_known.after, retire_known.max_jobs, retire_known.max_visited) r
$$;
ALTER FUNCTION holdfast.retire_known(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.retire_known(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) IS 'Delete ended jobs whose retention is over, with all rows that belong to them.';
CREATE FUNCTION holdfast.retire_schedules(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids     bigint[];
  lead    interval := clock_lead(interval '32 days');
  retired record;
begin
  mended := 0;
  ids := array(
    select s.id from schedules s where s.id > coalesce(after[1]::bigint, 0) order by s.id limit max_rows);
  if lead is not null and clock_is_known()
    and exists (
      select from live_workers() w
      where w.kind = 'python' and w.started_at < now() - lead - interval '10 minutes') then
    for retired in
      update schedules s
      set retired_at = now(), look_at = null, next_fire_at = null
      from (
        select o.id
        from schedules o
        where o.id = any (ids) and o.digest is not null and o.retired_at is null
          and o.declared_at < now() - lead - interval '24 hours'
          and not exists (select from live_workers() w where w.schedules @> array[o.digest])
        order by o.id
        for update skip locked) old
      where s.id = old.id
      returning s.tenant, s.name
    loop
      perform note_audit('maintenance', null, retired.tenant, 'schedule.retire', retired.name,
        jsonb_build_object('note', 'no worker has declared it for 24 hours'));
      mended := mended + 1;
    end loop;
    delete from schedules s
    where s.id = any (ids) and s.retired_at < now() - lead - interval '30 days';
  end if;
  reached := case when cardinality(ids) >= max_rows then array[ids[cardinality(ids)]::text] end;
  return next;
end
$$;
ALTER FUNCTION holdfast.retire_schedules(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.retire_schedules(after text[], max_rows integer) IS 'Retire declared schedules that nobody has declared for a day: they do not fire any more.';
CREATE FUNCTION holdfast.review_leases(after uuid DEFAULT NULL::uuid, max_rows integer DEFAULT 1000) RETURNS TABLE(job_id uuid, attempt integer, lease_seconds double precision, was timestamp with time zone, expires_at timestamp with time zone, reached uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  ids := array(
    select l.job_id
    from leases l
    where l.job_id > coalesce(after, '00000000-0000-0000-0000-000000000000')
    order by l.job_id
    limit max_rows);
  return query
  with ahead as materialized (
    select l.job_id, l.expires_at
    from leases l
    where l.job_id = any (ids) and l.expires_at > now() + make_interval(secs => l.lease_seconds) + interval '0.5 seconds'
    order by l.job_id
    for update skip locked
  ), nearer as (
    update leases l
    set expires_at = now() + make_interval(secs => l.lease_seconds)
    from ahead
    where l.job_id = ahead.job_id
    returning l.job_id, ahead.expires_at as was, l.expires_at
  )
  select l.job_id, l.attempt, l.lease_seconds::double precision, coalesce(n.was, l.expires_at),
    coalesce(n.expires_at, l.expires_at), null::uuid
  from leases l
  left join nearer n on n.job_id = l.job_id
  where l.job_id = any (ids);
  return query
  select null::uuid, null::integer, null::double precision, null::timestamptz, null::timestamptz,
    case when cardinality(ids) >= max_rows then ids[cardinality(ids)] end;
end
$$;
ALTER FUNCTION holdfast.review_leases(after uuid, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.review_leases(after uuid, max_rows integer) IS 'Let no lease end later than its length from now.';
CREATE FUNCTION holdfast.revoke_key(key_id uuid, by text, by_key uuid DEFAULT NULL::uuid) RETURNS SETOF holdfast.api_keys
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  key api_keys;
begin
  update api_keys k
  set revoked_at = now(), revoked_by = revoke_key.by
  where k.id = revoke_key.key_id and k.revoked_at is null
  returning k.* into key;
  if found then
    perform note_audit(by, by_key, key.tenant, 'key.revoke', key.id::text, jsonb_build_object('name', key.name));
    return next key;
  end if;
end
$$;
ALTER FUNCTION holdfast.revoke_key(key_id uuid, by text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.revoke_key(key_id uuid, by text, by_key uuid) IS 'End a key now.';
CREATE FUNCTION holdfast.rewind_schedules(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids   bigint[];
  ahead bigint[];
begin
  ids := array(
    select s.id from schedules s where s.id > coalesce(after[1]::bigint, 0) order by s.id limit max_rows);
  with later as (
    select s.id, now() - make_interval(secs => s.catch_up) - fire_grace() as too_late
    from schedules s
    where s.id = any (ids) and s.reckoned_at > now() + interval '0.5 seconds'
    order by s.id
    for update skip locked
  ), gap as (
    -- What was missed by a later clock, and is not too late by this one.
    select f.schedule_id as id, min(greatest(later.too_late,
        case when f.outcome = 'missed' then f.fire_at - interval '1 microsecond' else f.fire_at end)) as since
    from later
    join schedule_fires f on f.schedule_id = later.id and f.missed_to > now()
    group by f.schedule_id
  ), again as (
    update schedules s
    set next_fire_at = case when s.next_fire_at <= now() and gap.since is null then s.next_fire_at end,
      -- `least` ignores what is null.
      reckoned_from = least(now(), gap.since, s.next_fire_at - interval '1 microsecond'),
      reckoned_at = now(), look_at = case when s.look_at is not null then now() end
    from later
    left join gap using (id)
    where s.id = later.id
    returning s.id, later.too_late
  ), undone as (
    delete from schedule_fires f
    using again
    where f.schedule_id = again.id and f.missed_to > now() and f.outcome = 'missed' and f.fire_at > again.too_late
  ), shortened as (
    update schedule_fires f
    set missed_to = case when f.fire_at < again.too_late then again.too_late end
    from again
    where f.schedule_id = again.id and f.missed_to > now() and not (f.outcome = 'missed' and f.fire_at > again.too_late)
  )
  select array_agg(a.id) into ahead from again a;
  mended := coalesce(cardinality(ahead), 0);
  reached := case when cardinality(ids) >= max_rows then array[ids[cardinality(ids)]::text] end;
  return next;
end
$$;
ALTER FUNCTION holdfast.rewind_schedules(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.rewind_schedules(after text[], max_rows integer) IS 'After the clock was set back: fire times that were computed from a later clock are computed again.';
CREATE FUNCTION holdfast.rotate_key(old_id uuid, id uuid, prefix text, digest bytea, overlap_seconds double precision, by text, by_key uuid DEFAULT NULL::uuid) RETURNS SETOF holdfast.api_keys
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  old api_keys;
begin
  select k.* into old
  from api_keys k
  where k.id = old_id
    and k.replaced_by is null
    and is_valid_key(k.revoked_at, k.expires_at)
  for update;
  if not found then
    return;
  end if;
  perform check_seconds('overlap_seconds', 'delay', array[rotate_key.overlap_seconds]);
  return query
  select *
  from create_key(
    rotate_key.id, old.tenant, old.name, rotate_key.prefix, rotate_key.digest, old.scopes,
    extract(epoch from old.expires_at - old.created_at)::double precision, old.requests_per_second, old.max_waiting,
    by, by_key);
  update api_keys k
  set replaced_by = rotate_key.id,
    expires_at = least(k.expires_at, now() + make_interval(secs => overlap_seconds))
  where k.id = old_id;
  perform note_audit(by, by_key, old.tenant, 'key.rotate', old_id::text,
    jsonb_build_object('name', old.name, 'replaced_by', rotate_key.id));
end
$$;
ALTER FUNCTION holdfast.rotate_key(old_id uuid, id uuid, prefix text, digest bytea, overlap_seconds double precision, by text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.rotate_key(old_id uuid, id uuid, prefix text, digest bytea, overlap_seconds double precision, by text, by_key uuid) IS 'Create a key that replaces another one, which stays valid for a while.';
CREATE FUNCTION holdfast.run_again(job holdfast.jobs, by text) RETURNS uuid
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select run_again_with(job, by, null, null)
$$;
ALTER FUNCTION holdfast.run_again(job holdfast.jobs, by text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.run_again(job holdfast.jobs, by text) IS 'Record a new job with the intent of one that has ended.';
CREATE FUNCTION holdfast.run_again_with(job holdfast.jobs, by text, payload jsonb, options jsonb) RETURNS uuid
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select r.job_id
  from record_jobs(
    array[job.type], array[coalesce(run_again_with.payload, job.payload)],
    array[jsonb_strip_nulls(jsonb_build_object(
      'priority', job.priority, 'queue', job.queue, 'target', job.target, 'max_attempts', job.max_attempts,
      'target_count', job.target_count, 'traceparent', job.traceparent)
      || coalesce(run_again_with.options, '{}')
      || jsonb_build_object(
        'correlation_id', coalesce(job.correlation_id, job.id::text), 'parent_id', job.parent_id, 'retry_of', job.id))],
    job.tenant, coalesce(by, job.created_by), null) r
$$;
ALTER FUNCTION holdfast.run_again_with(job holdfast.jobs, by text, payload jsonb, options jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.run_again_with(job holdfast.jobs, by text, payload jsonb, options jsonb) IS 'Record a new job with the intent of one that has ended, with another payload or other options if they are given.';
CREATE FUNCTION holdfast.run_schedule(name text, tenant text, by text, note text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS TABLE(outcome text, job_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
#variable_conflict use_column
declare
  schedule schedules;
  moment   timestamptz := clock_timestamp();
begin
  perform check_signed(by, note);
  select s.* into schedule
  from schedules s
  where s.tenant = run_schedule.tenant and s.name = run_schedule.name and s.retired_at is null
  for update;
  if not found then
    return;
  end if;
  job_id := case when schedule.overlap = 'skip' then open_run(schedule.id) end;
  if job_id is not null then
    outcome := 'overlap';
    return next;
    return;
  end if;
  while exists (select from schedule_fires f where f.schedule_id = schedule.id and f.fire_at = moment) loop
    moment := moment + interval '1 microsecond';
  end loop;
  select r.job_id into job_id from record_run(schedule, moment, by_hand => true) r;
  insert into schedule_fires (schedule_id, fire_at, outcome, job_id, by)
  values (schedule.id, moment, 'by-hand', job_id, run_schedule.by);
  update schedules s set last_job_id = run_schedule.job_id where s.id = schedule.id;
  perform note_audit(by, by_key, tenant, 'schedule.run', schedule.name, jsonb_strip_nulls(jsonb_build_object(
    'note', note, 'job_id', job_id)));
  outcome := 'recorded';
  return next;
end
$$;
ALTER FUNCTION holdfast.run_schedule(name text, tenant text, by text, note text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.run_schedule(name text, tenant text, by text, note text, by_key uuid) IS 'Record a job of a schedule now, also while it is paused.';
CREATE FUNCTION holdfast.running_jobs(memory jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  moment  double precision := extract(epoch from pg_catalog.clock_timestamp());
  walked  bigint := pg_stat_get_xact_tuples_returned('leases_expiry'::regclass);
  running jsonb;
begin
  if moment between (memory #>> '{counted,at}')::double precision and (memory #>> '{counted,until}')::double precision then
    return memory -> 'counted' || jsonb_build_object('now', moment);
  end if;
  with busy as materialized (
    select l.stream, count(*) as running from leases l where l.expires_at > now() group by l.stream
  )
  select jsonb_object_agg(party.tenant, party.running) into running
  from (
    select s.tenant, sum(busy.running) as running
    from busy
    join streams s on s.id = busy.stream
    where s.id = any (array(select busy.stream from busy))
    group by s.tenant) party;
  walked := pg_stat_get_xact_tuples_returned('leases_expiry'::regclass) - walked;
  return jsonb_build_object(
    'now', moment, 'at', moment, 'until', case when walked > 1000 then moment + walked * 2e-5 end,
    'running', coalesce(running, '{}'));
end
$$;
ALTER FUNCTION holdfast.running_jobs(memory jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.running_jobs(memory jsonb) IS 'How many jobs each tenant runs, by the leases of all workers.';
CREATE FUNCTION holdfast.running_outside(gate text, capacity integer) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select count(*)
  from permits p
  join leases l on l.job_id = p.job_id and l.attempt = p.attempt
  where p.gate = running_outside.gate and p.slot > capacity
$$;
ALTER FUNCTION holdfast.running_outside(gate text, capacity integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.running_outside(gate text, capacity integer) IS 'How many attempts run with a permit beyond the capacity of the limit.';
CREATE FUNCTION holdfast.sample_of(tenant text, fingerprint text, last uuid) RETURNS uuid
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select coalesce(
    (select j.id from jobs j where j.id = last),
    (select g.job_id
     from failing g
     where g.fingerprint = sample_of.fingerprint and g.tenant = sample_of.tenant
     limit 1),
    (select d.job_id
     from dead_letters d
     where d.fingerprint = sample_of.fingerprint and d.tenant = sample_of.tenant
     limit 1))
$$;
ALTER FUNCTION holdfast.sample_of(tenant text, fingerprint text, last uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.sample_of(tenant text, fingerprint text, last uuid) IS 'A job that failed in this way and can be looked at: the last one, unless it is gone; else another, else none.';
CREATE FUNCTION holdfast.schedule_failed(id bigint, fault text) RETURNS integer
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  update schedules s
  set failures = s.failures + 1, last_error = left(fault, 1000), last_error_at = now(),
    look_at = now() + make_interval(secs => least(300, 2 ^ least(s.failures, 9)))
  where s.id = schedule_failed.id
  returning s.failures
$$;
ALTER FUNCTION holdfast.schedule_failed(id bigint, fault text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.schedule_failed(id bigint, fault text) IS 'Note that a schedule could not fire, and look at it again later.';
CREATE FUNCTION holdfast.search_jobs(tree jsonb, only_tenant text DEFAULT NULL::text, before uuid DEFAULT NULL::uuid, max_jobs integer DEFAULT 50, max_visited integer DEFAULT 100000) RETURNS TABLE(ids uuid[], reached uuid, reached_at timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $_$
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
$_$;
ALTER FUNCTION holdfast.search_jobs(tree jsonb, only_tenant text, before uuid, max_jobs integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.search_jobs(tree jsonb, only_tenant text, before uuid, max_jobs integer, max_visited integer) IS 'Jobs that match, newest first, among the `max_visited` jobs before `before`.';
CREATE FUNCTION holdfast.search_letters(tree jsonb, only_tenant text, acknowledged boolean, only_fingerprint text, before_at timestamp with time zone, before_id uuid, max_letters integer, max_visited integer) RETURNS TABLE(ids uuid[], reached_at timestamp with time zone, reached_id uuid)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $_$
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
$_$;
ALTER FUNCTION holdfast.search_letters(tree jsonb, only_tenant text, acknowledged boolean, only_fingerprint text, before_at timestamp with time zone, before_id uuid, max_letters integer, max_visited integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.search_letters(tree jsonb, only_tenant text, acknowledged boolean, only_fingerprint text, before_at timestamp with time zone, before_id uuid, max_letters integer, max_visited integer) IS 'Letters whose jobs match a query (see browse.sql), newest first, among the `max_visited` letters before the given place.';
CREATE FUNCTION holdfast.search_limit(what text, usual numeric) RETURNS numeric
    LANGUAGE sql STABLE
    AS $$
  select coalesce(nullif(current_setting('holdfast.search_' || what, true), '')::numeric, usual)
$$;
ALTER FUNCTION holdfast.search_limit(what text, usual numeric) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.search_limit(what text, usual numeric) IS 'How much time or data one page of a search may take, unless the session sets a limit (`holdfast.search_seconds`).';
CREATE FUNCTION holdfast.seat(tenants text[], targets text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  asked    record;
  patience integer := 500;
  since    timestamptz;
  woken    integer[] := '{}';
  line     integer;
  had      boolean;
begin
  for asked in
    select distinct a.tenant, a.target
    from unnest(tenants, targets) as a (tenant, target)
    order by 1, 2
  loop
    -- Another session that found the line empty may delete the row between two of these statements. The row is inserted
    -- only if there is none: an insert waits for a session that is changing the row.
    loop
      perform from heads h where h.tenant = asked.tenant and h.target = asked.target for update skip locked;
      had := found;
      exit when had;
      if not exists (select from heads h where h.tenant = asked.tenant and h.target = asked.target) then
        insert into heads (tenant, target) values (asked.tenant, asked.target) on conflict do nothing;
        had := found;
      elsif patience > 0 then
        since := clock_timestamp();
        had := lock_head(asked.tenant, asked.target, patience);
        patience := case when had is null then 0 else patience - milliseconds(clock_timestamp() - since) end;
      else
        had := null;
      end if;
      exit when had is not false;
    end loop;
    if had then
      line := seat_one(asked.tenant, asked.target);
      if line is not null then
        woken := woken || line;
      end if;
    else
      insert into calls (tenant, target) values (asked.tenant, asked.target);
    end if;
  end loop;
  if cardinality(woken) > 0 then
    perform wake_again(array(select distinct unnest(woken)));
  end if;
end
$$;
ALTER FUNCTION holdfast.seat(tenants text[], targets text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.seat(tenants text[], targets text[]) IS 'Elect the heads of targets, where there is none, and put them into `ready`.';
CREATE FUNCTION holdfast.seat_headless(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  tenants text[];
  targets text[];
begin
  with recursive line as (
    (select w.tenant, w.target, 1 as number
     from waiting w
     where (w.tenant, w.target) > (coalesce(after[1], ''), coalesce(after[2], ''))
     order by w.tenant, w.target
     limit 1)
    union all
    select following.tenant, following.target, line.number + 1
    from line
    cross join lateral (
      select w.tenant, w.target
      from waiting w
      where (w.tenant, w.target) > (line.tenant, line.target)
      order by w.tenant, w.target
      limit 1) following
    where line.number < max_rows
  ), headless as (
    select array_agg(line.tenant) as tenants, array_agg(line.target) as targets
    from line
    where not exists (
      select from heads h where h.tenant = line.tenant and h.target = line.target and h.job_id is not null)
  )
  select fault.tenants, fault.targets, (select array[line.tenant, line.target] from line where line.number = max_rows)
  into tenants, targets, reached
  from headless
  cross join lateral uncalled(headless.tenants, headless.targets) fault;
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  mended := coalesce(cardinality(targets), 0);
  perform note_repair('target-without-head', mended);
  return next;
end
$$;
ALTER FUNCTION holdfast.seat_headless(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.seat_headless(after text[], max_rows integer) IS 'Seat a head for targets that have a line but no head, which a lost call could leave.';
CREATE FUNCTION holdfast.seat_one(tenant text, target text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  head      record;
  candidate record;
  new_seq   bigint;
begin
  loop
    select h.job_id, h.place, j.state, j.reason, j.attempt, j.stream, j.priority,
      exists (select from ready_entry(j.stream, j.priority, h.seq)) as lined,
      h.seq
    into head
    from heads h
    left join jobs j on j.id = h.job_id
    where h.tenant = seat_one.tenant and h.target = seat_one.target;
    select w.turn, w.place, w.job_id into candidate
    from waiting w
    where w.tenant = seat_one.tenant and w.target = seat_one.target
    order by w.turn, w.place
    limit 1;
    if head.state in ('running', 'retry', 'paused', 'error')
      or (head.state = 'scheduled' and head.attempt > 0) then
      return null;
    end if;
    if head.state = 'queued' then
      if candidate.turn = 0 or (not head.lined and candidate.place < head.place) then
        if head.lined and not take_entry(head.stream, head.priority, head.seq) then
          return null;
        end if;
        insert into waiting (tenant, target, turn, place, job_id)
        values (seat_one.tenant, seat_one.target, 1, head.place, head.job_id)
        on conflict do nothing;
      elsif head.lined then
        return null;
      else
        new_seq := nextval('places');
        insert into ready (stream, rank, seq, job_id)
        values (head.stream, ready_rank(head.priority, head.attempt > 0 and head.reason in ('released', 'lost')), new_seq, head.job_id);
        update heads h set seq = new_seq where h.tenant = seat_one.tenant and h.target = seat_one.target;
        return head.stream;
      end if;
    end if;
    if candidate.job_id is null then
      delete from heads h where h.tenant = seat_one.tenant and h.target = seat_one.target;
      return null;
    end if;
    delete from waiting w
    where w.tenant = seat_one.tenant
      and w.target = seat_one.target
      and w.turn = candidate.turn
      and w.place = candidate.place;
    if found then
      update heads h
      set job_id = candidate.job_id, place = candidate.place, seq = null
      where h.tenant = seat_one.tenant and h.target = seat_one.target;
    end if;
  end loop;
end
$$;
ALTER FUNCTION holdfast.seat_one(tenant text, target text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.seat_one(tenant text, target text) IS 'Seat one target, whose row in `heads` is locked.';
CREATE FUNCTION holdfast.secure_commit() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if pg_catalog.set_config('holdfast.commit_secured', '', true) = ''
    and pg_catalog.current_setting('synchronous_commit') in ('off', 'local') then
    perform pg_catalog.set_config('synchronous_commit', 'on', true);
  end if;
  return null;
end
$$;
ALTER FUNCTION holdfast.secure_commit() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.secure_commit() IS 'Raise durability once more, at the commit, with the search path that the caller has then.';
CREATE FUNCTION holdfast.seen_horizon(dead boolean) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select case when not exists (
      select from leaders l
      where l.name = 'maintenance'
        and l.renewed_at not between clock_timestamp() - interval '10 seconds' and clock_timestamp() + interval '1 second')
    then retention_horizon(seen_horizon.dead)
  end
$$;
ALTER FUNCTION holdfast.seen_horizon(dead boolean) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.seen_horizon(dead boolean) IS 'The retention horizon for callers that do not say when the leader last read the clock.';
CREATE FUNCTION holdfast.serve_ready(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  found integer[];
begin
  with recursive line as (
    (select r.stream, 1 as number
     from ready r
     where r.stream > coalesce(after[1]::integer, -2147483648)
     order by r.stream
     limit 1)
    union all
    select following.stream, line.number + 1
    from line
    cross join lateral (
      select r.stream from ready r where r.stream > line.stream order by r.stream limit 1) following
    where line.number < max_rows
  )
  select array_agg(line.stream order by line.number) into found from line;
  mended := serve_streams(array(select distinct stream_of(stream) from unnest(found) as stream));
  if mended > 0 then
    perform pg_notify(current_schema() || '.ready', '');
  end if;
  if cardinality(found) = max_rows then
    reached := array[found[max_rows]::text];
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.serve_ready(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.serve_ready(after text[], max_rows integer) IS 'Bring back the streams that have entries, walking from one to the next; those of parked entries come first.';
CREATE FUNCTION holdfast.serve_streams(ids integer[], examples uuid[] DEFAULT NULL::uuid[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  stale  timestamptz := now() - stream_idle() / 10;
  served integer;
  made   integer;
begin
  if not exists (
    select
    from unnest(ids) as asked (id)
    left join streams s on s.id = asked.id
    where s.id is null or s.closed_in is not null or s.used_at not between stale and now()
  ) then
    return 0;
  end if;
  with free as materialized (
    select s.id, s.closed_in
    from streams s
    where s.id = any (ids) and (s.closed_in is not null or s.used_at not between stale and now())
    order by s.id
    for update skip locked
  ), used as (
    update streams s
    set used_at = now(), closed_at = null, closed_in = null, unseen_in = null
    from free
    where s.id = free.id
  )
  select count(*) filter (where free.closed_in is not null) into served from free;
  -- An insert would wait for another session that creates the same row. The session with the lock creates it; others
  -- skip.
  with lost as materialized (
    select distinct asked.id
    from unnest(ids) as asked (id)
    where not is_parked(asked.id) and not exists (select from streams s where s.id = asked.id)
  ), named as materialized (
    select distinct on (lost.id) lost.id, j.tenant, j.queue, j.type
    from lost
    cross join lateral (
      select j.tenant, j.queue, j.type
      from jobs j
      where j.id = any (examples) and j.stream = lost.id
      union all
      (select j.tenant, j.queue, j.type
       from (
         select r.job_id from ready r where r.stream = any (entry_streams(lost.id)) limit 100) entry
       join jobs j on j.id = entry.job_id and j.stream = lost.id)
      limit 1) j
    order by lost.id
  )
  insert into streams (id, tenant, queue, type)
  overriding system value
  select named.id, named.tenant, named.queue, named.type
  from named
  where pg_try_advisory_xact_lock(hashtext(current_schema() || '.streams'), named.id)
  on conflict do nothing;
  get diagnostics made = row_count;
  return served + made;
end
$$;
ALTER FUNCTION holdfast.serve_streams(ids integer[], examples uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.serve_streams(ids integer[], examples uuid[]) IS 'Serve these streams, which have waiting or running jobs: closed ones are opened, missing ones are created again under their old numbers, and all of them count as used.';
CREATE FUNCTION holdfast.set_limit(kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select change_limits(kind, name, '{limit,rate}', limit_count, rate_count, rate_seconds, null, by, by_key)
$$;
ALTER FUNCTION holdfast.set_limit(kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.set_limit(kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text, by_key uuid) IS 'Set how many jobs may run at once, and how many may start per time; null for no limit.';
CREATE FUNCTION holdfast.set_weight(tenant text, weight double precision, by text, by_key uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select change_limits('tenant', tenant, '{weight}', null, null, null, weight, by, by_key)
$$;
ALTER FUNCTION holdfast.set_weight(tenant text, weight double precision, by text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.set_weight(tenant text, weight double precision, by text, by_key uuid) IS 'Set a tenant''s weight where tenants compete; null for the default, which is 1.';
CREATE FUNCTION holdfast.setting_fault(name text, value text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $_$
declare
  bound text := case name
    when 'LEASE_SEC_DEFAULT' then 'lease'
    when 'MAX_ATTEMPTS_DEFAULT' then 'max_attempts'
    when 'AGEING_SECONDS' then 'ageing'
    when 'RESULT_MAX_BYTES' then 'result_bytes'
    when 'PAYLOAD_MAX_BYTES' then 'payload_bytes'
    when 'RETENTION_DAYS' then 'retention_days'
    when 'RETENTION_DEAD_DAYS' then 'retention_days'
    when 'STREAMS_PER_TENANT' then 'streams'
    when 'SCHEDULES_PER_TENANT' then 'schedules'
    when 'STREAM_IDLE_SECONDS' then 'stream_idle'
    when 'FAST_TIMEOUT_SECONDS' then 'timeout'
    when 'GENERAL_TIMEOUT_SECONDS' then 'timeout'
    when 'SHUTDOWN_GRACE_PERIOD_SECONDS' then 'delay'
    when 'RETRY_BASE_SECONDS' then 'backoff_base'
    when 'RETRY_FACTOR' then 'backoff_factor'
    when 'RETRY_MAX_SECONDS' then 'backoff_max'
    when 'RETRY_JITTER' then 'backoff_jitter'
    when 'CIRCUIT_FAILURE_THRESHOLD' then 'failure_threshold'
    when 'CIRCUIT_OPEN_SECONDS' then 'circuit_open'
    when 'BACKOFF_BASE_SEC' then 'backoff_base'
    when 'BACKOFF_MAX_SEC' then 'backoff_max'
  end;
  choices text[] := case name
    when 'VALIDATE_PAYLOADS' then array['refuse', 'warn', 'off']
    when 'DRAIN_POLICY' then array['auto', 'pause', 'requeue']
  end;
begin
  if choices is not null then
    return case when value <> all (choices) then
      format('%s must be %s, %s or %s, not %s', name, choices[1], choices[2], choices[3], quote_literal(left(value, 40)))
    end;
  end if;
  if name = 'LANE_TIMEOUTS' and value <> '' then
    return coalesce((
      select case
        when part.text !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}=[0-9]{1,9}([.][0-9]{1,9})?$' then
          format('LANE_TIMEOUTS must look like reports=7200,imports=1800, not %s', quote_literal(left(value, 40)))
        when split_part(part.text, '=', 1) in ('fast', 'general') then
          format('LANE_TIMEOUTS must not name %1$s, which has %2$s_TIMEOUT_SECONDS', split_part(part.text, '=', 1),
            upper(split_part(part.text, '=', 1)))
        else bounds_fault('LANE_TIMEOUTS must be lengths: ' || split_part(part.text, '=', 1), 'timeout',
          split_part(part.text, '=', 2)::numeric)
      end as fault
      from regexp_split_to_table(value, ',') as part (text)
      order by 1 nulls last
      limit 1), (
      select 'LANE_TIMEOUTS must name each lane once: ' || split_part(part.text, '=', 1)
      from regexp_split_to_table(value, ',') as part (text)
      group by split_part(part.text, '=', 1)
      having count(*) > 1
      order by 1
      limit 1));
  end if;
  if bound is null then
    return null;
  end if;
  if value !~ '^ *[0-9]+([.][0-9]+)?([eE][-+]?[0-9]{1,2})? *$' or length(value) > 30 then
    return format('%s must be a number, not %s', name, quote_literal(left(value, 40)));
  end if;
  if value !~ '^ *[0-9]+ *$' and (select b.whole from bounds() b where b.name = bound) then
    return format('%s must be a whole number, not %s', name, quote_literal(left(value, 40)));
  end if;
  return bounds_fault(name, bound, value::numeric);
end
$_$;
ALTER FUNCTION holdfast.setting_fault(name text, value text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.setting_fault(name text, value text) IS 'What is wrong with a setting, in words; null if nothing is.';
CREATE FUNCTION holdfast.settle(worker text, job_ids uuid[], attempts integer[], outcomes text[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], durations_ms integer[]) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET lock_timeout TO '2s'
    AS $$
#variable_conflict use_column
declare
  default_attempts integer := setting('MAX_ATTEMPTS_DEFAULT');
  settled uuid[];
  numbers integer[];
  states  text[];
  tenants text[];
  targets text[];
  woken   integer[];
  soon    boolean;
begin
  with report as (
    select r.job_id, r.attempt, r.outcome, r.kind, left(r.error_type, 200) as error_type,
      left(r.error_message, 10000) as error_message, left(r.traceback, 50000) as traceback,
      left(r.log_excerpt, 10000) as log_excerpt, r.delay, r.duration_ms
    from unnest(job_ids, attempts, outcomes, kinds, error_types, error_messages, tracebacks, log_excerpts,
      delays, durations_ms)
      as r (job_id, attempt, outcome, kind, error_type, error_message, traceback, log_excerpt, delay, duration_ms)
  ), claimed as materialized (
    select l.job_id, l.attempt, l.claimed_at, l.ready_at, l.worker, l.interrupt, l.verdict, l.interrupted_by,
      l.interrupt_note, l.interrupt_message, report.outcome, report.kind, report.error_type, report.error_message,
      report.traceback, report.log_excerpt, report.delay, report.duration_ms
    from report
    join leases l on l.job_id = report.job_id and l.attempt = report.attempt
      and (settle.worker is null or l.worker = settle.worker)
    order by l.job_id
    for update of l
  ), gone as (
    delete from leases l
    using claimed
    where l.job_id = claimed.job_id and l.attempt = claimed.attempt
    returning claimed.*
  ), asked as materialized (
    -- Looked up all at once, because there is hardly ever one.
    select distinct on (d.job_id) d.job_id, d.decision, d.by, d.note, d.message
    from pending_decisions d
    where d.job_id = any (job_ids) and d.settled_by is null
    order by d.job_id, firmness(d.decision) desc, d.place
  ), told as materialized (
    -- A decision that was accepted before this attempt began holds like one that its lease has (see pending.sql).
    -- Materialized, because the terms below would otherwise be computed again for each column that depends on them.
    select gone.job_id, gone.attempt, gone.claimed_at, gone.ready_at, gone.worker,
      case when not earlier.holds then gone.interrupt when is_verdict(asked.decision) then 'cancel' else asked.decision
      end as interrupt,
      case when not earlier.holds then gone.verdict when is_verdict(asked.decision) then asked.decision end as verdict,
      case when earlier.holds then asked.by else gone.interrupted_by end as interrupted_by,
      case when earlier.holds then asked.note else gone.interrupt_note end as interrupt_note,
      case when earlier.holds then asked.message else gone.interrupt_message end as interrupt_message,
      gone.outcome, gone.kind, gone.error_type, gone.error_message, gone.traceback, gone.log_excerpt, gone.delay,
      gone.duration_ms
    from gone
    left join asked on asked.job_id = gone.job_id
    cross join lateral (
      select firmness(asked.decision) > firmness(coalesce(gone.verdict, gone.interrupt)) as holds) earlier
  ), judged as (
    -- Under an operator's verdict, the attempt has failed, however it ended, and the operator's words say why.
    select t.job_id, t.attempt, t.claimed_at, t.ready_at, t.worker, t.interrupt, t.verdict, t.interrupted_by,
      t.interrupt_note, t.interrupt_message, case when operator.judged then 'failed' else t.outcome end as outcome,
      case when not operator.judged then t.kind end as kind,
      case when operator.judged then operator_error(t.verdict) else t.error_type end as error_type,
      case when operator.judged then operator_words(t.verdict, t.interrupted_by, t.interrupt_note) else t.error_message
      end as error_message,
      t.traceback, t.log_excerpt, case when not operator.judged then t.delay end as delay, t.duration_ms
    from told t
    cross join lateral (select t.verdict is not null as judged) operator
  ), verdict as materialized (
    -- What a type does not declare is read at most once, and only if a job is retried: subqueries wait until then.
    select judged.*, cost.failures, next.state,
      case next.state
        when 'retry' then now() + make_interval(secs => coalesce(judged.delay, backoff_seconds(
          cost.failures,
          coalesce(t.backoff_base, (select setting('RETRY_BASE_SECONDS')::double precision)),
          coalesce(t.backoff_factor, (select setting('RETRY_FACTOR')::double precision)),
          coalesce(t.backoff_max, (select setting('RETRY_MAX_SECONDS')::double precision)),
          coalesce(t.backoff_jitter, (select setting('RETRY_JITTER')::double precision)))))
        when 'scheduled' then now() + make_interval(secs => judged.delay)
        else now()
      end as run_at,
      costs_attempt(judged.outcome) or next.state = 'error' as faulty
    from judged
    join jobs j on j.id = judged.job_id
    left join job_types t on t.name = j.type
    cross join lateral (
      select failures_after(judged.outcome, j.failures) as failures,
        attempts_allowed(j.max_attempts, t.max_attempts, default_attempts) as max_attempts) cost
    cross join lateral (
      select next_state(judged.outcome, judged.kind, coalesce(judged.verdict, judged.interrupt),
        coalesce(t.on_failure, 'retry'), cost.failures, cost.max_attempts, judged.delay) as state) next
  ), moved as (
    update jobs j
    set state = v.state,
      failures = v.failures,
      run_at = case when v.state in ('retry', 'scheduled') then v.run_at else j.run_at end,
      seq = case when v.state = 'queued' and j.target is null then nextval('places') else j.seq end,
      reason = case
        when v.state = 'canceled' and v.interrupt = 'resolve' then 'resolved'
        when v.state = 'paused' and v.interrupt is null then 'drained'
        when v.verdict = 'kill' then 'killed'
        else v.outcome
      end,
      updated_at = now(),
      finished_at = case when v.state in ('dead', 'canceled') then now() end,
      dedup_key = case when v.state in ('dead', 'canceled') then null else j.dedup_key end,
      last_error = case when v.faulty then coalesce(v.error_message, j.last_error) else j.last_error end,
      last_error_at = case when v.faulty then now() else j.last_error_at end
    from verdict v
    where j.id = v.job_id and j.state = 'running' and j.attempt = v.attempt
    returning j.id, j.attempt, j.state, j.seq, j.stream, j.priority, j.tenant, j.target, j.type, j.run_at,
      v.outcome, v.kind, v.claimed_at, v.ready_at, v.worker, v.error_type, v.error_message, v.traceback, v.log_excerpt,
      v.duration_ms, v.interrupt, v.verdict, v.interrupted_by, v.interrupt_note, v.interrupt_message,
      case when v.faulty then fingerprint_of(j.type, v.error_type, coalesce(v.error_message, v.outcome)) end as fingerprint
  ), lined as (
    insert into ready (stream, rank, seq, job_id)
    select stream, ready_rank(priority, true), seq, id from moved where state = 'queued' and target is null
  ), deferred as (
    insert into due (run_at, job_id)
    select run_at, id from moved where state in ('retry', 'scheduled')
  ), buried as (
    insert into dead_letters (job_id, tenant, type, error_type, error_message, fingerprint)
    select id, tenant, type, error_type, coalesce(error_message, outcome), fingerprint from moved where state = 'dead'
    on conflict do nothing
  ), counted as (
    -- Only appended: no row is shared, whatever the messages.
    insert into failures (job_id, attempt, fingerprint)
    select id, attempt, fingerprint from moved where fingerprint is not null
  ), noted as (
    -- An error or a drain is not anybody's request: the worker is named then.
    insert into job_events (job_id, event, by, note, message)
    select id,
      case
        when verdict is not null then verdict_event(verdict)
        when state = 'canceled' and interrupt = 'resolve' then 'resolved'
        else state
      end,
      case when verdict is null and (state = 'error' or interrupt is null) then worker else interrupted_by end,
      case when state = 'error' then error_message else coalesce(interrupt_note, error_message) end,
      client_message(state, outcome, kind, error_type, error_message, interrupt_message)
    from moved
    where state in ('paused', 'canceled', 'error') or verdict is not null
  ), logged as (
    insert into job_attempts (
      job_id, attempt, started_at, queue_ms, duration_ms, outcome, worker, error_type, error_message, traceback,
      log_excerpt, taken_back)
    select id, attempt, claimed_at, milliseconds(claimed_at - ready_at),
      greatest(coalesce(duration_ms, milliseconds(now() - claimed_at)), 0), outcome, worker, error_type, error_message,
      traceback, log_excerpt, case when settle.worker is null then true end
    from moved
    on conflict do nothing
  ), done as (
    -- Maintenance, which may have locked the row, then finds its request carried out. A handler that holds its job is
    -- not what was asked for, and neither is a retry: such a decision stays pending.
    update pending_decisions d
    set settled_by = asked.attempt
    from (
      select e.job_id, e.request_id, m.attempt
      from moved m
      join pending_decisions e on e.job_id = m.id and e.settled_by is null
      where m.interrupt is not null and m.state in ('paused', 'canceled', 'dead')
      for update of e skip locked) asked
    where d.job_id = asked.job_id and d.request_id = asked.request_id
  )
  select
    array_agg(id),
    array_agg(attempt),
    array_agg(state),
    array_agg(tenant) filter (where target is not null),
    array_agg(target) filter (where target is not null),
    array_agg(distinct stream) filter (where state = 'queued' and target is null),
    coalesce(bool_or(state in ('retry', 'scheduled') and run_at < now() + interval '2 seconds'), false)
  into settled, numbers, states, tenants, targets, woken, soon
  from moved;
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  if exists (select from limited_types()) then
    perform make_room(settled);
  end if;
  if woken is not null then
    perform wake_again(woken);
  end if;
  if soon then
    perform wake('duty', array[0]);
  end if;
  if cardinality(settled) = cardinality(job_ids) then
    return query
    select a.id, a.number, s.state
    from unnest(job_ids, attempts) as a (id, number)
    join unnest(settled, numbers, states) as s (id, number, state) on s.id = a.id;
  else
    perform vouch();
    return query select * from settlement_answer(worker, job_ids, attempts, settled, numbers, states);
  end if;
end
$$;
ALTER FUNCTION holdfast.settle(worker text, job_ids uuid[], attempts integer[], outcomes text[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], durations_ms integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.settle(worker text, job_ids uuid[], attempts integer[], outcomes text[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], durations_ms integer[]) IS 'Record any ending except success, for callers that were checked: lock and drop the leases, decide, move, log.';
CREATE FUNCTION holdfast.settle_plain(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  party   record;
  settled integer[] := '{}';
begin
  if exists (select from circuits) then
    return settled;  -- successes count there
  end if;
  for party in
    select r.tenant, r.worker, array_agg(r.job_id order by r.job_id) as ids,
      array_agg(r.attempt order by r.job_id) as numbers, array_agg(r.report order by r.job_id) as reports,
      array_agg(r.place order by r.job_id) as places
    from (
      select r.tenant, r.worker, r.job_id, r.attempt, r.report::jsonb as report, r.place::integer as place,
        count(*) over (partition by r.job_id) as times
      from unnest(tenants, workers, job_ids, attempts, reports) with ordinality
        as r (tenant, worker, job_id, attempt, report, place)) r
    where r.times = 1 and r.tenant <> '' and starts_with(r.worker, 'remote:')
      and r.report - 'result' = '{"done": true}'
    group by r.tenant, r.worker
    order by 1, 2
  loop
    begin
      settled := settled || settle_plainly(
        party.tenant, party.worker, party.ids, party.numbers, party.reports, party.places);
    exception
      when lock_not_available or deadlock_detected or serialization_failure or program_limit_exceeded or check_violation
        or sqlstate 'HF001' or sqlstate 'HF002' or data_exception or statement_too_complex then
        null;  -- each of them by itself
    end;
  end loop;
  return settled;
end
$$;
ALTER FUNCTION holdfast.settle_plain(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.settle_plain(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) IS 'Settle the plain successes among reports.';
CREATE FUNCTION holdfast.settle_plainly(tenant text, worker text, job_ids uuid[], attempts integer[], reports jsonb[], places integer[]) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  ids     uuid[];
  numbers integer[];
  results jsonb[];
  digests bytea[];
  found   integer[];
begin
  select array_agg(own.job_id order by own.place), array_agg(own.attempt order by own.place),
    array_agg(own.report -> 'result' order by own.place), array_agg(remote_digest(own.report) order by own.place),
    array_agg(places[own.place] order by own.place)
  into ids, numbers, results, digests, found
  from (
    select a.job_id, a.attempt, a.report, a.place
    from unnest(job_ids, attempts, reports) with ordinality as a (job_id, attempt, report, place)
    join leases l on l.job_id = a.job_id and l.attempt = a.attempt and l.worker = settle_plainly.worker
    join jobs j on j.id = l.job_id and j.tenant = settle_plainly.tenant and j.state = 'running'
    where not exists (select from job_progress p where p.job_id = a.job_id)
    order by a.place
    for update of l skip locked
    for no key update of j skip locked) own;
  if ids is null then
    return '{}';
  end if;
  perform from complete(worker, ids, numbers, results);
  update job_attempts t
  set report_digest = ended.digest
  from unnest(ids, numbers, digests) as ended (job_id, attempt, digest)
  where t.job_id = ended.job_id and t.attempt = ended.attempt;
  return found;
end
$$;
ALTER FUNCTION holdfast.settle_plainly(tenant text, worker text, job_ids uuid[], attempts integer[], reports jsonb[], places integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.settle_plainly(tenant text, worker text, job_ids uuid[], attempts integer[], reports jsonb[], places integer[]) IS 'Settle plain successes of one worker, as far as nobody else has locked them.';
CREATE FUNCTION holdfast.settlement_answer(worker text, job_ids uuid[], attempts integer[], settled uuid[], numbers integer[], states text[]) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select a.id, a.number, case
    when s.id is not null then s.state
    when (
      select t.worker = settlement_answer.worker and t.outcome <> 'lost' and t.taken_back is not true
      from job_attempts t
      where t.job_id = a.id and t.attempt = a.number)
    then (select j.state from jobs j where j.id = a.id)
    else 'lease-lost'
  end
  from unnest(job_ids, attempts) as a (id, number)
  left join unnest(settled, numbers, states) as s (id, number, state) on s.id = a.id and s.number = a.number
$$;
ALTER FUNCTION holdfast.settlement_answer(worker text, job_ids uuid[], attempts integer[], settled uuid[], numbers integer[], states text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.settlement_answer(worker text, job_ids uuid[], attempts integer[], settled uuid[], numbers integer[], states text[]) IS 'The state of each attempt that was settled now.';
CREATE FUNCTION holdfast.several_tenants() RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select (select s.tenant from streams s order by s.tenant limit 1)
    < (select s.tenant from streams s order by s.tenant desc limit 1)
$$;
ALTER FUNCTION holdfast.several_tenants() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.several_tenants() IS 'Whether there are several tenants at all.';
CREATE FUNCTION holdfast.shape_digest(shape jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select encode(sha256(convert_to(coalesce(shape::text, ''), 'UTF8')), 'hex')
$$;
ALTER FUNCTION holdfast.shape_digest(shape jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.shape_digest(shape jsonb) IS 'The name of a payload''s shape: a hash of its text.';
CREATE FUNCTION holdfast.show_hidden(after text[] DEFAULT NULL::text[], max_rows integer DEFAULT 1000) RETURNS TABLE(mended integer, reached text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  tids tid[];
begin
  select
    array_agg(h.tid) filter (where not exists (
      select from parked p where p.stream = stream_of(h.stream) and p.rank = h.rank and p.seq = h.seq)),
    max(array[h.stream::text, h.rank::text, h.seq::text]) filter (where h.number = max_rows)
  into tids, reached
  from (
    select r.ctid as tid, r.stream, r.rank, r.seq, row_number() over (order by r.stream, r.rank, r.seq) as number
    from ready r
    where (r.stream, r.rank, r.seq) > (
        coalesce(after[1]::integer, -2147483648), coalesce(after[2]::integer, 0), coalesce(after[3]::bigint, 0))
      and is_parked(r.stream)
    order by r.stream, r.rank, r.seq
    limit max_rows) h;
  -- If the job already has a visible entry, the hidden one is only dropped.
  with taken as (
    delete from ready r
    where r.ctid = any (array(
      select s.ctid
      from ready s
      where s.ctid = any (tids)
        and is_parked(s.stream)
        and not exists (select from parked p where p.stream = stream_of(s.stream) and p.rank = s.rank and p.seq = s.seq)
      for update skip locked))
    returning r.stream, r.rank, r.seq, r.job_id, r.ready_at
  ), shown as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select stream_of(t.stream), t.rank, t.seq, t.job_id, t.ready_at from taken t
    on conflict do nothing
  )
  select count(*) into mended from taken;
  perform note_repair('parked-for-nothing', mended);
  return next;
end
$$;
ALTER FUNCTION holdfast.show_hidden(after text[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.show_hidden(after text[], max_rows integer) IS 'Bring back entries that are hidden from claims without being parked.';
CREATE FUNCTION holdfast.show_targets(tenants text[], targets text[], only_tenant text DEFAULT NULL::text, max_line integer DEFAULT 0) RETURNS TABLE(tenant text, target text, blocked boolean, job_id uuid, type text, state text, since timestamp with time zone, run_at timestamp with time zone, worker text, by text, note text, last_error text, waiting bigint, waiting_more boolean, line uuid[])
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select
    asked.tenant, asked.target, coalesce(j.state in ('paused', 'error'), false), j.id, j.type, j.state,
    case when j.state = 'running' then j.started_at else j.updated_at end,
    case when j.state in ('retry', 'scheduled') then j.run_at end,
    l.worker, said.by, said.note, j.last_error, least(behind.count, 10000), behind.count > 10000, behind.line
  from unnest(tenants, targets) as asked (tenant, target)
  left join heads h on h.tenant = asked.tenant and h.target = asked.target
  left join jobs j on j.id = h.job_id
  left join leases l on l.job_id = j.id and l.attempt = j.attempt
  left join lateral (
    select e.by, e.note
    from job_events e
    where e.job_id = j.id and e.event = j.state and j.state in ('paused', 'error')
    order by e.id desc
    limit 1) said on true
  cross join lateral (
    select
      (select count(*)
       from (select from waiting w where w.tenant = asked.tenant and w.target = asked.target limit 10001) counted)
        as count,
      array(
        select w.job_id
        from waiting w
        where w.tenant = asked.tenant and w.target = asked.target
        order by w.turn, w.place
        limit max_line) as line) behind
  where (only_tenant is null or asked.tenant = only_tenant) and (j.id is not null or behind.count > 0)
  order by asked.tenant, asked.target
$$;
ALTER FUNCTION holdfast.show_targets(tenants text[], targets text[], only_tenant text, max_line integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.show_targets(tenants text[], targets text[], only_tenant text, max_line integer) IS 'Targets by name; no row if nothing is open.';
CREATE FUNCTION holdfast.shown_pause(pause holdfast.controls, only_tenant text) RETURNS TABLE(by text, note text)
    LANGUAGE sql IMMUTABLE
    AS $$
  select case when own.known then pause.paused_by end, case when own.known or pause.paused_public then pause.paused_note end
  from (select only_tenant is null or coalesce(pause.paused_tenant = only_tenant, false)) as own (known)
$$;
ALTER FUNCTION holdfast.shown_pause(pause holdfast.controls, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.shown_pause(pause holdfast.controls, only_tenant text) IS 'Who paused something and why, as far as the caller may know it.';
CREATE FUNCTION holdfast.shut_circuit(tenant text, name text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  insert into controls as c (kind, name, paused_at, paused_by, updated_by)
  values ('circuit', circuit_key(shut_circuit.tenant, shut_circuit.name), now(), 'circuit breaker', 'circuit breaker')
  on conflict on constraint controls_pkey do update
    set paused_at = now(), paused_by = excluded.paused_by, limit_count = null, updated_at = now();
  select pg_notify(current_schema() || '.ready', '');
$$;
ALTER FUNCTION holdfast.shut_circuit(tenant text, name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.shut_circuit(tenant text, name text) IS 'Shut the streams of the types that name a circuit, and tell workers.';
CREATE FUNCTION holdfast.shut_streams(asked integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_hashjoin TO 'on'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
  return array(
    with rule as materialized (
      select l.kind, l.name, l.limit_count, l.rate_count, l.rate_seconds from limits_in_force() l
    ), busy as materialized (
      select subject.kind, subject.name, sum(b.running) as running
      from (
        select s.tenant, s.queue, s.type, count(*) as running
        from leases l
        join streams s on s.id = l.stream
        where exists (select from rule where rule.limit_count is not null)
        group by s.tenant, s.queue, s.type) b
      cross join lateral limitable_by(b.tenant, b.queue, b.type) subject
      group by subject.kind, subject.name
    ), used_up as (
      select rule.kind, rule.name
      from (select rule.*, clock_timestamp() as moment from rule where rule.rate_count is not null) rule
      where rule.rate_count <= (
        select count(*)
        from permits p
        cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, rule.rate_seconds, rule.moment) state
        where p.gate = gate_of(rule.kind, rule.name, rule.rate_seconds)
          and p.slot <= rule.rate_count
          and not state.free)
    ), shut as materialized (
      select c.kind, c.name from controls c where c.paused_at is not null
      union all
      select rule.kind, rule.name
      from rule
      left join busy b on b.kind = rule.kind and b.name = rule.name
      where rule.limit_count <= coalesce(b.running, 0)
      union all
      select used_up.kind, used_up.name from used_up
      union all
      select c.kind, c.name
      from controls c
      where c.kind = 'circuit' and c.limit_count <= (
        select count(*)
        from permits p
        cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, null, now()) state
        where p.gate = gate_of(c.kind, c.name, null) and not state.free)
    )
    select line.id
    from unnest(asked) as line (id)
    where not exists (select from streams s where s.id = line.id)
    union
    select s.id
    from unnest(asked) as line (id)
    join streams s on s.id = line.id
    left join job_types t on t.name = s.type
    cross join lateral pausable_by(s.tenant, s.queue, s.type, t.lane) subject
    join shut on shut.kind = subject.kind and shut.name = subject.name
    where not is_request(s.type)
    union
    select s.id
    from unnest(asked) as line (id)
    join streams s on s.id = line.id
    join job_types t on t.name = s.type
    join shut on shut.kind = 'circuit' and shut.name = circuit_of(t, s.tenant));
end
$$;
ALTER FUNCTION holdfast.shut_streams(asked integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.shut_streams(asked integer[]) IS 'Which of the streams are shut: paused, at a limit or rate, or of a type whose circuit is open or has no probe left.';
CREATE FUNCTION holdfast.single_line(value text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
  select case when length(line) > 200 then left(line, 199) || '…' else line end
  from split_part(btrim(replace(value, e'\r', '')), e'\n', 1) as line
$$;
ALTER FUNCTION holdfast.single_line(value text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.single_line(value text) IS 'The first line of a text, cut to 200 characters.';
CREATE FUNCTION holdfast.situation(job holdfast.jobs, only_tenant text) RETURNS TABLE(code text, text text, culprit jsonb)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  lease leases;
  who   text;
  why   text;
begin
  if job.state = 'queued' then
    return query select r.code, r.text, r.culprit from reason_to_wait(job, only_tenant) r;
    return;
  end if;
  -- Hand-written SQL may have stored texts of any length. The answer must stay short.
  job.created_by := left(job.created_by, 500);
  job.last_error := left(job.last_error, 10000);
  select left(e.by, 500), left(e.note, 1000) into who, why
  from job_events e
  where e.job_id = job.id and (e.event = job.state or (job.state = 'canceled' and e.event = 'resolved'))
  order by e.id desc
  limit 1;
  case job.state
    when 'created' then
      code := 'held';
      text := format('is held since %s%s until somebody releases it', moment(job.created_at),
        ' by ' || single_line(job.created_by));
      culprit := jsonb_build_object('kind', 'client', 'by', job.created_by, 'since', job.created_at);
    when 'scheduled' then
      code := case when job.reason = 'snoozed' then 'snoozed' else 'scheduled' end;
      text := due_text(job.run_at, case code
        when 'snoozed' then 'was put off by its handler until %s' else 'is scheduled for %s' end);
      culprit := jsonb_build_object('kind', 'time', 'until', job.run_at);
      select a.error_message into why
      from job_attempts a
      where code = 'snoozed' and a.job_id = job.id and a.attempt = job.attempt and a.error_type = 'CircuitOpen';
      if found then
        code := 'circuit';
        text := due_text(job.run_at, format('waits for circuit %s%s, and is tried again at %%s',
          replace(quoted(why), '%', '%%'), replace(coalesce(
            (select circuit_text(c, only_tenant) from circuits c
             where c.name = why and c.tenant in ('', job.tenant) and c.state <> 'closed'
             order by c.tenant desc limit 1), ''), '%', '%%')));
        culprit := jsonb_build_object('kind', 'circuit', 'name', why, 'until', job.run_at);
      end if;
    when 'retry' then
      code := 'retry';
      text := due_text(job.run_at, format(
        'failed %s of %s times, last with %s, and runs again at %%s', job.failures, budget_of(job),
        replace(quoted(coalesce(job.last_error, job.reason)), '%', '%%')));
      culprit := jsonb_build_object('kind', 'time', 'until', job.run_at, 'error', job.last_error);
    when 'paused' then
      code := 'paused';
      text := format('was paused%s until somebody resumes it', told(who, job.updated_at, why));
      culprit := jsonb_build_object('kind', 'person', 'by', who, 'note', why, 'since', job.updated_at);
    when 'error' then
      code := 'error';
      text := format('failed with %s at %s and is held until somebody resumes or resolves it',
        quoted(coalesce(job.last_error, why, job.reason)), moment(job.updated_at));
      culprit := jsonb_build_object('kind', 'error', 'error', job.last_error, 'since', job.updated_at);
    when 'running' then
      select l.* into lease from leases l where l.job_id = job.id and l.attempt = job.attempt;
      lease.worker := left(lease.worker, 255);
      lease.interrupted_by := left(lease.interrupted_by, 500);
      lease.interrupt_note := left(lease.interrupt_note, 1000);
      code := case
        when lease.job_id is null then 'misplaced'
        when lease.expires_at < now() then 'lapsed'
        when lease.interrupt is not null then 'interrupted'
        else 'running' end;
      text := case code
        when 'misplaced' then 'runs without a lease, which maintenance mends'
        when 'lapsed' then format('ran on worker %s, whose lease lapsed at %s, %s', lease.worker, moment(lease.expires_at),
          case when is_maintained() then 'and is taken back by the next sweep'
            else 'but no process does maintenance to take it back' end)
        else format('runs on worker %s since %s', lease.worker, moment(lease.claimed_at))
          || case when code = 'interrupted' then format(
            case when lease.verdict is null then ' and was told to %s%s' else ' and was %s%s, but its handler has not ended yet' end,
            coalesce(verdict_event(lease.verdict), told_interrupt(lease.interrupt)),
            told(lease.interrupted_by, null, lease.interrupt_note)) else '' end
        end;
      culprit := jsonb_build_object('kind', 'worker', 'id', lease.worker, 'since', lease.claimed_at,
        'interrupt', told_interrupt(lease.interrupt), 'by', lease.interrupted_by, 'note', lease.interrupt_note);
    when 'success' then
      code := 'ended';
      text := format('succeeded at %s', moment(job.finished_at));
    when 'dead' then
      code := 'ended';
      text := format('died at %s of %s', moment(job.finished_at), quoted(coalesce(job.last_error, job.reason)));
      culprit := jsonb_build_object('kind', 'error', 'error', job.last_error);
    else
      code := 'ended';
      text := format('was %s%s', case job.reason when 'resolved' then 'resolved' else 'canceled' end,
        told(who, job.finished_at, why));
      culprit := jsonb_build_object('kind', 'person', 'by', who, 'note', why);
  end case;
  culprit := nullif(jsonb_strip_nulls(culprit), '{}');
  return next;
end
$$;
ALTER FUNCTION holdfast.situation(job holdfast.jobs, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.situation(job holdfast.jobs, only_tenant text) IS 'What a job does or waits for, as the rest of a sentence about it.';
CREATE FUNCTION holdfast.snooze(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[] DEFAULT NULL::text[]) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select check_seconds('the delay of a snooze', 'delay', delays);
  select * from settle(
    named(worker), job_ids, attempts, array_fill('snoozed'::text, array[cardinality(job_ids)]),
    null, null, notes, null, null, delays, null)
$$;
ALTER FUNCTION holdfast.snooze(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.snooze(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[]) IS 'Put jobs off until later, without costing an attempt.';
CREATE FUNCTION holdfast.sole_adder() RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select pg_try_advisory_xact_lock(hashtext(current_schema() || '.fingerprints'), 0)
$$;
ALTER FUNCTION holdfast.sole_adder() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.sole_adder() IS 'Whether this transaction may write to `fingerprints`.';
CREATE FUNCTION holdfast.source_rows(source text, only_tenant text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;
ALTER FUNCTION holdfast.source_rows(source text, only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.source_rows(source text, only_tenant text) IS 'The rows of a table of open jobs that a search among one tenant''s jobs ($1, null for all) looks at, as `s`.';
CREATE FUNCTION holdfast.stands_alone() RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select statement_timestamp() - transaction_timestamp() < interval '50 microseconds'
$$;
ALTER FUNCTION holdfast.stands_alone() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.stands_alone() IS 'Whether this statement is probably a transaction of its own: then the two began within microseconds.';
CREATE FUNCTION holdfast.start_bulk(action text, query text, tree jsonb, by text, args jsonb DEFAULT '{}'::jsonb, note text DEFAULT NULL::text, only_tenant text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.start_bulk(action text, query text, tree jsonb, by text, args jsonb, note text, only_tenant text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.start_bulk(action text, query text, tree jsonb, by text, args jsonb, note text, only_tenant text, by_key uuid) IS 'Start a bulk operation.';
CREATE FUNCTION holdfast.stop(worker text, job_ids uuid[], attempts integer[], outcomes text[], notes text[] DEFAULT NULL::text[]) RETURNS TABLE(job_id uuid, attempt integer, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  if exists (select from unnest(outcomes) as o (outcome) where coalesce(outcome, '') not in ('canceled', 'paused')) then
    raise exception 'the outcome of a stopped attempt must be canceled or paused' using errcode = 'HF002';
  end if;
  return query
  select * from settle(named(worker), job_ids, attempts, outcomes, null, null, notes, null, null, null, null);
end
$$;
ALTER FUNCTION holdfast.stop(worker text, job_ids uuid[], attempts integer[], outcomes text[], notes text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.stop(worker text, job_ids uuid[], attempts integer[], outcomes text[], notes text[]) IS 'Record that handlers ended because they were told to.';
CREATE FUNCTION holdfast.stop_bulk(id uuid, by text, note text DEFAULT NULL::text, only_tenant text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
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
ALTER FUNCTION holdfast.stop_bulk(id uuid, by text, note text, only_tenant text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.stop_bulk(id uuid, by text, note text, only_tenant text, by_key uuid) IS 'Ask a bulk operation to stop; what it has done stays done.';
CREATE FUNCTION holdfast.stopped_by() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select 'claiming was stopped everywhere' || told(left(c.paused_by, 500), c.paused_at, left(c.paused_note, 1000))
  from controls c
  where c.kind = 'everything' and c.name = '' and c.paused_at is not null
$$;
ALTER FUNCTION holdfast.stopped_by() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.stopped_by() IS 'Who stopped claims everywhere, when and why, in words for the log of a worker, which else would seem to have nothing to do; null if nobody did.';
CREATE FUNCTION holdfast.store_schedule(definition jsonb, tenant text, by text, digest text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  old   schedules;
  times boolean;
begin
  select s.* into old
  from schedules s
  where s.tenant = store_schedule.tenant and s.name = definition ->> 'name'
  for update;
  if old.id is null or old.retired_at is not null then
    perform check_room_for_schedule(tenant);
  end if;
  if old.id is null then
    insert into schedules (
      tenant, name, cron, every_seconds, tz, type, payload, options, overlap, catch_up, jitter, digest, declared_at,
      created_by, updated_by)
    values (
      store_schedule.tenant, definition ->> 'name', definition ->> 'cron', (definition ->> 'every')::double precision,
      definition ->> 'tz', definition ->> 'type', definition -> 'payload', coalesce(definition -> 'options', '{}'),
      definition ->> 'overlap', (definition ->> 'catch_up')::double precision, (definition ->> 'jitter')::double precision,
      store_schedule.digest, case when store_schedule.digest is not null then now() end, by, by);
    perform wake('duty', array[0]);
    return;
  end if;
  times := (old.cron, old.every_seconds, old.tz)
    is distinct from (definition ->> 'cron', (definition ->> 'every')::double precision, definition ->> 'tz')
    or old.retired_at is not null;
  update schedules s
  set cron = definition ->> 'cron',
    every_seconds = (definition ->> 'every')::double precision,
    anchor = case
      when old.every_seconds is distinct from (definition ->> 'every')::double precision then least(coalesce(old.last_fire_at, now()), now())
      else old.anchor
    end,
    tz = definition ->> 'tz',
    type = definition ->> 'type',
    payload = definition -> 'payload',
    options = coalesce(definition -> 'options', '{}'),
    overlap = definition ->> 'overlap',
    catch_up = (definition ->> 'catch_up')::double precision,
    jitter = (definition ->> 'jitter')::double precision,
    revision = old.revision + 1,
    digest = store_schedule.digest,
    -- The last twenty: who declares an older one has waited for long.
    replaced = case
      when old.digest is not null and store_schedule.digest is not null
        then (array_remove(old.replaced, store_schedule.digest) || old.digest)[greatest(1, cardinality(old.replaced) - 18):]
      else '{}'
    end,
    declared_at = case when store_schedule.digest is not null then now() end,
    retired_at = null,
    -- What is due already stays due.
    next_fire_at = case
      when old.retired_at is null and (not times or old.next_fire_at <= now()) then old.next_fire_at
    end,
    reckoned_from = case when times then now() else old.reckoned_from end,
    reckoned_at = case when times then now() else old.reckoned_at end,
    look_at = case when old.paused_at is null then now() end,
    failures = 0,
    last_error = null,
    last_error_at = null,
    updated_at = now(),
    updated_by = by
  where s.id = old.id;
  perform wake('duty', array[0]);
end
$$;
ALTER FUNCTION holdfast.store_schedule(definition jsonb, tenant text, by text, digest text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.store_schedule(definition jsonb, tenant text, by text, digest text) IS 'Store a new definition, or change the one that is there.';
CREATE FUNCTION holdfast.stream_idle() RETURNS interval
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select make_interval(secs => least(setting('STREAM_IDLE_SECONDS')::double precision, highest('stream_idle')))
$$;
ALTER FUNCTION holdfast.stream_idle() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.stream_idle() IS 'How long a stream must be idle before it is forgotten.';
CREATE FUNCTION holdfast.stream_of(entry_stream integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select abs(entry_stream)
$$;
ALTER FUNCTION holdfast.stream_of(entry_stream integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.stream_of(entry_stream integer) IS 'The stream of an entry, parked or not.';
CREATE FUNCTION holdfast.subject_figures(kind text, only_tenant text, only_name text, after text, max_names integer) RETURNS TABLE(name text, waiting bigint, waiting_more boolean, running bigint, paused_at timestamp with time zone, paused_by text, paused_note text, limit_count integer, rate_count integer, rate_seconds real, weight real)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
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
ALTER FUNCTION holdfast.subject_figures(kind text, only_tenant text, only_name text, after text, max_names integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.subject_figures(kind text, only_tenant text, only_name text, after text, max_names integer) IS 'Subjects of one kind by name, page by page; for a tenant, only those that concern its jobs.';
CREATE FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) RETURNS TABLE(item integer, job_id uuid, state text, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
#variable_conflict use_column
declare
  caller    record;
  asked     integer := coalesce(cardinality(types), 0);
begin
  if asked = 0 or array_position(tenants, null) is not null or array_position(tenants, '') is not null then
    raise exception 'a tenant is required' using errcode = 'HF003';
  elsif array[cardinality(tenants), cardinality(creators), cardinality(payloads), cardinality(options), cardinality(ids)]
    <> array_fill(asked, array[5]) then
    raise exception 'all lists must have the same length' using errcode = 'HF002';
  end if;
  for caller in
    select
      job.tenant, job.creator, array_agg(job.position order by job.position) as positions,
      array_agg(job.type order by job.position) as types,
      array_agg(job.payload order by job.position) as payloads,
      array_agg(job.option order by job.position) as options,
      array_agg(job.id order by job.position) as ids
    from unnest(tenants, creators, types, payloads, options, ids) with ordinality
      as job (tenant, creator, type, payload, option, id, position)
    group by job.tenant, job.creator
    order by job.tenant, job.creator
  loop
    perform check_enqueue(caller.types, caller.payloads, caller.options, caller.tenant);
    perform check_texts(caller.creator, null);
    return query
    select caller.positions[r.item]::integer, r.job_id, r.state, r.outcome
    from record_jobs(caller.types, caller.payloads, caller.options, caller.tenant, caller.creator, caller.ids) r;
  end loop;
end
$$;
ALTER FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) IS 'Record the intents of many callers at once: one commit for all of them, each for its own tenant.';
CREATE FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) RETURNS TABLE(item integer, job_id uuid, state text, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5ms'
    AS $$
#variable_conflict use_column
begin
  if array[cardinality(tenants), cardinality(creators), cardinality(payloads), cardinality(options), cardinality(ids)]
    <> array_fill(coalesce(cardinality(types), 0), array[5]) then
    raise exception 'all lists must have the same length' using errcode = 'HF002';
  end if;
  for position in 1 .. coalesce(cardinality(types), 0) loop
    perform refuse_no_tenant(tenants[position]);
    begin
      perform check_enqueue(
        types[position:position], payloads[position:position], options[position:position], tenants[position]);
      perform check_texts(creators[position], null);
      return query
      select position, r.job_id, r.state, r.outcome
      from record_jobs(
        types[position:position], payloads[position:position], options[position:position], tenants[position],
        creators[position], ids[position:position]) r;
    exception
      when lock_not_available then
        null;
      when sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        return query select position, null::uuid, null::text, 'refused';
    end;
  end loop;
end
$$;
ALTER FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) IS 'Record the intents of many callers, without those whose keys other transactions have taken and not committed yet.';
CREATE FUNCTION holdfast.summaries(job_ids uuid[], only_tenant text DEFAULT NULL::text) RETURNS TABLE(id uuid, type text, queue text, lane text, tenant text, state text, reason text, priority integer, attempt integer, failures integer, max_attempts integer, target text, idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, retry_of uuid, created_by text, created_at timestamp with time zone, updated_at timestamp with time zone, run_at timestamp with time zone, started_at timestamp with time zone, finished_at timestamp with time zone, last_error text, last_error_at timestamp with time zone, target_count bigint, lease_owner text, lease_expires_at timestamp with time zone, interrupt text, traceparent text, progress_count bigint, result_count bigint, last_progress_at timestamp with time zone, done_reason text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select
    j.id, left(j.type, 200), left(j.queue, 200), coalesce(t.lane, 'general'), left(j.tenant, 200), j.state,
    left(j.reason, 255), j.priority, j.attempt, j.failures,
    attempts_allowed(j.max_attempts, t.max_attempts, setting('MAX_ATTEMPTS_DEFAULT')::integer), left(j.target, 255),
    left(j.idempotency_key, 255), left(j.dedup_key, 255), coalesce(left(j.correlation_id, 255), j.id::text), j.parent_id,
    j.retry_of, left(j.created_by, 500), readable(j.created_at), readable(j.updated_at), readable(j.run_at),
    readable(j.started_at), readable(j.finished_at), left(j.last_error, 1000), readable(j.last_error_at), j.target_count,
    left(l.worker, 255), readable(l.expires_at), l.interrupt, left(j.traceparent, 255), p.progress_count, p.result_count,
    readable(p.last_progress_at),
    case when p.job_id is not null and j.state = 'success' then coalesce(p.done_reason, 'worker_done') end
  from unnest(job_ids) as asked (id)
  join jobs j on j.id = asked.id
  left join job_types t on t.name = j.type
  left join leases l on l.job_id = j.id and l.attempt = j.attempt
  left join job_progress p on p.job_id = j.id
  where only_tenant is null or j.tenant = only_tenant
$$;
ALTER FUNCTION holdfast.summaries(job_ids uuid[], only_tenant text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.summaries(job_ids uuid[], only_tenant text) IS 'What lists show of jobs: everything but payload, result and cursor, with texts cut to their maximal length.';
CREATE FUNCTION holdfast.sweep(connected_seconds double precision, max_jobs integer DEFAULT 200, after timestamp with time zone DEFAULT '-infinity'::timestamp with time zone) RETURNS TABLE(job_id uuid, attempt integer, worker text, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  patience double precision := least(
    connected_seconds, extract(epoch from clock_timestamp() - pg_postmaster_start_time()));
  ids uuid[];
begin
  select array_agg(entry.job_id) into ids
  from (
    select l.job_id
    from leases l
    where l.expires_at < now() and l.expires_at >= after and l.lease_seconds <= patience
    order by l.expires_at
    limit max_jobs
    for update skip locked) entry;
  if ids is not null then
    return query select * from lapse(ids, patience);
  end if;
end
$$;
ALTER FUNCTION holdfast.sweep(connected_seconds double precision, max_jobs integer, after timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.sweep(connected_seconds double precision, max_jobs integer, after timestamp with time zone) IS 'Take back the leases of attempts whose time is over.';
CREATE FUNCTION holdfast.sync_circuits(worker text, asked jsonb) RETURNS TABLE(tenant text, name text, state text, generation bigint, wait_seconds double precision, spread_seconds double precision, troubled boolean, fault text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  wish    record;
  circuit circuits;
begin
  perform check_circuit_reports(worker, asked);
  perform half_open_circuits();
  for wish in
    select r.*
    from jsonb_to_recordset(asked) as r (
      tenant text, name text, policy jsonb, generation bigint, successes bigint, failures bigint, error text)
    order by r.tenant, r.name
  loop
    fault := null;
    if wish.policy is not null then
      fault := join_circuit(wish.tenant, wish.name, wish.policy);
    end if;
    select c.* into circuit from circuits c where c.tenant = wish.tenant and c.name = wish.name;
    tenant := wish.tenant;
    name := wish.name;
    if not found then
      state := 'unknown';
      generation := 0;
      wait_seconds := 0;
      spread_seconds := 0;
      troubled := false;
      return next;
      continue;
    end if;
    if circuit.used_at < now() - interval '1 hour' then
      update circuits c set used_at = now() where c.tenant = wish.tenant and c.name = wish.name;
    end if;
    troubled := is_troubled(circuit);
    if circuit.state = 'closed' and circuit.generation = wish.generation
      and (wish.failures > 0 or (troubled and wish.successes > 0))
    then
      insert into circuit_counts as k (
        tenant, name, worker, generation, successes, failures, last_failure_at, last_error)
      values (
        wish.tenant, wish.name, sync_circuits.worker, wish.generation, wish.successes, wish.failures,
        case when wish.error is not null then now() end, left(wish.error, 1000))
      on conflict on constraint circuit_counts_pkey do update
        set generation = excluded.generation, successes = excluded.successes, failures = excluded.failures,
          last_failure_at = coalesce(excluded.last_failure_at, k.last_failure_at),
          last_error = coalesce(excluded.last_error, k.last_error), reported_at = now();
      perform judge_circuit(wish.tenant, wish.name);
      select c.* into circuit from circuits c where c.tenant = wish.tenant and c.name = wish.name;
      troubled := troubled or wish.failures > 0;
    end if;
    state := circuit.state;
    generation := circuit.generation;
    select w.wait_seconds, w.spread_seconds into wait_seconds, spread_seconds from circuit_wait(circuit) w;
    return next;
  end loop;
end
$$;
ALTER FUNCTION holdfast.sync_circuits(worker text, asked jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.sync_circuits(worker text, asked jsonb) IS 'Report what a worker has counted, and learn how circuits are.';
CREATE FUNCTION holdfast.take_away(ids uuid[], max_rows integer DEFAULT 20000) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  dropped integer;
begin
  if not drop_items(ids) then
    return false;
  end if;
  delete from job_attempts t
  where t.ctid = any (array(select e.ctid from job_attempts e where e.job_id = any (ids) limit max_rows));
  get diagnostics dropped = row_count;
  if dropped = max_rows then
    return false;
  end if;
  delete from job_events t
  where t.ctid = any (array(select e.ctid from job_events e where e.job_id = any (ids) limit max_rows));
  get diagnostics dropped = row_count;
  if dropped = max_rows then
    return false;
  end if;
  delete from job_progress p where p.job_id = any (ids);
  delete from erasures e where e.job_id = any (ids);
  delete from pending_decisions d where d.job_id = any (ids);
  delete from dead_letters d where d.job_id = any (ids);
  delete from idempotency_keys k where k.job_id = any (ids);
  delete from jobs j where j.id = any (ids);
  return true;
end
$$;
ALTER FUNCTION holdfast.take_away(ids uuid[], max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.take_away(ids uuid[], max_rows integer) IS 'Delete ended jobs with all rows that belong to them, or as many as one call may.';
CREATE FUNCTION holdfast.take_back(job_ids uuid[], fault text, message text) RETURNS TABLE(job_id uuid, attempt integer, worker text, state text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  ids      uuid[];
  numbers  integer[];
  workers  text[];
  outcomes text[];
  faults   text[];
  messages text[];
begin
  select array_agg(l.job_id), array_agg(l.attempt), array_agg(l.worker),
    array_agg(case when l.unbegun then 'released' else 'lost' end),
    array_agg(case when l.unbegun then 'NeverBegan' else fault end),
    array_agg(case when l.unbegun then 'its worker was gone before this could begin' else message end)
  into ids, numbers, workers, outcomes, faults, messages
  from (
    select l.job_id, l.attempt, l.worker, never_began(l.job_id, l.attempt, l.worker, l.number) as unbegun
    from leases l
    join jobs j on j.id = l.job_id
    where l.job_id = any (job_ids)
    order by l.job_id
    for update of l skip locked
    for no key update of j skip locked) l;
  if ids is null then
    return;
  end if;
  return query
  select s.job_id, s.attempt, claimed.worker, s.state
  from settle(null, ids, numbers, outcomes, null, faults, messages, null, null, null, null) s
  join unnest(ids, workers) as claimed (job_id, worker) on claimed.job_id = s.job_id;
end
$$;
ALTER FUNCTION holdfast.take_back(job_ids uuid[], fault text, message text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.take_back(job_ids uuid[], fault text, message text) IS 'Close the attempts of these jobs as lost, or as released where they never began (see beginnings.sql).';
CREATE FUNCTION holdfast.take_entry(stream integer, priority integer, seq bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
begin
  delete from ready r
  where r.ctid in (
    select e.ctid
    from ready_entry(take_entry.stream, take_entry.priority, take_entry.seq) spot
    join ready e on e.stream = spot.stream and e.rank = spot.rank and e.seq = spot.seq
    for update of e skip locked);
  return found;
end
$$;
ALTER FUNCTION holdfast.take_entry(stream integer, priority integer, seq bigint) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.take_entry(stream integer, priority integer, seq bigint) IS 'Take the entry of a job away, unless a claim has locked it.';
CREATE FUNCTION holdfast.take_permits(asked integer[], shares integer[], round integer, parties integer[], OUT streams integer[], OUT allowed integer[], OUT reach integer[], OUT gates text[], OUT slots integer[], OUT owners integer[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform ask_to_repeat();
end
$$;
ALTER FUNCTION holdfast.take_permits(asked integer[], shares integer[], round integer, parties integer[], OUT streams integer[], OUT allowed integer[], OUT reach integer[], OUT gates text[], OUT slots integer[], OUT owners integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.take_permits(asked integer[], shares integer[], round integer, parties integer[], OUT streams integer[], OUT allowed integer[], OUT reach integer[], OUT gates text[], OUT slots integer[], OUT owners integer[]) IS 'Called by claims.';
CREATE FUNCTION holdfast.take_report(tenant text, worker text, job_id uuid, attempt integer, report jsonb) RETURNS TABLE(verdict text, state text, owned boolean, directive text, lease_expires_at timestamp with time zone, lease_remaining double precision, progress_count bigint, result_count bigint, outcome text)
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  final   boolean := coalesce((report ->> 'done')::boolean, false) or report ? 'error';
  error   jsonb := report -> 'error';
  seq     integer := (report ->> 'seq')::integer;
  log     text := right(report ->> 'log', 10000);
  lease   leases;
  job     record;
  known   job_progress;
  counted record;
begin
  perform check_remote(tenant, worker);
  select l.* into lease
  from leases l
  where l.job_id = take_report.job_id and l.attempt = take_report.attempt and l.worker = take_report.worker
  for update;
  owned := found;
  select j.state, j.type, j.failures, j.target_count into job
  from jobs j
  where j.id = take_report.job_id and j.tenant = take_report.tenant;
  if not found then
    verdict := 'lease-lost';
    owned := false;
    return next;
    return;
  end if;
  select p.* into known from job_progress p where p.job_id = take_report.job_id;
  if not owned or job.state <> 'running' then
    return query select * from late_report(worker, job_id, attempt, report, final, seq, job.state, known);
    return;
  end if;
  if final or job.target_count is not null then
    perform from jobs j where j.id = take_report.job_id for no key update;  -- no long wait for whoever has it
  end if;
  if final and known.attempt = attempt and known.seqs @> seq::bigint then
    raise exception 'seq % was used by a report that was not final: give a final one the next number', seq
      using errcode = 'HF002', column = '/seq';
  end if;
  perform check_remote_report(report);
  if known.attempt = attempt then
    log := right(concat_ws(e'\n', known.log_excerpt, log), 10000);
  end if;
  state := 'running';
  if final and error is null then
    perform remote_call_succeeded(lease, tenant, job.type);
  end if;
  -- One without a number (`/api/report_results`) gets the next one: it cannot be told from another report.
  if seq is not null or report ?| array['items', 'cursor', 'progress', 'done_reason']
    or (final and known.attempt = attempt)
  then
    select r.* into counted
    from report(
      worker, job_id, attempt, coalesce(seq, case when known.attempt = attempt then upper(known.seqs)::integer end, 1),
      report -> 'items', report ->> 'collection', report -> 'cursor', coalesce((report ->> 'progress')::bigint, 0),
      report ->> 'done_reason', case when final and error is null then 'now' else 'at-target' end, report -> 'result',
      log) r;
    state := counted.state;
    verdict := case when counted.duplicate then 'repeated' end;
    known.progress_count := counted.progress_count;
    known.result_count := counted.result_count;
  elsif final and error is null then
    select c.state into state
    from complete(worker, array[job_id], array[attempt], array[report -> 'result'], null, array[log]) c;
  end if;
  if state = 'running' and error is not null then
    state := end_with_error(lease, tenant, job.type, job.failures, error, log);
  elsif state = 'running' and report ? 'log' and verdict is null then
    perform keep_log(job_id, attempt, log);
  end if;
  verdict := coalesce(verdict, 'counted');
  progress_count := coalesce(known.progress_count, 0);
  result_count := coalesce(known.result_count, 0);
  owned := state = 'running';
  if owned then
    select h.* into directive, lease_expires_at, lease_remaining
    from hold_on(lease, job.type, (report ->> 'extend_lease_sec')::double precision, false) h;
  else
    directive := remote_directive(worker, null, false);
    if known.log_excerpt is not null then
      update job_progress p set log_excerpt = null where p.job_id = take_report.job_id;  -- the attempt has it now
    end if;
    if final then
      update job_attempts t
      set report_digest = remote_digest(report)
      where t.job_id = take_report.job_id and t.attempt = take_report.attempt;
    end if;
  end if;
  return next;
end
$$;
ALTER FUNCTION holdfast.take_report(tenant text, worker text, job_id uuid, attempt integer, report jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.take_report(tenant text, worker text, job_id uuid, attempt integer, report jsonb) IS 'Record one report.';
CREATE FUNCTION holdfast.taken_keys(types text[], payloads jsonb[], options jsonb[], tenant text, ids uuid[]) RETURNS integer[]
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.taken_keys(types text[], payloads jsonb[], options jsonb[], tenant text, ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.taken_keys(types text[], payloads jsonb[], options jsonb[], tenant text, ids uuid[]) IS 'Record the idempotency keys of a batch for the ids of its future jobs, in the order of the keys, so that no two batches wait for each other.';
CREATE FUNCTION holdfast.tenant_items(tenant text, job_id uuid, after bigint, max_items integer) RETURNS TABLE(id bigint, collection text, key text, data jsonb, created_at timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(tenant_items.tenant);
  return query
  select i.* from get_items(tenant_items.job_id, after, max_items, tenant_items.tenant) i;
end
$$;
ALTER FUNCTION holdfast.tenant_items(tenant text, job_id uuid, after bigint, max_items integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.tenant_items(tenant text, job_id uuid, after bigint, max_items integer) IS 'The items of a job, page by page.';
CREATE FUNCTION holdfast.tenant_items_page(tenant text, job_id uuid, after bigint, max_items integer) RETURNS TABLE(id bigint, collection text, key text, data text, created_at timestamp with time zone, more boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(tenant_items_page.tenant);
  return query
  select i.* from items_page(tenant_items_page.job_id, tenant_items_page.tenant, after, max_items) i;
end
$$;
ALTER FUNCTION holdfast.tenant_items_page(tenant text, job_id uuid, after bigint, max_items integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.tenant_items_page(tenant text, job_id uuid, after bigint, max_items integer) IS 'The items of a job, page by page, bounded in bytes: see `items_page`.';
CREATE FUNCTION holdfast.tenant_of_key(kind text, name text, key_id uuid) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select k.tenant
  from api_keys k
  where k.id = tenant_of_key.key_id
    and tenant_of_key.kind = 'tenant'
    and k.tenant = tenant_of_key.name
    and 'admin' <> all (k.scopes)
$$;
ALTER FUNCTION holdfast.tenant_of_key(kind text, name text, key_id uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.tenant_of_key(kind text, name text, key_id uuid) IS 'The tenant for whose operators a key pauses this subject; null for the installation''s operators.';
CREATE FUNCTION holdfast.tenant_request(tenant text, verb text, id uuid, by text, note text, only_target text DEFAULT NULL::text, by_key uuid DEFAULT NULL::uuid) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  answer text;
begin
  perform refuse_no_tenant(tenant_request.tenant);
  if only_target is not null and not exists (
    select from jobs j
    where j.id = tenant_request.id and j.tenant = tenant_request.tenant and j.target = only_target) then
    return 'not-found';
  end if;
  if verb = 'release' then
    select r.outcome into answer from release_held(array[tenant_request.id], by, tenant_request.tenant) r;
  else
    select r.outcome into answer
    from record_requests(verb, array[tenant_request.id], by, note, note, tenant_request.tenant, true, false) r;
  end if;
  if answer in ('accepted', 'released') then
    perform note_audit(by, by_key, tenant_request.tenant, 'job.' || verb, tenant_request.id::text,
      jsonb_strip_nulls(jsonb_build_object('note', note)));
  end if;
  return answer;
end
$$;
ALTER FUNCTION holdfast.tenant_request(tenant text, verb text, id uuid, by text, note text, only_target text, by_key uuid) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.tenant_request(tenant text, verb text, id uuid, by text, note text, only_target text, by_key uuid) IS 'Ask for something, as `request` does, and write down who did.';
CREATE FUNCTION holdfast.tenants_alike(prints text[], max_tenants integer) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  tenants text[] := '{}';
  print   text;
  last    text;
begin
  foreach print in array prints loop
    last := '';
    loop
      select least(
        (select g.tenant from failing g where g.fingerprint = print and g.tenant > last order by g.tenant limit 1),
        (select d.tenant from dead_letters d where d.fingerprint = print and d.tenant > last order by d.tenant limit 1))
      into last;
      exit when last is null;
      if last <> all (tenants) then
        tenants := tenants || last;
      end if;
      if cardinality(tenants) > max_tenants then
        return null;
      end if;
    end loop;
  end loop;
  return tenants;
end
$$;
ALTER FUNCTION holdfast.tenants_alike(prints text[], max_tenants integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.tenants_alike(prints text[], max_tenants integer) IS 'The tenants that have jobs with one of these fingerprints; null if there are more than `max_tenants`.';
CREATE FUNCTION holdfast.tenants_due(max_tenants integer, after_tenant text, OUT waiting text[], OUT reached text) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  following record;
begin
  waiting := '{}';
  reached := after_tenant;
  for looks in 1..1000 loop
    select s.tenant, s.look_at into following
    from schedules s
    where s.look_at is not null and s.tenant > coalesce(reached, '')
    order by s.tenant, s.look_at, s.id
    limit 1;
    if not found then
      -- Once more from the beginning, if there was nobody behind the last one.
      exit when reached is null or waiting <> '{}';
      reached := null;
      continue;
    end if;
    reached := following.tenant;
    if following.look_at <= now() then
      waiting := waiting || following.tenant;
      exit when cardinality(waiting) >= max_tenants;
    end if;
  end loop;
end
$$;
ALTER FUNCTION holdfast.tenants_due(max_tenants integer, after_tenant text, OUT waiting text[], OUT reached text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.tenants_due(max_tenants integer, after_tenant text, OUT waiting text[], OUT reached text) IS 'The next tenants by name with schedules that are due, from the beginning again where there are none, and how far the walk came.';
CREATE FUNCTION holdfast.term_at(place text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$
  select format('($7 #>> %L)', place)
$_$;
ALTER FUNCTION holdfast.term_at(place text[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.term_at(place text[]) IS 'The SQL expression for a value of the tree, as text.';
CREATE FUNCTION holdfast.texts_of(list jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when jsonb_typeof(list) = 'array' then array(select jsonb_array_elements_text(list)) end
$$;
ALTER FUNCTION holdfast.texts_of(list jsonb) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.texts_of(list jsonb) IS 'The texts of a JSON array; null if it is none.';
CREATE FUNCTION holdfast.timeout_of(type text) RETURNS double precision
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(
    nullif(t.timeout_seconds, 0)::double precision,
    case
      when t.lane = 'fast' then setting('FAST_TIMEOUT_SECONDS')::double precision
      when t.lane <> 'general' then (
        select split_part(part, '=', 2)::double precision
        from regexp_split_to_table(setting('LANE_TIMEOUTS'), ',') as part
        where split_part(part, '=', 1) = t.lane)
    end,
    setting('GENERAL_TIMEOUT_SECONDS')::double precision)
  from (select 1) one
  left join job_types t on t.name = timeout_of.type
$$;
ALTER FUNCTION holdfast.timeout_of(type text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.timeout_of(type text) IS 'How long an attempt of a job type may run: what the type declares, else what the settings say for its lane.';
CREATE FUNCTION holdfast.told(by text, at timestamp with time zone, note text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(' by ' || single_line(by), '') || coalesce(' at ' || moment(at), '')
    || coalesce(' (' || quoted(nullif(note, '')) || ')', '')
$$;
ALTER FUNCTION holdfast.told(by text, at timestamp with time zone, note text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.told(by text, at timestamp with time zone, note text) IS 'Who did something, when and why, as far as it is known.';
CREATE FUNCTION holdfast.too_late_note(decision text, note text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select concat_ws(': ', case decision when 'retry' then 'fail' else decision end, nullif(note, ''))
$$;
ALTER FUNCTION holdfast.too_late_note(decision text, note text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.too_late_note(decision text, note text) IS 'What the history says of a decision that came too late.';
CREATE FUNCTION holdfast.touch_keys(key_ids uuid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  update api_keys k
  set last_used_at = now()
  from (select id from api_keys where id = any (key_ids) order by id for update skip locked) mine
  where k.id = mine.id
$$;
ALTER FUNCTION holdfast.touch_keys(key_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.touch_keys(key_ids uuid[]) IS 'Record when keys were last used.';
CREATE FUNCTION holdfast.trim_fingerprints(of_tenant text, max_rows integer DEFAULT 1000) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
declare
  excess    integer;
  forgotten integer := 0;
begin
  select count(*) - most_fingerprints() into excess
  from (
    select from fingerprints f where f.tenant = of_tenant limit most_fingerprints() + max_rows) f;
  if excess > 0 then
    -- However far it has to look: there are not many more than a tenant may have.
    delete from fingerprints f
    using (
      select o.fingerprint
      from fingerprints o
      where o.tenant = of_tenant and not has_open_failures(o.tenant, o.fingerprint)
      order by o.last_seen, o.fingerprint
      limit excess) gone
    where f.tenant = of_tenant and f.fingerprint = gone.fingerprint;
    get diagnostics forgotten = row_count;
    delete from fingerprints f
    using (
      select o.fingerprint
      from fingerprints o
      where o.tenant = of_tenant
      order by o.last_seen, o.fingerprint
      limit excess - forgotten) gone
    where f.tenant = of_tenant and f.fingerprint = gone.fingerprint;
    forgotten := excess;
  end if;
  return forgotten;
end
$$;
ALTER FUNCTION holdfast.trim_fingerprints(of_tenant text, max_rows integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.trim_fingerprints(of_tenant text, max_rows integer) IS 'Forget fingerprints of a tenant that has too many: the oldest that have nothing open, then the oldest.';
CREATE FUNCTION holdfast.trip_circuit(circuit holdfast.circuits, error text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  first   double precision := (select l.open_seconds from circuit_limits(circuit) l);
  seconds double precision := least(greatest(longest_opening(), first), first * power(2, least(circuit.openings, 30)));
begin
  update circuits c
  set state = 'open', generation = c.generation + 1, openings = c.openings + 1, opening_seconds = seconds,
    probe_successes = 0, opened_at = now(), half_opened_at = null, next_probe_at = now() + make_interval(secs => seconds),
    last_failure_at = now(), last_error = coalesce(error, c.last_error), forced_by = null, forced_note = null,
    updated_at = now()
  where c.tenant = circuit.tenant and c.name = circuit.name and c.generation = circuit.generation;
  if found then
    perform shut_circuit(circuit.tenant, circuit.name);
  end if;
end
$$;
ALTER FUNCTION holdfast.trip_circuit(circuit holdfast.circuits, error text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.trip_circuit(circuit holdfast.circuits, error text) IS 'Open a circuit because calls or a probe failed, unless its state has changed meanwhile.';
CREATE FUNCTION holdfast.try_probe(worker text, job_id uuid, attempt integer, tenant text, name text) RETURNS TABLE(state text, generation bigint, granted boolean, wait_seconds double precision, spread_seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  circuit circuits;
  line    text := gate_of('circuit', circuit_key(try_probe.tenant, try_probe.name), null);
  slots   integer[];
begin
  perform half_open_circuits();
  -- Shared: no probe begins while another one decides.
  select c.* into circuit
  from circuits c
  where c.tenant = try_probe.tenant and c.name = try_probe.name
  for share;
  if not found then
    return query select 'unknown', 0::bigint, false, 0::double precision, 0::double precision;
    return;
  end if;
  granted := false;
  if circuit.state = 'half_open'
    and exists (
      select from leases l
      where l.job_id = try_probe.job_id and l.attempt = try_probe.attempt and l.worker = try_probe.worker)
  then
    granted := exists (
      select from permits p
      where p.gate = line and p.job_id = try_probe.job_id and p.attempt = try_probe.attempt);
    if not granted then
      -- As many as claims admit: the policy may have changed since.
      slots := grab(line, (
        select c.limit_count
        from controls c
        where c.kind = 'circuit' and c.name = circuit_key(circuit.tenant, circuit.name)), null, 1, '{}');
      update permits p
      set job_id = try_probe.job_id, attempt = try_probe.attempt, granted_at = clock_timestamp()
      where p.gate = line and p.slot = any (slots);
      granted := found;
    end if;
  end if;
  return query
  select circuit.state, circuit.generation, granted, w.wait_seconds, w.spread_seconds from circuit_wait(circuit) w;
end
$$;
ALTER FUNCTION holdfast.try_probe(worker text, job_id uuid, attempt integer, tenant text, name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.try_probe(worker text, job_id uuid, attempt integer, tenant text, name text) IS 'Whether this attempt may call a service whose circuit was not closed when its worker last looked.';
CREATE FUNCTION holdfast.turn_bulk() RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  chosen bulks;
begin
  with active as (
    select b.id,
      coalesce(max(b.turned_at) over same_tenant, min(b.started_at) over same_tenant) as tenant_turned_at,
      coalesce(b.turned_at, b.started_at) as own_turned_at
    from bulks b
    where b.state in ('fixing', 'running', 'stopping')
    window same_tenant as (partition by b.tenant)
  )
  select b.* into chosen
  from active a
  join bulks b on b.id = a.id
  where b.state in ('fixing', 'running', 'stopping') and (b.rests_until is null or b.rests_until <= now())
  order by a.tenant_turned_at, a.own_turned_at, a.id
  limit 1
  for update of b skip locked;
  if chosen.id is null then
    return null;
  end if;
  update bulks b
  set turned_at = clock_timestamp() + interval '6 seconds',
    tries = b.tries + 1,
    state = case when b.tries >= 12 then 'stopping' else b.state end,
    error = case
      when b.tries >= 12 and b.state <> 'stopping' then 'it was stopped: 12 portions in a row took too long or failed, even of one job'
      else b.error
    end
  where b.id = chosen.id;
  return chosen.id;
end
$$;
ALTER FUNCTION holdfast.turn_bulk() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.turn_bulk() IS 'The bulk operation whose turn it is; null if there is nothing to do.';
CREATE FUNCTION holdfast.uncalled(found_tenants text[], found_targets text[], max_calls integer DEFAULT 10000) RETURNS TABLE(tenants text[], targets text[])
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  with pending as materialized (
    select c.tenant, c.target
    from calls c
    where found_targets is not null
    limit max_calls + 1
  )
  select array_agg(f.tenant), array_agg(f.target)
  from (
    select u.tenant, u.target
    from unnest(found_tenants, found_targets) as u (tenant, target)
    where (select count(*) from pending) <= max_calls
    except
    select p.tenant, p.target
    from pending p) f
$$;
ALTER FUNCTION holdfast.uncalled(found_tenants text[], found_targets text[], max_calls integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.uncalled(found_tenants text[], found_targets text[], max_calls integer) IS 'Those of the given targets that nobody has called for; null if there are none.';
CREATE FUNCTION holdfast.unheard(channel text DEFAULT 'duty'::text) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select exists (
    select
    from pg_locks l
    where l.locktype = 'advisory'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid = hashtext(current_schema() || '.' || unheard.channel)::oid
      and l.objid in (0, (-1)::oid)
      and l.objsubid = 2)
$$;
ALTER FUNCTION holdfast.unheard(channel text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.unheard(channel text) IS 'Whether an open transaction has work for the leader and may have sent no notification.';
CREATE FUNCTION holdfast.unlocked_entries(tids tid[]) RETURNS holdfast.claim_entry[]
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select array_agg(row(r.tid, r.job_id, r.stream, r.rank, r.seq, r.ready_at, null)::claim_entry)
  from (
    select r.ctid as tid, r.job_id, r.stream, r.rank, r.seq, r.ready_at
    from ready r
    left join lateral (
      select j.id from jobs j where j.id = r.job_id for no key update skip locked) free on true
    where r.ctid = any (tids)
      and (free.id is not null or not exists (select from jobs j where j.id = r.job_id))
    order by r.rank, r.seq, r.job_id) r
$$;
ALTER FUNCTION holdfast.unlocked_entries(tids tid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.unlocked_entries(tids tid[]) IS 'Of the entries that a claim has locked: those whose jobs it could lock now, and those without a job.';
CREATE FUNCTION holdfast.unpark(gates text[], streams integer[], counts bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  woken integer[];
begin
  with next as (
    delete from parked k
    where k.ctid = any (array(
      select first.tid
      from unnest(gates, streams, counts) as g (gate, stream, number)
      cross join lateral (
        select p.ctid as tid
        from parked p
        where p.gate = g.gate and p.stream = g.stream
        order by p.rank, p.seq
        limit g.number
        for update skip locked) first))
    returning k.stream, k.rank, k.seq
  ), taken as (
    delete from ready r
    using next
    where r.stream = parked_stream(next.stream) and r.rank = next.rank and r.seq = next.seq
    returning next.stream, r.rank, r.seq, r.job_id, r.ready_at
  ), back as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select t.stream, t.rank, t.seq, t.job_id, t.ready_at from taken t
    on conflict do nothing
  )
  select array_agg(distinct t.stream) into woken from taken t;
  if woken is not null then
    perform wake('ready', woken);
  end if;
end
$$;
ALTER FUNCTION holdfast.unpark(gates text[], streams integer[], counts bigint[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.unpark(gates text[], streams integer[], counts bigint[]) IS 'Bring back parked jobs, the given number of each gate in each stream, in their order.';
CREATE FUNCTION holdfast.unprintable(name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
  -- Written so that it means the same if backslashes are escapes in plain strings (standard_conforming_strings = off).
  select name ~ E'[\\x01-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]'
$$;
ALTER FUNCTION holdfast.unprintable(name text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.unprintable(name text) IS 'Whether a name contains characters that are not for terminals and lists.';
CREATE FUNCTION holdfast.unregister_worker(id text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  delete from beginnings b where b.worker = unregister_worker.id;
  delete from workers w where w.id = unregister_worker.id
$$;
ALTER FUNCTION holdfast.unregister_worker(id text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.unregister_worker(id text) IS 'Record that a worker has left in good order.';
CREATE FUNCTION holdfast.unserved(job holdfast.jobs, lane text) RETURNS TABLE(code text, text text, culprit jsonb)
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  with able as (
    select
      job.type = any (w.types) as knows,
      coalesce(job.queue = any (w.queues), true) as queue,
      coalesce(job.tenant = any (w.tenants), true) as tenant,
      w.kind = 'remote' or usable_slots(w.lanes, unserved.lane) > 0 as lane,
      not w.draining and (w.kind <> 'remote' or w.quiet_at is null) as stays
    from live_workers() w
  ), counted as (
    select
      count(*) as alive,
      count(*) filter (where knows) as knowing,
      count(*) filter (where knows and queue) as of_queue,
      count(*) filter (where knows and queue and tenant) as of_tenant,
      count(*) filter (where knows and queue and tenant and lane) as of_lane,
      count(*) filter (where knows and queue and tenant and lane and stays) as staying
    from able
  )
  select fault.code, 'waits because ' || fault.text, fault.culprit
  from counted c
  cross join lateral (
    values
      (c.alive, 'no-worker', 'no worker is alive', jsonb_build_object('kind', 'workers')),
      (c.knowing, 'type-unserved', format('no live worker knows its type %s', quoted(job.type)),
        jsonb_build_object('kind', 'type', 'name', job.type)),
      (c.of_queue, 'queue-unserved', format('no live worker that knows its type serves its queue %s', quoted(job.queue)),
        jsonb_build_object('kind', 'queue', 'name', job.queue)),
      (c.of_tenant, 'tenant-unserved',
        format('no live worker that knows its type serves its tenant %s', quoted(job.tenant)),
        jsonb_build_object('kind', 'tenant', 'name', job.tenant)),
      (c.of_lane, 'lane-unserved', format('no live worker that knows its type has slots for its lane %s', unserved.lane),
        jsonb_build_object('kind', 'lane', 'name', unserved.lane)),
      (c.staying, 'draining', 'every live worker that could run it drains', jsonb_build_object('kind', 'workers'))
  ) as fault (workers, code, text, culprit)
  where fault.workers = 0
  limit 1
$$;
ALTER FUNCTION holdfast.unserved(job holdfast.jobs, lane text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.unserved(job holdfast.jobs, lane text) IS 'Why no live worker can run the job; no row if one could, however busy it is now.';
CREATE FUNCTION holdfast.usable_slots(lanes jsonb, lane text) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
  select coalesce((lanes ->> 'general')::numeric, 0)::integer
    + case when lane <> 'general' then coalesce((lanes ->> lane)::numeric, 0)::integer else 0 end
$$;
ALTER FUNCTION holdfast.usable_slots(lanes jsonb, lane text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.usable_slots(lanes jsonb, lane text) IS 'How many slots can run jobs of a lane: general slots run anything, others only types that are declared for them.';
CREATE FUNCTION holdfast.uuid_v7() RETURNS uuid
    LANGUAGE plpgsql PARALLEL SAFE
    AS $$
declare
  micros bigint := extract(epoch from clock_timestamp()) * 1000000;
begin
  return encode(
    overlay(
      overlay(uuid_send(gen_random_uuid()) placing substring(int8send(micros / 1000) from 3) from 1 for 6)
      placing int2send((28672 + (micros % 1000) * 4)::int2) from 7 for 2),
    'hex')::uuid;
end
$$;
ALTER FUNCTION holdfast.uuid_v7() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.uuid_v7() IS 'A UUID of version 7: milliseconds since the epoch, then a fraction of them, then random bits.';
CREATE FUNCTION holdfast.verdict_event(verdict text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when verdict = 'kill' then 'killed' when verdict is not null then 'failed' end
$$;
ALTER FUNCTION holdfast.verdict_event(verdict text) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.verdict_event(verdict text) IS 'What the history of a job calls a verdict.';
CREATE FUNCTION holdfast.verify(max_offences integer DEFAULT 100) RETURNS TABLE(invariant text, job_id uuid, detail text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  (select 'open jobs have their side row', b.job_id, b.fault
   from broken_jobs('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff') b
   limit max_offences)
  union all
  (select 'a lease belongs to a running attempt', l.job_id, format('lease of attempt %s, job is %s, attempt %s', l.attempt, j.state, j.attempt)
   from leases l
   left join jobs j on j.id = l.job_id
   where j.state is distinct from 'running' or j.attempt <> l.attempt
   limit max_offences)
  union all
  (select 'a ready entry belongs to a queued job', r.job_id, format('stream %s, job is %s', r.stream, coalesce(j.state, 'missing'))
   from ready r
   left join jobs j on j.id = r.job_id
   where j.state is distinct from 'queued'
   limit max_offences)
  union all
  (select 'a job stands in ready once', r.job_id, format('%s entries', count(*))
   from ready r
   group by r.job_id
   having count(*) > 1
   limit max_offences)
  union all
  (select 'what stands in line is offered to workers', r.job_id, format('stream %s', stream_of(r.stream))
   from ready r
   join jobs j on j.id = r.job_id
   where r.ready_at < now() - interval '1 minute'
     and is_maintained()
     and not exists (
       select from streams s
       where s.id = stream_of(r.stream) and s.closed_in is null and (s.tenant, s.queue, s.type) = (j.tenant, j.queue, j.type))
   limit max_offences)
  union all
  (select 'what is hidden from claims is parked', r.job_id, format('stream %s', stream_of(r.stream))
   from ready r
   where is_parked(r.stream)
     and not exists (select from parked p where p.stream = stream_of(r.stream) and p.rank = r.rank and p.seq = r.seq)
   limit max_offences)
  union all
  (select 'a due entry belongs to a scheduled or retrying job', d.job_id, coalesce(j.state, 'missing')
   from due d
   left join jobs j on j.id = d.job_id and j.run_at = d.run_at
   where j.state is null or j.state not in ('scheduled', 'retry')
   limit max_offences)
  union all
  (select 'a dormant entry belongs to a job that is created, paused or in error', d.job_id, coalesce(j.state, 'missing')
   from dormant d
   left join jobs j on j.id = d.job_id
   where j.state is null or not is_dormant(j.state)
   limit max_offences)
  union all
  (select 'one job of a target is under way', min(j.id::text)::uuid, format('target %s of %s: %s jobs', j.target, j.tenant, count(*))
   from jobs j
   join leases l on l.job_id = j.id
   where j.target is not null
   group by j.tenant, j.target
   having count(*) > 1
   limit max_offences)
  union all
  (select 'only the head of a target is ready', r.job_id, format('target %s of %s', j.target, j.tenant)
   from ready r
   join jobs j on j.id = r.job_id and j.target is not null
   left join heads h on h.tenant = j.tenant and h.target = j.target
   where h.job_id is distinct from j.id
   limit max_offences)
  union all
  (select 'the head of a target has not ended', h.job_id, format('target %s of %s, job is %s', h.target, h.tenant, coalesce(j.state, 'missing'))
   from heads h
   left join jobs j on j.id = h.job_id
   where j.state is null or j.state in ('created', 'success', 'dead', 'canceled')
   limit max_offences)
  union all
  (select 'a line has a head, or was called for', min(w.job_id::text)::uuid, format('target %s of %s', w.target, w.tenant)
   from waiting w
   where not exists (select from heads h where h.tenant = w.tenant and h.target = w.target)
     and not exists (select from calls c where c.tenant = w.tenant and c.target = w.target)
   group by w.tenant, w.target
   limit max_offences)
  union all
  (select 'a dead job has a dead letter', j.id, null
   from jobs j
   where j.state = 'dead' and not exists (select from dead_letters d where d.job_id = j.id)
   limit max_offences)
  union all
  (select 'an ended job knows when', j.id, j.state
   from jobs j
   where (j.state in ('success', 'dead', 'canceled')) <> (j.finished_at is not null)
   limit max_offences)
  union all
  (select 'every ended attempt left a row', j.id, format('%s rows for attempt %s, %s', count(t.job_id), j.attempt, j.state)
   from jobs j
   left join job_attempts t on t.job_id = j.id
   where j.attempt > 0
   group by j.id, j.attempt, j.state
   having count(t.job_id) <> j.attempt - case when j.state = 'running' then 1 else 0 end
   limit max_offences)
  union all
  (select 'failures stay within the budget', j.id, format('%s of %s', j.failures, coalesce(j.max_attempts, t.max_attempts))
   from jobs j
   left join job_types t on t.name = j.type
   where j.state in ('queued', 'retry') and j.failures >= coalesce(j.max_attempts, t.max_attempts)
   limit max_offences)
  union all
  (select 'who waits for a target is not its head', w.job_id, format('target %s of %s', w.target, w.tenant)
   from waiting w
   join heads h on h.tenant = w.tenant and h.target = w.target and h.job_id = w.job_id
   limit max_offences)
  union all
  (select 'who waits for a target is queued, or paused', w.job_id, coalesce(j.state, 'missing')
   from waiting w
   left join jobs j on j.id = w.job_id
   where j.state is distinct from case w.turn when 0 then 'paused' else 'queued' end
   limit max_offences)
  union all
  (select 'a held job blocks its target', j.id, format('target %s of %s: it is %s', j.target, j.tenant, j.state)
   from jobs j
   where j.state in ('paused', 'error')
     and j.target is not null
     and not exists (select from heads h where h.tenant = j.tenant and h.target = j.target and h.job_id = j.id)
     and not exists (
       select from waiting w where w.tenant = j.tenant and w.target = j.target and w.turn = 0 and w.place = j.seq)
   limit max_offences)
  union all
  (select 'a pending decision has a request', d.job_id, format('to %s, request %s', d.decision, d.request_id)
   from pending_decisions d
   where not exists (select from jobs r where r.id = d.request_id and r.state not in ('success', 'dead', 'canceled'))
   limit max_offences)
  union all
  (select 'an ended job keeps no dedup key', j.id, j.dedup_key
   from jobs j
   where j.state in ('success', 'dead', 'canceled') and j.dedup_key is not null
   limit max_offences)
  union all
  (select 'the key of a job is kept', j.id, j.idempotency_key
   from jobs j
   where j.idempotency_key is not null
     and not exists (
       select from idempotency_keys k
       where k.tenant = j.tenant and k.key = j.idempotency_key and k.job_id = j.id)
   limit max_offences)
  union all
  (select 'a circuit shuts its types while it is not closed', null, format('%s: it is %s', replace(c.name, chr(31), '/'), coalesce(b.state, 'missing'))
   from controls c
   full join circuits b on c.kind = 'circuit' and c.name = circuit_key(b.tenant, b.name)
   where (c.kind = 'circuit' and coalesce(b.state, 'closed') = 'closed') or (c.name is null and b.state <> 'closed')
   limit max_offences)
$$;
ALTER FUNCTION holdfast.verify(max_offences integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.verify(max_offences integer) IS 'Check the invariants over the live tables; a row for each violation.';
CREATE FUNCTION holdfast.visible_jobs(tenants text[], job_ids uuid[]) RETURNS TABLE(id uuid, tenant text, type text, state text, target text, created_at timestamp with time zone, updated_at timestamp with time zone, message text, progress_count bigint, result_count bigint, target_count bigint, last_progress_at timestamp with time zone, done_reason text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
begin
  if coalesce(cardinality(tenants), 0) = 0 or array_position(tenants, null) is not null then
    raise exception 'a tenant is required' using errcode = 'HF003';
  end if;
  return query
  select j.id, j.tenant, j.type, j.state, j.target, j.created_at, greatest(j.updated_at, p.last_progress_at),
    left(said.message, 1000), p.progress_count, p.result_count,
    case when p.job_id is not null then j.target_count end, p.last_progress_at,
    case when p.job_id is not null and j.state = 'success' then coalesce(p.done_reason, 'worker_done') end
  from unnest(tenants, job_ids) as asked (tenant, id)
  join jobs j on j.id = asked.id and j.tenant = asked.tenant
  left join job_progress p on p.job_id = j.id
  cross join lateral (
    -- Only the job's own events: with a limit, a plan may walk through those of all jobs, newest first.
    select (array_agg(e.message order by e.id desc))[1] as message
    from job_events e
    where j.state in ('paused', 'error', 'canceled')
      and e.job_id = j.id
      and (e.event = j.state or (j.state = 'canceled' and e.event = 'resolved'))) said
  where not is_request(j.type);
end
$$;
ALTER FUNCTION holdfast.visible_jobs(tenants text[], job_ids uuid[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.visible_jobs(tenants text[], job_ids uuid[]) IS 'The public fields of jobs, with what the jobs have reported; a report is a change.';
CREATE FUNCTION holdfast.vouch() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  perform pg_logical_emit_message(true, 'holdfast', '');
end
$$;
ALTER FUNCTION holdfast.vouch() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.vouch() IS 'Let the commit of this transaction guarantee everything that it could see, although it may write nothing itself.';
CREATE FUNCTION holdfast.waited_seconds(began timestamp with time zone, entered bigint, clock timestamp with time zone) RETURNS double precision
    LANGUAGE sql STABLE
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select greatest(0, extract(epoch from clock - began)::double precision - least(0, (
    select sum(s.seconds) from clock_steps s where s.place >= coalesce(waited_seconds.entered, 0))))
$$;
ALTER FUNCTION holdfast.waited_seconds(began timestamp with time zone, entered bigint, clock timestamp with time zone) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.waited_seconds(began timestamp with time zone, entered bigint, clock timestamp with time zone) IS 'For how many seconds something has really waited that began at this moment, or was entered at this place if that is known more precisely.';
CREATE FUNCTION holdfast.waiting_jobs(tenant text, up_to integer) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(waiting_jobs.tenant);
  return (
    select count(*)
    from (
      select from streams s join ready r on r.stream = any (entry_streams(s.id)) where s.tenant = waiting_jobs.tenant and s.closed_in is null
      union all
      select from waiting w where w.tenant = waiting_jobs.tenant
      limit up_to) counted);
end
$$;
ALTER FUNCTION holdfast.waiting_jobs(tenant text, up_to integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.waiting_jobs(tenant text, up_to integer) IS 'How many jobs of a tenant wait for a worker or behind another of their target, counted no further than asked: a large backlog must not make the answer expensive.';
CREATE FUNCTION holdfast.wake(channel text, topics integer[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
declare
  heard text;
begin
  if channel = 'duty' then
    if not stands_alone()
      or not pg_try_advisory_xact_lock_shared(hashtext(current_schema() || '.duty'), -1)
      or pg_try_advisory_xact_lock(hashtext(current_schema() || '.duty'), 0) then
      heard := topics[1];
    end if;
  elsif cardinality(topics) = 1 then
    -- The same in fewer steps: almost all calls are for one topic.
    if not stands_alone() or pg_try_advisory_xact_lock(hashtext(current_schema() || '.' || channel), topics[1]) then
      heard := topics[1];
    end if;
  elsif stands_alone() then
    select string_agg(topic::text, ',') into heard
    from unnest(topics[1:64]) as topic
    where pg_try_advisory_xact_lock(hashtext(current_schema() || '.' || channel), topic);
  else
    heard := array_to_string(topics[1:64], ',');
  end if;
  if cardinality(topics) > 64 then
    heard := '';
  end if;
  if heard is not null then
    perform pg_notify(current_schema() || '.' || channel, heard);
  end if;
end
$$;
ALTER FUNCTION holdfast.wake(channel text, topics integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.wake(channel text, topics integer[]) IS 'A notification is a hint: nothing depends on its arrival.';
CREATE FUNCTION holdfast.wake_again(streams integer[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
begin
  -- Workers that do not know a stream would ignore a notification for it, for some seconds.
  if serve_streams(streams) > 0 then
    perform pg_notify(current_schema() || '.ready', '');
  else
    perform wake('ready', streams);
  end if;
end
$$;
ALTER FUNCTION holdfast.wake_again(streams integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.wake_again(streams integer[]) IS 'Serve streams to which jobs have returned, in case they were forgotten, and notify workers.';
CREATE FUNCTION holdfast.whole_walk(step text, enough integer DEFAULT NULL::integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $_$
declare
  place  text[];
  mended integer;
  total  integer := 0;
begin
  loop
    execute format('select w.mended, w.reached from %I($1) w', step) into mended, place using place;
    total := total + mended;
    exit when place is null or total >= enough;
  end loop;
  return total;
end
$_$;
ALTER FUNCTION holdfast.whole_walk(step text, enough integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.whole_walk(step text, enough integer) IS 'Take the steps of a walk until it has ended or has mended enough.';
CREATE FUNCTION holdfast.with_lineage(options jsonb[], tenant text, taken integer[]) RETURNS jsonb[]
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
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
ALTER FUNCTION holdfast.with_lineage(options jsonb[], tenant text, taken integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.with_lineage(options jsonb[], tenant text, taken integer[]) IS 'The options of children: a child without a correlation id gets its parent''s.';
CREATE FUNCTION holdfast.work_bulk(bulk holdfast.bulks, max_jobs integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
  ends_at   timestamptz := clock_timestamp() + interval '1 second';
  entry     bulk_jobs;
  fitting   uuid[];
  verdict   text;
  fault     text;
  verdicts  text[] := '{}';
  postponed integer := 0;
begin
  fitting := fitting_jobs(bulk, array(
    select e.job_id from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs));
  for entry in
    select e.* from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs
  loop
    exit when cardinality(verdicts) > 0 and clock_timestamp() > ends_at;
    begin
      verdict := case when entry.job_id = any (fitting) then bulk_act(bulk, entry.job_id) else 'skipped' end;
    exception
      when serialization_failure or deadlock_detected or lock_not_available then
        verdict := 'later';
      when others then
        get stacked diagnostics fault = message_text;
        verdict := 'failed';
    end;
    -- This was its twentieth turn.
    if verdict = 'later' and entry.tries >= 19 then
      verdict := 'failed';
      fault := 'somebody else has locked it';
    end if;
    if verdict = 'later' then
      postponed := postponed + 1;
      update bulk_jobs e
      set place = bulk.last_place + postponed, tries = e.tries + 1
      where e.bulk_id = bulk.id and e.place = entry.place;
    else
      delete from bulk_jobs e where e.bulk_id = bulk.id and e.place = entry.place;
      if verdict = 'failed' then
        bulk.error := coalesce(bulk.error, left(format('job %s: %s', entry.job_id, fault), 1000));
      end if;
    end if;
    verdicts := verdicts || verdict;
    bulk.place := entry.place;
  end loop;
  update bulks b
  set place = bulk.place,
    last_place = b.last_place + postponed,
    rests_until = case when postponed > 0 and postponed = cardinality(verdicts) then now() + interval '1 second' end,
    done = b.done + cardinality(array_positions(verdicts, 'done')),
    skipped = b.skipped + cardinality(array_positions(verdicts, 'skipped')),
    failed = b.failed + cardinality(array_positions(verdicts, 'failed')),
    error = bulk.error,
    state = case when cardinality(verdicts) = 0 then 'done' else b.state end,
    finished_at = case when cardinality(verdicts) = 0 then now() end
  where b.id = bulk.id;
end
$$;
ALTER FUNCTION holdfast.work_bulk(bulk holdfast.bulks, max_jobs integer) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.work_bulk(bulk holdfast.bulks, max_jobs integer) IS 'Work on some of the jobs that were noted, for about a second.';
CREATE FUNCTION holdfast.work_left(streams integer[]) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select exists (select from unnest(streams) s (id) join lateral (select from ready r where r.stream = any (entry_streams(s.id)) limit 1) r on true)
    or exists (select from leases l where l.stream = any (streams))
    or exists (
      select from (select d.job_id from due d order by d.run_at limit 1000) soon
      join jobs j on j.id = soon.job_id
      where (j.state = 'retry' or j.reason = 'snoozed') and j.stream = any (streams))
    or exists (select from calls)
    or exists (select from unnest(request_streams()) s (id) join lateral (select from ready r where r.stream = s.id limit 1) r on true)
$$;
ALTER FUNCTION holdfast.work_left(streams integer[]) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.work_left(streams integer[]) IS 'Whether a worker for these streams has anything left to do: a job that is ready, running, retrying or snoozed (among the next thousand that are due), a target without a head, or a request.';
CREATE FUNCTION holdfast.worker_settings() RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(jsonb_object_agg(s.name, s.value), '{}') from settings s where s.value is not null
$$;
ALTER FUNCTION holdfast.worker_settings() OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.worker_settings() IS 'The settings that the database has a value for, as a running worker learns them with each heartbeat.';
CREATE FUNCTION holdfast.written_rate(count integer, seconds double precision) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select format('%s/%s%s', count, nullif((seconds / unit.length)::text, '1'), unit.name)
  from (values (86400, 'd'), (3600, 'h'), (60, 'min'), (1, 's')) as unit (length, name)
  where unit.length = 1 or mod(seconds::numeric, unit.length) = 0
  order by unit.length desc
  limit 1
$$;
ALTER FUNCTION holdfast.written_rate(count integer, seconds double precision) OWNER TO holdfast_owner;
COMMENT ON FUNCTION holdfast.written_rate(count integer, seconds double precision) IS 'A rate as people write it, the same as in Python (`Rate.__str__`): 10/s, 100/min, 5/30s.';
ALTER TABLE holdfast.audit_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.audit_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.beginnings (
    worker text NOT NULL COLLATE pg_catalog."C",
    lane integer NOT NULL,
    number bigint NOT NULL
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');
ALTER TABLE holdfast.beginnings OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.beginnings IS 'Which of the jobs that a worker claimed ahead have begun.';
CREATE TABLE holdfast.bulk_found (
    bulk_id uuid NOT NULL,
    part integer NOT NULL,
    ids uuid[] NOT NULL
);
ALTER TABLE ONLY holdfast.bulk_found ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE holdfast.bulk_found OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.bulk_found IS 'Open jobs that bulk operations have still to look at, many ids to a row.';
CREATE TABLE holdfast.bulk_jobs (
    bulk_id uuid NOT NULL,
    place bigint NOT NULL,
    job_id uuid NOT NULL,
    tries smallint DEFAULT 0 NOT NULL
);
ALTER TABLE holdfast.bulk_jobs OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.bulk_jobs IS 'What is left to do of bulk operations.';
CREATE TABLE holdfast.calls (
    id bigint NOT NULL,
    tenant text NOT NULL,
    target text NOT NULL
);
ALTER TABLE holdfast.calls OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.calls IS 'Targets whose head is to be looked at, written by enqueueing.';
ALTER TABLE holdfast.calls ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.calls_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW holdfast.circuit_breakers AS
 SELECT c.name AS service_name,
    c.state,
    (COALESCE(t.failures, (0)::numeric))::bigint AS failure_count,
    (COALESCE(t.successes, (0)::numeric))::bigint AS success_count,
    GREATEST(t.last_failure_at, c.last_failure_at) AS last_failure_at,
    c.opened_at,
    c.half_opened_at,
    c.updated_at,
    NULLIF(c.tenant, ''::text) AS tenant
   FROM (holdfast.circuits c
     LEFT JOIN LATERAL ( SELECT sum(k.failures) AS failures,
            sum(k.successes) AS successes,
            max(k.last_failure_at) AS last_failure_at
           FROM holdfast.circuit_counts k
          WHERE ((k.tenant = c.tenant) AND (k.name = c.name) AND (k.generation = c.generation) AND (k.reported_at > (now() - make_interval(secs => c.window_seconds))))) t ON (true));
ALTER VIEW holdfast.circuit_breakers OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast.circuit_breakers IS 'Circuit breakers as they may be read with psql, with what all workers have counted within their windows.';
CREATE TABLE holdfast.clock_steps (
    id bigint NOT NULL,
    noticed_at timestamp with time zone DEFAULT now() NOT NULL,
    seconds double precision NOT NULL,
    place bigint,
    CONSTRAINT clock_steps_seconds_check CHECK (((seconds >= ('-1000000000000'::numeric)::double precision) AND (seconds <= ('1000000000000'::numeric)::double precision)))
);
ALTER TABLE holdfast.clock_steps OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.clock_steps IS 'By how much the clock of the database jumped, and when.';
ALTER TABLE holdfast.clock_steps ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.clock_steps_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.dead_letters (
    job_id uuid NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    died_at timestamp with time zone DEFAULT now() NOT NULL,
    error_type text,
    error_message text,
    acknowledged_at timestamp with time zone,
    acknowledged_by text,
    fingerprint text COLLATE pg_catalog."C",
    note text,
    requeued_as uuid
);
ALTER TABLE holdfast.dead_letters OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.dead_letters IS 'A row for each dead job, until somebody has acknowledged it and retention deletes it.';
CREATE TABLE holdfast.settings (
    name text NOT NULL COLLATE pg_catalog."C",
    default_value text NOT NULL,
    value text,
    description text NOT NULL,
    updated_at timestamp with time zone,
    updated_by text
);
ALTER TABLE holdfast.settings OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.settings IS 'Settings that can be changed at run time, with their defaults.';
CREATE VIEW holdfast.dead_letter_jobs AS
 SELECT d.job_id AS id,
    jsonb_build_object('id', j.id, 'type', j.type, 'queue', j.queue, 'tenant', j.tenant, 'state', j.state, 'payload', j.payload, 'priority', j.priority, 'attempt', j.attempt, 'failures', j.failures, 'max_attempts', COALESCE(j.max_attempts, t.max_attempts, ( SELECT (COALESCE(s.value, s.default_value))::integer AS "coalesce"
           FROM holdfast.settings s
          WHERE (s.name = 'MAX_ATTEMPTS_DEFAULT'::text))), 'target', j.target, 'target_count', j.target_count, 'idempotency_key', j.idempotency_key, 'correlation_id', COALESCE(j.correlation_id, (j.id)::text), 'parent_id', j.parent_id, 'retry_of', j.retry_of, 'created_by', j.created_by, 'traceparent', j.traceparent, 'created_at', j.created_at, 'run_at', j.run_at, 'started_at', j.started_at, 'finished_at', j.finished_at, 'last_error', j.last_error, 'last_error_at', j.last_error_at) AS original_job,
    d.error_message,
    ( SELECT jsonb_build_object('attempt', a.attempt, 'worker', a.worker, 'outcome', a.outcome, 'started_at', a.started_at, 'finished_at', a.finished_at, 'queue_ms', a.queue_ms, 'duration_ms', a.duration_ms, 'error_type', a.error_type, 'error_message', a.error_message, 'traceback', a.traceback, 'log_excerpt', a.log_excerpt) AS jsonb_build_object
           FROM holdfast.job_attempts a
          WHERE (a.job_id = d.job_id)
          ORDER BY a.attempt DESC
         LIMIT 1) AS error_details,
    d.died_at,
    (d.acknowledged_at IS NOT NULL) AS acknowledged,
    d.acknowledged_by,
    d.acknowledged_at
   FROM ((holdfast.dead_letters d
     LEFT JOIN holdfast.jobs j ON ((j.id = d.job_id)))
     LEFT JOIN holdfast.job_types t ON ((t.name = j.type)));
ALTER VIEW holdfast.dead_letter_jobs OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast.dead_letter_jobs IS 'Dead letters as they may be read with psql, with the dead job itself and the end of its last attempt.';
CREATE TABLE holdfast.dormant (
    job_id uuid NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE holdfast.dormant OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.dormant IS 'Open jobs that neither wait for their turn nor run: created, paused or held in error.';
CREATE SEQUENCE holdfast.places
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE holdfast.places OWNER TO holdfast_owner;
CREATE TABLE holdfast.due (
    run_at timestamp with time zone NOT NULL,
    job_id uuid NOT NULL,
    entered bigint DEFAULT nextval('holdfast.places'::regclass),
    CONSTRAINT due_moment_check CHECK (((run_at >= '0002-01-01 00:00:00+00'::timestamp with time zone) AND (run_at <= '9999-12-30 00:00:00+00'::timestamp with time zone)))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE holdfast.due OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.due IS 'Scheduled and retrying jobs, by the moment at which they become eligible.';
CREATE TABLE holdfast.erasures (
    job_id uuid NOT NULL,
    attempt integer NOT NULL,
    event bigint NOT NULL
);
ALTER TABLE holdfast.erasures OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.erasures IS 'How far jobs are erased whose rows are too many for one call.';
CREATE TABLE holdfast.failing (
    job_id uuid NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL
);
ALTER TABLE holdfast.failing OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.failing IS 'Open jobs whose last attempt failed, with the fingerprint of that failure.';
CREATE TABLE holdfast.failures (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    job_id uuid NOT NULL,
    attempt integer NOT NULL,
    fingerprint text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE holdfast.failures OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.failures IS 'A row for each failure, until the leader has added it up.';
ALTER TABLE holdfast.failures ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.failures_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.fingerprints (
    tenant text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    error_type text,
    message text,
    count bigint NOT NULL,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    sample_job_id uuid NOT NULL
);
ALTER TABLE holdfast.fingerprints OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.fingerprints IS 'Failures by tenant and fingerprint: how many, since when, and one of the jobs.';
CREATE TABLE holdfast.heads (
    tenant text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    job_id uuid,
    place bigint,
    seq bigint
)
WITH (fillfactor='50');
ALTER TABLE holdfast.heads OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.heads IS 'The one job per target that may be ready, run, retry or block the others.';
CREATE TABLE holdfast.idempotency_keys (
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    job_id uuid NOT NULL,
    fingerprint bytea NOT NULL
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_insert_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
ALTER TABLE holdfast.idempotency_keys OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.idempotency_keys IS 'Every idempotency key of a tenant, with its job and the fingerprint of the request.';
ALTER TABLE holdfast.job_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.job_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.job_items (
    job_id uuid NOT NULL,
    id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    collection text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    data jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_insert_scale_factor='0.5');
ALTER TABLE holdfast.job_items OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.job_items IS 'What jobs found, once per key of a collection.';
CREATE TABLE holdfast.streams (
    id integer NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    closed_at timestamp with time zone,
    closed_in xid8,
    unseen_in xid8
);
ALTER TABLE holdfast.streams OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.streams IS 'The jobs of one type, in one queue, of one tenant: the unit that workers choose by.';
CREATE TABLE holdfast.waiting (
    tenant text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    turn smallint NOT NULL,
    place bigint NOT NULL,
    job_id uuid NOT NULL
);
ALTER TABLE holdfast.waiting OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.waiting IS 'The line behind each target.';
CREATE VIEW holdfast.job_queue_health AS
 SELECT type,
    status,
    (sum(count))::bigint AS count,
    min(oldest_at) AS oldest_at,
    (GREATEST((0)::numeric, floor((EXTRACT(epoch FROM (now() - min(oldest_at))) / (60)::numeric))))::bigint AS oldest_minutes
   FROM ( SELECT s.type,
            'pending'::text AS status,
            r.count,
            r.oldest_at
           FROM (( SELECT abs(e.stream) AS stream,
                    count(*) AS count,
                    min(e.ready_at) AS oldest_at
                   FROM holdfast.ready e
                  GROUP BY (abs(e.stream))) r
             JOIN holdfast.streams s ON ((s.id = r.stream)))
          WHERE (s.queue <> 'holdfast'::text)
        UNION ALL
         SELECT j.type,
            'pending'::text,
            count(*) AS count,
            min(j.run_at) AS min
           FROM (holdfast.waiting w
             CROSS JOIN LATERAL ( SELECT j_1.type,
                    j_1.run_at
                   FROM holdfast.jobs j_1
                  WHERE (j_1.id = w.job_id)
                 OFFSET 0) j)
          GROUP BY j.type
        UNION ALL
         SELECT s.type,
            'processing'::text,
            count(*) AS count,
            min(l.claimed_at) AS min
           FROM (holdfast.leases l
             JOIN holdfast.streams s ON ((s.id = l.stream)))
          WHERE (s.queue <> 'holdfast'::text)
          GROUP BY s.type
        UNION ALL
         SELECT j.type,
                CASE j.state
                    WHEN 'retry'::text THEN 'failed'::text
                    ELSE j.state
                END AS state,
            count(*) AS count,
            min(j.last_error_at) AS min
           FROM (( SELECT g.job_id,
                    g.attempt
                   FROM holdfast.failing g
                UNION ALL
                 SELECT f.job_id,
                    f.attempt
                   FROM holdfast.failures f) w
             CROSS JOIN LATERAL ( SELECT j_1.type,
                    j_1.state,
                    j_1.queue,
                    j_1.last_error_at
                   FROM holdfast.jobs j_1
                  WHERE ((j_1.id = w.job_id) AND (j_1.attempt = w.attempt) AND (j_1.state = ANY (ARRAY['retry'::text, 'error'::text])))
                 OFFSET 0) j)
          WHERE (j.queue <> 'holdfast'::text)
          GROUP BY j.type, j.state
        UNION ALL
         SELECT d.type,
            'dead'::text,
            count(*) AS count,
            min(d.died_at) AS min
           FROM holdfast.dead_letters d
          WHERE (d.acknowledged_at IS NULL)
          GROUP BY d.type) h
  GROUP BY type, status;
ALTER VIEW holdfast.job_queue_health OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast.job_queue_health IS 'How many jobs of each type wait, run, failed or died, and since when the oldest of them does.';
CREATE TABLE holdfast.leaders (
    name text NOT NULL COLLATE pg_catalog."C",
    holder text NOT NULL,
    term bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    renewed_at timestamp with time zone,
    patience_seconds double precision DEFAULT 0 NOT NULL,
    report jsonb,
    renewals bigint DEFAULT 0 NOT NULL,
    place bigint
)
WITH (fillfactor='50');
ALTER TABLE holdfast.leaders OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.leaders IS 'Which process does maintenance, and until when.';
CREATE TABLE holdfast.parked (
    stream integer NOT NULL,
    rank integer NOT NULL,
    seq bigint NOT NULL,
    gate text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE holdfast.parked OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.parked IS 'Ready jobs that wait for a permit of their key.';
CREATE TABLE holdfast.payload_shapes (
    type text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    shape jsonb,
    published_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE holdfast.payload_shapes OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.payload_shapes IS 'What handlers take, as their workers publish it.';
ALTER TABLE holdfast.pending_decisions ALTER COLUMN place ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.pending_decisions_place_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.remote_pulls (
    tenant text NOT NULL COLLATE pg_catalog."C",
    worker text NOT NULL COLLATE pg_catalog."C",
    request_id text NOT NULL COLLATE pg_catalog."C",
    pulled_at timestamp with time zone DEFAULT now() NOT NULL,
    job_ids uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    attempts integer[] DEFAULT '{}'::integer[] NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');
ALTER TABLE holdfast.remote_pulls OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.remote_pulls IS 'What remote workers were given for a request id, for five minutes.';
CREATE TABLE holdfast.repairs (
    kind text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50');
ALTER TABLE holdfast.repairs OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.repairs IS 'What was found inconsistent and mended, by kind; anything but zero is worth a look.';
CREATE TABLE holdfast.schedule_fires (
    schedule_id bigint NOT NULL,
    fire_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    job_id uuid,
    missed_to timestamp with time zone,
    by text,
    decided_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT schedule_fires_outcome_check CHECK ((outcome = ANY (ARRAY['fired'::text, 'existing'::text, 'skipped'::text, 'missed'::text, 'by-hand'::text])))
);
ALTER TABLE holdfast.schedule_fires OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.schedule_fires IS 'What became of the fire times of schedules: one row each.';
ALTER TABLE holdfast.schedules ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.schedules_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.schema_functions (
    name text NOT NULL COLLATE pg_catalog."C",
    checksum text NOT NULL,
    release text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE holdfast.schema_functions OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.schema_functions IS 'Which function files were applied, with their checksums.';
CREATE TABLE holdfast.schema_steps (
    step integer NOT NULL,
    name text NOT NULL,
    release text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE holdfast.schema_steps OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.schema_steps IS 'Which migrations were applied.';
ALTER TABLE holdfast.streams ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.streams_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.walks (
    name text NOT NULL COLLATE pg_catalog."C",
    reached text[]
);
ALTER TABLE holdfast.walks OWNER TO holdfast_owner;
COMMENT ON TABLE holdfast.walks IS 'Walks that are made once after a migration, and how far they have come.';
CREATE VIEW holdfast_views.circuit_breakers AS
 SELECT service_name,
    state,
    failure_count,
    success_count,
    last_failure_at,
    opened_at,
    half_opened_at,
    updated_at,
    tenant
   FROM holdfast.circuit_breakers c;
ALTER VIEW holdfast_views.circuit_breakers OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast_views.circuit_breakers IS 'Circuit breakers: their state, and what all workers have counted within their windows.';
CREATE VIEW holdfast_views.dead_letter_jobs AS
 SELECT id,
    original_job,
    error_message,
    error_details,
    died_at,
    acknowledged,
    acknowledged_by,
    acknowledged_at
   FROM holdfast.dead_letter_jobs d;
ALTER VIEW holdfast_views.dead_letter_jobs OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast_views.dead_letter_jobs IS 'Dead letters, with the dead job itself and the end of its last attempt.';
CREATE VIEW holdfast_views.job_attempts AS
 SELECT ((job_id || '/'::text) || attempt) AS id,
    job_id,
    worker AS worker_id,
    started_at,
    finished_at,
        CASE
            WHEN (outcome = 'success'::text) THEN 1
            ELSE 0
        END AS success,
    log_excerpt,
    attempt,
    outcome,
    error_type,
    error_message,
    queue_ms,
    duration_ms
   FROM holdfast.job_attempts a;
ALTER VIEW holdfast_views.job_attempts OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast_views.job_attempts IS 'Ended attempts, with what they logged; ask by job_id.';
CREATE VIEW holdfast_views.job_queue_health AS
 SELECT type,
    status,
    count,
    oldest_at,
    oldest_minutes
   FROM holdfast.job_queue_health h;
ALTER VIEW holdfast_views.job_queue_health OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast_views.job_queue_health IS 'How many jobs of each type wait, run, failed or died, and since when the oldest of them does.';
CREATE VIEW holdfast_views.jobs AS
 SELECT j.id,
    j.type,
    j.payload,
    s.status,
    j.priority,
    j.attempt AS attempts,
    COALESCE(j.max_attempts, t.max_attempts, ( SELECT (COALESCE(o.value, o.default_value))::integer AS "coalesce"
           FROM holdfast.settings o
          WHERE (o.name = 'MAX_ATTEMPTS_DEFAULT'::text))) AS max_attempts,
    j.run_at AS scheduled_at,
    j.run_at,
    j.started_at,
    j.finished_at AS completed_at,
    j.last_error AS error_message,
    j.last_error,
        CASE
            WHEN (s.status IS NOT NULL) THEN j.last_error_at
            ELSE NULL::timestamp with time zone
        END AS last_error_at,
    j.correlation_id,
    j.parent_id AS parent_job_id,
    j.created_by,
    j.dedup_key,
    j.created_at,
    j.updated_at,
    j.tenant,
    j.queue,
    j.target,
    j.state,
    j.reason
   FROM ((holdfast.jobs j
     JOIN ( SELECT l.job_id,
            'processing'::text AS status,
            ''::text AS other,
            l.attempt
           FROM holdfast.leases l
        UNION ALL
         SELECT g.job_id,
            'failed'::text,
            ''::text,
            g.attempt
           FROM holdfast.failing g
        UNION ALL
         SELECT f.job_id,
            'failed'::text,
            ''::text,
            f.attempt
           FROM holdfast.failures f
        UNION ALL
         SELECT d.job_id,
            'dead'::text,
            ''::text,
            NULL::integer
           FROM holdfast.dead_letters d
        UNION ALL
         SELECT o.id,
            o.word,
            o.word,
            NULL::integer
           FROM ( SELECT o_1.id,
                        CASE o_1.state
                            WHEN 'success'::text THEN 'completed'::text
                            WHEN 'canceled'::text THEN 'canceled'::text
                            WHEN 'paused'::text THEN 'paused'::text
                            WHEN 'error'::text THEN 'error'::text
                            WHEN 'running'::text THEN NULL::text
                            WHEN 'dead'::text THEN NULL::text
                            ELSE 'pending'::text
                        END AS word
                   FROM holdfast.jobs o_1) o) s ON ((s.job_id = j.id)))
     LEFT JOIN holdfast.job_types t ON ((t.name = j.type)))
  WHERE ((s.other <> 'processing'::text) AND (s.other <> 'failed'::text) AND (s.other <> 'dead'::text) AND (j.queue <> 'holdfast'::text) AND
        CASE j.state
            WHEN 'running'::text THEN ((s.status = 'processing'::text) AND (s.attempt = j.attempt))
            WHEN 'dead'::text THEN (s.status = 'dead'::text)
            WHEN 'retry'::text THEN
            CASE s.status
                WHEN 'failed'::text THEN (s.attempt = j.attempt)
                WHEN 'pending'::text THEN ((NOT (EXISTS ( SELECT
                   FROM holdfast.failing g
                  WHERE ((g.job_id = j.id) AND (g.attempt = j.attempt))))) AND (NOT (EXISTS ( SELECT
                   FROM holdfast.failures f
                  WHERE ((f.job_id = j.id) AND (f.attempt = j.attempt))))))
                ELSE NULL::boolean
            END
            ELSE (s.status <> ALL (ARRAY['processing'::text, 'failed'::text, 'dead'::text]))
        END);
ALTER VIEW holdfast_views.jobs OWNER TO holdfast_owner;
COMMENT ON VIEW holdfast_views.jobs IS 'Jobs with one word for their status; ask by id, correlation_id, parent_job_id, or for processing, failed or dead ones.';
ALTER TABLE ONLY holdfast.api_keys
    ADD CONSTRAINT api_keys_digest_key UNIQUE (digest);
ALTER TABLE ONLY holdfast.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.beginnings
    ADD CONSTRAINT beginnings_pkey PRIMARY KEY (worker, lane);
ALTER TABLE ONLY holdfast.bulk_found
    ADD CONSTRAINT bulk_found_pkey PRIMARY KEY (bulk_id, part);
ALTER TABLE ONLY holdfast.bulk_jobs
    ADD CONSTRAINT bulk_jobs_job_id_bulk_id_key UNIQUE (job_id, bulk_id);
ALTER TABLE ONLY holdfast.bulk_jobs
    ADD CONSTRAINT bulk_jobs_pkey PRIMARY KEY (bulk_id, place);
ALTER TABLE ONLY holdfast.bulks
    ADD CONSTRAINT bulks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.calls
    ADD CONSTRAINT calls_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.circuit_counts
    ADD CONSTRAINT circuit_counts_pkey PRIMARY KEY (tenant, name, worker);
ALTER TABLE holdfast.circuits
    ADD CONSTRAINT circuits_bounds_check CHECK ((((failure_threshold >= 1) AND (failure_threshold <= 1000000)) AND ((failure_share >= (0.001)::double precision) AND (failure_share <= (1)::double precision)) AND ((window_seconds >= (1)::double precision) AND (window_seconds <= (86400)::double precision)) AND ((open_seconds >= (0.1)::double precision) AND (open_seconds <= (86400)::double precision)) AND ((probes >= 1) AND (probes <= 1000)) AND ((success_threshold >= 1) AND (success_threshold <= 1000)) AND ((opening_seconds >= (0.1)::double precision) AND (opening_seconds <= (31536000)::double precision)))) NOT VALID;
ALTER TABLE ONLY holdfast.circuits
    ADD CONSTRAINT circuits_pkey PRIMARY KEY (tenant, name);
ALTER TABLE ONLY holdfast.clock_steps
    ADD CONSTRAINT clock_steps_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.closed_types
    ADD CONSTRAINT closed_types_pkey PRIMARY KEY (name);
ALTER TABLE holdfast.controls
    ADD CONSTRAINT controls_kind_check CHECK ((kind = ANY (ARRAY['queue'::text, 'type'::text, 'lane'::text, 'tenant'::text, 'everything'::text, 'circuit'::text]))) NOT VALID;
ALTER TABLE ONLY holdfast.controls
    ADD CONSTRAINT controls_pkey PRIMARY KEY (kind, name);
ALTER TABLE ONLY holdfast.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY holdfast.dormant
    ADD CONSTRAINT dormant_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY holdfast.due
    ADD CONSTRAINT due_pkey PRIMARY KEY (run_at, job_id);
ALTER TABLE ONLY holdfast.erasures
    ADD CONSTRAINT erasures_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY holdfast.failing
    ADD CONSTRAINT failing_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY holdfast.failures
    ADD CONSTRAINT failures_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.fingerprints
    ADD CONSTRAINT fingerprints_pkey PRIMARY KEY (tenant, fingerprint);
ALTER TABLE ONLY holdfast.heads
    ADD CONSTRAINT heads_pkey PRIMARY KEY (tenant, target);
ALTER TABLE ONLY holdfast.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY holdfast.job_attempts
    ADD CONSTRAINT job_attempts_pkey PRIMARY KEY (job_id, attempt);
ALTER TABLE ONLY holdfast.job_events
    ADD CONSTRAINT job_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.job_items
    ADD CONSTRAINT job_items_key UNIQUE (tenant, collection, key);
ALTER TABLE ONLY holdfast.job_items
    ADD CONSTRAINT job_items_pkey PRIMARY KEY (job_id, id);
ALTER TABLE ONLY holdfast.job_progress
    ADD CONSTRAINT job_progress_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY holdfast.job_types
    ADD CONSTRAINT job_types_pkey PRIMARY KEY (name);
ALTER TABLE holdfast.jobs
    ADD CONSTRAINT jobs_moments_check CHECK (((LEAST(created_at, updated_at, run_at, started_at, finished_at, last_error_at) >= '0002-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(created_at, updated_at, run_at, started_at, finished_at, last_error_at) <= '9999-12-30 00:00:00+00'::timestamp with time zone))) NOT VALID;
ALTER TABLE ONLY holdfast.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.leaders
    ADD CONSTRAINT leaders_pkey PRIMARY KEY (name);
ALTER TABLE ONLY holdfast.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (job_id);
ALTER TABLE holdfast.leases
    ADD CONSTRAINT leases_verdict_check CHECK ((verdict = ANY (ARRAY['retry'::text, 'fail'::text, 'kill'::text]))) NOT VALID;
ALTER TABLE ONLY holdfast.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (stream, rank, seq);
ALTER TABLE ONLY holdfast.payload_shapes
    ADD CONSTRAINT payload_shapes_pkey PRIMARY KEY (type, digest);
ALTER TABLE ONLY holdfast.pending_decisions
    ADD CONSTRAINT pending_decisions_pkey PRIMARY KEY (job_id, request_id);
ALTER TABLE ONLY holdfast.permits
    ADD CONSTRAINT permits_pkey PRIMARY KEY (gate, slot);
ALTER TABLE ONLY holdfast.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (stream, rank, seq);
ALTER TABLE ONLY holdfast.remote_pulls
    ADD CONSTRAINT remote_pulls_pkey PRIMARY KEY (tenant, worker, request_id);
ALTER TABLE ONLY holdfast.repairs
    ADD CONSTRAINT repairs_pkey PRIMARY KEY (kind);
ALTER TABLE ONLY holdfast.schedule_fires
    ADD CONSTRAINT schedule_fires_pkey PRIMARY KEY (schedule_id, fire_at);
ALTER TABLE holdfast.schedules
    ADD CONSTRAINT schedules_bounds_check CHECK ((((every_seconds >= (1)::double precision) AND (every_seconds <= (31622400)::double precision)) AND ((catch_up >= (0)::double precision) AND (catch_up <= (2678400)::double precision)) AND ((jitter >= (0)::double precision) AND (jitter <= (86400)::double precision)))) NOT VALID;
ALTER TABLE ONLY holdfast.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.schedules
    ADD CONSTRAINT schedules_tenant_name_key UNIQUE (tenant, name);
ALTER TABLE ONLY holdfast.schema_functions
    ADD CONSTRAINT schema_functions_pkey PRIMARY KEY (name);
ALTER TABLE ONLY holdfast.schema_steps
    ADD CONSTRAINT schema_steps_pkey PRIMARY KEY (step);
ALTER TABLE ONLY holdfast.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (name);
ALTER TABLE ONLY holdfast.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (tenant, target, turn, place);
ALTER TABLE ONLY holdfast.walks
    ADD CONSTRAINT walks_pkey PRIMARY KEY (name);
ALTER TABLE ONLY holdfast.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);
CREATE INDEX bulks_active ON holdfast.bulks USING btree (id) WHERE (state = ANY (ARRAY['fixing'::text, 'running'::text, 'stopping'::text]));
CREATE INDEX bulks_finished ON holdfast.bulks USING btree (finished_at, id) WHERE (finished_at IS NOT NULL);
CREATE INDEX bulks_of_tenant ON holdfast.bulks USING btree (tenant, id);
CREATE INDEX circuits_open ON holdfast.circuits USING btree (next_probe_at) WHERE (state = 'open'::text);
CREATE INDEX dead_letters_alike ON holdfast.dead_letters USING btree (fingerprint, tenant, ((acknowledged_at IS NULL)), job_id);
CREATE INDEX dead_letters_died ON holdfast.dead_letters USING btree (died_at, job_id);
CREATE INDEX dead_letters_of_tenant ON holdfast.dead_letters USING btree (tenant, died_at, job_id);
CREATE INDEX dead_letters_old ON holdfast.dead_letters USING btree (job_id) WHERE (fingerprint IS NULL);
CREATE INDEX dead_letters_open ON holdfast.dead_letters USING btree (tenant, died_at, job_id) WHERE (acknowledged_at IS NULL);
CREATE INDEX dead_letters_unread ON holdfast.dead_letters USING btree (died_at, job_id) WHERE (acknowledged_at IS NULL);
CREATE INDEX dormant_of_tenant ON holdfast.dormant USING btree (tenant, job_id);
CREATE INDEX failing_fingerprint ON holdfast.failing USING btree (fingerprint, tenant, job_id);
CREATE INDEX fingerprints_of_tenant ON holdfast.fingerprints USING btree (tenant, last_seen, fingerprint);
CREATE INDEX fingerprints_of_type ON holdfast.fingerprints USING btree (type, last_seen, fingerprint, tenant);
CREATE INDEX fingerprints_sample ON holdfast.fingerprints USING btree (sample_job_id);
CREATE INDEX fingerprints_seen ON holdfast.fingerprints USING btree (last_seen, fingerprint, tenant);
CREATE INDEX idempotency_keys_job ON holdfast.idempotency_keys USING btree (job_id);
CREATE INDEX job_events_erased ON holdfast.job_events USING btree (job_id) WHERE (event = 'erased'::text);
CREATE INDEX job_events_of_job ON holdfast.job_events USING btree (job_id, id);
CREATE INDEX job_types_limited ON holdfast.job_types USING btree (name) WHERE ((limit_count IS NOT NULL) OR (rate_count IS NOT NULL));
CREATE INDEX jobs_children ON holdfast.jobs USING btree (parent_id, id) WHERE (parent_id IS NOT NULL);
CREATE INDEX jobs_correlated ON holdfast.jobs USING btree (correlation_id, tenant, id) WHERE (correlation_id IS NOT NULL);
CREATE UNIQUE INDEX jobs_dedup ON holdfast.jobs USING btree (tenant, type, dedup_key) WHERE (dedup_key IS NOT NULL);
CREATE INDEX jobs_of_tenant ON holdfast.jobs USING btree (tenant, id) WHERE (tenant <> 'default'::text);
CREATE INDEX leases_expiry ON holdfast.leases USING btree (expires_at);
CREATE INDEX parked_gate ON holdfast.parked USING btree (gate, stream, rank, seq);
CREATE INDEX remote_pulls_age ON holdfast.remote_pulls USING btree (pulled_at);
CREATE INDEX schedule_fires_jobs ON holdfast.schedule_fires USING btree (schedule_id, fire_at) WHERE (job_id IS NOT NULL);
CREATE INDEX schedule_fires_missed ON holdfast.schedule_fires USING btree (schedule_id, missed_to) WHERE (missed_to IS NOT NULL);
CREATE INDEX schedule_fires_old ON holdfast.schedule_fires USING btree (fire_at, schedule_id);
CREATE INDEX schedules_look ON holdfast.schedules USING btree (look_at, id) WHERE (look_at IS NOT NULL);
CREATE INDEX schedules_named ON holdfast.schedules USING btree (name, tenant);
CREATE INDEX schedules_turns ON holdfast.schedules USING btree (tenant, look_at, id) WHERE (look_at IS NOT NULL);
CREATE INDEX streams_names ON holdfast.streams USING btree (type, queue, tenant, id) WHERE (closed_in IS NULL);
CREATE INDEX streams_tenant ON holdfast.streams USING btree (tenant);
CREATE INDEX streams_tenants ON holdfast.streams USING btree (tenant) WHERE (closed_in IS NULL);
CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON holdfast.audit_log FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_audit_change();
CREATE TRIGGER controls_begin_limit AFTER INSERT OR UPDATE ON holdfast.controls FOR EACH ROW EXECUTE FUNCTION holdfast.begin_limit();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.api_keys FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.audit_log FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.beginnings FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.bulks FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.circuits FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.clock_steps FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.closed_types FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.controls FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.dead_letters FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.idempotency_keys FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.job_items FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.job_progress FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.job_types FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.jobs FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.leases FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.schedules FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER durable BEFORE INSERT OR DELETE OR UPDATE ON holdfast.settings FOR EACH STATEMENT WHEN ((current_setting('synchronous_commit'::text) = ANY (ARRAY['off'::text, 'local'::text]))) EXECUTE FUNCTION holdfast.raise_durability();
CREATE TRIGGER guard_delete BEFORE DELETE ON holdfast.jobs FOR EACH ROW WHEN ((old.state <> ALL (ARRAY['success'::text, 'dead'::text, 'canceled'::text]))) EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER guard_delete BEFORE DELETE ON holdfast.streams FOR EACH ROW WHEN ((old.closed_in IS NULL)) EXECUTE FUNCTION holdfast.refuse_renaming();
CREATE TRIGGER guard_insert BEFORE INSERT ON holdfast.jobs FOR EACH ROW WHEN (((new.state <> ALL (ARRAY['queued'::text, 'scheduled'::text, 'created'::text])) OR (new.attempt <> 0) OR (new.fingerprint IS NOT NULL))) EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER guard_names AFTER UPDATE OF tenant, queue, type, stream ON holdfast.jobs FOR EACH ROW WHEN (((((old.tenant IS DISTINCT FROM new.tenant) OR (old.queue IS DISTINCT FROM new.queue)) OR (old.type IS DISTINCT FROM new.type)) OR (old.stream IS DISTINCT FROM new.stream))) EXECUTE FUNCTION holdfast.refuse_renaming();
CREATE TRIGGER guard_names BEFORE UPDATE OF tenant, queue, type ON holdfast.streams FOR EACH ROW WHEN ((((old.tenant IS DISTINCT FROM new.tenant) OR (old.queue IS DISTINCT FROM new.queue)) OR (old.type IS DISTINCT FROM new.type))) EXECUTE FUNCTION holdfast.refuse_renaming();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON holdfast.jobs FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER guard_update AFTER UPDATE ON holdfast.jobs FOR EACH ROW WHEN (((old.id <> new.id) OR (NOT (((old.state = new.state) AND (new.attempt = old.attempt)) OR ((old.state = 'queued'::text) AND (new.state = 'running'::text) AND (new.attempt = (old.attempt + 1))) OR ((old.state = 'running'::text) AND (new.state = 'success'::text) AND (new.attempt = old.attempt)))))) EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_types_begin_limit AFTER INSERT OR UPDATE OF limit_count ON holdfast.job_types FOR EACH ROW EXECUTE FUNCTION holdfast.begin_limit();
CREATE TRIGGER kept BEFORE DELETE OR TRUNCATE ON holdfast.settings FOR EACH STATEMENT EXECUTE FUNCTION holdfast.keep_settings();
CREATE TRIGGER note_created AFTER INSERT ON holdfast.jobs FOR EACH ROW WHEN ((new.state = 'created'::text)) EXECUTE FUNCTION holdfast.note_created();
CREATE TRIGGER printable BEFORE INSERT ON holdfast.streams FOR EACH ROW WHEN ((holdfast.unprintable(new.tenant) OR holdfast.unprintable(new.queue) OR holdfast.unprintable(new.type))) EXECUTE FUNCTION holdfast.refuse_stream();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.api_keys DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT ON holdfast.audit_log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.bulks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.circuits DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.closed_types DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.controls DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.dead_letters DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR UPDATE ON holdfast.idempotency_keys DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR UPDATE ON holdfast.job_progress DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.schedules DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured AFTER INSERT OR DELETE OR UPDATE ON holdfast.settings DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured_insert AFTER INSERT ON holdfast.jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE current_setting('holdfast.commit_secured'::text, true)
            WHEN 'on'::text THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE CONSTRAINT TRIGGER secured_update AFTER UPDATE ON holdfast.jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (
        CASE
            WHEN ((new.state = 'running'::text) OR (current_setting('holdfast.commit_secured'::text, true) = 'on'::text)) THEN false
            ELSE (set_config('holdfast.commit_secured'::text, 'on'::text, true) = 'on'::text)
        END) EXECUTE FUNCTION holdfast.secure_commit();
CREATE TRIGGER usable BEFORE INSERT OR UPDATE ON holdfast.settings FOR EACH ROW EXECUTE FUNCTION holdfast.refuse_setting();
GRANT USAGE ON SCHEMA holdfast TO holdfast_api;
GRANT USAGE ON SCHEMA holdfast TO holdfast_worker;
GRANT USAGE ON SCHEMA holdfast TO holdfast_operator;
GRANT USAGE ON SCHEMA holdfast TO holdfast_client;
GRANT USAGE ON SCHEMA holdfast TO holdfast_remote;
GRANT USAGE ON SCHEMA holdfast_views TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.accepted_payloads(types text[], known text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.accepted_payloads(types text[], known text[]) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.accepted_payloads(types text[], known text[]) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.accepted_payloads(types text[], known text[]) TO holdfast_operator;
GRANT ALL ON FUNCTION holdfast.accepted_payloads(types text[], known text[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.acknowledge_letter(id uuid, by text, note text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.acknowledge_letters(job_ids uuid[], by text, note text, only_tenant text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.acknowledge_letters(job_ids uuid[], by text, note text, only_tenant text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.acknowledged_operand() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.act_by_hand(verb text, id uuid, by text, words text, will_retry boolean, priority integer, only_tenant text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.act_by_hand(verb text, id uuid, by text, words text, will_retry boolean, priority integer, only_tenant text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.add_failures(after bigint, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.add_failures(after bigint, max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.admit(after text, max_gates integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.admit(after text, max_gates integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.adopt(gate text, capacity integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.advance_bulk(id uuid, max_jobs integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.advance_bulk(id uuid, max_jobs integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.age(max_jobs integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.age(max_jobs integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.age_from(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean, shared boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.age_from(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean, shared boolean) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.age_lines(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.age_lines(after_stream integer, after_rank integer, max_lines integer, max_jobs integer, mixed boolean) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.all_open(ids integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.all_states() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.allowed_states(tree jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) TO holdfast_operator;
GRANT ALL ON FUNCTION holdfast.answered_key(tenant text, key text, type text, payload jsonb) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.as_caller(by text, address text, request_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.as_caller(by text, address text, request_id text) TO holdfast_client;
GRANT ALL ON FUNCTION holdfast.as_caller(by text, address text, request_id text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.ask_to_repeat() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.attempts_after(id uuid, only_tenant text, after integer, max_attempts integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.attempts_after(id uuid, only_tenant text, after integer, max_attempts integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.attempts_allowed(of_job integer, of_type integer, by_default integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.attempts_page(id uuid, only_tenant text, after integer, max_attempts integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.attempts_page(id uuid, only_tenant text, after integer, max_attempts integer) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.attempts_page(id uuid, only_tenant text, after integer, max_attempts integer) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.attempts_page(id uuid, only_tenant text, after integer, max_attempts integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.await_claims() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.backlog() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.backlog() TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.backlog() TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.backlog() TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.backoff_seconds(failures integer, base double precision, factor double precision, max double precision, jitter double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.beat(id text, draining boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.beat(id text, draining boolean) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.beat_with_slots(id text, draining boolean, used jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.beat_with_slots(id text, draining boolean, used jsonb) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.begin_limit() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.behind_others(job holdfast.jobs, lane text, rank integer, seq bigint, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bounds() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bounds_fault(what text, bound text, value numeric) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.broken_among(ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.broken_jobs(first uuid, last uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.budget_of(job holdfast.jobs) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bulk_act(bulk holdfast.bulks, id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bulk_page(tree jsonb, only_tenant text, sources text[], place text[], max_jobs integer, max_visited integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bulk_sources(tree jsonb, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bulk_states(action text, tree jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bulk_tree(action text, tree jsonb, upto timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.bury(job holdfast.jobs, verdict text, by text, words text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.carry_out(verb text, id uuid, flagged integer, by text, note text, message text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.carry_out_by_hand(verb text, ask jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.change_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision, by text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.change_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision, by text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.change_setting(name text, value text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.change_setting(name text, value text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.check_bulk(action text, args jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_by_tenant(kind text, name text, by_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_circuit_change(name text, tenant text, by text, reason text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_circuit_reports(worker text, asked jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_enqueue(types text[], payloads jsonb[], options jsonb[], tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_lanes(lanes jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_limits(kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision, weight double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_payloads(types text[], payloads jsonb[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_query_size(tree jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_remote(tenant text, worker text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_remote_report(report jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_report(seq integer, items jsonb, collection text, progress bigint, done_reason text, ends text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_report_size(items jsonb, cursor jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_results(job_ids uuid[], results jsonb[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_room_for_schedule(tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_schedule(definition jsonb, tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_scope(kind text, name text, kinds text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_seconds(what text, bound text, lengths double precision[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_signed(by text, note text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_subject(kind text, name text, kinds text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_texts(who text, reason text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_types(definitions jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.check_worker(id text, host text, version text, types text[], queues text[], tenants text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_key(tenant text, name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_limits(circuit holdfast.circuits) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_name_fault(name text, tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_of(declared holdfast.job_types, tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_policy(policy jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_text(circuit holdfast.circuits, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_totals(circuit holdfast.circuits) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.circuit_wait(circuit holdfast.circuits) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.claim(worker text, types text[], max_jobs integer, queues text[], tenants text[], lease_seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claim(worker text, types text[], max_jobs integer, queues text[], tenants text[], lease_seconds double precision) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.claim_barrier() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.claim_by_id(worker text, id uuid, lease_seconds double precision, only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claim_by_id(worker text, id uuid, lease_seconds double precision, only_tenant text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.claim_from(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claim_from(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.claim_jobs(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[], at_once integer, next_number bigint, records boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claim_jobs(worker text, max_jobs integer, lease_seconds double precision, streams integer[], from_ranks integer[], from_seqs bigint[], to_ranks integer[], at_once integer, next_number bigint, records boolean) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.claim_mark(OUT claimed_until timestamp with time zone, OUT before_number bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claim_mark(OUT claimed_until timestamp with time zone, OUT before_number bigint) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.claim_streams(worker text, streams integer[], max_jobs integer, lease_seconds double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.claimed_payloads(worker text, job_ids uuid[], attempts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claimed_payloads(worker text, job_ids uuid[], attempts integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.claims_end_within(hundredths integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.claims_ended() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claims_ended() TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.claims_under_way(among text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.clamp_backoff(after_run_at timestamp with time zone, after_job uuid, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.clamp_backoff(after_run_at timestamp with time zone, after_job uuid, max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.clamp_leases(after uuid, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.clamp_leases(after uuid, max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.clamp_rates(after_gate text, after_slot integer, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.clamp_rates(after_gate text, after_slot integer, max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.clean_up_as(by text, dry_run boolean, after uuid, max_visited integer, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.clean_up_as(by text, dry_run boolean, after uuid, max_visited integer, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.client_message(state text, outcome text, kind text, error_type text, error_message text, interrupt_message text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.clock_is_known() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.clock_lead(within interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.close_circuit(tenant text, name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.close_type(name text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.close_type(name text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.collection_key(name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.collection_name(key text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.complete(worker text, job_ids uuid[], attempts integer[], results jsonb[], durations_ms integer[], log_excerpts text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.complete(worker text, job_ids uuid[], attempts integer[], results jsonb[], durations_ms integer[], log_excerpts text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.condition_at(tree jsonb, place text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.correlated_ids(correlation text, only_tenant text, after uuid, max_jobs integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.correlated_ids(correlation text, only_tenant text, after uuid, max_jobs integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.correlated_tenants(correlation text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.costs_attempt(outcome text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.count_ready(streams integer[], up_to integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) TO holdfast_operator;
GRANT ALL ON FUNCTION holdfast.count_repeats(tenant text, types text[], keys text[], dedup_keys text[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.counted_with(counted int8multirange, seq integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.create_key(id uuid, tenant text, name text, prefix text, digest bytea, scopes text[], lifetime_seconds double precision, requests_per_second double precision, max_waiting integer, by text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.create_key(id uuid, tenant text, name text, prefix text, digest bytea, scopes text[], lifetime_seconds double precision, requests_per_second double precision, max_waiting integer, by text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.data_hash(data jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.deal_shares(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.deal_slots(ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer, OUT tied integer[], OUT lows integer[], OUT firsts bigint[], OUT ceilings integer[], OUT shares integer[], OUT parties integer[], OUT portions integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.decided_state(decision text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.declare_schedules(worker text, definitions jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.declare_schedules(worker text, definitions jsonb) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.declared_shapes(definitions jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.delete_schedule(name text, tenant text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.delete_schedule(name text, tenant text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.drain_progress(kind text, name text, only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drain_progress(kind text, name text, only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.drain_state(only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drain_state(only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.drop_entries(entries tid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.drop_items(job_ids uuid[], max_items integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.drop_recovered(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drop_recovered(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.drop_stray_decisions(max_rows integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.drop_stray_dormant(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drop_stray_dormant(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.drop_stray_due(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drop_stray_due(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.drop_stray_entries(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drop_stray_entries(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.drop_stray_leases(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drop_stray_leases(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.drop_strays(max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.drop_strays(max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.due_fits(run_at timestamp with time zone, job_id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.due_schedules(max_schedules integer, after_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.due_schedules(max_schedules integer, after_tenant text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.due_text(run_at timestamp with time zone, template text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.early_condition(tree jsonb, place text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.elect(max_targets integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.elect(max_targets integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.elect_from(after bigint, max_targets integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.elect_from(after bigint, max_targets integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.eligible_streams(types text[], queues text[], tenants text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.eligible_streams(types text[], queues text[], tenants text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.end_bulk(bulk holdfast.bulks, max_jobs integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.end_probe(worker text, job_id uuid, attempt integer, tenant text, name text, begun_in bigint, succeeded boolean, error text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.end_probe(worker text, job_id uuid, attempt integer, tenant text, name text, begun_in bigint, succeeded boolean, error text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.end_remote_probe(lease holdfast.leases, tenant text, type text, succeeded boolean, name text, error text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.end_with_error(lease holdfast.leases, tenant text, type text, failures integer, error jsonb, log text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.ended_attempts(job_ids uuid[], attempts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.ended_attempts(job_ids uuid[], attempts integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.enlist(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[], definitions jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enlist(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[], definitions jsonb) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.enlist_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enlist_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.enqueue(type text, payload jsonb, priority integer, run_at timestamp with time zone, delay double precision, idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, max_attempts integer, target text, queue text, hold boolean, target_count bigint, tenant text, created_by text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enqueue(type text, payload jsonb, priority integer, run_at timestamp with time zone, delay double precision, idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, max_attempts integer, target text, queue text, hold boolean, target_count bigint, tenant text, created_by text) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.enqueue(type text, payload jsonb, priority integer, run_at timestamp with time zone, delay double precision, idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, max_attempts integer, target text, queue text, hold boolean, target_count bigint, tenant text, created_by text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.enqueue(type text, payload jsonb, priority integer, run_at timestamp with time zone, delay double precision, idempotency_key text, dedup_key text, correlation_id text, parent_id uuid, max_attempts integer, target text, queue text, hold boolean, target_count bigint, tenant text, created_by text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.enqueue_many(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enqueue_many(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.enqueue_many(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.enqueue_many(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.enqueue_plain(type text, payloads jsonb[], ids uuid[], queue text, tenant text, created_by text, alone boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enqueue_plain(type text, payloads jsonb[], ids uuid[], queue text, tenant text, created_by text, alone boolean) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.enqueue_plain(type text, payloads jsonb[], ids uuid[], queue text, tenant text, created_by text, alone boolean) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.enqueue_plain(type text, payloads jsonb[], ids uuid[], queue text, tenant text, created_by text, alone boolean) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.entered_streams(only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.entry_fits(stream integer, rank integer, seq bigint, job_id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.entry_moved(job holdfast.jobs, priority integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.entry_streams(stream integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.events_after(id uuid, only_tenant text, after bigint, max_events integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.events_after(id uuid, only_tenant text, after bigint, max_events integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.events_page(id uuid, only_tenant text, after bigint, max_events integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.events_page(id uuid, only_tenant text, after bigint, max_events integer) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.events_page(id uuid, only_tenant text, after bigint, max_events integer) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.events_page(id uuid, only_tenant text, after bigint, max_events integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.events_seal(digest bytea, job_id uuid, till bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.execute_requests(max_requests integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.execute_requests(max_requests integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.existing_job(type text, payload jsonb, option jsonb, tenant text, created_by text, id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.explain(job_id uuid, only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.explain(job_id uuid, only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.fail(worker text, job_ids uuid[], attempts integer[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], outcomes text[], durations_ms integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.fail(worker text, job_ids uuid[], attempts integer[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], outcomes text[], durations_ms integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.failures_after(outcome text, failures integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.find_events_token(key_id uuid, job_id uuid, till bigint, seal bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.find_events_token(key_id uuid, job_id uuid, till bigint, seal bytea) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.find_key(digest bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.find_key(digest bytea) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.find_streams(tenant text, queues text[], types text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.fingerprint_of(type text, error_type text, message text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.fingerprint_operand() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.fingerprints_wanted(tree jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.fire_grace() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.fire_schedules(ids bigint[], revisions integer[], expected timestamp with time zone[], following timestamp with time zone[], missed_to timestamp with time zone[], fire_ids bigint[], fire_ats timestamp with time zone[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.fire_schedules(ids bigint[], revisions integer[], expected timestamp with time zone[], following timestamp with time zone[], missed_to timestamp with time zone[], fire_ids bigint[], fire_ats timestamp with time zone[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.firmness(decision text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.first_free(stream integer, from_rank integer, from_seq bigint, to_rank integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.first_id(moment timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.fitting_jobs(bulk holdfast.bulks, ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.fix_bulk(bulk holdfast.bulks, max_jobs integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.flag_attempt(id uuid, wish text, by text, note text, message text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.foregone_answer(verb text, id uuid, request_id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.forget_among(ids integer[], walk_began timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.forget_bulks(max_bulks integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_bulks(max_bulks integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forget_decision(id uuid, request_id uuid, answer text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.forget_fingerprints(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_fingerprints(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forget_fires(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_fires(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forget_idle_permits(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_idle_permits(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forget_message(id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.forget_permits(max_permits integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_permits(max_permits integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forget_pulls(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_pulls(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forget_shapes() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.forget_streams(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_streams(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forget_workers() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.forget_workers() TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.forgotten(id uuid, by text, max_rows integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.free_entries(entries tid[], OUT tids tid[], OUT ids uuid[], OUT lines integer[], OUT ranks integer[], OUT seqs bigint[], OUT times timestamp with time zone[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.full_gate(job holdfast.jobs) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.gate_of(kind text, name text, seconds real) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.gates_of(stream integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.gather_bulk(bulk holdfast.bulks) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.get_attempts(id uuid, only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.get_attempts(id uuid, only_tenant text) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.get_attempts(id uuid, only_tenant text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.get_attempts(id uuid, only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.get_events(id uuid, only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.get_events(id uuid, only_tenant text) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.get_events(id uuid, only_tenant text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.get_events(id uuid, only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.get_items(job_id uuid, after bigint, max_items integer, only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.get_items(job_id uuid, after bigint, max_items integer, only_tenant text) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.get_items(job_id uuid, after bigint, max_items integer, only_tenant text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.get_items(job_id uuid, after bigint, max_items integer, only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.readable(moment timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.readable(moment timestamp with time zone) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.readable(moment timestamp with time zone) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.readable(moment timestamp with time zone) TO holdfast_operator;
GRANT ALL ON FUNCTION holdfast.readable(moment timestamp with time zone) TO holdfast_client;
GRANT ALL ON FUNCTION holdfast.readable(moment timestamp with time zone) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.setting(name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.told_interrupt(interrupt text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.get_jobs(job_ids uuid[], only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.get_jobs(job_ids uuid[], only_tenant text) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.get_jobs(job_ids uuid[], only_tenant text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.get_jobs(job_ids uuid[], only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.get_letters(job_ids uuid[], only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.get_letters(job_ids uuid[], only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.get_progress(job_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.get_progress(job_ids uuid[]) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.get_progress(job_ids uuid[]) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.get_progress(job_ids uuid[]) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.grab(gate text, capacity integer, seconds real, wanted integer, ours integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.half_open_circuits() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.hand_answer(verb text, verdict text, state text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.hand_back(worker text, job_ids uuid[], attempts integer[], reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.hand_back(worker text, job_ids uuid[], attempts integer[], reason text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.hand_back_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.hand_back_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.hand_out(permits holdfast.claim_permit[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.hand_verbs() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.has_ended(state text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.has_keys(stream integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.has_open_failures(tenant text, fingerprint text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.headless_targets(max_targets integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.headless_targets(max_targets integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.highest(bound text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.hold_on(lease holdfast.leases, type text, seconds double precision, always boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.interrupted(worker text, job_ids uuid[], attempts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.interrupted(worker text, job_ids uuid[], attempts integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.is_counting(counted holdfast.circuit_counts, circuit holdfast.circuits) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_dormant(state text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_erased(id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_late(lease holdfast.leases, type text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_lost(worker holdfast.workers) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_maintained() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.is_maintained() TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.is_moment(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_number(value jsonb, low numeric, high numeric, whole boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_parked(stream integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_quiet(worker text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.is_quiet(worker text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.is_rate(gate text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_request(type text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_small(value jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_storable(value jsonb, most bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_troubled(circuit holdfast.circuits) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_valid_key(revoked_at timestamp with time zone, expires_at timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.is_verdict(decision text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.issue_events_token(digest bytea, job_id uuid, seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.issue_events_token(digest bytea, job_id uuid, seconds double precision) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.items_page(job_id uuid, only_tenant text, after bigint, max_items integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.items_page(job_id uuid, only_tenant text, after bigint, max_items integer) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.items_page(job_id uuid, only_tenant text, after bigint, max_items integer) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.items_page(job_id uuid, only_tenant text, after bigint, max_items integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.job_family(id uuid, only_tenant text, max_jobs integer, max_depth integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.job_family(id uuid, only_tenant text, max_jobs integer, max_depth integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.job_fingerprint(type text, payload jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.job_result(tenant text, job_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.job_result(tenant text, job_id uuid) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.job_standings(tenants text[], job_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.job_standings(tenants text[], job_ids uuid[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.job_statistics(only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.job_statistics(only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.job_totals(only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.job_totals(only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.jobs_with_fingerprint(prints text[], only_tenant text, before uuid, max_jobs integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.join_circuit(tenant text, name text, policy jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.json_fault(what text, value jsonb, most bigint, limit_name text, advice text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.judge_circuit(tenant text, name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.judge_gathered(bulk holdfast.bulks, max_jobs integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.judged(origin uuid, ended timestamp with time zone, died timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.keep_log(job_id uuid, attempt integer, log text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.keep_settings() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.keep_waiting(id uuid, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.key_gates(job_type text, tenant text, payload jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.keys_after(only_tenant text, after uuid, max_keys integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.keys_after(only_tenant text, after uuid, max_keys integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.known_clock_steps() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.known_lanes() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lane_of(number bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lane_slots(only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.lane_slots(only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.lapse(job_ids uuid[], patience double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.last_cursor(job_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.last_cursor(job_id uuid) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.late_report(worker text, job_id uuid, attempt integer, report jsonb, final boolean, seq integer, job_state text, known holdfast.job_progress) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lead(name text, candidate text, seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.lead(name text, candidate text, seconds double precision) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.leader_patience() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lease_expired(id uuid, by text, words text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lease_length(seconds double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.letter_columns() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.letter_condition(tree jsonb, place text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.letter_standing(id uuid, only_tenant text, OUT outcome text, OUT state text, OUT type text, OUT tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.like_escaped(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.limitable_by(tenant text, queue text, type text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.limited_types() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.limits_by(decided holdfast.controls, declared holdfast.job_types) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.limits_in_force() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.limits_of(kind text, name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.list_audit(only_tenant text, before bigint, max_entries integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_audit(only_tenant text, before bigint, max_entries integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_bulks(only_tenant text, before uuid, max_bulks integer, only_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_bulks(only_tenant text, before uuid, max_bulks integer, only_id uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_circuits(only_tenant text, only_name text, after_name text, after_tenant text, max_circuits integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_circuits(only_tenant text, only_name text, after_name text, after_tenant text, max_circuits integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_closed_types() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_closed_types() TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_controls() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_controls() TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_failures(only_tenant text, only_type text, before_seen timestamp with time zone, before_fingerprint text, before_tenant text, max_rows integer, max_pending integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_failures(only_tenant text, only_type text, before_seen timestamp with time zone, before_fingerprint text, before_tenant text, max_rows integer, max_pending integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_fires(schedule_id bigint, before timestamp with time zone, max_fires integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_fires(schedule_id bigint, before timestamp with time zone, max_fires integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_jobs(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_jobs(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.list_jobs(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.list_jobs(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_keys(only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_keys(only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_lanes(only_tenant text, only_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_lanes(only_tenant text, only_name text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_queues(only_tenant text, only_name text, after text, max_names integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_queues(only_tenant text, only_name text, after text, max_names integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_schedules(only_tenant text, only_name text, after_tenant text, after_name text, max_schedules integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_schedules(only_tenant text, only_name text, after_tenant text, after_name text, max_schedules integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_settings(only_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_settings(only_name text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_steering() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_steering() TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_targets(only_tenant text, only_blocked boolean, after_tenant text, after_target text, max_targets integer, max_visited integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_targets(only_tenant text, only_blocked boolean, after_tenant text, after_target text, max_targets integer, max_visited integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_tenants(only_tenant text, only_name text, after text, max_names integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_tenants(only_tenant text, only_name text, after text, max_names integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_types(only_tenant text, only_name text, after text, max_names integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_types(only_tenant text, only_name text, after text, max_names integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.list_workers(only_tenant text, only_worker text, after text, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.list_workers(only_tenant text, only_worker text, after text, max_rows integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.listed_ids(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.listed_ids(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.listed_ids(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.listed_ids(states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid, max_jobs integer, max_visited integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.live_workers() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lock_head(tenant text, target text, patience integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lock_permits(INOUT shares holdfast.claim_share[], round integer, dealt boolean, OUT permits holdfast.claim_permit[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.longest_opening() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lose(job_ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.lose_each(job_ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.make_room(job_ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.may_begin(worker text, numbers bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.may_begin(worker text, numbers bigint[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.mend(id uuid, fault text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.message_shown(fingerprint text, type text, error_type text, error_message text, outcome text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.milliseconds(length interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.moment(at timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.most_fingerprints() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.move_waiting(job holdfast.jobs, goal text, by text, note text, message text, resolves boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.named(worker text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.named_states(tree jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.never_began(job_id uuid, attempt integer, worker text, number bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.next_state(outcome text, kind text, interrupt text, on_failure text, failures integer, max_attempts integer, delay_seconds double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.normalized_message(message text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_audit(actor text, key_id uuid, tenant text, action text, subject text, detail jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_clock_step(seconds double precision, place bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_control(kind text, name text, verb text, by text, by_key uuid, detail jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_created() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_decision(id uuid, request_id uuid, decision text, by text, note text, message text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_dormancy(job holdfast.jobs, old_state text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_dormant(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.note_dormant(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.note_found(bulk holdfast.bulks, ids uuid[], reached text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_held(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.note_held(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.note_repair(kind text, times bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.note_steering(kind text, name text, verb text, by text, by_key uuid, detail jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.number_in_lane(number bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.offer(types text[], queues text[], tenants text[], served integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.offer(types text[], queues text[], tenants text[], served integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.oldest_transaction() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.open_circuit(name text, tenant text, seconds double precision, by text, reason text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.open_circuit(name text, tenant text, seconds double precision, by text, reason text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.open_on_pages(first_page bigint, max_pages integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.open_run(schedule_id bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.open_streams(types text[], queues text[], tenants text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.open_streams(types text[], queues text[], tenants text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.open_tables() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.open_type(name text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.open_type(name text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.operator_error(verdict text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.operator_request(verb text, id uuid, by text, note text, only_tenant text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.operator_request(verb text, id uuid, by text, note text, only_tenant text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.operator_request_as(verb text, id uuid, by text, note text, only_tenant text, by_key uuid, public boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.operator_request_as(verb text, id uuid, by text, note text, only_tenant text, by_key uuid, public boolean) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.operator_words(verdict text, by text, words text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.other_names(kind text, name text, max_names integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.other_names(kind text, name text, max_names integer) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.other_names(kind text, name text, max_names integer) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.other_names(kind text, name text, max_names integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.other_shapes(worker text, type text, tenant text, queue text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.other_shapes(worker text, type text, tenant text, queue text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.own_setting(name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.page_bytes() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.park(entries tid[], gates text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.parked_stream(stream integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.pass_permits(entries holdfast.claim_entry[], wanted integer, shares holdfast.claim_share[], locked holdfast.claim_permit[], OUT passed integer[], OUT permits holdfast.claim_permit[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.past_rates() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.pausable_by(tenant text, queue text, type text, lane text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.pause_schedule(name text, tenant text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.pause_schedule(name text, tenant text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.pause_scope(kind text, name text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.pause_scope(kind text, name text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.pause_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text, public boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.pause_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text, public boolean) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.pause_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text, public boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.pause_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text, public boolean) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.payload_limit() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.payload_limit() TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.payload_limit() TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.payload_limit() TO holdfast_operator;
GRANT ALL ON FUNCTION holdfast.payload_limit() TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.pending_decision(id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.pending_text(id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.permit_free(permit holdfast.permits, seconds real) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.permit_state(job_id uuid, attempt integer, granted_at timestamp with time zone, seconds real, moment timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.permit_turns(asked integer[], parties integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.permits_of(gate text, seconds real, tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.place_after_steps() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.preside(name text, candidate text, seconds double precision, patience_seconds double precision, report jsonb, seen_renewals bigint, seen_seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.preside(name text, candidate text, seconds double precision, patience_seconds double precision, report jsonb, seen_renewals bigint, seen_seconds double precision) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.preview_bulk(action text, tree jsonb, args jsonb, only_tenant text, max_matches integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.preview_bulk(action text, tree jsonb, args jsonb, only_tenant text, max_matches integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.probe() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.probe() TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.promote(max_jobs integer, after timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.promote(max_jobs integer, after timestamp with time zone) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.promote_behind(from_run_at timestamp with time zone, from_job_id uuid, passed text[], max_jobs integer, max_looked integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.promote_behind(from_run_at timestamp with time zone, from_job_id uuid, passed text[], max_jobs integer, max_looked integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.promote_due(max_jobs integer, after timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.promote_due(max_jobs integer, after timestamp with time zone) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.promote_jobs(job_ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.public_jobs(tenants text[], job_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.public_jobs(tenants text[], job_ids uuid[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.publish_shapes(definitions jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.publish_types(definitions jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.publish_types(definitions jsonb) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.put_off(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[], circuits text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.put_off(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[], circuits text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.put_schedule(definition jsonb, tenant text, replace boolean, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.put_schedule(definition jsonb, tenant text, replace boolean, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.query_condition(tree jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.queue_depths() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.queue_depths() TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.quiet_worker(worker text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.quiet_worker(worker text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.quoted(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.raise_durability() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.read_letters(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.read_letters(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.ready_entry(stream integer, priority integer, seq bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.ready_rank(priority integer, returned boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.ready_ranks(priority integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.ready_seq(job holdfast.jobs) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.ready_streams(streams integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.ready_streams(streams integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.reason_to_wait(job holdfast.jobs, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.recalled_turns() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.reconcile(after uuid, max_jobs integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reconcile(after uuid, max_jobs integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.reconcile_pages(first_page bigint, max_pages integer, max_repairs integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reconcile_pages(first_page bigint, max_pages integer, max_repairs integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.record_beginnings(worker text, job_ids uuid[], attempts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.record_beginnings(worker text, job_ids uuid[], attempts integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.record_jobs(types text[], payloads jsonb[], options jsonb[], tenant text, created_by text, ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.record_requests(verb text, job_ids uuid[], by text, note text, message text, only_tenant text, at_once boolean, resolves boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.record_run(schedule holdfast.schedules, fire_at timestamp with time zone, by_hand boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.recover(clock timestamp with time zone, spared_above double precision[], spared_up_to double precision[], watched uuid[], watched_attempts integer[], watched_until timestamp with time zone[], max_jobs integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.recover(clock timestamp with time zone, spared_above double precision[], spared_up_to double precision[], watched uuid[], watched_attempts integer[], watched_until timestamp with time zone[], max_jobs integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.refuse_audit_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.refuse_closed(types text[], taken integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.refuse_move() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.refuse_no_tenant(tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.refuse_renaming() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.refuse_schedule(id bigint, revision integer, fault text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.refuse_schedule(id bigint, revision integer, fault text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.refuse_setting() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.refuse_stream() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.refused_intents(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.refused_intents(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.register_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.register_worker(id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.release(worker text, job_ids uuid[], attempts integer[], note text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.release(worker text, job_ids uuid[], attempts integer[], note text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.release_held(job_ids uuid[], by text, only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.release_held(job_ids uuid[], by text, only_tenant text) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.release_held(job_ids uuid[], by text, only_tenant text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.release_held(job_ids uuid[], by text, only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.release_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.release_unheard(worker text, job_ids uuid[], claimed_until timestamp with time zone, before_number bigint) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.release_unknown(worker text, job_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.release_unknown(worker text, job_ids uuid[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.remember_turns(memory jsonb, turns jsonb, load jsonb, running jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_backoff(type text, failures integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_beat(workers text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_beat(workers text[]) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_call_failed(lease holdfast.leases, tenant text, type text, name text, error text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_call_succeeded(lease holdfast.leases, tenant text, type text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_circuit_delay(tenant text, name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_details(worker text, job_ids uuid[], attempts integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_digest(report jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_directive(worker text, interrupt text, late boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_end(claimed_at timestamp with time zone, type text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_extend(tenants text[], workers text[], job_ids uuid[], attempts integer[], lengths double precision[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_extend(tenants text[], workers text[], job_ids uuid[], attempts integer[], lengths double precision[]) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_give(tenant text, worker text, request_id text, wish jsonb, quiet boolean, OUT job_ids uuid[], OUT attempts integer[], OUT repeated boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_kept(tenant text, worker text, request_id text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_news(job_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_news(job_ids uuid[]) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_present(tenant text, worker text, types text[], queues text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_pull(tenants text[], workers text[], request_ids text[], wishes jsonb[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_pull(tenants text[], workers text[], request_ids text[], wishes jsonb[]) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_release(tenants text[], workers text[], job_ids uuid[], attempts integer[], reasons text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_release(tenants text[], workers text[], job_ids uuid[], attempts integer[], reasons text[]) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_repeats(tenants text[], workers text[], request_ids text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_repeats(tenants text[], workers text[], request_ids text[]) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_report(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_report(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_shorten(worker text, job_ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_stock(tenants text[], types text[], announced integer[], most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remote_stock(tenants text[], types text[], announced integer[], most integer) TO holdfast_remote;
REVOKE ALL ON FUNCTION holdfast.remote_streams(tenant text, types text[], queues text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.remote_trim(worker text, INOUT job_ids uuid[], INOUT attempts integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.renew(worker text, job_ids uuid[], attempts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.renew(worker text, job_ids uuid[], attempts integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.replace_heads(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.replace_heads(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.report(worker text, job_id uuid, attempt integer, seq integer, items jsonb, collection text, cursor jsonb, progress bigint, done_reason text, ends text, result jsonb, log_excerpt text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.report(worker text, job_id uuid, attempt integer, seq integer, items jsonb, collection text, cursor jsonb, progress bigint, done_reason text, ends text, result jsonb, log_excerpt text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.reprioritized(job holdfast.jobs, priority integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.request(verb text, job_ids uuid[], by text, note text, only_tenant text, at_once boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.request(verb text, job_ids uuid[], by text, note text, only_tenant text, at_once boolean) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.request(verb text, job_ids uuid[], by text, note text, only_tenant text, at_once boolean) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.request(verb text, job_ids uuid[], by text, note text, only_tenant text, at_once boolean) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.request_streams() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.request_verbs() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.requeue_letter(id uuid, payload jsonb, options jsonb, by text, note text, OUT outcome text, OUT runs_as uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.requeue_letters(job_ids uuid[], by text, note text, payload jsonb, options jsonb, only_tenant text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.requeue_letters(job_ids uuid[], by text, note text, payload jsonb, options jsonb, only_tenant text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.reset_circuit(name text, tenant text, by text, reason text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reset_circuit(name text, tenant text, by text, reason text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.resign(name text, candidate text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.resign(name text, candidate text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.resolve_job(id uuid, by text, note text, only_tenant text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.resolve_job(id uuid, by text, note text, only_tenant text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.result_limit() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.result_limit() TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.resume_schedule(name text, tenant text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.resume_schedule(name text, tenant text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.resume_scope(kind text, name text, by text, note text, by_key uuid, only_by text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.resume_scope(kind text, name text, by text, note text, by_key uuid, only_by text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.resume_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.resume_scope_as(kind text, name text, by text, note text, by_key uuid, by_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.resume_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.resume_subject(kind text, name text, by text, reason text, by_key uuid, by_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.retention_horizon(dead boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.retention_of(dead boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.retire(after uuid, max_jobs integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.retire(after uuid, max_jobs integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.retire_counted(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.retire_from(after uuid, max_jobs integer, max_visited integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.retire_from(after uuid, max_jobs integer, max_visited integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.retire_known(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.retire_known(clock timestamp with time zone, after uuid, max_jobs integer, max_visited integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.retire_schedules(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.retire_schedules(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.review_leases(after uuid, max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.review_leases(after uuid, max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.revoke_key(key_id uuid, by text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.revoke_key(key_id uuid, by text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.rewind_schedules(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.rewind_schedules(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.rotate_key(old_id uuid, id uuid, prefix text, digest bytea, overlap_seconds double precision, by text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.rotate_key(old_id uuid, id uuid, prefix text, digest bytea, overlap_seconds double precision, by text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.run_again(job holdfast.jobs, by text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.run_again_with(job holdfast.jobs, by text, payload jsonb, options jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.run_schedule(name text, tenant text, by text, note text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.run_schedule(name text, tenant text, by text, note text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.running_jobs(memory jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.running_outside(gate text, capacity integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.sample_of(tenant text, fingerprint text, last uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.schedule_failed(id bigint, fault text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.search_jobs(tree jsonb, only_tenant text, before uuid, max_jobs integer, max_visited integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.search_jobs(tree jsonb, only_tenant text, before uuid, max_jobs integer, max_visited integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.search_letters(tree jsonb, only_tenant text, acknowledged boolean, only_fingerprint text, before_at timestamp with time zone, before_id uuid, max_letters integer, max_visited integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.search_letters(tree jsonb, only_tenant text, acknowledged boolean, only_fingerprint text, before_at timestamp with time zone, before_id uuid, max_letters integer, max_visited integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.search_limit(what text, usual numeric) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.seat(tenants text[], targets text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.seat_headless(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.seat_headless(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.seat_one(tenant text, target text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.secure_commit() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.seen_horizon(dead boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.serve_ready(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.serve_ready(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.serve_streams(ids integer[], examples uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.set_limit(kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.set_limit(kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.set_weight(tenant text, weight double precision, by text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.set_weight(tenant text, weight double precision, by text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.setting_fault(name text, value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.settle(worker text, job_ids uuid[], attempts integer[], outcomes text[], kinds text[], error_types text[], error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], durations_ms integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.settle_plain(tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.settle_plainly(tenant text, worker text, job_ids uuid[], attempts integer[], reports jsonb[], places integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.settlement_answer(worker text, job_ids uuid[], attempts integer[], settled uuid[], numbers integer[], states text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.several_tenants() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.shape_digest(shape jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.show_hidden(after text[], max_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.show_hidden(after text[], max_rows integer) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.show_targets(tenants text[], targets text[], only_tenant text, max_line integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.show_targets(tenants text[], targets text[], only_tenant text, max_line integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.shown_pause(pause holdfast.controls, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.shut_circuit(tenant text, name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.shut_streams(asked integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.single_line(value text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.situation(job holdfast.jobs, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.snooze(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.snooze(worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.sole_adder() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.source_rows(source text, only_tenant text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.stands_alone() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.start_bulk(action text, query text, tree jsonb, by text, args jsonb, note text, only_tenant text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.start_bulk(action text, query text, tree jsonb, by text, args jsonb, note text, only_tenant text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.stop(worker text, job_ids uuid[], attempts integer[], outcomes text[], notes text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.stop(worker text, job_ids uuid[], attempts integer[], outcomes text[], notes text[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.stop_bulk(id uuid, by text, note text, only_tenant text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.stop_bulk(id uuid, by text, note text, only_tenant text, by_key uuid) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.stopped_by() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.stopped_by() TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.store_schedule(definition jsonb, tenant text, by text, digest text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.stream_idle() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.stream_of(entry_stream integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.subject_figures(kind text, only_tenant text, only_name text, after text, max_names integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_operator;
GRANT ALL ON FUNCTION holdfast.submit(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_operator;
GRANT ALL ON FUNCTION holdfast.submit_free(tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.summaries(job_ids uuid[], only_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.summaries(job_ids uuid[], only_tenant text) TO holdfast_api;
GRANT ALL ON FUNCTION holdfast.summaries(job_ids uuid[], only_tenant text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.summaries(job_ids uuid[], only_tenant text) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.sweep(connected_seconds double precision, max_jobs integer, after timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.sweep(connected_seconds double precision, max_jobs integer, after timestamp with time zone) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.sync_circuits(worker text, asked jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.sync_circuits(worker text, asked jsonb) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.take_away(ids uuid[], max_rows integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.take_back(job_ids uuid[], fault text, message text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.take_entry(stream integer, priority integer, seq bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.take_permits(asked integer[], shares integer[], round integer, parties integer[], OUT streams integer[], OUT allowed integer[], OUT reach integer[], OUT gates text[], OUT slots integer[], OUT owners integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.take_report(tenant text, worker text, job_id uuid, attempt integer, report jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.taken_keys(types text[], payloads jsonb[], options jsonb[], tenant text, ids uuid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.tenant_items(tenant text, job_id uuid, after bigint, max_items integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.tenant_items(tenant text, job_id uuid, after bigint, max_items integer) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.tenant_items_page(tenant text, job_id uuid, after bigint, max_items integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.tenant_items_page(tenant text, job_id uuid, after bigint, max_items integer) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.tenant_of_key(kind text, name text, key_id uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.tenant_request(tenant text, verb text, id uuid, by text, note text, only_target text, by_key uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.tenant_request(tenant text, verb text, id uuid, by text, note text, only_target text, by_key uuid) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.tenants_alike(prints text[], max_tenants integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.tenants_due(max_tenants integer, after_tenant text, OUT waiting text[], OUT reached text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.term_at(place text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.texts_of(list jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.timeout_of(type text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.told(by text, at timestamp with time zone, note text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.too_late_note(decision text, note text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.touch_keys(key_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.touch_keys(key_ids uuid[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.trim_fingerprints(of_tenant text, max_rows integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.trip_circuit(circuit holdfast.circuits, error text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.try_probe(worker text, job_id uuid, attempt integer, tenant text, name text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.try_probe(worker text, job_id uuid, attempt integer, tenant text, name text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.turn_bulk() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.turn_bulk() TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.uncalled(found_tenants text[], found_targets text[], max_calls integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.unheard(channel text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.unheard(channel text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.unlocked_entries(tids tid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.unpark(gates text[], streams integer[], counts bigint[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.unprintable(name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.unregister_worker(id text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.unregister_worker(id text) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.unserved(job holdfast.jobs, lane text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.usable_slots(lanes jsonb, lane text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.uuid_v7() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.verdict_event(verdict text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.verify(max_offences integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.verify(max_offences integer) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.verify(max_offences integer) TO holdfast_operator;
REVOKE ALL ON FUNCTION holdfast.visible_jobs(tenants text[], job_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.visible_jobs(tenants text[], job_ids uuid[]) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.vouch() FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.waited_seconds(began timestamp with time zone, entered bigint, clock timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.waiting_jobs(tenant text, up_to integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.waiting_jobs(tenant text, up_to integer) TO holdfast_client;
REVOKE ALL ON FUNCTION holdfast.wake(channel text, topics integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.wake_again(streams integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.whole_walk(step text, enough integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.with_lineage(options jsonb[], tenant text, taken integer[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.work_bulk(bulk holdfast.bulks, max_jobs integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.work_left(streams integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.work_left(streams integer[]) TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.worker_settings() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.worker_settings() TO holdfast_worker;
REVOKE ALL ON FUNCTION holdfast.written_rate(count integer, seconds double precision) FROM PUBLIC;
GRANT SELECT ON TABLE holdfast.circuit_breakers TO holdfast_operator;
GRANT SELECT ON TABLE holdfast.dead_letter_jobs TO holdfast_operator;
GRANT SELECT ON TABLE holdfast.job_queue_health TO holdfast_operator;
GRANT SELECT ON TABLE holdfast.schema_steps TO holdfast_api;
GRANT SELECT ON TABLE holdfast.schema_steps TO holdfast_worker;
GRANT SELECT ON TABLE holdfast.schema_steps TO holdfast_operator;
GRANT SELECT ON TABLE holdfast.schema_steps TO holdfast_client;
GRANT SELECT ON TABLE holdfast.schema_steps TO holdfast_remote;
GRANT SELECT ON TABLE holdfast_views.circuit_breakers TO holdfast_operator;
GRANT SELECT ON TABLE holdfast_views.dead_letter_jobs TO holdfast_operator;
GRANT SELECT ON TABLE holdfast_views.job_attempts TO holdfast_operator;
GRANT SELECT ON TABLE holdfast_views.job_queue_health TO holdfast_operator;
GRANT SELECT ON TABLE holdfast_views.jobs TO holdfast_operator;
