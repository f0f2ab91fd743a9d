"""What operators read with psql: the usual queries run as they are written, and look at no more jobs than they show."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from holdfast.model.states import State
from holdfast.store.statements import script
from tests.conftest import ConnectAs
from tests.contracts.test_docs import ROOT
from tests.sql.factories import (
    claim_by_id,
    enqueue,
    enqueue_copies,
    execute,
    job_in,
    make_due,
    promote,
    run_one,
    settle,
)

#: The queries of the job system that these views take their names from, word for word.
HEALTH = "SELECT * FROM job_queue_health ORDER BY type, status;"
STUCK = """
SELECT id, type, status, attempts, created_at, started_at
FROM jobs
WHERE status = 'processing'
  AND started_at < NOW() - INTERVAL '1 hour';
"""
RECENT = """
SELECT type, COUNT(*) as failures, MAX(last_error_at) as latest_failure
FROM jobs
WHERE status = 'failed'
  AND last_error_at > NOW() - INTERVAL '1 hour'
GROUP BY type;
"""
LETTERS = """
SELECT * FROM dead_letter_jobs
WHERE acknowledged = false
ORDER BY died_at DESC;
"""
LETTERS_BY_TYPE = """
SELECT id, original_job->>'type' as job_type, error_message, died_at
FROM dead_letter_jobs
WHERE acknowledged = false
ORDER BY died_at DESC;
"""
TRACE = """
SELECT id, type, status, created_at, completed_at, error_message
FROM jobs
WHERE correlation_id = 'user-action-123'
ORDER BY created_at;
"""
RELATED = """
SELECT j1.id as parent_id, j1.type as parent_type,
       j2.id as child_id, j2.type as child_type
FROM jobs j1
JOIN jobs j2 ON j1.id = j2.parent_job_id
WHERE j1.correlation_id = 'user-action-123';
"""
SEED = (HEALTH, STUCK, RECENT, LETTERS, LETTERS_BY_TYPE, TRACE, RELATED)

STATUSES = {
    State.CREATED: "pending",
    State.SCHEDULED: "pending",
    State.QUEUED: "pending",
    State.RUNNING: "processing",
    State.RETRY: "failed",
    State.PAUSED: "paused",
    State.ERROR: "error",
    State.SUCCESS: "completed",
    State.DEAD: "dead",
    State.CANCELED: "canceled",
}


@pytest.fixture
async def psql(connect_as: ConnectAs) -> asyncpg.Connection:
    """An operator's session."""
    session = await connect_as("operator")
    await session.execute("set search_path = holdfast_views")
    return session


async def status_of(psql: asyncpg.Connection, job_id: Any) -> list[str]:
    """The status of a job, once for each row that shows it."""
    return [row["status"] for row in await psql.fetch("select status from jobs where id = $1", job_id)]


@pytest.mark.parametrize("added", [False, True], ids=["at once", "when the leader has added up failures"])
async def test_every_job_is_shown_once_with_one_word(
    conn: asyncpg.Connection, psql: asyncpg.Connection, added: bool
) -> None:
    jobs = {await job_in(conn, state): word for state, word in STATUSES.items()}
    targeted = {await job_in(conn, state, target=state): word for state, word in STATUSES.items()}
    if added:
        await conn.execute("select add_failures()")
    shown = {row["id"]: row["status"] for row in await psql.fetch("select id, status from jobs")}
    assert shown == jobs | targeted
    assert await psql.fetchval("select count(*) from jobs") == 2 * len(STATUSES)
    for job_id, word in shown.items():
        assert await status_of(psql, job_id) == [word]
    for word in set(STATUSES.values()):
        rows = await psql.fetch("select id from jobs where status = $1", word)
        assert {row["id"] for row in rows} == {job for job, status in shown.items() if status == word}, word
        assert len(rows) == len({row["id"] for row in rows})


async def test_a_job_that_failed_before_is_what_it_is_now(conn: asyncpg.Connection, psql: asyncpg.Connection) -> None:
    job = await job_in(conn, "retry")
    for moment in ("at once", "added up"):
        assert await status_of(psql, job) == ["failed"], moment
        await conn.execute("select add_failures()")
    await make_due(conn, job)
    await promote(conn)
    assert await status_of(psql, job) == ["pending"]
    again = await run_one(conn, max_attempts=5)
    await settle(conn, "fail", [again])
    await conn.execute("delete from failures")  # as of a job that failed before there was this table
    assert await status_of(psql, again.job_id) == ["pending"]


async def test_the_engines_own_requests_are_not_shown(conn: asyncpg.Connection, psql: asyncpg.Connection) -> None:
    await execute(conn, "cancel", await job_in(conn, "queued"))
    assert await conn.fetchval("select count(*) from holdfast.jobs where queue = 'holdfast'") == 1
    assert [row["status"] for row in await psql.fetch("select status from jobs")] == ["canceled"]
    assert await psql.fetch(HEALTH) == []


async def test_attempts_have_the_names_of_a_plain_table(conn: asyncpg.Connection, psql: asyncpg.Connection) -> None:
    lease = await run_one(conn, max_attempts=5)
    await settle(conn, "fail", [lease], log_excerpts=["it began"])
    await make_due(conn, lease.job_id)
    await promote(conn)
    again = await claim_by_id(conn, lease.job_id)
    assert again is not None
    await settle(conn, "complete", [again])
    rows = await psql.fetch(
        "select id, job_id, worker_id, started_at, finished_at, success, log_excerpt from job_attempts"
        " where job_id = $1 order by started_at",
        lease.job_id,
    )
    assert [(row["worker_id"], row["success"], row["log_excerpt"]) for row in rows] == [
        ("w1", 0, "it began"),
        ("w1", 1, None),
    ]
    assert len({row["id"] for row in rows}) == 2


async def test_health_counts_what_waits_runs_and_failed(conn: asyncpg.Connection, psql: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 3, "mail")
    for state in ("running", "retry", "error", "dead", "success", "paused", "scheduled"):
        await job_in(conn, state, "mail")
    for _ in range(2):
        await enqueue(conn, "sync", target="t")
    await conn.execute("select elect()")
    await conn.execute("select acknowledge_letters(array[$1::uuid], 'ada')", await job_in(conn, "dead", "sync"))
    await conn.execute("update holdfast.ready set ready_at = now() - interval '7 minutes'")
    rows = {(row["type"], row["status"]): row for row in await psql.fetch(HEALTH)}
    assert list(rows) == sorted(rows)
    assert {name: row["count"] for name, row in rows.items()} == {
        ("mail", "dead"): 1,
        ("mail", "error"): 1,
        ("mail", "failed"): 1,
        ("mail", "pending"): 3,
        ("mail", "processing"): 1,
        ("sync", "pending"): 2,
    }
    assert rows["mail", "pending"]["oldest_minutes"] == 7
    assert rows["mail", "processing"]["oldest_minutes"] == 0
    assert await psql.fetch("select * from holdfast.job_queue_health") == await psql.fetch(
        "select * from job_queue_health"
    )


async def test_queries_of_the_seed_run_as_they_are_printed(conn: asyncpg.Connection, psql: asyncpg.Connection) -> None:
    root = await job_in(conn, "success", "order", correlation_id="user-action-123")
    child = await job_in(conn, "retry", "mail", parent_id=root)
    await job_in(conn, "retry", "mail", correlation_id="another")
    dead = await job_in(conn, "dead", "sync", parent_id=child)
    stuck, _ = await job_in(conn, "running", "slow"), await job_in(conn, "running", "slow")
    await conn.execute("set session_replication_role = replica")
    await conn.execute("update holdfast.jobs set started_at = now() - interval '61 minutes' where id = $1", stuck)
    assert {row["status"] for row in await psql.fetch(HEALTH)} == {"failed", "processing", "dead"}
    assert [(row["id"], row["status"], row["attempts"]) for row in await psql.fetch(STUCK)] == [
        (stuck, "processing", 1)
    ]
    assert [(row["type"], row["failures"]) for row in await psql.fetch(RECENT)] == [("mail", 2)]
    assert [row["id"] for row in await psql.fetch(LETTERS)] == [dead]
    assert [(row["job_type"], row["error_message"]) for row in await psql.fetch(LETTERS_BY_TYPE)] == [("sync", "boom")]
    assert [(row["id"], row["status"], row["error_message"]) for row in await psql.fetch(TRACE)] == [
        (root, "completed", None),
        (child, "failed", "boom"),
        (dead, "dead", "boom"),
    ]
    assert [tuple(row) for row in await psql.fetch(RELATED)] == [
        (root, "order", child, "mail"),
        (child, "mail", dead, "sync"),
    ]


def test_the_page_about_psql_has_these_queries_word_for_word() -> None:
    page = (ROOT / "docs/how-to/psql.md").read_text()
    assert [query for query in SEED if query.strip() not in page] == []


async def test_nothing_can_be_changed_through_views_and_only_operators_read(
    psql: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    names = views()
    assert names == ["circuit_breakers", "dead_letter_jobs", "job_attempts", "job_queue_health", "jobs"]
    for name in names:
        for statement in (f"delete from {name}", f"insert into {name} default values", f"update {name} set id = null"):
            with pytest.raises(asyncpg.PostgresError):
                await psql.execute(statement)
    for role in ("api", "worker", "client"):
        session = await connect_as(role)
        for name in names:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.execute(f"select from holdfast_views.{name}")


async def test_every_view_has_a_comment_and_columns_that_stay(conn: asyncpg.Connection) -> None:
    comments = await conn.fetch(
        "select relname, obj_description(oid, 'pg_class') as told from pg_class"
        " where relnamespace = 'holdfast_views'::regnamespace"
    )
    assert sorted(row["relname"] for row in comments) == views()
    assert [row["relname"] for row in comments if not str(row["told"]).endswith(".")] == []
    statement = await conn.prepare("select * from holdfast_views.jobs")
    assert [attribute.name for attribute in statement.get_attributes()] == [
        "id", "type", "payload", "status", "priority", "attempts", "max_attempts", "scheduled_at", "run_at",
        "started_at", "completed_at", "error_message", "last_error", "last_error_at", "correlation_id",
        "parent_job_id", "created_by", "dedup_key", "created_at", "updated_at",
        "tenant", "queue", "target", "state", "reason",
    ]  # fmt: skip


def views() -> list[str]:
    """The names of the views for operators."""
    return sorted(re.findall(r"create or replace view holdfast_views\.(\w+)", script("views", "holdfast")))
