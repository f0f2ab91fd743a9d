-- What jobs report while they run: how far they have come, where to go on from, and what they found. Apart from
-- `jobs`: a job that reports nothing has no row here, and a report changes no row there.

-- `seqs` are the reports of `attempt` that have counted: one that is sent again counts no second time.
create table job_progress (
  job_id           uuid primary key,
  attempt          integer not null,
  seqs             int8multirange not null,
  progress_count   bigint not null,
  result_count     bigint not null,
  cursor           jsonb,
  last_progress_at timestamptz not null default now(),
  done_reason      text,
  constraint job_progress_done_reason_check check (
    done_reason in ('worker_done', 'target_reached', 'no_more_results'))
) with (fillfactor = 50);

-- What jobs found, once per key of a tenant's collection. `id` numbers them within their job, with gaps: its
-- reports are serialised by the lock on its lease, so that whoever pages through them passes none over.
create table job_items (
  job_id     uuid not null,
  id         bigint not null,
  tenant     text not null,
  collection text not null,
  key        text not null,
  data       jsonb not null,
  created_at timestamptz not null default now(),
  primary key (job_id, id),
  constraint job_items_key unique (tenant, collection, key)
) with (autovacuum_vacuum_insert_scale_factor = 0.5);
