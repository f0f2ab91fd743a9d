-- Who may run now: pauses and limits. Called by claims, and only where somebody decided something; plain jobs never come
-- here. Moves: none.
--
-- A limit is a gate with numbered permits. A claim locks free ones, skipping those that others lock right now, so that
-- nobody waits; whose attempt has no lease any more is free. Nothing is given back at the end of an attempt, and
-- so a crash, wherever it strikes, can neither leak a permit nor give one away twice.

-- A rate as people write it, alike in Python (`Rate.__str__`): 10/s, 100/min, 5/30s. Pure.
create or replace function written_rate(count integer, seconds double precision) returns text
language sql immutable parallel safe
as $$
  select format('%s/%s%s', count, nullif((seconds / unit.length)::text, '1'), unit.name)
  from (values (86400, 'd'), (3600, 'h'), (60, 'min'), (1, 's')) as unit (length, name)
  where unit.length = 1 or mod(seconds::numeric, unit.length) = 0
  order by unit.length desc
  limit 1
$$;

-- The gates of a stream: capacity, and for rates the seconds for which a permit is used up.
create or replace function gates_of(stream integer) returns table (gate text, capacity integer, seconds real)
language sql stable
set search_path from current
as $$
  select g.gate, g.capacity, g.seconds
  from streams s
  left join job_types t on t.name = s.type
  left join controls of_type on of_type.kind = 'type' and of_type.name = s.type
  left join controls of_queue on of_queue.kind = 'queue' and of_queue.name = s.queue
  left join controls of_tenant on of_tenant.kind = 'tenant' and of_tenant.name = s.tenant
  cross join lateral (values
    ('queue:' || s.queue, of_queue.limit_count, null::real),
    ('tenant:' || s.tenant, of_tenant.limit_count, null),
    ('type:' || s.type, case when t.limit_key is null then coalesce(of_type.limit_count, t.limit_count) end, null),
    ('rate of queue:' || s.queue, of_queue.rate_count, of_queue.rate_seconds),
    ('rate of tenant:' || s.tenant, of_tenant.rate_count, of_tenant.rate_seconds),
    ('rate of type:' || s.type,
      case when t.rate_key is null then coalesce(of_type.rate_count, t.rate_count) end,
      coalesce(of_type.rate_seconds, t.rate_seconds))
  ) as g (gate, capacity, seconds)
  where s.id = gates_of.stream and g.capacity is not null and not starts_with(s.type, 'holdfast.')
$$;

-- The gates of a job whose type is limited per value of a field of its payload. What lacks the field shares one gate.
create or replace function key_gates(job_type text, tenant text, payload jsonb)
returns table (gate text, capacity integer, seconds real)
language sql stable
set search_path from current
as $$
  select g.kind || jsonb_build_array(
      job_type, tenant, case when length(g.value) > 200 then md5(g.value) else g.value end)::text,
    g.capacity, g.seconds
  from job_types t
  left join controls c on c.kind = 'type' and c.name = t.name
  cross join lateral (values
    ('key:', payload #>> string_to_array(t.limit_key, '.'), t.limit_key, coalesce(c.limit_count, t.limit_count), null::real),
    ('rate of key:', payload #>> string_to_array(t.rate_key, '.'), t.rate_key, coalesce(c.rate_count, t.rate_count),
      coalesce(c.rate_seconds, t.rate_seconds))
  ) as g (kind, value, path, capacity, seconds)
  where t.name = job_type and g.path is not null and g.capacity is not null
$$;

-- Whether a permit is free.
create or replace function permit_free(permit permits, seconds real) returns boolean
language sql volatile
set search_path from current
as $$
  select case
    when seconds is null then
      not exists (select from leases l where l.job_id = permit.job_id and l.attempt = permit.attempt)
    else permit.granted_at <= clock_timestamp() - make_interval(secs => seconds)
  end
$$;

-- Lock up to so many free permits of a gate, besides those that are ours already.
create or replace function grab(gate text, capacity integer, seconds real, wanted integer, ours integer[])
returns integer[]
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  slots integer[];
begin
  -- Who runs outside of the permits, because the limit was lowered or set while they ran, counts too. As long as there
  -- are any, one claim at a time counts; the others do not wait for it, they come again.
  if seconds is null and held_outside(gate, capacity) > 0 then
    if not pg_try_advisory_xact_lock(hashtextextended(current_schema() || '.' || grab.gate, 0)) then
      return '{}';
    end if;
    wanted := least(wanted, capacity - cardinality(ours) - (
      select count(*)::integer
      from permits p
      where p.gate = grab.gate
        and exists (select from leases l where l.job_id = p.job_id and l.attempt = p.attempt)));
    if wanted <= 0 then
      return '{}';
    end if;
  end if;
  for round in 1..2 loop
    slots := array(
      select p.slot
      from permits p
      where p.gate = grab.gate and p.slot <= capacity and p.slot <> all (ours) and case
          when seconds is null then
            not exists (select from leases l where l.job_id = p.job_id and l.attempt = p.attempt)
          else p.granted_at <= clock_timestamp() - make_interval(secs => seconds)
        end
      order by p.slot
      limit wanted
      for update skip locked);
    exit when cardinality(slots) >= wanted or round = 2;
    -- Who is not the one to make them does not wait for it, or two claims with two gates would wait for each other.
    exit when capacity <= (select count(*) from permits p where p.gate = grab.gate and p.slot <= capacity)
      or not pg_try_advisory_xact_lock(hashtextextended(current_schema() || '.' || grab.gate, 0));
    insert into permits (gate, slot, granted_at)
    select grab.gate, n, now() - make_interval(secs => coalesce(seconds, 0)) from generate_series(1, capacity) n
    on conflict do nothing;
    if seconds is null and adopt(gate, capacity) then
      return grab(gate, capacity, seconds, wanted, ours);
    end if;
  end loop;
  -- Somebody may have used one and committed between the look at it and its lock: now that it is ours, look again.
  return array(
    select p.slot
    from permits p
    where p.gate = grab.gate and p.slot = any (slots) and permit_free(p, seconds)
    order by p.slot);
end
$$;

-- How many attempts run with a permit that the limit does not have any more, or never had.
create or replace function held_outside(gate text, capacity integer) returns bigint
language sql stable
set search_path from current
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select count(*)
  from permits p
  join leases l on l.job_id = p.job_id and l.attempt = p.attempt
  where p.gate = held_outside.gate and p.slot > capacity
$$;

-- What runs already when a limit is set counts: it gets permits beyond those of the limit. Whether there was any.
create or replace function adopt(gate text, capacity integer) returns boolean
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
begin
  if split_part(gate, ':', 1) not in ('queue', 'tenant', 'type') then
    return false;
  end if;
  insert into permits (gate, slot, job_id, attempt, granted_at)
  select adopt.gate,
    greatest(capacity, (select max(p.slot) from permits p where p.gate = adopt.gate)) + row_number() over (),
    l.job_id, l.attempt, now()
  from leases l
  join streams s on s.id = l.stream
  where adopt.gate in ('queue:' || s.queue, 'tenant:' || s.tenant, 'type:' || s.type)
    and not exists (
      select from permits p where p.gate = adopt.gate and p.job_id = l.job_id and p.attempt = l.attempt)
  on conflict do nothing;
  return found;
end
$$;

-- A limit that is set, or lowered, where claims are under way: these do not see it, and nobody sees what they take. So
-- whoever sets one waits until they have ended, and claims that come meanwhile wait for its commit. It waits for less time
-- than claims do, so that they do not fail with it; and it must not keep them waiting by idling in its transaction.
-- A limit that is set where there was none begins anew, so that what runs by then is found.
create or replace function begin_limit() returns trigger
language plpgsql security definer
set search_path from current
as $$
declare
  before jsonb := case tg_op when 'UPDATE' then to_jsonb(old) else '{}' end;
  after  jsonb := to_jsonb(new);
  anew   boolean := after ->> 'limit_count' is not null
    and (before ->> 'limit_count' is null or before -> 'limit_key' is distinct from after -> 'limit_key');
begin
  -- Without a limit of its own, a type has the one that its code declares.
  if anew or new.limit_count < (before ->> 'limit_count')::integer
    or (new.limit_count is null and before ->> 'limit_count' is not null and after ->> 'kind' = 'type') then
    perform await_claims();
  end if;
  if anew then
    delete from permits p
    where p.gate = case tg_table_name when 'controls' then after ->> 'kind' else 'type' end || ':' || new.name;
  end if;
  return null;
end
$$;

create or replace function await_claims() returns void
language plpgsql
set search_path from current
set lock_timeout = '800ms'
as $$
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

-- The key of the lock that every claim shares until it has ended.
create or replace function claim_barrier() returns bigint
language sql stable parallel safe
as $$
  select hashtextextended(current_schema() || '.claims', 0)
$$;

create or replace trigger controls_begin_limit
  after insert or update on controls
  for each row
  execute function begin_limit();

create or replace trigger job_types_begin_limit
  after insert or update of limit_count on job_types
  for each row
  execute function begin_limit();

-- Which of the streams are shut: paused, or at a limit or rate. Looked at without locking; what is open is checked
-- once more under the lock of its permits. Of a stream that is forgotten nobody knows: it is shut until it is served again.
-- Thousands of tenants may have limits, and thousands of streams be asked for: rules are matched by hash, never one by one.
create or replace function shut_streams(asked integer[]) returns integer[]
language sql stable
set search_path from current
set jit = off
as $$
  with busy as materialized (
    select scope.kind, scope.name, sum(b.running) as running
    from (
      select s.tenant, s.queue, s.type, count(*) as running
      from leases l
      join streams s on s.id = l.stream
      where exists (select from controls c where c.limit_count is not null)
        or exists (select from job_types t where t.limit_count is not null)
      group by s.tenant, s.queue, s.type) b
    cross join lateral (values ('queue', b.queue), ('tenant', b.tenant), ('type', b.type)) as scope (kind, name)
    group by scope.kind, scope.name
  ), rule as (
    -- What a type limits per key is no limit of the type.
    select c.kind, c.name, c.paused_at is not null as paused,
      case when c.kind <> 'type' or t.limit_key is null then coalesce(c.limit_count, t.limit_count) end as limit_count,
      case when c.kind <> 'type' or t.rate_key is null then coalesce(c.rate_count, t.rate_count) end as rate_count,
      coalesce(c.rate_seconds, t.rate_seconds) as rate_seconds
    from controls c
    left join job_types t on c.kind = 'type' and t.name = c.name
    union all
    select 'type', t.name, false,
      case when t.limit_key is null then t.limit_count end,
      case when t.rate_key is null then t.rate_count end,
      t.rate_seconds
    from job_types t
    where (t.limit_count is not null or t.rate_count is not null)
      and not exists (select from controls c where c.kind = 'type' and c.name = t.name)
  ), shut as materialized (
    select rule.kind, rule.name
    from rule
    left join busy b on b.kind = rule.kind and b.name = rule.name
    where rule.paused
      or rule.limit_count <= coalesce(b.running, 0)
      or case when rule.rate_count is not null then
        rule.rate_count <= (
          select count(*)
          from permits p
          where p.gate = 'rate of ' || rule.kind || ':' || rule.name
            and p.slot <= rule.rate_count
            and p.granted_at > clock_timestamp() - make_interval(secs => rule.rate_seconds))
      end
  )
  select array(
    select distinct line.id
    from unnest(asked) as line (id)
    left join streams s on s.id = line.id
    left join job_types t on t.name = s.type
    cross join lateral (values
      ('queue', s.queue), ('type', s.type), ('tenant', s.tenant), ('lane', coalesce(t.lane, 'general')),
      ('everything', '')) as scope (kind, name)
    left join shut on shut.kind = scope.kind and shut.name = scope.name
    where s.id is null or (shut.kind is not null and not starts_with(s.type, 'holdfast.')))
$$;

-- Lock permits for a share of each stream. Answers per stream how many jobs may start (`allowed`) and how many to lock
-- (`reach`: more where keys decide, and more in every round, because many of them may have to be parked), and the
-- permits with the stream that each is for.
--
-- Where the streams are of several tenants (`parties`, a number per stream), tenants share what a limit has by weight, too:
-- first each may have its whole part, counting what it holds; then lots are drawn by weight for the rest. Otherwise the
-- oldest backlog would get every permit of a limit of one.
create or replace function take_permits(
  asked integer[], shares integer[], round integer, parties integer[],
  out streams integer[], out allowed integer[], out reach integer[], out gates text[], out slots integer[],
  out owners integer[])
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  step   record;
  wish   record;
  got    integer[];
  more   integer;
  rest   integer;
  before integer;
  visits integer;
  capped boolean[] := array_fill(false, array[cardinality(asked)]);
begin
  streams := asked;
  allowed := array_fill(0, array[cardinality(asked)]);
  reach := '{}';
  gates := '{}';
  slots := '{}';
  owners := '{}';
  for step in select t.number, t.part, t.tenant from permit_turns(asked, parties) t order by t.turn loop
    continue when step.part is null and parties is not null and not capped[step.number];
    more := shares[step.number] - allowed[step.number];
    before := cardinality(gates);
    visits := 0;
    for wish in select g.gate, g.capacity, g.seconds from gates_of(asked[step.number]) g loop
      if step.part < 1 and wish.gate not in ('tenant:' || step.tenant, 'rate of tenant:' || step.tenant) then
        rest := floor(wish.capacity * step.part + 1e-9) - permits_of(wish.gate, wish.seconds, step.tenant) - (
          select count(*)::integer
          from unnest(gates, owners) as t (gate, owner)
          where t.gate = wish.gate and parties[t.owner] = parties[step.number]);
        capped[step.number] := capped[step.number] or rest < more;
        more := greatest(0, least(more, rest));
      end if;
      exit when more = 0;
      got := grab(
        wish.gate, wish.capacity, wish.seconds, more,
        array(select t.slot from unnest(gates, slots) as t (gate, slot) where t.gate = wish.gate));
      more := cardinality(got);
      visits := visits + 1;
      exit when more = 0;
      gates := gates || array_fill(wish.gate, array[more]);
      slots := slots || got;
      owners := owners || array_fill(step.number, array[more]);
    end loop;
    if visits > 1 or more = 0 then
      -- What the next gate had less of is left to other streams.
      select coalesce(array_agg(k.gate), '{}'), coalesce(array_agg(k.slot), '{}'), coalesce(array_agg(k.owner), '{}')
      into gates, slots, owners
      from (
        select t.gate, t.slot, t.owner, t.position,
          row_number() over (partition by t.position > before, t.gate order by t.slot) as nth
        from unnest(gates, slots, owners) with ordinality as t (gate, slot, owner, position)) k
      where k.position <= before or k.nth <= more;
    end if;
    allowed[step.number] := allowed[step.number] + more;
  end loop;
  for number in 1..cardinality(asked) loop
    reach[number] := case
      when allowed[number] > 0 and has_keys(asked[number]) then
        least(greatest(1000, allowed[number]), (allowed[number] + 8) * (1 << least(2 * (round - 1), 16)))
      else allowed[number]
    end;
  end loop;
end
$$;

-- In which order streams ask for permits. Of one tenant: as they are given. Of several: each once for its tenant's part of
-- what a limit has, and once more for the rest, tenant by tenant in an order that is drawn by weight (`part` is null).
create or replace function permit_turns(asked integer[], parties integer[])
returns table (turn bigint, number integer, part double precision, tenant text)
language sql volatile
set search_path from current
set enable_seqscan = off
as $$
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

-- How many permits of a gate a tenant holds; of rates, how many it has used up. A limit of very many is not counted.
create or replace function permits_of(gate text, seconds real, tenant text) returns integer
language sql volatile
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select count(*)::integer
  from (select p.* from permits p where p.gate = permits_of.gate and p.job_id is not null order by p.slot limit 1000) p
  join jobs j on j.id = p.job_id
  where j.tenant = permits_of.tenant and not permit_free(row(p.*)::permits, seconds)
$$;

create or replace function has_keys(stream integer) returns boolean
language sql stable
set search_path from current
as $$
  select exists (
    select from streams s
    join job_types t on t.name = s.type
    where s.id = has_keys.stream
      and ((t.limit_key is not null and t.limit_count is not null) or (t.rate_key is not null and t.rate_count is not null)))
$$;

-- Of the jobs that a claim has locked, those that may start, with the permits for each. `owner` says which stream a job
-- is of. A job whose key has no room is parked; one for which there is no permit left stays where it is.
create or replace function pass_permits(
  owner integer[], ids uuid[], tids tid[], wanted integer, asked integer[], allowed integer[], held_gates text[],
  held_slots integer[], owners integer[],
  out passed integer[], out gates text[], out slots integer[], out jobs uuid[])
language plpgsql
set search_path from current
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  line       streams;
  mine       integer[];
  started    integer;
  entry      record;
  wish       record;
  full_gate  text;
  full_gates text[] := '{}';
  got        integer[];
  kept       integer;
  shut_tids  tid[] := '{}';
  shut_gates text[] := '{}';
begin
  passed := '{}';
  gates := '{}';
  slots := '{}';
  jobs := '{}';
  for number in 1..cardinality(asked) loop
    select s.* into line from streams s where s.id = asked[number];
    mine := array_positions(owner, number);
    started := 0;
    if has_keys(line.id) then
      for entry in
        select m.position, j.payload
        from unnest(mine) as m (position)
        join jobs j on j.id = ids[m.position]
        order by m.position
      loop
        exit when started >= allowed[number] or cardinality(passed) >= wanted;
        full_gate := null;
        kept := cardinality(gates);
        for wish in select g.gate, g.capacity, g.seconds from key_gates(line.type, line.tenant, entry.payload) g loop
          got := case
            when wish.gate = any (full_gates) then '{}'
            else grab(
              wish.gate, wish.capacity, wish.seconds, 1,
              array(select t.slot from unnest(gates, slots) as t (gate, slot) where t.gate = wish.gate))
          end;
          if cardinality(got) = 0 then
            full_gate := wish.gate;
            exit;
          end if;
          gates := gates || wish.gate;
          slots := slots || got;
          jobs := jobs || ids[entry.position];
        end loop;
        if full_gate is null then
          started := started + 1;
          passed := passed || entry.position;
        else
          gates := gates[1:kept];
          slots := slots[1:kept];
          jobs := jobs[1:kept];
          full_gates := full_gates || full_gate;
          shut_tids := shut_tids || tids[entry.position];
          shut_gates := shut_gates || full_gate;
        end if;
      end loop;
      mine := passed[cardinality(passed) - started + 1:];
    else
      mine := mine[1:least(allowed[number], wanted - cardinality(passed))];
      passed := passed || mine;
    end if;
    select gates || array_agg(h.gate), slots || array_agg(h.slot), jobs || array_agg(ids[mine[h.nth::integer]])
    into gates, slots, jobs
    from (
      select h.gate, h.slot, row_number() over (partition by h.gate order by h.slot) as nth
      from unnest(held_gates, held_slots, owners) as h (gate, slot, owner)
      where h.owner = number) h
    where h.nth <= cardinality(mine);
  end loop;
  if cardinality(shut_tids) > 0 then
    perform park(shut_tids, shut_gates);
    perform wake('duty', array[0]);
  end if;
end
$$;

-- Attempts that have begun get the permits that were locked for them.
create or replace function hand_out(gates text[], slots integer[], job_ids uuid[]) returns void
language sql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  update permits p
  set job_id = l.job_id, attempt = l.attempt, granted_at = clock_timestamp(), entered = nextval('places')
  from unnest(gates, slots, job_ids) as given (gate, slot, job_id)
  join leases l on l.job_id = given.job_id
  where p.gate = given.gate and p.slot = given.slot
$$;

-- Put entries of `ready` where no claim looks. Here and below, an entry is moved by deleting and inserting it: an update
-- would fail for good where a stray one stands in its new place, and with it the claim or the settlement.
create or replace function park(entries tid[], gates text[]) returns void
language sql
set search_path from current
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  with taken as (
    delete from ready r
    using unnest(entries, gates) as e (tid, gate)
    where r.ctid = e.tid
    returning r.stream, r.rank, r.seq, r.job_id, r.ready_at, e.gate
  ), hidden as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select -t.stream, t.rank, t.seq, t.job_id, t.ready_at from taken t
    on conflict do nothing
  )
  insert into parked as p (stream, rank, seq, gate)
  select t.stream, t.rank, t.seq, t.gate from taken t
  on conflict (stream, rank, seq) do update set gate = excluded.gate
$$;

-- Bring back parked jobs, so many of each gate in each stream, the first ones first; what has gone since is only
-- forgotten.
create or replace function unpark(gates text[], streams integer[], counts bigint[]) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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
    where r.stream = -next.stream and r.rank = next.rank and r.seq = next.seq
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

-- Attempts have ended: as many of those that are parked for their keys come back, in every queue of theirs: which of them
-- is served, nobody knows here. Where a limit is that of a type, workers are told that there is room, if anything waits:
-- those that have nothing else to do would learn of it by their poll.
create or replace function make_room(job_ids uuid[]) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  gates   text[];
  lines   integer[];
  counts  bigint[];
begin
  select array_agg(g.gate), array_agg(g.stream), array_agg(g.number) into gates, lines, counts
  from (
    select k.gate, s.id as stream, count(*) as number
    from jobs j
    join job_types t on t.name = j.type and t.limit_key is not null
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
        select t.name
        from job_types t
        where t.limit_count is not null
          and t.limit_key is null
          and t.name = any (array(select j.type from jobs j where j.id = any (job_ids)))))
      and s.closed_in is null
    limit 65);
  if cardinality(lines) > 0 and (
    cardinality(lines) > 64 or exists (select from ready r where r.stream = any (lines))
  ) then
    perform wake('ready', lines);
  end if;
end
$$;

-- Bring back what was parked and has room: a permit fell free with time, or unnoticed, or the limit was changed. Looks at
-- so many gates behind the one that the last call came to; answers how many, and where to go on. Roles: worker.
create or replace function admit(after text default '', max_gates integer default 200)
returns table (looked integer, reached text)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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
    left join ready r on r.stream = -line.stream and r.rank = line.rank and r.seq = line.seq
    left join jobs j on j.id = r.job_id
    left join lateral (
      select k.capacity, k.seconds from key_gates(j.type, j.tenant, j.payload) k where k.gate = line.gate) rule on true
  loop
    looked := looked + 1;
    reached := spot.gate;
    room := case
      when spot.capacity is null then 1000
      else spot.capacity - (
        select count(*) from permits p where p.gate = spot.gate and not permit_free(p, spot.seconds))
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
