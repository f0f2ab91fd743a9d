"""Coalesced notifications swallow none: the leader finds what committed silently, however slowly.

In these tests maintenance does not look by itself: what no notification leads to is never done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from holdfast import Context, Holdfast, Limit
from holdfast.maintenance.duties import DUTIES
from holdfast.worker import intake
from tests.conftest import ConnectAs
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.inprocess import working
from tests.harness.slowness import Slowness
from tests.harness.stalls import Stalls
from tests.harness.waiting import until
from tests.maintenance.test_starvation import make_sick

#: In the short form on a machine that does other things as well; the leader itself looks for nothing unasked, so that a
#: wake-up which it missed never comes, and workers poll more rarely than that.
PAIRS, LATEST_SECONDS, POLL_SECONDS = (500, 0.25, 1.0) if CHAOS_SECONDS else (15, 2.0, 5.0)

#: For longer than this, a process of a quiet machine does not stand still; and how many pairs may suffer from it.
STALL_SECONDS, MOST_VOID = 0.05, PAIRS // 20

pytestmark = pytest.mark.timeout(600 if CHAOS_SECONDS else 60)

Pair = Callable[[int], Awaitable[list[float]]]


@pytest.fixture(autouse=True)
def nobody_looks_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a notification makes these duties look; due jobs are promoted when their time comes."""
    for duty in DUTIES:
        if duty.heeds:
            monkeypatch.setattr(duty, "interval_seconds", 600.0)


@pytest.fixture(autouse=True)
async def everybody_coalesces(conn: asyncpg.Connection) -> None:
    """How quickly a statement begins after its transaction depends on the machine: here all are coalesced."""
    await conn.execute("create or replace function stands_alone() returns boolean language sql as 'select true'")


@pytest.fixture
async def calm(hf: Holdfast) -> AsyncIterator[dict[str, float]]:
    """A worker that leads, with nothing to do, and when its handlers began and ended."""
    times: dict[str, float] = {}

    @hf.job("note")
    async def note(ctx: Context, name: str) -> None:
        times[name] = time.monotonic()

    @hf.job("alone", limit=Limit(1, key="key"))
    async def alone(ctx: Context, name: str, key: str) -> None:
        times[name] = time.monotonic()
        await asyncio.sleep(0.01)
        times[f"end of {name}"] = time.monotonic()

    @hf.job("single", limit=Limit(1))
    async def single(ctx: Context, name: str) -> None:
        times[name] = time.monotonic()

    async with working(hf, poll_interval=POLL_SECONDS):
        await until(lambda: _led(hf), what="maintenance is led")
        yield times


async def test_a_transaction_that_commits_after_a_notification_is_found(
    hf: Holdfast, calm: dict[str, float], connect_as: ConnectAs, slow: Slowness
) -> None:
    """Both statements go on after they have recorded their job, as a commit does that waits for a standby."""
    loud, silent = await connect_as("superuser"), await connect_as("superuser")
    late = "select pg_sleep($2) from enqueue('note', jsonb_build_object('name', $1::text), target => $1) e"
    for conn in (loud, silent):
        await conn.fetch(late, f"warm {id(conn)}", 0.0)
    first = asyncio.create_task(loud.fetch(late, "first", 0.4))
    await asyncio.sleep(0.2)
    await silent.fetch(late, "second", 1.2)
    committed = time.monotonic()
    await first
    await until(lambda: {"first", "second"} <= calm.keys(), seconds=10, what="both were seated")
    assert calm["second"] - committed < 1.0 * slow.factor


@pytest.mark.alone
async def test_pairs_of_targets(hf: Holdfast, calm: dict[str, float], deeds: Deeds) -> None:
    async def pair(number: int) -> list[float]:
        async def one(name: str) -> float:
            await hf.enqueue("note", {"name": name}, target=name)
            return time.monotonic()

        names = [f"{number} a", f"{number} b"]
        recorded = await asyncio.gather(*map(one, names))
        await until(lambda: calm.keys() >= set(names), seconds=20, what="both ran")
        return [calm[name] - at for name, at in zip(names, recorded, strict=True)]

    await _prompt(pair, deeds)


@pytest.mark.alone
async def test_pairs_of_requests(hf: Holdfast, calm: dict[str, float], conn: asyncpg.Connection, deeds: Deeds) -> None:
    async def pair(number: int) -> list[float]:
        jobs = [await hf.enqueue("nobody", {}) for _ in range(2)]

        async def one(job_id: object) -> float:
            await hf.cancel(job_id)  # type: ignore[arg-type]
            asked = time.monotonic()
            done = "select state = 'canceled' from jobs where id = $1"
            async with lock:
                while not await conn.fetchval(done, job_id):
                    assert time.monotonic() - asked < 20, "it was never carried out"
                    await asyncio.sleep(0.002)
            return time.monotonic() - asked

        lock = asyncio.Lock()
        return list(await asyncio.gather(*(one(job.id) for job in jobs)))

    await _prompt(pair, deeds)


@pytest.mark.alone
@pytest.mark.parametrize("delay", [0.001, 0.1])
async def test_pairs_of_promotions(hf: Holdfast, calm: dict[str, float], delay: float, deeds: Deeds) -> None:
    async def pair(number: int) -> list[float]:
        async def one(name: str) -> float:
            asked = time.monotonic()
            await hf.enqueue("note", {"name": name}, delay=delay)
            return max(time.monotonic(), asked + delay)

        names = [f"{number} a", f"{number} b"]
        due = await asyncio.gather(*map(one, names))
        await until(lambda: calm.keys() >= set(names), seconds=20, what="both ran")
        return [calm[name] - at for name, at in zip(names, due, strict=True)]

    await _prompt(pair, deeds)


@pytest.mark.alone
async def test_pairs_for_one_permit(hf: Holdfast, calm: dict[str, float], deeds: Deeds) -> None:
    async def pair(number: int) -> list[float]:
        names = [f"{number} a", f"{number} b"]
        await asyncio.gather(*(hf.enqueue("alone", {"name": name, "key": str(number)}) for name in names))
        await until(lambda: {f"end of {name}" for name in names} <= calm.keys(), seconds=20, what="both ran")
        first, second = sorted(names, key=lambda name: calm[name])
        return [calm[second] - calm[f"end of {first}"]]

    await _prompt(pair, deeds, pairs=2 * PAIRS if CHAOS_SECONDS else PAIRS)  # a pair has one wake-up


@pytest.mark.alone
async def test_pairs_of_plain_jobs(hf: Holdfast, calm: dict[str, float], deeds: Deeds) -> None:
    async def pair(number: int) -> list[float]:
        async def one(name: str) -> float:
            await hf.enqueue("note", {"name": name})
            return time.monotonic()

        names = [f"{number} a", f"{number} b"]
        recorded = await asyncio.gather(*map(one, names))
        await until(lambda: calm.keys() >= set(names), seconds=20, what="both ran")
        return [calm[name] - at for name, at in zip(names, recorded, strict=True)]

    await _prompt(pair, deeds)


@pytest.mark.alone
async def test_a_permit_of_a_type_that_another_worker_gives_back(
    hf: Holdfast, calm: dict[str, float], conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, deeds: Deeds
) -> None:
    """Nobody polls for it here more often than for anything else."""
    monkeypatch.setattr(intake, "_LIMITED_SECONDS", 0.0)

    async def settled() -> bool:
        return bool(await conn.fetchval("select not exists (select from leases)"))

    async def pair(number: int) -> list[float]:
        await until(settled, what="the one before is over")
        async with conn.transaction():
            await conn.execute("select enqueue('single', '{\"name\": \"first\"}')")
            lease = await conn.fetchrow("select job_id, attempt from claim('ghost', array['single'])")
        assert lease is not None
        name = str(number)
        await hf.enqueue("single", {"name": name})
        await asyncio.sleep(0.05 + 0.7 * (number % 2))  # the looks that follow a notification may be over, or not
        assert name not in calm
        await conn.execute("select complete('ghost', $1, $2)", [lease["job_id"]], [lease["attempt"]])
        ended = time.monotonic()
        await until(lambda: name in calm, seconds=20, what="it ran")
        return [calm[name] - ended]

    await _prompt(pair, deeds, pairs=max(15, PAIRS // 5))  # each waits on purpose


async def _prompt(pair: Pair, deeds: Deeds, pairs: int = PAIRS) -> None:
    """None of many pairs is late, on a system that is idle in between.

    A pair during which the machine stood still says nothing; only few of them may. Whether it did, another process
    tells: in this one runs the worker, and what that does for too long is a fault.
    """
    waits: list[float] = []
    void = 0
    with Stalls() as stalls:
        for number in range(pairs + MOST_VOID):
            found = await pair(number)
            if stalls.longest > STALL_SECONDS and void < MOST_VOID:
                void += 1
                continue
            waits += found
            if number - void >= pairs - 1:
                break
    median, latest = sorted(waits)[len(waits) // 2], sorted(waits)[-5:]
    figures = f"median {median * 1000:.1f} ms, latest {latest[-1] * 1000:.0f} ms"
    deeds.say(f"{len(waits)} wake-ups: {figures}; {void} pairs void")
    assert latest[-1] <= LATEST_SECONDS, latest


async def _led(hf: Holdfast) -> bool:
    conn = await asyncpg.connect(hf.config.database_url)
    try:
        return bool(await conn.fetchval("select exists (select from holdfast.leaders where expires_at > now())"))
    finally:
        await conn.close()


@pytest.mark.parametrize("slow_seconds", [0.0, 0.3])
async def test_a_due_job_committed_behind_a_later_promotion_is_found(
    hf: Holdfast, calm: dict[str, float], connect_as: ConnectAs, slow_seconds: float
) -> None:
    """The leader remembers how far it has come; a job from before that moment may become visible afterwards."""
    conn = await connect_as("superuser")
    await make_sick(conn, "promote_due", f"pg_sleep({slow_seconds})")
    for number in range(3):
        early, late = f"early {number}", f"late {number}"
        async with conn.transaction():
            await conn.fetch("select from enqueue('note', jsonb_build_object('name', $1::text), delay => 0.001)", early)
            await hf.enqueue("note", {"name": late}, delay=0.001)
            await until(lambda late=late: late in calm, seconds=20, what="the later one ran")  # type: ignore[misc]
        committed = time.monotonic()
        await until(lambda early=early: early in calm, seconds=20, what="the earlier one ran")  # type: ignore[misc]
        assert calm[early] - committed < 2.0
