"""Large payloads do not come with a claim: no more of them are in memory than handlers run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, SyncContext
from holdfast.model.hints import Hints
from holdfast.store.database import Database
from holdfast.store.leases import LeaseStore
from holdfast.telemetry.bus import Bus
from holdfast.worker.claimed import Claimed
from holdfast.worker.endings import NotBegun
from holdfast.worker.payloads import Payloads
from tests.harness import warm
from tests.harness.waiting import until

ROOT = Path(__file__).parents[2]
LARGE = 1_000_000


async def _large(conn: asyncpg.Connection, count: int, kind: str = "large") -> None:
    """Jobs with payloads of a megabyte, which take next to nothing where they are stored."""
    await conn.execute(
        "select enqueue_many(array_fill($1::text, array[$2::integer]), array_fill("
        "jsonb_build_object('a', repeat('x', $3::integer)), array[$2::integer]))",
        kind,
        count,
        LARGE,
    )


@pytest.fixture
async def store(hf: Holdfast) -> Any:
    database = Database(hf.config, role="worker", size=2)
    await database.open()
    yield LeaseStore(database, "w1")
    await database.close()


async def _claim(store: LeaseStore, conn: asyncpg.Connection, count: int) -> list[Claimed]:
    streams = await store.streams(["large"], None, None)
    claims = await store.claim(Hints.everything(list(streams)), streams, count, None)
    return [Claimed(claim, "general", 0.0) for claim in claims]


async def test_a_claim_of_many_jobs_brings_no_large_payloads(store: LeaseStore, conn: asyncpg.Connection) -> None:
    await _large(conn, 50)
    await conn.execute("select enqueue('large', jsonb_build_object('a', repeat('x', 10000)))")
    await conn.execute("select enqueue('large', '{\"a\": \"small\"}')")
    claimed = await _claim(store, conn, 100)
    assert len(claimed) == 52
    assert sum(len(h.claim.payload or "") for h in claimed) < 20_000
    assert claimed[-1].claim.payload == '{"a": "small"}'
    payloads = Payloads(store, Bus())
    await payloads.fetch(claimed[0])
    assert json.loads(claimed[0].claim.payload or "") == {"a": "x" * LARGE}


async def test_a_payload_whose_lease_is_gone_is_not_fetched(store: LeaseStore, conn: asyncpg.Connection) -> None:
    await _large(conn, 2)
    gone, kept = await _claim(store, conn, 2)
    await conn.execute("select release('w1', array[$1::uuid], array[1])", gone.job_id)
    payloads = Payloads(store, Bus())
    with pytest.raises(NotBegun, match="lease was over"):
        await payloads.fetch(gone)
    await payloads.fetch(kept)
    assert kept.claim.payload is not None


async def test_handlers_of_every_executor_get_large_payloads_whole(hf: Holdfast, conn: asyncpg.Connection) -> None:
    seen: dict[str, Any] = {}

    @hf.job("in loop")
    async def in_loop(ctx: Context, a: str) -> int:
        if ctx.attempt == 1:
            await ctx.items([], cursor={"at": "c" * 500_000})
            raise RuntimeError("again")
        seen["cursor"] = ctx.cursor
        return len(a)

    @hf.job("in thread")
    def in_thread(ctx: SyncContext, a: str) -> int:
        return len(a)

    jobs = [await hf.enqueue(kind, {"a": "x" * LARGE}) for kind in ("in loop", "in thread")]
    await conn.execute("update job_types set backoff_base = 0")
    await hf.run_worker(burst=True)
    await conn.execute("update due set run_at = now()")
    await hf.run_worker(burst=True)
    assert [(await hf.get(job)).result for job in jobs] == [LARGE, LARGE]
    assert seen["cursor"] == {"at": "c" * 500_000}


async def test_the_memory_of_a_worker_does_not_grow_with_waiting_payloads(
    conn: asyncpg.Connection, database_url: str, tmp_path: Path
) -> None:
    """Handlers are very short, so that many jobs are claimed ahead, and then come the large ones."""
    await conn.execute(
        "select enqueue_many(array_fill('large'::text, array[600]), array_fill('{\"a\": \"\"}'::jsonb, array[600]))"
    )
    await _large(conn, 60)
    await _large(conn, 60)
    log = tmp_path / "worker.log"
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": database_url}
    with log.open("wb") as output:
        process = warm.Process(["-m", "tests.worker.large"], cwd=ROOT, env=environment, stdout=output)
    await until(lambda: process.poll() is not None, seconds=90, what="the worker ends")
    assert await conn.fetchval("select count(*) from jobs where state = 'success'") == 720, log.read_text()
    grown = int(log.read_text().split()[-1])
    assert grown < 64, f"the worker grew by {grown} MiB"
