-- Whether nothing of a paused subject runs any more, so that maintenance may begin. Moves: none. Roles: operator.
--
-- A pause stops claims that look at the controls after it was committed. A claim that looked before may still take jobs,
-- which nobody sees until it commits. All claims share a lock from before they look until their transaction has ended
-- (see `claim_barrier`). So whoever asks notes which transactions hold that lock after the pause, waits until these have ended,
-- and counts leases only then. No claim waits for this: neither those under way nor new ones.

-- The transactions that are claiming now, of those given, or of all.
create or replace function claims_under_way(among text[] default null) returns text[]
language sql volatile
set search_path from current
as $$
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

-- Wait for claims that are under way now, for so many hundredths of a second at most. Answers whether all of them have ended.
create or replace function claims_end_within(hundredths integer) returns boolean
language plpgsql volatile
set search_path from current
as $$
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

-- Wait until all claims have ended that are under way now, half a second at most: they may not have seen what was just
-- committed, such as a pause, and may take jobs that are recorded after it. Answers whether all of them have ended.
-- Roles: operator.
create or replace function claims_ended() returns boolean
language sql volatile security definer
set search_path from current
as $$
  select claims_end_within(50)
$$;

-- Whether claims of a subject are stopped, by whom and why, how many of its jobs still run, and whether it is `drained`: it
-- is paused, none of its jobs runs, and no claim from before the pause is under way. It waits for such claims for a fifth of a
-- second; ask again if it is not drained. A tenant's operators are told about their own jobs only.
create or replace function drain_progress(
  kind text default 'everything', name text default '', only_tenant text default null
) returns table (paused_at timestamptz, paused_by text, paused_note text, running bigint, drained boolean)
language plpgsql security definer
set search_path from current
as $$
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
