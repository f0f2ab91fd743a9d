-- Names and keys are compared by their bytes. The order of a language is that of the machine's C library: when another
-- one opens the same data (another distribution, an upgrade, a standby elsewhere), an index in that order does not find
-- what is in it, and a key that has a job gets a second one.
--
-- Only indexes are built anew; no table is rewritten. Columns that no index has keep the order of the database.

-- The view and the functions that return its rows are made again with the functions of this release.
drop view if exists job_details cascade;

alter table beginnings
  alter column worker type text collate "C";
alter table controls
  alter column kind type text collate "C",
  alter column name type text collate "C";
alter table heads
  alter column tenant type text collate "C",
  alter column target type text collate "C";
alter table idempotency_keys
  alter column tenant type text collate "C",
  alter column key type text collate "C";
alter table job_items
  alter column tenant type text collate "C",
  alter column collection type text collate "C",
  alter column key type text collate "C";
alter table job_types
  alter column name type text collate "C";
alter table jobs
  alter column tenant type text collate "C",
  alter column type type text collate "C",
  alter column dedup_key type text collate "C",
  alter column correlation_id type text collate "C";
alter table leaders
  alter column name type text collate "C";
alter table parked
  alter column gate type text collate "C";
alter table permits
  alter column gate type text collate "C";
alter table repairs
  alter column kind type text collate "C";
alter table schema_functions
  alter column name type text collate "C";
alter table settings
  alter column name type text collate "C";
alter table streams
  alter column tenant type text collate "C",
  alter column queue type text collate "C",
  alter column type type text collate "C";
alter table waiting
  alter column tenant type text collate "C",
  alter column target type text collate "C";
alter table workers
  alter column id type text collate "C";
