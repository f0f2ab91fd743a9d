-- The permits of limits and rates: how a claim locks free ones, and gives them to the attempts that it begins. Moves:
-- none.
--
-- A claim skips permits that others have locked, so that nobody waits. A permit of a limit is free when its attempt has
-- no lease any more. Nothing is given back at the end of an attempt, so a crash at any point can neither leak a permit
-- nor grant one twice.

-- Whether a permit is free at a moment. A permit of a limit is free when its attempt has no lease any more; one of a
-- rate, when it was granted long enough ago. The moment is an argument, because a volatile function here would prevent
-- inlining.
create or replace function permit_state(
  job_id uuid, attempt integer, granted_at timestamptz, seconds real, moment timestamptz
) returns table (free boolean)
language sql stable
as $$
  select case
    when seconds is null then
      not exists (select from leases l where l.job_id = permit_state.job_id and l.attempt = permit_state.attempt)
    else granted_at <= moment - make_interval(secs => seconds)
  end
$$;

-- Lock permits for a share of each stream. Answers the permits, each with the number of its share, and the shares, with
-- how many jobs of each may start (`allowed`) and how many entries to lock (`share`). If keys decide, `share` is
-- larger, and grows with every round, because many of these jobs may have to be parked.
--
-- If the streams belong to several tenants (`dealt`), the tenants also share the permits of a limit by weight. First
-- each may have its whole part, including the jobs that it runs already. Then lots are drawn by weight for the rest.
-- Otherwise the oldest backlog would get every permit of a limit of one.
create or replace function lock_permits(
  inout shares claim_share[], round integer, dealt boolean, out permits claim_permit[])
language plpgsql
set search_path from current
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Whether jobs of a stream have keys with limits of their own.
create or replace function has_keys(stream integer) returns boolean
language sql stable
set search_path from current
as $$
  select exists (
    select from streams s
    cross join lateral limits_of('type', s.type) l
    where s.id = has_keys.stream and l.keyed)
$$;

-- Lock up to `wanted` free permits of a gate, in addition to those that this claim already has.
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

-- How many attempts run with a permit beyond the capacity of the limit.
create or replace function running_outside(gate text, capacity integer) returns bigint
language sql stable
set search_path from current
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select count(*)
  from permits p
  join leases l on l.job_id = p.job_id and l.attempt = p.attempt
  where p.gate = running_outside.gate and p.slot > capacity
$$;

-- Give permits beyond the capacity to jobs that were running when a limit was set, so that they count. Answers whether
-- there were any.
create or replace function adopt(gate text, capacity integer) returns boolean
language plpgsql
set search_path from current
as $$
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

-- Of the entries that a claim has locked, those (by place) whose jobs may start, with the permits for each. A job
-- whose key has no free permit is parked; one for which no other permit is left stays where it is.
create or replace function pass_permits(
  entries claim_entry[], wanted integer, shares claim_share[], locked claim_permit[],
  out passed integer[], out permits claim_permit[])
language plpgsql
set search_path from current
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Give attempts that have begun the permits that were locked for them.
create or replace function hand_out(permits claim_permit[]) returns void
language sql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  update permits p
  set job_id = l.job_id, attempt = l.attempt, granted_at = clock_timestamp(), entered = nextval('places')
  from unnest(hand_out.permits) as given
  join leases l on l.job_id = given.job_id
  where p.gate = given.gate and p.slot = given.slot
$$;
