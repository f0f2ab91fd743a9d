"""What open transactions, refused statements and foreign code must not do to a worker."""

from __future__ import annotations

import asyncio
import threading
import time

import asyncpg
import pytest

from holdfast import Context, Holdfast, SyncContext
from holdfast.store.workers import WorkerEntry
from holdfast.worker import endings, enlistment
from tests.conftest import ConnectAs
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until


async def test_a_job_committed_late_is_found_while_slots_are_busy(hf: Holdfast, connect_as: ConnectAs) -> None:
    order: list[str] = []

    @hf.job("step")
    async def step(ctx: Context, name: str) -> None:
        order.append(name)
        await asyncio.sleep(0.3)

    late = await connect_as("superuser")
    transaction = late.transaction()
    await transaction.start()
    late_id = await late.fetchval("""select job_id from enqueue('step', '{"name": "late"}')""")
    for number in range(40):
        await step.enqueue(name=str(number))
    async with working(hf, lanes="general=1"):
        await reached(hf, (await hf.find(limit=100))[-2], "success")
        await transaction.commit()
        await reached(hf, late_id, "success", seconds=20)
    assert len(order) < 40, "the late job waited for the whole backlog"


async def test_an_open_release_holds_up_no_maintenance(hf: Holdfast, connect_as: ConnectAs) -> None:
    held = await hf.enqueue("nobody", {}, hold=True)
    owner = await connect_as("superuser")
    transaction = owner.transaction()
    await transaction.start()
    await owner.execute("select * from release_held(array[$1::uuid])", held.id)
    async with hf.maintaining():
        await hf.cancel(held)
        later = await hf.enqueue("nobody", {}, delay=0.2)
        await reached(hf, later, "queued", seconds=10)
        await transaction.rollback()
        await reached(hf, held, "canceled", seconds=10)


async def test_an_open_request_holds_up_no_settlement(hf: Holdfast, connect_as: ConnectAs) -> None:
    go = asyncio.Event()

    @hf.job("wait")
    async def wait(ctx: Context) -> None:
        await go.wait()

    jobs = [await wait.enqueue() for _ in range(3)]
    async with working(hf):
        for job in jobs:
            await reached(hf, job, "running")
        asker = await connect_as("superuser")
        transaction = asker.transaction()
        await transaction.start()
        await asker.execute("select * from request('cancel', array[$1::uuid], at_once => false)", jobs[0].id)
        go.set()
        for job in jobs:
            assert (await hf.wait(job, timeout=10)).state == "success"
        await transaction.rollback()


async def test_a_refusal_that_has_nothing_to_do_with_the_result_is_waited_out(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    go = asyncio.Event()

    @hf.job("wait")
    async def wait(ctx: Context) -> str:
        await go.wait()
        return "done"

    job = await wait.enqueue()
    async with working(hf):
        await reached(hf, job, "running")
        await conn.execute("revoke execute on function complete from holdfast_worker")
        refused = asyncio.Event()
        hf.events.subscribe(lambda event: refused.set() if "permission" in getattr(event, "fault", "") else None)
        go.set()
        await asyncio.wait_for(refused.wait(), 10)
        assert (await hf.get(job)).state == "running"
        await conn.execute("grant execute on function complete to holdfast_worker")
        assert (await hf.wait(job, timeout=20)).result == "done"


async def test_a_handler_canceled_by_others_is_a_failure(hf: Holdfast) -> None:
    @hf.job("suicidal")
    async def suicidal(ctx: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    job = await suicidal.options(max_attempts=1).enqueue()
    await hf.run_worker(burst=True)
    assert (await hf.get(job)).state == "dead"


async def test_a_thread_that_stops_when_told_has_not_finished(hf: Holdfast) -> None:
    running = threading.Event()

    @hf.job("obedient")
    def obedient(ctx: Context) -> str:
        running.set()
        while not ctx.canceled:
            threading.Event().wait(0.01)
        return "half of it"

    job = await obedient.enqueue()
    async with working(hf):
        await asyncio.to_thread(running.wait, 10)
        await hf.pause(job)
        paused = await reached(hf, job, "paused", seconds=10)
    assert paused.result is None


async def test_a_thread_that_never_looked_has_finished(hf: Holdfast) -> None:
    running, go = threading.Event(), threading.Event()

    @hf.job("deaf")
    def deaf(ctx: Context) -> str:
        running.set()
        go.wait(10)
        return "all of it"

    job = await deaf.enqueue()
    async with working(hf):
        await asyncio.to_thread(running.wait, 10)
        await hf.cancel(job)
        go.set()
        assert (await hf.wait(job, timeout=10)).result == "all of it"


async def test_a_job_that_got_no_thread_runs_later_at_no_cost(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "START_AGAIN_SECONDS", 0.01)
    start, refused, calls = threading.Thread.start, list[str](), list[int]()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("holdfast-handler") and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    @hf.job("threaded")
    def threaded(ctx: SyncContext) -> None:
        calls.append(ctx.attempt)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    job = await threaded.options(max_attempts=1).enqueue()
    await hf.run_worker(burst=True)
    assert (await hf.get(job)).failures == 0
    assert [attempt.outcome for attempt in await hf.attempts(job)] == ["snoozed", "success"]
    assert calls == [2], "the executor still had the first call in its queue"


async def test_what_a_handler_logs_is_kept_with_its_attempt(hf: Holdfast) -> None:
    @hf.job("talks")
    async def talks(ctx: Context) -> None:
        ctx.logger.warning("met %s", "a bear")

    job = await talks.enqueue()
    await hf.run_worker(burst=True)
    (attempt,) = await hf.attempts(job)
    assert attempt.log_excerpt == "WARNING met a bear"


async def test_a_worker_that_the_database_forgot_enlists_again(hf: Holdfast, conn: asyncpg.Connection) -> None:
    async with working(hf) as worker:
        await until(lambda: _known(conn, worker.id), what="it is known")
        await conn.execute("delete from workers")
        worker._keeper.look()
        await until(lambda: _known(conn, worker.id), seconds=20, what="it is known again")


async def _known(conn: asyncpg.Connection, worker: str) -> bool:
    return bool(await conn.fetchval("select true from workers where id = $1", worker))


async def test_a_late_release_takes_nothing_that_was_claimed_after_it(hf: Holdfast, conn: asyncpg.Connection) -> None:
    """Sent after a claim whose answer was lost, given up, and delivered when the worker had gone on."""
    go_on = asyncio.Event()

    @hf.job("wait")
    async def wait(ctx: Context) -> None:
        await go_on.wait()

    async with working(hf) as worker:
        store = worker._store
        known, mark = [claimed.claim.job_id for claimed in worker._claimed.all()], await store.claim_mark()
        job = await wait.enqueue()
        await reached(hf, job, "running")
        assert await store.hand_back_unheard(known, mark) == 0
        assert (await hf.get(job.id)).state == "running"
        assert await store.hand_back_unheard(known, await store.claim_mark()) == 1, "it would have been handed back"
        go_on.set()
    first, *_ = await hf.attempts(job.id)
    assert first.outcome == "released"


async def test_a_thread_learns_that_its_worker_was_canceled(hf: Holdfast) -> None:
    begun, told = threading.Event(), threading.Event()

    @hf.job("look")
    def look(ctx: SyncContext) -> None:
        begun.set()
        deadline = time.monotonic() + 20
        while not ctx.canceled and time.monotonic() < deadline:
            time.sleep(0.01)
        if ctx.canceled:
            told.set()

    await look.enqueue()
    worker = asyncio.create_task(hf.run_worker())
    await until(begun.is_set, what="the handler runs")
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await until(told.is_set, seconds=10, what="the handler has seen that it is to stop")


async def test_handlers_that_see_that_their_worker_was_canceled_are_handed_back(hf: Holdfast) -> None:
    begun: list[str] = []

    @hf.job("thread")
    def thread(ctx: SyncContext) -> None:
        begun.append("thread")
        while not ctx.canceled:
            time.sleep(0.01)

    @hf.job("async")
    async def waits(ctx: Context) -> None:
        begun.append("async")
        await asyncio.sleep(60)

    jobs = [await thread.enqueue(), await waits.enqueue()]
    worker = asyncio.create_task(hf.run_worker(maintenance=False))
    await until(lambda: len(begun) == 2, what="the handlers run")
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert worker.cancelled()
    for job in jobs:
        assert (await hf.get(job)).state == "queued"
        assert [attempt.outcome for attempt in await hf.attempts(job)] == ["released"]


async def test_a_worker_that_has_left_does_not_enter_again(hf: Holdfast, conn: asyncpg.Connection) -> None:
    # A heartbeat may learn that the database does not know the worker in the moment in which that worker leaves.
    async with working(hf) as worker:
        late = worker._enlistment

        async def known() -> bool:
            return bool(await conn.fetchval("select count(*) from workers"))

        await until(known, what="the worker is enlisted")
    await late.enter()
    assert await conn.fetchval("select count(*) from workers") == 0


async def test_a_worker_that_leaves_while_it_enters_is_gone(
    hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enlistment, "_GOODBYE_SECONDS", 30.0)
    async with working(hf) as worker:
        await until(lambda: conn.fetchval("select count(*) = 1 from workers"), what="the worker is enlisted")
        store, enlist = worker._enlistment._store, worker._enlistment._store.enlist
        entered, left = asyncio.Event(), asyncio.Event()

        async def delayed(entry: WorkerEntry) -> None:
            entered.set()
            await left.wait()
            await enlist(entry)

        store.enlist = delayed  # type: ignore[method-assign]
        late = asyncio.create_task(worker._enlistment.enter())
        await entered.wait()
        await worker._enlistment.leave()
        left.set()
        await late
        assert await conn.fetchval("select count(*) from workers") == 0
