-- Tenants share slots by weight alone (functions/shares.sql); what chose between heads of equal rank before is gone.

drop function if exists fair_choice(integer[], bigint[], integer[], integer);
drop function if exists weighted_shares(integer[], integer, integer[]);
drop function if exists take_permits(integer[], integer, integer[], integer);
