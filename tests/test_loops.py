"""Processes of ours run on uvloop; a library in somebody's process takes the loop that is there."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest
import uvloop

from holdfast.errors import ConfigError
from holdfast.lifecycle import loops


async def kind() -> type:
    return type(asyncio.get_running_loop())


def test_a_process_of_ours_runs_on_uvloop() -> None:
    assert loops.run(kind()) is uvloop.Loop


def test_asyncio_can_be_chosen() -> None:
    assert issubclass(loops.run(kind(), "asyncio"), asyncio.BaseEventLoop)


def test_what_is_asked_for_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    never = kind()
    with pytest.raises(ConfigError, match="not installed"):
        loops.run(never, "uvloop")
    never.close()


def test_without_uvloop_asyncio_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert issubclass(loops.run(kind()), asyncio.BaseEventLoop)


def test_the_lease_keeper_has_a_loop_like_the_workers() -> None:
    found: list[type] = []

    async def beside() -> None:
        mine = asyncio.get_running_loop()
        thread = threading.Thread(target=lambda: found.append(loops.run_alike(kind(), mine)))
        thread.start()
        await asyncio.to_thread(thread.join)

    loops.run(beside())
    asyncio.run(beside())
    assert found[0] is uvloop.Loop
    assert issubclass(found[1], asyncio.BaseEventLoop)
