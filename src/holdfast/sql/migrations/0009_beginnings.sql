-- Which of the jobs that a worker claimed ahead have begun.
alter table leases add column number bigint;

create table beginnings (
  worker text not null,
  lane   integer not null,
  number bigint not null,
  primary key (worker, lane)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
