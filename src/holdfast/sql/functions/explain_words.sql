-- The words of `explain`. Moves: none.

-- What was decided about a job and not carried out yet, as the end of a sentence about it; null if there is nothing.
create or replace function pending_text(id uuid) returns text
language sql stable
set search_path from current
as $$
  select format('; a request to %s it%s %s', d.decision, told(left(d.by, 500), null, left(d.note, 1000)), case
    when is_maintained() then 'is carried out in a moment'
    else 'was accepted, but no process does maintenance to carry it out' end)
  from pending_decision(pending_text.id) d
$$;

-- What a circuit that is not closed is doing, as the rest of a sentence; tenants are not told who opened it.
create or replace function circuit_text(circuit circuits, only_tenant text) returns text
language sql stable
set search_path from current
as $$
  select case
    when circuit.state = 'half_open' then ', which is tried with a few jobs now'
    when circuit.next_probe_at = 'infinity' then format(', which was opened by hand%s until somebody resets it', by_hand.who)
    when circuit.forced_by is not null then
      format(', which was opened by hand%s and is tried again at %s', by_hand.who, moment(circuit.next_probe_at))
    else format(', which is open since %s and is tried again at %s', moment(circuit.opened_at), moment(circuit.next_probe_at))
  end
  from (
    select case when only_tenant is null then
      told(left(circuit.forced_by, 500), null, left(circuit.forced_note, 1000)) end as who) by_hand
$$;

-- What will happen at a time, or should have happened already.
create or replace function due_text(run_at timestamptz, template text) returns text
language sql stable
set search_path from current
as $$
  select case
    when run_at > now() then format(template, moment(run_at))
    when is_maintained() then format(template, moment(run_at)) || ', which is now'
    else format(template, moment(run_at)) || ', but no process does maintenance'
  end
$$;

-- Who did something, when and why, as far as it is known.
create or replace function told(by text, at timestamptz, note text) returns text
language sql immutable
set search_path from current
as $$
  select coalesce(' by ' || single_line(by), '') || coalesce(' at ' || moment(at), '')
    || coalesce(' (' || quoted(nullif(note, '')) || ')', '')
$$;

-- A moment as it is written in a sentence.
create or replace function moment(at timestamptz) returns text
language sql immutable
as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
$$;

-- A text of a person as it is quoted in a sentence.
create or replace function quoted(value text) returns text
language sql immutable
set search_path from current
as $$
  select '"' || single_line(value) || '"'
$$;

-- The first line of a text, cut to 200 characters.
create or replace function single_line(value text) returns text
language sql immutable
as $$
  select case when length(line) > 200 then left(line, 199) || '…' else line end
  from split_part(btrim(replace(value, e'\r', '')), e'\n', 1) as line
$$;
