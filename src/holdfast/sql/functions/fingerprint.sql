-- What failures have in common: a fingerprint of type, error type and message. Pure; none of this moves a job.

-- An error message without what differs from job to job: numbers, ids and quoted text, each of which becomes `?`.
-- 1. A number or an id is a word with a digit in it, and what `. , : / + _ -` join to it: 42, -1.5, 10.0.0.1:5432,
--    0x7f3a, a date, a UUID. Eight or more of the letters a to f alone are an id, too.
-- 2. Quoted text stands in " ' or `, and a backslash keeps the next character from closing it. An apostrophe inside or at
--    the end of a word opens nothing. What is not closed, because somebody cut the message, goes on to its end.
-- 3. Several in a row, with blanks or commas in between, count as one: lists differ in length.
-- Only the first 2,000 characters are looked at, and 500 are kept. Every alternative finds its end where it began, so
-- that the time is proportional to the length, whatever the message is.
create or replace function normalized_message(message text) returns text
language sql immutable parallel safe
as $$
  select left(
    regexp_replace(
      regexp_replace(
        left(message, 2000),
        $p$\Y"(?:[^"\\]|\\.)*(?:"|\\?$)|\Y`[^`]*(?:`|$)|[^\u0001-\u007f]'|\Y'(?:[^'\\]|\\.|'\w)*(?:'\Y|\\?$)|[-+]?(?:[A-Za-z0-9]*|\m[0-9a-fA-F-]*)[0-9][A-Za-z0-9.,:/+_-]*|\m[a-fA-F]{8,}\M$p$,
        '?', 'g'),
      '[?](?:[ ,]*[?])+', '?', 'g'),
    500)
$$;

-- The fingerprint of a failure: 16 characters that are the same for jobs of one type which fail in the same way.
create or replace function fingerprint_of(type text, error_type text, message text) returns text
language sql immutable parallel safe
as $$
  select left(
    encode(
      sha256(convert_to(
        concat_ws(chr(31), type, coalesce(error_type, ''), coalesce(normalized_message(message), '')), 'UTF8')),
      'hex'),
    16)
$$;

-- The message of a failure as it is shown for its fingerprint; null if the attempt does not have it any more, because
-- its job was erased.
create or replace function message_shown(
  fingerprint text, type text, error_type text, error_message text, outcome text
) returns text
language sql immutable parallel safe
as $$
  select case
    when fingerprint_of(type, error_type, coalesce(error_message, outcome)) = fingerprint
    then normalized_message(coalesce(error_message, outcome))
  end
$$;
