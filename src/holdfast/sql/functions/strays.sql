-- Side rows whose job does not fit, and streams with entries that no worker is offered. The hot functions pass over
-- them anyway. Moves: none. Roles: worker.
--
-- Each walk looks at up to `max_rows` rows after `after`, and answers how many it mended and where to go on: null at
-- the end. Rows that are found without a lock are checked again when they are locked.

-- Drop leases of jobs that do not run, or that run another attempt; at the end of the walk also decisions that nobody
-- will carry out.
create or replace function drop_stray_leases(after text[] default null, max_rows integer default 1000)
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

-- Drop entries of `ready` whose job is gone, is not queued, or has its entry elsewhere. Claims drop them as well, but
-- only in streams that a worker serves.
create or replace function drop_stray_entries(after text[] default null, max_rows integer default 1000)
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

-- Whether an entry has the place of its job, and is the only one or the first of its entries.
create or replace function entry_fits(stream integer, rank integer, seq bigint, job_id uuid) returns boolean
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Drop entries of `due` whose job does not wait for that moment. Promotion drops them as well, once the moment has
-- come.
create or replace function drop_stray_due(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set datestyle = 'iso, ymd'
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
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

-- Whether the job of an entry waits for that moment.
create or replace function due_fits(run_at timestamptz, job_id uuid) returns boolean
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select exists (
    select from jobs j where j.id = due_fits.job_id and j.run_at = due_fits.run_at and j.state in ('scheduled', 'retry'))
$$;

-- Bring back entries that are hidden from claims without being parked.
create or replace function show_hidden(after text[] default null, max_rows integer default 1000)
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

-- Replace the heads of targets that have ended or are gone, unless a call for that target is pending.
create or replace function replace_heads(after text[] default null, max_rows integer default 1000)
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

-- Seat a head for targets that have a line but no head, which a lost call could leave.
create or replace function seat_headless(after text[] default null, max_rows integer default 1000)
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

-- Those of the given targets that nobody has called for; null if there are none. A call is recorded with the job, and
-- `elect_from` answers it soon after: until then, a line without a head is normal. This is stable so that it sees the
-- snapshot of the query that found the targets: a call that is answered in between would look like a fault. If there
-- are more calls than are looked at here, nothing is a fault yet: a later walk decides.
create or replace function uncalled(found_tenants text[], found_targets text[], max_calls integer default 10000)
returns table (tenants text[], targets text[])
language sql stable
set search_path from current
as $$
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

-- Forget permits of keys that nobody has used for an hour, or, for rates, for longer than any rate lasts.
create or replace function forget_idle_permits(after text[] default null, max_rows integer default 1000)
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
