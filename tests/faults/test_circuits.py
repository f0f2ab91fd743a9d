"""A service fails under load: what its own log says of the calls that a fleet of workers makes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from holdfast import DatabaseUnavailable, Holdfast
from holdfast.store.embedded import EmbeddedPostgres
from tests.faults.conftest import CHAOS_SECONDS, NewFleet, crash
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet
from tests.harness.waiting import until

WORKERS = 8 if CHAOS_SECONDS else 3
JOBS = 100_000 if CHAOS_SECONDS else 2_000
#: `tests.faults.calling` relies on an answer of the database for half of the two seconds that its circuit is open.
TRUSTED_SECONDS = 1.0
SLOTS = 8


class Line(NamedTuple):
    """A line of the service's log."""

    at: float
    pid: int
    what: str
    job: str


class Service:
    """The service, as the test switches it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        (place / "calls").touch()

    def switch(self, name: str, *, on: bool) -> None:
        if on:
            (self.place / name).touch()
        else:
            (self.place / name).unlink()

    def lines(self) -> list[Line]:
        found = []
        for line in (self.place / "calls").read_text().splitlines():
            at, pid, what, job = line.split()
            found.append(Line(float(at), int(pid), what, job))
        return found

    def hanging(self, since: float) -> int | None:
        """The process whose call began since then and has not ended."""
        late = [line for line in self.lines() if line.at > since]
        ended = {line.job for line in late if line.what != "begin"}
        return next((line.pid for line in late if line.what == "begin" and line.job not in ended), None)


@pytest.mark.slow
@pytest.mark.timeout(400 + 4 * CHAOS_SECONDS)
async def test_a_failing_service_is_left_alone_and_everything_ends_when_it_is_back(
    new_fleet: NewFleet, hf: Holdfast, conn: asyncpg.Connection, tmp_path: Path, deeds: Deeds
) -> None:
    service = Service(tmp_path / "service")
    service.switch("down", on=True)
    fleet = new_fleet(hf.config.database_url, "tests.faults.calling", home=service.place, lanes=f"general={SLOTS}")
    for _ in range(JOBS // 1000):
        await hf.enqueue_many([("send", {})] * 1000)
    for _ in range(WORKERS):
        fleet.spawn()
    opened_at = await until(
        lambda: conn.fetchval("select extract(epoch from opened_at)::float8 from circuits where openings = 1"),
        seconds=120,
    )
    await until(lambda: conn.fetchval("select openings >= 3 from circuits"), what="two probes have failed")

    # A probe hangs in a process that is killed, and the next one in a process that is frozen.
    service.switch("hanging", on=True)
    killed_at = await _strike(service, fleet, opened_at + TRUSTED_SECONDS, freeze=False)
    frozen_at = await _strike(service, fleet, killed_at, freeze=True)
    await until(lambda: service.hanging(frozen_at), what="another one tries although the one before is frozen")
    last_tried = time.time()
    generation, openings = await conn.fetchrow("select generation, openings from circuits")  # type: ignore[misc]
    wasted = await conn.fetchval("select count(*) from job_attempts")
    service.switch("down", on=False)
    service.switch("hanging", on=False)
    for process in fleet.living:
        process.thaw()
    began = time.monotonic()
    await until(lambda: conn.fetchval("select not exists (select from jobs where state <> 'success')"), seconds=300)
    took = time.monotonic() - began

    assert await conn.fetchval("select state from circuits") == "closed"
    assert generation == 2 * openings + 1, "it was closed in between"
    tried = [line for line in service.lines() if opened_at + TRUSTED_SECONDS < line.at < last_tried]
    assert _most_at_once(tried, struck=[killed_at, frozen_at]) == 1
    failures = await conn.fetchval("select sum(failures) from jobs")
    lost = await conn.fetchval("select count(*) from job_attempts where outcome = 'lost'")
    assert failures - lost <= WORKERS * SLOTS
    assert not await conn.fetchval("select exists (select from dead_letters)")
    assert wasted <= 4 * WORKERS * SLOTS + openings
    deeds.say(
        f"{JOBS} jobs, {WORKERS} workers: opened {openings} times, {failures} failures, {wasted} attempts in vain, "
        f"{len(tried)} lines while open, all done {took:.1f} s after recovery"
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_an_open_circuit_survives_crashes_of_the_server_and_closes_when_the_service_is_back(
    server: EmbeddedPostgres, new_fleet: NewFleet, tmp_path: Path
) -> None:
    """Killed while it is open, and while a probe hangs; nothing is tried beside the probe, and no attempt is spent."""
    service = Service(tmp_path / "service")
    service.switch("down", on=True)
    fleet = new_fleet(server.url, "tests.faults.calling", home=service.place, lanes=f"general={SLOTS}")
    for _ in range(2):
        fleet.spawn()
    await fleet.ready()
    async with Holdfast(server.url) as app:
        await app.enqueue_many([("send", {})] * 200)
        circuits = (await app.operations()).circuits

        async def state(wanted: str) -> bool:
            with contextlib.suppress(DatabaseUnavailable):
                return [c.state for c in await circuits.list() if c.name == "mail"] == [wanted]
            return False

        await until(lambda: state("open"), what="it opens")
        await crash(server)
        await until(lambda: state("open"), what="it is open still")
        opened_at = time.time()
        service.switch("hanging", on=True)
        await until(lambda: service.hanging(opened_at), seconds=120, what="a probe hangs")
        await crash(server)
        await until(lambda: state("half_open"), what="it is tried still")
        tried_until = time.time()
        service.switch("down", on=False)
        service.switch("hanging", on=False)
        await until(lambda: state("closed"), seconds=120, what="it closes")
        await until(lambda: _all_done(server.url), seconds=120, what="all jobs end")
        tried = [line for line in service.lines() if opened_at < line.at < tried_until]
        assert _most_at_once(tried, struck=[]) == 1
        assert (await (await app.operations()).statistics())["dead"] == 0


async def _all_done(url: str) -> bool:
    conn = await asyncpg.connect(url)
    try:
        return bool(await conn.fetchval("select not exists (select from holdfast.jobs where state <> 'success')"))
    finally:
        await conn.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_busy_service_of_which_few_calls_fail_never_trips(
    new_fleet: NewFleet, hf: Holdfast, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    fleet = new_fleet(hf.config.database_url, "tests.faults.calling", lanes="general=4")
    for _ in range(WORKERS):
        fleet.spawn()
    await fleet.ready()
    began = time.monotonic()
    jobs = 1000 if CHAOS_SECONDS else 100
    await hf.enqueue_many([("flaky", {"calls": 100})] * jobs)
    await until(lambda: conn.fetchval("select not exists (select from jobs where state <> 'success')"), seconds=200)
    rate = jobs * 100 / (time.monotonic() - began)
    deeds.say(f"{rate:.0f} calls/s, of which 5 % failed")
    row = await conn.fetchrow("select generation, state from circuits")
    assert row is not None
    assert tuple(row) == (1, "closed")
    assert not await conn.fetchval("select exists (select from job_attempts where outcome <> 'success')")


async def _strike(service: Service, fleet: Fleet, since: float, *, freeze: bool) -> float:
    """Kill or freeze the process in which a probe hangs; when that was."""
    pid = await until(lambda: service.hanging(since), what="a probe hangs")
    (process,) = [process for process in fleet.living if process.pid == pid]
    if freeze:
        process.freeze()
    else:
        process.kill()
        fleet.spawn()
    return time.time()


def _most_at_once(lines: list[Line], struck: list[float]) -> int:
    """How many calls were under way at once; those that were struck ended there."""
    under_way: set[str] = set()
    most = 0
    ends = sorted(struck)
    for line in lines:
        while ends and line.at > ends[0]:
            under_way.clear()
            ends.pop(0)
        with contextlib.suppress(KeyError):
            if line.what == "begin":
                under_way.add(line.job)
            else:
                under_way.remove(line.job)
        most = max(most, len(under_way))
    return most
