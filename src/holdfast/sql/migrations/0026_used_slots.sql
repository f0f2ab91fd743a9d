-- How many slots of each lane a worker uses, as of its last heartbeat; null where the worker does not tell.
alter table workers add column used jsonb;
