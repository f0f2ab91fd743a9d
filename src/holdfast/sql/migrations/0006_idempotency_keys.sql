-- One table for all idempotency keys. A key is recorded before its job, with the fingerprint of the request that it
-- answers, and also when the job it is answered with was made by another request (a dedup key was met). It lives as long
-- as that job's row. `jobs.idempotency_key` stays as a readable copy: the key of the request that made the job.

-- First, because it waits for everybody who is recording jobs, and lets nobody else begin before the commit: no key
-- can be missed. Calls that have begun meanwhile are turned away by the guard, and repeated.
drop index jobs_idempotency;

create table idempotency_keys (
  tenant      text not null,
  key         text not null,
  job_id      uuid not null,
  fingerprint bytea not null,
  primary key (tenant, key)
) with (
  fillfactor = 90,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.1,
  autovacuum_vacuum_cost_delay = 0
);

insert into idempotency_keys (tenant, key, job_id, fingerprint)
select j.tenant, j.idempotency_key, j.id, coalesce(j.fingerprint, '')
from jobs j
where j.idempotency_key is not null;

create index idempotency_keys_job on idempotency_keys (job_id);

comment on column jobs.fingerprint is 'Not used since step 6; see idempotency_keys.';
