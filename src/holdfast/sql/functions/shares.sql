-- How tenants share slots. Claims call this, and only if several tenants have jobs that the claim may take. Moves:
-- none.
--
-- 1. Between tenants only weights count, over all their queues, types and priorities. A claim deals its slots so that
--    the number of jobs that each tenant runs, divided by its weight, becomes as equal as possible. Running jobs are
--    counted from the leases of all workers. No running job is interrupted, so a tenant that runs too much gets nothing
--    until the others have caught up.
-- 2. Whole slots follow from these numbers. Fractions of slots are shared by turns: a session remembers, for each
--    tenant, by which fraction of a slot it has had less than its share (`turn`), and the tenant with the largest
--    deficit is next. A turn is at most one slot, and is forgotten after a minute without competition: old deficits
--    are not made up for.
-- 3. Slots that a tenant cannot use are dealt to the others in the next round of the same claim.
-- 4. Within a tenant, priority is strict: its slots are for the streams at its own lowest rank, the oldest first.
--
-- Turns are kept in a setting of the session (`holdfast.turns`) and not in a table: every claim would write to the same
-- few rows, wait for the others there, and walk over dead versions as long as an old transaction is open. Every session
-- deals fairly by itself, so all of them together do. A session without memory draws lots.
--
-- `claim_jobs`, the only caller, sets how these functions are planned: setting it again would cost more than the
-- dealing.

-- The heads from which a claim takes jobs, and how many from each. A head is the first entry (`ranks`, `seqs`) of a
-- range (`ranges`) in a stream (`lines`). Answers a share for each head that was chosen, with the number of its tenant
-- and what that tenant was dealt in all (`portion`). Null if all heads belong to one tenant.
create or replace function deal_shares(
  ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer
) returns claim_share[]
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

-- Whether there are several tenants at all.
create or replace function several_tenants() returns boolean
language sql stable
set search_path from current
as $$
  select (select s.tenant from streams s order by s.tenant limit 1)
    < (select s.tenant from streams s order by s.tenant desc limit 1)
$$;

-- The turns of the last minute, as this session remembers them.
create or replace function recalled_turns() returns jsonb
language plpgsql
set search_path from current
as $$
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

-- How many jobs each tenant runs, by the leases of all workers. Lapsed leases do not count, so a walk over the others,
-- in the order of their expiry, does not meet leases that ended longer ago than a lease lasts. If there are still many
-- of those, because they cannot be vacuumed yet, the last count, plus what was dealt since, is used for a while. At
-- about a microsecond per entry, counting takes at most a twentieth of a session's time. That is processor time, even
-- if the engine's own clock stands still, as in tests.
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

-- Keep the turns of tenants for the next claim of this session.
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

-- Those of the streams in which something is ready. A tenant has its share of the streams that a claim looks at. A
-- worker for more streams than one claim could look at asks for these now and then. Roles: worker.
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

-- The order in which streams ask for permits. Streams of one tenant ask in the given order. Streams of several tenants
-- ask once for their tenant's part of a limit, and once more for the rest, tenant by tenant in an order drawn by weight
-- (`part` is null).
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

-- How many permits of a gate a tenant has; for rates, how many it has used up. At most 1000 permits are looked at.
create or replace function permits_of(gate text, seconds real, tenant text) returns integer
language sql volatile
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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
