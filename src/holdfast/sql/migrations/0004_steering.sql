-- Functions that nothing calls any more.
drop function if exists flag_lease(uuid, text, text, text);
drop function if exists execute_request(text, uuid, text, text);
