-- Circuit breakers: the state of each in one row, and what workers counted (docs/decisions/031-circuits.md).

create table circuits (
  -- Empty for a circuit that all tenants share.
  tenant            text collate "C" not null,
  name              text collate "C" not null,
  failure_threshold integer not null,
  failure_share     double precision not null,
  window_seconds    double precision not null,
  open_seconds      double precision not null,
  probes            integer not null,
  success_threshold integer not null,
  state             text not null default 'closed',
  -- Changes with every change of the state: what began before tells nothing about what is now.
  generation        bigint not null default 1,
  -- How often it opened since it was closed, and for how long the last time; null until somebody resets it.
  openings          integer not null default 0,
  opening_seconds   double precision,
  probe_successes   integer not null default 0,
  opened_at         timestamptz,
  half_opened_at    timestamptz,
  next_probe_at     timestamptz,
  last_failure_at   timestamptz,
  last_error        text,
  forced_by         text,
  forced_note       text,
  used_at           timestamptz not null default now(),
  updated_at        timestamptz not null default now(),
  primary key (tenant, name),
  constraint circuits_state_check check (state in ('closed', 'open', 'half_open'))
);

-- Circuits that may be due: almost always none.
create index circuits_open on circuits (next_probe_at) where state = 'open';

create constraint trigger secured after insert or update or delete on circuits
  deferrable initially deferred
  for each row
  when (case current_setting('holdfast.commit_secured', true) when 'on' then false
    else set_config('holdfast.commit_secured', 'on', true) = 'on' end)
  execute function secure_commit();

-- What each worker has counted within its window, as of its last report. Only that worker writes its row.
create table circuit_counts (
  tenant          text collate "C" not null,
  name            text collate "C" not null,
  worker          text collate "C" not null,
  generation      bigint not null,
  successes       bigint not null,
  failures        bigint not null,
  last_failure_at timestamptz,
  last_error      text,
  reported_at     timestamptz not null default now(),
  primary key (tenant, name, worker)
);

-- The circuit that a job type names. While it is not closed, a control shuts the type's streams.
alter table job_types
  add column circuit text collate "C",
  add column circuit_per_tenant boolean;

alter table controls drop constraint controls_kind_check;
alter table controls add constraint controls_kind_check
  check (kind in ('queue', 'type', 'lane', 'tenant', 'everything', 'circuit')) not valid;
