-- Streams that have been idle are forgotten in steps, and a tenant has a limited number of them (see functions/streams.sql).
--
-- `used_at` is when a stream was last seen in use. A closed one is not offered to workers, nor used by new jobs: `closed_in`
-- is the transaction that closed it, `unseen_in` the one that found that nobody is left who could take it for open.
alter table streams
  add column used_at   timestamptz not null default now(),
  add column closed_at timestamptz,
  add column closed_in xid8,
  add column unseen_in xid8;

-- Closed streams cost those who look for open ones nothing, however many there are.
drop index streams_names;
create index streams_names on streams (type, queue, tenant, id) where closed_in is null;
create index streams_tenants on streams (tenant) where closed_in is null;

insert into settings (name, default_value, description) values
  ('STREAMS_PER_TENANT', '10000', 'How many combinations of queue and job type a tenant may have in use'),
  ('STREAM_IDLE_SECONDS', '86400', 'How long such a combination must have been idle before it is forgotten');
