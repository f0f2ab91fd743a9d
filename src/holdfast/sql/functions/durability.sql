-- What Holdfast acknowledges survives a crash. Moves: none. Roles: none; triggers and the other functions use this.
--
-- 1. A transaction that writes data on which somebody may rely commits synchronously, whatever `synchronous_commit` is
--    for the server, the database, the role, a pooler or the session. A function's own SET clause would end before the
--    commit; a setting that is local to the transaction does not. Triggers on the tables raise it, not the verbs, so
--    that no verb can forget it and hand-written SQL is covered too.
-- 2. It is only ever raised: `off` and `local` become `on`; `remote_write`, `on` and `remote_apply` stay. `local`
--    counts as too low, because it loses a job when a synchronous standby takes over; without such standbys it equals
--    `on`.
-- 3. A caller's transaction that enqueues therefore becomes durable as a whole.
-- 4. It is raised twice: when the row is written (`durable`), and again at the commit (`secured`, a deferred trigger),
--    because much can happen in between: a function of the caller whose SET clause ends, a RESET, a SET LOCAL.
--    `set constraints all immediate` lets the second trigger run early; rows that are written later queue it again.
-- 5. Tables without the trigger are written together with one that has it, or hold nothing that anybody relies on:
--    tests/sql/test_durability.py lists them, with the reasons.

-- Make the commit of the current transaction durable, whatever its session has set.
create or replace function raise_durability() returns trigger
language plpgsql
as $$
begin
  perform pg_catalog.set_config('synchronous_commit', 'on', true);
  return null;
end
$$;

-- Raise durability once more, at the commit, with the search path that the caller has then. The first condition lets
-- the next row queue this trigger again: a deferred trigger of the caller may write more, and after `set constraints
-- all immediate` the commit is still to come.
create or replace function secure_commit() returns trigger
language plpgsql
as $$
begin
  if pg_catalog.set_config('holdfast.commit_secured', '', true) = ''
    and pg_catalog.current_setting('synchronous_commit') in ('off', 'local') then
    perform pg_catalog.set_config('synchronous_commit', 'on', true);
  end if;
  return null;
end
$$;

-- Let the commit of this transaction guarantee everything that it could see, although it may write nothing itself. An
-- answer about an earlier transaction (a repeated key, settlement or request) needs that: the earlier commit may be
-- visible without being on disk (its caller lowered `synchronous_commit` after all), or without having reached a
-- standby (its wait was cut off), and a crash or a failover would undo it. Only a transaction that has written to the
-- WAL flushes it and waits for standbys. Hence the message, which nobody reads.
create or replace function vouch() returns void
language plpgsql
as $$
begin
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  perform pg_logical_emit_message(true, 'holdfast', '');
end
$$;

create or replace trigger durable before insert or update or delete on jobs
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on leases
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on beginnings
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on idempotency_keys
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on job_progress
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on job_items
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on dead_letters
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on job_types
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on settings
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on controls
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on closed_types
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on api_keys
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on audit_log
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on clock_steps
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on schedules
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on bulks
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();

create or replace trigger durable before insert or update or delete on circuits
  for each statement
  when (current_setting('synchronous_commit') in ('off', 'local'))
  execute function raise_durability();
