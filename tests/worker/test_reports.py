"""`ctx.items`, `ctx.progress` and `ctx.cursor`, by every executor."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, InvalidInput, LeaseLost, NotFound, RetryPolicy
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.store.database import Database
from holdfast.worker.attempts import Attempts
from tests.harness.inprocess import working
from tests.harness.waiting import until
from tests.worker import crawling
from tests.worker.children import opened
from tests.worker.lapse import lapse

ONCE = RetryPolicy(max_attempts=1)

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app whose handlers report."""
    async with opened(database_url, crawling.hf) as app:
        yield app


async def test_the_next_attempt_continues_from_the_last_cursor(hf: Holdfast) -> None:
    jobs = {
        "async": await hf.enqueue("crawl.async"),
        "thread": await hf.enqueue("crawl.thread"),
        "process": await hf.enqueue("crawl.process"),
        "killed": await hf.enqueue("crawl.process", {"failing": "kill"}),
    }
    await hf.run_worker(burst=True)
    for name, job in jobs.items():
        done = await hf.get(job)
        assert (done.state, done.attempt) == ("success", 2), (name, done.last_error)
        # Two items on each of four pages, one of them always the same, and three more.
        assert done.result == {"from": 2, "reported": 11, "stored": 5, "reached": False}, name
        assert (done.progress_count, done.result_count, done.cursor) == (11, 5, 4)
        assert (done.done_reason, done.last_progress_at is not None) == ("no_more_results", True)
        items = await hf.items(job)
        assert [item.data for item in items if item.data != "an advertisement"] == [{"page": n} for n in range(4)]
        assert {item.collection for item in items} == {str(job.id)}


async def test_a_handler_learns_that_the_target_count_is_reached(hf: Holdfast) -> None:
    jobs = [await hf.enqueue(f"crawl.{kind}", target_count=3) for kind in ("async", "thread", "process")]
    await hf.run_worker(burst=True)
    for job in jobs:
        done = await hf.get(job)
        assert (done.state, done.attempt, done.result) == (
            "success", 1, {"from": None, "reported": 7, "stored": 3, "reached": True})  # fmt: skip
        assert (done.target_count, done.done_reason) == (3, "target_reached")


async def test_a_stale_attempt_reports_nothing(
    hf: Holdfast, conn: asyncpg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attempts, "lost", lambda _attempts, _claimed: None)  # as if it did not stop with its lease
    inside, go_on = asyncio.Event(), asyncio.Event()
    raised: list[BaseException] = []

    @hf.job("late.async", lease=1)
    async def late(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        inside.set()
        await go_on.wait()
        for verb in (ctx.items(crawling.found(1), cursor=9), ctx.progress(1)):
            try:
                await verb
            except LeaseLost as error:
                raised.append(error)

    marks = {kind: tmp_path / kind for kind in ("thread", "process")}
    jobs = [await late.enqueue()]
    jobs += [await hf.enqueue(f"late.{kind}", {"mark": str(mark)}) for kind, mark in marks.items()]
    async with working(hf):
        await inside.wait()
        for mark in marks.values():
            await until(mark.exists, what="the handler begins")
        await lapse(conn, 3)
        go_on.set()
        for mark in marks.values():
            mark.with_suffix(".go").touch()
            await until(mark.with_suffix(".lost").exists, what="the handler hears that it came too late")
        for job in jobs:
            assert (await hf.wait(job, timeout=30)).cursor is None
            assert await hf.items(job) == []
    assert len(raised) == 2


async def test_a_report_whose_answer_was_lost_counts_once(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Database.rows
    lost: list[str] = []

    async def rows(self: Database, statement: str, *arguments: object) -> list[asyncpg.Record]:
        answer = await real(self, statement, *arguments)
        if statement == "report" and not lost:
            lost.append(statement)
            raise DatabaseUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(Database, "rows", rows)

    @hf.job("once", retry=ONCE)
    async def once(ctx: Context) -> list[int]:
        told = await ctx.items(crawling.found(1))
        return [told.progress_count, told.result_count]

    job = await once.enqueue()
    await hf.run_worker(burst=True)
    assert (lost, (await hf.get(job)).result) == (["report"], [2, 2])


async def test_an_invalid_report_is_refused_and_changes_nothing(hf: Holdfast) -> None:
    wrong: list[str] = []

    @hf.job("wrong", retry=ONCE)
    async def handler(ctx: Context, again: Any = None) -> None:
        for items in (["a"], [{"key": "a"}], [{"key": 1, "data": 1}], [{"data": 1, "colour": 2}], [{"data": object()}]):
            with pytest.raises(InvalidInput) as raised:
                await ctx.items(items)  # type: ignore[arg-type]
            wrong.append(str(raised.value))
        with pytest.raises(InvalidInput, match="collection"):
            await ctx.items([{"data": 1}], collection="")
        with pytest.raises(InvalidInput):
            await ctx.items([{"data": "\x00"}])
        with pytest.raises(InvalidInput, match="the data of an item contains nan"):
            await ctx.items([{"key": "k", "data": math.nan}])
        with pytest.raises(InvalidInput, match="the cursor contains -inf"):
            await ctx.progress(1, cursor={"at": -math.inf})
        with pytest.raises(InvalidInput, match="the payload of wrong contains inf"):
            await ctx.enqueue("wrong", {"again": [math.inf]})
        with pytest.raises(InvalidInput, match="0 or more"):
            await ctx.progress(-1)
        with pytest.raises(InvalidInput, match="no_more_results"):
            await ctx.progress(done_reason="no_more_result")  # type: ignore[arg-type]

    job = await handler.enqueue()
    await hf.run_worker(burst=True)
    done = await hf.get(job)
    assert (done.state, done.last_error, done.progress_count) == ("success", None, None)
    assert len(wrong) == 5


async def test_items_are_read_page_by_page_by_async_and_blocking_code(hf: Holdfast) -> None:
    @hf.job("many")
    async def many(ctx: Context) -> None:
        for start in (0, 10):
            await ctx.items([{"key": f"{n:02}", "data": n} for n in range(start, start + 10)], collection="numbers")

    job = await many.enqueue()
    await hf.run_worker(burst=True)
    first = await hf.items(job, limit=15)
    rest = await hf.items(job, limit=15, after=first[-1].id)
    assert [item.data for item in (*first, *rest)] == list(range(20))
    assert {item.collection for item in first} == {"numbers"}
    assert await asyncio.to_thread(lambda: hf.sync.items(job, limit=15)) == first
    assert (await hf.find(types=["many"]))[0].result_count == 20
    with pytest.raises(NotFound):
        await hf.items("0197d3a8-0000-7000-8000-000000000000")
    hf.sync.close()


async def test_a_report_from_another_event_loop_is_refused_and_harms_no_other(hf: Holdfast) -> None:
    refused: list[str] = []

    async def begin(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    @hf.job("elsewhere", retry=ONCE)
    async def elsewhere(ctx: Context) -> None:
        for work in (lambda: ctx.progress(1), lambda: ctx.items([{"key": "k", "data": 1}]), lambda: begin(ctx)):
            try:
                await asyncio.to_thread(asyncio.run, work())
            except HoldfastError as fault:
                refused.append(str(fault))

    @hf.job("here", retry=ONCE)
    async def here(ctx: Context) -> None:
        await ctx.progress(1)
        await begin(ctx)

    jobs = [await hf.enqueue(kind, {}) for kind in ("elsewhere", "here", "here")]
    await hf.run_worker(burst=True)
    assert ["event loop" in told for told in refused] == [True] * 3
    assert [(await hf.get(job)).state for job in jobs] == ["success"] * 3
