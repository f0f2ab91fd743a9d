"""Workers share their slots between tenants, whichever part of the ready jobs a claim looks at."""

from __future__ import annotations

import asyncio
from collections import Counter

from holdfast import Context, Holdfast
from tests.harness.inprocess import working


def counting(hf: Holdfast, *, until: int) -> tuple[Counter[str], asyncio.Event]:
    """A job type whose handlers count for whom they run, as long as it matters."""
    served, enough = Counter[str](), asyncio.Event()

    @hf.job("work")
    async def work(ctx: Context) -> None:
        await asyncio.sleep(0)
        if served.total() < until:
            served[ctx.tenant] += 1
        else:
            enough.set()

    return served, enough


async def test_with_very_many_streams_each_tenant_has_its_share_of_every_claim(hf: Holdfast) -> None:
    """More streams than a claim usually looks at: tenants served before would be served again, and the others wait."""
    tenants = [f"t{n}" for n in range(90)]
    served, enough = counting(hf, until=900)
    await hf.enqueue_many([("work", {}, {"tenant": tenant}) for tenant in tenants for _ in range(30)])
    async with working(hf, lanes="general=4"):
        await asyncio.wait_for(enough.wait(), 60)
    assert min(served[tenant] for tenant in tenants) >= 5, served
    assert max(served.values()) <= 15, served


async def test_short_jobs_of_several_workers_are_shared_by_weight(hf: Holdfast) -> None:
    served, enough = counting(hf, until=1200)
    ops = await hf.operations()
    await ops.weigh("b", 3, by="ada")
    urgent = [{"tenant": "a", "priority": 0, "queue": f"q{n}"} for n in range(7)]
    await hf.enqueue_many([("work", {}, options) for options in urgent for _ in range(200)])
    await hf.enqueue_many([("work", {}, {"tenant": "b"})] * 1400)
    async with working(hf, lanes="general=3"), working(hf, lanes="general=2"):
        await asyncio.wait_for(enough.wait(), 60)
    assert 0.675 <= served["b"] / served.total() <= 0.825, served
