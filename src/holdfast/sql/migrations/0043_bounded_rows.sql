-- Numbers of schedules and circuits within their bounds, whoever writes them: one row beyond them, made by hand-written SQL,
-- would fail the statements that go through all rows. Their functions refuse such numbers already, so all rows fit.

alter table schedules add constraint schedules_bounds_check check (
  every_seconds between 1 and 31622400 and catch_up between 0 and 2678400 and jitter between 0 and 86400) not valid;

alter table circuits add constraint circuits_bounds_check check (
  failure_threshold between 1 and 1000000 and failure_share between 0.001 and 1 and window_seconds between 1 and 86400
  and open_seconds between 0.1 and 86400 and probes between 1 and 1000 and success_threshold between 1 and 1000
  and opening_seconds between 0.1 and 31536000) not valid;
