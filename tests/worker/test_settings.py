"""A running worker follows the settings of the installation, which it learns with its heartbeat."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.client.settings import EngineSettings
from holdfast.config import Config
from holdfast.telemetry.events import WorkerChanged
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.worker import Worker
from tests.harness.inprocess import reached, working


async def _settings(hf: Holdfast) -> EngineSettings:
    return (await hf.operations()).settings


class Heard:
    """Which settings the worker has told that it follows."""

    def __init__(self, hf: Holdfast) -> None:
        self._found: asyncio.Queue[str] = asyncio.Queue()
        hf.events.subscribe(self._hear, WorkerChanged)

    def _hear(self, event: WorkerChanged) -> None:
        if event.change == "follows settings":
            self._found.put_nowait(event.detail)

    async def next(self) -> str:
        """The next change; a heartbeat comes every two seconds."""
        async with asyncio.timeout(30):
            return await self._found.get()


async def test_an_attempt_keeps_the_timeout_that_it_began_with_and_the_next_has_the_new_one(hf: Holdfast) -> None:
    """A shorter timeout of the lane neither ends a running handler, nor does it wait for a restart."""
    go_on, begun = asyncio.Event(), asyncio.Semaphore(0)

    @hf.job("early")
    async def early(ctx: Context) -> None:
        begun.release()
        await go_on.wait()

    @hf.job("late")
    async def late(ctx: Context) -> None:
        await asyncio.Event().wait()

    @hf.job("own", timeout=600)
    async def own(ctx: Context) -> None:
        begun.release()
        await go_on.wait()

    heard = Heard(hf)
    kept = [await early.enqueue(), await own.enqueue()]
    async with working(hf):
        await begun.acquire()
        await begun.acquire()
        await (await _settings(hf)).set("GENERAL_TIMEOUT_SECONDS", 0.2, by="ada")
        assert await heard.next() == "GENERAL_TIMEOUT_SECONDS=0.2"
        cut = await late.options(max_attempts=1).enqueue()
        assert "longer than 0.2 s" in ((await reached(hf, cut.id, "dead")).last_error or "")
        another = await own.enqueue()
        await begun.acquire()
        go_on.set()
        for job in (*kept, another):
            await reached(hf, job.id, "success")


async def test_grace_and_policy_of_a_drain_are_those_of_the_database(hf: Holdfast) -> None:
    """The environment says 300 s and to hand it back."""
    begun = asyncio.Event()

    @hf.job("wait")
    async def wait(ctx: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    heard = Heard(hf)
    job = await wait.options(target="t").enqueue()
    async with asyncio.timeout(60), working(hf):
        await begun.wait()
        settings = await _settings(hf)
        await settings.set("DRAIN_POLICY", "pause", by="ada")
        await settings.set("SHUTDOWN_GRACE_PERIOD_SECONDS", 0, by="ada")
        told = await heard.next()
        while "SHUTDOWN_GRACE_PERIOD_SECONDS=0" not in told:
            told = await heard.next()
    assert (await hf.get(job.id)).state == "paused"


async def test_settings_of_the_database_hold_for_the_first_attempt_of_a_new_worker(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any heartbeat was answered, too."""
    monkeypatch.setattr(Worker, "_learn", lambda *_: None)
    await (await _settings(hf)).set("FAST_TIMEOUT_SECONDS", 0.1, by="ada")

    @hf.job("quick", lane="fast")
    async def quick(ctx: Context) -> None:
        await asyncio.Event().wait()

    job = await quick.options(max_attempts=1).enqueue()
    async with working(hf):
        assert "longer than 0.1 s" in ((await reached(hf, job.id, "dead")).last_error or "")


async def test_the_limit_of_results_is_followed(hf: Holdfast) -> None:
    @hf.job("give")
    async def give(ctx: Context) -> str:
        return "x" * 100

    heard = Heard(hf)
    async with working(hf):
        await reached(hf, (await give.enqueue()).id, "success")
        await (await _settings(hf)).set("RESULT_MAX_BYTES", 50, by="ada")
        assert await heard.next() == "RESULT_MAX_BYTES=50"
        dead = await reached(hf, (await give.options(max_attempts=1).enqueue()).id, "dead")
        assert "50" in (dead.last_error or "")


@pytest.mark.parametrize(
    ("row", "environment", "in_force"),
    [({}, {}, 120.0), ({}, {"HOLDFAST_FAST_TIMEOUT_SECONDS": "60"}, 60.0),
     ({"FAST_TIMEOUT_SECONDS": "30"}, {"HOLDFAST_FAST_TIMEOUT_SECONDS": "60"}, 30.0)],
)  # fmt: skip
def test_the_database_wins_over_the_environment_and_that_over_the_default(
    row: dict[str, str], environment: dict[str, str], in_force: float
) -> None:
    settings = WorkerSettings(Config.load(environment))
    settings.learn(row)
    assert settings.lane_timeout("fast") == in_force
    settings.learn({})
    assert settings.lane_timeout("fast") == float(environment.get("HOLDFAST_FAST_TIMEOUT_SECONDS", 120))


def test_values_that_this_release_cannot_read_change_nothing() -> None:
    settings = WorkerSettings(Config.load({}))
    future: dict[str, Any] = {"DRAIN_POLICY": "later", "A_SETTING_OF_TOMORROW": "1", "RESULT_MAX_BYTES": " 5 "}
    assert settings.learn(future) == {"RESULT_MAX_BYTES": 5}
    assert settings.drain_policy == "auto"


async def test_the_database_answers_only_what_it_has_values_for(conn: asyncpg.Connection) -> None:
    """What an environment says is each process's own; a pooled connection would not know it."""
    await conn.execute("set holdfast.fast_timeout_seconds = '60'")
    assert await conn.fetchval("select worker_settings()") == "{}"
    await conn.execute("update settings set value = '90' where name = 'FAST_TIMEOUT_SECONDS'")
    assert await conn.fetchval("select worker_settings()") == '{"FAST_TIMEOUT_SECONDS": "90"}'
