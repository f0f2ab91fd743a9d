-- What a server asks for all remote workers that wait for jobs, together: where there is work, and what concerns their
-- workers (docs/decisions/035-remote-workers.md). Moves: none. Roles: remote.

-- How many jobs can be claimed now, counted up to `most`: in those streams of these pairs of tenant and type in which
-- something is ready, or in the streams that were announced, whosever they are.
create or replace function remote_stock(tenants text[], types text[], announced integer[], most integer)
returns table (id integer, tenant text, type text, queue text, ready integer)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  found integer[] := announced;
  shut  integer[] := '{}';
begin
  if found is null then
    perform half_open_circuits();  -- perhaps there are no other workers who would
    found := array(
      select s.id
      from unnest(tenants, types) as asked (tenant, type)
      join streams s on s.type = asked.type and s.tenant = asked.tenant and s.closed_in is null
      cross join lateral (select from ready r where r.stream = s.id limit 1) entry);
  end if;
  if found <> '{}' and (exists (select from controls) or exists (select from limited_types())) then
    shut := shut_streams(found);
  end if;
  return query
  select s.id, s.tenant, s.type, s.queue,
    case when s.id <> all (shut) then (
      select count(*)::integer from (select from ready r where r.stream = s.id limit most) counted)
    else 0 end
  from unnest(found) as open (id)
  join streams s on s.id = open.id and s.closed_in is null;
end
$$;

-- What concerns workers that wait: of these jobs, or, without any, of all, those that somebody wants to stop, and those
-- that a worker has lost although its lease had not lapsed. Without any, also the workers that are to claim no more.
create or replace function remote_news(job_ids uuid[])
returns table (worker text, job_id uuid, attempt integer, directive text)
language plpgsql security definer stable
set search_path from current
as $$
#variable_conflict use_column
begin
  if job_ids is null then
    return query
    select l.worker, l.job_id, l.attempt, told_interrupt(l.interrupt)
    from leases l
    where l.interrupt is not null and starts_with(l.worker, 'remote:')
    union all
    select w.id, null, null, 'drain'
    from workers w
    where w.kind = 'remote' and w.quiet_at is not null and not is_lost(w);
    return;
  end if;
  return query
  select l.worker, l.job_id, l.attempt, told_interrupt(l.interrupt)
  from leases l
  where l.job_id = any (job_ids) and l.interrupt is not null and starts_with(l.worker, 'remote:')
  union all
  select t.worker, t.job_id, t.attempt, 'lost'
  from unnest(job_ids) as named (id)
  join lateral (
    select t.* from job_attempts t where t.job_id = named.id order by t.attempt desc limit 1) t on true
  where t.taken_back is true and starts_with(t.worker, 'remote:')
    and not exists (select from leases l where l.job_id = named.id and l.attempt = t.attempt);
end
$$;

-- Of these pulls, those whose request id was given jobs that their worker still owns.
create or replace function remote_repeats(tenants text[], workers text[], request_ids text[])
returns table (item integer)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select asked.place::integer
  from unnest(tenants, workers, request_ids) with ordinality as asked (tenant, worker, request_id, place)
  join remote_pulls p on p.tenant = asked.tenant and p.worker = asked.worker and p.request_id = asked.request_id
  where p.pulled_at > now() - interval '5 minutes'
    and exists (
      select
      from unnest(p.job_ids, p.attempts) as given (job_id, attempt)
      join leases l on l.job_id = given.job_id and l.attempt = given.attempt and l.worker = asked.worker)
$$;
