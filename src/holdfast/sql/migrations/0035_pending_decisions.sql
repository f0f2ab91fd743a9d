-- Decisions that were accepted and that maintenance has not carried out yet (docs/decisions/030-failures.md, "Verdicts").

create table pending_decisions (
  job_id     uuid not null,
  request_id uuid not null,
  -- Which of several came first.
  place      bigint generated always as identity,
  -- As a lease has it: pause, cancel, resolve, fail or kill. To delete a job means to cancel it first.
  decision   text not null,
  by         text,
  note       text,
  message    text,
  -- The attempt whose end has carried it out.
  settled_by integer,
  primary key (job_id, request_id)
);
