-- What each table is for, as `\d+` shows it. Comments on functions and views are taken from the text above each of
-- them.

comment on table api_keys is 'Who may use the control plane: a key is known by the hash of its secret.';
comment on table audit_log is 'What operators and keys did; it is only ever added to.';
comment on table beginnings is 'Which of the jobs that a worker claimed ahead have begun.';
comment on table bulk_jobs is 'What is left to do of bulk operations.';
comment on table bulks is 'Bulk operations: one action on all jobs that fit a filter, and how far it is.';
comment on table calls is 'Targets whose head is to be looked at, written by enqueueing.';
comment on table clock_steps is 'By how much the clock of the database jumped, and when.';
comment on table closed_types is 'Job types that take no new jobs, with who closed them and why.';
comment on table controls is 'What operators paused, limited or weighted.';
comment on table dead_letters is 'A row for each dead job, until somebody has acknowledged it and retention deletes it.';
comment on table due is 'Scheduled and retrying jobs, by the moment at which they become eligible.';
comment on table erasures is 'How far jobs are erased whose rows are too many for one call.';
comment on table failing is 'Open jobs whose last attempt failed, with the fingerprint of that failure.';
comment on table failures is 'A row for each failure, until the leader has added it up.';
comment on table fingerprints is 'Failures by tenant and fingerprint: how many, since when, and one of the jobs.';
comment on table heads is 'The one job per target that may be ready, run, retry or block the others.';
comment on table idempotency_keys is 'Every idempotency key of a tenant, with its job and the fingerprint of the request.';
comment on table job_attempts is 'A row for each attempt that has ended, with its outcome, duration and log excerpt.';
comment on table job_events is 'The rarer moves of jobs, with who made them and why.';
comment on table job_items is 'What jobs found, once per key of a collection.';
comment on table job_progress is 'How far jobs have come, for those that report it.';
comment on table job_types is 'What workers publish about the job types that they can run.';
comment on table jobs is 'Every job: identity, intent, state and attempt; use the functions of this schema to change it.';
comment on table leaders is 'Which process does maintenance, and until when.';
comment on table leases is 'Which worker runs which attempt, and until when.';
comment on table parked is 'Ready jobs that wait for a permit of their key.';
comment on table payload_shapes is 'What handlers take, as their workers publish it.';
comment on table permits is 'The permits of limits and rates, with the attempts that have them.';
comment on table ready is 'Jobs that can be claimed now, in the order of their stream.';
comment on table repairs is 'What was found inconsistent and mended, by kind; anything but zero is worth a look.';
comment on table schema_functions is 'Which function files were applied, with their checksums.';
comment on table schema_steps is 'Which migrations were applied.';
comment on table settings is 'Settings that can be changed at run time, with their defaults.';
comment on table streams is 'The jobs of one type, in one queue, of one tenant: the unit that workers choose by.';
comment on table waiting is 'The line behind each target.';
comment on table workers is 'Workers, with their slots, job types and last heartbeat.';
