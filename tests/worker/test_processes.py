"""`executor="process"`: what handlers in processes of their own get, and what comes back from them."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, InvalidInput, JobRef, events
from holdfast.worker.processes import pool
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.worker import cpu_bound
from tests.worker.children import begun, children, opened, run_through

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app with the handlers that are to run in processes, and an asynchronous one."""
    async with opened(database_url, cpu_bound.hf) as app:
        yield app


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that a handler writes when it has begun."""
    return tmp_path / "mark"


def test_a_script_that_forgot_its_guard_does_not_start_itself_over_and_over(database_url: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"""
from holdfast import Holdfast, SyncContext

hf = Holdfast({database_url!r})


@hf.job("double", executor="process")
def double(ctx: SyncContext, n: int) -> int:
    return 2 * n


job = double.sync.enqueue(2)
hf.sync.run_worker(burst=True)
print(hf.sync.get(job).state.value, len(hf.sync.find()))
print(hf.sync.get(job).last_error)
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    state, fault = done.stdout.splitlines()
    assert state == "dead 1", done.stderr
    assert '`if __name__ == "__main__":`' in fault


@pytest.mark.usefixtures("cold_children")
async def test_the_handler_runs_in_the_main_thread_of_another_process(hf: Holdfast) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    job = await run_through(
        hf, "tell", tenant="acme", correlation_id="a thread of work", max_attempts=9, traceparent=trace
    )
    told = job.result
    assert told["context"] == [str(job.id), "tell", 1, "acme", "a thread of work", False]
    assert told["history"] == [0, 9, trace]
    assert told["parent"] == os.getpid() != told["pid"]
    assert told["main thread"]
    assert not any("postgres" in argument or "password" in argument for argument in told["arguments"])


@pytest.mark.usefixtures("cold_children")
async def test_a_default_timeout_of_sockets_does_not_keep_handlers_from_running(
    hf: Holdfast,
) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(10)
    try:
        job = await run_through(hf, "tell")
    finally:
        socket.setdefaulttimeout(before)
    assert job.state == "success"


async def test_payloads_arrive_as_their_types_and_results_come_back(hf: Holdfast) -> None:
    jobs: list[tuple[JobRef, Any]] = [
        (
            await hf.enqueue("ship", {"number": "1", "lines": ["tea ☕", "ü"]}),
            {"number": 2, "lines": ["tea ☕", "ü", "Order"]},
        ),
        (
            await hf.enqueue("total", {"total": {"amount": 2, "at": "2030-01-01T00:00:00Z"}, "times": 3}),
            {"amount": 6, "at": "2030-01-02T00:00:00Z"},
        ),
        (await hf.enqueue("other name"), "another name"),
    ]
    values: list[Any] = [None, 0, False, "", [], {}, "\U0001f600 ✓ \x01", 1.5, 2**70, {"ä": [1, {"b": None}]}]
    jobs += [(await hf.enqueue("echo", {"value": value}), value) for value in values]
    await hf.run_worker(burst=True, lanes={"general": 1})
    for job, expected in jobs:
        done = await hf.get(job.id)
        assert (done.state, done.result) == ("success", expected)


async def test_one_child_is_kept_for_many_jobs_and_enters_the_lifespan_once(hf: Holdfast) -> None:
    jobs = [await hf.enqueue("tell") for _ in range(5)]
    await hf.run_worker(burst=True, lanes={"general": 1})
    told = [(await hf.get(job.id)).result for job in jobs]
    assert len({t["pid"] for t in told}) == 1
    assert {t["resources"]["pid"] for t in told} == {told[0]["pid"]}
    assert told[0]["resources"]["thread"] != "MainThread"


async def test_a_child_leaves_the_lifespan_when_the_worker_ends_and_none_is_left(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAREWELL", str(tmp_path / "farewell"))
    job = await run_through(hf, "tell")
    assert (tmp_path / "farewell").read_text() == "left"
    assert not Path(f"/proc/{job.result['pid']}").exists(), "gone and reaped"


async def test_idle_children_have_two_seconds_to_leave_the_lifespan(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAREWELL", str(tmp_path / "farewell"))
    monkeypatch.setenv("FAREWELL_SECONDS", "1.2")
    await run_through(hf, "tell")
    assert (tmp_path / "farewell").read_text() == "left"


async def test_the_app_knows_the_database_of_the_worker(hf: Holdfast) -> None:
    """Declared without one, as with the embedded server. It is not open in a child, but can be used through `sync`."""
    told = (await run_through(hf, "tell")).result
    assert told["resources"]["database"] == hf.config.database_url
    job = await run_through(hf, "in sync")
    assert job.result == hf.config.database_url
    (child,) = await hf.find(types=["child"])
    assert (await hf.get(child)).payload == {"n": 3}


async def test_an_idle_child_leaves_after_a_while(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.2)
    monkeypatch.setenv("FAREWELL", str(tmp_path / "farewell"))
    async with working(hf) as worker:
        job = await hf.enqueue("tell")
        pid = (await hf.wait(job.id, timeout=30)).result["pid"]
        await until(lambda: not Path(f"/proc/{pid}").exists(), seconds=10, what="the child leaves")
        assert (tmp_path / "farewell").read_text() == "left", "in good order"
        await until(lambda: not children(worker))
        job = await hf.enqueue("tell")
        assert (await hf.wait(job.id, timeout=30)).result["pid"] != pid


async def test_what_is_raised_comes_back_with_its_type_and_traceback(hf: Holdfast) -> None:
    names = ("error", "fatal", "hold", "retry", "snooze", "exit")
    ids = {name: (await hf.enqueue("raise", {"what": name})).id for name in names}
    async with working(hf, lanes={"general": 2}):
        await reached(hf, ids["hold"], "error")
        await reached(hf, ids["retry"], "retry")
        for name in ("error", "fatal", "snooze", "exit"):
            await hf.wait(ids[name], timeout=30)
    jobs = {name: await hf.get(job_id) for name, job_id in ids.items()}
    ends = {name: [(a.outcome, a.error_type) for a in await hf.attempts(job.id)] for name, job in jobs.items()}
    assert (jobs["error"].state, jobs["error"].last_error) == ("dead", "attempt 2")
    assert ends["error"] == [("failed", "ValueError")] * 2
    assert "in raising\n    raise ValueError" in ((await hf.attempts(ids["error"]))[0].traceback or "")
    assert (jobs["fatal"].state, jobs["fatal"].last_error) == ("dead", "no such customer")
    assert ends["fatal"] == [("failed", "MyFatal")]
    assert (jobs["hold"].state, jobs["hold"].last_error) == ("error", "the token limit is reached")
    assert (jobs["retry"].run_at - jobs["retry"].updated_at).total_seconds() == 7200
    assert jobs["retry"].last_error == "not yet"
    assert (jobs["snooze"].result, jobs["snooze"].failures, jobs["snooze"].attempt) == ("done", 0, 2)
    assert (jobs["exit"].state, jobs["exit"].last_error, ends["exit"][0][1]) == ("dead", "enough", "SystemExit")


async def test_a_payload_that_no_longer_fits_waits_for_a_person_and_an_odd_result_is_fatal(database_url: str) -> None:
    async with Holdfast(database_url) as client:
        misfit, odd = await client.enqueue("ship", {"lines": 3}), await client.enqueue("unstorable")
        for name in ("ship", "unstorable"):
            job_type = cpu_bound.hf.registry.get(name)
            assert job_type is not None
            client.registry.add(job_type)
        await client.run_worker(burst=True, lanes={"general": 1})
        held, dead = await client.get(misfit.id), await client.get(odd.id)
    assert (held.state, held.attempt) == ("error", 1)
    assert "does not fit the handler of ship: number: Field required; lines:" in (held.last_error or "")
    assert (dead.state, dead.attempt) == ("dead", 1)
    assert "the result cannot be written as JSON" in (dead.last_error or "")


async def test_children_of_the_job_inherit_tenant_correlation_and_parent(hf: Holdfast) -> None:
    parent = await hf.enqueue("family", tenant="acme", correlation_id="a thread of work")
    refused = await hf.enqueue("family", {"child": ""}, max_attempts=1)
    await hf.run_worker(burst=True, lanes={"general": 1})
    first, second = [await hf.get(job_id) for job_id in (await hf.get(parent.id)).result]
    for child in (first, second):
        assert (child.tenant, child.correlation_id, child.parent_id) == ("acme", "a thread of work", parent.id)
    assert (first.priority, first.payload, second.idempotency_key) == (7, {"n": 1}, "once")
    (attempt,) = await hf.attempts(refused.id)
    assert (attempt.outcome, attempt.error_type) == ("failed", "InvalidInput")


async def test_a_fault_of_the_engine_is_raised_in_the_handler(hf: Holdfast) -> None:
    await hf.enqueue("child", {"n": 2}, idempotency_key="once")
    job = await run_through(hf, "family", max_attempts=1)
    (attempt,) = await hf.attempts(job.id)
    assert attempt.error_type == "KeyConflict"
    refused = await run_through(hf, "family", {"child": "holdfast.cancel"}, max_attempts=1)
    (attempt,) = await hf.attempts(refused.id)
    assert attempt.error_type == "InvalidInput"


async def test_middleware_around_enqueueing_may_wait(hf: Holdfast) -> None:
    done = await run_through(hf, "ask", {"child": "waited for"})
    assert (done.state, done.attempt) == ("success", 1)
    (found,) = await hf.find(types=["waited for"])
    child = await hf.get(found)
    assert (str(child.id), child.payload, child.parent_id) == (done.result, {"waited": True}, done.id)


async def test_a_handler_that_waits_for_middleware_is_interrupted(hf: Holdfast, mark: Path) -> None:
    async with working(hf):
        job = await begun(hf, "ask", mark, child="endless")
        await hf.cancel(job)
        assert (await reached(hf, job, "canceled", seconds=4)).failures == 0
    assert await hf.find(types=["endless"]) == []


async def test_a_handler_may_enqueue_on_a_connection_of_its_own(hf: Holdfast) -> None:
    done = await run_through(hf, "lent", {"url": hf.config.database_url})
    assert (done.state, done.result) == ("success", "lent")
    (found,) = await hf.find(types=["child"])
    child = await hf.get(found)
    assert (child.payload, child.parent_id, child.correlation_id) == ({"n": 2}, done.id, done.correlation_id)


async def test_log_lines_reach_the_worker_and_stay_with_the_attempt(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    fine, dying = await hf.enqueue("log"), await hf.enqueue("log", {"die": True}, max_attempts=1)
    with caplog.at_level(logging.INFO, logger="holdfast"):
        await hf.run_worker(burst=True, lanes={"general": 1})
    for job in (fine, dying):
        (attempt,) = await hf.attempts(job.id)
        assert (attempt.log_excerpt or "").startswith("WARNING half done: 100%\nERROR went on\nTraceback")
        assert "KeyError: 'lost'" in (attempt.log_excerpt or "")
        (line,) = [r for r in caplog.records if r.msg == "half done: 100%" and getattr(r, "job_id", "") == str(job.id)]
        assert (line.levelname, getattr(line, "attempt", None)) == ("WARNING", 1)


def test_a_handler_that_no_other_process_could_find_is_refused() -> None:
    hf = Holdfast()
    with pytest.raises(InvalidInput, match="at the top level of a module"):

        @hf.job("inner", executor="process")
        def inner(ctx: Context) -> None: ...

    with pytest.raises(InvalidInput, match="needs a plain `def` handler"):

        @hf.job("asynchronous", executor="process")
        async def asynchronous(ctx: Context) -> None: ...


async def test_a_handler_that_its_module_does_not_keep_is_refused_before_any_claim(hf: Holdfast) -> None:
    hf.job("nameless", executor="process")(cpu_bound._plain)
    job = await hf.enqueue("nameless")
    with pytest.raises(InvalidInput, match=r"'nameless'.*it is not there under any name"):
        await hf.run_worker(burst=True)
    assert (await hf.get(job.id)).attempt == 0


MAIN = """
import asyncio, os
from holdfast import Context, Holdfast

print("loaded as", __name__, flush=True)
hf = Holdfast()


@hf.job("square", executor="process")
def square(ctx: Context, number: int) -> int:
    return number * number


async def main() -> None:
    async with hf:
        job = await square.enqueue(12)
        await hf.run_worker(burst=True)
        print((await hf.get(job.id)).result)


if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["script", "module", "console"])
def test_handlers_of_the_main_program(database_url: str, tmp_path: Path, how: str) -> None:
    (tmp_path / "squares.py").write_text(MAIN)
    command = {"script": ["squares.py"], "module": ["-m", "squares"], "console": ["-c", MAIN]}[how]
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if how == "console":
        assert "from a notebook, a console or `python -c`" in done.stderr
        return
    name = "__holdfast_main__" if how == "script" else "squares"
    assert done.stdout.splitlines() == ["loaded as __main__", f"loaded as {name}", "144"], done.stderr


@pytest.mark.usefixtures("cold_children")
async def test_an_error_of_the_import_fails_the_job_with_that_error(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(
        "import os\n"
        f"if os.getpid() != {os.getpid()}:\n"
        "    raise RuntimeError('not in a child')\n"
        "from holdfast import Holdfast\n"
        "hf = Holdfast()\n"
        "@hf.job('only here', executor='process')\n"
        "def only_here(ctx): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    hf.registry.add(only_here.only_here.job_type)
    job = await run_through(hf, "only here", max_attempts=1)
    (attempt,) = await hf.attempts(job.id)
    assert (attempt.error_type, attempt.error_message) == ("RuntimeError", "not in a child")


def test_nothing_is_pickled() -> None:
    sources = [*(ROOT / "src/holdfast/worker").rglob("*.py")]
    assert sources
    for source in sources:
        assert not re.search(
            r"^\s*(import|from) (pickle|marshal|shelve|multiprocessing)", source.read_text(), re.MULTILINE
        )


async def test_a_child_writes_in_the_transaction_that_ends_its_job(hf: Holdfast, conn: asyncpg.Connection) -> None:
    await conn.execute("create table public.effects (job_id uuid not null)")
    told: list[events.Event] = []
    hf.events.subscribe(told.append)
    async with working(hf):
        job = await hf.enqueue("post", {"fail": True}, max_attempts=2, target="held to the end")
        done = await hf.wait(job, timeout=60)
    assert (done.state, done.attempt) == ("success", 2)
    assert done.result not in (None, os.getpid())
    assert await conn.fetchval("select array_agg(job_id) from public.effects") == [job.id]
    assert (await hf.attempts(job))[-1].log_excerpt == "WARNING written"
    ended = [e.state for e in told if isinstance(e, events.AttemptEnded)]
    assert ended == ["retry", "success"]
    assert not [e for e in told if isinstance(e, events.LeaseLost)]


async def test_a_child_brings_its_own_connection(hf: Holdfast, conn: asyncpg.Connection, database_url: str) -> None:
    await conn.execute("create table public.effects (job_id uuid not null)")
    job = await run_through(hf, "post", {"own": database_url})
    assert job.state == "success"
    assert await conn.fetchval("select array_agg(job_id) from public.effects") == [job.id]
    (child,) = await hf.find(types=["next"])
    assert child.parent_id == job.id


@pytest.mark.usefixtures("cold_children")
async def test_process_handlers_run_even_if_sigchld_is_ignored(hf: Holdfast) -> None:
    """As under a supervisor that does so: every handler in a process died of it."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        done = await run_through(hf, "tell")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert done.state == "success"
