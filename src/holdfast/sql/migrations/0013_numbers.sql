-- A claim says itself which number each job has. Nobody but builds between two releases has had the functions before it.

drop function if exists claim_ahead(
  text, integer, double precision, integer[], integer[], bigint[], integer[], integer, bigint);
drop function if exists claim_jobs(
  text, integer, double precision, integer[], integer[], bigint[], integer[], integer, bigint, boolean);
