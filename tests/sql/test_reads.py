"""What operators read stays fast with a million jobs: no read scans `jobs`, and each looks at a bounded number of them.

The short form counts the rows that are read; the long one (`make chaos`) measures, too, at the full size.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from holdfast.model.query import parse_query
from holdfast.store.statements import queries
from tests.conftest import CHAOS_SECONDS
from tests.sql.meter import leave_alone
from tests.sql.multitude import populate
from tests.sql.test_views import HEALTH, LETTERS_BY_TYPE, RECENT, RELATED, STUCK, TRACE

pytestmark = [pytest.mark.fresh_database, pytest.mark.alone] if CHAOS_SECONDS else [pytest.mark.fresh_database]

JOBS, DEAD, PRINTS = (1_000_000, 100_000, 10_000) if CHAOS_SECONDS else (10_000, 1_000, 100)
#: Jobs that wait for their retry or are held, and those that run.
FAILING, RUNNING = JOBS * 6 // 1000, JOBS // 1000
LIMIT_SECONDS = 0.2
TIMES = 5


class Read(NamedTuple):
    """A statement, and how many rows of `jobs` it may look at."""

    sql: str
    arguments: tuple[Any, ...] = ()
    jobs: int = 0


def letters(query: str = "", *, jobs: int = 0, **more: Any) -> Read:
    """A page of the list of dead letters."""
    return Read(
        "select * from search_letters($1::text::jsonb, $2, $3, $4, null, null, 50, 100000)",
        (json.dumps(parse_query(query)), more.get("tenant"), more.get("acknowledged", False), more.get("fingerprint")),
        jobs,
    )


def preview(action: str, query: str, *, jobs: int = 0, tenant: str | None = None) -> Read:
    """A dry run of a bulk operation."""
    args = json.dumps({"priority": 1} if action == "reprioritize" else {})
    sql = "select * from preview_bulk($1, $2::text::jsonb, $3::text::jsonb, $4)"
    return Read(sql, (action, json.dumps(parse_query(query)), args, tenant), jobs)


def search(query: str, *, jobs: int, tenant: str | None = None) -> Read:
    return Read("select * from search_jobs($1::text::jsonb, $2)", (json.dumps(parse_query(query)), tenant), jobs)


#: Letters whose jobs a page reads, and those that it reads if the condition is about texts.
READ, READ_TEXTS = min(DEAD, 25_000), min(DEAD, 12_500)
ONE = "0000000000000007"

READS = {
    "letters: open": letters(),
    "letters: all": letters(acknowledged=None),
    "letters: acknowledged": letters(acknowledged=True),
    "letters: of a tenant": letters(tenant="acme"),
    "letters: of a type": letters("type:type-7"),
    "letters: no type fits": letters("type:none"),
    "letters: no type fits, of a tenant": letters("type:none", tenant="acme"),
    "letters: of a fingerprint": letters(fingerprint=ONE),
    "letters: no fingerprint fits": letters(fingerprint="none"),
    "letters: by an error": letters('error:"cannot reach"', jobs=READ_TEXTS),
    "letters: no error fits": letters("error:none", jobs=READ_TEXTS),
    "letters: no queue fits": letters("queue:none", jobs=READ),
    "letters: no payload fits": letters("payload.to:ada", jobs=READ_TEXTS),
    "letters: no text of a type that does not fit": letters("error:none type:none"),
    "letters: by reason": letters("reason:none", jobs=READ),
    "letters: shown": Read("select * from get_letters(array(select id from a_dead_job))", (), 1),
    "failures": Read("select * from list_failures()", (), 60),
    "failures: of a tenant": Read("select * from list_failures('default')", (), 60),
    "failures: of a type": Read("select * from list_failures(only_type => 'type-3')", (), 60),
    "search: a fingerprint": search(f"fingerprint:{ONE}", jobs=200),
    "search: a fingerprint of a tenant": search(f"fingerprint:{ONE}", jobs=200, tenant="acme"),
    "search: no fingerprint": search("fingerprint:none", jobs=0),
    "correlation": Read("select correlated_ids('order-3', null, null, 100)", (), 100),
    "correlation: of a tenant": Read("select correlated_ids('order-3', 'default', null, 100)", (), 100),
    "correlation: as listed": Read("select * from summaries(correlated_ids('order-3', null, null, 50))", (), 150),
    "tree": Read("select * from job_family((select id from a_dead_job), null)", (), 20),
    "attempts": Read("select * from attempts_page((select id from a_dead_job), null, null, 50)", (), 1),
    "bulk: requeue all": preview("requeue", "", jobs=DEAD),
    "bulk: requeue a fingerprint": preview("requeue", f"fingerprint:{ONE}", jobs=100),
    "bulk: requeue none": preview("requeue", "type:none"),
    "bulk: ack of a tenant": preview("ack", "", jobs=DEAD, tenant="acme"),
    "bulk: cancel what runs": preview("cancel", "state:running", jobs=3 * RUNNING),
    "bulk: cancel what is queued": preview("cancel", "state:queued", jobs=JOBS // 25),
    "bulk: retry what failed": preview("retry", "state:retry", jobs=JOBS // 20),
    "bulk: resume a type, none fits": preview("resume", "type:none", jobs=JOBS // 400),
    "bulk: resume all": preview("resume", "created>2000-01-01", jobs=JOBS // 400),
    "bulk: cancel a type, none fits": preview("cancel", "type:none", jobs=JOBS // 20),
    "bulk: retry a type, none fits": preview("retry", "type:none", jobs=JOBS // 40),
    "bulk: reprioritize a type, none fits": preview("reprioritize", "type:none", jobs=JOBS // 20),
    "bulk: pause a type, none fits": preview("pause", "type:none", jobs=JOBS // 20),
    "bulk: delete what is open, none fits": preview("delete", "type:none -state:success,canceled", jobs=JOBS // 20),
    "bulk: resume a type of a tenant, none fits": preview("resume", "type:none", jobs=JOBS // 400, tenant="acme"),
    "bulk: cancel a type of a tenant, none fits": preview("cancel", "type:none", jobs=JOBS // 20, tenant="acme"),
    "bulk: cancel what is queued of a tenant": preview("cancel", "state:queued", jobs=JOBS // 20, tenant="acme"),
    "bulk: retry a type of a tenant, none fits": preview("retry", "type:none", jobs=JOBS // 20, tenant="acme"),
    "bulk: resume all of the default tenant": preview("resume", "type:*", jobs=JOBS // 200, tenant="default"),
    "cleanup: a portion of a dry run": Read("select * from clean_up_as('ada', true)", (), 5000),
    "doctor: letters": Read(queries("holdfast")["doctor_letters"]),
    "doctor: held": Read(queries("holdfast")["doctor_held"], (10_000,), jobs=10_000),
    "doctor: work": Read(queries("holdfast")["doctor_work"], (60.0,)),
    "backlog": Read("select * from backlog()"),
    "statistics": Read("select * from job_statistics()"),
    "statistics: of a tenant": Read("select * from job_statistics('acme')"),
    "totals": Read("select * from job_totals()"),
    "totals: of a tenant": Read("select * from job_totals('acme')", (), JOBS // 50),
    "psql: health": Read(HEALTH, (), FAILING),
    "psql: stuck jobs": Read(STUCK, (), RUNNING),
    "psql: recent failures": Read(RECENT, (), FAILING),
    "psql: a page of letters": Read(LETTERS_BY_TYPE.replace(";", " limit 50"), (), 60),
    "psql: trace": Read(TRACE.replace("user-action-123", "order-3"), (), 100),
    "psql: related jobs": Read(RELATED.replace("user-action-123", "order-3"), (), 250),
    "psql: one job": Read("select * from jobs where id = (select id from a_dead_job)", (), 2),
    "psql: the newest jobs": Read("select * from jobs order by id desc limit 20", (), 50),
    "psql: attempts": Read("select * from job_attempts where job_id = (select id from a_dead_job)"),
}

_COUNTERS = """
    select coalesce(seq_scan, 0) as scans, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as rows
    from pg_stat_xact_all_tables where schemaname = 'holdfast' and relname = 'jobs'"""


def seconds_spent(conn: asyncpg.Connection) -> float:
    """Processor time of the session, where that can be read: what else the machine does must not count."""
    try:
        return int(Path(f"/proc/{conn.get_server_pid()}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return time.perf_counter()


async def measured(conn: asyncpg.Connection, read: Read, times: int) -> tuple[float, int, int]:
    """The shortest time in seconds, and how often `jobs` was scanned and how many of its rows were read."""
    durations = []
    for _ in range(times):
        start = seconds_spent(conn)
        await conn.fetch(read.sql, *read.arguments)
        durations.append(seconds_spent(conn) - start)
    async with conn.transaction():
        before = await conn.fetchrow(_COUNTERS)
        await conn.fetch(read.sql, *read.arguments)
        after = await conn.fetchrow(_COUNTERS)
    assert before is not None
    assert after is not None
    return min(durations, default=0.0), after["scans"] - before["scans"], after["rows"] - before["rows"]


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.timeout(1800 if CHAOS_SECONDS else 60)
async def test_no_read_of_an_operator_scans_jobs_or_takes_long(conn: asyncpg.Connection) -> None:
    await leave_alone(conn)
    await populate(conn, JOBS, DEAD, PRINTS)
    await conn.execute("create temp table a_dead_job as select job_id as id from dead_letters order by 1 limit 1")
    dear, slow = {}, {}
    for name, read in READS.items():
        is_view = name.startswith("psql")
        await conn.execute(f"set search_path = {'holdfast_views' if is_view else 'holdfast'}")
        seconds, scans, rows = await measured(conn, read, TIMES if CHAOS_SECONDS else 0)
        print(f"{name:40} {seconds * 1000:8.1f} ms {rows:8} jobs")
        if scans or rows > read.jobs:
            dear[name] = (scans, rows, read.jobs)
        if seconds > LIMIT_SECONDS:
            slow[name] = seconds
    assert dear == {}
    assert slow == {}
