"""What a worker takes, when, and in what order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, InvalidInput, JobRef, RetryPolicy
from holdfast.model.job import Stream
from holdfast.store.leases import LeaseStore
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until


async def test_a_burst_ends_when_nothing_is_left(hf: Holdfast) -> None:
    @hf.job("grow")
    async def grow(ctx: Context, depth: int) -> None:
        if depth:
            await ctx.enqueue("grow", {"depth": depth - 1}, target="a target" if depth % 2 else None)

    later = await hf.enqueue("grow", {"depth": 0}, delay=3600)
    unknown = await hf.enqueue("of another worker")
    await hf.enqueue_many([("grow", {"depth": 3}) for _ in range(10)])
    async with asyncio.timeout(60):
        await hf.run_worker(burst=True)
    assert len(await hf.find(states=["success"], limit=100)) == 40
    assert (await hf.get(later.id)).state == "scheduled"
    assert (await hf.get(unknown.id)).state == "queued"


async def test_lower_priority_numbers_go_first_then_older_jobs(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.job("note")
    async def note(ctx: Context, name: str) -> None:
        order.append(name)

    for name, priority in (("c", 100), ("d", 100), ("b", 5), ("e", 200), ("a", 0)):
        await note.options(priority=priority).enqueue(name)
    await hf.run_worker(burst=True, lanes={"general": 1}, batch_size=1)
    assert order == ["a", "b", "c", "d", "e"]


async def test_a_claim_is_committed_before_its_handler_begins(hf: Holdfast, conn: asyncpg.Connection) -> None:
    seen: list[asyncpg.Record] = []

    @hf.job("look")
    async def look(ctx: Context) -> None:
        seen.extend(await conn.fetch("select state, attempt from jobs where id = $1", ctx.job_id))

    await look.enqueue()
    await hf.run_worker(burst=True)
    assert [tuple(row) for row in seen] == [("running", 1)]


async def test_another_worker_adds_its_slots(hf: Holdfast) -> None:
    both = asyncio.Barrier(2)

    @hf.job("meet", retry=RetryPolicy(max_attempts=1))
    async def meet(ctx: Context) -> None:
        async with asyncio.timeout(30):
            await both.wait()

    jobs = [await meet.enqueue() for _ in range(2)]
    async with working(hf, lanes={"general": 1}), working(hf, lanes={"general": 1}):
        assert [(await hf.wait(job, timeout=40)).state for job in jobs] == ["success", "success"]
    owners = [attempt.worker for job in jobs for attempt in await hf.attempts(job)]
    assert len(set(owners)) == len(owners) == 2


async def test_jobs_of_a_target_run_one_at_a_time_in_order(hf: Holdfast) -> None:
    order: list[int] = []
    running = 0

    @hf.job("note")
    async def note(ctx: Context, number: int) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.01)
        order.append(number)
        running -= 1

    for number in range(10):
        await note.options(target="a target", priority=100 - number).enqueue(number)
    await hf.run_worker(burst=True)
    assert order == list(range(10)), "in order of release, priority ignored"


async def test_a_flood_of_slow_jobs_does_not_delay_fast_ones(hf: Holdfast) -> None:
    go_on = asyncio.Event()
    running: set[str] = set()

    @hf.job("slow")
    async def slow(ctx: Context) -> None:
        running.add(str(ctx.job_id))
        await go_on.wait()

    @hf.job("fast", lane="fast")
    async def fast(ctx: Context) -> None:
        await asyncio.sleep(0)

    await hf.enqueue_many([("slow", {})] * 50)
    async with working(hf, lanes={"fast": 1, "general": 2}):
        await until(lambda: len(running) == 2)
        for _ in range(5):
            assert (await hf.wait((await fast.enqueue()).id, timeout=30)).state == "success"
        assert len(running) == 2, "fast slots run only fast types"
        await hf.cancel((await hf.find(states=["queued"], limit=1))[0].id)
        go_on.set()


async def test_general_slots_run_fast_types_too(hf: Holdfast) -> None:
    @hf.job("fast", lane="fast")
    async def fast(ctx: Context) -> None: ...

    job = await fast.enqueue()
    await hf.run_worker(burst=True, lanes={"general": 1})
    assert (await hf.get(job.id)).state == "success"


@pytest.mark.parametrize(
    "choice",
    [
        {"types": ["a"]},
        {"queues": ["q1"]},
        {"tenants": ["acme"]},
    ],
)
async def test_a_worker_takes_only_what_it_was_told_to(hf: Holdfast, choice: dict[str, list[str]]) -> None:
    @hf.job("a")
    async def a(ctx: Context) -> None: ...

    @hf.job("b")
    async def b(ctx: Context) -> None: ...

    mine = await hf.enqueue("a", queue="q1", tenant="acme")
    other = await hf.enqueue("b", queue="q2", tenant="other")
    await hf.run_worker(burst=True, **choice)  # type: ignore[arg-type]
    assert [(await hf.get(job.id)).state for job in (mine, other)] == ["success", "queued"]


async def test_a_type_the_app_lacks_is_refused(hf: Holdfast) -> None:
    @hf.job("a")
    async def a(ctx: Context) -> None: ...

    with pytest.raises(InvalidInput, match="the app has no job type b; it has a"):
        await hf.run_worker(types=["b"])


async def test_a_delayed_job_runs_when_it_is_due(hf: Holdfast) -> None:
    """To tens of milliseconds, while the worker is otherwise idle; the best of some, for the machine may be busy."""

    @hf.job("note")
    async def note(ctx: Context, due: float) -> float:
        return time.monotonic() - due

    async with working(hf):
        await reached(hf, await note.enqueue(0.0), "success")
        late: list[float] = []
        while len(late) < 5 or (min(late) > 0.15 and len(late) < 20):
            due = time.monotonic() + 0.3
            job = await note.options(delay=0.3).enqueue(due)
            late.append((await hf.wait(job.id, timeout=30)).result)
    assert min(late) > -0.05, "never early"
    assert min(late) < 0.15


async def test_an_idle_worker_takes_a_new_job_at_once(hf: Holdfast) -> None:
    """By notification: polling alone would take up to a minute here."""

    @hf.job("note")
    async def note(ctx: Context) -> None: ...

    async with working(hf, poll_interval=60.0):
        await reached(hf, await note.enqueue(), "success")
        for _ in range(5):
            assert (await hf.wait((await note.enqueue()).id, timeout=20)).state == "success"


async def test_jobs_claimed_ahead_are_handed_back_when_their_time_does_not_come(hf: Holdfast) -> None:
    """Many very short jobs make the worker claim ahead; then one takes long."""
    go_on = asyncio.Event()

    @hf.job("note")
    async def note(ctx: Context, slow: bool = False) -> None:
        if slow:
            await go_on.wait()

    refs = await hf.enqueue_many([("note", {})] * 300 + [("note", {"slow": True})] + [("note", {})] * 10)
    ahead = [ref.id for ref in refs[301:]]
    async with working(hf, lanes={"general": 1}):

        async def handed_back() -> bool:
            jobs = await hf.find(states=["queued"], limit=20)
            tried = [job for job in jobs if job.attempt > 0]
            return bool(tried) and {job.id for job in jobs} == set(ahead)

        await until(handed_back, what="claimed ahead, and handed back")
        for _ in range(20):
            assert await handed_back(), "and not taken again while the slot is busy"
            await asyncio.sleep(0.1)
        go_on.set()
        for job_id in ahead:
            done = await hf.wait(job_id, timeout=30)
            assert (done.state, done.failures) == ("success", 0)


async def test_a_drain_hands_back_what_was_claimed_ahead(hf: Holdfast) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @hf.job("note")
    async def note(ctx: Context, slow: bool = False) -> None:
        if slow:
            begun.set()
            await go_on.wait()

    await hf.enqueue_many([("note", {})] * 300)
    async with working(hf, lanes={"general": 1}) as worker:
        await until(lambda: _all_done(hf, 300))
        jobs = await hf.enqueue_many([("note", {"slow": True}), *[("note", {})] * 10])
        await begun.wait()
        await until(lambda: len(worker._claimed) > 1, what="some are claimed ahead")
        worker.drain()
        await until(lambda: len(worker._claimed) == 1, what="they are handed back")
        assert (await hf.client.backlog())["running"] == 1
        go_on.set()
    found = [await hf.get(job) for job in jobs]
    assert [job.failures for job in found] == [0] * 11
    assert [job.state for job in found] == ["success", *["queued"] * 10]
    assert {job.reason for job in found if job.attempt > 0} == {None, "released"}


async def _all_done(hf: Holdfast, number: int) -> bool:
    return len(await hf.find(states=["success"], limit=1000)) == number


async def test_a_stream_that_appears_while_streams_are_read_is_not_taken_for_foreign(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notification arrives after the reading began, and before it has ended."""
    read = LeaseStore.streams
    jobs: list[JobRef] = []

    @hf.job("note")
    async def note(ctx: Context) -> None: ...

    @hf.job("first")
    async def first(ctx: Context) -> None: ...

    async with working(hf, poll_interval=60.0) as worker:
        await reached(hf, await first.enqueue(), "success")

        async def read_slowly(self: LeaseStore, *arguments: Any) -> dict[int, Stream]:
            found = await read(self, *arguments)
            if not jobs:
                jobs.append(await note.enqueue())
                await until(lambda: worker._intake._unknown, what="the notification arrives")
            return found

        monkeypatch.setattr(LeaseStore, "streams", read_slowly)
        worker._intake.heard("")
        await until(lambda: jobs)
        assert (await hf.wait(jobs[0], timeout=20)).state == "success"
        assert (await hf.wait(await note.enqueue(), timeout=20)).state == "success"


async def test_jobs_that_commit_out_of_order_are_found_at_once(hf: Holdfast, database_url: str) -> None:
    """The later one was claimed already, and the worker looks behind it; it also looks a moment further back."""
    began: dict[str, float] = {}

    @hf.job("note")
    async def note(ctx: Context, name: str) -> None:
        began[name] = time.monotonic()

    waits = []
    conn = await asyncpg.connect(database_url)
    try:
        async with working(hf):
            for number in range(12):
                earlier, later = f"earlier {number}", f"later {number}"
                async with conn.transaction():
                    await hf.enqueue("note", {"name": earlier}, conn=conn)
                    await hf.enqueue("note", {"name": later})
                    await until(lambda name=later: name in began)  # type: ignore[misc]
                committed = time.monotonic()
                await until(lambda name=earlier: name in began)  # type: ignore[misc]
                waits.append(began[earlier] - committed)
    finally:
        await conn.close()
    assert sorted(waits)[len(waits) // 2] < 0.2, waits
