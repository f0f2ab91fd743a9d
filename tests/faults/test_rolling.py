"""An upgrade under load: workers, programs and servers of the release before stay on the schema of this one.

Its real code runs (see tests.harness.before). The database is migrated while it is busy, this release joins, workers
of both are killed, and both see what the other decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from holdfast import Conflict, Holdfast
from holdfast.config import Config
from holdfast.store.migrate import migrate, plan
from holdfast.web.server import address, listen
from tests.faults.conftest import CHAOS_SECONDS, started_warm
from tests.faults.rolling import AT_ONCE, PER_CUSTOMER, PER_SECOND, STEPS
from tests.faults.rolling_clients import CUSTOMERS
from tests.faults.waiting import assert_rate, most_at_once
from tests.harness import warm
from tests.harness.before import environment_of, interpreter_before, release_before
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, Start, Started, judge
from tests.harness.waiting import until

WORKERS = 3 if CHAOS_SECONDS else 2
PRODUCERS = 2 if CHAOS_SECONDS else 1
SECONDS = CHAOS_SECONDS or 2
#: How many handlers of the release before end before the migration.
BUSY = 60 if CHAOS_SECONDS else 20
KILLED_PER_SECOND = 0.15 if CHAOS_SECONDS else 1.0
NARROW = 2
#: A claim that began before a pause was committed may still take something.
UNDER_WAY_SECONDS = 1.0 if CHAOS_SECONDS else 0.5
#: For how long a job in a queue with a limit runs, and its start is under way.
LONGEST_SECONDS = 3.0
SETTINGS = {
    "lease_sec_default": 4 if CHAOS_SECONDS else 2,
    "heartbeat_seconds": 0.5,
    "poll_interval": 0.5,
    "lanes": "fast=2,general=5",
}


@pytest.mark.slow
@pytest.mark.timeout(300 + 3 * CHAOS_SECONDS)
async def test_the_release_before_goes_on_beside_this_one_and_neither_loses_nor_repeats_a_job(
    empty_database_url: str, tmp_path: Path, chance: random.Random, deeds: Deeds
) -> None:
    url = empty_database_url
    release = {"HOLDFAST_DATABASE_URL": url, **{k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}}
    _migrate_before(release)
    admin = await asyncpg.connect(url)
    await admin.execute("create table public.ledger (job_id uuid, attempt integer)")
    config = Config.load(environment={}, database_url=url)
    assert not (await plan(config)).current, "the release before has this release's schema"
    with ExitStack() as stack:
        upgrade = Upgrade(url, tmp_path / "history", chance, stack, admin)
        deeds.watch(upgrade.old.workers)
        async with upgrade.server("old", release):
            await upgrade.set_limit("old", "narrow-old")
            await upgrade.old.begin()
            await upgrade.pause("old")
            await upgrade.some_jobs_end()
            ended = await upgrade.ended_jobs()

            began = time.monotonic()
            await migrate(config)
            took = time.monotonic() - began
            assert (await plan(config)).current

            async with upgrade.server("new", release), Holdfast(url) as hf:
                await upgrade.new.begin()
                await upgrade.set_limit("new", "narrow-new")
                await upgrade.resume("new")
                await upgrade.goes_on(hf, SECONDS)
                await upgrade.stop_producers()
                await until(lambda: upgrade.nothing_is_left(hf), seconds=120, what="all jobs end")
                for side in upgrade.sides:
                    await side.workers.drained()
                deeds.count()
                deeds.say(f"migrated in {took:.2f} s; {upgrade.told()}")
                jobs, _ = await judge(hf, upgrade.history)
                assert {job.id for job in jobs}.isdisjoint(upgrade.rolled_back())
                assert await upgrade.ended_jobs(ended) == ended, "what had ended before the migration has changed"
                await upgrade.judge_effects(hf)
                await upgrade.judge_pauses()
                upgrade.judge_limits(await upgrade.limited())
                assert not upgrade.refusals(), "\n".join(map(str, upgrade.refusals()[:20]))
    await admin.close()


def _migrate_before(environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "holdfast", "migrate"]
    environment = environment_of(release_before(), environment)
    subprocess.run(command, env=environment, cwd=release_before(), check=True, capture_output=True, timeout=60)


class Side:
    """Workers and programs of one release."""

    def __init__(self, name: str, url: str, folder: Path, start: Start, stack: ExitStack) -> None:
        self.name = name
        self.workers = stack.enter_context(Fleet("tests.faults.rolling", url, folder, start=start, **SETTINGS))
        self.producers = stack.enter_context(Fleet("tests.faults.rolling_clients", url, folder, start=start))

    async def begin(self) -> None:
        for _ in range(WORKERS):
            self.workers.spawn()
        for _ in range(PRODUCERS):
            self.producers.spawn()
        await self.workers.ready()
        await self.producers.ready()
        for process in self.workers.living + self.producers.living:
            (told,) = process.lines("release")
            assert (str(release_before()) in told["sources"]) == (self.name == "old"), told

    def kill_one(self, chance: random.Random) -> bool:
        working = [process for process in self.workers.living if process.started]
        if len(working) < 2:
            return False
        chance.choice(working).kill()
        self.workers.spawn()
        return True


def _before(arguments: list[str], environment: Mapping[str, str], output: IO[bytes]) -> Started:
    return interpreter_before(arguments, environment, output)


class Upgrade:
    """Both sides, their servers, and what was asked of them."""

    def __init__(
        self, url: str, folder: Path, chance: random.Random, stack: ExitStack, admin: asyncpg.Connection
    ) -> None:
        self.chance, self.admin = chance, admin
        self.old = Side("old", url, folder, _before, stack)
        self.new = Side("new", url, folder, started_warm, stack)
        self.sides = [self.old, self.new]
        self.history = self.old.workers.history
        self.http: dict[str, httpx.AsyncClient] = {}
        self.paused_at: Any = None
        self.lulls: list[tuple[Any, Any]] = []
        self.limited_at: dict[str, float] = {}
        self.kills: Counter[str] = Counter()
        self.pauses: Counter[str] = Counter()
        self.cancels: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def server(self, name: str, environment: Mapping[str, str]) -> AsyncIterator[None]:
        """A server of one release; programs of both use it."""
        folder = self.history.folder
        with listen("127.0.0.1", 0) as listener, (folder / f"{name}-server.log").open("wb") as output:
            arguments = ["-m", "tests.faults.serving", str(listener.fileno()), "0"]
            process: Started
            if name == "old":
                process = interpreter_before(arguments, environment, output, [listener.fileno()])
            else:
                process = warm.Process(arguments, env=environment, stdout=output, pass_fds=[listener.fileno()])
            try:
                # Servers close connections that are idle, perhaps in the moment in which one is used again.
                limits = httpx.Limits(max_keepalive_connections=0)
                async with httpx.AsyncClient(base_url=address(listener), timeout=30, limits=limits) as client:
                    await until(lambda: _is_ready(client), what="the server answers")
                    self.http[name] = client
                    with (folder / "servers").open("a") as urls:
                        urls.write(f"{address(listener)}\n")
                    yield
            finally:
                process.kill()
                process.wait()

    async def goes_on(self, hf: Holdfast, seconds: float) -> None:
        """Kill workers of both, and see that each side sees what the other decides."""
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kill_until(end))
            for look in (self._see_pauses, self._see_cancels):
                group.create_task(look(hf, end))

    async def _kill_until(self, end: float) -> None:
        sides = itertools.cycle(self.sides)
        while time.monotonic() < end or min(self.kills[side.name] for side in self.sides) < 1:
            await asyncio.sleep(self.chance.uniform(0.5, 1.5) / KILLED_PER_SECOND)
            side = next(sides)
            self.kills[side.name] += side.kill_one(self.chance)

    async def _see_pauses(self, hf: Holdfast, end: float) -> None:
        for one, other in itertools.cycle([("old", "new"), ("new", "old")]):
            await self.pause(one)
            await asyncio.sleep(UNDER_WAY_SECONDS)
            ref = await hf.enqueue("quick", {}, queue="lull")
            self.history.enqueued(ref.id)
            await asyncio.sleep(UNDER_WAY_SECONDS)
            found = (await self.http[other].get(f"/ops/jobs/{ref.id}/explain")).json()
            assert found["code"] == "queue-paused", found
            await self.resume(other)
            await until(lambda: _ended(hf, ref.id), what="the job in the queue that was resumed ends")  # noqa: B023
            self.pauses[f"{one}, resumed by {other}"] += 1
            if time.monotonic() > end and len(self.pauses) == 2:
                return
            await asyncio.sleep(min(SECONDS / 10, 5))

    async def _see_cancels(self, hf: Holdfast, end: float) -> None:
        for by in itertools.cycle(["old", "new"]):
            refs = [await hf.enqueue("wait", {}, priority=0) for _ in range(4)]
            for ref in refs:
                self.history.enqueued(ref.id)
            workers = await until(lambda: self._ran_on({ref.id for ref in refs}), what="handlers wait")  # noqa: B023
            for ref in refs:
                verb = self.chance.choice(["", "/ops"])
                answer = await self.http[by].post(f"{verb}/jobs/{ref.id}/cancel")
                assert answer.status_code == 202, answer.text
            for ref in refs:
                job = await hf.wait(ref.id, timeout=60)
                assert job.state.value == "canceled", job
                self.cancels[f"{workers[ref.id]} by {by}"] += 1
            if time.monotonic() > end and len(self.cancels) >= 2:
                return
            await asyncio.sleep(min(SECONDS / 10, 2))

    def _ran_on(self, ids: set[UUID]) -> dict[UUID, str] | None:
        """Which side runs each, once all have begun."""
        sides = {process.pid: side.name for side in self.sides for process in side.workers.processes}
        found = {f.job_id: sides[f.process] for f in self.history.facts() if f.kind == "started" and f.job_id in ids}
        return {k: v for k, v in found.items() if k is not None} if len(found) == len(ids) else None

    async def set_limit(self, by: str, queue: str) -> None:
        answer = await self.http[by].put(f"/ops/queues/{queue}/limits", json={"limit": NARROW})
        assert answer.status_code == 200, answer.text
        self.limited_at[queue] = time.monotonic()

    async def pause(self, by: str) -> None:
        answer = await self.http[by].post("/ops/queues/lull/pause", json={"reason": f"by {by}"})
        assert answer.status_code == 200, answer.text
        self.paused_at = await self.admin.fetchval("select clock_timestamp()")

    async def resume(self, by: str) -> None:
        self.lulls.append((self.paused_at, await self.admin.fetchval("select clock_timestamp()")))
        answer = await self.http[by].post("/ops/queues/lull/resume", json={})
        assert answer.status_code == 200, answer.text

    async def judge_pauses(self) -> None:
        """Nothing was claimed in the queue while it was paused, by either release."""
        sql = """
            select j.id, a.attempt, a.worker, a.started_at, lull.since, lull.until
            from holdfast.job_attempts a
            join holdfast.jobs j on j.id = a.job_id
            join unnest($1::timestamptz[], $2::timestamptz[]) as lull (since, until)
              on a.started_at > lull.since + make_interval(secs => $3) and a.started_at < lull.until
            where j.queue = 'lull'"""
        assert await self.admin.fetch(sql, *zip(*self.lulls, strict=True), UNDER_WAY_SECONDS) == []

    async def some_jobs_end(self) -> None:
        await until(lambda: self.history.count("ended") > BUSY, what="the release before works")

    async def ended_jobs(self, of: Mapping[UUID, Any] | None = None) -> dict[UUID, Any]:
        """What has ended, or how these stand."""
        rows = await self.admin.fetch(
            "select id, state, attempt, failures, result, finished_at from holdfast.jobs "
            "where case when $1::uuid[] is null then finished_at is not null else id = any ($1) end",
            None if of is None else list(of),
        )
        return {row["id"]: tuple(row) for row in rows}

    async def stop_producers(self) -> None:
        for side in self.sides:
            for process in side.producers.processes:
                process.drain()
            for process in side.producers.processes:
                assert await process.ended() == 0, process.output.read_text()[-3000:]

    async def nothing_is_left(self, hf: Holdfast) -> bool:
        for job in await hf.find(states=["paused", "error"], limit=1000):
            self.history.note("resumed", job_id=job.id)
            with contextlib.suppress(Conflict):
                await hf.resume(job.id)
        backlog = await hf.client.backlog()
        moving = any(backlog[part] for part in ("ready", "running", "due", "waiting"))
        return not moving and not await hf.find(states=["paused", "error"], limit=1)

    async def judge_effects(self, hf: Holdfast) -> None:
        """Exactly one line for each ledger job that succeeded, none for others; each step stored once."""
        wrong = await self.admin.fetch(
            "select j.id, j.state, count(l.job_id) from holdfast.jobs j left join public.ledger l on l.job_id = j.id "
            "where j.type = 'ledger' group by j.id having count(l.job_id) <> (j.state = 'success')::integer"
        )
        assert wrong == []
        for row in await self.admin.fetch("select id from holdfast.jobs where type = 'steps' and state = 'success'"):
            items = await hf.items(row["id"])
            assert [item.data for item in items] == [{"step": step} for step in range(STEPS)], row["id"]

    async def limited(self) -> dict[str, tuple[int, set[UUID]]]:
        """Each limit, with the jobs that it is for."""
        found: dict[str, tuple[int, set[UUID]]] = {}
        for name, limit, condition in [
            ("few", AT_ONCE, "type = 'few'"),
            *(
                (customer, PER_CUSTOMER, f"type = 'keyed' and payload ->> 'customer' = '{customer}'")
                for customer in CUSTOMERS
            ),
            ("narrow-old", NARROW, "queue = 'narrow-old'"),
            ("narrow-new", NARROW, "queue = 'narrow-new'"),
            ("rated", 0, "type = 'rated'"),
        ]:
            rows = await self.admin.fetch(f"select id from holdfast.jobs where {condition}")
            found[name] = limit, {row["id"] for row in rows}
        return found

    def judge_limits(self, limited: dict[str, tuple[int, set[UUID]]]) -> None:
        """From the handlers' own logs. What ran already when a limit was set may go on."""
        _, rated = limited.pop("rated")
        for name, (limit, jobs) in limited.items():
            since = self.limited_at.get(name, 0.0) + LONGEST_SECONDS
            most = most_at_once(self.old.workers, jobs, since=since)
            assert most <= limit, f"{most} at once of {name}, of {limit} allowed"
        assert_rate([f.at for f in self.history.facts() if f.kind == "started" and f.job_id in rated], PER_SECOND)

    def rolled_back(self) -> set[UUID]:
        return {UUID(line["job_id"]) for line in self._said("rolled back")}

    def refusals(self) -> list[dict[str, Any]]:
        return list(self._said("refused"))

    def _said(self, event: str) -> Iterator[dict[str, Any]]:
        for side in self.sides:
            for process in side.producers.processes:
                for line in process.lines(event):
                    yield {"side": side.name, **line}

    def told(self) -> str:
        done: Counter[str] = Counter()
        for line in self._said("done"):
            done.update({k: v for k, v in line.items() if k not in ("side", "event")})
        runs = Counter[str]()
        for side in self.sides:
            pids = {process.pid for process in side.workers.processes}
            runs[side.name] = sum(f.kind == "started" and f.process in pids for f in self.history.facts())
        return (
            f"kills {dict(self.kills)}, runs {dict(runs)}, pauses {dict(self.pauses)}, cancels {dict(self.cancels)}, "
            f"programs did {dict(done)}"
        )


async def _is_ready(client: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return (await client.get("/readyz")).status_code == 200
    return False


async def _ended(hf: Holdfast, job_id: UUID) -> bool:
    return (await hf.get(job_id)).state.terminal
