-- name: submit
-- Record the intents of many callers at once.
select item, job_id, state, outcome
from holdfast.submit(
  $1::text[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::text[]::jsonb[], $6::uuid[]);

-- name: submit_free
-- The same, without those whose keys belong to open transactions.
select item, job_id, state, outcome
from holdfast.submit_free(
  $1::text[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::text[]::jsonb[], $6::uuid[]);

-- name: refused_intents
-- Those that would be refused, and why.
select item, code, message, "constraint"
from holdfast.refused_intents($1::text[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::text[]::jsonb[]);

-- name: visible_jobs
-- What clients may know about jobs.
select id, tenant, type, state, target, holdfast.readable(created_at) as created_at, holdfast.readable(updated_at) as updated_at,
  message, progress_count, result_count, target_count, holdfast.readable(last_progress_at) as last_progress_at,
  done_reason
from holdfast.visible_jobs($1::text[], $2::uuid[]);

-- name: tenant_items
-- The items of a job, page by page.
select * from holdfast.tenant_items_page($1, $2, $3, $4);

-- name: job_result
-- How a job ended.
select id, state, result::text as result, error_type, error_message from holdfast.job_result($1, $2);

-- name: tenant_request
-- Make a request for a tenant.
select holdfast.tenant_request($1, $2, $3, holdfast.as_caller($4, $8, $9), $5, $6, $7);

-- name: waiting_jobs
-- How many jobs of a tenant wait, counted up to a number.
select holdfast.waiting_jobs($1, $2);

-- name: count_repeats
-- How many intents have a job already, by their keys.
select holdfast.count_repeats($1, $2::text[], $3::text[], $4::text[]);

-- name: find_key
-- The valid key with this digest, and whether any key exists.
select any_key, id, tenant, name, scopes, requests_per_second, max_waiting, seconds_left
from holdfast.find_key($1);

-- name: find_keys
-- The same for many digests, in their order.
select found.any_key, found.id, found.tenant, found.name, found.scopes, found.requests_per_second, found.max_waiting,
  found.seconds_left
from unnest($1::bytea[]) with ordinality as asked (digest, place)
cross join lateral holdfast.find_key(asked.digest) found
order by asked.place;

-- name: issue_events_token
-- A token for the events of one job, in place of the key with this digest.
select token, expires_at from holdfast.issue_events_token($1, $2, $3);

-- name: find_events_token
-- The valid key that a token stands for, and whether any key exists.
select any_key, id, tenant, name, scopes, requests_per_second, max_waiting, seconds_left
from holdfast.find_events_token($1, $2, $3, $4);

-- name: find_events_tokens
-- The same for many tokens, in their order.
select found.any_key, found.id, found.tenant, found.name, found.scopes, found.requests_per_second, found.max_waiting,
  found.seconds_left
from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bytea[])
  with ordinality as asked (key_id, job_id, till, seal, place)
cross join lateral holdfast.find_events_token(asked.key_id, asked.job_id, asked.till, asked.seal) found
order by asked.place;

-- name: touch_keys
-- Record that these keys were used.
select holdfast.touch_keys($1::uuid[]);

-- name: create_key
-- Create a key.
select id, tenant, name, prefix, scopes, requests_per_second, max_waiting, created_at, created_by, expires_at,
  revoked_at, revoked_by, replaced_by, last_used_at
from holdfast.create_key($1, $2, $3, $4, $5, $6::text[], $7, $8, $9, holdfast.as_caller($10, $12, $13), $11);

-- name: rotate_key
-- Replace a key.
select id, tenant, name, prefix, scopes, requests_per_second, max_waiting, created_at, created_by, expires_at,
  revoked_at, revoked_by, replaced_by, last_used_at
from holdfast.rotate_key($1, $2, $3, $4, $5, holdfast.as_caller($6, $8, $9), $7);

-- name: revoke_key
-- End a key.
select id, tenant, name, prefix, scopes, requests_per_second, max_waiting, created_at, created_by, expires_at,
  revoked_at, revoked_by, replaced_by, last_used_at
from holdfast.revoke_key($1, holdfast.as_caller($2, $4, $5), $3);

-- name: keys_after
-- A page of keys.
select id, left(tenant, 200) as tenant, left(name, 200) as name, left(prefix, 200) as prefix, scopes, requests_per_second,
  max_waiting, holdfast.readable(created_at) as created_at, left(created_by, 500) as created_by, holdfast.readable(expires_at) as expires_at,
  holdfast.readable(revoked_at) as revoked_at, left(revoked_by, 500) as revoked_by, replaced_by, holdfast.readable(last_used_at) as last_used_at
from holdfast.keys_after($1, $2, $3);

-- name: list_audit
-- The audit log, newest first.
select id, holdfast.readable(at) as at, left(actor, 500) as actor, key_id, left(tenant, 200) as tenant, left(action, 200) as action,
  left(subject, 500) as subject, detail::text as detail,
  left(address, 255) as address, left(request_id, 255) as request_id
from holdfast.list_audit($1, $2, $3);

-- name: search_jobs
-- Jobs that match a query, and how far back the search went.
select ids, reached, holdfast.readable(reached_at) as reached_at from holdfast.search_jobs($1::text::jsonb, $2, $3, $4, $5);

-- name: correlated_ids
-- The jobs of one correlation id, oldest first, page by page.
select holdfast.correlated_ids($1, $2, $3, $4) as ids;

-- name: job_family
-- A job with its ancestors and descendants.
select job_id, depth, complete from holdfast.job_family($1, $2, $3);

-- name: clean_up
-- Delete, or count, ended jobs whose retention is over.
select success, canceled, dead, reached from holdfast.clean_up_as($1, $2, $3, $4);

-- name: list_failures
-- Failures by fingerprint, the most recent first.
select left(tenant, 200) as tenant, fingerprint, left(type, 200) as type, left(error_type, 200) as error_type,
  left(message, 500) as message, count, open_count, open_more, first_seen, last_seen, sample_job_id
from holdfast.list_failures($1, $2, $3, $4, $5, $6);

-- name: job_statistics
-- How many jobs are ready and running, per stream.
select tenant, queue, type, ready, running, holdfast.readable(oldest_ready_at) as oldest_ready_at
from holdfast.job_statistics($1)
order by ready + running desc, tenant, queue, type
limit $2;

-- name: job_totals
-- Counts that are not kept per stream.
select due, waiting, dead from holdfast.job_totals($1);

-- name: probe
-- Whether a job could be recorded now.
select holdfast.probe() as writes;
