"""What handlers get: children, resources, threads."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from holdfast import Context, Holdfast, HoldfastError
from holdfast.testing.inprocess import reached, working


class Order(BaseModel):
    """A payload."""

    number: int
    lines: list[str] = []


async def test_a_handler_knows_its_attempt(hf: Holdfast) -> None:
    @hf.job("tell")
    async def tell(ctx: Context) -> list[object]:
        return [ctx.job_id, ctx.type, ctx.attempt, ctx.tenant, ctx.correlation_id, ctx.cancelled]

    job = await hf.enqueue("tell", tenant="acme", correlation_id="a thread of work")
    alone = await hf.enqueue("tell")
    await hf.run_worker(burst=True)
    assert (await hf.get(job.id)).result == [str(job.id), "tell", 1, "acme", "a thread of work", False]
    assert (await hf.get(alone.id)).result[4] == str(alone.id), "generated if absent"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_children_inherit_tenant_correlation_and_parent(hf: Holdfast, kind: str) -> None:
    @hf.job("async")
    async def asynchronous(ctx: Context) -> UUID:
        return (await ctx.enqueue("child", {"n": 1}, priority=7)).id

    @hf.job("thread")
    def threaded(ctx: Context) -> UUID:
        assert threading.current_thread() is not threading.main_thread()
        return ctx.enqueue("child", {"n": 1}, priority=7).id  # type: ignore[attr-defined, no-any-return]

    parent = await hf.enqueue(kind, tenant="acme", correlation_id="a thread of work")
    await hf.run_worker(burst=True)
    child = await hf.get((await hf.get(parent.id)).result)
    assert (child.tenant, child.correlation_id, child.parent_id) == ("acme", "a thread of work", parent.id)
    assert (child.priority, child.payload) == (7, {"n": 1})


async def test_the_lifespan_surrounds_the_worker_and_its_handlers_find_it(database_url: str) -> None:
    moves: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Holdfast) -> AsyncIterator[dict[str, int]]:
        moves.append("up")
        yield {"answer": 42}
        moves.append("down")

    async with Holdfast(database_url, lifespan=lifespan) as hf:

        @hf.job("ask")
        async def ask(ctx: Context) -> int:
            moves.append("handler")
            return ctx.resources["answer"]  # type: ignore[no-any-return]

        job = await ask.enqueue()
        assert moves == [], "clients need no resources"
        await hf.run_worker(burst=True)
        assert (await hf.get(job.id)).result == 42
    assert moves == ["up", "handler", "down"]


async def test_a_typed_payload_arrives_as_its_type(hf: Holdfast) -> None:
    seen: list[Order] = []

    @hf.job("ship")
    async def ship(ctx: Context, order: Order) -> None:
        seen.append(order)

    await ship.enqueue(Order(number=1, lines=["tea"]))
    await hf.enqueue("ship", {"number": "2"})
    await hf.run_worker(burst=True)
    assert sorted(seen, key=lambda order: order.number) == [Order(number=1, lines=["tea"]), Order(number=2)]


async def test_the_logger_names_the_job(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @hf.job("tell")
    async def tell(ctx: Context) -> None:
        ctx.logger.warning("half done")

    job = await tell.enqueue()
    with caplog.at_level(logging.INFO, logger="holdfast"):
        await hf.run_worker(burst=True)
    (record,) = [record for record in caplog.records if record.getMessage() == "half done"]
    assert (getattr(record, "job_id", None), getattr(record, "attempt", None)) == (str(job.id), 1)


async def test_handlers_in_threads_run_side_by_side(hf: Holdfast) -> None:
    barrier = threading.Barrier(4)

    @hf.job("meet")
    def meet(ctx: Context) -> None:
        barrier.wait(timeout=30)

    jobs = [await meet.enqueue() for _ in range(4)]
    async with asyncio.timeout(60):
        await hf.run_worker(burst=True, lanes={"general": 4})
    assert {(await hf.get(job.id)).state for job in jobs} == {"success"}


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("what", ["enqueue", "progress", "items"])
async def test_what_a_handler_left_behind_records_nothing(hf: Holdfast, kind: str, what: str) -> None:
    kept: list[Any] = []

    def call(ctx: Any) -> Any:
        match what:
            case "enqueue":
                return ctx.enqueue("child")
            case "progress":
                return ctx.progress(1)
            case _:
                return ctx.items([{"key": "a", "data": 1}])

    async def coroutine(ctx: Context) -> None:
        kept.append(ctx)

    def function(ctx: Context) -> None:
        kept.append(ctx)

    hf.job("leave")(coroutine if kind == "async" else function)
    async with working(hf):
        job = await reached(hf, await hf.enqueue("leave"), "success")
        with pytest.raises(HoldfastError, match="the handler of this attempt has ended; nothing is recorded"):
            await (call(kept[0]) if kind == "async" else asyncio.to_thread(call, kept[0]))
    assert [found.id for found in await hf.find()] == [job.id]
