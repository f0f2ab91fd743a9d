"""A decision of an operator reaches workers at once: they do not poll for it."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.model.subject import Kind
from tests.conftest import ConnectAs
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until

SCOPES: dict[Kind, str] = {"queue": "post", "type": "mail", "lane": "general", "tenant": "acme", "everything": ""}


async def test_a_pause_stops_the_claims_of_a_running_worker_and_a_resume_starts_them_at_once(hf: Holdfast) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @hf.job("mail", queue="post")
    async def mail(ctx: Context, slow: bool = False) -> None:
        if slow:
            begun.set()
            await go_on.wait()

    @hf.job("quick", lane="fast")
    async def quick(ctx: Context) -> None: ...

    ops = await hf.operations()
    async with working(hf, poll_interval=60, lanes="fast=1,general=2", maintenance=False):
        running = await mail.options(tenant="acme").enqueue(slow=True)
        await asyncio.wait_for(begun.wait(), 30)
        for kind, name in SCOPES.items():
            assert await ops.pause(kind, name, by="ada")
            waiting = await mail.options(tenant="acme").enqueue()
            if kind != "everything":
                # The worker has looked when this one has run, and has left the other where it is.
                other = await quick.enqueue()
                assert (await hf.wait(other.id, timeout=30)).state == "success"
                assert (await hf.get(waiting.id)).state == "queued"
            assert (await ops.explain(waiting.id)).code == f"{kind}-paused"
            if kind == "queue":
                go_on.set()
                assert (await hf.wait(running.id, timeout=30)).state == "success"
            assert await ops.resume(kind, name, by="ada")
            done = await hf.wait(waiting.id, timeout=10)
            (resumed,) = await ops.keys.audit(limit=1)
            assert done.started_at is not None
            assert done.started_at >= resumed.at


async def test_a_limit_that_is_lifted_lets_the_next_one_start_at_once(hf: Holdfast) -> None:
    go_on = asyncio.Event()

    @hf.job("mail")
    async def mail(ctx: Context) -> None:
        await go_on.wait()

    ops = await hf.operations()
    await ops.limit("type", "mail", limit=1, by="ada")
    first, second = await mail.enqueue(), await mail.enqueue()
    async with working(hf, poll_interval=60, lanes="general=2", maintenance=False):
        async with asyncio.timeout(30):
            while {(await ops.explain(job.id)).code for job in (first, second)} != {"running", "limit"}:
                await asyncio.sleep(0.02)
        await ops.limit("type", "mail", by="ada")
        async with asyncio.timeout(4):
            while {(await ops.explain(job.id)).code for job in (first, second)} != {"running"}:
                await asyncio.sleep(0.02)
        go_on.set()
    for job in (first, second):
        assert (await hf.get(job.id)).state == "success"


async def test_a_job_of_a_tenant_that_nobody_serves_says_so(hf: Holdfast) -> None:
    @hf.job("mail")
    async def mail(ctx: Context) -> None: ...

    ops = await hf.operations()
    job = await mail.options(tenant="other").enqueue()
    async with working(hf, tenants=["acme"], lanes="general=1"):
        async with asyncio.timeout(30):
            while (await ops.explain(job.id)).code == "no-worker":
                await asyncio.sleep(0.02)
        assert (await ops.explain(job.id)).code == "tenant-unserved"


async def test_a_worker_tells_which_slots_it_uses_by_the_lane_that_they_belong_to(hf: Holdfast) -> None:
    begun, go_on = asyncio.Semaphore(0), [asyncio.Event(), asyncio.Event()]

    @hf.job("quick", lane="fast")
    async def quick(ctx: Context, number: int) -> None:
        begun.release()
        await go_on[number].wait()

    ops = await hf.operations()
    first = await quick.enqueue(number=0)
    async with working(hf, lanes="fast=1,general=1", maintenance=False) as worker:
        async with asyncio.timeout(30):
            await begun.acquire()
            await quick.enqueue(number=1)
            await begun.acquire()

        async def used() -> list[int]:
            worker._keeper.look()
            return [lane.used for lane in await ops.lanes()]

        async def both() -> bool:
            return await used() == [1, 1]

        async def general() -> bool:
            return await used() == [0, 1]

        await until(both, what="both slots are used")
        go_on[0].set()
        await reached(hf, first, "success")
        await until(general, what="the fast slot is free")
        assert [lane.utilisation for lane in await ops.lanes()] == [0.0, 1.0]
        go_on[1].set()


@pytest.mark.parametrize("how", ["it ends", "it stays open"])
async def test_a_pause_waits_for_claims_under_way_for_a_moment(
    hf: Holdfast, conn: asyncpg.Connection, connect_as: ConnectAs, how: str
) -> None:
    """A claim that has not seen it may take what is enqueued after it; new claims wait for nobody."""
    ops, other = await hf.operations(), await connect_as("superuser")
    open_claim = conn.transaction()
    await open_claim.start()
    await conn.execute("select pg_advisory_xact_lock_shared(claim_barrier())")
    began = time.monotonic()
    pause = asyncio.create_task(ops.pause("queue", "mail", by="ada"))

    async def is_paused() -> bool:
        return bool((await ops.queues(name="mail"))[0].paused_at)

    await until(is_paused, what="the pause is there")
    assert await other.fetchval("select pg_try_advisory_xact_lock_shared(claim_barrier())")
    if how == "it ends":
        assert not pause.done()
        await open_claim.rollback()
        assert await pause
    else:
        assert await pause
        assert time.monotonic() - began >= 0.5
        await open_claim.rollback()
    assert not await ops.pause("queue", "mail", by="bob")
