-- What operators read with psql, in a schema of its own: with it in the search path, they find these views by their bare
-- names, and none of the engine's tables. Applied with every migration.

create or replace view holdfast_views.dead_letter_jobs as
select
  d.id, d.original_job, d.error_message, d.error_details, d.died_at, d.acknowledged, d.acknowledged_by,
  d.acknowledged_at
from holdfast.dead_letter_jobs d;
comment on view holdfast_views.dead_letter_jobs is
  'Dead letters, with the dead job itself and the end of its last attempt.';
