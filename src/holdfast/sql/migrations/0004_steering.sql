-- What people decide about queues, types, lanes and tenants while everything runs, and what limits need.

-- A row for what somebody paused, limited or weighted; most systems have a few, or none. Kind `everything` (with an
-- empty name) is the drain of the whole installation.
create table controls (
  kind         text not null,
  name         text not null,
  paused_at    timestamptz,
  paused_by    text,
  paused_note  text,
  limit_count  integer,
  rate_count   integer,
  rate_seconds real,
  weight       real,
  updated_at   timestamptz not null default now(),
  updated_by   text,
  primary key (kind, name),
  constraint controls_kind_check check (kind in ('queue', 'type', 'lane', 'tenant', 'everything')),
  constraint controls_limit_check check (limit_count between 0 and 10000),
  constraint controls_rate_check check (rate_count between 1 and 10000 and rate_seconds between 0.001 and 2678400),
  constraint controls_weight_check check (weight > 0)
);

-- The permits of a limit, numbered. One is free once the attempt that had it has no lease any more (of a rate: once
-- its time is over): nothing has to be given back, and so nothing can leak.
create table permits (
  gate       text not null,
  slot       integer not null,
  job_id     uuid,
  attempt    integer,
  granted_at timestamptz not null default '-infinity',
  primary key (gate, slot)
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- Jobs that stood in `ready` while the limit of their key was reached. Their entries there wait under the negative
-- number of their stream, where no claim looks, until a permit falls free.
create table parked (
  stream integer not null,
  rank   integer not null,
  seq    bigint not null,
  gate   text not null,
  primary key (stream, rank, seq)
) with (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

create index parked_gate on parked (gate, stream, rank, seq);

-- What a type declares: how many of its jobs run at once, and start per time, in all or per value of a payload's field.
alter table job_types
  add column limit_count  integer,
  add column limit_key    text,
  add column rate_count   integer,
  add column rate_seconds real,
  add column rate_key     text,
  add constraint job_types_limit_check check (limit_count between 1 and 10000),
  add constraint job_types_rate_check check (rate_count between 1 and 10000 and rate_seconds between 0.001 and 2678400);

create index job_types_limited on job_types (name) where limit_count is not null or rate_count is not null;

-- Whom a worker serves, if not everybody.
alter table workers add column tenants text[];

-- Functions that nothing calls any more.
drop function if exists flag_lease(uuid, text, text, text);
drop function if exists execute_request(text, uuid, text, text);
