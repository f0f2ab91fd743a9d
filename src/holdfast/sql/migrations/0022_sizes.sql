-- How large a payload may be.
insert into settings (name, default_value, description) values
  ('PAYLOAD_MAX_BYTES', '1048576', 'How large the payload of a job may be, in bytes of JSON');
