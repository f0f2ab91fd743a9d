"""Claims from ranges: the engine's rule is the model's, and what hints pass over a full look finds."""

from __future__ import annotations

import random

import asyncpg

from holdfast.model.hints import Hints, Ranges
from tests.conftest import ConnectAs
from tests.model.test_hints import covered
from tests.sql.factories import enqueue, enqueue_copies, enqueue_many
from tests.sql.meter import BareWorker


async def test_the_engine_takes_from_a_range_what_the_model_says(conn: asyncpg.Connection) -> None:
    dice = random.Random(1)
    await enqueue_many(conn, [(dice.choice("abc"), {}, {"priority": dice.randint(0, 4)}) for _ in range(120)])
    rows = await conn.fetch("select stream, rank, seq from ready")
    streams = sorted({row["stream"] for row in rows})
    for _ in range(20):
        ranges: Ranges = ([], [], [], [])
        for stream in streams:
            bounds = [stream, dice.randint(-1, 8), dice.randint(0, 120), dice.randint(2, 14)]
            for values, bound in zip(ranges, bounds, strict=True):
                values.append(bound)
        expected = sorted(tuple(row) for row in rows if covered(ranges, (row["stream"], row["rank"], row["seq"])))
        trial = conn.transaction()
        await trial.start()
        taken = await conn.fetch("select stream, rank, seq from claim_from('w1', 200, 30, $1, $2, $3, $4)", *ranges)
        await trial.rollback()
        assert sorted(tuple(row) for row in taken) == expected


async def test_a_job_that_commits_late_with_an_older_place_is_found_by_a_full_look(connect_as: ConnectAs) -> None:
    worker, client = await connect_as("worker"), await connect_as("api")
    await enqueue(worker)
    bare = BareWorker(worker, ["work"])
    assert await bare.drain(1) == 1
    async with client.transaction():
        late = await enqueue(client)
        await enqueue_copies(worker, 5)
        assert await bare.drain(5) == 5
    assert await bare.drain(1) == 0
    streams = [row["id"] for row in await worker.fetch("select id from eligible_streams(array['work'])")]
    rows = await worker.fetch("select job_id from claim_from('w1', 9, 30, $1, $2, $3, $4)", *Hints.everything(streams))
    assert [row["job_id"] for row in rows] == [late]


async def test_jobs_of_new_priorities_and_returned_ones_are_found_by_hints(conn: asyncpg.Connection) -> None:
    bare = BareWorker(conn, ["work"])
    for priority in (100, 50, 150, 100, 0):
        await enqueue_copies(conn, 3, priority=priority)
        assert await bare.drain(2) == 2
        await conn.execute("select from claim('w2', array['work'])")
        await conn.execute("select release_unknown('w2', '{}')")
        assert await bare.drain(1) == 1
