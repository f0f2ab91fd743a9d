"""Where systems meet: the servers, a fresh database for every measurement, and the record of what came of it.

A system's tables are made once, in a template; every measurement gets a copy, made by copying files, which
ends with a checkpoint: all begin alike. Systems take turns within a round, and the order rotates.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import asyncpg

from bench.field import HOLDFAST, Contestant
from bench.meters import UNKNOWN, Costs, PostgresMeter, cpu_seconds
from bench.options import Options
from bench.results import Figures, Result, Sample
from bench.runner import Runner, RunnerError
from bench.servers import PostgresServer, RedisServer

__all__ = ["Database", "Measure", "Stage", "rotated"]

Measure = Callable[[int], Awaitable[Figures]]
_FAILURES = (RunnerError, asyncpg.PostgresError, OSError, TimeoutError)


class Database:
    """A place for one system's jobs: a database of PostgreSQL, or the emptied Redis."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url


class Stage:
    """Everything that a cell needs."""

    def __init__(
        self,
        *,
        options: Options,
        result: Result,
        server: PostgresServer,
        redis: RedisServer | None,
        admin: asyncpg.Connection,
        meter: PostgresMeter,
        runners: Mapping[str, Runner],
    ) -> None:
        self.options, self.result, self.meter = options, result, meter
        self.server, self.redis, self.admin = server, redis, admin
        self.runners = runners
        #: How fast each system was at something last time, to size the next time.
        self.speeds: dict[tuple[str, str], float] = {}
        #: How many clients suit pgbench best, by the size of its batches.
        self.clients: dict[int, int] = {}
        self._templates: set[str] = set()
        self._databases = 0
        self._given_up: dict[tuple[str, str], str] = {}

    @property
    def holdfast(self) -> Runner:
        """Ourselves."""
        return self.runners[HOLDFAST.name]

    def runners_of(self, kind: str) -> list[tuple[str, Runner]]:
        """Those who take part in a kind of cell, by name."""
        return [(name, runner) for name, runner in self.runners.items() if runner.contestant.only in ("", kind)]

    def postgres_runners(self) -> list[Runner]:
        """Ourselves and, where that was asked for, the peers on PostgreSQL: for bad states and long loads."""
        peers = [runner for _, runner in self.runners_of("states") if runner.contestant.store == "postgres"]
        return peers if self.options.peer_states else [self.holdfast]

    async def interleave(self, cell: str, measures: Mapping[str, Measure]) -> None:
        """Let all have their turn in every round, the order rotated."""
        for number in range(self.options.rounds):
            for name in rotated(list(measures), number):
                await self.measure(cell, name, number, measures[name])

    async def measure(self, cell: str, system: str, number: int, measure: Measure) -> None:
        """Measure once and record it, also where it fails; who failed in a cell is not asked there again."""
        note, figures, began = self._given_up.get((cell, system), ""), Figures(), time.monotonic()
        if not note:
            try:
                figures = await measure(number)
            except _FAILURES as error:
                note = " ".join(f"{error}".split())[:300] or type(error).__name__
                self._given_up[cell, system] = note
            except NotImplementedError:
                note = self._given_up[cell, system] = "no such call"
            if figures.get("left"):
                note = f"left {figures['left']:.0f} unfinished"
        sample = Sample(cell=cell, system=system, round=number, figures=figures, note=note)
        self.result.samples.append(sample)
        _tell(sample, time.monotonic() - began)

    async def costs(self, contestant: Contestant, database: Database, workers: Sequence[int]) -> Costs:
        """The counters of the system's server and of its workers, now."""
        if contestant.store == "postgres":
            return await self.meter.costs(database.name, workers)
        server = cpu_seconds([self.redis.pid]) if self.redis else UNKNOWN
        workers_cpu = cpu_seconds(workers)
        return Costs(server_cpu=server, worker_cpu=workers_cpu, wal=UNKNOWN, statements=UNKNOWN, buffers=UNKNOWN)

    @contextlib.asynccontextmanager
    async def fresh(self, contestant: Contestant, template: str | None = None) -> AsyncIterator[Database]:
        """A new database with the system's tables, dropped afterwards; or the Redis, emptied."""
        if contestant.store == "redis":
            if self.redis is None:
                raise RunnerError("there is no Redis")
            self.redis.command("FLUSHALL")
            await self.runners[contestant.name].prepare(self.redis.url)
            yield Database("", self.redis.url)
            return
        async with self.empty(template or await self.template(contestant.name)) as database:
            yield database

    @contextlib.asynccontextmanager
    async def empty(self, template: str = "template0") -> AsyncIterator[Database]:
        """A copy of a template, or a database with nothing in it."""
        self._databases += 1
        name = f"bench_{self._databases}"
        await self.admin.execute(f"create database {name} template {template} strategy file_copy")
        await self.meter.forget()
        try:
            yield Database(name, self.server.database(name))
        finally:
            await self.admin.execute(f"drop database if exists {name} with (force)")

    async def template(self, system: str, state: str = "", seed: Callable[[str], Awaitable[None]] | None = None) -> str:
        """The name of the template with a system's tables, and with what `seed` puts there; made when first needed."""
        name = f"template_{system}{'_' if state else ''}{state}"
        if name not in self._templates:
            origin = await self.template(system) if state else "template0"
            await self.admin.execute(f"drop database if exists {name} with (force)")
            await self.admin.execute(f"create database {name} template {origin} strategy file_copy")
            if state == "":
                await self.runners[system].prepare(self.server.database(name))
            if seed is not None:
                await seed(self.server.database(name))
            self._templates.add(name)
        return name

    async def forget(self, template: str) -> None:
        """Drop a template that is large and no longer needed."""
        self._templates.discard(template)
        await self.admin.execute(f"drop database if exists {template} with (force)")


def rotated(names: Sequence[str], by: int) -> list[str]:
    """The same, beginning elsewhere."""
    start = by % len(names) if names else 0
    return [*names[start:], *names[:start]]


def _tell(sample: Sample, seconds: float) -> None:
    first = next((f"{name} {value:,.1f}" for name, value in sample.figures.items()), "")
    words = [sample.cell, sample.system, str(sample.round + 1), first, sample.note]
    print(f"[{seconds:5.1f} s]", " · ".join(word for word in words if word), file=sys.stderr, flush=True)
