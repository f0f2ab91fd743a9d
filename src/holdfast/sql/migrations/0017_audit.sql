-- Where a change came from: the address of the caller, and the id of the request, as the control plane logged it.

alter table audit_log
  add column address text,
  add column request_id text;
