-- Whose turn it is among bulk operations. Roles: worker.
--
-- 1. Tenants take turns, and so do the operations of each tenant: twenty operations of one tenant keep the single one of
--    another waiting for one portion at a time. Turns are shared by the time that they take: after a portion, an operation
--    stands in line as if it had come later by as long as the portion took, so others have as much time before its next.
--    Until it is finished, a portion counts as one that was cut off after three seconds.
-- 2. A turn is noted in a transaction of its own, before the portion. So a portion that fails altogether, because it took
--    too long or its process died, is remembered, and holds up nobody: others come first, and the next portion is smaller.
-- 3. The size of a portion follows how long the ones before took, so that most take a fraction of a second. One job is the
--    least: where the filter takes seconds for one, a portion does, too.

-- The bulk operation whose turn it is; null if there is nothing to do.
create or replace function turn_bulk() returns uuid
language plpgsql security definer
set search_path from current
as $$
declare
  chosen bulks;
begin
  with active as (
    select b.id,
      coalesce(max(b.turned_at) over same_tenant, min(b.started_at) over same_tenant) as tenant_turned_at,
      coalesce(b.turned_at, b.started_at) as own_turned_at
    from bulks b
    where b.state in ('fixing', 'running', 'stopping')
    window same_tenant as (partition by b.tenant)
  )
  select b.* into chosen
  from active a
  join bulks b on b.id = a.id
  where b.state in ('fixing', 'running', 'stopping') and (b.rests_until is null or b.rests_until <= now())
  order by a.tenant_turned_at, a.own_turned_at, a.id
  limit 1
  for update of b skip locked;
  if chosen.id is null then
    return null;
  end if;
  update bulks b
  set turned_at = clock_timestamp() + interval '6 seconds',
    tries = b.tries + 1,
    state = case when b.tries >= 12 then 'stopping' else b.state end,
    error = case
      when b.tries >= 12 and b.state <> 'stopping' then 'it was stopped: 12 portions in a row took too long or failed, even of one job'
      else b.error
    end
  where b.id = chosen.id;
  return chosen.id;
end
$$;

-- Do a portion of a bulk operation whose turn it is, of up to `max_jobs` jobs if they are quick.
create or replace function advance_bulk(id uuid, max_jobs integer) returns void
language plpgsql security definer
set search_path from current
set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  bulk  bulks;
  fault text;
  began timestamptz := clock_timestamp();
  took  double precision;
  share double precision;
begin
  select b.* into bulk
  from bulks b
  where b.id = advance_bulk.id and b.state in ('fixing', 'running', 'stopping')
  for update skip locked;
  if not found then
    return;
  end if;
  -- After a portion that was not finished, the next one has a quarter of its size.
  share := bulk.pace * max_jobs / 4 ^ greatest(0, bulk.tries - 1);
  begin
    if bulk.state = 'fixing' then
      perform fix_bulk(bulk, greatest(1, (20 * share)::integer));
    elsif bulk.state = 'running' then
      perform work_bulk(bulk, greatest(1, (share / case when bulk.action in ('requeue', 'ack') then 1 else 10 end)::integer));
    else
      perform end_bulk(bulk, 50 * max_jobs);
    end if;
  exception
    when serialization_failure or deadlock_detected or lock_not_available then
      update bulks b set rests_until = now() + interval '1 second' where b.id = bulk.id;
    when others then
      get stacked diagnostics fault = message_text;
      update bulks b set state = 'stopping', error = left(fault, 1000) where b.id = bulk.id;
  end;
  took := extract(epoch from clock_timestamp() - began);
  update bulks b
  set tries = 0,
    turned_at = clock_timestamp() + make_interval(secs => took),
    pace = least(1, greatest(0.0001, share / max_jobs * case when took > 0.4 then 0.5 when took < 0.1 then 2 else 1 end))
  where b.id = bulk.id;
end
$$;
