-- Schedules: what fires when, and what became of each fire time (docs/decisions/034-schedules.md).

create table schedules (
  id             bigint generated always as identity primary key,
  tenant         text collate "C" not null,
  name           text collate "C" not null,
  -- When it fires: an expression in a zone, or every so many seconds from `anchor` on.
  cron           text,
  every_seconds  double precision,
  anchor         timestamptz not null default now(),
  tz             text not null default 'UTC',
  -- What it records.
  type           text collate "C" not null,
  payload        jsonb not null default '{}',
  options        jsonb not null default '{}',
  overlap        text not null default 'skip' check (overlap in ('skip', 'queue', 'allow')),
  catch_up       double precision not null,
  jitter         double precision not null default 0,
  -- Counts the changes of its definition.
  revision       integer not null default 1,
  -- The definition that code declares, those that it replaced, and when it was last declared; null for operators' own.
  digest         text collate "C",
  replaced       text[] not null default '{}',
  declared_at    timestamptz,
  retired_at     timestamptz,
  paused_at      timestamptz,
  paused_by      text,
  paused_note    text,
  -- The next fire time; null until the leader has computed it, from `reckoned_from` on.
  next_fire_at   timestamptz,
  reckoned_from  timestamptz not null default now(),
  -- What the clock said when that was decided.
  reckoned_at    timestamptz not null default now(),
  -- When the leader looks at it next: at the next fire time, or later after a failure; null if it does not fire.
  look_at        timestamptz default now(),
  last_fire_at   timestamptz,
  last_job_id    uuid,
  fired          bigint not null default 0,
  skipped        bigint not null default 0,
  -- Failures since the last success.
  failures       integer not null default 0,
  last_error     text,
  last_error_at  timestamptz,
  missed_at      timestamptz,
  created_at     timestamptz not null default now(),
  created_by     text not null,
  updated_at     timestamptz not null default now(),
  updated_by     text not null,
  unique (tenant, name),
  check (num_nonnulls(cron, every_seconds) = 1)
) with (fillfactor = 80);
create index schedules_look on schedules (look_at, id) where look_at is not null;
create index schedules_named on schedules (name, tenant);

-- What became of a fire time. The primary key makes sure that it is decided once.
create table schedule_fires (
  schedule_id bigint not null,
  fire_at     timestamptz not null,
  outcome     text not null check (outcome in ('fired', 'existing', 'skipped', 'missed', 'by-hand')),
  job_id      uuid,
  -- All later fire times up to this moment were missed, unless they have a row.
  missed_to   timestamptz,
  by          text,
  decided_at  timestamptz not null default now(),
  primary key (schedule_id, fire_at)
);
create index schedule_fires_jobs on schedule_fires (schedule_id, fire_at) where job_id is not null;
create index schedule_fires_old on schedule_fires (fire_at, schedule_id);
create index schedule_fires_missed on schedule_fires (schedule_id, missed_to) where missed_to is not null;

-- What live workers declare.
alter table workers add column schedules text[];

create constraint trigger secured after insert or update or delete on schedules
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();
