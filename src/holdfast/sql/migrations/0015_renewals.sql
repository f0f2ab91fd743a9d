-- Each renewal of leadership has a number, so that a candidate can tell by its own clock for how long there was none.
alter table leaders add column renewals bigint not null default 0;

-- It gets more arguments. Only builds between two releases have it.
drop function if exists preside(text, text, double precision, double precision, jsonb);
