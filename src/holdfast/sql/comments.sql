-- Comments in the database, as `\df+` shows them: the first sentence above each function or view of a file. Names are
-- qualified, because pg_catalog contains some of them, too.
do $comments$
declare
  told record;
begin
  for told in
    select * from (values
      :comments
    ) as c (kind, name, sentence)
  loop
    execute format('comment on %s %I.%I is %L', told.kind, current_schema(), told.name, told.sentence);
  end loop;
end
$comments$;
