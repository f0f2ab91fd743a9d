-- The databases of the embedded server that can hold tables of users.
select d.datname from pg_database d where d.datallowconn and not d.datistemplate order by d.datname;
