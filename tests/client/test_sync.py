"""The blocking face of an app: the same verbs, from any thread."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import inspect
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from holdfast import (
    Context,
    DatabaseUnavailable,
    Holdfast,
    HoldfastError,
    InvalidInput,
    InvalidPayload,
    JobRef,
    Middleware,
    NewJob,
    NotFound,
    NotOpen,
    SchemaError,
    Sync,
    WaitTimeout,
)
from holdfast.app.verbs import Verbs
from holdfast.client.new_job import Record
from holdfast.lifecycle.portal import Portal
from holdfast.model.options import Options
from tests.harness.waiting import until


@pytest.fixture
def hf(database_url: str) -> Iterator[Holdfast]:
    app = Holdfast(database_url)

    @app.job("add")
    async def add(ctx: Context, a: int, b: int) -> int:
        return a + b

    yield app
    app.sync.close()


def portals() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "holdfast-portal"}


def opened(hf: Holdfast) -> tuple[Portal, Holdfast]:
    assert hf.sync._open is not None
    return hf.sync._open


def test_every_verb_has_a_blocking_counterpart_with_the_same_signature() -> None:
    verbs = {name: verb for name, verb in vars(Verbs).items() if inspect.iscoroutinefunction(verb)}
    assert len(verbs) >= 13
    for name, verb in verbs.items():
        blocking = getattr(Sync, name)
        assert not inspect.iscoroutinefunction(blocking)
        assert inspect.signature(blocking) == inspect.signature(verb)
        assert blocking.__doc__ == verb.__doc__


def test_a_script_enqueues_runs_and_waits(hf: Holdfast) -> None:
    ref = hf.sync.enqueue("add", {"a": 1, "b": 2})
    held = hf.sync.enqueue("add", {"a": 3, "b": 4}, hold=True)
    assert hf.sync.get(ref).state == "queued"
    hf.sync.release(held)
    hf.sync.run_worker(burst=True)
    assert hf.sync.wait(ref, timeout=5).result == 3
    assert hf.sync.wait(held, timeout=5).result == 7
    assert [job.id for job in hf.sync.find(types=["add"])] == [held.id, ref.id]
    assert [attempt.outcome for attempt in hf.sync.attempts(ref)] == ["success"]


def test_errors_reach_the_caller(hf: Holdfast) -> None:
    with pytest.raises(InvalidPayload):
        hf.sync.enqueue("add", {"a": "x"})
    with pytest.raises(NotFound):
        hf.sync.get("018f0000-0000-7000-8000-000000000000")
    waiting = hf.sync.enqueue("unknown")
    with pytest.raises(WaitTimeout):
        hf.sync.wait(waiting, timeout=0.05)


def test_a_handler_is_enqueued_with_its_own_arguments(hf: Holdfast) -> None:
    @hf.job("greet")
    def greet(ctx: Context, name: str, loud: bool = False) -> str:
        return f"hello {name}"

    ref = greet.options(priority=7).sync.enqueue("Ada", loud=True)
    job = hf.sync.get(ref)
    assert (job.payload, job.priority) == ({"name": "Ada", "loud": True}, 7)


def test_fifty_threads_share_one_portal(hf: Holdfast) -> None:
    barrier, before = threading.Barrier(50), portals()

    def enqueue(number: int) -> set[str]:
        barrier.wait()
        return {str(hf.sync.enqueue("add", {"a": number, "b": n}).id) for n in range(20)}

    with ThreadPoolExecutor(50) as threads:
        ids = set().union(*threads.map(enqueue, range(50)))
    assert len(ids) == 1000
    assert len(portals() - before) == 1
    assert len(hf.sync.find(limit=2000)) == 1000


async def test_calls_of_threads_share_statements_and_each_has_its_own_answer(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    hf.sync.open()
    _, app = opened(hf)
    statements: list[str] = []
    app._database.observe = lambda statement, _seconds, _code: statements.append(statement)
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("lock table jobs in share row exclusive mode")
    began: list[int] = []

    def enqueue(number: int) -> object:
        options: Options = {"parent": uuid4()} if number == 7 else {"tenant": f"t{number % 5}"}
        began.append(number)
        try:
            return hf.sync.enqueue("unknown", {"n": number}, **options).id
        except InvalidInput as fault:
            return fault

    with ThreadPoolExecutor(40) as threads:
        answers = [threads.submit(enqueue, number) for number in range(40)]
        await until(lambda: len(began) == 40 and len(app._groups._under_way) >= 3, what="all threads wait")
        await transaction.rollback()
        found = await asyncio.gather(*map(asyncio.wrap_future, answers))
    refused = [number for number, answer in enumerate(found) if isinstance(answer, InvalidInput)]
    stored = {row["id"]: row["n"] for row in await conn.fetch("select id, payload ->> 'n' as n from jobs")}
    assert refused == [7]
    assert {answer: str(n) for n, answer in enumerate(found) if n != 7} == stored
    assert len(statements) <= 20  # one of them is refused: halves are sent again


def test_what_needs_a_loop_runs_in_the_portal(database_url: str) -> None:
    class Waiting(Middleware):
        async def enqueue(self, jobs: list[NewJob], call_next: Record) -> list[JobRef]:
            await asyncio.sleep(0.001)
            return await call_next(jobs)

    app = Holdfast(database_url, middleware=[Waiting()])
    with app.sync as sync:
        assert sync.enqueue("unknown").state == "queued"


def test_an_app_with_an_enqueue_of_its_own_runs_it_in_the_portal(database_url: str) -> None:
    class Waiting(Holdfast):
        async def enqueue(self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Any) -> JobRef:
            await asyncio.sleep(0.001)
            return await super().enqueue(job_type, payload, conn=conn, **options)

    with Waiting(database_url).sync as sync:
        assert sync.enqueue("unknown").state == "queued"


def test_a_large_payload_takes_a_statement_of_its_own(hf: Holdfast) -> None:
    ref = hf.sync.enqueue("unknown", {"text": "x" * 100_000})
    assert len(hf.sync.get(ref).payload["text"]) == 100_000


#: A lock would be waited for no longer than the engine's limit, which a busy machine may exceed.
GATE = """
create table gate (is_open boolean);
create function wait_for_gate() returns trigger language plpgsql as $$
begin
  while not exists (select from holdfast.gate) loop
    perform pg_sleep(0.01);
  end loop;
  return null;
end
$$;
grant select on gate to public;
create trigger wait_for_gate before insert on jobs for each statement execute function wait_for_gate();
"""


async def test_a_waiting_thread_is_told_when_the_app_is_closed(
    hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.groups._SLOW_SECONDS", 60.0)  # so that two are under way, and others wait
    monkeypatch.setattr("holdfast.store.database._CLOSE_SECONDS", 60.0)
    await conn.execute(GATE)
    hf.sync.open()
    groups = opened(hf)[1]._groups
    with ThreadPoolExecutor(4) as threads:

        def call() -> asyncio.Future[JobRef]:
            return asyncio.wrap_future(threads.submit(hf.sync.enqueue, "unknown"))

        sent: list[asyncio.Future[JobRef]] = []
        for count in (1, 2):
            sent.append(call())
            await until(partial(_are_at_the_gate, conn, count), what="it is under way")
        waiting = call()
        await until(lambda: len(groups._line), what="one waits")
        closing = asyncio.wrap_future(threads.submit(hf.sync.close))
        with pytest.raises(NotOpen):
            await waiting
        assert not closing.done()
        assert not any(call.done() for call in sent)  # what was sent is still waited for
        await conn.execute("insert into gate values (true)")
        assert [(await call).state for call in sent] == ["queued", "queued"]
        await closing


async def _are_at_the_gate(conn: asyncpg.Connection, count: int) -> bool:
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
    return bool(await conn.fetchval(waiting) == count)


async def test_it_works_while_an_event_loop_runs_as_in_a_notebook(hf: Holdfast) -> None:
    ref = hf.sync.enqueue("add", {"a": 1, "b": 1})
    async with hf:
        assert (await hf.get(ref)).payload == {"a": 1, "b": 1}
        assert hf.sync.get(ref).state == "queued"


def test_close_gives_the_connections_back_and_the_next_call_opens_anew(hf: Holdfast) -> None:
    before = portals()
    with hf.sync as sync:
        sync.enqueue("add", {"a": 1, "b": 1})
    assert portals() <= before
    assert len(hf.sync.find()) == 1


async def test_an_open_app_is_not_used_from_another_event_loop(hf: Holdfast) -> None:
    async with hf:
        with pytest.raises(HoldfastError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(hf.find()))


def test_an_app_that_is_not_open_says_so(hf: Holdfast) -> None:
    with pytest.raises(NotOpen, match="not open"):
        asyncio.run(hf.find())


def test_a_first_call_that_failed_is_tried_again(database_url: str) -> None:
    app, before = Holdfast("postgresql://nobody@127.0.0.1:1/none"), portals()
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            app.sync.find()
    assert portals() <= before


async def test_a_blocking_call_from_the_portals_own_loop_is_refused(hf: Holdfast) -> None:
    hf.sync.open()
    portal, _ = opened(hf)

    async def within() -> None:
        hf.sync.find()

    with pytest.raises(HoldfastError, match="use `await` instead"):
        await asyncio.to_thread(portal.run, within())


async def test_a_dropped_app_takes_its_thread_and_connections_along(
    database_url: str, conn: asyncpg.Connection
) -> None:
    before = portals()
    app = Holdfast(database_url)
    app.sync.find()
    assert len(portals() - before) == 1
    del app
    gc.collect()
    await until(lambda: portals() <= before, what="the portal ends")
    await until(lambda: _no_connection(conn), what="the connections are closed")


async def _no_connection(conn: asyncpg.Connection) -> bool:
    left = "select count(*) from pg_stat_activity where datname = current_database() and application_name ~ 'holdfast'"
    return bool(await conn.fetchval(left) == 0)


def test_another_database_is_noticed(hf: Holdfast, empty_database_url: str) -> None:
    """A framework that takes a test database of its own after the first call must not stay on the real one."""
    hf.sync.find()
    hf.config = dataclasses.replace(hf.config, database_url=empty_database_url)
    with pytest.raises(SchemaError, match="does not exist yet"):
        hf.sync.find()


async def test_opening_at_once_opens_once(hf: Holdfast) -> None:
    await asyncio.gather(hf.open(), hf.open())
    await hf.close()
    await hf.find()
    await hf.close()
    with pytest.raises(HoldfastError, match="not open"):
        await hf.close()


def test_a_worker_in_a_script_is_drained_by_sigterm(database_url: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import os, signal, time
            from holdfast import Context, Holdfast
            hf = Holdfast({database_url!r})

            @hf.job("work")
            def work(ctx: Context) -> str:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.5)
                return "done"

            job = work.sync.enqueue()
            try:
                hf.sync.run_worker()
            finally:
                print(hf.sync.get(job).result)
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "done\n"), done.stderr


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)"], ids=["end", "exit"])
async def test_a_script_ends_quietly_and_leaves_no_connection(
    database_url: str, conn: asyncpg.Connection, tmp_path: Path, ending: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            from holdfast import Holdfast
            hf = Holdfast({database_url!r})
            print(hf.sync.enqueue("add", {{"a": 1, "b": 2}}).state.value)
            {ending}
        """)
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-X", "dev", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    # That something took long is what asyncio says of the machine in this mode.
    said = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (done.returncode, done.stdout, said) == (0, "queued\n", [])
    assert await _no_connection(conn)
