-- What the control plane may do, for one tenant at a time. Moves: (nothing) → created | scheduled | queued.
-- Roles: client; `submit` also api, worker, operator, whose calls are grouped as those of the control plane are.
--
-- The role `client` has rights only on these functions and on those that find its key. Each of them takes the tenant
-- first and raises without one, so that a server that forgets it sees nothing. Jobs of other tenants do not exist
-- here.

-- Raise unless a tenant is named.
create or replace function refuse_no_tenant(tenant text) returns void
language plpgsql immutable
as $$
begin
  if coalesce(tenant, '') = '' then
    raise exception 'a tenant is required' using errcode = 'HF003';
  end if;
end
$$;

-- Record the intents of many callers at once: one commit for all of them, each for its own tenant. Answers as
-- enqueue_many does, by position. A key that another transaction has taken and not committed yet is not waited for
-- for long: the others in the batch have nothing to do with it.
create or replace function submit(
  tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]
) returns table (item integer, job_id uuid, state text, outcome text)
language plpgsql security definer
set search_path from current
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
  caller    record;
  asked     integer := coalesce(cardinality(types), 0);
begin
  if asked = 0 or array_position(tenants, null) is not null or array_position(tenants, '') is not null then
    raise exception 'a tenant is required' using errcode = 'HF003';
  elsif array[cardinality(tenants), cardinality(creators), cardinality(payloads), cardinality(options), cardinality(ids)]
    <> array_fill(asked, array[5]) then
    raise exception 'all lists must have the same length' using errcode = 'HF002';
  end if;
  for caller in
    select
      job.tenant, job.creator, array_agg(job.position order by job.position) as positions,
      array_agg(job.type order by job.position) as types,
      array_agg(job.payload order by job.position) as payloads,
      array_agg(job.option order by job.position) as options,
      array_agg(job.id order by job.position) as ids
    from unnest(tenants, creators, types, payloads, options, ids) with ordinality
      as job (tenant, creator, type, payload, option, id, position)
    group by job.tenant, job.creator
    order by job.tenant, job.creator
  loop
    perform check_enqueue(caller.types, caller.payloads, caller.options, caller.tenant);
    perform check_texts(caller.creator, null);
    return query
    select caller.positions[r.item]::integer, r.job_id, r.state, r.outcome
    from record_jobs(caller.types, caller.payloads, caller.options, caller.tenant, caller.creator, caller.ids) r;
  end loop;
end
$$;

-- Record the intents of many callers, without those whose keys other transactions have taken and not committed yet. Those
-- have no answer. Each is waited for for a few milliseconds, so that all of them are found in one statement. An intent
-- that is refused has the outcome `refused` and no job: sent alone, it gets its error.
create or replace function submit_free(
  tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[], ids uuid[]
) returns table (item integer, job_id uuid, state text, outcome text)
language plpgsql security definer
set search_path from current
set lock_timeout = '5ms'
as $$
#variable_conflict use_column
begin
  if array[cardinality(tenants), cardinality(creators), cardinality(payloads), cardinality(options), cardinality(ids)]
    <> array_fill(coalesce(cardinality(types), 0), array[5]) then
    raise exception 'all lists must have the same length' using errcode = 'HF002';
  end if;
  for position in 1 .. coalesce(cardinality(types), 0) loop
    perform refuse_no_tenant(tenants[position]);
    begin
      perform check_enqueue(
        types[position:position], payloads[position:position], options[position:position], tenants[position]);
      perform check_texts(creators[position], null);
      return query
      select position, r.job_id, r.state, r.outcome
      from record_jobs(
        types[position:position], payloads[position:position], options[position:position], tenants[position],
        creators[position], ids[position:position]) r;
    exception
      when lock_not_available then
        null;
      when sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        return query select position, null::uuid, null::text, 'refused';
    end;
  end loop;
end
$$;

-- Those of the intents that `submit` refuses whatever else is recorded, each with its error, and nothing is recorded. What
-- has an idempotency key may be answered with its job, so only a part of it is looked at.
create or replace function refused_intents(
  tenants text[], creators text[], types text[], payloads jsonb[], options jsonb[]
) returns table (item integer, code text, message text, "constraint" text)
language plpgsql security definer stable
set search_path from current
as $$
begin
  for position in 1 .. coalesce(cardinality(types), 0) loop
    perform refuse_no_tenant(tenants[position]);
    begin
      perform check_enqueue(
        types[position:position], payloads[position:position], options[position:position], tenants[position]);
      perform check_texts(creators[position], null);
      if options[position] ->> 'idempotency_key' is null then
        perform refuse_closed(types[position:position], '{}');
        if options[position] ->> 'parent_id' is not null then
          perform with_lineage(options[position:position], tenants[position], '{}');
        end if;
      end if;
    exception
      when sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        get stacked diagnostics code = returned_sqlstate, message = message_text, "constraint" = constraint_name;
        item := position;
        return next;
    end;
  end loop;
end
$$;

-- The public fields of jobs, each requested for a tenant.
create or replace function public_jobs(tenants text[], job_ids uuid[])
returns table (
  id uuid, tenant text, type text, state text, target text, created_at timestamptz, updated_at timestamptz)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  if coalesce(cardinality(tenants), 0) = 0 or array_position(tenants, null) is not null then
    raise exception 'a tenant is required' using errcode = 'HF003';
  end if;
  return query
  select j.id, j.tenant, j.type, j.state, j.target, j.created_at, j.updated_at
  from unnest(tenants, job_ids) as asked (tenant, id)
  join jobs j on j.id = asked.id and j.tenant = asked.tenant
  where not is_request(j.type);
end
$$;

-- The public fields of jobs, with what the jobs have reported; a report is a change. Why a job was done is known once
-- it has succeeded. While a job is paused, held or canceled, `message` is what was written for clients about that:
-- never the text of an exception, nor what operators wrote for each other.
create or replace function visible_jobs(tenants text[], job_ids uuid[])
returns table (
  id uuid, tenant text, type text, state text, target text, created_at timestamptz, updated_at timestamptz,
  message text, progress_count bigint, result_count bigint, target_count bigint, last_progress_at timestamptz,
  done_reason text)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  if coalesce(cardinality(tenants), 0) = 0 or array_position(tenants, null) is not null then
    raise exception 'a tenant is required' using errcode = 'HF003';
  end if;
  return query
  select j.id, j.tenant, j.type, j.state, j.target, j.created_at, greatest(j.updated_at, p.last_progress_at),
    left(said.message, 1000), p.progress_count, p.result_count,
    case when p.job_id is not null then j.target_count end, p.last_progress_at,
    case when p.job_id is not null and j.state = 'success' then coalesce(p.done_reason, 'worker_done') end
  from unnest(tenants, job_ids) as asked (tenant, id)
  join jobs j on j.id = asked.id and j.tenant = asked.tenant
  left join job_progress p on p.job_id = j.id
  cross join lateral (
    -- Only the job's own events: with a limit, a plan may walk through those of all jobs, newest first.
    select (array_agg(e.message order by e.id desc))[1] as message
    from job_events e
    where j.state in ('paused', 'error', 'canceled')
      and e.job_id = j.id
      and (e.event = j.state or (j.state = 'canceled' and e.event = 'resolved'))) said
  where not is_request(j.type);
end
$$;

-- The public fields of jobs for servers of older releases, which do not know messages.
create or replace function job_standings(tenants text[], job_ids uuid[])
returns table (
  id uuid, tenant text, type text, state text, target text, created_at timestamptz, updated_at timestamptz,
  progress_count bigint, result_count bigint, target_count bigint, last_progress_at timestamptz, done_reason text)
language sql security definer stable
set search_path from current
as $$
  select v.id, v.tenant, v.type, v.state, v.target, v.created_at, v.updated_at, v.progress_count, v.result_count,
    v.target_count, v.last_progress_at, v.done_reason
  from visible_jobs(tenants, job_ids) v
$$;

-- The items of a job, page by page.
create or replace function tenant_items(tenant text, job_id uuid, after bigint, max_items integer)
returns table (id bigint, collection text, key text, data jsonb, created_at timestamptz)
language plpgsql security definer stable
set search_path from current
as $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(tenant_items.tenant);
  return query
  select i.* from get_items(tenant_items.job_id, after, max_items, tenant_items.tenant) i;
end
$$;

-- The items of a job, page by page, bounded in bytes: see `items_page`.
create or replace function tenant_items_page(tenant text, job_id uuid, after bigint, max_items integer)
returns table (id bigint, collection text, key text, data text, created_at timestamptz, more boolean)
language plpgsql security definer stable
set search_path from current
as $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(tenant_items_page.tenant);
  return query
  select i.* from items_page(tenant_items_page.job_id, tenant_items_page.tenant, after, max_items) i;
end
$$;

-- How a job ended: its result, and the error of its last attempt. What an operator wrote when he decided about the job is
-- for operators.
create or replace function job_result(tenant text, job_id uuid)
returns table (id uuid, state text, result jsonb, error_type text, error_message text)
language plpgsql security definer stable
set search_path from current
as $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(job_result.tenant);
  return query
  select j.id, j.state, j.result,
    case when j.state in ('dead', 'error') then last.error_type end,
    case
      when j.state not in ('dead', 'error') then null
      when last.error_type in (operator_error('kill'), operator_error('fail')) then 'an operator ended the job'
      else coalesce(last.error_message, j.last_error)
    end
  from jobs j
  left join lateral (
    select t.error_type, t.error_message
    from job_attempts t
    where t.job_id = j.id
    order by t.attempt desc
    limit 1) last on true
  where j.id = job_result.job_id and j.tenant = job_result.tenant and not is_request(j.type);
end
$$;

-- Ask for something, as `request` does, and write down who did. With a target, the job must be of that target. Notes
-- from a tenant's own routes are for that tenant to read.
create or replace function tenant_request(
  tenant text, verb text, id uuid, by text, note text, only_target text default null, by_key uuid default null
) returns text
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  answer text;
begin
  perform refuse_no_tenant(tenant_request.tenant);
  if only_target is not null and not exists (
    select from jobs j
    where j.id = tenant_request.id and j.tenant = tenant_request.tenant and j.target = only_target) then
    return 'not-found';
  end if;
  if verb = 'release' then
    select r.outcome into answer from release_held(array[tenant_request.id], by, tenant_request.tenant) r;
  else
    select r.outcome into answer
    from record_requests(verb, array[tenant_request.id], by, note, note, tenant_request.tenant, true, false) r;
  end if;
  if answer in ('accepted', 'released') then
    perform note_audit(by, by_key, tenant_request.tenant, 'job.' || verb, tenant_request.id::text,
      jsonb_strip_nulls(jsonb_build_object('note', note)));
  end if;
  return answer;
end
$$;

-- How many jobs of a tenant wait for a worker or behind another of their target, counted no further than asked: a large
-- backlog must not make the answer expensive.
create or replace function waiting_jobs(tenant text, up_to integer) returns bigint
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(waiting_jobs.tenant);
  return (
    select count(*)
    from (
      select from streams s join ready r on r.stream = any (entry_streams(s.id)) where s.tenant = waiting_jobs.tenant and s.closed_in is null
      union all
      select from waiting w where w.tenant = waiting_jobs.tenant
      limit up_to) counted);
end
$$;
