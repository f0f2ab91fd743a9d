-- A tenant's own jobs, newest first, however many others have (search_jobs). Jobs of the tenant `default`, which is the
-- only one where nobody speaks of tenants, do not pay for it.

create index jobs_of_tenant on jobs (tenant, id) where tenant <> 'default';
