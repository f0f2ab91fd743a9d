-- How large a result may be.
insert into settings (name, default_value, description) values
  ('RESULT_MAX_BYTES', '1048576', 'How large a result, a cursor and the data of an item may be, in bytes of JSON');
