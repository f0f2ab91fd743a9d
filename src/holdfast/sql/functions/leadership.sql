-- Which process leads maintenance: one row, which the leader renews. Moves: none. Roles: worker.

-- Become, stay or learn the leader: one row with holder, term and expiry, on the database's clock. That clock can be
-- set back, again and again. So a candidate also measures by its own clock how long it has seen the same number of
-- renewals (`seen_renewals`, `seen_seconds`): after a whole term without a renewal it takes over, whatever the expiry
-- says. For a candidate of an older release, which does not measure, an expiry further ahead than a whole term is
-- brought nearer. While somebody else has locked the row, nothing can be written, but the duties must go on. The holder
-- that the row names goes on leading, and two terms after its term has ended, every candidate leads. Several leaders
-- are harmless. With each call the candidate reports for how long it has been in touch and what goes wrong. The answer
-- says how the database is doing: the clock, when the server started, and whether there may be work for which no
-- notification was sent (see `wake`).
create or replace function preside(
  name text, candidate text, seconds double precision, patience_seconds double precision default 0,
  report jsonb default null, seen_renewals bigint default null, seen_seconds double precision default 0
) returns table (leads boolean, clock timestamptz, server_started timestamptz, unheard boolean, renewals bigint)
language plpgsql security definer
set search_path from current
set lock_timeout = '200ms'
as $$
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

-- Become or stay the leader, for leaders of older releases.
create or replace function lead(name text, candidate text, seconds double precision) returns boolean
language sql security definer
set search_path from current
as $$
  select p.leads from preside(lead.name, lead.candidate, lead.seconds) p
$$;

-- For how long the leader has been in touch with the database; 0 if there is no leader, or if its last renewal does not
-- fit the clock.
create or replace function leader_patience() returns double precision
language sql stable
set search_path from current
as $$
  select coalesce(max(l.patience_seconds), 0)
  from leaders l
  where l.name = 'maintenance'
    and l.renewed_at between clock_timestamp() - interval '4 seconds' and clock_timestamp() + interval '1 second'
$$;

-- Give up leadership, so that another process can take it at once.
create or replace function resign(name text, candidate text) returns void
language sql security definer
set search_path from current
as $$
  update leaders l set expires_at = '-infinity', patience_seconds = 0 where l.name = resign.name and l.holder = candidate;
  select pg_notify(current_schema() || '.duty', '');
$$;
