"""Pulls and reports over HTTP in batches, beside the Python worker, and beside pg-boss behind a bare HTTP handler.

Four workers with a connection each, batches of 100, one API process, the same payloads; jobs that do nothing. All
commit with fsync to the same PostgreSQL. Holdfast's calls need a key, and have fences and an answer for each job.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial

import asyncpg

from bench import nodes, upkeep, venvs
from bench.cells import drain
from bench.cells.api import free_port, run_python, serving
from bench.field import wants_pgboss
from bench.options import SMALL
from bench.results import Figures
from bench.servers import ROOT
from bench.stage import Database, Stage

__all__ = ["run"]

_WORKERS, _BATCH = 4, 100
PGBOSS = "pg-boss@10.4.2"
_LEFT = "select count(*) from pgboss.job where name = 'bench' and state <> 'completed'"


async def run(stage: Stage) -> None:
    """All in turn."""
    measures = {"holdfast": partial(_ours, stage), "direct": partial(_direct, stage)}
    if wants_pgboss(stage.options.peers):
        measures["pgboss"] = partial(_pgboss, stage)
    await stage.interleave("remote", measures)


async def _ours(stage: Stage, _round: int) -> Figures:
    count = stage.options.remote_jobs
    async with stage.fresh(stage.holdfast.contestant) as database:
        environment = {"HOLDFAST_DATABASE_URL": database.url, "HOLDFAST_LOG_LEVEL": "WARNING"}
        key = await run_python(["-m", "holdfast", "keys", "create", "bench", "--scope", "work"], environment)
        await stage.holdfast.enqueue(database.url, count, SMALL)
        await upkeep.analyze(database.url)
        port = free_port()
        command = ["-m", "holdfast", "serve", "--port", str(port), "--no-maintenance"]
        async with serving(command, port, environment) as pid:
            figures = await _measure(stage, database, pid, ["holdfast", "127.0.0.1", port], [key.strip()])
        return figures | {"left": float(await stage.holdfast.unfinished(database.url))}


async def _direct(stage: Stage, _round: int) -> Figures:
    async with stage.fresh(stage.holdfast.contestant) as database:
        return await drain.drain(stage, stage.holdfast, database, stage.options.remote_jobs)


async def _pgboss(stage: Stage, _round: int) -> Figures:
    try:
        modules = nodes.modules_of("pgboss", PGBOSS)
    except venvs.NotInstalled as error:
        raise OSError(str(error)) from None
    async with stage.empty() as database:
        port = free_port()
        script = str(ROOT / "bench/systems/pgboss.cjs")
        command = [str(port), str(stage.options.remote_jobs), str(SMALL)]
        environment = {"BENCH_URL": database.url, "NODE_PATH": str(modules)}
        async with serving([script, *command], port, environment, program=shutil.which("node")) as pid:
            await upkeep.analyze(database.url)
            figures = await _measure(stage, database, pid, ["pgboss", "127.0.0.1", port], [])
        conn = await asyncpg.connect(database.url)
        try:
            return figures | {"left": float(await conn.fetchval(_LEFT))}
        finally:
            await conn.close()


async def _measure(stage: Stage, database: Database, pid: int, place: Sequence[object], key: Sequence[str]) -> Figures:
    count = stage.options.remote_jobs
    before = await stage.meter.costs(database.name, [pid])
    arguments = [*map(str, place), str(_WORKERS), str(_BATCH), *key]
    answer: Mapping[str, float] = json.loads(await run_python(["-m", "bench.fleet", *arguments], {}))
    after = await stage.meter.costs(database.name, [pid])
    figures = after.since(before, count)
    return {"per_second": count / answer["seconds"], "again": answer["count"] - count} | figures
