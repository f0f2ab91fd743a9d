"""A step of the database's clock is an outage: it ends no lease, and nothing waits longer than its own length.

The engine's time is shifted inside a schema of the testing kit, while a real worker leads there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from uuid import UUID

import asyncpg
import pytest

from holdfast import Config, Context, Holdfast, Retry, RetryPolicy, Snooze
from holdfast.store.kit_databases import prepare
from holdfast.telemetry.events import ClockJumped
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until

LEASE = 3.0
STEPS = [-3600.0, -60.0, -1.0, 1.0, 60.0, 3600.0] if CHAOS_SECONDS else [-3600.0, 60.0]

pytestmark = [pytest.mark.calm, pytest.mark.timeout(120)]


@pytest.fixture
async def hf(clocked_database_url: str) -> AsyncIterator[Holdfast]:
    """An app on a database whose engine time can be shifted."""
    config = Config.load(environment={}, database_url=clocked_database_url)
    config = dataclasses.replace(config, origins={**config.origins, "database_url": "testing"})
    await prepare(config)
    app = Holdfast(clocked_database_url)
    app.config = config
    app._disconnected()
    async with app:
        yield app


@pytest.fixture
async def admin(hf: Holdfast) -> AsyncIterator[asyncpg.Connection]:
    """A superuser's connection to it."""
    conn = await asyncpg.connect(hf.config.database_url, server_settings={"search_path": "holdfast"})
    yield conn
    await conn.close()


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_ends_no_lease_and_nothing_waits_longer_than_its_length(
    hf: Holdfast, admin: asyncpg.Connection, step: float, deeds: Deeds
) -> None:
    began: dict[str, list[float]] = {}
    _declare(hf, began)
    jumped = asyncio.Event()
    hf.events.subscribe(lambda _event: jumped.set(), ClockJumped)
    healthy = await hf.enqueue("long", {"seconds": 3 * LEASE}, max_attempts=1)
    async with working(hf):
        await reached(hf, healthy, "running")
        lost = await _ghost(admin)
        waiting = [await hf.enqueue(kind, {}) for kind in ("retries", "snoozes")]
        waiting.append(await hf.enqueue("note", {"name": "delayed"}, delay=5.0))
        later = "run_at > now() + interval '1 second'"
        for ref in waiting:
            await until(partial(_has, admin, ref.id, later), what="it waits")
        rated = [await hf.enqueue("rated", {"name": str(number)}) for number in range(2)]
        await until(lambda: len(began.get("rated", [])) == 1, what="the first of the rate ran")
        await _shift(admin, step)
        stepped = time.monotonic()
        await asyncio.wait_for(jumped.wait(), 10)

        due = await hf.enqueue("note", {"name": "due"}, delay=0.3)
        aimed = await hf.enqueue("note", {"name": "aimed"}, target="a target")
        for ref in (due, aimed):
            await reached(hf, ref, "success", seconds=10)
        assert time.monotonic() - stepped < 10, "promotion and targets go on"
        for ref in (*waiting, *rated):
            await reached(hf, ref, "success", seconds=20)
        assert time.monotonic() - stepped < 15, "backoff and rates last for their own length"
        await reached(hf, lost, "success", seconds=3 * LEASE + 10)
        assert time.monotonic() - stepped < 3 * LEASE + 10
        assert (await hf.wait(healthy, timeout=30)).attempt == 1
    assert (await hf.get(healthy)).failures == 0
    deeds.say(f"all of it within {time.monotonic() - stepped:.1f} s of a step by {step:g} s")


@pytest.mark.parametrize("seen", ["by the leader", "by nobody"])
async def test_a_step_ahead_lets_retention_delete_nothing_early(
    hf: Holdfast, admin: asyncpg.Connection, seen: str
) -> None:
    """A month ahead, where ended jobs are kept for a week."""
    _declare(hf, {})
    jumped, retired = asyncio.Event(), "select max(noticed_at) is not null from clock_steps"
    hf.events.subscribe(lambda _event: jumped.set(), ClockJumped)
    job = await hf.enqueue("note", {"name": "ended"})
    async with working(hf):
        await reached(hf, job, "success")
        if seen == "by the leader":
            await _shift(admin, 30 * 86_400.0)
            await asyncio.wait_for(jumped.wait(), 10)
            await until(lambda: admin.fetchval(retired), what="the step is noted")
    if seen == "by nobody":
        await _shift(admin, 30 * 86_400.0)
    async with working(hf):
        await until(lambda: admin.fetchval(retired), what="the step is noted")
        row = await admin.fetchrow("select * from retire_known(null)")
        assert row is not None
        assert (row["deleted"], row["visited"]) == (0, 1)
        # The step is longer ago than jobs are kept: so is the job.
        await admin.execute("delete from clock_steps")
        await until(lambda: _gone(admin, job.id), what="it is deleted in the end")


async def test_a_step_that_the_leader_has_not_seen_yet_ends_the_walk(hf: Holdfast, admin: asyncpg.Connection) -> None:
    _declare(hf, {})
    job = await hf.enqueue("note", {"name": "ended"})
    await hf.run_worker(burst=True)
    clock = await admin.fetchval("select clock_timestamp()")
    await _shift(admin, 30 * 86_400.0)
    row = await admin.fetchrow("select * from retire_known($1)", clock)
    assert row is not None
    assert (row["deleted"], row["visited"]) == (0, None)
    assert not await _gone(admin, job.id)


async def test_a_step_ahead_makes_neither_bulk_operations_nor_fingerprints_old_whether_it_was_seen_or_not(
    hf: Holdfast, admin: asyncpg.Connection
) -> None:
    """An operation has ended, and a cause has nothing open, right before the clock is set ahead by a thousand days."""
    days, leader = 1_000 * 86_400.0, _Leader(admin)
    await leader.renew()
    await admin.execute("""
        insert into bulks (id, action, query, tree, by, sources, state, finished_at)
        values (uuid_v7(), 'cancel', '', '{}', 'ada', '{}', 'done', holdfast.now());
        insert into fingerprints
        values ('default', 'f', 'note', 'Fault', 'x', 1, holdfast.now(), holdfast.now(), uuid_v7())""")

    async def forgotten() -> tuple[int, int]:
        bulks = await admin.fetchval("select forget_bulks(10)")
        return bulks, await admin.fetchval("select mended from forget_fingerprints()")

    await _shift(admin, days)
    assert await forgotten() == (0, 0)
    await leader.renew()
    assert await admin.fetchval("select count(*) from clock_steps") == 1
    assert await forgotten() == (0, 0)
    await leader.renew(passed=days)
    assert await forgotten() == (1, 1)


async def test_a_step_that_is_undone_is_forgotten(hf: Holdfast, admin: asyncpg.Connection) -> None:
    week = "select extract(epoch from clock_lead('7 days'))::float8"
    for step, lead in ((86_400.0, 86_400.0), (-86_400.0, 0.0), (-3600.0, 0.0)):
        await _shift(admin, step)
        await admin.execute("select note_clock_step($1)", step)
        assert await admin.fetchval(week) == lead
    await _shift(admin, 8 * 86_400.0)
    assert await admin.fetchval(week) == 0


@pytest.mark.parametrize(
    ("steps", "days"),
    [((30, 30), 60), ((30, 1, 30), 61), ((30, -30, 30), 30), ((-30, 30), 30), ((60, -30, -1), 29), ((30, -30), 0)],
)
async def test_a_second_step_does_not_make_the_first_one_longer_ago(
    hf: Holdfast, admin: asyncpg.Connection, steps: tuple[int, ...], days: int
) -> None:
    """Jobs are kept for a week; this one ended right before the steps, which follow each other closely."""
    _declare(hf, {})
    await hf.enqueue("note", {"name": "ended"})
    await hf.run_worker(burst=True)
    for step in steps:
        await _shift(admin, step * 86_400.0)
        await admin.execute("select note_clock_step($1)", step * 86_400.0)
    assert await admin.fetchval("select clock_lead('7 days')") == timedelta(days=days)
    assert await admin.fetchval("select count(*) from clock_steps") == len(steps)
    assert await admin.fetchval("select (deleted, visited) from retire_known(null)") == (0, 1)
    # The week passes; the next step, however small, finds the others over.
    await _shift(admin, 8 * 86_400.0)
    assert await admin.fetchval("select clock_lead('7 days')") == timedelta()
    assert await admin.fetchval("select deleted from retire_known(null)") == 1
    await admin.execute("update settings set value = '7' where name = 'RETENTION_DEAD_DAYS'")
    await admin.execute("select note_clock_step(1)")
    assert await admin.fetchval("select array_agg(seconds) from clock_steps") == [1.0]


@pytest.mark.parametrize("years", [101, 1000, 6900])
async def test_a_leap_by_centuries_lets_retention_delete_nothing_until_its_time_has_passed(
    hf: Holdfast, admin: asyncpg.Connection, years: int
) -> None:
    _declare(hf, {})
    job = await hf.enqueue("note", {"name": "ended"}, idempotency_key="once")
    await hf.run_worker(burst=True)
    await _shift(admin, years * 365 * 86_400.0)
    await admin.execute("select note_clock_step($1)", years * 365 * 86_400.0)
    assert await admin.fetchval("select (deleted, visited) from retire_known(null)") == (0, 1)
    assert (await hf.enqueue("note", {"name": "ended"}, idempotency_key="once")).id == job.id
    await _shift(admin, 8 * 86_400.0)
    assert await admin.fetchval("select deleted from retire_known(null)") == 1


class _Leader:
    """Renews by hand, so that time passes and the clock is set as the test says."""

    def __init__(self, admin: asyncpg.Connection) -> None:
        self._admin = admin
        self._renewals: int | None = None

    async def renew(self, *, passed: float = 0.0, step: float = 0.0) -> None:
        """After this much time, in which the clock was set by so much as well."""
        await _shift(self._admin, passed + step)
        self._renewals = await self._admin.fetchval(
            "select renewals from preside('maintenance', 'l', 5, seen_renewals => $1, seen_seconds => $2) where leads",
            self._renewals,
            passed,
        )
        assert self._renewals is not None

    async def walk(self) -> int:
        changed: int = await self._admin.fetchval("select changed from clamp_backoff()")
        return changed

    async def left(self, job_id: UUID) -> float:
        """How long a job still waits."""
        left: float = await self._admin.fetchval(
            "select extract(epoch from run_at - holdfast.now())::float8 from jobs where id = $1", job_id
        )
        entry = "select count(*) from due join jobs on id = job_id and due.run_at = jobs.run_at where id = $1"
        assert await self._admin.fetchval(entry, job_id) == 1
        return left


HOUR = 3600.0


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([(23 * HOUR, 0), (0, -HOUR)], HOUR),
        ([(HOUR, 0), (0, -10 * HOUR)], 23 * HOUR),
        ([(5.0, -30.0)] * 20, 24 * HOUR - 100),
        ([(2.0, -1.9)] * 20, 24 * HOUR - 40),
        ([(HOUR, 0), (0, -HOUR)] * 20, 4 * HOUR),
        ([(HOUR, HOUR), (HOUR, -HOUR)], 22 * HOUR),
        ([(HOUR, -2 * HOUR), (0, 3 * HOUR)], 22 * HOUR - 2 * HOUR),
        ([(0, -40 * HOUR), (30 * HOUR, 0)], -6 * HOUR),
        ([(0, -1e10)], 24 * HOUR),
    ],
)
async def test_a_delay_lasts_for_its_length_whatever_steps_back_there_are(
    hf: Holdfast, admin: asyncpg.Connection, events: list[tuple[float, float]], left: float
) -> None:
    """A day's delay, with the time that passes and the step of the clock at its end."""
    _declare(hf, {})
    leader = _Leader(admin)
    await leader.renew()
    job = await hf.enqueue("note", {"name": "delayed"}, delay=24 * HOUR)
    await leader.renew()
    for passed, step in events:
        await leader.renew(passed=passed, step=step)
        await leader.walk()
    assert await leader.left(job.id) == pytest.approx(left, abs=5)
    assert await leader.walk() == 0, "once is enough"


async def test_a_step_moves_only_what_began_before_it(hf: Holdfast, admin: asyncpg.Connection) -> None:
    _declare(hf, {})
    leader = _Leader(admin)
    await leader.renew()
    first = await hf.enqueue("note", {"name": "long before"}, delay=24 * HOUR)
    aimed = await hf.enqueue(
        "note", {"name": "at a time"}, run_at=await admin.fetchval("select holdfast.now() + '1 day'")
    )
    await leader.renew(passed=HOUR)
    second = await hf.enqueue("note", {"name": "right before"}, delay=24 * HOUR)
    await _shift(admin, -HOUR)
    third = await hf.enqueue("note", {"name": "right after"}, delay=24 * HOUR)
    assert await leader.walk() == 0, "nobody has measured the step yet"
    await leader.renew()
    await leader.walk()
    fourth = await hf.enqueue("note", {"name": "after the walk"}, delay=24 * HOUR)
    assert await leader.walk() == 0
    lengths = [await leader.left(job.id) / HOUR for job in (first, second, third, fourth, aimed)]
    assert lengths == pytest.approx([23, 24, 24, 24, 24], abs=0.01)


async def test_time_without_a_leader_is_not_held_against_a_step_back(hf: Holdfast, admin: asyncpg.Connection) -> None:
    _declare(hf, {})
    leader = _Leader(admin)
    await leader.renew()
    job = await hf.enqueue("note", {"name": "delayed"}, delay=24 * HOUR)
    await leader.renew()
    await _shift(admin, 3 * HOUR)
    successor = _Leader(admin)
    await successor.renew()
    await successor.renew(step=-HOUR)
    await successor.walk()
    assert await successor.left(job.id) == pytest.approx(21 * HOUR, abs=5)


async def test_a_rate_lasts_for_its_length_whatever_steps_back_there_are(
    hf: Holdfast, admin: asyncpg.Connection
) -> None:
    _declare(hf, {})
    leader = _Leader(admin)
    await leader.renew()
    await hf.enqueue("rated", {"name": "first"})
    await hf.run_worker(burst=True)
    leader = _Leader(admin)
    await admin.execute("select resign('maintenance', holder) from leaders")
    await leader.renew()
    for _ in range(4):
        await leader.renew(passed=HOUR)
        await leader.renew(step=-HOUR / 2)
        await admin.fetchval("select changed from clamp_rates()")
    waited = "select extract(epoch from holdfast.clock_timestamp() - max(granted_at))::float8 from permits"
    assert await admin.fetchval(waited) == pytest.approx(4 * HOUR, abs=10)
    assert await admin.fetchval("select changed from clamp_rates()") == 0


@pytest.mark.parametrize("way", ["to and fro", "back by what has passed"])
async def test_steps_more_frequent_than_a_lease_put_recovery_off_by_three_leases_at_most(
    hf: Holdfast, admin: asyncpg.Connection, way: str, deeds: Deeds
) -> None:
    _declare(hf, {})
    healthy = await hf.enqueue("long", {"seconds": 5 * LEASE}, max_attempts=1)
    async with working(hf):
        await reached(hf, healthy, "running")
        lost = await _ghost(admin)
        asked = stepped = time.monotonic()
        minutes = itertools.cycle((60.0, -60.0))
        while not await _has(admin, lost, "state = 'success'"):
            assert time.monotonic() - asked < 4 * LEASE + 10, "recovery is put off for ever"
            passed, stepped = time.monotonic() - stepped, time.monotonic()
            await _shift(admin, next(minutes) if way == "to and fro" else -passed)
            await asyncio.sleep(0.7)
        took = time.monotonic() - asked
        assert (await hf.wait(healthy, timeout=60)).attempt == 1
        report = await admin.fetchval("select report -> 'breaks' ->> 'clock' from leaders")
    assert int(report) > 1, "doctor is told"
    deeds.say(f"recovered after {took:.1f} s, with leases of {LEASE:g} s")


async def test_a_lease_that_is_locked_while_the_clock_is_set_back_is_kept(
    hf: Holdfast, admin: asyncpg.Connection
) -> None:
    """It cannot be renewed meanwhile, and seems to last for an hour. The leader knows better; so must its worker."""
    _declare(hf, {})
    healthy = await hf.enqueue("long", {"seconds": 5 * LEASE}, max_attempts=1)
    async with working(hf):
        begun = "select exists (select from leases where number is null)"
        await until(lambda: admin.fetchval(begun), what="its beginning is recorded")
        async with admin.transaction():
            await admin.fetch("select from leases for update")
            await _shift_beside(hf, -3600.0)
            await asyncio.sleep(0.8 * LEASE)  # until its worker has asked for a renewal
        assert (await hf.wait(healthy, timeout=60)).attempt == 1
    assert (await hf.get(healthy)).failures == 0


async def test_a_dead_leader_is_followed_within_a_term_though_the_clock_was_set_back(
    hf: Holdfast, admin: asyncpg.Connection
) -> None:
    began: dict[str, list[float]] = {}
    _declare(hf, began)
    assert await admin.fetchval("select leads from preside('maintenance', 'dead', 5)")
    await _shift(admin, -3600.0)
    due = await hf.enqueue("note", {"name": "due"}, delay=0.1)
    async with working(hf):
        await reached(hf, due, "success", seconds=15)


async def test_a_dead_leader_is_followed_though_the_clock_is_set_back_again_and_again(
    hf: Holdfast, admin: asyncpg.Connection, deeds: Deeds
) -> None:
    alive = "select exists (select from leaders where holder <> 'dead')"
    async with working(hf):
        await until(lambda: admin.fetchval(alive), what="somebody leads")
        await admin.execute("update leaders set holder = 'dead', expires_at = now() + interval '5 seconds'")
        died = time.monotonic()
        while not await admin.fetchval(alive):
            assert time.monotonic() - died < 12, "a term of 5 s lasts for ever"
            await _shift(admin, -30.0)
            await asyncio.sleep(0.5)
    deeds.say(f"followed after {time.monotonic() - died:.1f} s")


def _declare(hf: Holdfast, began: dict[str, list[float]]) -> None:
    def note_it(name: str) -> int:
        began.setdefault(name, []).append(time.monotonic())
        return len(began[name])

    @hf.job("long", lease=LEASE)
    async def long(ctx: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @hf.job("lost", lease=LEASE)
    async def lost(ctx: Context) -> None: ...

    @hf.job("note")
    async def note(ctx: Context, name: str) -> None: ...

    @hf.job("retries", retry=RetryPolicy(max_attempts=3))
    async def retries(ctx: Context) -> None:
        if note_it("retries") == 1:
            raise Retry(delay=5.0)

    @hf.job("snoozes")
    async def snoozes(ctx: Context) -> None:
        if note_it("snoozes") == 1:
            raise Snooze(5.0)

    @hf.job("rated", rate="1/5 s")
    async def rated(ctx: Context, name: str) -> None:
        note_it("rated")


async def _shift(admin: asyncpg.Connection, seconds: float) -> None:
    await admin.execute("update testing_clock set shift = shift + make_interval(secs => $1)", seconds)


async def _shift_beside(hf: Holdfast, seconds: float) -> None:
    """The same on a connection of its own, while a transaction is open."""
    conn = await asyncpg.connect(hf.config.database_url, server_settings={"search_path": "holdfast"})
    await _shift(conn, seconds)
    await conn.close()


async def _gone(admin: asyncpg.Connection, job_id: UUID) -> bool:
    return not await admin.fetchval("select exists (select from jobs where id = $1)", job_id)


async def _ghost(admin: asyncpg.Connection) -> UUID:
    """A job whose worker has died."""
    async with admin.transaction():
        await admin.fetch("select * from enqueue('lost')")
        job_id: UUID = await admin.fetchval(
            "select job_id from claim('ghost', array['lost'], lease_seconds => $1)", LEASE
        )
    return job_id


async def _has(admin: asyncpg.Connection, job_id: UUID, condition: str) -> bool:
    return bool(await admin.fetchval(f"select {condition} from jobs where id = $1", job_id))
