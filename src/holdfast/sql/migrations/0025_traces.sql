-- A claim tells the trace of each job. Nobody but builds between two releases has had the function before it; those name
-- the columns that they read, and go on working with one more.

drop function if exists claim_jobs(
  text, integer, double precision, integer[], integer[], bigint[], integer[], integer, bigint, boolean);
