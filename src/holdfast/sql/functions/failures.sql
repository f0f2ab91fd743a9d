-- Failures by fingerprint. Settlements append to `failures`; the leader adds these rows up in `fingerprints` and notes in
-- `failing` which open jobs fail. Moves: none. Roles: worker.
--
-- Only one transaction at a time writes to `fingerprints` (`sole_adder`): two leaders cannot disturb each other, and an
-- erasure that has to take a message out either comes first, and then the message is not there any more to be added, or
-- finds it.

-- Whether this transaction may write to `fingerprints`. If another one does, it may not.
create or replace function sole_adder() returns boolean
language sql volatile
set search_path from current
as $$
  select pg_try_advisory_xact_lock(hashtext(current_schema() || '.fingerprints'), 0)
$$;

-- How many fingerprints a tenant may have.
create or replace function most_fingerprints() returns integer
language sql immutable parallel safe
as $$
  select 10000
$$;

-- Add up failures behind `after`, up to `max_rows` of them. Rows are taken away as they are added, in one transaction:
-- what a crash undoes is done again. Answers how many rows there were, and the last of them. Rows of a transaction that
-- committed late may lie before `after`, so now and then the caller begins at 0.
--
-- A failure whose job is gone is dropped: nobody knows whose it was. If its job was erased, it counts, without a message.
create or replace function add_failures(after bigint default 0, max_rows integer default 1000)
returns table (added integer, reached bigint)
language plpgsql security definer
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Whether a job of this tenant still fails in this way, or died of it and nobody has acknowledged that.
create or replace function has_open_failures(tenant text, fingerprint text) returns boolean
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
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

-- Forget fingerprints of a tenant that has too many: the oldest that have nothing open, then the oldest.
create or replace function trim_fingerprints(of_tenant text, max_rows integer default 1000) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Forget fingerprints that nobody has seen for as long as dead jobs are kept and that have nothing open, and those of
-- tenants with too many. Setting the clock ahead makes nothing older (see retire.sql), and a moment that lies ahead
-- because the clock was set back since becomes now.
create or replace function forget_fingerprints(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Take out of `failing` what has ended since, or is gone. Settlements that succeed know nothing of it.
create or replace function drop_recovered(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Give letters from before there were fingerprints theirs, and have them added up like failures of today.
create or replace function read_letters(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Have open jobs that failed before there were fingerprints added up like failures of today: those that are held would not
-- be counted among what fails until they fail again. The walk is made once after the migration (`walks`), and what
-- it notes is one transaction with how far it has come, so nothing is counted twice.
create or replace function note_held(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Take the message of a job that is erased out of the fingerprints that show this job as their sample. If another job
-- failed in the same way and is there to be looked at, it becomes the sample: its message is the same. Otherwise the
-- message goes, until a job fails so again.
create or replace function forget_message(id uuid) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
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
