"""Limits as handlers see them: never more at once, nothing kept from other workers."""

from __future__ import annotations

import asyncio
from collections import Counter

import asyncpg

from holdfast import Context, Holdfast, Limit
from tests.conftest import ConnectAs
from tests.harness.inprocess import working
from tests.harness.waiting import WAITED_FOR, until


async def test_a_worker_holds_no_permit_that_it_does_not_use(hf: Holdfast) -> None:
    """Very short handlers are claimed ahead, but of those of a limited type one at most."""
    started = idle = 0
    turn = asyncio.Lock()

    @hf.job("plain")
    async def plain(ctx: Context) -> None: ...

    @hf.job("few", limit=50)
    async def few(ctx: Context) -> None:
        nonlocal started, idle
        started += 1
        async with turn:
            claimed = await admin.fetchval("select count(*) from holdfast.jobs where type = 'few' and attempt > 0")
            idle = max(idle, claimed - started)

    admin = await asyncpg.connect(hf.config.database_url)
    await hf.enqueue_many([("plain", {})] * 500 + [("few", {})] * 100)
    await hf.run_worker(burst=True, lanes="general=2")
    await admin.close()
    assert started == 100
    assert idle <= 2


async def test_limited_jobs_have_their_turn_among_very_short_ones(hf: Holdfast) -> None:
    """Jobs claimed ahead take every slot as soon as it becomes free."""
    order: list[str] = []

    @hf.job("plain")
    async def plain(ctx: Context) -> None:
        order.append("plain")

    @hf.job("few", limit=50)
    async def few(ctx: Context) -> None:
        order.append("few")

    await hf.enqueue_many([("plain", {})] * 3000)
    await few.options(priority=0).enqueue()
    await hf.enqueue_many([("plain", {})] * 3000)
    await hf.run_worker(burst=True, lanes="general=2")
    assert order.index("few") < 1500


async def test_keys_share_the_slots_of_two_workers(hf: Holdfast) -> None:
    running, most = Counter[int](), Counter[int]()

    @hf.job("sync", limit=Limit(2, key="customer"))
    async def sync(ctx: Context, customer: int) -> None:
        running[customer] += 1
        most[customer] = max(most[customer], running[customer])
        await asyncio.sleep(0.005)
        running[customer] -= 1

    jobs = await hf.enqueue_many([("sync", {"customer": n % 3}) for n in range(90)])
    async with working(hf, lanes="general=10"), working(hf, lanes="general=10", maintenance=False):
        for job in jobs:
            assert (await hf.wait(job.id, timeout=60)).state == "success"
    assert most == {0: 2, 1: 2, 2: 2}


async def test_a_worker_may_serve_some_tenants_only(hf: Holdfast) -> None:
    served = []

    @hf.job("work")
    async def work(ctx: Context) -> None:
        served.append(ctx.tenant)

    for tenant in ("a", "b", "c"):
        await work.options(tenant=tenant).enqueue()
    await hf.run_worker(burst=True, tenants=["a", "c"])
    assert sorted(served) == ["a", "c"]


async def test_a_worker_claims_nothing_before_its_limits_are_known(
    hf: Holdfast, conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """While somebody else's claim is under way, a limit that is new cannot be set."""
    running, most, ran = 0, 0, 0

    @hf.job("work", limit=1)
    async def work(ctx: Context) -> None:
        nonlocal running, most, ran
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        ran += 1

    other = await connect_as("worker")
    await hf.enqueue_many([("work", {}, {})] * 4)
    waits = f"select exists (select from {WAITED_FOR} where locktype = 'advisory')"
    await other.execute("begin")
    await other.fetch("select * from claim('other', '{nothing}')")
    async with working(hf):
        await until(lambda: conn.fetchval(waits), what="the worker wants to set its limit")
        await until(lambda: conn.fetchval(f"select not ({waits})"), what="it gives up")
        await until(lambda: conn.fetchval(waits), seconds=20, what="it tries again")
        assert ran == running == 0, (ran, running, most)
        await other.execute("rollback")
        await until(lambda: ran == 4, seconds=20, what="all ran")
    assert most == 1
