"""A server that is set up against us, or short of something: nothing is lost, nothing wedges, and words are clear.

Settings are made for the test's own database, so that every new session has them. Each case asks for the same small
day's work: jobs by HTTP and by Python, with keys, a delay, a failure, a request; a worker; and readiness.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.errors import DatabaseUnavailable
from holdfast.web import health
from holdfast.web.server import create_app
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.inprocess import reached, working
from tests.harness.slowness import Slowness
from tests.harness.waiting import until
from tests.lines import Line, over_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 3 * CHAOS_SECONDS)]

#: How much of the time that a connection took is excused, where nothing but the machine can be slow.
SLOWEST_SECONDS = 0.5

SETTINGS: dict[str, dict[str, str]] = {
    "limits": {
        "statement_timeout": "'2s'",
        "lock_timeout": "'50ms'",
        "idle_in_transaction_session_timeout": "'1s'",
        "idle_session_timeout": "'1s'",
    },
    "formats": {
        "DateStyle": "'German, DMY'",
        "TimeZone": "'Pacific/Chatham'",
        "IntervalStyle": "'sql_standard'",
        "bytea_output": "'escape'",
        "lc_messages": "'C'",
        "extra_float_digits": "-15",
        "standard_conforming_strings": "off",
    },
    "names": {"search_path": "'$user', nowhere", "row_security": "off", "default_transaction_deferrable": "on"},
    "planner": {
        "work_mem": "'64kB'",
        "jit": "on",
        "jit_above_cost": "0",
        "enable_indexscan": "off",
        "enable_nestloop": "off",
        "enable_hashjoin": "off",
        "enable_seqscan": "off",
    },
}


def an_app(url: str) -> Holdfast:
    """A small app: one type that works, and one that fails at first."""
    app = Holdfast(url)

    @app.job("work")
    async def work(_ctx: Context, number: int) -> int:
        return number

    @app.job("flaky", retry=RetryPolicy(base=0.01, max=0.01))
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("as asked")

    return app


@contextlib.asynccontextmanager
async def served(app: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    """A caller of the app's HTTP interface."""
    transport = httpx.ASGITransport(create_app(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
        yield client


async def do_a_days_work(app: Holdfast) -> None:
    """Everything works as if nothing were set."""
    async with app, served(app) as client:
        for _ in range(2):  # the repeat finds the first
            answer = await client.post(
                "/jobs", json={"jobType": "work", "payload": {"number": 1}, "idempotencyKey": "k1"}
            )
            assert answer.status_code == 202, answer.text
        ids = [answer.json()["jobId"]]
        refs = [
            await app.enqueue("work", {"number": 2}, dedup_key="d%_\\'", target="t"),
            await app.enqueue("work", {"number": 3}, delay=0.2),
            await app.enqueue("flaky"),
            *await app.enqueue_many([("work", {"number": n}) for n in range(20)]),
        ]
        held = await app.enqueue("work", {"number": 9}, hold=True)
        assert (await client.post(f"/jobs/{held.id}/cancel")).status_code == 202
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        async with working(app, poll_interval=0.2):
            for job in [*ids, *(ref.id for ref in refs)]:
                await reached(app, job, "success")
            await reached(app, held.id, "canceled")
        found = await app.find(limit=50)
        assert len(found) == 25


@pytest.mark.parametrize("kind", SETTINGS)
async def test_settings_of_the_database_change_nothing(kind: str, database_url: str, conn: asyncpg.Connection) -> None:
    await _set(conn, **SETTINGS[kind])
    await do_a_days_work(an_app(database_url))


async def test_idle_connections_cut_again_and_again_cost_nothing(
    database_url: str, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    """A balancer or `idle_session_timeout` ends idle connections: nobody notices."""
    await _set(conn, idle_session_timeout="'200ms'")
    app = an_app(database_url)
    async with app, served(app) as client:
        worker = asyncio.create_task(app.run_worker(poll_interval=0.2))
        for number in range(int(4 + CHAOS_SECONDS / 2)):
            answer = await client.post("/jobs", json={"jobType": "work", "payload": {"number": number}})
            assert answer.status_code == 202, answer.text
            assert (await app.wait(answer.json()["jobId"], timeout=10)).result == number
            await asyncio.sleep(0.5)
        deeds.say(f"{number + 1} jobs, each after all idle sessions were cut")
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_a_read_only_server_is_reported_and_recovered_from(
    database_url: str, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_FRESH_SECONDS", 0.0)
    app = an_app(database_url)
    async with app, served(app) as client:
        assert (await client.get("/readyz")).status_code == 200
        worker = asyncio.create_task(app.run_worker(poll_interval=0.2))
        await until(lambda: _lifelines(conn), what="the worker is there")
        await _set(conn, default_transaction_read_only="on")
        await _cut_all(conn)
        before = await _sessions_so_far(conn)
        began = time.monotonic()
        answer = await client.post("/jobs", json={"jobType": "work", "payload": {"number": 1}})
        assert answer.status_code == 503
        assert "does not accept writes" in answer.json()["detail"]
        assert time.monotonic() - began < 7
        ready = await client.get("/readyz")
        assert (ready.status_code, "does not accept writes" in ready.text) == (503, True)
        await asyncio.sleep(3)
        assert await _sessions_so_far(conn) - before < 60, "reconnecting is paced"
        await conn.execute("set default_transaction_read_only = off")
        await _set(conn, default_transaction_read_only="off")
        began = time.monotonic()
        await until(lambda: _accepted(client), what="writes are taken again", seconds=20)
        assert (await client.get("/readyz")).status_code == 200
        ref = await until(lambda: _enqueued(app), what="connections of another pool are replaced too", seconds=20)
        assert (await app.wait(ref, timeout=15)).result == 5
        assert time.monotonic() - began < 20
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.alone
async def test_a_storm_of_cuts_does_not_stall(database_url: str, conn: asyncpg.Connection, deeds: Deeds) -> None:
    """Every session is ended several times a second: whatever worked a moment ago is replaced at once.

    A storm that comes faster than anybody can connect lets nobody through: this one is as fast as the machine allows.
    """
    app = an_app(database_url)
    gaps: list[float] = []
    async with app, served(app) as client:
        worker = asyncio.create_task(app.run_worker(poll_interval=0.2))
        await until(lambda: _lifelines(conn), what="the worker is there")
        end, last = time.monotonic() + 4 + CHAOS_SECONDS / 4, time.monotonic()
        storm = asyncio.create_task(_storm(conn, database_url, end))
        number = 0
        while time.monotonic() < end:
            number += 1
            answer = await client.post(
                "/jobs", json={"jobType": "work", "payload": {"number": number}, "idempotencyKey": f"s{number}"}
            )
            if answer.status_code == 202:
                gaps.append(time.monotonic() - last)
                last = time.monotonic()
            await asyncio.sleep(0.01)
        cuts, slowest = await storm
        ref = await until(lambda: _enqueued(app))
        assert (await app.wait(ref, timeout=15)).result == 5
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    accepted = len(gaps)
    gaps.append(end - last)
    deeds.say(f"{accepted} of {number} jobs accepted, sessions cut {cuts} times, {max(gaps):.2f} s in between at most")
    assert max(gaps) < 0.8 + 4 * min(slowest, SLOWEST_SECONDS), (slowest, sorted(gaps)[-5:])


async def test_a_network_black_hole_times_out_and_is_recovered_from(
    database_url: str, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, deeds: Deeds, slow: Slowness
) -> None:
    monkeypatch.setattr(health, "_FRESH_SECONDS", 0.0)
    async with Line(database_url).running() as line:
        app = an_app(over_lines(database_url, line.port))
        async with app, served(app) as client:
            worker = asyncio.create_task(app.run_worker(poll_interval=0.2))
            first = await client.post("/jobs", json={"jobType": "work", "payload": {"number": 1}})
            await app.wait(first.json()["jobId"], timeout=10)
            line.freeze()
            end, posted = time.monotonic() + (CHAOS_SECONDS or 7), 0
            while time.monotonic() < end:
                posted += 1
                began = time.monotonic()
                answer = await client.post(
                    "/jobs", json={"jobType": "work", "payload": {"number": 2}, "idempotencyKey": f"b{posted}"}
                )
                assert time.monotonic() - began < 5 + slow.factor, "five seconds are promised"
                assert answer.status_code == 503
                assert answer.headers["Retry-After"]
                began = time.monotonic()
                assert (await client.get("/readyz")).status_code == 503
                assert time.monotonic() - began < 3 + slow.factor
            line.thaw()
            began = time.monotonic()
            for number in range(1, posted + 1):
                await until(lambda number=number: _accepted(client, f"b{number}"), seconds=30)  # type: ignore[misc]
            last = await client.post("/jobs", json={"jobType": "work", "payload": {"number": 3}})
            assert (await app.wait(last.json()["jobId"], timeout=30)).result == 3
            assert time.monotonic() - began < 30
            deeds.say(f"{posted} jobs refused in it, all accepted {time.monotonic() - began:.1f} s afterwards")
            assert (await client.get("/readyz")).status_code == 200
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        assert await conn.fetchval("select count(*) from holdfast.jobs") == posted + 2


async def test_a_statement_given_up_by_the_client_ends_in_the_server(
    database_url: str, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    """With `workers` locked, a worker leaves no more than its own few sessions waiting, however long it takes."""
    app = an_app(database_url)
    async with app:
        worker = asyncio.create_task(app.run_worker(poll_interval=0.2))
        await until(lambda: _lifelines(conn), what="the worker is there")
        locker = await asyncpg.connect(database_url)
        most = 0
        async with locker.transaction():
            await locker.execute("lock table holdfast.workers in access exclusive mode")
            end = time.monotonic() + (CHAOS_SECONDS or 6)
            while time.monotonic() < end:
                most = max(most, await _waiting(conn))
                await asyncio.sleep(0.1)
        await locker.close()
        deeds.say(f"{most} sessions waited at the same time")
        assert 0 < most <= 3
        ref = await app.enqueue("work", {"number": 5})
        assert (await app.wait(ref, timeout=15)).result == 5
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_an_abandoned_statement_leaves_no_session(database_url: str, conn: asyncpg.Connection) -> None:
    async with Holdfast(database_url) as app:
        locker = await asyncpg.connect(database_url)
        async with locker.transaction():
            await locker.execute("lock table holdfast.jobs in access exclusive mode")
            for _ in range(6):
                with pytest.raises((TimeoutError, DatabaseUnavailable)):
                    async with asyncio.timeout(0.2):
                        await app.enqueue("work")
            await until(lambda: _nothing_waits(conn), seconds=5, what="the server has ended them")
        await locker.close()
        await app.enqueue("work")


async def _storm(conn: asyncpg.Connection, url: str, end: float) -> tuple[int, float]:
    """How often all were cut, and how long it took to connect, at most."""
    cuts, slowest = 0, 0.0
    while time.monotonic() < end:
        await _cut_all(conn)
        cuts += 1
        began = time.monotonic()
        await (await asyncpg.connect(url)).close()
        needed = time.monotonic() - began
        slowest = max(slowest, needed)
        await asyncio.sleep(max(0.15, 4 * needed))
    return cuts, slowest


async def _set(conn: asyncpg.Connection, **settings: str) -> None:
    name = await conn.fetchval("select current_database()")
    for setting, value in settings.items():
        await conn.execute(f'alter database "{name}" set {setting} = {value}')


async def _cut_all(conn: asyncpg.Connection) -> None:
    await conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )


async def _sessions_so_far(conn: asyncpg.Connection) -> int:
    await conn.execute("select pg_stat_clear_snapshot()")
    return int(await conn.fetchval("select sessions from pg_stat_database where datname = current_database()"))


async def _lifelines(conn: asyncpg.Connection) -> int:
    return int(
        await conn.fetchval(
            "select count(*) from pg_stat_activity "
            "where datname = current_database() and application_name = 'holdfast lifeline'"
        )
    )


async def _waiting(conn: asyncpg.Connection) -> int:
    return int(
        await conn.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
    )


async def _nothing_waits(conn: asyncpg.Connection) -> bool:
    return await _waiting(conn) == 0


async def _enqueued(app: Holdfast) -> Any:
    try:
        return await app.enqueue("work", {"number": 5})
    except DatabaseUnavailable:
        return None


async def _accepted(client: httpx.AsyncClient, key: str | None = None) -> bool:
    body: dict[str, Any] = {"jobType": "work", "payload": {"number": 2}}
    answer = await client.post("/jobs", json=body | ({"idempotencyKey": key} if key else {}))
    return answer.status_code == 202
