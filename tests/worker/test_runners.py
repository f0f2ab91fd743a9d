"""Handlers share tasks where that cannot be noticed: contexts, cancellation, deadlines and turns stay their own."""

from __future__ import annotations

import asyncio
import contextvars
import time
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.store import upkeep
from holdfast.telemetry.events import AttemptEnded
from holdfast.worker.intake import AHEAD
from holdfast.worker.runners import Runners
from tests.harness.inprocess import working
from tests.harness.waiting import until

marked: contextvars.ContextVar[str] = contextvars.ContextVar("marked", default="clean")


class Awkward:
    """A value that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


awkward: contextvars.ContextVar[Any] = contextvars.ContextVar("awkward", default=None)


async def test_handlers_that_never_wait_share_a_task(hf: Holdfast) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    @hf.job("note")
    async def note(ctx: Context) -> None:
        tasks.append(asyncio.current_task())

    await hf.enqueue_many([("note", {})] * 200)
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 100})
    assert len(tasks) == 200
    assert len(set(tasks)) < 100


async def test_what_a_handler_leaves_in_its_context_is_not_there_for_the_next(hf: Holdfast) -> None:
    seen: list[tuple[str, Any]] = []

    @hf.job("mark")
    async def mark(ctx: Context, number: int) -> None:
        seen.append((marked.get(), awkward.get()))
        marked.set(f"by {number}")
        if number % 2:
            awkward.set(Awkward())

    await hf.enqueue_many([("mark", {"number": n}) for n in range(20)])
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 1})
    assert len(seen) == 20
    assert all(mark == "clean" and value is None for mark, value in seen)


async def test_a_handler_that_cancels_its_own_task_harms_no_other(hf: Holdfast) -> None:
    order: list[int] = []

    @hf.job("cancel")
    async def cancel(ctx: Context, number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if number % 3 == 0:
            task.cancel()  # and it returns at once, before anything could have been thrown
            return
        await asyncio.sleep(0)
        order.append(number)

    refs = await hf.enqueue_many([("cancel", {"number": n}) for n in range(30)])
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 1})
    assert sorted(order) == [n for n in range(30) if n % 3]
    assert {(await hf.get(ref.id)).state for ref in refs} == {"success"}


async def test_an_interruption_that_comes_too_late_does_not_hit_the_next_attempt(hf: Holdfast) -> None:
    """A task goes on with other jobs; code that still holds an ended attempt may not cancel them."""
    over: list[Any] = []
    quick_tasks, slow_tasks = set(), set()
    workers: list[Any] = []

    @hf.job("quick")
    async def quick(ctx: Context) -> None:
        over.append(workers[0]._claimed.get(ctx.job_id))
        quick_tasks.add(asyncio.current_task())

    @hf.job("slow")
    async def slow(ctx: Context) -> None:
        slow_tasks.add(asyncio.current_task())
        for claimed in over:
            claimed.stop("cancel")
        await asyncio.sleep(0)

    refs = await hf.enqueue_many([("quick", {}), ("slow", {})] * 100)
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 1}, started=workers.append)
    assert quick_tasks & slow_tasks, "some ran in one task"
    assert {(await hf.get(ref.id)).state for ref in refs} == {"success"}
    assert {attempt.outcome for ref in refs for attempt in await hf.attempts(ref.id)} == {"success"}


async def test_handlers_that_wait_run_side_by_side_up_to_the_slots(hf: Holdfast) -> None:
    running = most = 0
    all_there = asyncio.Event()

    @hf.job("meet")
    async def meet(ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 10:
            all_there.set()
        await all_there.wait()
        running -= 1

    await hf.enqueue_many([("meet", {})] * 40)
    async with asyncio.timeout(60):
        await hf.run_worker(burst=True, maintenance=False, lanes={"general": 10})
    assert most == 10


async def test_a_long_line_of_short_handlers_leaves_room_for_others(hf: Holdfast) -> None:
    """A task gives up the event loop after its turn, or nobody else would come to theirs.

    Measured in processor time: the machine may give this thread's time to others.
    """
    gaps: list[float] = []

    @hf.job("spin")
    async def spin(ctx: Context) -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass

    async def tick() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    await hf.enqueue_many([("spin", {})] * 300)
    ticking = asyncio.create_task(tick())
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 100})
    ticking.cancel()
    assert max(gaps) < 0.3, "300 handlers of 2 ms, one after the other, would be 0.6 s"


async def test_a_deadline_counts_from_the_handlers_start_and_names_the_timeout(hf: Holdfast) -> None:
    cleaned: list[float] = []
    began = 0.0

    @hf.job("late", timeout=0.2)
    async def late(ctx: Context) -> None:
        nonlocal began
        began = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(time.monotonic() - began)

    ref = await hf.enqueue("late", max_attempts=1)
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 1})
    (attempt,) = await hf.attempts(ref.id)
    assert (attempt.outcome, attempt.error_type) == ("timeout", "Timeout")
    assert 0.15 < cleaned[0] < 5


async def test_a_handler_that_ended_in_time_is_never_late(hf: Holdfast) -> None:
    """Its timer is gone with it; the task that it ran in goes on with others."""

    @hf.job("short", timeout=0.15)
    async def short(ctx: Context) -> None:
        await asyncio.sleep(0.1)

    @hf.job("long")
    async def long(ctx: Context) -> None:
        await asyncio.sleep(0.3)

    refs = await hf.enqueue_many([("short", {}), ("long", {})] * 3)
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 1})
    assert {(await hf.get(ref.id)).state for ref in refs} == {"success"}
    assert {len(await hf.attempts(ref.id)) for ref in refs} == {1}


async def test_a_worker_never_holds_more_than_its_slots_and_what_it_may_claim_ahead(hf: Holdfast) -> None:
    """What it holds, settled or not, is what a crash makes run again."""
    most = 0

    @hf.job("note")
    async def note(ctx: Context) -> None:
        nonlocal most
        most = max(most, len(workers[0]._claimed))

    await hf.enqueue_many([("note", {})] * 1000)
    workers: list[Any] = []
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 5}, batch_size=2, started=workers.append)
    assert 5 < most <= 5 + AHEAD * 2


async def test_jobs_with_long_handlers_are_not_claimed_ahead(hf: Holdfast) -> None:
    most = 0

    @hf.job("wait")
    async def wait(ctx: Context) -> None:
        nonlocal most
        most = max(most, sum(map(len, workers[0]._intake._ahead.values())))
        await asyncio.sleep(0.03)

    await hf.enqueue_many([("wait", {})] * 60)
    workers: list[Any] = []
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 4}, started=workers.append)
    assert most == 0


async def test_a_worker_process_has_few_connections_at_work(
    hf: Holdfast, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Maintenance makes another one when the one in use stays away, which it does on a busy machine.
    monkeypatch.setattr(upkeep, "_GROW_AFTER_SECONDS", 10.0)

    @hf.job("note")
    async def note(ctx: Context) -> None: ...

    ended: list[AttemptEnded] = []
    hf.on(AttemptEnded)(ended.append)
    conn = await asyncpg.connect(database_url)
    try:
        before = {row["pid"] for row in await conn.fetch("select pid from pg_stat_activity")}
        async with working(hf, lanes={"general": 20}):
            await hf.enqueue_many([("note", {})] * 500)
            await until(lambda: _all(len(ended) >= 500), what="all ran")
            rows = await conn.fetch(
                "select pid, application_name from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            names = sorted(row["application_name"] for row in rows if row["pid"] not in before)
    finally:
        await conn.close()
    # The test itself enqueues, as the role `api`. What may begin is told beside claims and settlements.
    assert names.count("holdfast worker") <= 3
    assert {name for name in names if names.count(name) == 1} >= {"holdfast lifeline", "holdfast maintenance"}


async def _all(value: bool) -> bool:
    return value


async def test_handlers_that_wait_have_a_task_each(hf: Holdfast) -> None:
    """Whatever is kept by task, or done to a task later on, concerns one attempt only."""
    tasks: list[asyncio.Task[Any] | None] = []

    @hf.job("wait")
    async def wait(ctx: Context) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)

    await hf.enqueue_many([("wait", {})] * 200)
    await hf.run_worker(burst=True, maintenance=False, lanes={"general": 20})
    assert len({id(task) for task in tasks}) == len(tasks) == 200


async def test_a_lane_whose_slots_are_all_busy_claims_nothing_ahead(hf: Holdfast) -> None:
    """However short the handlers of another lane are, or its own were: others may be free to run these jobs."""
    began, go_on = asyncio.Event(), asyncio.Event()
    ran = ended = blocked = 0

    @hf.job("quick", lane="fast")
    async def quick(ctx: Context) -> None:
        nonlocal ran
        ran += 1

    @hf.job("short")
    async def short(ctx: Context) -> None:
        nonlocal ended
        ended += 1

    @hf.job("block")
    async def block(ctx: Context) -> None:
        nonlocal blocked
        if (blocked := blocked + 1) == 4:
            began.set()
        await go_on.wait()

    async with working(hf, lanes={"fast": 1, "general": 4}) as worker:
        await hf.enqueue_many([("short", {})] * 400)
        await until(lambda: _all(ended == 400 and len(worker._claimed) == 0), what="the short ones are settled")
        await hf.enqueue_many([("block", {})] * 4)
        await asyncio.wait_for(began.wait(), 30)
        await asyncio.sleep(0.1)
        await hf.enqueue_many([("short", {})] * 50)
        await hf.enqueue_many([("quick", {})] * 150)
        end, most = time.monotonic() + 1.5, 0
        while time.monotonic() < end or ran < 150:
            most = max(most, worker._claimed.in_lane("general"))
            await asyncio.sleep(0.01)
        go_on.set()
    assert most == 4


async def test_a_cancellation_that_a_job_left_behind_does_not_fail_the_next(hf: Holdfast) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    @hf.job("leave")
    async def leave(ctx: Context) -> None:
        task = asyncio.current_task()
        tasks.append(task)
        asyncio.get_running_loop().call_later(0.05, task.cancel)  # type: ignore[union-attr]

    @hf.job("wait")
    async def wait(ctx: Context) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0.2)

    @hf.job("cancel", retry=RetryPolicy(max_attempts=1))
    async def cancel(ctx: Context) -> None:
        raise asyncio.CancelledError("by itself")

    await leave.enqueue()
    second = await wait.enqueue()
    others = [await cancel.enqueue() for _ in range(3)]
    await asyncio.wait_for(hf.run_worker(burst=True, maintenance=False, lanes={"general": 8}), 30)
    assert tasks[0] is tasks[1], "they shared a task"
    assert (await hf.get(second.id)).state == "success"
    assert [attempt.outcome for attempt in await hf.attempts(second.id)] == ["released", "success"]
    for job in others:
        assert (await hf.get(job.id)).state == "dead", "what cancels itself is not run for ever"


async def test_a_task_that_somebody_cancels_before_it_has_begun_keeps_no_attempt_waiting() -> None:
    ran: list[int] = []
    others = asyncio.all_tasks()

    async def attempt(claimed: Any) -> None:
        ran.append(claimed.claim.job_id)
        if len(ran) == 1:
            for task in asyncio.all_tasks() - others - {asyncio.current_task()}:
                task.cancel()
        await asyncio.sleep(0.01)

    runners = Runners(attempt)
    for number in range(3):
        runners.start(SimpleNamespace(claim=SimpleNamespace(job_id=number)))  # type: ignore[arg-type]
    await until(lambda: ran == [0, 1, 2], what="all have run")
