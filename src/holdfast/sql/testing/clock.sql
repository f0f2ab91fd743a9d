-- Engine time that tests may stop and move. The testing kit runs this in a schema of its own, before the first
-- migration: functions and column defaults are resolved with that schema first, so these shadow PostgreSQL's own.
-- No migration knows of it, and it cannot be added to a schema that was migrated without it.

do $$
begin
  if to_regclass('holdfast.schema_steps') is not null then
    raise exception 'this schema was migrated without the testing clock and does not get one'
      using errcode = 'HF001', hint = 'The testing kit needs a schema that it makes itself.';
  end if;
end
$$;

create table testing_clock (
  single    boolean primary key default true check (single),
  shift     interval not null default '0',
  frozen_at timestamptz
);

insert into testing_clock default values;

comment on table testing_clock is 'Made by the testing kit: time can be moved here. Not for production.';

create function now() returns timestamptz
language sql stable
as $$
  select coalesce(c.frozen_at, pg_catalog.now() + c.shift) from holdfast.testing_clock c
$$;

create function clock_timestamp() returns timestamptz
language sql volatile
as $$
  select coalesce(c.frozen_at, pg_catalog.clock_timestamp() + c.shift) from holdfast.testing_clock c
$$;

-- The sweep takes back nothing until the server has been up for a lease. In tests it always has.
create function pg_postmaster_start_time() returns timestamptz
language sql stable
as $$
  select timestamptz '1900-01-01 00:00+00'
$$;
