-- What the caller does after a write does not make it volatile: the commit itself raises `synchronous_commit` once more.
--
-- A trigger that is deferred to the commit is queued by the first row that a transaction writes, and by that one alone:
-- one for every row would cost a tenth of a bulk enqueue. Whether it is queued is known from a setting that ends with the
-- transaction, or with the savepoint that is rolled back, just as the queued trigger does. It is set by the condition
-- itself, because nothing else runs between the first row and the second.
-- Rows that a claim moves to `running` queue nothing: nobody relies on them, and claims are the hot path.

create function secure_commit() returns trigger
language plpgsql
as $$
begin
  return null;  -- functions/durability.sql has the body
end
$$;

create constraint trigger secured_insert after insert on jobs
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured_update after update on jobs
  deferrable initially deferred
  for each row
  when (case when new.state = 'running' or current_setting('holdfast.commit_secured', true) = 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured after insert or update on idempotency_keys
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured after insert or update on job_progress
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured after insert or update or delete on dead_letters
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured after insert or update or delete on settings
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured after insert or update or delete on controls
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured after insert or update or delete on api_keys
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

create constraint trigger secured after insert on audit_log
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();
