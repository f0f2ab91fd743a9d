-- What the leader tells about itself with every renewal: when that was, for how long it has been in touch with the
-- database, and what goes wrong. `doctor` reads it; claims by id judge leases by it.
alter table leaders
  add column renewed_at       timestamptz,
  add column patience_seconds double precision not null default 0,
  add column report           jsonb;

-- Nothing judges a lease by the age of a session any more.
drop function if exists session_seconds();
