from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.cli.children import ChildCommand
from tests.cli.conftest import TASKS, Cli, Start, alive
from tests.harness.inprocess import reached
from tests.harness.waiting import until


async def test_a_burst_does_everything_and_ends(start: Start, hf: Holdfast) -> None:
    jobs = [await hf.enqueue("add", {"a": number, "b": 1}) for number in range(30)]
    worker = start("worker", "--app", TASKS, "--burst", "--lanes", "general=4", "--poll-interval", "0.1")
    assert await worker.ended() == 0, worker.text
    assert [(await hf.get(job)).result for job in jobs] == list(range(1, 31))


async def test_only_the_chosen_types_and_queues_are_taken(start: Start, hf: Holdfast) -> None:
    taken = await hf.enqueue("add", {"a": 1, "b": 1}, queue="q")
    others = [await hf.enqueue("add", {"a": 1, "b": 1}), await hf.enqueue("process", {}, queue="q")]
    worker = start("worker", "--app", TASKS, "--burst", "--types", "add, nap", "--queues", "q")
    assert await worker.ended() == 0
    assert (await hf.get(taken)).state is State.SUCCESS
    assert {(await hf.get(job)).state for job in others} == {State.QUEUED}


async def test_enqueue_waits_for_the_result(start: Start, cli: Cli) -> None:
    start("worker", "--app", TASKS)
    done = await cli("enqueue", "add", '{"a": 20, "b": 22}', "--wait", "--timeout", "30")
    assert done.stdout.splitlines()[1] == "42"
    failed = await cli("enqueue", "hopeless", "--wait", "--timeout", "30", code=1)
    assert "the job is dead: it cannot be done" in failed.stderr


async def test_an_app_is_found_in_the_working_folder(start: Start, hf: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from holdfast import Holdfast\nhf = Holdfast()\n\n@hf.job('mine')\ndef mine(ctx): return __name__\n"
    )
    job = await hf.enqueue("mine", {})
    assert await start("worker", "--app", "mine:hf", "--burst", folder=tmp_path).ended() == 0
    assert (await hf.get(job)).result == "mine"


async def test_a_signal_lets_running_jobs_finish_and_a_second_one_does_not(start: Start, hf: Holdfast) -> None:
    worker = start("worker", "--app", TASKS)
    short, long = await hf.enqueue("nap", {"seconds": 1}), await hf.enqueue("nap", {"seconds": 60})
    await until(lambda: worker.text.count("begins to nap") == 2, what="both handlers run")
    worker.process.send_signal(signal.SIGTERM)
    await reached(hf, short, "success")
    assert worker.process.poll() is None
    worker.process.send_signal(signal.SIGINT)
    assert await worker.ended() == 0
    assert (await hf.get(long)).state is State.QUEUED


async def test_processes_are_restarted_and_drained_together(start: Start, hf: Holdfast) -> None:
    workers = start("worker", "--app", TASKS, "--processes", 2)
    await until(lambda: len(workers.lines("started")) == 2)
    victim, survivor = workers.children()
    os.kill(victim, signal.SIGKILL)
    await until(lambda: len(workers.lines("started")) == 3)
    assert survivor in workers.children()
    assert len(workers.children()) == 2
    assert "was killed by SIGKILL and is restarted" in workers.text
    napping = await hf.enqueue("nap", {"seconds": 0.5})
    await workers.wrote("begins to nap")
    children = workers.children()
    # As a service manager does it: everybody hears of the end, and it counts once.
    for pid in (workers.process.pid, *children):
        os.kill(pid, signal.SIGTERM)
    assert await workers.ended() == 0
    assert (await hf.get(napping)).state is State.SUCCESS
    assert not any(alive(pid) for pid in children)


async def test_processes_end_with_their_burst(start: Start, hf: Holdfast) -> None:
    jobs = await hf.enqueue_many([("process", {})] * 40)
    assert await start("worker", "--app", TASKS, "--burst", "--processes", 2).ended() == 0
    assert {(await hf.get(job)).state for job in jobs} == {State.SUCCESS}


async def test_children_drain_when_their_parent_is_killed(start: Start, hf: Holdfast) -> None:
    workers = start("worker", "--app", TASKS, "--processes", 2)
    await until(lambda: len(workers.lines("started")) == 2)
    napping = await hf.enqueue("nap", {"seconds": 0.5})
    await workers.wrote("begins to nap")
    children = workers.children()
    workers.process.kill()
    await until(lambda: not any(alive(pid) for pid in children), seconds=20, what="children end")
    assert (await hf.get(napping)).state is State.SUCCESS


async def test_a_process_whose_app_cannot_be_imported_for_some_seconds_comes_back(
    start: Start, hf: Holdfast, tmp_path: Path
) -> None:
    """Somebody deploys: siblings go on, and the one that died is started until its app is there again."""
    app, away = tmp_path / "deployed.py", tmp_path / "away"
    app.write_text(_APP)
    workers = start("worker", "--app", "deployed:hf", "--processes", 2, folder=tmp_path)
    await until(lambda: len(workers.lines("started")) == 2)
    app.rename(away)
    victim, survivor = workers.children()
    os.kill(victim, signal.SIGKILL)
    await workers.wrote("cannot import its app, which could be imported before, and tries again in 1 s")
    assert survivor in workers.children()
    await reached(hf, await hf.enqueue("mine", {}), "success")
    away.rename(app)
    await until(lambda: len(workers.lines("started")) == 3)
    workers.process.terminate()
    assert await workers.ended() == 0


async def test_a_process_that_is_replaced_while_its_app_cannot_be_imported_comes_back(
    start: Start, hf: Holdfast, tmp_path: Path
) -> None:
    app, away = tmp_path / "deployed.py", tmp_path / "away"
    app.write_text(_APP)
    worker = start("worker", "--app", "deployed:hf", "--stuck-after", "0.2", folder=tmp_path)
    stuck = await hf.enqueue("stubborn", {})
    await reached(hf, stuck, "running")
    app.rename(away)
    await worker.wrote("it tries again in 1 s")
    await reached(hf, stuck, "dead")
    away.rename(app)
    await until(lambda: len(worker.lines("started")) == 2)
    worker.process.terminate()
    assert await worker.ended() == 0


_APP = """
import time
from holdfast import Holdfast, RetryPolicy
hf = Holdfast()

@hf.job("mine")
def mine(ctx): return __name__

@hf.job("stubborn", timeout=0.2, retry=RetryPolicy(max_attempts=1))
def stubborn(ctx): time.sleep(600)
"""


async def test_a_child_whose_app_stays_away_is_given_up_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with the code after which a service manager does not start it again."""
    monkeypatch.chdir(tmp_path)
    arguments = ("worker", "--app", "missing:hf")
    sibling = ChildCommand("worker 1", arguments, grace_seconds=1)
    child = ChildCommand("worker 2", arguments, grace_seconds=1, siblings=[sibling], most_imports=1)
    assert await child.run() == 2
    assert not caplog.messages
    sibling.imported = True
    assert await child.run() == 1
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


async def test_a_wrong_type_ends_all_processes(start: Start) -> None:
    workers = start("worker", "--app", TASKS, "--processes", 2, "--types", "unknown")
    assert await workers.ended() == 2
    assert "has no job type unknown" in workers.text


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_timers_and_signals_that_handlers_leave_end_no_worker(start: Start, hf: Holdfast, executor: str) -> None:
    """Some timers are disarmed before they go off, others go off at once."""
    worker = start("worker", "--app", TASKS)
    beside = await hf.enqueue("nap", {"seconds": 1.0}, max_attempts=1)
    await worker.wrote("begins to nap")
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    left = [{"timer": timer, "seconds": seconds} for timer in timers for seconds in (0.3, 0.000_001)]
    for payload in left:
        await reached(hf, await hf.enqueue(f"leave {executor}", payload), "success")
    await reached(hf, beside, "success")
    (attempt,) = await hf.attempts(beside)
    assert attempt.outcome == "success"
    worker.process.terminate()
    assert await worker.ended() == 0, worker.text
    assert "SIGUSR1 was received and ignored" in worker.text
    assert f"a handler of leave {executor}" in worker.text


async def test_a_process_with_a_stuck_thread_is_replaced(start: Start, hf: Holdfast) -> None:
    stuck = await hf.enqueue("stubborn", {})
    worker = start("worker", "--app", TASKS, "--stuck-after", "0.2", "--lanes", "general=2")
    await reached(hf, stuck, "dead")
    (attempt,) = await hf.attempts(stuck)
    assert attempt.outcome == "timeout"
    assert str(worker.process.pid) in attempt.worker
    following = await hf.enqueue("process", {})
    # The new program runs in the same process: its service manager notices nothing.
    assert (await reached(hf, following, "success")).result == worker.process.pid
    await until(lambda: len(worker.lines("started")) == 2)
    worker.process.terminate()
    assert await worker.ended() == 0
    (line,) = [line for line in worker.logged("AttemptEnded") if line["job_id"] == str(stuck.id)]
    assert (line["outcome"], line["state"], line["failures"], line["type"]) == ("timeout", "dead", 1, "stubborn")
    assert line["duration_seconds"] > 0


async def test_a_process_is_replaced_though_its_stuck_thread_returned_while_it_drained(
    start: Start, hf: Holdfast
) -> None:
    """Nobody has asked it to stop, and its service manager may not start another one."""
    worker = start("worker", "--app", TASKS, "--stuck-after", "0.2", "--lanes", "general=2")
    beside, slow = await hf.enqueue_many([("nap", {"seconds": 2}), ("slow", {})])
    assert (await reached(hf, slow, "success")).result == "done in the end"
    await reached(hf, beside, "success")
    assert (await reached(hf, await hf.enqueue("process", {}), "success")).result == worker.process.pid
    assert len(worker.lines("started")) == 2
    worker.process.terminate()
    assert await worker.ended() == 0


FOREIGN = """
import asyncio, os, time
from holdfast import Holdfast, Middleware, RetryPolicy, events

class Deaf(Middleware):
    async def run(self, ctx, call_next):
        value = await call_next()
        while ctx.type == "work":
            try:
                await asyncio.sleep(3600)
            except BaseException:
                pass
        return value

hf = Holdfast(middleware=[Deaf()] if {what!r} == "middleware" else [])

@hf.on(events.AttemptStarted)
def observe(event):
    if {what!r} == "observer" and event.type == "work":
        time.sleep(120)

@hf.job("work", timeout=0.5, retry=RetryPolicy(max_attempts=1), executor={executor!r})
def work(ctx): pass

@hf.job("process")
async def process(ctx): return os.getpid()
"""


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("what", ["observer", "middleware"])
async def test_a_process_is_replaced_if_foreign_code_around_a_handler_does_not_end(
    start: Start, hf: Holdfast, tmp_path: Path, what: str, executor: str
) -> None:
    """An observer that blocks the event loop, or middleware that swallows its cancellation."""
    (tmp_path / "foreign.py").write_text(FOREIGN.format(what=what, executor=executor))
    worker = start("worker", "--app", "foreign:hf", "--stuck-after", "0.2", folder=tmp_path)
    job = await hf.enqueue("work", {})
    await reached(hf, job, "dead", seconds=25)
    assert [a.outcome for a in await hf.attempts(job)] == ["timeout"]
    assert (await reached(hf, await hf.enqueue("process", {}), "success")).result == worker.process.pid
    worker.process.terminate()
    assert await worker.ended() == 0


async def test_a_thread_that_ignores_the_drain_is_handed_back_once_its_process_is_gone(
    start: Start, hf: Holdfast
) -> None:
    free, bound = await hf.enqueue("deaf", {}), await hf.enqueue("deaf", {}, target="t")
    settings = {"HOLDFAST_SHUTDOWN_GRACE_PERIOD_SECONDS": "0", "HOLDFAST_DRAIN_POLICY": "pause"}
    worker = start("worker", "--app", TASKS, **settings)
    await until(lambda: worker.text.count("hears nothing") == 2, what="both handlers run")
    worker.process.terminate()
    assert await worker.ended() == 0
    assert len(worker.lines("started")) == 1
    jobs = [await hf.get(free), await hf.get(bound)]
    assert [(job.state, job.failures) for job in jobs] == [(State.QUEUED, 0), (State.PAUSED, 0)]
    assert (await hf.history(bound))[-1].note == "Job was interrupted by user"


async def test_a_process_with_a_blocked_event_loop_is_replaced(start: Start, hf: Holdfast) -> None:
    """The handler that blocks has timed out; those that stood still beside it run again, at no cost."""
    worker = start("worker", "--app", TASKS, "--stuck-after", "0.2", "--lanes", "general=4")
    beside = [await hf.enqueue("nap", {"seconds": 2}), await hf.enqueue("nap", {"seconds": 2}, target="t")]
    await until(lambda: worker.text.count("begins to nap") == 2, what="both handlers run")
    # They are claimed together: the first has ended, and is not settled yet, when the second one blocks.
    ended, blocking = await hf.enqueue_many([("process", {}), ("block", {})])
    await worker.wrote("blocks the loop")
    assert (await reached(hf, blocking, "retry")).failures == 1
    (attempt,) = await hf.attempts(blocking)
    assert (attempt.outcome, attempt.log_excerpt) == ("timeout", "INFO blocks the loop")
    assert str(worker.process.pid) in attempt.worker
    assert f"the handler of block {blocking.id} has blocked the event loop" in worker.text
    assert [a.outcome for a in await hf.attempts(ended)] == ["success"]
    assert (await hf.get(ended)).result == worker.process.pid
    for job in beside:
        assert (await reached(hf, job, "success")).failures == 0
        assert [a.outcome for a in await hf.attempts(job)] == ["released", "success"]
    assert (await reached(hf, await hf.enqueue("process", {}), "success")).result == worker.process.pid
    opened = [link.readlink() for link in Path(f"/proc/{worker.process.pid}/fd").iterdir()]
    assert opened.count(Path(os.devnull)) < 10  # those that the handler had opened have ended with the program before
    worker.process.terminate()
    assert await worker.ended() == 0


ONCE = """
import asyncio, pathlib, time
from holdfast import Holdfast, RetryPolicy

mark = pathlib.Path("imported")
if mark.exists():
    {again}
mark.touch()
hf = Holdfast({url!r})

@hf.job("nap")
async def nap(ctx):
    ctx.logger.info("begins to nap")
    await asyncio.sleep(120)

@hf.job("block", timeout=0.2, retry=RetryPolicy(base=3600))
async def block(ctx): time.sleep(120)
"""


@pytest.mark.parametrize("again", ["raise ImportError('a deployment in between')", "time.sleep(120)"])
async def test_what_a_process_left_is_settled_before_its_app_is_imported_anew(
    start: Start, hf: Holdfast, database_url: str, tmp_path: Path, again: str
) -> None:
    """Nor is the environment asked which database it was: the app had said it."""
    (tmp_path / "once.py").write_text(ONCE.format(again=again, url=database_url))
    elsewhere = {"HOLDFAST_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nowhere"}
    worker = start(
        "worker", "--app", "once:hf", "--stuck-after", "0.2", "--lanes", "general=2", folder=tmp_path, **elsewhere
    )
    beside = await hf.enqueue("nap", {})
    await worker.wrote("begins to nap")
    blocking = await hf.enqueue("block", {})
    assert (await reached(hf, blocking, "retry")).failures == 1
    assert [a.outcome for a in await hf.attempts(blocking)] == ["timeout"]
    assert (await reached(hf, beside, "queued")).failures == 0
    assert [a.outcome for a in await hf.attempts(beside)] == ["released"]


LEFT = """
import asyncio, pathlib, time
from holdfast import Holdfast, RetryPolicy

hf = Holdfast()
once = {"retry": RetryPolicy(max_attempts=1), "timeout": 3}

async def blocks():
    await asyncio.sleep(0.2)
    print("blocks", flush=True)
    time.sleep(120)

@hf.job("leave", **once)
async def leave(ctx):
    mark = pathlib.Path("left")
    if not mark.exists():
        mark.touch()
        globals()["left"] = asyncio.create_task(blocks())

@hf.job("async", **once)
async def victim(ctx): await asyncio.sleep(1)

@hf.job("thread", **once)
def in_a_thread(ctx):
    time.sleep(1)
    return ctx.attempt

@hf.job("process", executor="process", **once)
def in_a_process(ctx): time.sleep(1)
"""


async def test_a_task_that_was_left_behind_and_blocks_costs_no_other_job_an_attempt(
    start: Start, hf: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "left.py").write_text(LEFT)
    jobs = await hf.enqueue_many([(name, {}) for name in ("async", "thread", "process", "leave")])
    worker = start("worker", "--app", "left:hf", "--stuck-after", "0.2", "--lanes", "general=4", folder=tmp_path)
    outcomes = {}
    for job in jobs:
        ended = await reached(hf, job, "success")
        assert ended.failures == 0
        outcomes[ended.type] = [a.outcome for a in await hf.attempts(job)]
    assert outcomes["async"] == ["released", "success"]
    # It had ended in its thread while the loop did not hear of it.
    assert outcomes["thread"] == ["success"]
    assert outcomes["leave"] == ["success"]
    worker.process.terminate()
    assert await worker.ended() == 0


AROUND = """
class Around(Middleware):
    async def run(self, ctx, call_next):
        value = await call_next()
        if ctx.type == "after":
            await asyncio.sleep(1)
        return value

hf.middleware.append(Around())

def fails(ctx, error):
    time.sleep(1)
    if ctx.attempt == 1:
        raise error

@hf.job("snooze", **once)
def snooze(ctx): fails(ctx, Snooze(0.1))

@hf.job("raise", timeout=3, retry=RetryPolicy(base=0.01))
def raises(ctx): fails(ctx, ValueError("its own"))

@hf.job("after", **once)
def after(ctx): pass
"""


async def test_a_thread_that_ended_in_time_within_middleware_beside_a_blocked_loop_is_handed_back(
    start: Start, hf: Holdfast, tmp_path: Path
) -> None:
    """Nobody can tell what the middleware would make of its end, but it has not timed out."""
    imports = "from holdfast import Holdfast, Middleware, RetryPolicy, Snooze"
    (tmp_path / "around.py").write_text(LEFT.replace("from holdfast import Holdfast, RetryPolicy", imports) + AROUND)
    jobs = await hf.enqueue_many([(name, {}) for name in ("thread", "snooze", "raise", "after", "leave")])
    worker = start("worker", "--app", "around:hf", "--stuck-after", "0.2", "--lanes", "general=5", folder=tmp_path)
    for job in jobs:
        ended = await reached(hf, job, "success")
        expected = ["success"] if ended.type == "leave" else ["released", "success"]
        assert [a.outcome for a in await hf.attempts(job)] == expected, ended.type
    worker.process.terminate()
    assert await worker.ended() == 0


CANCELS = """
import asyncio, time
from holdfast import Holdfast, RetryPolicy

hf = Holdfast()
once = {"retry": RetryPolicy(max_attempts=1)}

@hf.job("cancel all", **once)
async def cancel_all(ctx):
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()

@hf.job("async", **once)
async def victim(ctx):
    ctx.logger.info("begins")
    await asyncio.sleep(60)

@hf.job("thread", **once)
def in_a_thread(ctx):
    ctx.logger.info("begins")
    time.sleep(2)
    return ctx.attempt
"""


async def test_a_handler_that_cancels_all_tasks_ends_no_worker(start: Start, hf: Holdfast, tmp_path: Path) -> None:
    """Async handlers that it meets have failed; threads go on, and so does all of the worker itself."""
    (tmp_path / "cancels.py").write_text(CANCELS)
    worker = start("worker", "--app", "cancels:hf", "--lanes", "general=4", folder=tmp_path)
    thread, victim = await hf.enqueue("thread"), await hf.enqueue("async")
    await until(lambda: worker.text.count("begins") == 2, what="both run")
    for _ in range(2):
        assert (await reached(hf, await hf.enqueue("cancel all"), "success")).failures == 0
    assert "CancelledError" in str((await reached(hf, victim, "dead")).last_error)
    assert (await reached(hf, thread, "success")).result == 1
    own = {"beginnings", "circuits", "drain", "intake", "lookout", "maintenance", "settlement", "worker"}
    change = "goes on although something canceled its own tasks"
    await until(
        lambda: own == {name for line in worker.lines(change) for name in line["detail"].split(", ")},
        what="the log says so of each",
    )
    # One that waits is promoted by maintenance.
    later = await hf.enqueue("thread", delay=0.5)
    last = await hf.enqueue("cancel all")
    await reached(hf, last, "success")
    assert (await reached(hf, later, "success")).attempt == 1
    thread = await hf.enqueue("thread")
    await until(lambda: worker.text.count("begins") == 4, what="it runs")
    worker.process.terminate()
    assert await worker.ended() == 0
    assert (await hf.get(thread)).state == "success"


IDLE = """
import pathlib, time
from holdfast import Holdfast, events

hf = Holdfast()

@hf.on(events.LeaderChanged)
def observe(event):
    mark = pathlib.Path("blocked")
    if not mark.exists():
        mark.touch()
        time.sleep(120)

@hf.job("work", timeout=3600)
async def work(ctx): pass
"""


async def test_an_idle_process_with_a_blocked_event_loop_waits_for_no_timeout_of_a_handler(
    start: Start, hf: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "idle.py").write_text(IDLE)
    worker = start("worker", "--app", "idle:hf", "--stuck-after", "0.2", folder=tmp_path)
    await until(lambda: len(worker.lines("started")) == 2, seconds=25, what="it was replaced")
    await reached(hf, await hf.enqueue("work", {}), "success")
    worker.process.terminate()
    assert await worker.ended() == 0


async def test_a_process_that_cannot_be_replaced_says_so_and_fails(start: Start, hf: Holdfast) -> None:
    """Its blocked loop would neither work nor hear a signal. What stood still beside the blocker costs nothing."""
    worker = start("worker", "--app", TASKS, "--stuck-after", "0.2", "--lanes", "general=2")
    beside = await hf.enqueue("nap", {"seconds": 120})
    await worker.wrote("begins to nap")
    await hf.enqueue("block without python", {})
    assert await worker.ended() == 1
    (line,) = [line for line in worker.text.splitlines() if "cannot be replaced" in line]
    assert '"error"' in line
    assert "/removed/by/a/deployment" in line
    assert ((await hf.get(beside)).state, (await hf.get(beside)).failures) == (State.QUEUED, 0)


async def test_a_blocked_event_loop_keeps_no_worker_from_draining(start: Start, hf: Holdfast) -> None:
    """Told by a signal or by its parent, while the loop does not hear it."""
    jobs = [await hf.enqueue("absorbed", {}, queue=queue) for queue in ("alone", "led")]
    grace = {"HOLDFAST_SHUTDOWN_GRACE_PERIOD_SECONDS": "0"}
    workers = [
        start("worker", "--app", TASKS, "--queues", "alone", **grace),
        start("worker", "--app", TASKS, "--queues", "led", "--processes", 2, **grace),
    ]
    for worker in workers:
        await worker.wrote("lets nobody else run")
        worker.process.terminate()
    for worker in workers:
        assert await worker.ended() == 0
    assert [((await hf.get(job)).state, (await hf.get(job)).failures) for job in jobs] == [(State.QUEUED, 0)] * 2


@pytest.mark.parametrize(
    ("job_type", "payload"),
    [("fork", {}), ("fork in a thread", {"raises": False}), ("fork in a thread", {"raises": True})],
)
@pytest.mark.parametrize("event_loop", ["asyncio", "auto"])
async def test_a_copy_of_the_worker_ends_with_the_handler_that_made_it(
    start: Start, hf: Holdfast, job_type: str, payload: dict[str, bool], event_loop: str
) -> None:
    worker = start("worker", "--app", TASKS, "--lanes", "general=4", HOLDFAST_EVENT_LOOP=event_loop)
    beside = await hf.enqueue("nap", {"seconds": 1.5})
    copy = (await reached(hf, await hf.enqueue(job_type, payload), "success")).result
    await until(lambda: not alive(copy), seconds=10, what="the copy has ended")
    assert (await reached(hf, beside, "success")).attempt == 1
    assert (await reached(hf, await hf.enqueue("add", {"a": 1, "b": 2}), "success")).result == 3
    assert len(worker.lines("drains")) == 0
    assert "a copy of the worker" in worker.text
    worker.process.terminate()
    assert await worker.ended() == 0
