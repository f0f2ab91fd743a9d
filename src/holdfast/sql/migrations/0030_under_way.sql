-- Three functions had kept their names and changed their arguments or answers. They have new names, so that the old
-- ones can tell statements that were under way to be repeated (older.sql). None of them is called by workers or clients.

drop function if exists deal_slots(integer[], integer[], bigint[], integer[], integer);
drop function if exists take_permits(claim_share[], integer, boolean);
drop function if exists free_entries(tid[]);
