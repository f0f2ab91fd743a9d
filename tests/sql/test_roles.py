"""Every right is a right on a function: what each role may call, and that it can reach nothing else."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import TABLES, Lease, dump, enqueue, run_one, settle

ROLES = ("api", "worker", "operator", "client", "remote")

EVERYBODY = {
    "enqueue", "enqueue_many", "enqueue_plain", "submit", "submit_free", "release_held", "request", "get_jobs",
    "list_jobs",
    "get_attempts", "get_events", "get_progress", "get_items", "backlog", "summaries", "listed_ids", "attempts_page",
    "events_page", "items_page", "payload_limit", "accepted_payloads", "answered_key", "count_repeats",
    "other_names",
}  # fmt: skip
WORKERS = EVERYBODY | {
    "claim", "claim_from", "claim_by_id", "renew", "interrupted", "complete", "fail", "snooze", "hand_back",
    "hand_back_unheard", "release", "release_unknown", "release_unheard", "claim_mark",
    "stop", "eligible_streams", "open_streams", "ready_streams", "work_left", "register_worker",
    "enlist_worker", "enlist", "other_shapes", "beat", "beat_with_slots", "unregister_worker",
    "admit", "forget_permits",
    "publish_types", "lead", "preside", "unheard", "recover", "ended_attempts", "review_leases", "clamp_leases",
    "clamp_rates", "clamp_backoff", "resign",
    "promote", "elect", "age", "sweep", "execute_requests", "reconcile",
    "drop_strays", "headless_targets", "retire", "forget_workers", "verify", "report", "last_cursor", "result_limit",
    "worker_settings", "is_quiet", "stopped_by", "queue_depths",
    "claim_jobs", "claimed_payloads", "may_begin", "record_beginnings",
    "promote_due", "promote_behind", "elect_from", "age_from", "age_lines", "reconcile_pages", "retire_from",
    "retire_known", "drop_stray_leases", "drop_stray_entries", "drop_stray_due", "show_hidden",
    "replace_heads", "seat_headless", "forget_idle_permits", "offer", "serve_ready", "forget_streams",
    "add_failures", "drop_recovered", "forget_fingerprints", "read_letters", "note_held",
    "note_dormant", "drop_stray_dormant",
    "advance_bulk", "forget_bulks", "turn_bulk",
    "sync_circuits", "try_probe", "end_probe", "put_off", "declare_schedules", "due_schedules", "fire_schedules",
    "refuse_schedule", "rewind_schedules", "retire_schedules", "forget_fires", "forget_pulls",
}  # fmt: skip
OPERATORS = EVERYBODY | {
    "verify", "create_key", "rotate_key",
    "revoke_key", "list_keys", "list_audit", "list_settings", "change_setting", "list_workers", "quiet_worker",
    "search_jobs", "job_statistics",
    "job_totals", "attempts_after", "events_after", "keys_after", "correlated_ids", "job_family",
    "clean_up_as", "list_failures",
    "pause_subject", "resume_subject", "list_steering", "claims_ended",
    "pause_scope", "resume_scope", "pause_scope_as", "resume_scope_as",
    "set_limit", "set_weight", "change_limits", "resolve_job", "operator_request",
    "operator_request_as", "close_type", "open_type", "list_closed_types",
    "as_caller", "list_controls",
    "list_queues", "list_types", "list_lanes", "lane_slots", "list_tenants", "drain_state",
    "drain_progress",
    "list_targets", "show_targets", "explain", "act_by_hand",
    "search_letters", "get_letters", "acknowledge_letters", "requeue_letters",
    "is_maintained", "preview_bulk", "start_bulk", "stop_bulk", "list_bulks",
    "list_circuits", "reset_circuit", "open_circuit",
    "put_schedule", "pause_schedule", "resume_schedule", "delete_schedule", "run_schedule",
    "list_schedules", "list_fires",
}  # fmt: skip
CLIENTS = {
    "submit", "submit_free", "refused_intents", "public_jobs", "job_standings", "visible_jobs", "job_result",
    "tenant_items", "tenant_items_page",
    "payload_limit", "tenant_request", "waiting_jobs", "accepted_payloads", "answered_key",
    "count_repeats",
    "find_key", "touch_keys", "probe", "as_caller", "issue_events_token", "find_events_token",
}  # fmt: skip
REMOTES = {
    "remote_pull", "remote_report", "remote_extend", "remote_release", "remote_beat", "remote_stock", "remote_news",
    "remote_repeats",
}  # fmt: skip
#: What may be read beside functions, by role.
READABLE = {role: {"schema_steps"} for role in ROLES}
READABLE["operator"] = {"schema_steps", "dead_letter_jobs", "job_queue_health", "circuit_breakers"}
#: What touches nothing, and needs no rights of its own.
PURE = {"readable"}
GRANTED = {
    role: names | PURE
    for role, names in {
        "api": EVERYBODY,
        "worker": WORKERS,
        "operator": OPERATORS,
        "client": CLIENTS,
        "remote": REMOTES,
    }.items()
}

FUNCTIONS = "select p.oid, p.proname from pg_proc p where p.pronamespace = 'holdfast'::regnamespace"


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_may_call_what_is_listed_here_and_nothing_else(conn: asyncpg.Connection, role: str) -> None:
    rows = await conn.fetch(
        f"select proname, has_function_privilege($1, oid, 'execute') as granted from ({FUNCTIONS}) f",
        f"holdfast_{role}",
    )
    assert {row["proname"] for row in rows if row["granted"]} == GRANTED[role]
    assert {row["proname"] for row in rows if not row["granted"]} >= {"settle", "lapse", "record_jobs", "seat"}


async def test_public_may_call_nothing(conn: asyncpg.Connection) -> None:
    async with conn.transaction():
        stranger = f"hf_stranger_{uuid4().hex}"
        await conn.execute(f"create role {stranger} nologin")
        rows = await conn.fetch(
            f"select proname from ({FUNCTIONS}) f where has_function_privilege('{stranger}', oid, 'execute')"
        )
        assert rows == []
        assert not await conn.fetchval(f"select has_schema_privilege('{stranger}', 'holdfast', 'usage')")
        await conn.execute(f"drop role {stranger}")


@pytest.mark.parametrize("role", ROLES)
async def test_tables_are_out_of_reach(conn: asyncpg.Connection, connect_as: ConnectAs, role: str) -> None:
    await run_one(conn)
    face = await connect_as(role)
    relations = await conn.fetch(
        "select relname, relkind::text from pg_class "
        "where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'v', 'S')"
    )
    assert {row["relname"] for row in relations} >= set(TABLES)
    for name, kind in relations:
        statements = [f"select from {name}"]
        if kind == "r":
            statements += [f"delete from {name}", f"insert into {name} default values", f"truncate {name}"]
        elif kind == "S":
            statements = [f"select nextval('{name}')", f"select setval('{name}', 1)"]
        if name in READABLE[role]:
            statements.remove(f"select from {name}")
        for statement in statements:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await face.execute(statement)


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_moves_a_job_by_hand(conn: asyncpg.Connection, connect_as: ConnectAs, role: str) -> None:
    lease = await run_one(conn)
    face = await connect_as(role)
    for state in ("running", "success", "dead", "retry", "canceled"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await face.execute("update jobs set state = $2, attempt = 2 where id = $1", lease.job_id, state)
    for statement in (
        "alter table jobs disable trigger all",
        "set session_replication_role = replica",
        "drop trigger guard_update on jobs",
        "create table holdfast.mine ()",
        "create or replace function holdfast.refuse_move() returns trigger language plpgsql as 'begin return new; end'",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await face.execute(statement)
    for higher in {"owner", *ROLES} - {role}:
        member = "select pg_has_role($1, $2, 'member')"
        assert not await conn.fetchval(member, f"holdfast_{role}", f"holdfast_{higher}")


async def test_api_cannot_mark_a_job_running_succeeded_or_failed(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    api = await connect_as("api")
    running = await run_one(conn)
    waiting = Lease(await enqueue(api), 1)
    before = await dump(conn)
    ids, numbers = [running.job_id, waiting.job_id], [running.attempt, 1]
    for call in (
        "claim('w1', array['work'])",
        "claim_by_id('w1', ($1::uuid[])[2])",
        "claim_from('w1', 1, 30, array[1], array[-1], array[0::bigint], array[1000])",
        "lapse($1::uuid[], 1e9)",
        "complete('w1', $1::uuid[], $2::integer[])",
        "fail('w1', $1::uuid[], $2::integer[])",
        "snooze('w1', $1::uuid[], $2::integer[], array[1.0]::double precision[])",
        "hand_back('w1', $1::uuid[], $2::integer[])",
        "stop('w1', $1::uuid[], $2::integer[], array['canceled'])",
        "settle('w1', $1::uuid[], $2::integer[], array['lost'], null, null, null, null, null, null, null)",
        "sweep(1e9)",
        "execute_requests()",
        "reconcile()",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await api.execute(
                f"with given as (select $1::uuid[], $2::integer[]) select 1 from given, {call} as called", ids, numbers
            )
    assert await dump(conn) == before
    assert await settle(conn, "complete", [running]) == ["success"]


async def test_functions_with_the_owners_rights_pin_their_search_path(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch(
        "select proname, proconfig from pg_proc where pronamespace = 'holdfast'::regnamespace and prosecdef"
    )
    assert {row["proname"] for row in rows} >= WORKERS
    for row in rows:
        paths = [entry for entry in row["proconfig"] or [] if entry.startswith("search_path=")]
        assert paths == ["search_path=holdfast, pg_catalog, pg_temp"], row["proname"]


async def test_everything_belongs_to_an_owner_without_power(conn: asyncpg.Connection) -> None:
    roles = await conn.fetch(
        "select rolname from pg_roles where rolname = any ($1) "
        "and not (rolsuper or rolcanlogin or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication)",
        [f"holdfast_{role}" for role in ("owner", *ROLES)],
    )
    assert len(roles) == 1 + len(ROLES)
    owners = await conn.fetch(
        "select distinct owner::regrole::text from ("
        "  select relowner as owner from pg_class where relnamespace = 'holdfast'::regnamespace"
        "  union all select proowner from pg_proc where pronamespace = 'holdfast'::regnamespace"
        "  union all select nspowner from pg_namespace where nspname = 'holdfast') o"
    )
    assert [row[0] for row in owners] == ["holdfast_owner"]


async def test_a_hijacked_search_path_changes_nothing(connect_as: ConnectAs) -> None:
    api = await connect_as("api")
    await api.execute("create temp table jobs (id uuid); create temp table ready (stream integer)")
    await api.execute("set search_path = pg_temp, holdfast")
    job_id = await api.fetchval("select job_id from holdfast.enqueue('work')")
    assert await api.fetchval("select count(*) from pg_temp.jobs") == 0
    assert await api.fetchval("select state from holdfast.get_jobs(array[$1::uuid])", job_id) == "queued"
