-- Who may use the control plane, and what they did there.

-- A key is known by the hash of its secret alone. What was revoked or has expired stays, so that a server whose
-- last key is gone does not become open to everybody again.
create table api_keys (
  id                  uuid primary key,
  tenant              text not null,
  name                text not null,
  prefix              text not null,
  digest              bytea not null,
  scopes              text[] not null,
  requests_per_second real,
  max_waiting         integer,
  created_at          timestamptz not null default now(),
  created_by          text,
  expires_at          timestamptz,
  revoked_at          timestamptz,
  revoked_by          text,
  replaced_by         uuid,
  last_used_at        timestamptz,
  constraint api_keys_digest_key unique (digest),
  constraint api_keys_scopes_check check (
    cardinality(scopes) > 0 and scopes <@ array['submit', 'read', 'work', 'operate', 'admin']),
  constraint api_keys_rate_check check (requests_per_second > 0),
  constraint api_keys_waiting_check check (max_waiting >= 0)
) with (fillfactor = 50);

-- Only ever added to; see the guard.
create table audit_log (
  id      bigint generated always as identity primary key,
  at      timestamptz not null default now(),
  actor   text not null,
  key_id  uuid,
  tenant  text,
  action  text not null,
  subject text,
  detail  jsonb
);

-- Whose jobs wait: asked before a key with a limit may submit more.
create index streams_tenant on streams (tenant);

-- The trace that a job belongs to, as its client named it.
alter table jobs add column traceparent text;
