"""A worker process with a thread that does not return is replaced by itself, anew.

A thread cannot be ended, and a job must not run anywhere else while its thread lives. So the attempt keeps
its lease until `exec` has ended every thread of the process at once, and is settled by the new program that
the process has become. To whoever started it, it is the same process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import sys
import time
from typing import NoReturn
from uuid import UUID

from holdfast.app import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.model.outcome import Outcome
from holdfast.store.database import Database, Pause
from holdfast.store.leases import LeaseStore, Settlement
from holdfast.worker.worker import Worker

__all__ = ["Remains", "become_anew", "take_over"]

_VARIABLE = "HOLDFAST_REMAINS"
_PATIENCE_SECONDS = 60.0
_log = logging.getLogger("holdfast")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What the process before left: attempts to settle, and whether it was told to stop."""

    worker: str
    attempts: list[Settlement]
    stopping: bool


def become_anew(worker: Worker, *, stopping: bool) -> NoReturn:
    """Replace this process by a new run of its own command line. Nothing of it goes on, not even threads."""
    remains = {
        "worker": worker.id,
        "stopping": stopping,
        "attempts": [
            [str(job_id), attempt, dataclasses.asdict(outcome), duration_ms]
            for job_id, attempt, outcome, duration_ms, _ in worker.stuck
        ],
    }
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, _VARIABLE: json.dumps(remains)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - our own command line


def take_over() -> Remains | None:
    """What the process before left, if this one replaces another. Asked once: it is then forgotten."""
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    found = json.loads(text)
    return Remains(
        worker=found["worker"],
        stopping=found["stopping"],
        attempts=[
            (UUID(job_id), attempt, Outcome(**outcome), duration_ms, None)
            for job_id, attempt, outcome, duration_ms in found["attempts"]
        ],
    )


async def settle(hf: Holdfast, remains: Remains) -> None:
    """Settle what was left. Where the database stays away, the leases lapse in the end."""
    end = time.monotonic() + _PATIENCE_SECONDS
    pause = Pause()
    while True:
        try:
            states = await _settle(hf, remains)
            break
        except DatabaseUnavailable:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(pause.seconds())
    for (job_id, attempt, outcome, *_), state in zip(remains.attempts, states, strict=True):
        _log.warning("stuck thread ended with its process: %s attempt %s %s → %s", job_id, attempt, outcome.kind, state)


async def _settle(hf: Holdfast, remains: Remains) -> list[str]:
    async with hf:
        database = Database(hf.config, role="worker", size=1)
        await database.open()
        try:
            return await LeaseStore(database, remains.worker).settle(remains.attempts)
        finally:
            await database.close()
