-- Who may run now: pauses, limits, and the shares of tenants. Called by claims, and only where somebody decided
-- something, or several tenants want the same slot; plain jobs never come here. Moves: none.
--
-- A limit is a gate with numbered permits. A claim locks free ones, skipping those that others lock right now, so that
-- nobody waits; whose attempt has no lease any more is free. Nothing is given back at the end of an attempt, and
-- so a crash, wherever it strikes, can neither leak a permit nor give one away twice.

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
  select g.kind || job_type || ' of ' || tenant || ' for ' || coalesce(
      case when length(g.value) > 200 then md5(g.value) else g.value end, 'nobody'),
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
as $$
#variable_conflict use_column
declare
  slots integer[];
begin
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
      or not pg_try_advisory_xact_lock(hashtextextended(grab.gate, 0));
    insert into permits (gate, slot)
    select grab.gate, n from generate_series(1, capacity) n
    on conflict do nothing;
    perform adopt(gate, capacity);
  end loop;
  -- Somebody may have used one and committed between the look at it and its lock: now that it is ours, look again.
  return array(
    select p.slot
    from permits p
    where p.gate = grab.gate and p.slot = any (slots) and permit_free(p, seconds)
    order by p.slot);
end
$$;

-- What runs already when a limit is set counts, too.
create or replace function adopt(gate text, capacity integer) returns void
language sql
set search_path from current
as $$
  with running as (
    select l.job_id, l.attempt, row_number() over () as number
    from leases l
    join streams s on s.id = l.stream
    where adopt.gate in ('queue:' || s.queue, 'tenant:' || s.tenant, 'type:' || s.type)
      and not exists (
        select from permits p where p.gate = adopt.gate and p.job_id = l.job_id and p.attempt = l.attempt)
  ), free as (
    select p.slot, row_number() over (order by p.slot) as number
    from permits p
    where p.gate = adopt.gate and p.slot <= capacity and permit_free(p, null)
  )
  update permits p
  set job_id = running.job_id, attempt = running.attempt, granted_at = clock_timestamp()
  from free
  join running on running.number = free.number
  where p.gate = adopt.gate and p.slot = free.slot
$$;

-- Which of the streams are shut: paused, or at a limit. Looked at without locking; what is open is checked once more
-- under the lock of its permits.
create or replace function shut_streams(asked integer[]) returns integer[]
language sql stable
set search_path from current
set jit = off
as $$
  with busy as materialized (
    select s.tenant, s.queue, s.type, count(*) as running
    from leases l
    join streams s on s.id = l.stream
    where exists (select from controls c where c.limit_count is not null)
      or exists (select from job_types t where t.limit_count is not null)
    group by s.tenant, s.queue, s.type
  ), shut as (
    select c.kind, c.name
    from controls c
    where c.paused_at is not null
      or c.limit_count <= (
        select coalesce(sum(b.running), 0)
        from busy b
        where case c.kind when 'queue' then b.queue when 'tenant' then b.tenant when 'type' then b.type end = c.name)
    union all
    select 'type', t.name
    from job_types t
    left join controls c on c.kind = 'type' and c.name = t.name
    where t.limit_key is null
      and coalesce(c.limit_count, t.limit_count) <= (select sum(b.running) from busy b where b.type = t.name)
  )
  select array(
    select s.id
    from streams s
    left join job_types t on t.name = s.type
    where s.id = any (asked)
      and not starts_with(s.type, 'holdfast.')
      and exists (
        select from shut
        where (shut.kind, shut.name) in (
          ('queue', s.queue), ('type', s.type), ('tenant', s.tenant), ('lane', coalesce(t.lane, 'general')),
          ('everything', ''))))
$$;

-- Of heads of equal rank, those whose turn it is: of the tenants that run the least for their weight first, then as the
-- caller named them, then the oldest.
create or replace function fair_choice(tied integer[], firsts bigint[], asked integer[], wanted integer)
returns table (ranges integer[], seqs bigint[])
language plpgsql stable
set search_path from current
set jit = off
as $$
#variable_conflict use_column
begin
  if 1 = (
    select count(distinct s.tenant)
    from streams s
    where s.id = any (array(select asked[range] from unnest(tied) as range))
  ) then
    return query select tied[1:wanted], firsts[1:wanted];
    return;
  end if;
  return query
  with busy as materialized (
    select s.tenant, count(*) as running
    from leases l
    join streams s on s.id = l.stream
    group by s.tenant
  ), head as (
    select h.range, h.seq, s.tenant,
      min(h.range) over (partition by s.tenant) as position,
      row_number() over (partition by s.tenant order by h.seq) as nth
    from unnest(tied, firsts) as h (range, seq)
    join streams s on s.id = asked[h.range]
  ), turn as (
    select head.range, head.seq,
      row_number() over (
        order by (coalesce(busy.running, 0) + head.nth) / coalesce(c.weight, 1), head.position, head.seq) as number
    from head
    left join busy on busy.tenant = head.tenant
    left join controls c on c.kind = 'tenant' and c.name = head.tenant
  )
  select array_agg(turn.range order by turn.number), array_agg(turn.seq order by turn.number)
  from turn
  where turn.number <= wanted;
end
$$;

-- Lock permits for a share of each stream. Answers per stream how many jobs may start (`allowed`) and how many to lock
-- (`reach`: more where keys decide, because some of them may have to be parked), and the permits with the stream that
-- each is for.
create or replace function take_permits(
  asked integer[], wanted integer, shares integer[],
  out streams integer[], out allowed integer[], out reach integer[], out gates text[], out slots integer[],
  out owners integer[])
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  wish record;
  got  integer[];
  mine text[];
begin
  streams := asked;
  allowed := weighted_shares(asked, wanted, shares);
  reach := '{}';
  gates := '{}';
  slots := '{}';
  owners := '{}';
  for number in 1..cardinality(asked) loop
    mine := '{}';
    for wish in select g.gate, g.capacity, g.seconds from gates_of(asked[number]) g loop
      got := grab(
        wish.gate, wish.capacity, wish.seconds, allowed[number],
        array(select t.slot from unnest(gates, slots) as t (gate, slot) where t.gate = wish.gate));
      allowed[number] := cardinality(got);
      mine := mine || wish.gate;
      exit when allowed[number] = 0;
      gates := gates || array_fill(wish.gate, array[cardinality(got)]);
      slots := slots || got;
      owners := owners || array_fill(number, array[cardinality(got)]);
    end loop;
    if cardinality(mine) > 1 then
      -- What the next gate had less of is left to other streams.
      select coalesce(array_agg(k.gate), '{}'), coalesce(array_agg(k.slot), '{}'), coalesce(array_agg(k.owner), '{}')
      into gates, slots, owners
      from (
        select t.gate, t.slot, t.owner, row_number() over (partition by t.owner, t.gate order by t.slot) as nth
        from unnest(gates, slots, owners) as t (gate, slot, owner)) k
      where k.owner < number or k.nth <= allowed[number];
    end if;
    reach[number] := case
      when allowed[number] > 0 and has_keys(asked[number]) then greatest(64, allowed[number])
      else allowed[number]
    end;
  end loop;
end
$$;

-- Shares of a claim by the weights of tenants; as they are where nobody has a weight.
create or replace function weighted_shares(asked integer[], wanted integer, shares integer[]) returns integer[]
language sql stable
set search_path from current
as $$
  select case
    when not exists (select from controls c where c.kind = 'tenant' and c.weight is not null) then shares
    else array(
      select ceil(wanted * line.weight / sum(line.weight) over ())::integer
      from (
        select a.position, coalesce(c.weight, 1) / count(*) over (partition by s.tenant) as weight
        from unnest(asked) with ordinality as a (stream, position)
        join streams s on s.id = a.stream
        left join controls c on c.kind = 'tenant' and c.name = s.tenant) line
      order by line.position)
  end
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
as $$
#variable_conflict use_column
declare
  line    streams;
  keyed   boolean;
  started integer;
  fits    boolean;
  wish    record;
  entry   integer;
  got   integer[];
begin
  passed := '{}';
  gates := '{}';
  slots := '{}';
  jobs := '{}';
  for number in 1..cardinality(asked) loop
    select s.* into line from streams s where s.id = asked[number];
    keyed := has_keys(line.id);
    started := 0;
    foreach entry in array array_positions(owner, number) loop
      exit when started >= allowed[number] or cardinality(passed) >= wanted;
      fits := true;
      if keyed then
        for wish in
          select g.gate, g.capacity, g.seconds
          from jobs j
          cross join lateral key_gates(line.type, line.tenant, j.payload) g
          where j.id = ids[entry]
        loop
          got := grab(
            wish.gate, wish.capacity, wish.seconds, 1,
            array(select t.slot from unnest(gates, slots) as t (gate, slot) where t.gate = wish.gate));
          fits := cardinality(got) > 0;
          if not fits then
            perform park(tids[entry], wish.gate);
            perform wake('duty', array[0]);
            exit;
          end if;
          gates := gates || wish.gate;
          slots := slots || got;
          jobs := jobs || ids[entry];
        end loop;
      end if;
      if fits then
        started := started + 1;
        passed := passed || entry;
        select gates || array_agg(h.gate), slots || array_agg(h.slot), jobs || array_agg(ids[entry])
        into gates, slots, jobs
        from (
          select h.gate, h.slot, row_number() over (partition by h.gate order by h.slot) as nth
          from unnest(held_gates, held_slots, owners) as h (gate, slot, owner)
          where h.owner = number) h
        where h.nth = started;
      end if;
    end loop;
  end loop;
end
$$;

-- Attempts that have begun get the permits that were locked for them.
create or replace function hand_out(gates text[], slots integer[], job_ids uuid[]) returns void
language sql
set search_path from current
set enable_seqscan = off
as $$
  update permits p
  set job_id = l.job_id, attempt = l.attempt, granted_at = clock_timestamp()
  from unnest(gates, slots, job_ids) as given (gate, slot, job_id)
  join leases l on l.job_id = given.job_id
  where p.gate = given.gate and p.slot = given.slot
$$;

-- Put an entry of `ready` where no claim looks.
create or replace function park(entry tid, gate text) returns void
language sql
set search_path from current
as $$
  with hidden as (
    update ready r set stream = -r.stream where r.ctid = entry returning r.stream, r.rank, r.seq
  )
  insert into parked (stream, rank, seq, gate)
  select -h.stream, h.rank, h.seq, park.gate from hidden h
$$;

-- Bring back parked jobs, the first of each gate, so many; what has gone since is only forgotten.
create or replace function unpark(gates text[], counts bigint[]) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
as $$
declare
  woken integer[];
begin
  with next as (
    delete from parked k
    where k.ctid in (
      select first.tid
      from unnest(gates, counts) as g (gate, number)
      cross join lateral (
        select p.ctid as tid
        from parked p
        where p.gate = g.gate
        order by p.rank, p.seq
        limit g.number
        for update skip locked) first)
    returning k.stream, k.rank, k.seq
  ), back as (
    update ready r
    set stream = next.stream
    from next
    where r.stream = -next.stream and r.rank = next.rank and r.seq = next.seq
    returning r.stream
  )
  select array_agg(distinct back.stream) into woken from back;
  if woken is not null then
    perform wake('ready', woken);
  end if;
end
$$;

-- Attempts have ended: as many of those that are parked for their keys come back.
create or replace function make_room(job_ids uuid[]) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
as $$
declare
  gates  text[];
  counts bigint[];
begin
  select array_agg(g.gate), array_agg(g.number) into gates, counts
  from (
    select k.gate, count(*) as number
    from jobs j
    cross join lateral key_gates(j.type, j.tenant, j.payload) k
    where j.id = any (job_ids) and k.seconds is null
    group by k.gate) g;
  if gates is not null then
    perform unpark(gates, counts);
  end if;
end
$$;

-- Bring back what was parked and has room: a permit fell free with time, or unnoticed, or the limit was changed. Entries
-- that nobody remembers as parked come back, too. Answers how many gates are still waited for. Roles: worker.
create or replace function admit(max_gates integer default 200) returns integer
language plpgsql security definer
set search_path from current
set enable_seqscan = off
as $$
declare
  open   record;
  looked integer := 0;
begin
  for open in
    with recursive line as (
      (select p.gate, p.stream, p.rank, p.seq from parked p order by p.gate, p.rank, p.seq limit 1)
      union all
      select following.gate, following.stream, following.rank, following.seq
      from line
      cross join lateral (
        select p.gate, p.stream, p.rank, p.seq
        from parked p
        where p.gate > line.gate
        order by p.gate, p.rank, p.seq
        limit 1) following
    )
    select line.gate, rule.capacity, rule.seconds
    from (select * from line limit max_gates) line
    left join ready r on r.stream = -line.stream and r.rank = line.rank and r.seq = line.seq
    left join jobs j on j.id = r.job_id
    left join lateral (
      select k.capacity, k.seconds from key_gates(j.type, j.tenant, j.payload) k where k.gate = line.gate) rule on true
  loop
    looked := looked + 1;
    perform unpark(array[open.gate], array[greatest(0, case
      when open.capacity is null then 1000
      else open.capacity - (
        select count(*) from permits p
        where p.gate = open.gate and p.slot <= open.capacity and not permit_free(p, open.seconds))
    end)]);
  end loop;
  return looked;
end
$$;

-- Forget the permits of keys that nobody has used for an hour, or for longer than any rate lasts. Roles: worker.
create or replace function forget_permits(max_permits integer default 1000) returns integer
language sql security definer
set search_path from current
as $$
  with idle as (
    select p.ctid as tid
    from permits p
    where p.granted_at < now() - case when starts_with(p.gate, 'rate') then interval '32 days' else interval '1 hour' end
      and not exists (select from leases l where l.job_id = p.job_id and l.attempt = p.attempt)
    limit max_permits
    for update skip locked
  ), gone as (
    delete from permits p using idle where p.ctid = idle.tid returning 1
  )
  select count(*)::integer from gone
$$;
