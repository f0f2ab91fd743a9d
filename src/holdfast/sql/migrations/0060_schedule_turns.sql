-- Turns between tenants among schedules that are due, and a bound on how many a tenant may have.

create index schedules_turns on schedules (tenant, look_at, id) where look_at is not null;

-- It has an argument more now, with a default: processes of an older release call it as before.
drop function if exists due_schedules(integer);

insert into settings (name, default_value, description) values
  ('SCHEDULES_PER_TENANT', '1000', 'How many schedules a tenant may have; those that are there stay');
