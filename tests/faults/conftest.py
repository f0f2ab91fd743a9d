"""Fleets of worker processes on the test's database, and an open app beside them."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from holdfast import Holdfast
from holdfast.store.embedded import EmbeddedPostgres
from tests.conftest import CHAOS_SECONDS
from tests.harness import warm
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet
from tests.harness.homes import copy_home, new_folder
from tests.harness.waiting import until

__all__ = ["CHAOS_SECONDS", "NewFleet", "crash", "started_warm"]

NewFleet = Callable[..., Fleet]


def started_warm(arguments: list[str], environment: Mapping[str, str], output: IO[bytes]) -> warm.Process:
    """Start a process that need not import everything again."""
    return warm.Process(arguments, env=environment, stdout=output)


@pytest.fixture
def new_fleet(tmp_path: Path, deeds: Deeds) -> Iterator[NewFleet]:
    """Make fleets that are killed when the test ends."""
    with ExitStack() as stack:

        def new(url: str, module: str = "tests.faults.app", **settings: object) -> Fleet:
            quick = {
                "lease_sec_default": 2,
                "heartbeat_seconds": 0.3,
                "poll_interval": 0.5,
                "lanes": "fast=2,general=6",
            }
            fleet = Fleet(module, url, tmp_path / "history", start=started_warm, **{**quick, **settings})
            return stack.enter_context(deeds.watch(fleet))

        yield new
        deeds.count()


@pytest.fixture
def warm_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the workers' handlers need not import everything anew either."""
    monkeypatch.setenv(warm.WARM_CHILDREN, "1")


@pytest.fixture
def fleet(new_fleet: NewFleet, database_url: str) -> Fleet:
    """Workers with short leases on the test's own database."""
    return new_fleet(database_url)


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """A client of the same database, which knows no job types."""
    async with Holdfast(database_url) as app:
        yield app


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL of the test's own, with the engine in it, to be stopped and killed."""
    home = new_folder("hf-faults-")
    embedded = EmbeddedPostgres(copy_home(home))
    embedded.start()
    yield embedded
    embedded.stop()
    shutil.rmtree(home, ignore_errors=True)


async def crash(server: EmbeddedPostgres) -> None:
    """kill -9 of the postmaster; its keeper starts it again."""
    crashed = server.postmaster_pid()
    assert crashed is not None
    os.kill(crashed, signal.SIGKILL)
    await until(lambda: server.postmaster_pid() not in (None, crashed), what="PostgreSQL starts anew")
