-- Names are shown in terminals and lists. They must not contain characters that move the cursor, end a line or change
-- the direction of writing. Moves: none.

-- Whether a name contains characters that are not for terminals and lists.
create or replace function unprintable(name text) returns boolean
language sql immutable strict parallel safe
as $$
  -- Written so that it means the same if backslashes are escapes in plain strings (standard_conforming_strings = off).
  select name ~ E'[\\x01-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]'
$$;

-- Checked when a stream is created, once for all jobs of its tenant, queue and type: later jobs pay nothing for it.
create or replace function refuse_stream() returns trigger
language plpgsql
set search_path from current
as $$
begin
  raise exception '% must not contain control characters',
    case
      when unprintable(new.tenant) then 'a tenant'
      when unprintable(new.queue) then 'the name of a queue'
      else 'a job type'
    end
    using errcode = 'HF002';
end
$$;

create or replace trigger printable before insert on streams
  for each row
  when (unprintable(new.tenant) or unprintable(new.queue) or unprintable(new.type))
  execute function refuse_stream();
