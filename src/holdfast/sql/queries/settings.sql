-- name: list_settings
-- Settings by name, with the value in force and its origin.
select left(name, 100) as name, left(value, 100) as value, origin, left(default_value, 100) as default_value,
  left(description, 500) as description, holdfast.readable(updated_at) as updated_at, left(updated_by, 500) as updated_by
from holdfast.list_settings($1);

-- name: change_setting
-- Set a setting, or return it to environment and default.
select holdfast.change_setting($1, $2, holdfast.as_caller($3, $6, $7), $4, $5);
