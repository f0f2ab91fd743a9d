"""The database goes away and comes back, in every way it can. No attempt is burned, nothing is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from holdfast import DatabaseUnavailable, Holdfast
from holdfast.store.embedded import EmbeddedPostgres
from tests.faults.conftest import CHAOS_SECONDS, NewFleet, crash
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, WorkerProcess, judge
from tests.harness.waiting import until

#: What a drain may take beyond its grace while nobody answers: to clean up, to settle, to say goodbye.
DRAIN_SECONDS = 15.0 if CHAOS_SECONDS else 18.0
LEASE, AWAY = (10, 20) if CHAOS_SECONDS else (4, 8)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 2 * CHAOS_SECONDS)]


@pytest.fixture
async def own(server: EmbeddedPostgres) -> AsyncIterator[Holdfast]:
    """A client of that server."""
    async with Holdfast(server.url) as app:
        yield app


async def test_postgresql_stopped_for_longer_than_a_lease_burns_no_attempt(
    server: EmbeddedPostgres, own: Holdfast, new_fleet: NewFleet, deeds: Deeds
) -> None:
    """One worker comes back a moment later than the leader that sweeps; all its leases are over by then."""
    fleet = await _under_load(new_fleet, own, server.url)

    server.stop()
    deeds.say(f"PostgreSQL stopped for {AWAY} s, with leases of {LEASE} s")
    await _pass(AWAY)
    assert _ends_with_target(fleet) == ["canceled"], "at the end of its lease, by the worker's own clock"

    late = _busiest(fleet)
    late.freeze()
    server.start()
    await until(lambda: _maintenance_is_back(server.url), what="maintenance goes on")
    await _pass(0.7)
    late.thaw()
    await _enqueue(own, fleet, "after", 20, seconds=0.01)

    await _nothing_was_burned(own, fleet)


async def test_postgresql_frozen_for_longer_than_a_lease_burns_no_attempt(
    server: EmbeddedPostgres, own: Holdfast, new_fleet: NewFleet, deeds: Deeds
) -> None:
    """A disk or a virtual machine that stalls: no connection is lost, but nobody is answered."""
    fleet = await _under_load(new_fleet, own, server.url)

    _signal_all(server, signal.SIGSTOP)
    deeds.say(f"PostgreSQL frozen for {AWAY} s, with leases of {LEASE} s")
    await _pass(AWAY)
    _signal_all(server, signal.SIGCONT)
    await _enqueue(own, fleet, "after", 20, seconds=0.01)

    await _nothing_was_burned(own, fleet)


async def test_postgresql_killed_under_load_burns_no_attempt(
    server: EmbeddedPostgres, own: Holdfast, new_fleet: NewFleet, deeds: Deeds
) -> None:
    fleet = await _under_load(new_fleet, own, server.url)
    for number in range(3 if CHAOS_SECONDS else 2):
        await crash(server)
        deeds.say("PostgreSQL killed")
        await _enqueue(own, fleet, f"after crash {number}", 20, seconds=0.01)

    await _nothing_was_burned(own, fleet)


async def test_a_drain_while_the_database_is_away_settles_when_it_is_back(
    server: EmbeddedPostgres, own: Holdfast, new_fleet: NewFleet, deeds: Deeds
) -> None:
    """Outcomes, and jobs handed back at the end of the grace period, are settled when the database is back."""
    fleet = new_fleet(server.url, lease_sec_default=20, heartbeat_seconds=0.5, shutdown_grace_period_seconds=2)
    worker = fleet.spawn()
    for kind, seconds in (("work", 1.0), ("threaded", 1.0), ("work", 60.0), ("threaded", 60.0)):
        await _enqueue(own, fleet, f"{kind} {seconds}", 1, kind, seconds=seconds)

    def seen(what: str) -> int:
        return sum(fact.kind == what for fact in fleet.history.facts())

    await until(lambda: seen("started") == 4, what="all of them run")
    _signal_all(server, signal.SIGSTOP)
    deeds.say("PostgreSQL frozen during a drain")
    worker.drain()
    await until(lambda: seen("ended") == 4, what="all of them ended, or were told to")
    _signal_all(server, signal.SIGCONT)
    assert await worker.ended() == 0
    jobs = await own.find()
    assert Counter((job.state.value, job.attempt, job.failures) for job in jobs) == {
        ("success", 1, 0): 2,
        ("queued", 1, 0): 2,
    }


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_drain_ends_in_time_though_the_database_never_answers(
    server: EmbeddedPostgres, own: Holdfast, new_fleet: NewFleet, deeds: Deeds, busy: bool
) -> None:
    """Nothing that is said at the end is waited for longer than a moment: leases are there for that."""
    grace = 1.0
    fleet = new_fleet(server.url, lease_sec_default=20, heartbeat_seconds=0.5, shutdown_grace_period_seconds=grace)
    worker = fleet.spawn()
    await until(lambda: worker.started, what="the worker works")
    if busy:
        for kind in ("work", "threaded"):
            await _enqueue(own, fleet, kind, 1, kind, seconds=60.0)
        await until(lambda: len(fleet.history.facts()) >= 4, what="both of them run")
    _signal_all(server, signal.SIGSTOP)
    began = time.monotonic()
    try:
        worker.drain()
        assert await worker.ended() == 0
        took = time.monotonic() - began
    finally:
        _signal_all(server, signal.SIGCONT)
    deeds.say(f"drained in {took:.1f} s, with a grace of {grace:g} s, while PostgreSQL was frozen")
    assert took < grace + DRAIN_SECONDS
    assert (Counter(job.failures for job in await own.find())) == ({0: 2} if busy else {})


async def test_connections_cut_under_load_burn_no_attempt(
    new_fleet: NewFleet, hf: Holdfast, database_url: str, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    fleet = await _under_load(new_fleet, hf, database_url)
    cuts = int(7 + CHAOS_SECONDS) if CHAOS_SECONDS else 4
    deeds.say(f"all sessions cut {cuts} times")
    for cut in range(cuts):
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
        await _enqueue(hf, fleet, f"after cut {cut}", 10, seconds=0.01)
        await _pass(0.4)

    await _nothing_was_burned(hf, fleet)


async def _under_load(new_fleet: NewFleet, app: Holdfast, url: str) -> Fleet:
    """Three workers, with handlers that are in the middle of something, and others waiting."""
    fleet = new_fleet(url, lease_sec_default=LEASE, heartbeat_seconds=0.5)
    for _ in range(3):
        fleet.spawn()
    await fleet.ready()
    await _enqueue(app, fleet, "long", 6, seconds=AWAY + 2)
    await _enqueue(app, fleet, "thread", 3, "threaded", seconds=AWAY + 1)
    await _enqueue(app, fleet, "first-of-target", 1, target="a target", seconds=AWAY + 2)
    await _enqueue(app, fleet, "target", 3, target="a target", seconds=0.1)
    await _enqueue(app, fleet, "short", 100, seconds=0.05)
    await until(lambda: len(fleet.history.facts()) > 100, what="much is under way")
    return fleet


async def _enqueue(
    app: Holdfast,
    fleet: Fleet,
    name: str,
    number: int,
    kind: str = "work",
    *,
    seconds: float,
    target: str | None = None,
) -> None:
    """Record jobs, again and again until they are acknowledged: the key makes them one each."""
    for place in range(number):
        key = f"{name.replace(' ', '-')}-{place}"

        async def recorded(key: str = key) -> bool:
            try:
                ref = await app.enqueue(kind, {"seconds": seconds}, idempotency_key=key, target=target)
            except DatabaseUnavailable:
                return False
            fleet.history.enqueued(ref.id, key=key, target=target)
            return True

        await until(recorded, what=f"{key} is recorded")


async def _nothing_was_burned(app: Holdfast, fleet: Fleet) -> None:
    await until(lambda: _idle(app), seconds=90, what="all jobs end")
    assert len(fleet.living) == 3, "the workers come back by themselves"
    await fleet.drained()
    jobs, attempts = await judge(app, fleet.history)
    assert {job.state for job in jobs} == {"success"}
    assert {job.failures for job in jobs} == {0}
    assert {attempt.outcome for attempt in attempts} <= {"success", "released"}
    runs = [fact.job_id for fact in fleet.history.facts() if fact.kind == "started"]
    twice = [job.id for job in jobs if job.target is None and runs.count(job.id) != 1]
    assert not twice, "a handler without a target runs on through an outage, once"


def _ends_with_target(fleet: Fleet) -> list[str | None]:
    facts = fleet.history.facts()
    aimed = {fact.job_id for fact in facts if fact.kind == "enqueued" and fact.target is not None}
    return [fact.how for fact in facts if fact.kind == "ended" and fact.job_id in aimed]


def _busiest(fleet: Fleet) -> WorkerProcess:
    """The process with the most handlers under way."""
    facts = fleet.history.facts()
    ended = {(fact.job_id, fact.attempt) for fact in facts if fact.kind == "ended"}
    busy = Counter(f.process for f in facts if f.kind == "started" and (f.job_id, f.attempt) not in ended)
    return max(fleet.living, key=lambda process: busy[process.pid])


async def _maintenance_is_back(url: str) -> bool:
    """Somebody leads: terms are shorter than the outage was."""
    conn = await asyncpg.connect(url)
    try:
        return bool(await conn.fetchval("select exists (select from holdfast.leaders where expires_at > now())"))
    finally:
        await conn.close()


def _signal_all(server: EmbeddedPostgres, number: signal.Signals) -> None:
    """A signal to every process of the server."""
    postmaster = server.postmaster_pid()
    assert postmaster is not None
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for process in (postmaster, *map(int, children)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


async def _idle(app: Holdfast) -> bool:
    try:
        backlog = await app.client.backlog()
    except DatabaseUnavailable:
        return False
    return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))


async def _pass(seconds: float) -> None:
    """Let so much time pass."""
    end = time.monotonic() + seconds
    await until(lambda: time.monotonic() >= end, seconds=seconds + 60)
