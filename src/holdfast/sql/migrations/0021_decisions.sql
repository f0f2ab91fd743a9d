-- Who decided something, and what it was, stands in columns, and not in texts that a caller writes.

-- The tenant whose own operators paused this, and may resume it; null where the installation's operators did. Whether
-- tenants are told the reason that the installation's operators gave.
alter table controls
  add column paused_tenant text collate "C",
  add column paused_public boolean not null default false;

-- Until now a name that began with the tenant's told it, and a key could have such a name. The key itself does not lie.
update controls c
set paused_tenant = c.name
where c.kind = 'tenant'
  and c.paused_at is not null
  and exists (
    select
    from audit_log a
    join api_keys k on k.id = a.key_id
    where a.action = 'tenant.pause'
      and a.subject = c.name
      and a.at = c.paused_at
      and k.tenant = c.name
      and 'admin' <> all (k.scopes));

-- A count without its seconds passed: what is null is not false.
update controls set rate_count = null, rate_seconds = null where num_nulls(rate_count, rate_seconds) = 1;
update job_types set rate_count = null, rate_seconds = null where num_nulls(rate_count, rate_seconds) = 1;

alter table controls
  add constraint controls_rate_whole_check check (num_nulls(rate_count, rate_seconds) <> 1);
alter table job_types
  add constraint job_types_rate_whole_check check (num_nulls(rate_count, rate_seconds) <> 1);

-- A running job can be resolved as well as canceled: its lease tells which.
alter table leases
  drop constraint leases_interrupt_check,
  add constraint leases_interrupt_check check (interrupt in ('cancel', 'pause', 'resolve'));

-- Figures of the whole installation have a scope of their own.
alter table api_keys
  drop constraint api_keys_scopes_check,
  add constraint api_keys_scopes_check check (
    cardinality(scopes) > 0 and scopes <@ array['submit', 'read', 'work', 'operate', 'metrics', 'admin']);

-- It gets another argument. Nobody but `carry_out` calls it.
drop function if exists move_waiting(jobs, text, text, text);
