-- Whose turn it is among bulk operations (bulk_turns.sql).

-- When it last had a turn. How many portions in a row were begun and not finished. The share of a full portion that it
-- can do in a fraction of a second.
alter table bulks
  add column turned_at timestamptz,
  add column tries smallint not null default 0,
  add column pace double precision not null default 1;
