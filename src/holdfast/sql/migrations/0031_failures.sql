-- What operators see of failures, and what they decide: letters that are acknowledged and requeued, failures by
-- fingerprint, verdicts on running jobs (docs/decisions/030-failures.md).

alter table dead_letters
  alter column tenant type text collate "C",
  alter column type type text collate "C",
  add column fingerprint text collate "C",
  add column note text,
  add column requeued_as uuid;
-- Lists go over one tenant's letters or over all, over those that wait for somebody or over all.
create index dead_letters_died on dead_letters (died_at, job_id);
create index dead_letters_of_tenant on dead_letters (tenant, died_at, job_id);
create index dead_letters_unread on dead_letters (died_at, job_id) where acknowledged_at is null;
create index dead_letters_open on dead_letters (tenant, died_at, job_id) where acknowledged_at is null;
-- Per tenant: how many letters of a fingerprint are open, and which jobs have it.
create index dead_letters_alike on dead_letters (fingerprint, tenant, (acknowledged_at is null), job_id);
-- Letters from before this step. Once the leader has read them, there are none.
create index dead_letters_old on dead_letters (job_id) where fingerprint is null;

-- One row for each failure, until the duty `fingerprints` has added it up.
create table failures (
  id          bigint generated always as identity primary key,
  at          timestamptz not null default now(),
  job_id      uuid not null,
  attempt     integer not null,
  fingerprint text collate "C" not null
);

-- Failures by fingerprint. Only the leader writes here.
create table fingerprints (
  tenant        text collate "C" not null,
  fingerprint   text collate "C" not null,
  type          text collate "C" not null,
  error_type    text,
  message       text,
  count         bigint not null,
  first_seen    timestamptz not null,
  last_seen     timestamptz not null,
  sample_job_id uuid not null,
  primary key (tenant, fingerprint)
);
create index fingerprints_seen on fingerprints (last_seen, fingerprint, tenant);
create index fingerprints_of_tenant on fingerprints (tenant, last_seen, fingerprint);
create index fingerprints_of_type on fingerprints (type, last_seen, fingerprint, tenant);
create index fingerprints_sample on fingerprints (sample_job_id);

-- Open jobs whose last attempt failed, with the fingerprint of that failure. Only the leader writes here.
create table failing (
  job_id      uuid primary key,
  tenant      text collate "C" not null,
  fingerprint text collate "C" not null,
  attempt     integer not null
);
create index failing_fingerprint on failing (fingerprint, tenant, job_id);

-- What an operator has decided about the attempt that runs.
alter table leases add column verdict text;
alter table leases add constraint leases_verdict_check check (verdict in ('retry', 'fail', 'kill')) not valid;

-- The engine has ended this attempt: a later report of its worker does not count. Outcomes alone do not say so, since an
-- attempt under a verdict has failed, whoever ended it.
alter table job_attempts add column taken_back boolean;

-- The jobs of a correlation id and the children of a job, in their order.
create index jobs_correlated on jobs (correlation_id, tenant, id) where correlation_id is not null;
drop index jobs_correlation;
create index jobs_children on jobs (parent_id, id) where parent_id is not null;
drop index jobs_parent;
