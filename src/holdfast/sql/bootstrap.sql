-- What must exist before the first migration. Safe to run again.

create table if not exists schema_steps (
  step       integer primary key,
  name       text not null,
  release    text not null,
  applied_at timestamptz not null default now()
);

create table if not exists schema_functions (
  name       text primary key,
  checksum   text not null,
  release    text not null,
  applied_at timestamptz not null default now()
);
