-- Lease jobs to a worker. Moves: queued → running (attempt + 1). Roles: worker.
--
-- A claim looks at the heads of the given streams without locking, takes the lowest rank among them, and locks a share
-- from each of up to eight streams with that rank, oldest first. Then it takes the next rank. So priority is strict
-- across streams, and entries that other workers have locked are skipped. Streams that were not asked for are never
-- visited. Where several tenants have heads, the slots are first dealt to the tenants by weight, and priority counts
-- within each tenant (see shares.sql).
--
-- A range (stream, from_rank, from_seq, to_rank) says where to look in a stream: at entries after (from_rank, from_seq)
-- with a rank below to_rank. A worker that remembers where its last claim ended passes a range that starts there. It
-- then does not walk over entries that are dead but cannot be vacuumed yet.
--
-- Rows are looked up by a batch of ids at once (`= any`, which walks neighbouring ids in one pass of the index) and
-- joined by hash: a descent into the index per job was the most expensive part of a claim.
--
-- An entry whose job does not fit, or has a stray lease, is dropped and counted. Reconciliation restores the entries of
-- jobs that should have one.
--
-- A claim passes over a job whose row somebody has locked. A row without `xmax`, which is how enqueueing leaves it, is
-- certainly not locked. Only a row with an `xmax` is locked first, unless somebody else holds it (see locked.sql). A
-- lock that is taken in between is waited for, for a second. Then the claim fails, and the next one passes over the
-- job.
--
-- A claim is `guarded` only if somebody paused or limited something. Then it leaves out streams that are shut, and
-- takes permits for jobs with limits (see limits.sql and permits.sql).
--
-- A claim holds a shared lock until its transaction ends, and takes it before it reads the limits. A session that sets
-- a limit waits for the claims that have not seen it (see `begin_limit`). The lock is in memory, and costs neither a
-- statement nor a buffer.
--
-- A job for which the worker has no free slot yet is claimed ahead, and its lease has a number: see beginnings.sql. The
-- first `at_once` places of a claim begin at once. The places after them are numbered from `next_number` on, if it is
-- given, in the order in which they are returned. If the job of a place does not fit, its number stays unused. For a
-- worker that `records` beginnings, the lease of a job that one more lost lease would end or hold (`last_chance`) has
-- the number 0 instead, at any place: such a job has not begun until the worker records it.

-- Claim up to `max_jobs` jobs from ranges of streams, for workers that remember how far they have come.
create or replace function claim_jobs(
  worker        text,
  max_jobs      integer,
  lease_seconds double precision,
  streams       integer[],
  from_ranks    integer[],
  from_seqs     bigint[],
  to_ranks      integer[],
  at_once       integer,
  next_number   bigint,
  records       boolean
) returns table (
  job_id uuid, attempt integer, stream integer, rank integer, seq bigint, payload jsonb, correlation_id text,
  target text, failures integer, max_attempts integer, created_at timestamptz, ready_at timestamptz,
  claimed_at timestamptz, lease_seconds_given double precision, last_chance boolean, number bigint, traceparent text)
language plpgsql security definer
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  unhindered       boolean := pg_try_advisory_xact_lock_shared(claim_barrier());
  default_seconds  double precision := lease_length(setting('LEASE_SEC_DEFAULT')::double precision);
  default_attempts integer := setting('MAX_ATTEMPTS_DEFAULT');
  locked_by_us     boolean;
  wanted    integer := max_jobs;
  heads     integer[];
  standing  integer[];
  places    bigint[];
  various   boolean;
  many      boolean;
  dealt     boolean;
  ties      integer;
  shares    claim_share[];
  share     claim_share;
  bound     integer;
  entries   claim_entry[];
  ids       uuid[];
  origins   integer[];
  kinds     integer[];
  one_kind  boolean;
  terms     double precision[];
  found     integer;
  budgets   integer[];
  policies  text[];
  started   integer;
  placed    integer := 0;
  moment    timestamptz;
  locked    boolean;
  free      record;
  guarded   boolean;
  shut      integer[];
  permits   claim_permit[];
  granted   record;
begin
  if length(worker) > 255 then
    raise exception 'the name of a worker must have at most 255 characters' using errcode = 'HF002';
  end if;
  if lease_seconds is not null then
    perform check_seconds('lease_seconds', 'lease', array[claim_jobs.lease_seconds]);
  end if;
  if not unhindered then
    perform pg_advisory_xact_lock_shared(claim_barrier());
  end if;
  guarded := exists (select from controls)
    or exists (select from limited_types());
  if guarded then
    shut := shut_streams(streams);
    select array_agg(range.stream), array_agg(range.from_rank), array_agg(range.from_seq), array_agg(range.to_rank)
    into streams, from_ranks, from_seqs, to_ranks
    from unnest(streams, from_ranks, from_seqs, to_ranks) as range (stream, from_rank, from_seq, to_rank)
    where range.stream <> all (shut);
  end if;

  for round in 1..16 loop
    exit when wanted <= 0;

    select array_agg(head.range), array_agg(head.rank), array_agg(head.seq), min(head.stream) < max(head.stream)
    into heads, standing, places, various
    from (
      select range.position as range, range.stream, first.rank, first.seq
      from unnest(streams, from_ranks, from_seqs, to_ranks) with ordinality
        as range (stream, from_rank, from_seq, to_rank, position)
      cross join lateral (
        select r.rank, r.seq
        from ready r
        where r.stream = range.stream
          and (r.rank, r.seq) > (range.from_rank, range.from_seq)
          and r.rank < range.to_rank
        order by r.rank, r.seq
        limit 1) first
      order by first.rank, first.seq
    ) head;
    exit when heads is null;

    dealt := false;
    if various then
      many := coalesce(many, several_tenants());
      if many then
        shares := deal_shares(heads, standing, places, array(select streams[range] from unnest(heads) as range), wanted);
        dealt := shares is not null;
      end if;
    end if;
    if not dealt then
      ties := cardinality(array_positions(standing, standing[1]));
      if ties = 1 then
        shares := array[row(
          heads[1], streams[heads[1]], standing[1], places[1], coalesce(standing[2], 2147483647), wanted,
          null, null, null, null)::claim_share];
      else
        ties := least(ties, 8, wanted);
        shares := array(
          select row(
            heads[nth], streams[heads[nth]], standing[1], places[nth], standing[1], (wanted + ties - 1) / ties,
            null, null, null, null)::claim_share
          from generate_series(1, ties) as nth);
      end if;
    end if;
    bound := wanted;
    if guarded then
      select t.shares, t.permits into shares, permits from lock_permits(shares, round, dealt) t;
      bound := (select sum(s.share) from unnest(shares) s);
    end if;

    -- From the first entry that was seen: the entries before it may be dead, and were walked over once already.
    select
      array_agg(row(
        entry.tid, entry.job_id, entry.stream, entry.rank, entry.seq, entry.ready_at, entry.range)::claim_entry),
      array_agg(entry.job_id), array_agg(entry.range)
    into entries, ids, origins
    from (
      select entry.tid, entry.job_id, head.stream, entry.rank, entry.seq, entry.ready_at, head.range
      from unnest(shares) as head
      cross join lateral (
        select r.ctid as tid, r.job_id, r.rank, r.seq, r.ready_at
        from ready r
        where r.stream = head.stream
          and (r.rank, r.seq) >= (head.rank, head.seq)
          and r.rank < to_ranks[head.range]
          and r.rank <= head.ceiling
        order by r.rank, r.seq
        limit head.share
        for update skip locked) entry
      limit bound) entry;

    if guarded and entries is not null then
      select * into granted from pass_permits(entries, wanted, shares, permits);
      entries := (select array_agg(entries[p] order by p) from unnest(granted.passed) p);
    end if;
    locked := false;
    if entries is not null then
      -- Not now(): since the transaction began, another attempt of the same job or target may have ended.
      moment := clock_timestamp();
      if lease_seconds is null or records then
        select array_agg(s.id), array_agg(t.lease_seconds), array_agg(t.max_attempts), array_agg(t.on_failure)
        into kinds, terms, budgets, policies
        from streams s
        left join lateral (
          select t.lease_seconds, t.max_attempts, t.on_failure from job_types t where t.name = s.type offset 0) t on true
        where s.id = any (array(select s.stream from unnest(shares) s));
        one_kind := cardinality(kinds) = 1;  -- almost always: spares three searches per job
      end if;

      if dealt then
        -- In turns, so that the jobs which a worker starts last are not all of one tenant.
        entries := array(
          select e
          from unnest(entries) as e
          join unnest(shares) as head on head.stream = e.stream
          order by
            (row_number() over (partition by head.party order by e.rank, e.seq, e.job_id) - 0.5) / head.portion,
            e.rank, e.seq, e.job_id);
      elsif ties > 1 then
        entries := array(select e from unnest(entries) as e order by e.rank, e.seq, e.job_id);
      end if;

      -- First the jobs that certainly nobody has locked. If some are left, those whose rows this claim has locked now.
      foreach locked_by_us in array array[false, true] loop
        return query
        with entry as (
          select e.tid, e.job_id, e.stream, e.rank, e.seq, e.ready_at, e.place::integer as place,
            case when one_kind then 1 else array_position(kinds, e.stream) end as kind
          from unnest(entries) with ordinality as e (tid, job_id, stream, rank, seq, ready_at, range, place)
        ), begun as (
          update jobs j
          set state = 'running', attempt = j.attempt + 1, started_at = moment, updated_at = moment, reason = null
          from entry
          where j.id = any (ids)
            and j.id = entry.job_id
            and j.state = 'queued'
            and j.stream = entry.stream
            and (j.xmax = '0' or locked_by_us)
            and j.id <> all (array(select l.job_id from leases l where l.job_id = any (ids)))
          returning j.id, j.attempt, j.stream, entry.place, entry.tid, entry.rank, entry.seq, entry.ready_at,
            j.payload, j.correlation_id, j.target, j.failures,
            attempts_allowed(j.max_attempts, budgets[entry.kind], default_attempts) as max_attempts,
            j.created_at, j.traceparent,
            coalesce(claim_jobs.lease_seconds, terms[entry.kind], default_seconds) as seconds,
            records and next_state(
              'lost', null, null, coalesce(policies[entry.kind], 'retry'),
              failures_after('lost', j.failures),
              attempts_allowed(j.max_attempts, budgets[entry.kind], default_attempts),
              null) <> 'queued' as last_chance,
            case
              when placed + entry.place > at_once then next_number - 1 + placed + entry.place - at_once
            end as number
        ), taken as (
          delete from ready r
          where r.ctid = any (array(select b.tid from begun b))
        ), leased as (
          insert into leases (job_id, attempt, stream, lease_seconds, claimed_at, ready_at, expires_at, worker, number)
          select b.id, b.attempt, b.stream, b.seconds, moment, b.ready_at, moment + make_interval(secs => b.seconds),
            claim_jobs.worker,
            case when b.last_chance then 0 else b.number end
          from begun b
        )
        select b.id, b.attempt, b.stream, b.rank, b.seq, b.payload, b.correlation_id, b.target, b.failures,
          b.max_attempts, b.created_at, b.ready_at, moment, b.seconds, b.last_chance,
          case when not b.last_chance then b.number end, b.traceparent
        from begun b
        order by b.place;

        get diagnostics started = row_count;
        wanted := wanted - started;
        found := cardinality(entries);
        placed := placed + found;
        exit when started = found;
        if locked_by_us then
          perform drop_entries(array(select e.tid from unnest(entries) as e));
          wanted := wanted - (found - started);
        else
          entries := unlocked_entries(array(select e.tid from unnest(entries) as e));
          locked := coalesce(cardinality(entries), 0) < found - started;
          exit when entries is null;
        end if;
      end loop;
      if guarded then
        perform hand_out(granted.permits);
      end if;
    end if;
    exit when wanted <= 0;
    -- No other stream had anything, and this one has given all it had: most claims of a calm system end here.
    exit when cardinality(heads) = 1 and not guarded and not locked;

    -- A stream that gave less than its share has nothing more up to the ceiling: the entries that are still visible
    -- there belong to others.
    foreach share in array shares loop
      if coalesce(cardinality(array_positions(origins, share.range)), 0) < greatest(1, share.share) then
        from_ranks[share.range] := share.ceiling;
        from_seqs[share.range] := 9223372036854775807;
      elsif locked then
        -- The next jobs may be locked as well, any number of them.
        select f.rank, f.seq into free from first_free(share.stream, share.rank, share.seq, to_ranks[share.range]) f;
        from_ranks[share.range] := free.rank;
        from_seqs[share.range] := free.seq - 1;
      end if;
    end loop;
  end loop;

  -- With the first number of a lane, record that no job of this lane has begun.
  if placed > at_once and number_in_lane(next_number) = 1 then
    perform may_begin(worker, array[next_number - 1]);
  end if;
end
$$;

-- Claim as `claim_jobs` does, for a worker that does not number its jobs: all of them count as begun.
create or replace function claim_from(
  worker        text,
  max_jobs      integer,
  lease_seconds double precision,
  streams       integer[],
  from_ranks    integer[],
  from_seqs     bigint[],
  to_ranks      integer[]
) returns table (
  job_id uuid, attempt integer, stream integer, rank integer, seq bigint, payload jsonb, correlation_id text,
  target text, failures integer, max_attempts integer, created_at timestamptz, ready_at timestamptz,
  claimed_at timestamptz, lease_seconds_given double precision)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  return query
  select c.job_id, c.attempt, c.stream, c.rank, c.seq, c.payload, c.correlation_id, c.target, c.failures, c.max_attempts,
    c.created_at, c.ready_at, c.claimed_at, c.lease_seconds_given
  from claim_jobs(
    worker, max_jobs, claim_from.lease_seconds, streams, from_ranks, from_seqs, to_ranks, max_jobs, null, false) c;
end
$$;

-- Claim jobs by type, queue and tenant, for callers that keep no hints. Null queues or tenants mean all of them.
create or replace function claim(
  worker        text,
  types         text[],
  max_jobs      integer default 1,
  queues        text[] default null,
  tenants       text[] default null,
  lease_seconds double precision default null
) returns table (
  job_id uuid, attempt integer, type text, queue text, tenant text, payload jsonb, correlation_id text,
  target text, lease_expires_at timestamptz)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  return query
  select c.job_id, c.attempt, s.type, s.queue, s.tenant, c.payload, c.correlation_id, c.target,
    c.claimed_at + make_interval(secs => c.lease_seconds_given)
  from claim_streams(
    worker, array(select e.id from eligible_streams(types, queues, tenants) e), max_jobs, claim.lease_seconds) c
  join streams s on s.id = c.stream
  order by c.rank, c.seq;
end
$$;

-- Payloads of jobs that this worker has claimed, with the cursors that earlier attempts left; no row for jobs it has
-- lost. Moves: none. Roles: worker.
create or replace function claimed_payloads(worker text, job_ids uuid[], attempts integer[])
returns table (job_id uuid, payload text, cursor text)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select l.job_id, j.payload::text,
    case when l.attempt > 1 then (select p.cursor::text from job_progress p where p.job_id = l.job_id) end
  from unnest(job_ids, attempts) as asked (job_id, attempt)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = claimed_payloads.worker
  join jobs j on j.id = l.job_id
$$;
