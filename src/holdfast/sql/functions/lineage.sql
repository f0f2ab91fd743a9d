-- How jobs belong together: those of one correlation id, and the tree of parents and children. Moves: none. Roles:
-- operator.

-- The jobs of one correlation id, oldest first, after the given one. The job that others name as theirs (its id is their
-- correlation id) belongs to them. For all tenants, each is walked over by itself, so that it costs no more than the
-- page that it may add.
create or replace function correlated_ids(correlation text, only_tenant text, after uuid, max_jobs integer)
returns uuid[]
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  origin  uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
  root    uuid := case when correlation ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then correlation::uuid end;
  tenants text[] := case when only_tenant is not null then array[only_tenant] else correlated_tenants(correlation) end;
begin
  return array(
    select found.id
    from (
      select page.id
      from unnest(tenants) as own (tenant)
      cross join lateral (
        select j.id
        from jobs j
        where j.correlation_id = correlation and j.tenant = own.tenant and j.id > origin
        order by j.id
        limit max_jobs) page
      union all
      select j.id
      from jobs j
      where j.id = root and j.correlation_id is null and j.id > origin
        and (only_tenant is null or j.tenant = only_tenant)) found
    order by found.id
    limit max_jobs);
end
$$;

-- The tenants that have jobs of this correlation id, at most a thousand.
create or replace function correlated_tenants(correlation text) returns text[]
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  found_one text := '';
  tenants   text[] := '{}';
begin
  while cardinality(tenants) < 1000 loop
    select j.tenant into found_one
    from jobs j
    where j.correlation_id = correlation and j.tenant > found_one
    order by j.tenant
    limit 1;
    exit when not found;
    tenants := tenants || found_one;
  end loop;
  return tenants;
end
$$;

-- The family of a job: its ancestors (negative depths, the oldest first), the job itself (0), and its descendants, level
-- by level. At most `max_jobs` in all and `max_depth` levels either way; `complete` is false where there are more.
create or replace function job_family(
  id uuid, only_tenant text, max_jobs integer default 500, max_depth integer default 50
) returns table (job_id uuid, depth integer, complete boolean)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  own     jobs;
  parent  uuid;
  members uuid[];
  depths  integer[] := '{0}';
  level   uuid[];
  whole   boolean := true;
begin
  select j.* into own from jobs j where j.id = job_family.id and (only_tenant is null or j.tenant = only_tenant);
  if not found then
    return;
  end if;
  members := array[own.id];
  parent := own.parent_id;
  for number in 1..max_depth loop
    select j.parent_id, j.id into parent, own.id from jobs j where j.id = parent and j.tenant = own.tenant;
    exit when not found or own.id = any (members);
    if cardinality(members) = max_jobs or number = max_depth and exists (
      select from jobs j where j.id = parent and j.tenant = own.tenant) then
      whole := false;
    end if;
    exit when cardinality(members) = max_jobs;
    members := own.id || members;
    depths := -number || depths;
  end loop;

  level := array[job_family.id];
  for number in 1..max_depth loop
    level := array(
      select child.id
      from unnest(level) with ordinality as elder (id, place)
      cross join lateral (
        select j.id
        from jobs j
        where j.parent_id = elder.id and j.tenant = own.tenant
        order by j.id
        limit max_jobs + 1) child
      limit max_jobs - cardinality(members) + 1);
    exit when cardinality(level) = 0;
    if cardinality(members) + cardinality(level) > max_jobs then
      whole := false;
      level := level[: max_jobs - cardinality(members)];
    elsif number = max_depth and exists (
      select from unnest(level) as elder (id)
      cross join lateral (
        select from jobs j where j.parent_id = elder.id and j.tenant = own.tenant limit 1) child) then
      whole := false;
    end if;
    members := members || level;
    depths := depths || array_fill(number, array[cardinality(level)]);
    exit when not whole and cardinality(members) >= max_jobs;
  end loop;
  return query
  select m.id, m.depth, whole
  from unnest(members, depths) with ordinality as m (id, depth, place)
  order by m.place;
end
$$;

-- The options of children: a child without a correlation id gets its parent's. A parent must be a job of the same
-- tenant. Positions in `taken` are answered with other jobs. A job that is run again keeps its parent, even if that is
-- gone.
create or replace function with_lineage(options jsonb[], tenant text, taken integer[]) returns jsonb[]
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  unknown text;
  related jsonb[];
begin
  select
    array_agg(
      case
        when parent.id is not null and option ->> 'correlation_id' is null
        then option || jsonb_build_object('correlation_id', coalesce(parent.correlation_id, parent.id::text))
        else option
      end
      order by position),
    min(option ->> 'parent_id') filter (
      where parent.id is null and option ->> 'retry_of' is null and position <> all (taken))
  into related, unknown
  from unnest(options) with ordinality as job (option, position)
  left join lateral (
    select j.id, j.correlation_id
    from jobs j
    where j.id = (option ->> 'parent_id')::uuid and j.tenant = with_lineage.tenant
    offset 0) parent on true;
  if unknown is not null then
    raise exception 'parent_id must be the id of a job of the same tenant; there is none with the id %', unknown
      using errcode = 'HF002';
  end if;
  return related;
end
$$;
