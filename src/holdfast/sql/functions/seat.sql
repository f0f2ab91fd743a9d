-- Who is next for a target. The only writer of `heads`, and the only door to `ready` for jobs with a
-- target. Called by settlement and maintenance, never by enqueueing. Moves: none.
--
-- A head stays head while it is queued, running, retrying, snoozed, paused or in error. When it has ended,
-- the first in line follows: a paused job before all others, so that it blocks. A paused job also takes the
-- seat of a head that is queued but not yet claimed; once it is resumed, the older one has its turn again.
--
-- Whoever seats the same target at the same time is waited for. But rows that somebody has locked for longer must not
-- stop the others of a batch: a call waits for half a second in all. A target whose row it does not get is called for
-- again, and seated by a later look.

create or replace function seat(tenants text[], targets text[]) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  asked    record;
  patience integer := 500;
  since    timestamptz;
  woken    integer[] := '{}';
  line     integer;
  had      boolean;
begin
  for asked in
    select distinct a.tenant, a.target
    from unnest(tenants, targets) as a (tenant, target)
    order by 1, 2
  loop
    -- The row may be deleted between two of these statements by whoever found the line empty. It is inserted only where
    -- there is none: an insert waits for whoever is changing the row.
    loop
      perform from heads h where h.tenant = asked.tenant and h.target = asked.target for update skip locked;
      had := found;
      exit when had;
      if not exists (select from heads h where h.tenant = asked.tenant and h.target = asked.target) then
        insert into heads (tenant, target) values (asked.tenant, asked.target) on conflict do nothing;
        had := found;
      elsif patience > 0 then
        since := clock_timestamp();
        had := lock_head(asked.tenant, asked.target, patience);
        patience := case when had is null then 0 else patience - milliseconds(clock_timestamp() - since) end;
      else
        had := null;
      end if;
      exit when had is not false;
    end loop;
    if had then
      line := seat_one(asked.tenant, asked.target);
      if line is not null then
        woken := woken || line;
      end if;
    else
      insert into calls (tenant, target) values (asked.tenant, asked.target);
    end if;
  end loop;
  if cardinality(woken) > 0 then
    perform wake_again(array(select distinct unnest(woken)));
  end if;
end
$$;

-- Lock the row of a target that somebody else has: null if that takes longer than so many milliseconds, false if the row
-- has gone meanwhile.
create or replace function lock_head(tenant text, target text, patience integer) returns boolean
language plpgsql
set search_path from current
set lock_timeout = '500ms'
as $$
begin
  -- For the length of this call, because of the setting above.
  perform set_config('lock_timeout', patience::text, true);
  perform from heads h where h.tenant = lock_head.tenant and h.target = lock_head.target for update;
  return found;
exception
  when lock_not_available then
    return null;
end
$$;

-- One target, whose row in `heads` is locked. Answers the stream that got something to claim.
create or replace function seat_one(tenant text, target text) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  head      record;
  candidate record;
  new_seq   bigint;
begin
  loop
    select h.job_id, h.place, j.state, j.reason, j.attempt, j.stream, j.priority,
      exists (
        select from ready r
        where r.stream in (j.stream, -j.stream)
          and r.rank in (0, ready_rank(j.priority, true), ready_rank(j.priority, false))
          and r.seq = h.seq) as lined,
      h.seq
    into head
    from heads h
    left join jobs j on j.id = h.job_id
    where h.tenant = seat_one.tenant and h.target = seat_one.target;

    select w.turn, w.place, w.job_id into candidate
    from waiting w
    where w.tenant = seat_one.tenant and w.target = seat_one.target
    order by w.turn, w.place
    limit 1;

    if head.state in ('running', 'retry', 'paused', 'error')
      or (head.state = 'scheduled' and head.attempt > 0) then
      return null;
    end if;

    if head.state = 'queued' then
      if candidate.turn = 0 or (not head.lined and candidate.place < head.place) then
        if head.lined then
          delete from ready r
          where r.ctid in (
            select e.ctid
            from ready e
            where e.stream in (head.stream, -head.stream)
              and e.rank in (0, ready_rank(head.priority, true), ready_rank(head.priority, false))
              and e.seq = head.seq
            for update skip locked);
          if not found then
            return null;
          end if;
        end if;
        insert into waiting (tenant, target, turn, place, job_id)
        values (seat_one.tenant, seat_one.target, 1, head.place, head.job_id)
        on conflict do nothing;
      elsif head.lined then
        return null;
      else
        new_seq := nextval('places');
        insert into ready (stream, rank, seq, job_id)
        values (head.stream, ready_rank(head.priority, head.attempt > 0 and head.reason in ('released', 'lost')), new_seq, head.job_id);
        update heads h set seq = new_seq where h.tenant = seat_one.tenant and h.target = seat_one.target;
        return head.stream;
      end if;
    end if;

    if candidate.job_id is null then
      delete from heads h where h.tenant = seat_one.tenant and h.target = seat_one.target;
      return null;
    end if;

    delete from waiting w
    where w.tenant = seat_one.tenant
      and w.target = seat_one.target
      and w.turn = candidate.turn
      and w.place = candidate.place;
    if found then
      update heads h
      set job_id = candidate.job_id, place = candidate.place, seq = null
      where h.tenant = seat_one.tenant and h.target = seat_one.target;
    end if;
  end loop;
end
$$;
