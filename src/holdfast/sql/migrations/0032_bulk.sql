-- What operators do with all jobs that fit a filter: bulk operations (docs/decisions/030-failures.md).

create table bulks (
  id          uuid primary key,
  -- Whose jobs it is about; null for those of all tenants.
  tenant      text collate "C",
  action      text not null,
  query       text not null,
  -- The query with what the action adds to it.
  tree        jsonb not null,
  args        jsonb not null default '{}',
  by          text not null,
  by_key      uuid,
  note        text,
  state       text not null default 'fixing' check (state in ('fixing', 'running', 'stopping', 'stopped', 'done')),
  -- Where the ids come from, and how far that walk has come.
  sources     text[] not null,
  reached     text[],
  -- The places in `bulk_jobs` that were given, and the last one that was worked on.
  last_place  bigint not null default 0,
  place       bigint not null default 0,
  -- Not before this moment: what is left is locked by others.
  rests_until timestamptz,
  matched     bigint not null default 0,
  done        bigint not null default 0,
  skipped     bigint not null default 0,
  failed      bigint not null default 0,
  error       text,
  started_at  timestamptz not null default now(),
  finished_at timestamptz
);
create index bulks_active on bulks (id) where state in ('fixing', 'running', 'stopping');
create index bulks_finished on bulks (finished_at, id) where finished_at is not null;
create index bulks_of_tenant on bulks (tenant, id);

-- What is left to do of a bulk operation.
create table bulk_jobs (
  bulk_id uuid not null,
  place   bigint not null,
  job_id  uuid not null,
  tries   smallint not null default 0,
  primary key (bulk_id, place),
  -- Led by the job, so that no plan walks over an operation in this order.
  unique (job_id, bulk_id)
);

create constraint trigger secured after insert or update or delete on bulks
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();
