-- Old names, which workers, servers and producers of the previous release still call. Each is removed in the next
-- release: nothing else may call them. Their rights are those of the functions that they call.

-- Hand back jobs that were not run, or not to their end. Now `hand_back`.
create or replace function release(worker text, job_ids uuid[], attempts integer[], note text default null)
returns table (job_id uuid, attempt integer, state text)
language sql security definer
set search_path from current
as $$
  select * from hand_back(worker, job_ids, attempts, note)
$$;

-- Hand back jobs whose claim the worker never heard of. Now `hand_back_unheard`.
create or replace function release_unheard(
  worker text, job_ids uuid[], claimed_until timestamptz, before_number bigint
) returns integer
language sql security definer
set search_path from current
as $$
  select hand_back_unheard(worker, job_ids, claimed_until, before_number)
$$;

-- Hand back jobs that a worker does not know of, for workers of 0.2.0, which have no mark.
create or replace function release_unknown(worker text, job_ids uuid[]) returns integer
language sql security definer
set search_path from current
as $$
  select hand_back_unheard(worker, job_ids, 'infinity', null)
$$;

-- Stop claims in a queue, type, lane or tenant, or everywhere. Now `pause_subject`.
create or replace function pause_scope_as(
  kind text, name text, by text, note text, by_key uuid, by_tenant text, public boolean
) returns boolean
language sql security definer
set search_path from current
as $$
  select pause_subject(
    pause_scope_as.kind, pause_scope_as.name, pause_scope_as.by, note, by_key, by_tenant, pause_scope_as.public)
$$;

-- Let claims go on in a queue, type, lane or tenant, or everywhere. Now `resume_subject`.
create or replace function resume_scope_as(
  kind text, name text, by text, note text, by_key uuid, by_tenant text
) returns boolean
language sql security definer
set search_path from current
as $$
  select resume_subject(resume_scope_as.kind, resume_scope_as.name, resume_scope_as.by, note, by_key, by_tenant)
$$;

-- Stop claims in a queue, type, lane or tenant, or everywhere, for the installation's operators and for servers of
-- older releases. Those servers mark a tenant's operator by the beginning of a name, which is ignored: the key counts.
create or replace function pause_scope(
  kind text, name text, by text, note text default null, by_key uuid default null
) returns boolean
language sql security definer
set search_path from current
as $$
  select pause_subject(
    pause_scope.kind, pause_scope.name, by, note, by_key,
    tenant_of_key(pause_scope.kind, pause_scope.name, by_key), false)
$$;

-- Let claims go on in a queue, type, lane or tenant, or everywhere. Older servers pass the tenant, followed by a slash,
-- in `only_by`.
create or replace function resume_scope(
  kind text, name text, by text, note text default null, by_key uuid default null, only_by text default null
) returns boolean
language sql security definer
set search_path from current
as $$
  select case
    when only_by is null then resume_subject(resume_scope.kind, resume_scope.name, by, note, by_key, null)
    when (resume_scope.kind, only_by) is distinct from ('tenant', resume_scope.name || '/') then false
    else resume_subject(resume_scope.kind, resume_scope.name, by, note, by_key, resume_scope.name)
  end
$$;

-- The tenant for whose operators a key pauses this subject; null for the installation's operators.
create or replace function tenant_of_key(kind text, name text, key_id uuid) returns text
language sql stable
set search_path from current
as $$
  select k.tenant
  from api_keys k
  where k.id = tenant_of_key.key_id
    and tenant_of_key.kind = 'tenant'
    and k.tenant = tenant_of_key.name
    and 'admin' <> all (k.scopes)
$$;

-- What operators have paused, limited and weighted. Now `list_steering`.
create or replace function list_controls() returns setof controls
language sql security definer stable
set search_path from current
as $$
  select * from list_steering()
$$;

-- Drop side rows whose job does not fit: whole walks in one call, as leaders of 0.2.0 ask for them. Those forget no
-- streams, but streams that were forgotten before must come back.
create or replace function drop_strays(max_rows integer default 500) returns integer
language plpgsql security definer
set search_path from current
as $$
declare
  dropped integer := whole_walk('drop_stray_leases', max_rows) + whole_walk('show_hidden', max_rows);
begin
  perform whole_walk('replace_heads'), whole_walk('serve_ready');
  return dropped;
end
$$;

-- Seat targets that have a line but no head, in one call, as leaders of 0.2.0 ask for it.
create or replace function headless_targets(max_targets integer default 500) returns integer
language sql security definer
set search_path from current
as $$
  select whole_walk('seat_headless', max_targets)
$$;

-- Forget permits of keys that nobody uses, in one call, as leaders of 0.2.0 ask for it.
create or replace function forget_permits(max_permits integer default 1000) returns integer
language sql security definer
set search_path from current
as $$
  select whole_walk('forget_idle_permits', max_permits)
$$;

-- Take the steps of a walk until it has ended or has mended enough. Answers how many it mended.
create or replace function whole_walk(step text, enough integer default null) returns integer
language plpgsql
set search_path from current
as $$
declare
  place  text[];
  mended integer;
  total  integer := 0;
begin
  loop
    execute format('select w.mended, w.reached from %I($1) w', step) into mended, place using place;
    total := total + mended;
    exit when place is null or total >= enough;
  end loop;
  return total;
end
$$;

-- The rest is for statements that were under way when the schema was migrated. A function that has begun goes on with
-- its old body, and calls what that names. Every release repeats a statement that ends with this error; nothing was
-- done by it.

-- Refuse to go on with an old body: the statement is to be repeated, and finds the new one.
create or replace function ask_to_repeat() returns void
language plpgsql
as $$
begin
  raise exception 'the schema was migrated while the statement waited; repeat it' using errcode = '40001';
end
$$;

-- Called by claims. Now `deal_shares`.
create or replace function deal_slots(
  ranges integer[], ranks integer[], seqs bigint[], lines integer[], wanted integer,
  out tied integer[], out lows integer[], out firsts bigint[], out ceilings integer[], out shares integer[],
  out parties integer[], out portions integer[])
language plpgsql
set search_path from current
as $$
begin
  perform ask_to_repeat();
end
$$;

-- Called by claims. Now `lock_permits`.
create or replace function take_permits(
  asked integer[], shares integer[], round integer, parties integer[],
  out streams integer[], out allowed integer[], out reach integer[], out gates text[], out slots integer[],
  out owners integer[])
language plpgsql
set search_path from current
as $$
begin
  perform ask_to_repeat();
end
$$;

-- Called by claims that met locked entries. Now `unlocked_entries`.
create or replace function free_entries(
  entries tid[],
  out tids tid[], out ids uuid[], out lines integer[], out ranks integer[], out seqs bigint[], out times timestamptz[])
language plpgsql
set search_path from current
as $$
begin
  perform ask_to_repeat();
end
$$;

-- Called by `admit`. It is part of the queries of permits.sql now.
create or replace function permit_free(permit permits, seconds real) returns boolean
language plpgsql
set search_path from current
as $$
begin
  perform ask_to_repeat();
end
$$;

-- Called by what operators decide. Now `check_subject`.
create or replace function check_scope(kind text, name text, kinds text[]) returns void
language plpgsql
set search_path from current
as $$
begin
  perform ask_to_repeat();
end
$$;

-- Called by what operators decide. Now `note_steering`.
create or replace function note_control(kind text, name text, verb text, by text, by_key uuid, detail jsonb) returns void
language plpgsql
set search_path from current
as $$
begin
  perform ask_to_repeat();
end
$$;

-- Whether claiming is stopped everywhere, and how many jobs still run. Now `drain_progress`.
create or replace function drain_state(only_tenant text default null)
returns table (paused_at timestamptz, paused_by text, paused_note text, running bigint)
language sql security definer
set search_path from current
as $$
  select d.paused_at, d.paused_by, d.paused_note, d.running from drain_progress('everything', '', only_tenant) d
$$;
