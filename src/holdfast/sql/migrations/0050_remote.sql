-- Workers in any language, over HTTP (docs/decisions/035-remote-workers.md).

-- What a pull was answered, so that a repeat of it gets the same jobs. Kept for five minutes.
create table remote_pulls (
  tenant     text collate "C" not null,
  worker     text collate "C" not null,
  request_id text collate "C" not null,
  pulled_at  timestamptz not null default now(),
  job_ids    uuid[] not null default '{}',
  attempts   integer[] not null default '{}',
  primary key (tenant, worker, request_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index remote_pulls_age on remote_pulls (pulled_at);

-- What the worker said when it ended the attempt: the same again is a repeat, anything else comes too late.
alter table job_attempts add column report_digest bytea;

-- What the attempt has logged so far; it goes to `job_attempts` when the attempt ends.
alter table job_progress add column log_excerpt text;

insert into settings (name, default_value, description) values
  ('BACKOFF_BASE_SEC', '30', 'Delay before the first retry of a job that a remote worker ran, in seconds'),
  ('BACKOFF_MAX_SEC', '3600', 'Longest delay before a retry of a job that a remote worker ran, in seconds');
