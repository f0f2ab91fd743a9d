-- What operators see of failures: one row per tenant and fingerprint. Moves: none. Roles: operator.

-- Failures by fingerprint, the most recent first, before the given place: how many there were, and how many jobs still
-- fail so or died of it unacknowledged (up to 10,000 are counted). Nothing is read from `jobs` except by id. The newest
-- 5,000 rows that the leader has not added up yet are added here. A tenant is not shown its requests (`holdfast.…`).
create or replace function list_failures(
  only_tenant text default null, only_type text default null, before_seen timestamptz default null,
  before_fingerprint text default null, before_tenant text default null, max_rows integer default 50,
  max_pending integer default 5000
) returns table (
  tenant text, fingerprint text, type text, error_type text, message text, count bigint, open_count bigint,
  open_more boolean, first_seen timestamptz, last_seen timestamptz, sample_job_id uuid)
language plpgsql security definer stable
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  -- Each walk has an index with its order and nothing else. A tenant has a bounded number of fingerprints.
  walk text := case
    when only_tenant is not null then
      $w$where f.tenant = $1 and ($2 is null or f.type = $2) and not is_request(f.type)
        and (f.last_seen, f.fingerprint) < ($3, $4)
      order by f.last_seen desc, f.fingerprint desc$w$
    when only_type is not null then
      $w$where f.type = $2 and (f.last_seen, f.fingerprint, f.tenant) < ($3, $4, $5)
      order by f.last_seen desc, f.fingerprint desc, f.tenant desc$w$
    else
      $w$where (f.last_seen, f.fingerprint, f.tenant) < ($3, $4, $5)
      order by f.last_seen desc, f.fingerprint desc, f.tenant desc$w$
  end;
begin
  return query execute format($q$
    with pending as materialized (
      select p.id, p.at, p.job_id, p.attempt, p.fingerprint, j.tenant, j.type,
        not has_ended(j.state)
          and not exists (select from failing g where g.job_id = p.job_id and g.fingerprint = p.fingerprint) as is_open
      from (select f.* from failures f order by f.id desc limit $7) p
      join jobs j on j.id = p.job_id
      where ($1 is null or (j.tenant = $1 and not is_request(j.type))) and ($2 is null or j.type = $2)
    ), recent as materialized (
      select p.tenant, p.fingerprint, p.type, count(*) as count, min(p.at) as first_seen,
        least(max(p.at), clock_timestamp()) as last_seen,
        (array_agg(p.job_id order by p.id desc))[1] as job_id, (array_agg(p.attempt order by p.id desc))[1] as attempt,
        count(distinct p.job_id) filter (where p.is_open) as open_count
      from pending p
      group by p.tenant, p.fingerprint, p.type
    ), stored as materialized (
      select f.*
      from fingerprints f
      %s
      limit $6 + (select count(*) from recent)
    ), page as (
      select s.tenant, s.fingerprint, s.type, s.error_type, s.message, s.count, 0 as open_count, s.first_seen, s.last_seen,
        s.sample_job_id, null::integer as attempt
      from stored s
      where not exists (select from recent r where r.tenant = s.tenant and r.fingerprint = s.fingerprint)
      union all
      select r.tenant, r.fingerprint, r.type, f.error_type, f.message, r.count + coalesce(f.count, 0), r.open_count,
        least(r.first_seen, f.first_seen), greatest(r.last_seen, f.last_seen), r.job_id, r.attempt
      from recent r
      left join lateral (
        select f.* from fingerprints f where f.tenant = r.tenant and f.fingerprint = r.fingerprint offset 0) f on true
      where (greatest(r.last_seen, f.last_seen), r.fingerprint, r.tenant) < ($3, $4, $5)
      order by last_seen desc, fingerprint desc, tenant desc
      limit $6
    )
    select p.tenant, p.fingerprint, p.type, coalesce(p.error_type, a.error_type),
      coalesce(p.message, message_shown(p.fingerprint, p.type, a.error_type, a.error_message, a.outcome)), p.count,
      least(p.open_count + still.failing + still.letters, $8),
      p.open_count + still.failing + still.letters > $8, readable(p.first_seen), readable(p.last_seen),
      sample_of(p.tenant, p.fingerprint, p.sample_job_id)
    from page p
    left join lateral (
      select a.* from job_attempts a where a.job_id = p.sample_job_id and a.attempt = p.attempt offset 0) a on true
    cross join lateral (
      select
        (select count(*) from (
          select from failing g where g.fingerprint = p.fingerprint and g.tenant = p.tenant limit $8 + 1) g) as failing,
        (select count(*) from (
          select from dead_letters d
          where (d.fingerprint, d.tenant, d.acknowledged_at is null) >= (p.fingerprint, p.tenant, true)
            and (d.fingerprint, d.tenant, d.acknowledged_at is null) <= (p.fingerprint, p.tenant, true)
          limit $8 + 1) d) as letters) still
    order by p.last_seen desc, p.fingerprint desc, p.tenant desc
    $q$, walk)
  using only_tenant, only_type, coalesce(before_seen, 'infinity'), coalesce(before_fingerprint, ''),
    coalesce(before_tenant, ''), max_rows, max_pending,
    search_limit('open', 10000)::bigint;
end
$$;

-- A job that failed in this way and can be looked at: the last one, unless it is gone; else another, else none.
create or replace function sample_of(tenant text, fingerprint text, last uuid) returns uuid
language sql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select coalesce(
    (select j.id from jobs j where j.id = last),
    (select g.job_id
     from failing g
     where g.fingerprint = sample_of.fingerprint and g.tenant = sample_of.tenant
     limit 1),
    (select d.job_id
     from dead_letters d
     where d.fingerprint = sample_of.fingerprint and d.tenant = sample_of.tenant
     limit 1))
$$;

-- The fingerprints that all results of a search must have, null if it names none: then it walks over jobs.
create or replace function fingerprints_wanted(tree jsonb) returns text[]
language sql immutable
set search_path from current
as $$
  select (
    select array(select jsonb_array_elements_text(part -> 'value'))
    from jsonb_array_elements(case when tree ? 'and' then tree -> 'and' else jsonb_build_array(tree) end) as part
    where part ->> 'field' = 'fingerprint' and part ->> 'op' = '='
      and (strpos(part ->> 'value', '*') = 0 or (part ->> 'exact')::boolean)
    limit 1)
$$;

-- The jobs that have one of these fingerprints, newest first: those that still fail, and the dead ones. The indexes have
-- this order for one tenant, and for letters that are acknowledged or not. So each of these is read as far as a page
-- needs, and not the whole group.
create or replace function jobs_with_fingerprint(
  prints text[], only_tenant text, before uuid, max_jobs integer
) returns uuid[]
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_sort = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_custom_plan
as $$
declare
  first   uuid := '00000000-0000-0000-0000-000000000000';
  upto    uuid := coalesce(before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  tenants text[] := case when only_tenant is null then tenants_alike(prints, 100) else array[only_tenant] end;
begin
  if tenants is null then
    -- With very many tenants, reading all is quicker than looking at each.
    return array(
      select c.job_id
      from (
        select g.job_id from failing g where g.fingerprint = any (prints) and g.job_id < upto
        union
        select d.job_id from dead_letters d where d.fingerprint = any (prints) and d.job_id < upto) c
      order by c.job_id desc
      limit max_jobs);
  end if;
  return array(
    select c.job_id
    from (
      select alike.job_id
      from unnest(prints) as p (print)
      cross join unnest(tenants) as t (tenant)
      cross join lateral (
        select g.job_id
        from failing g
        where (g.fingerprint, g.tenant, g.job_id) >= (p.print, t.tenant, first)
          and (g.fingerprint, g.tenant, g.job_id) < (p.print, t.tenant, upto)
        order by g.fingerprint desc, g.tenant desc, g.job_id desc
        limit max_jobs) alike
      union
      select alike.job_id
      from unnest(prints) as p (print)
      cross join unnest(tenants) as t (tenant)
      cross join unnest(array[true, false]) as o (is_open)
      cross join lateral (
        select d.job_id
        from dead_letters d
        where (d.fingerprint, d.tenant, d.acknowledged_at is null, d.job_id) >= (p.print, t.tenant, o.is_open, first)
          and (d.fingerprint, d.tenant, d.acknowledged_at is null, d.job_id) < (p.print, t.tenant, o.is_open, upto)
        order by d.fingerprint desc, d.tenant desc, (d.acknowledged_at is null) desc, d.job_id desc
        limit max_jobs) alike) c
    order by c.job_id desc
    limit max_jobs);
end
$$;

-- The tenants that have jobs with one of these fingerprints; null if there are more than `max_tenants`.
create or replace function tenants_alike(prints text[], max_tenants integer) returns text[]
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  tenants text[] := '{}';
  print   text;
  last    text;
begin
  foreach print in array prints loop
    last := '';
    loop
      select least(
        (select g.tenant from failing g where g.fingerprint = print and g.tenant > last order by g.tenant limit 1),
        (select d.tenant from dead_letters d where d.fingerprint = print and d.tenant > last order by d.tenant limit 1))
      into last;
      exit when last is null;
      if last <> all (tenants) then
        tenants := tenants || last;
      end if;
      if cardinality(tenants) > max_tenants then
        return null;
      end if;
    end loop;
  end loop;
  return tenants;
end
$$;
