"""Fleets of worker processes on the test's database, and an open app beside them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.testing.harness import Fleet

#: Read when collected: the tests themselves see no `HOLDFAST_*`. `make chaos` and `make soak` set it.
CHAOS_SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "0"))

NewFleet = Callable[..., Fleet]


@pytest.fixture
def new_fleet(tmp_path: Path) -> Iterator[NewFleet]:
    """Make fleets that are killed when the test ends."""
    with ExitStack() as stack:

        def new(url: str, module: str = "tests.faults.app", **settings: object) -> Fleet:
            quick = {
                "lease_sec_default": 2,
                "heartbeat_seconds": 0.3,
                "poll_interval": 0.5,
                "lanes": "fast=2,general=6",
            }
            return stack.enter_context(Fleet(module, url, tmp_path / "history", **{**quick, **settings}))

        yield new


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
    """A PostgreSQL of the test's own, to be stopped and killed."""
    home = Path(tempfile.mkdtemp(prefix="hf-faults-"))
    embedded = EmbeddedPostgres(home)
    embedded.start()
    yield embedded
    embedded.stop()
    shutil.rmtree(home, ignore_errors=True)
