"""User, keeper or postmaster killed at any moment: the next user has the one server, with its data."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.store.embedded import status
from holdfast.store.embedded_locks import is_locked
from tests.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.store.embedded.kit import User, eventually, keeper_pid, parent_of, query, server_for, server_processes

#: A round each in the short form: victim, seconds after its life began, whether the server is stopped afterwards.
ROUNDS = [
    ("keeper", 0.0, False),
    ("keeper", 0.05, True),
    ("keeper", 0.2, False),
    ("postmaster", 0.1, True),
    ("postmaster", 0.3, False),
    ("user", 0.0, True),
    ("user", 0.1, False),
]


@pytest.mark.timeout(120 + 2 * CHAOS_SECONDS)
def test_killed_at_any_moment(home: Path, join: Callable[[Path], User], chance: random.Random, deeds: Deeds) -> None:
    with server_for(home) as server:
        query(server.url, "create table kept (number bigint)")
    server.stop()
    done: Counter[str] = Counter()
    rounds = iter(ROUNDS)
    end = time.monotonic() + CHAOS_SECONDS
    while done["rows"] < len(ROUNDS) or time.monotonic() < end:
        victim, seconds, is_stopped = next(rounds, None) or (
            chance.choice(["user", "keeper", "postmaster"]),
            chance.uniform(0, 0.8),
            chance.random() < 0.5,
        )
        done[victim] += kill(victim, seconds, home, join(home))
        with server_for(home) as server:
            assert query(server.url, "insert into kept values (1) returning number") == 1
            done["rows"] += 1
            assert query(server.url, "select count(*) from kept") == done["rows"], (victim, seconds)
            processes = set(server_processes(home))
            assert len({parent_of(pid) for pid in processes} & processes) == 1, (victim, seconds)
        if is_stopped:
            server.stop()
    deeds.say(f"killed {dict(done)}")


def kill(victim: str, seconds: float, home: Path, user: User) -> int:
    """Kill one of them this many seconds after a user began. Returns 1 if there was one to kill."""
    folder = home / "postgres"
    eventually(lambda: user.process.poll() is not None or is_locked(folder / "keeper.lock"))
    time.sleep(seconds)
    match victim:
        case "user":
            pid: int | None = user.process.pid
        case "keeper":
            pid = keeper_pid(home)
        case _:
            pid = status(home).pid
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            return 1
    return 0
