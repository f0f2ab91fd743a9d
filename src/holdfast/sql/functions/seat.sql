-- Which job is next for a target. This is the only writer of `heads`, and the only way into `ready` for jobs with a
-- target. Settlement and maintenance call it, enqueueing never does. Moves: none.
--
-- A head stays head while it is queued, running, retrying, snoozed, paused or in error. When it has ended, the first
-- job in line follows: a paused job before all others, so that it blocks. A paused job also takes the seat of a head
-- that is queued but not yet claimed; once it is resumed, the older job has its turn again.
--
-- A call waits for others that seat the same target. But a row that somebody keeps locked for longer must not stop the
-- other targets of a batch: a call waits for half a second in all. A target whose row it cannot lock by then is called
-- for again, and seated later.

-- Elect the heads of targets, where there is none, and put them into `ready`.
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
    -- Another session that found the line empty may delete the row between two of these statements. The row is inserted
    -- only if there is none: an insert waits for a session that is changing the row.
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

-- Lock the row of a target that another session has locked. Null if that takes longer than `patience` milliseconds,
-- false if the row has gone meanwhile.
create or replace function lock_head(tenant text, target text, patience integer) returns boolean
language plpgsql
set search_path from current
set lock_timeout = '500ms'
as $$
begin
  -- Only for this call, because of the setting above.
  perform set_config('lock_timeout', patience::text, true);
  perform from heads h where h.tenant = lock_head.tenant and h.target = lock_head.target for update;
  return found;
exception
  when lock_not_available then
    return null;
end
$$;

-- Seat one target, whose row in `heads` is locked. Answers the stream that got an entry.
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
      exists (select from ready_entry(j.stream, j.priority, h.seq)) as lined,
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
        if head.lined and not take_entry(head.stream, head.priority, head.seq) then
          return null;
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
