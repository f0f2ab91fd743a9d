-- The roles of the engine, and the login's membership in them. An administrator may run this by hand.

do $$
declare
  role text;
  mode text := case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end;
begin
  foreach role in array array[
    'holdfast_owner', 'holdfast_api', 'holdfast_worker', 'holdfast_operator', 'holdfast_client', 'holdfast_remote'] loop
    if not exists (select from pg_roles where rolname = role) then
      begin
        execute format('create role %I nologin', role);
      exception when duplicate_object or unique_violation then
        null;  -- another process was faster
      end;
    end if;
    if not pg_has_role(current_user, role, mode) then
      execute format('grant %I to current_user', role);
    end if;
  end loop;
end
$$;
