-- Rules that stood in several places have one each. What a claim is about to take, and the permits that it has
-- locked, are values with names instead of arrays side by side. Functions whose arguments or columns have changed are
-- made anew; none of them is called by workers or clients.

-- What a claim takes from one stream: up to `share` entries from (rank, seq) on, with a rank up to `ceiling`, in one
-- of the ranges that it was asked for. Where tenants share slots: the tenant's number, and what that was dealt in
-- all. Where there are limits: how many may start, and whether keys decide which.
create type claim_share as (
  range   integer,
  stream  integer,
  rank    integer,
  seq     bigint,
  ceiling integer,
  share   integer,
  party   integer,
  portion integer,
  allowed integer,
  keyed   boolean
);

-- An entry of `ready` that a claim has locked, in one of its ranges.
create type claim_entry as (
  tid      tid,
  job_id   uuid,
  stream   integer,
  rank     integer,
  seq      bigint,
  ready_at timestamptz,
  range    integer
);

-- A permit that a claim has locked, for one of its shares (by number) and, in the end, for a job.
create type claim_permit as (
  gate   text,
  slot   integer,
  number integer,
  job_id uuid
);

drop function if exists gates_of(integer);
drop function if exists key_gates(text, text, jsonb);
drop function if exists permit_free(permits, real);
drop function if exists held_outside(text, integer);
drop function if exists take_permits(integer[], integer[], integer, integer[]);
drop function if exists pass_permits(
  integer[], uuid[], tid[], integer, integer[], integer[], text[], integer[], integer[]);
drop function if exists hand_out(text[], integer[], uuid[]);
drop function if exists free_entries(tid[]);
drop function if exists deal_slots(integer[], integer[], bigint[], integer[], integer);
drop function if exists scope_figures(text, text, text, text, integer);
drop function if exists check_scope(text, text, text[]);
drop function if exists note_control(text, text, text, text, uuid, jsonb);
delete from schema_functions where name = 'scopes';
