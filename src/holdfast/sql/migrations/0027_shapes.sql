-- What handlers take, as their workers publish it: payloads are judged by it before they are recorded (functions/shapes.sql).
-- A type has a row for each shape that some worker has published; without a shape, its handler takes everything.
create table payload_shapes (
  type         text collate "C" not null,
  digest       text collate "C" not null,
  shape        jsonb,
  published_at timestamptz not null default now(),
  primary key (type, digest)
);

-- The digest of each type's shape in this worker; null for workers of releases that publish none.
alter table workers add column shapes jsonb;

insert into settings (name, default_value, description) values
  ('VALIDATE_PAYLOADS', 'refuse',
    'What becomes of payloads over HTTP and by the command line that no live worker takes: refuse, warn or off');
