-- Erasing a job, and deleting it, take their rows in portions, however many attempts and events it has; and the streams of
-- new jobs are looked up once, by `find_streams`.

drop function if exists make_streams(text, text[], text[]);
drop function if exists erase(uuid, text);
drop function if exists forgotten(uuid, text);
drop function if exists take_away(uuid[]);

-- How far jobs are erased whose rows are too many for one call: up to which attempt, and which event.
create table erasures (
  job_id  uuid primary key,
  attempt integer not null,
  event   bigint not null
);

-- The events of a job, in their order; and whether it was erased, without a look at all of them.
create index job_events_of_job on job_events (job_id, id);
create index job_events_erased on job_events (job_id) where event = 'erased';
drop index job_events_job;
