-- The storage of the engine: one row per job, and small narrow tables for what moves.
--
-- `jobs` holds identity, intent, state and attempt. None of its indexes, predicates included, names a
-- column that changes per attempt, so that its updates stay heap-only. A queued job stands in `ready` (or,
-- behind the head of its target, in `waiting`), a running one in `leases`, a scheduled or retrying one in
-- `due`. Locks are taken in the order ready → leases → due → jobs → heads.

create sequence places as bigint;

-- A stream is the unit that workers choose by: the jobs of one type, in one queue, of one tenant. It is not
-- unique on purpose: the first to enqueue would make all others wait until it commits. Two that come at once
-- make two streams; both are served, and later jobs go to the older one.
create table streams (
  id     integer generated always as identity primary key,
  tenant text not null,
  queue  text not null,
  type   text not null
);

create index streams_names on streams (type, queue, tenant, id);

create table jobs (
  id              uuid primary key,
  seq             bigint not null,
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  run_at          timestamptz not null default now(),
  started_at      timestamptz,
  finished_at     timestamptz,
  stream          integer not null,
  attempt         integer not null default 0,
  failures        integer not null default 0,
  priority        integer not null default 100,
  max_attempts    integer,
  state           text not null,
  reason          text,
  tenant          text not null,
  type            text not null,
  queue           text not null,
  target          text,
  idempotency_key text,
  fingerprint     bytea,
  dedup_key       text,
  correlation_id  text,
  parent_id       uuid,
  retry_of        uuid,
  created_by      text,
  target_count    bigint,
  payload         jsonb not null,
  result          jsonb,
  last_error      text,
  last_error_at   timestamptz,
  constraint jobs_state_check check (state in (
    'created', 'scheduled', 'queued', 'running', 'retry', 'paused', 'error', 'success', 'dead', 'canceled')),
  constraint jobs_priority_check check (priority between 0 and 1000000000),
  constraint jobs_max_attempts_check check (max_attempts > 0)
) with (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.1,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_vacuum_cost_delay = 0
);

create unique index jobs_idempotency on jobs (tenant, idempotency_key) where idempotency_key is not null;
create unique index jobs_dedup on jobs (tenant, type, dedup_key) where dedup_key is not null;
create index jobs_correlation on jobs (correlation_id) where correlation_id is not null;
create index jobs_parent on jobs (parent_id) where parent_id is not null;

-- What can be claimed now. `rank` orders within a stream: 0 for aged jobs, then per priority those that
-- were handed back before those that are new. `seq` grows with every entry, so that a worker may remember
-- how far it has come.
create table ready (
  stream   integer not null,
  rank     integer not null,
  seq      bigint not null,
  job_id   uuid not null,
  ready_at timestamptz not null default now(),
  primary key (stream, rank, seq)
) with (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- Who runs what, until when. `interrupt` is a request to cancel or pause this very attempt.
create table leases (
  job_id         uuid primary key,
  attempt        integer not null,
  stream         integer not null,
  lease_seconds  real not null,
  claimed_at     timestamptz not null,
  ready_at       timestamptz not null,
  expires_at     timestamptz not null,
  worker         text not null,
  interrupt      text,
  interrupted_by text,
  interrupt_note text,
  constraint leases_interrupt_check check (interrupt in ('cancel', 'pause'))
) with (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

create index leases_expiry on leases (expires_at);

-- What becomes eligible later: scheduled and retrying jobs.
create table due (
  run_at timestamptz not null,
  job_id uuid not null,
  primary key (run_at, job_id)
) with (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- The line behind each target. turn 0: a paused job, which blocks; turn 1: in order of release.
create table waiting (
  tenant text not null,
  target text not null,
  turn   smallint not null,
  place  bigint not null,
  job_id uuid not null,
  primary key (tenant, target, turn, place)
);

-- The one job per target that may stand in `ready`, run, retry, or block the others.
create table heads (
  tenant text not null,
  target text not null,
  job_id uuid,
  place  bigint,
  seq    bigint,
  primary key (tenant, target)
) with (fillfactor = 50);

-- Targets whose head is to be looked at; written by enqueueing, which never touches `heads` itself.
create table calls (
  id     bigint generated always as identity primary key,
  tenant text not null,
  target text not null
);

create table job_attempts (
  job_id        uuid not null,
  attempt       integer not null,
  started_at    timestamptz not null,
  finished_at   timestamptz not null default now(),
  queue_ms      integer,
  duration_ms   integer,
  outcome       text not null,
  worker        text not null,
  error_type    text,
  error_message text,
  traceback     text,
  log_excerpt   text,
  primary key (job_id, attempt),
  constraint job_attempts_outcome_check check (outcome in (
    'success', 'failed', 'lost', 'timeout', 'canceled', 'paused', 'snoozed', 'released'))
) with (autovacuum_vacuum_insert_scale_factor = 0.5);

create table job_events (
  id     bigint generated always as identity primary key,
  job_id uuid not null,
  at     timestamptz not null default now(),
  event  text not null,
  by     text,
  note   text
);

create index job_events_job on job_events (job_id);

create table dead_letters (
  job_id          uuid primary key,
  tenant          text not null,
  type            text not null,
  died_at         timestamptz not null default now(),
  error_type      text,
  error_message   text,
  acknowledged_at timestamptz,
  acknowledged_by text
);

-- What the workers publish about the types that they can run.
create table job_types (
  name            text primary key,
  queue           text not null default 'default',
  lane            text not null default 'general',
  max_attempts    integer,
  backoff_base    real not null default 1,
  backoff_factor  real not null default 2,
  backoff_max     real not null default 300,
  backoff_jitter  real not null default 0.1,
  timeout_seconds real,
  lease_seconds   real,
  on_failure      text not null default 'retry',
  version         integer not null default 1,
  payload_schema  jsonb,
  updated_at      timestamptz not null default now(),
  constraint job_types_on_failure_check check (on_failure in ('retry', 'hold'))
);

create table settings (
  name          text primary key,
  default_value text not null,
  value         text,
  description   text not null,
  updated_at    timestamptz,
  updated_by    text
);

insert into settings (name, default_value, description) values
  ('LEASE_SEC_DEFAULT', '30', 'How long a claim is good for without renewal, in seconds'),
  ('MAX_ATTEMPTS_DEFAULT', '3', 'Failures and lost leases that a job may have'),
  ('AGEING_SECONDS', '900', 'A job that waited longer than this goes first'),
  ('RETENTION_DAYS', '7', 'How long succeeded and canceled jobs are kept'),
  ('RETENTION_DEAD_DAYS', '30', 'How long dead jobs are kept after they were acknowledged');

create table workers (
  id           text primary key,
  host         text not null,
  pid          integer not null,
  version      text not null,
  started_at   timestamptz not null default now(),
  heartbeat_at timestamptz not null default now(),
  draining     boolean not null default false,
  lanes        jsonb not null,
  types        text[] not null,
  queues       text[]
) with (fillfactor = 50);

create table leaders (
  name       text primary key,
  holder     text not null,
  term       bigint not null,
  expires_at timestamptz not null
) with (fillfactor = 50);

-- What was found inconsistent and mended, by kind. Anything but zero is worth a look.
create table repairs (
  kind    text primary key,
  count   bigint not null,
  last_at timestamptz not null default now()
) with (fillfactor = 50);
