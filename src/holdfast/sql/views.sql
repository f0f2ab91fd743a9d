-- What operators read with psql, in a schema of its own: with it in the search path, they find these views by their bare
-- names, and none of the engine's tables. Applied with every migration.

create or replace view holdfast_views.dead_letter_jobs as
select
  d.id, d.original_job, d.error_message, d.error_details, d.died_at, d.acknowledged, d.acknowledged_by,
  d.acknowledged_at
from holdfast.dead_letter_jobs d;
comment on view holdfast_views.dead_letter_jobs is
  'Dead letters, with the dead job itself and the end of its last attempt.';

-- Jobs with the status words and the columns of a plain job table. Three columns find jobs by an index: id,
-- correlation_id and parent_job_id. Few tables have an index by state, and `jobs` must not (docs/decisions/001): so a
-- job's status comes from the small table that it is in. The planner reads only the tables that can have the status asked
-- for, because the status of all other rows is a constant, or is known to be different (`other`). Each branch must stay a
-- plain select from one table, without a condition: then the planner can also look up single jobs in it.
--
-- A job that waits for its retry is in `failing`, or still in `failures`; if it failed before there were these tables, it
-- shows as pending. What belongs together is compared in one `case`, whose selectivity the planner does not guess by
-- multiplying. `last_error_at` is computed so that no plan begins with a scan of all jobs for it.
create or replace view holdfast_views.jobs as
select
  j.id, j.type, j.payload, s.status, j.priority, j.attempt as attempts,
  coalesce(j.max_attempts, t.max_attempts, (
    select coalesce(o.value, o.default_value)::integer
    from holdfast.settings o
    where o.name = 'MAX_ATTEMPTS_DEFAULT')) as max_attempts,
  j.run_at as scheduled_at, j.run_at, j.started_at, j.finished_at as completed_at, j.last_error as error_message,
  j.last_error, case when s.status is not null then j.last_error_at end as last_error_at, j.correlation_id,
  j.parent_id as parent_job_id, j.created_by, j.dedup_key, j.created_at, j.updated_at, j.tenant, j.queue, j.target, j.state,
  j.reason
from holdfast.jobs j
join (
  select l.job_id, 'processing' as status, '' as other, l.attempt from holdfast.leases l
  union all
  select g.job_id, 'failed', '', g.attempt from holdfast.failing g
  union all
  select f.job_id, 'failed', '', f.attempt from holdfast.failures f
  union all
  select d.job_id, 'dead', '', null from holdfast.dead_letters d
  union all
  select o.id, o.word, o.word, null
  from (
    select o.id,
      case o.state
        when 'success' then 'completed'
        when 'canceled' then 'canceled'
        when 'paused' then 'paused'
        when 'error' then 'error'
        when 'running' then null
        when 'dead' then null
        else 'pending'
      end as word
    from holdfast.jobs o) o) s on s.job_id = j.id
left join holdfast.job_types t on t.name = j.type
where s.other <> 'processing' and s.other <> 'failed' and s.other <> 'dead'
  and j.queue <> 'holdfast'
  and case j.state
    when 'running' then s.status = 'processing' and s.attempt = j.attempt
    when 'dead' then s.status = 'dead'
    when 'retry' then case s.status
      when 'failed' then s.attempt = j.attempt
      when 'pending' then
        not exists (select from holdfast.failing g where g.job_id = j.id and g.attempt = j.attempt)
        and not exists (select from holdfast.failures f where f.job_id = j.id and f.attempt = j.attempt)
    end
    else s.status not in ('processing', 'failed', 'dead')
  end;
comment on view holdfast_views.jobs is
  'Jobs with one word for their status; ask by id, correlation_id, parent_job_id, or for processing, failed or dead ones.';

create or replace view holdfast_views.job_attempts as
select
  a.job_id || '/' || a.attempt as id, a.job_id, a.worker as worker_id, a.started_at, a.finished_at,
  case when a.outcome = 'success' then 1 else 0 end as success, a.log_excerpt, a.attempt, a.outcome, a.error_type,
  a.error_message, a.queue_ms, a.duration_ms
from holdfast.job_attempts a;
comment on view holdfast_views.job_attempts is
  'Ended attempts, with what they logged; ask by job_id.';

create or replace view holdfast_views.job_queue_health as
select h.type, h.status, h.count, h.oldest_at, h.oldest_minutes
from holdfast.job_queue_health h;
comment on view holdfast_views.job_queue_health is
  'How many jobs of each type wait, run, failed or died, and since when the oldest of them does.';

create or replace view holdfast_views.circuit_breakers as
select c.service_name, c.state, c.failure_count, c.success_count, c.last_failure_at, c.opened_at, c.half_opened_at,
  c.updated_at, c.tenant
from holdfast.circuit_breakers c;
comment on view holdfast_views.circuit_breakers is
  'Circuit breakers: their state, and what all workers have counted within their windows.';
