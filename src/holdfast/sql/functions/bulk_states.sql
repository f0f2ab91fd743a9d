-- Which states a bulk operation is about. Moves: none.

-- The states in which an action may change a job, of those that the filter allows. Jobs that ended well or were canceled
-- run again only if the filter names their state.
create or replace function bulk_states(action text, tree jsonb) returns text[]
language sql immutable
set search_path from current
as $$
  select array(
    select s.state
    from unnest(case action
      when 'cancel' then array['created', 'scheduled', 'queued', 'running', 'retry', 'paused', 'error']
      when 'pause' then array['scheduled', 'queued', 'running', 'retry']
      when 'resume' then array['paused', 'error']
      when 'retry' then array['scheduled', 'retry', 'paused', 'error', 'dead']
        || array(select unnest(named_states(tree)) intersect select unnest(array['success', 'canceled']))
      when 'requeue' then array['dead']
      when 'ack' then array['dead']
      when 'reprioritize' then array['created', 'scheduled', 'queued', 'retry', 'paused', 'error']
      else all_states()
    end) as s (state)
    where s.state = any (allowed_states(tree)))
$$;

-- The states that a query names itself: by a term of its own (`state:success`), not by excluding others
-- (`-state:queued`). Of alternatives, each must name the state.
create or replace function named_states(tree jsonb) returns text[]
language plpgsql immutable
set search_path from current
as $$
declare
  named text[] := all_states();
  part  jsonb;
begin
  if tree ? 'and' then
    return array(
      select distinct s.state
      from jsonb_array_elements(tree -> 'and') as p (part), unnest(named_states(p.part)) as s (state));
  elsif tree ? 'or' then
    for part in select p.part from jsonb_array_elements(tree -> 'or') as p (part) loop
      named := array(select unnest(named) intersect select unnest(named_states(part)));
    end loop;
    return named;
  elsif tree ->> 'field' = 'state' then
    return array(select jsonb_array_elements_text(tree -> 'value'));
  end if;
  return '{}';
end
$$;

-- Every state of a job.
create or replace function all_states() returns text[]
language sql immutable parallel safe
as $$
  select array['created', 'scheduled', 'queued', 'running', 'retry', 'paused', 'error', 'success', 'dead', 'canceled']
$$;

-- The states that a query allows; all, where it does not say.
create or replace function allowed_states(tree jsonb) returns text[]
language plpgsql immutable
set search_path from current
as $$
declare
  allowed text[] := all_states();
  part    jsonb;
begin
  if tree ? 'and' then
    for part in select p.part from jsonb_array_elements(tree -> 'and') as p (part) loop
      allowed := array(select unnest(allowed) intersect select unnest(allowed_states(part)));
    end loop;
  elsif tree ? 'or' then
    allowed := array(
      select distinct s.state
      from jsonb_array_elements(tree -> 'or') as p (part), unnest(allowed_states(p.part)) as s (state));
  elsif tree -> 'not' ->> 'field' = 'state' then
    allowed := array(select unnest(allowed) except select unnest(allowed_states(tree -> 'not')));
  elsif tree ->> 'field' = 'state' then
    allowed := array(
      select s.state
      from unnest(allowed) as s (state)
      where exists (
        select from jsonb_array_elements_text(tree -> 'value') as v (value)
        where s.state like replace(like_escaped(v.value), '*', '%')));
  end if;
  return allowed;
end
$$;
