-- Which payloads handlers accept (`holdfast.definitions.shape`), and which live workers accept what. Moves: none.
--
-- During a deploy, workers of one type may accept different payloads. So a payload is valid if one of them accepts it.
-- A worker that has published no shape, such as one of an older release, accepts everything. The engine stores shapes
-- and says which of them count; Python decides whether a payload fits, in the same way as the handlers do.

-- The name of a payload's shape: a hash of its text.
create or replace function shape_digest(shape jsonb) returns text
language sql immutable parallel safe
as $$
  select encode(sha256(convert_to(coalesce(shape::text, ''), 'UTF8')), 'hex')
$$;

-- The types of declarations, each with its shape, or null.
create or replace function declared_shapes(definitions jsonb) returns table (type text, digest text, shape jsonb)
language sql immutable
set search_path from current
as $$
  select distinct on (1) definition ->> 'name', shape_digest(given.shape), given.shape
  from jsonb_array_elements(definitions) as definition
  cross join lateral (select nullif(definition -> 'payload_shape', 'null')) as given (shape)
  order by 1
$$;

-- Store the shapes of declarations as the latest ones. Roles: through publish_types.
create or replace function publish_shapes(definitions jsonb) returns void
language sql
set search_path from current
as $$
  insert into payload_shapes as s (type, digest, shape)
  select d.type, d.digest, d.shape
  from declared_shapes(definitions) d
  order by d.type
  on conflict on constraint payload_shapes_pkey do update set published_at = now()
$$;

-- Forget shapes that were replaced more than a day ago and that no worker has, a thousand at a time.
create or replace function forget_shapes() returns void
language sql
set search_path from current
as $$
  delete from payload_shapes s
  where s.ctid = any (array(
    select o.ctid
    from payload_shapes o
    where o.published_at < now() - interval '1 day'
      and exists (select from payload_shapes n where n.type = o.type and n.published_at > o.published_at)
      and not exists (select from workers w where w.shapes ->> o.type = o.digest)
    limit 1000
    for update skip locked))
$$;

-- The shapes by which payloads of these types are judged, newest first: those of live workers that go on claiming; if
-- there are none, the last one that was published. The text of a shape is left out if the caller has it. A row without
-- a digest says that there is no shape to judge by: with the mode `off` because everything is accepted, otherwise
-- because no worker ever published that type. `mode` is the value of VALIDATE_PAYLOADS. Roles: api, worker, operator,
-- client.
create or replace function accepted_payloads(types text[], known text[])
returns table (type text, mode text, digest text, shape text)
language sql security definer stable
set search_path from current
as $$
  with rule as materialized (
    select setting('VALIDATE_PAYLOADS') as mode
  ), live as materialized (
    select distinct served.type, w.shapes ->> served.type as digest
    from live_workers() w
    cross join lateral unnest(w.types) as served (type)
    where not w.draining and served.type = any (accepted_payloads.types)
      -- Remote workers publish nothing. What Python workers publish holds for them, too, as long as one lives: a key of one
      -- tenant must not end a check that all tenants rely on.
      and (w.kind = 'python' or not exists (
        select from live_workers() p where p.kind = 'python' and not p.draining and served.type = any (p.types)))
  ), last as (
    select distinct on (s.type) s.type, s.digest
    from payload_shapes s
    where s.type = any (accepted_payloads.types) and not exists (select from live where live.type = s.type)
    order by s.type, s.published_at desc, s.digest
  ), counting as materialized (
    select c.type, c.digest, s.shape, s.published_at
    from (select l.type, l.digest from live l union all select l.type, l.digest from last l) c
    left join payload_shapes s on s.type = c.type and s.digest = c.digest
  ), verdict as (
    select asked.type, case
        when rule.mode = 'off' or exists (select from counting c where c.type = asked.type and c.shape is null) then 'off'
        -- A deploy never runs more than 8 versions at once.
        when (select count(*) from counting c where c.type = asked.type) > 8 then 'off'
        else rule.mode
      end as mode
    from (select distinct unnest(accepted_payloads.types)) as asked (type)
    cross join rule
  )
  select v.type, v.mode, c.digest, case when c.digest <> all (accepted_payloads.known) then c.shape::text end
  from verdict v
  left join counting c on c.type = v.type and v.mode <> 'off'
  order by v.type, c.published_at desc, c.digest
$$;

-- The shapes of other live workers for jobs of this type, tenant and queue; a null shape accepts everything. A worker
-- asks for them if its own handler does not accept a payload. Draining workers count: another of their release may
-- follow. Roles: worker.
create or replace function other_shapes(worker text, type text, tenant text, queue text) returns table (shape text)
language sql security definer stable
set search_path from current
as $$
  select distinct s.shape::text
  from live_workers() w
  left join payload_shapes s on s.type = other_shapes.type and s.digest = w.shapes ->> other_shapes.type
  where w.id <> other_shapes.worker
    and other_shapes.type = any (w.types)
    and (w.queues is null or other_shapes.queue = any (w.queues))
    and (w.tenants is null or other_shapes.tenant = any (w.tenants))
$$;

-- The job that belongs to an idempotency key, as `enqueue` would answer it; no row if there is none. Roles: api,
-- worker, operator, client.
create or replace function answered_key(tenant text, key text, type text, payload jsonb)
returns table (job_id uuid, state text, outcome text)
language plpgsql security definer stable
set search_path from current
as $$
#variable_conflict use_column
begin
  perform refuse_no_tenant(answered_key.tenant);
  return query
  select j.id, j.state, case
      when k.fingerprint = job_fingerprint(answered_key.type, answered_key.payload) then 'existing'
      else 'conflict'
    end
  from idempotency_keys k
  join jobs j on j.id = k.job_id and j.tenant = k.tenant
  where k.tenant = answered_key.tenant and k.key = answered_key.key;
end
$$;
