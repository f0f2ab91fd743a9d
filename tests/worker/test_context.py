"""What handlers get: children, resources, threads."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from holdfast import Context, Holdfast, HoldfastError, InvalidInput, Retry, RetryPolicy, Snooze
from tests.harness.inprocess import reached, working

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Order(BaseModel):
    """A payload."""

    number: int
    lines: list[str] = []


async def _undecorated(app: Holdfast) -> AsyncIterator[int]:
    yield 1


async def _coroutine(app: Holdfast) -> int:
    return 1


async def test_a_handler_knows_its_attempt(hf: Holdfast) -> None:
    @hf.job("tell")
    async def tell(ctx: Context) -> list[object]:
        return [ctx.job_id, ctx.type, ctx.attempt, ctx.tenant, ctx.correlation_id, ctx.canceled, ctx.cancelled]

    job = await hf.enqueue("tell", tenant="acme", correlation_id="a thread of work")
    alone = await hf.enqueue("tell")
    await hf.run_worker(burst=True)
    assert (await hf.get(job.id)).result == [str(job.id), "tell", 1, "acme", "a thread of work", False, False]
    assert (await hf.get(alone.id)).result[4] == str(alone.id), "generated if absent"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_knows_its_failures_its_budget_and_its_trace(hf: Holdfast, kind: str) -> None:
    def told(ctx: Context) -> list[object]:
        if ctx.attempt == 1:
            raise Snooze(0)
        if ctx.attempt == 2:
            raise Retry("once more", delay=0)
        return [ctx.attempt, ctx.failures, ctx.max_attempts, ctx.traceparent]

    @hf.job("async", retry=RetryPolicy(max_attempts=7))
    async def asynchronous(ctx: Context) -> list[object]:
        return told(ctx)

    @hf.job("thread", retry=RetryPolicy(max_attempts=7))
    def threaded(ctx: Context) -> list[object]:
        return told(ctx)

    jobs = [await hf.enqueue(kind, traceparent=TRACE), await hf.enqueue(kind, max_attempts=4)]
    await hf.run_worker(burst=True)
    assert [(await hf.get(job)).result for job in jobs] == [[3, 1, 7, TRACE], [3, 1, 4, None]]


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


@pytest.mark.parametrize(
    ("lifespan", "says"),
    [
        (lambda: None, r"one argument, the app: `@asynccontextmanager .*; .*<lambda> takes none$"),
        (lambda app, mailer: None, r"<lambda> takes 2 \(app, mailer\)$"),
        (lambda *, app: None, r"<lambda> takes 1 \(app\)$"),
        ({"mailer": 1}, r"must be a function of the app, .*, not \{'mailer': 1\}"),
        (_undecorated, r"_undecorated must be decorated with contextlib.asynccontextmanager"),
    ],
)
def test_a_lifespan_that_cannot_be_one_is_refused_with_what_it_takes(lifespan: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Holdfast("postgresql://nobody@127.0.0.1:1/none", lifespan=lifespan)


@pytest.mark.parametrize("lifespan", [contextmanager(lambda app: iter([1])), _coroutine])
def test_a_lifespan_that_returns_something_else_is_refused_when_it_is_entered(lifespan: Any) -> None:
    resources = Holdfast("postgresql://nobody@127.0.0.1:1/none", lifespan=lifespan).resources
    assert resources is not None
    with pytest.raises(InvalidInput, match="must return an asynchronous context manager"):
        resources()


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
