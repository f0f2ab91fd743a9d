-- What is said to whom. `message` is what clients are told while a job is paused, held or canceled; notes are for operators.
-- It travels with the interrupt of a running job until its attempt has ended.
alter table job_events add column message text;
alter table leases add column interrupt_message text;

-- They get another argument. Only functions that are replaced with them call them.
drop function if exists record_requests(text, uuid[], text, text, text, boolean, boolean);
drop function if exists flag_attempt(uuid, text, text, text);
drop function if exists carry_out(text, uuid, integer, text, text);
drop function if exists move_waiting(jobs, text, text, text, boolean);
