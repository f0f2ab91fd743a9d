-- Numbers and moments have bounds, whoever writes them (see functions/bounds.sql): one endless lease stopped the
-- renewals of all others, and one date after the year 9999 every list. What lies outside is brought to the edge.

update leases
set lease_seconds = 30, expires_at = now() + interval '30 seconds'
where not (lease_seconds between 0 and 604800)
  or not (expires_at between '0002-01-01 00:00+00' and '9999-12-30 00:00+00');

alter table leases
  add constraint leases_bounds_check check (
    lease_seconds between 0 and 604800
    and expires_at between '0002-01-01 00:00+00' and '9999-12-30 00:00+00');

update job_types
set max_attempts = case when max_attempts is not null then greatest(max_attempts, 1) end,
  backoff_base = least(greatest(backoff_base, 0), 2592000),
  backoff_factor = least(greatest(backoff_factor, 1), 1000),
  backoff_max = least(greatest(backoff_max, 0), 2592000),
  backoff_jitter = least(greatest(backoff_jitter, 0), 1),
  timeout_seconds = case when timeout_seconds is not null then least(greatest(timeout_seconds, 0.001), 31536000) end,
  lease_seconds = case when lease_seconds is not null then least(greatest(lease_seconds, 0.1), 604800) end,
  version = greatest(version, 0)
where true;

alter table job_types
  add constraint job_types_bounds_check check (
    max_attempts > 0
    and version >= 0
    and lease_seconds between 0.1 and 604800
    and timeout_seconds between 0.001 and 31536000
    and backoff_base between 0 and 2592000
    and backoff_factor between 1 and 1000
    and backoff_max between 0 and 2592000
    and backoff_jitter between 0 and 1);

update controls set weight = least(greatest(weight, 0.001), 1000) where weight is not null;

alter table controls
  drop constraint controls_weight_check,
  add constraint controls_weight_check check (weight between 0.001 and 1000);

update api_keys set requests_per_second = 1000000 where requests_per_second > 1000000;
update api_keys set expires_at = least(greatest(expires_at, '0002-01-01 00:00+00'), '9999-12-30 00:00+00')
where expires_at is not null;

alter table api_keys
  drop constraint api_keys_rate_check,
  add constraint api_keys_rate_check check (requests_per_second > 0 and requests_per_second <= 1000000),
  add constraint api_keys_expiry_check check (expires_at between '0002-01-01 00:00+00' and '9999-12-30 00:00+00');

update jobs
set created_at = least(greatest(created_at, '0002-01-01 00:00+00'), '9999-12-30 00:00+00'),
  updated_at = least(greatest(updated_at, '0002-01-01 00:00+00'), '9999-12-30 00:00+00'),
  run_at = least(greatest(run_at, '0002-01-01 00:00+00'), '9999-12-30 00:00+00'),
  started_at = case when started_at is not null then least(greatest(started_at, '0002-01-01 00:00+00'), '9999-12-30 00:00+00') end,
  finished_at = case when finished_at is not null then least(greatest(finished_at, '0002-01-01 00:00+00'), '9999-12-30 00:00+00') end,
  last_error_at = case when last_error_at is not null then least(greatest(last_error_at, '0002-01-01 00:00+00'), '9999-12-30 00:00+00') end
where least(created_at, updated_at, run_at, started_at, finished_at, last_error_at) < '0002-01-01 00:00+00'
  or greatest(created_at, updated_at, run_at, started_at, finished_at, last_error_at) > '9999-12-30 00:00+00';

-- Not validated: that would read the whole table once more while nobody else can use it.
alter table jobs
  add constraint jobs_moments_check check (
    least(created_at, updated_at, run_at, started_at, finished_at, last_error_at) >= '0002-01-01 00:00+00'
    and greatest(created_at, updated_at, run_at, started_at, finished_at, last_error_at) <= '9999-12-30 00:00+00')
  not valid;

with gone as (
  delete from due d
  where d.run_at < '0002-01-01 00:00+00' or d.run_at > '9999-12-30 00:00+00'
  returning d.job_id
)
insert into due (run_at, job_id)
select j.run_at, j.id
from jobs j
where j.id in (select g.job_id from gone g) and j.state in ('scheduled', 'retry')
on conflict do nothing;

alter table due
  add constraint due_moment_check check (run_at between '0002-01-01 00:00+00' and '9999-12-30 00:00+00');

-- By how much the clock jumped between two renewals of leadership, and when: retention deletes nothing early because of it.
create table clock_steps (
  id         bigint generated always as identity primary key,
  noticed_at timestamptz not null default now(),
  seconds    double precision not null,
  constraint clock_steps_seconds_check check (seconds between -1e12 and 1e12)
);
