-- What waits for a length of time tells its place in the order of things, which no clock changes: so it is known which
-- steps of the clock came after it, and they are subtracted. Entries from before have none, and came before all steps.
alter table due add column entered bigint;
alter table due alter column entered set default nextval('places');
alter table permits add column entered bigint;

-- The place of a renewal, and of the last renewal before a step; null if nobody measured the step.
alter table leaders add column place bigint;
alter table clock_steps add column place bigint;

-- It gets another argument. Only builds between two releases have it.
drop function if exists note_clock_step(double precision);
