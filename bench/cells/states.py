"""The same drain in a database in a bad state, beside the undisturbed one: the ratio is what counts.

In every round the undisturbed drain and the disturbed ones take turns, the order rotated; in a full run every
state has an undisturbed drain of its own beside it. The states:

- `backlog`: other jobs are in line; `scheduled`: jobs wait for their time; `history`: many have ended;
- `pinned`: a transaction that began before has been open under load for a while (in a full run five minutes)
  and stays open: what was deleted meanwhile cannot be vacuumed. The other drains run in other databases,
  which it does not hold up. In a full run the undisturbed one beside it has had the same load, so that the open
  transaction is the only difference: a million jobs outgrow the server's memory, whoever keeps a transaction open;
- `readers`: four REPEATABLE READ transactions, overlapping so that there always is an old one, each of which
  counts the rows of all tables when it begins and every two seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

import asyncpg

from bench import seeds
from bench.cells.drain import drain, expected, sized
from bench.field import HOLDFAST
from bench.limits import exact
from bench.options import SMALL
from bench.results import Figures
from bench.runner import Runner, RunnerError
from bench.stage import Database, Measure, Stage, rotated

__all__ = ["STATES", "run"]

SEEDED = ("backlog", "scheduled", "history")
STATES = (*SEEDED, "pinned", "readers")
_READERS = 4


async def run(stage: Stage, states: Sequence[str]) -> None:
    """Some states, beside one undisturbed drain, for every system that they can be made for."""
    for runner in stage.postgres_runners():
        possible = [state for state in states if state not in SEEDED or runner.contestant is HOLDFAST]
        if possible:
            await _group(stage, runner, possible)


async def _group(stage: Stage, runner: Runner, states: list[str]) -> None:
    name = runner.contestant.name
    try:
        count = await sized(stage, runner, 1, SMALL)
    except RunnerError as error:
        await stage.measure(f"state-{states[0]}", name, 0, partial(_failed, error))
        return
    async with contextlib.AsyncExitStack() as open_states:
        measures: dict[str, Measure] = {"calm": partial(_calm, stage, runner, count)}
        for state in states:
            if state in SEEDED:
                measures[state] = partial(_seeded, stage, runner, count, state)
            elif state == "pinned":
                database = await open_states.enter_async_context(_loaded(stage, runner, pin=True))
                measures[state] = partial(_again, stage, runner, database, count)
                if stage.options.full:
                    beside = await open_states.enter_async_context(_loaded(stage, runner, pin=False))
                    measures["calm"] = partial(_again, stage, runner, beside, count)
            else:
                measures[state] = partial(_read, stage, runner, count)
        for number in range(stage.options.rounds):
            for state in rotated(list(measures), number):
                cell = f"state-{state}" if state != "calm" or len(states) > 1 else f"state-calm-{states[0]}"
                await stage.measure(cell, name, number, measures[state])
    for state in states:
        if state in SEEDED:
            await stage.forget(f"template_{name}_{state}")


async def _failed(error: RunnerError, _round: int) -> Figures:
    raise error


async def _calm(stage: Stage, runner: Runner, count: int, _round: int) -> Figures:
    async with stage.fresh(runner.contestant) as database:
        return await _drained(stage, runner, database, count)


async def _seeded(stage: Stage, runner: Runner, count: int, state: str, _round: int) -> Figures:
    jobs = stage.options.history if state == "history" else stage.options.backlog
    seed = {"backlog": seeds.backlog, "scheduled": seeds.scheduled, "history": seeds.history}[state]
    template = await stage.template(runner.contestant.name, state, lambda url: seed(url, jobs))
    async with stage.fresh(runner.contestant, template) as database:
        return await _drained(stage, runner, database, count, others=await runner.unfinished(database.url))


async def _again(stage: Stage, runner: Runner, database: Database, count: int, _round: int) -> Figures:
    return await _drained(stage, runner, database, count)


async def _read(stage: Stage, runner: Runner, count: int, _round: int) -> Figures:
    async with stage.fresh(runner.contestant) as database, _readers(stage, database):
        await asyncio.sleep(1)
        return await _drained(stage, runner, database, count)


async def _drained(stage: Stage, runner: Runner, database: Database, count: int, *, others: int = 0) -> Figures:
    figures = await drain(stage, runner, database, count, others=others)
    return figures | (await exact.visits(database.url) if runner.contestant is HOLDFAST else {})


@contextlib.asynccontextmanager
async def _loaded(stage: Stage, runner: Runner, *, pin: bool) -> AsyncIterator[Database]:
    """A database in which much has happened, and (pin) a transaction was opened before that."""
    chunk = int(max(500, await expected(stage, runner, SMALL) * min(3, stage.options.drain_seconds)))
    async with stage.fresh(runner.contestant) as database:
        # The transaction begins when there is something to see.
        await runner.one(database.url, 1, SMALL)
        idle = await asyncpg.connect(database.url)
        try:
            if pin:
                await idle.execute("begin isolation level repeatable read")
                await idle.fetchval("select count(*) from pg_class")
            async with runner.workers(database.url) as workers:
                began, asked = time.monotonic(), 1
                while time.monotonic() - began < stage.options.pinned_seconds:
                    await runner.enqueue(database.url, chunk, SMALL)
                    asked += chunk
                    await workers.reach(asked, 300)
                await runner.await_finished(database.url, 0, 30)
            yield database
        finally:
            await idle.close()


@contextlib.asynccontextmanager
async def _readers(stage: Stage, database: Database) -> AsyncIterator[None]:
    """Four readers, begun one after the other."""
    seconds = stage.options.reader_seconds
    tasks = [asyncio.create_task(_reader(database.url, seconds, n * seconds / _READERS)) for n in range(_READERS)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _reader(url: str, seconds: float, shorter: float) -> None:
    conn = await asyncpg.connect(url)
    try:
        while True:
            async with conn.transaction(isolation="repeatable_read", readonly=True):
                until = time.monotonic() + seconds - shorter
                shorter = 0.0
                while time.monotonic() < until:
                    for table in await conn.fetch("select relid::regclass::text from pg_stat_user_tables"):
                        await conn.fetchval(f"select count(*) from {table[0]}")
                    await asyncio.sleep(2)
    finally:
        await conn.close()
