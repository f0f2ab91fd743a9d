-- How tenants share slots. Called by claims, and only where several tenants have jobs that the claim may take. Moves: none.
--
-- 1. Between tenants only weights count, over all their queues, types and priorities. A claim deals its slots so that the
--    number of jobs that each tenant runs, divided by its weight, becomes as equal as it can be. What runs is counted from
--    the leases of all workers. Nothing that runs is interrupted, so a tenant that runs too much gets nothing until the
--    others have caught up.
-- 2. Whole slots follow from these numbers. Parts of slots are a matter of turns: a session remembers, for each tenant, by
--    how much of a slot it has had less than its share (`turn`), and who has had the least is next. A turn is
--    one slot at most, and is forgotten after a minute without competition: nobody is owed the past.
-- 3. What a tenant cannot use is dealt to the others in the next round of the same claim.
-- 4. Within a tenant, priority is strict: its slots are for the streams that stand at its own lowest rank, the oldest first.
--
-- Turns are kept in a setting of the session (`holdfast.turns`) and not in a table: every claim would write to the same
-- few rows, wait for the others there, and walk over dead versions as long as an old transaction is open. Every session
-- deals fairly by itself, so all of them together do. One that has no memory draws lots.
--
-- How these functions are planned is set by `claim_jobs`, their only caller: setting it again would cost more than to deal.

-- Which heads a claim takes from, and how much. A head is the first entry (`ranks`, `seqs`) of a range (`ranges`) in a stream
-- (`lines`). Answers per head that was chosen: where it stands, up to which rank to go there (`ceilings`), how many jobs
-- to take (`shares`), and the number of its tenant with what it was dealt in all (`portions`). Nulls if all are of one tenant.
create or replace function deal_slots(
  ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer,
  out tied integer[], out lows integer[], out firsts bigint[], out ceilings integer[], out shares integer[],
  out parties integer[], out portions integer[])
language plpgsql
set search_path from current
as $$
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
    return;
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
    -- The level to which all are filled is the lowest of those that the least busy ones would reach by themselves.
    select p.*,
      floor(greatest(0, p.weight * min((wanted + p.busy_up_to) / p.weights) over () - p.running) + 1e-9)::integer as whole
    from (
      select p.*, p.weight / sum(p.weight) over () as share, sum(p.running) over () + wanted as slots,
        sum(p.weight) over fill as weights, sum(p.running) over fill as busy_up_to
      from party p
      window fill as (order by p.running / p.weight, p.number rows unbounded preceding)) p
  ), settled as (
    -- What is left, less than a slot each, is for those that are still below their share of all slots.
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

  select array_agg(h.range), array_agg(h.lowest), array_agg(h.seq), array_agg(h.ceiling),
    array_agg(h.portion / h.streams + case when h.nth <= h.portion % h.streams then 1 else 0 end),
    array_agg(h.party), array_agg(h.portion)
  into tied, lows, firsts, ceilings, shares, parties, portions
  from (
    select h.*, least(8, h.portion, count(*) over (partition by h.party))::integer as streams
    from (
      select h.range, h.seq, h.party, lowest[h.party] as lowest, highest[h.party] as ceiling, dealt[h.party] as portion,
        row_number() over (partition by h.party order by h.seq) as nth
      from unnest(owners, ranges, ranks, seqs) as h (party, range, rank, seq)
      where dealt[h.party] > 0 and h.rank = lowest[h.party]) h) h
  where h.nth <= h.streams;

  perform remember_turns(memory, turns, load, added);
end
$$;

-- Whether there are several tenants at all.
create or replace function several_tenants() returns boolean
language sql stable
set search_path from current
as $$
  select (select s.tenant from streams s order by s.tenant limit 1)
    < (select s.tenant from streams s order by s.tenant desc limit 1)
$$;

-- What this session remembers of the last minute.
create or replace function recalled_turns() returns jsonb
language plpgsql
set search_path from current
as $$
declare
  memory jsonb;
  oldest double precision := extract(epoch from pg_catalog.clock_timestamp()) - 60;
begin
  memory := nullif(current_setting('holdfast.turns', true), '')::jsonb;
  -- Whatever is used later is read here.
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
    return '{"turns": {}}';  -- somebody else has written there
end
$$;

-- How many jobs each tenant runs, by the leases of all workers. Leases that have lapsed do not count; so a walk over the
-- others, in the order of their expiry, does not meet what ended longer ago than a lease lasts. Where that is much all the
-- same, because it cannot be vacuumed yet, the last count, and what was dealt since, has to do for a while: at about a
-- microsecond per entry, counting takes a twentieth of the time of a session at most. That is time of the processor: also
-- where the engine's own clock stands still, as in tests.
create or replace function running_jobs(memory jsonb) returns jsonb
language plpgsql
set search_path from current
as $$
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

create or replace function remember_turns(memory jsonb, turns jsonb, load jsonb, running jsonb) returns void
language sql
set search_path from current
as $$
  select set_config('holdfast.turns', jsonb_build_object(
    'turns', memory -> 'turns' || turns,
    'counted', case
      when load ->> 'until' is not null then jsonb_set(load, '{running}', load -> 'running' || running)
    end)::text, false)
$$;

-- Those of the streams in which something is ready. A tenant has its share of what a claim looks at: a worker for more
-- streams than every claim could look at asks for these now and then. Roles: worker.
create or replace function ready_streams(streams integer[]) returns table (id integer)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select line.id
  from unnest(streams) as line (id)
  cross join lateral (select from ready r where r.stream = line.id limit 1) entry
$$;
