"""Starvation: a duty that is slow, fails, times out or is blocked stops no other one, and comes back by itself.

`make test` goes through a few cells of the matrix, `make chaos` through all, and then with idle connections cut every
second, led by a worker as well as by a process that only maintains, as `serve` does.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.maintenance.duties import DUTIES, new_duties
from holdfast.store.database import Database
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.statements import queries
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import DutyBack, DutyFailed
from holdfast.testing.upkeep import Certain
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.databases import Databases, with_database
from tests.harness.deeds import Deeds
from tests.harness.inprocess import working
from tests.harness.waiting import until

LEASE = 2.0
#: What a cell may take beyond what is promised, on a machine that does other things as well.
NOISE = 0.5 if CHAOS_SECONDS else 2.0
#: What the sick statement does first.
WAYS = {
    "slow": "pg_sleep(3)",
    "failing": "(1 / (random() * 0)::integer)::text",
    "timing out": "pg_sleep(10)",
    "blocked": "pg_advisory_xact_lock(4711)",
}
#: The sick duty, its way to be sick, and who leads meanwhile.
#: Cells mostly wait: all those of one duty go on side by side, each on a database of its own.
Cell = tuple[str, str, str]
CELLS: list[list[Cell]] = (
    [[(duty.name, way, leader) for way in WAYS for leader in ("worker", "serve")] for duty in DUTIES]
    if CHAOS_SECONDS
    else [[("age", "timing out", "worker"), ("requests", "blocked", "serve"), ("reconcile", "failing", "worker")]]
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def database_urls(server_url: str, databases: Databases, cells: list[Cell]) -> Iterator[list[str]]:
    """A database for each cell. Functions are changed in it, so that it cannot be used again."""
    names = [databases.take() for _ in cells]
    yield [with_database(server_url, name) for name in names]
    for name in names:
        databases.drop(name)


@pytest.mark.calm
@pytest.mark.parametrize("cells", CELLS, ids=lambda cells: ", ".join(dict.fromkeys(cell[0] for cell in cells)))
async def test_a_sick_duty_stops_no_other_and_comes_back(
    cells: list[Cell], database_urls: list[str], monkeypatch: pytest.MonkeyPatch, deeds: Deeds
) -> None:
    for duty in DUTIES:
        if duty.name in {sick for sick, _, _ in cells}:
            monkeypatch.setattr(duty, "interval_seconds", min(duty.interval_seconds, 2.0))
    found = await asyncio.gather(
        *(_cell(url, *cell) for url, cell in zip(database_urls, cells, strict=True)), return_exceptions=True
    )
    faults = []
    worst: dict[str, Measured] = {}
    for (sick, way, leader), outcome in zip(cells, found, strict=True):
        if isinstance(outcome, BaseException):
            outcome.add_note(f"{sick} was {way}, led by a {leader}")
            faults.append(outcome)
            continue
        print(f"{sick}, {way}, {leader}: {', '.join(f'{name} {took}' for name, took in outcome.items())}")
        for name, measured in outcome.items():
            worst[name] = max(measured, worst.get(name, measured))
    deeds.say(f"{len(cells)} cells; at most " + ", ".join(f"{name} {took}" for name, took in worst.items()))
    if faults:
        raise BaseExceptionGroup(f"{len(faults)} of {len(cells)} cells", faults)


async def test_a_sweep_that_takes_long_comes_again_as_soon_as_any(hf: Holdfast, conn: asyncpg.Connection) -> None:
    """On a busy machine it takes half a second, and the next one was put off by ten."""
    async with _led(hf, "worker"):
        (name,) = await _statements(hf, "sweep")
        await make_sick(conn, name, "pg_sleep(0.5)")
        await _hit(conn, asyncio.Event(), [name], "slow")
        lost, lease_from = await _ghost(conn), time.monotonic()
        await until(lambda: _state(conn, lost, "success"), seconds=40, what="the dead worker's job ran")
        assert time.monotonic() - lease_from <= LEASE + 5.0 + NOISE
        await _heal(conn, name)


class Measured(NamedTuple):
    """How long something took, and may take."""

    seconds: float
    most: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s of {self.most:g}"


async def _cell(url: str, sick: str, way: str, leader: str) -> dict[str, Measured]:
    """One duty is sick in one way: how long the others took meanwhile, and how soon it was back."""
    (kind,) = (duty for duty in DUTIES if duty.name == sick)
    failed, back = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack:
        hf = await stack.enter_async_context(Holdfast(url))
        hf.events.subscribe(lambda event: failed.set() if event.duty == sick else None, DutyFailed)
        hf.events.subscribe(lambda event: back.set() if event.duty == sick else None, DutyBack)
        conn = await stack.enter_async_context(_admin(url))
        statements = await _statements(hf, sick)
        started = await stack.enter_async_context(_led(hf, leader))
        await stack.enter_async_context(_cut_listeners(hf, wanted=bool(CHAOS_SECONDS)))
        await conn.execute("select pg_advisory_lock(4711)")
        for name in statements:
            await make_sick(conn, name, WAYS[way])
        await _hit(conn, failed, statements, way)

        measured = await _serve_others(hf, conn, started, sick)
        assert all(took.seconds <= took.most + NOISE for took in measured.values()), measured

        for name in statements:
            await _heal(conn, name)
        await conn.execute("select pg_advisory_unlock(4711)")
        if way != "slow":
            healed, most = time.monotonic(), kind.limit_seconds + kind.interval_seconds
            await asyncio.wait_for(back.wait(), most + NOISE + 2)
            measured["back"] = Measured(time.monotonic() - healed, most)
        return measured


@asynccontextmanager
async def _admin(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A superuser's connection. What a broken cell leaves waiting is ended with it."""
    conn = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
    try:
        yield conn
    finally:
        await conn.close(timeout=5)


async def test_a_lock_on_the_leaders_row_stops_no_duty(hf: Holdfast, conn: asyncpg.Connection) -> None:
    """It used to cost the leader its term, and nobody else could lead either."""
    async with _led(hf, "worker") as started:
        other = await asyncpg.connect(hf.config.database_url)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select from holdfast.leaders for update")
        try:
            await asyncio.sleep(3.5)  # longer than a renewal may take
            measured = await _serve_others(hf, conn, started, sick="none")
        finally:
            await transaction.rollback()
            await other.close()
        assert all(seconds <= most + NOISE for seconds, most in measured.values()), measured


async def _serve_others(
    hf: Holdfast, conn: asyncpg.Connection, started: dict[str, float], sick: str
) -> dict[str, Measured]:
    """How long each of the others took, and may take, while one is sick."""
    measured: dict[str, Measured] = {}
    lost, lease_from = await _ghost(conn), time.monotonic()
    if sick != "promote":
        await hf.enqueue("note", {"name": "due"}, delay=0.2)
        due = time.monotonic() + 0.2
        await until(lambda: "due" in started, seconds=20, what="what is due is promoted")
        measured["promotion"] = Measured(started["due"] - due, 1.0)
    if sick != "requests":
        waiting = await hf.enqueue("nobody", {})
        await hf.cancel(waiting)
        asked = time.monotonic()
        await until(lambda: _state(conn, waiting.id, "canceled"), seconds=20, what="the request is executed")
        measured["request"] = Measured(time.monotonic() - asked, 1.0)
    if sick != "elect":
        await hf.enqueue("note", {"name": "target"}, target="a target")
        asked = time.monotonic()
        await until(lambda: "target" in started, seconds=20, what="the target is seated")
        measured["seating"] = Measured(started["target"] - asked, 1.0)
    if sick != "sweep":
        await until(lambda: _state(conn, lost, "success"), seconds=40, what="the dead worker's job ran")
        measured["recovery"] = Measured(time.monotonic() - lease_from, LEASE + 5.0)
    return measured


async def _ghost(conn: asyncpg.Connection) -> UUID:
    """A job whose worker has died. It is recorded and claimed in one transaction, so that nobody else gets it."""
    async with conn.transaction():
        await conn.fetch("select * from enqueue('lost')")
        job_id: UUID = await conn.fetchval(
            "select job_id from claim('ghost', array['lost'], lease_seconds => $1)", LEASE
        )
    return job_id


@asynccontextmanager
async def _led(hf: Holdfast, leader: str) -> AsyncIterator[dict[str, float]]:
    started: dict[str, float] = {}

    @hf.job("note")
    async def note(ctx: Context, name: str) -> None:
        started[name] = time.monotonic()

    @hf.job("lost")
    async def lost(ctx: Context) -> None: ...

    async with AsyncExitStack() as stack:
        if leader == "serve":
            await stack.enter_async_context(hf.maintaining())
        await stack.enter_async_context(working(hf, maintenance=leader == "worker"))
        await hf.enqueue("note", {"name": "first"}, delay=0.1)
        await until(lambda: "first" in started, seconds=20, what="maintenance is led")
        yield started


@asynccontextmanager
async def _cut_listeners(hf: Holdfast, *, wanted: bool) -> AsyncIterator[None]:
    """End every connection that listens, once a second."""

    async def cut() -> None:
        admin = await asyncpg.connect(hf.config.database_url)
        try:
            while wanted:
                await admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and application_name = 'holdfast lifeline'"
                )
                await asyncio.sleep(1)
        finally:
            await admin.close()

    task = asyncio.create_task(cut())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _statements(hf: Holdfast, name: str) -> list[str]:
    """The engine's functions that a duty calls first, learned from the duty itself."""
    database = Database(hf.config, role="worker", size=1)
    await database.open()
    called: list[str] = []

    class Spy:
        async def rows(self, statement: str, *arguments: Any) -> Any:
            called.append(statement)
            return await database.rows(statement, *arguments)

        async def row(self, statement: str, *arguments: Any) -> Any:
            called.append(statement)
            return await database.row(statement, *arguments)

        async def value(self, statement: str, *arguments: Any) -> Any:
            called.append(statement)
            return await database.value(statement, *arguments)

    (duty,) = (duty for duty in new_duties(Bus(), Certain()) if duty.name == name)
    await duty.work(MaintenanceStore(Spy()))
    await database.close()
    sql = queries(hf.config.schema)[called[0]]
    return [re.findall(r"holdfast\.(\w+)\(", sql)[0]]


async def make_sick(conn: asyncpg.Connection, name: str, first: str) -> None:
    """Another function takes the place of this one, and does something else before."""
    row = await conn.fetchrow(
        "select pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result,"
        " p.pronargs as count from pg_proc p where p.proname = $1 and p.pronamespace = 'holdfast'::regnamespace",
        name,
    )
    assert row is not None
    given = ", ".join(f"${n}" for n in range(1, row["count"] + 1))
    await conn.execute(
        f"begin; alter function holdfast.{name} rename to {name}_healthy;"
        f" create function holdfast.{name}({row['arguments']}) returns {row['result']} language sql security definer"
        f" set search_path = holdfast as $$ select {first}; select * from {name}_healthy({given}) $$;"
        f" grant execute on function holdfast.{name} to holdfast_worker; commit"
    )


async def _heal(conn: asyncpg.Connection, name: str) -> None:
    await conn.execute(
        f"begin; drop function holdfast.{name}; alter function holdfast.{name}_healthy rename to {name}; commit"
    )


async def _hit(conn: asyncpg.Connection, failed: asyncio.Event, statements: list[str], way: str) -> None:
    """Wait until the duty has met its sickness."""

    async def under_way() -> bool:
        active = await conn.fetchval(
            "select exists (select from pg_stat_activity"
            " where datname = current_database() and state = 'active'"
            " and application_name = 'holdfast maintenance' and query ~ $1)",
            rf"\.{statements[0]}\(",
        )
        return bool(active) or failed.is_set()

    await until(under_way, seconds=20, what=f"the duty is {way}")


async def _state(conn: asyncpg.Connection, job_id: UUID, state: str) -> bool:
    return bool(await conn.fetchval("select state = $2 from jobs where id = $1", job_id, state))
