-- A setting that the engine cannot use is refused (see functions/settings.sql). What is unusable by now is forgotten: the
-- default takes its place.

update settings
set value = null, updated_at = now(), updated_by = 'migration'
where value is not null and (value !~ '^ *[0-9]+([.][0-9]+)?([eE][-+]?[0-9]{1,2})? *$' or length(value) > 30);
