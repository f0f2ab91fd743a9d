-- Parking: jobs whose key has no permit left wait where no claim looks, and come back when a permit is free. Moves:
-- none.
--
-- A parked entry is in `ready` under the negative number of its stream. Only the functions below know that.
--
-- An entry is moved by deleting and inserting it. An update would fail permanently if a stray entry has its new place,
-- and with it the claim or the settlement.

-- The number under which the parked entries of a stream are stored. Pure, as are the three functions below.
create or replace function parked_stream(stream integer) returns integer
language sql immutable parallel safe
as $$
  select -stream
$$;

-- Whether an entry with this number is parked.
create or replace function is_parked(stream integer) returns boolean
language sql immutable parallel safe
as $$
  select stream < 0
$$;

-- The stream of an entry, parked or not.
create or replace function stream_of(entry_stream integer) returns integer
language sql immutable parallel safe
as $$
  select abs(entry_stream)
$$;

-- Both numbers under which entries of a stream are stored.
create or replace function entry_streams(stream integer) returns integer[]
language sql immutable parallel safe
as $$
  select array[stream, -stream]
$$;

-- Move entries of `ready` to where no claim looks.
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
    select parked_stream(t.stream), t.rank, t.seq, t.job_id, t.ready_at from taken t
    on conflict do nothing
  )
  insert into parked as p (stream, rank, seq, gate)
  select t.stream, t.rank, t.seq, t.gate from taken t
  on conflict (stream, rank, seq) do update set gate = excluded.gate
$$;

-- Bring back parked jobs, the given number of each gate in each stream, in their order. If the entry of a job has gone
-- since, only its row in `parked` is deleted.
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

-- Bring back parked jobs after attempts have ended: as many as ended for each key, in every queue of the type, because
-- it is unknown here which queue is served. If the limit is on a type, workers are told that there is room if anything
-- waits: idle workers would otherwise learn of it only by their next poll.
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

-- Bring back parked jobs for which there is room: a permit became free with time, or unnoticed, or the limit was
-- changed. Looks at up to `max_gates` gates after the given one. Answers how many it looked at, and where to go on.
-- Roles: worker.
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
