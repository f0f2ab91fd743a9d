-- When a circuit opens, and for how long, where the code that uses it does not say so.

insert into settings (name, default_value, description) values
  ('CIRCUIT_FAILURE_THRESHOLD', '5', 'How many failures open a circuit breaker, for circuits that declare no number'),
  ('CIRCUIT_OPEN_SECONDS', '60', 'How long a circuit breaker stays open the first time, for circuits that declare no length');

-- Null: the code declares none, and the setting is read when calls have failed.
alter table circuits
  alter column failure_threshold drop not null,
  alter column open_seconds drop not null;
