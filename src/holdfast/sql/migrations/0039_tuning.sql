-- Settings of workers, and the backoff of job types that declare none.

insert into settings (name, default_value, description) values
  ('FAST_TIMEOUT_SECONDS', '120', 'Timeout of the fast lane, for job types that declare none'),
  ('GENERAL_TIMEOUT_SECONDS', '1200', 'Timeout of the general lane, for job types that declare none'),
  ('LANE_TIMEOUTS', '',
    'Timeouts of lanes of one''s own in seconds, for job types that declare none (reports=7200,imports=1800)'),
  ('SHUTDOWN_GRACE_PERIOD_SECONDS', '300', 'How long running jobs may continue after SIGTERM'),
  ('DRAIN_POLICY', 'auto',
    'What becomes of jobs that a drain interrupts; auto: those of types with on_failure=hold are paused, others handed '
    'back; pause and requeue apply to all jobs with a target'),
  ('RETRY_BASE_SECONDS', '1', 'Delay before the first retry, for job types that declare none'),
  ('RETRY_FACTOR', '2', 'By what the delay grows with each retry, for job types that declare none'),
  ('RETRY_MAX_SECONDS', '300', 'Longest delay before a retry, for job types that declare none'),
  ('RETRY_JITTER', '0.1', 'Random part that is added to the delay of a retry, for job types that declare none');

-- Null: the type declares none, and the setting is read when an attempt has failed.
alter table job_types
  alter column backoff_base drop not null, alter column backoff_base drop default,
  alter column backoff_factor drop not null, alter column backoff_factor drop default,
  alter column backoff_max drop not null, alter column backoff_max drop default,
  alter column backoff_jitter drop not null, alter column backoff_jitter drop default;

-- What kind of worker it is, and who told it to stop claiming, when and why.
alter table workers
  add column kind text not null default 'python' check (kind in ('python', 'remote')),
  add column quiet_at timestamptz,
  add column quiet_by text,
  add column quiet_note text;
