"""Handlers that block the event loop are judged by the clock, outside of that loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.model.outcome import Outcome
from holdfast.telemetry.aside import Aside
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import Event, LeaseLost, LoopBlocked
from holdfast.worker.blockage import Blockage
from holdfast.worker.claimed import ClaimedAttempts
from holdfast.worker.owners import owned_by_worker
from holdfast.worker.runners import Runners
from holdfast.worker.silence import Blocker
from holdfast.worker.surrender import Surrender
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until


class Elsewhere:
    """An app with a worker in a thread of its own, as a program has it that runs one: nothing can be replaced."""

    def __init__(self, url: str) -> None:
        self.app = Holdfast(url)
        self.told: list[Event] = []
        self.steps: list[str] = []
        self.go_on, self._about_to_block, self.blocks = threading.Event(), asyncio.Event(), threading.Event()
        self.app.events.subscribe(self.told.append)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

        @self.app.job("block", lease=1.0, timeout=0.2, retry=RetryPolicy(base=0.01))
        async def block(ctx: Context) -> None:
            # Those that wait for it are the next ones that the loop turns to.
            self._about_to_block.set()
            self.blocks.set()
            self.go_on.wait(60)

        @self.app.job("beside", lease=30.0)
        async def beside(ctx: Context) -> None:
            self.steps.append("begins")
            await self._about_to_block.wait()
            self.steps.append(f"goes on: {ctx.attempt}")

        @self.app.job("thread", lease=1.0)
        def thread(ctx: Context) -> str:
            self.steps.append("begins")
            self.go_on.wait(60)
            return "done"

    async def _run(self) -> None:
        async with self.app:
            await self.app.run_worker(started=self._started, stuck_after_seconds=0.2, poll_interval=0.05)

    def _started(self, worker: Any) -> None:
        self.worker, self._loop = worker, asyncio.get_running_loop()

    async def __aenter__(self) -> Elsewhere:
        self._thread.start()
        return self

    async def __aexit__(self, *_fault: object) -> None:
        self.go_on.set()
        self._loop.call_soon_threadsafe(self.worker.drain)
        await asyncio.to_thread(self._thread.join, 30)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("who", ["everybody hears of it", "an observer and a log handler do not return"])
async def test_handlers_in_a_loop_blocked_by_another_handler_are_handed_back(
    database_url: str, hf: Holdfast, who: str
) -> None:
    async with Elsewhere(database_url) as elsewhere, hf.maintaining():
        if who != "everybody hears of it":
            elsewhere.app.events.subscribe(lambda _: elsewhere.go_on.wait(60), LoopBlocked)
        free, bound = await hf.enqueue("beside"), await hf.enqueue("beside", target="a target")
        in_thread = await hf.enqueue("thread")
        await until(lambda: elsewhere.steps == ["begins"] * 3, what="all handlers run")
        blocking = await hf.enqueue("block")
        for job in (free, bound):
            assert (await reached(hf, job, "queued")).failures == 0
            assert [a.outcome for a in await hf.attempts(job)] == ["released"]
        # Its handler cannot be ended, and so its lease is not kept any more.
        assert (await reached(hf, blocking, "retry", "queued")).failures == 1
        (blocked,) = {(e.job_id, e.type) for e in elsewhere.told if isinstance(e, LoopBlocked)}
        assert blocked == (blocking.id, "block")
        # A thread works whatever the loop does.
        assert (await hf.get(in_thread)).state == "running"

        elsewhere.go_on.set()
        for job in (free, bound, blocking, in_thread):
            await reached(hf, job, "success")
    assert (await hf.get(in_thread)).attempt == 1
    # A handler without a target may go on, for nothing; one with a target may not.
    assert elsewhere.steps.count("goes on: 1") == 1
    assert {e.job_id for e in elsewhere.told if isinstance(e, LeaseLost)} >= {free.id, blocking.id}


async def test_what_a_thread_returned_beside_a_blocked_loop_is_recorded_when_its_time_is_over(
    database_url: str, hf: Holdfast
) -> None:
    elsewhere = Elsewhere(database_url)
    goes_on = threading.Event()

    @elsewhere.app.job("ends", timeout=0.8, lease=2.0, retry=RetryPolicy(max_attempts=1))
    def ends(ctx: Context) -> str:
        elsewhere.steps.append("begins")
        goes_on.wait(60)
        return "done"

    async with elsewhere, hf.maintaining():
        job = await hf.enqueue("ends")
        await until(lambda: elsewhere.steps == ["begins"], what="it runs")
        await hf.enqueue("block")
        await until(elsewhere.blocks.is_set, what="the loop is blocked")
        goes_on.set()
        assert (await hf.wait(job.id, timeout=30)).state == "success"


async def test_a_worker_whose_loop_was_given_up_does_not_pass_for_alive(
    database_url: str, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    async with Elsewhere(database_url) as elsewhere:
        await hf.enqueue("block")
        await until(lambda: [e for e in elsewhere.told if isinstance(e, LoopBlocked)], what="it is told")
        silent = "select now() - heartbeat_at > '5 seconds' from workers where id = $1"
        await until(lambda: conn.fetchval(silent, elsewhere.worker.id), what="it does not beat")
        elsewhere.go_on.set()
        await until(lambda: _beats(conn, elsewhere.worker.id), what="it beats again")


async def _beats(conn: asyncpg.Connection, worker: str) -> bool:
    found = await conn.fetchval("select now() - heartbeat_at < '3 seconds' from workers where id = $1", worker)
    return bool(found)


async def test_a_handler_may_block_the_loop_for_as_long_as_it_may_run(hf: Holdfast) -> None:
    told: list[Event] = []
    hf.events.subscribe(told.append, LoopBlocked, LeaseLost)

    @hf.job("beside")
    async def beside(ctx: Context) -> None:
        await asyncio.sleep(1)

    @hf.job("block", timeout=5)
    async def block(ctx: Context) -> int:
        time.sleep(4.5)
        return ctx.attempt

    async with working(hf, stuck_after_seconds=0):
        waiting, job = await beside.enqueue(), await block.enqueue()
        assert (await hf.wait(job.id, timeout=30)).result == 1
        assert (await hf.wait(waiting.id, timeout=30)).attempt == 1
    assert told == []


Way = Callable[[Awaitable[Any]], Awaitable[Any]]


async def _in_a_group(work: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work)


WAYS: dict[str, Any] = {
    "itself": lambda work: work,
    "a task": asyncio.ensure_future,
    "wait_for": lambda work: asyncio.wait_for(work, 60),
    "gather": lambda work: asyncio.gather(asyncio.sleep(0.01), work),
    "a group": _in_a_group,
    "a group in a task": lambda work: asyncio.ensure_future(_in_a_group(work)),
    "wait": lambda work: asyncio.wait([asyncio.ensure_future(work)]),
    "shield": asyncio.shield,
}


@pytest.mark.parametrize("way", WAYS)
async def test_the_attempt_that_blocks_is_found_behind_the_tasks_it_started(way: str) -> None:
    claimed, found = ClaimedAttempts(), list[object]()
    blockage = Blockage(
        "w", claimed, Aside(Bus()),
        time_over=_never, stuck_after_seconds=30.0, drain_over=lambda: None, give_up=_nothing,
    )  # fmt: skip

    async def works() -> None:
        await asyncio.sleep(0.001)
        found.append(blockage.blocker())

    async def handler() -> None:
        await WAYS[way](works())

    async def beside() -> None:
        await asyncio.sleep(0.05)

    attempts: list[Any] = []
    for number, run in enumerate((beside, handler, beside)):
        claim = SimpleNamespace(job_id=number)
        attempts.append(SimpleNamespace(task=asyncio.create_task(run()), running=True, claim=claim, lane="general"))
        claimed.add(attempts[-1])
    await asyncio.gather(*(a.task for a in attempts))
    assert found == [Blocker(attempts[1], known=True)]


@pytest.mark.parametrize(
    ("way", "known", "is_named"),
    [
        ("starts a task", True, True),
        ("has ended, and its task goes on", True, False),
        ("starts a task behind another attempt's", False, False),
        ("sets a timer", False, False),
        ("gives it to a task that the lifespan started", False, False),
    ],
)
async def test_a_task_that_a_handler_starts_without_awaiting_belongs_to_it(
    way: str, known: bool, is_named: bool
) -> None:
    claimed, found = ClaimedAttempts(), list[object]()
    blockage = Blockage(
        "w", claimed, Aside(Bus()),
        time_over=_never, stuck_after_seconds=30.0, drain_over=lambda: None, give_up=_nothing,
    )  # fmt: skip
    looked, asked, started = asyncio.Event(), asyncio.Event(), list[object]()

    def look() -> None:
        found.append(blockage.blocker())
        looked.set()

    async def works() -> None:
        await asyncio.sleep(0.001)
        look()

    async def run(attempt: Any) -> None:
        attempt.task = asyncio.current_task()
        if attempt is quick:
            return  # so that its task goes on with the next
        if way == "sets a timer":
            asyncio.get_running_loop().call_later(0.001, look)
        elif "lifespan" in way:
            asked.set()
        else:
            started.append(asyncio.create_task(works()))
        if way != "has ended, and its task goes on":
            await looked.wait()
        attempt.running = False

    async def consume() -> None:
        await asked.wait()
        look()

    started.append(asyncio.create_task(consume()))
    quick, attempt = _attempt(1), _attempt(2)
    runners = Runners(run)
    claimed.add(attempt)
    for one in (quick, attempt) if "behind" in way else (attempt,):
        runners.start(one)
    await looked.wait()
    assert found == [Blocker(attempt if is_named else None, known=known)]


async def test_handlers_in_a_blocked_loop_are_suspects_only_if_the_blocker_is_unknown() -> None:
    """A callback may be anybody's: one that was there the third time in a row has timed out."""
    claimed = ClaimedAttempts()
    one, other, late, in_process, waits = (_attempt(number) for number in range(5))
    late.in_thread = True
    executors = ("async", "async", "thread", "process", "thread")
    for attempt, executor in zip((one, other, late, in_process, waits), executors, strict=True):
        attempt.type = executor
        claimed.add(attempt)

    def surrender(suspects: Any) -> Surrender:
        pieces: Any = {
            "execution": SimpleNamespace(
                verdicts=SimpleNamespace(given_up=lambda _held, _timeout: Outcome.timed_out(1)),
                ended_in_its_thread=lambda _held: None,
            ),
            "settlement": SimpleNamespace(unsettled=dict),
            "types": {name: SimpleNamespace(executor=name) for name in ("async", "thread", "process")},
            "timeouts": SimpleNamespace(of=lambda _claimed: 1.0),
            "time_over": lambda _held: 0.0,
        }
        return Surrender(None, "w", claimed, keeper=None, aside=None, suspects=suspects, **pieces)  # type: ignore[arg-type]

    def outcomes(blocker: Blocker, suspects: Any) -> tuple[list[str], Any]:
        made = surrender(suspects)
        made.suspect(blocker)
        made.outcomes(blocker, drained=False)  # a second look at the same blockage does not count again
        return [settlement[2].kind for _, settlement in made.outcomes(blocker, drained=False)], made.suspects

    # A thread that runs past its time has timed out, whichever handler blocks. One that has not begun has not.
    nobody = ["released", "released", "timeout", "released", "released"]
    assert outcomes(Blocker(None, known=True), {}) == (nobody, {})
    assert outcomes(Blocker(other, known=True), {})[0] == ["released", "timeout", "timeout", "released", "released"]
    unknown = Blocker(None, known=False)
    assert outcomes(unknown, {}) == (nobody, {0: 1, 1: 1})
    assert outcomes(unknown, {0: 2, 3: 2}) == (
        ["timeout", "released", "timeout", "released", "released"],
        {0: 3, 1: 1},
    )


def _attempt(number: int) -> Any:
    return SimpleNamespace(
        task=None, running=True, claim=SimpleNamespace(job_id=number), lane="general", job_id=number, attempt=1,
        lost=False, completed=False, interrupt=None, stuck=False, late=False, in_thread=False, running_ms=0,
        excerpt=None,
    )  # fmt: skip


async def test_no_attempt_is_blamed_for_a_task_that_no_handler_waits_for() -> None:
    claimed, found = ClaimedAttempts(), list[object]()
    blockage = Blockage(
        "w", claimed, Aside(Bus()),
        time_over=_never, stuck_after_seconds=30.0, drain_over=lambda: None, give_up=_nothing,
    )  # fmt: skip

    async def handler() -> None:
        await asyncio.sleep(0.05)

    async def service() -> None:
        await asyncio.sleep(0.001)
        found.append(blockage.blocker())

    with owned_by_worker():
        serving = asyncio.create_task(service())
    task = asyncio.create_task(handler())
    attempt: Any = SimpleNamespace(task=task, running=True, claim=SimpleNamespace(job_id=1), lane="general")
    claimed.add(attempt)
    await asyncio.gather(serving, asyncio.create_task(asyncio.sleep(0.01)))
    await task
    assert found == [Blocker(None, known=True)]


def _never(_claimed: object) -> float:
    return time.monotonic() + 3600


async def _nothing(_blocker: object, _drained: bool) -> None: ...
