-- What is said to whom. `message` is what clients are told while a job is paused, held or canceled; notes are for
-- operators. It travels with the interrupt of a running job until its attempt has ended.
alter table job_events add column message text;
alter table leases add column interrupt_message text;

-- They get another argument. Only functions that are replaced with them call them.
drop function if exists record_requests(text, uuid[], text, text, text, boolean, boolean);
drop function if exists flag_attempt(uuid, text, text, text);
drop function if exists carry_out(text, uuid, integer, text, text);
drop function if exists move_waiting(jobs, text, text, text, boolean);

-- Job types that take no new jobs, with who closed them and why. Not among the controls: whatever stands there is
-- looked at by claims, and a closed type is none of their business.
create table closed_types (
  name        text collate "C" primary key,
  closed_at   timestamptz not null default now(),
  closed_by   text not null,
  closed_note text
);

create constraint trigger secured after insert or update or delete on closed_types
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();
