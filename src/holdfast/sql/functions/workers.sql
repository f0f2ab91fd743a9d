-- Workers as operators see them, and telling one of them to claim no more. Moves: none.

-- Workers by id, with the jobs that they run: up to a hundred for each, oldest first; not those that were claimed ahead
-- of the slots and have not begun. `lost` is a worker without a heartbeat in the last 15 seconds (a remote one: 90), until it is forgotten.
-- A tenant sees the workers that serve it, with its own jobs only: neither the slots that others use, nor who told a
-- worker to be quiet. Roles: operator.
create or replace function list_workers(
  only_tenant text default null, only_worker text default null, after text default null, max_rows integer default 50
) returns table (
  worker text, host text, pid integer, version text, kind text, lanes jsonb, used jsonb, types text[], queues text[],
  tenants text[], started_at timestamptz, heartbeat_at timestamptz, state text, quiet_at timestamptz, quiet_by text,
  quiet_note text, running bigint, jobs jsonb)
language sql security definer stable
set search_path from current
set jit = off
as $$
  with page as materialized (
    select w.*
    from workers w
    where (only_worker is null or w.id = only_worker)
      and (list_workers.after is null or w.id > list_workers.after)
      and (only_tenant is null or w.tenants is null or only_tenant = any (w.tenants))
    order by w.id
    limit least(greatest(max_rows, 0), 10000)
  ), begun as (
    select l.worker, l.job_id, l.attempt, l.claimed_at, s.type, s.tenant, s.queue,
      row_number() over (partition by l.worker order by l.claimed_at, l.job_id) as place
    from leases l
    join streams s on s.id = l.stream
    where l.worker in (select page.id from page)
      and (only_tenant is null or s.tenant = only_tenant)
      and (l.number is null or exists (
        select from beginnings b
        where b.worker = l.worker and b.lane = lane_of(l.number) and l.number between 1 and b.number))
  ), busy as (
    select b.worker, count(*) as running,
      jsonb_agg(
        jsonb_build_object(
          'job_id', b.job_id, 'type', left(b.type, 200), 'tenant', left(b.tenant, 200), 'queue', left(b.queue, 200),
          'attempt', b.attempt, 'started_at', readable(b.claimed_at))
        order by b.place) filter (where b.place <= 100) as jobs
    from begun b
    group by b.worker
  )
  select page.id, page.host, page.pid, page.version, page.kind, page.lanes,
    case when only_tenant is null and live.id is not null then page.used end, page.types, page.queues,
    case when only_tenant is null or page.tenants is null then page.tenants else array[only_tenant] end,
    readable(page.started_at), readable(page.heartbeat_at),
    case
      when live.id is null then 'lost'
      when page.draining or page.quiet_at is not null then 'draining'
      else 'live'
    end,
    readable(page.quiet_at),
    case when only_tenant is null then page.quiet_by end,
    case when only_tenant is null then page.quiet_note end,
    coalesce(busy.running, 0), coalesce(busy.jobs, '[]')
  from page
  left join live_workers() live on live.id = page.id
  left join busy on busy.worker = page.id
  order by page.id
$$;

-- Tell a worker to claim no more: it hears of it with its next heartbeat, and what it runs goes on. A worker that is
-- quiet stays as it is, with who told it first. Answers whether anything changed; null if there is no such worker. One
-- that is lost may only be frozen, and is told when it goes on. Roles: operator.
create or replace function quiet_worker(worker text, by text, note text default null, by_key uuid default null)
returns boolean
language plpgsql security definer
set search_path from current
as $$
declare
  before workers;
begin
  perform check_texts(by, note);
  if by is null then
    raise exception 'whoever quiets a worker must be named' using errcode = 'HF002';
  end if;
  select w.* into before from workers w where w.id = quiet_worker.worker for update;
  if not found then
    return null;
  elsif before.quiet_at is not null then
    return false;
  end if;
  update workers w
  set quiet_at = now(), quiet_by = quiet_worker.by, quiet_note = quiet_worker.note
  where w.id = quiet_worker.worker;
  perform note_audit(
    by, by_key, null, 'worker.quiet', worker, jsonb_strip_nulls(jsonb_build_object('note', note)));
  return true;
end
$$;

-- Whether somebody has told a worker to claim no more. Roles: worker.
create or replace function is_quiet(worker text) returns boolean
language sql security definer stable
set search_path from current
as $$
  select exists (select from workers w where w.id = is_quiet.worker and w.quiet_at is not null)
$$;
