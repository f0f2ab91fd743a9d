"""A worker process with a thread that does not return, or with a blocked event loop, is replaced by itself, anew.

A thread cannot be ended, and a job must not run anywhere else while its thread lives. So the attempt keeps
its lease until `exec` has ended every thread of the process at once, and is settled by the new program that
the process has become. To whoever started it, it is the same process.

Where a handler blocks the event loop, the lease keeper's thread does this, and what is left is all that the worker
held. An environment variable would be too short for that, so it is handed on in a file without a name. That file says
which database it was, too: to import the app may take longer than the leases last, or fail.

Until the new program can hear signals, those that ask it to stop are blocked: the mask outlives `exec`, and so does a
signal that waits behind it. It would end the new program before that has settled anything. So would the signal of a
timer that a handler, or a profiler, has set: timers outlive `exec`, and those who hear them do not. Limits of memory,
files and time outlive it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.children import FIRST_PAUSE, LONGEST_PAUSE, MOST_IMPORTS
from holdfast.cli.shutdown import SIGNALS, asked_early, in_time, note_early
from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.importing import forget_variable
from holdfast.lifecycle.limits import SoftLimits
from holdfast.lifecycle.loops import run
from holdfast.model.outcome import Outcome
from holdfast.store.database import Backoff, Database
from holdfast.store.leases import LeaseStore, Settlement
from holdfast.store.workers import WorkerStore
from holdfast.telemetry.events import AttemptEnded
from holdfast.telemetry.narrator import flush_log, narrate, set_up_logging
from holdfast.worker.worker import Worker

__all__ = ["Origin", "Remains", "become_anew", "import_again", "settle", "take_over"]

_VARIABLE = "HOLDFAST_REMAINS"
_PATIENCE_SECONDS = 60.0
#: How often it looks whether it was told to stop while it waits.
_LOOK_SECONDS = 0.1
#: Descriptors beyond are not looked for.
_DESCRIPTORS = 65_536
_log = logging.getLogger("holdfast")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What the previous process left: attempts to settle, and whether it was told to stop."""

    #: Arguments of `Holdfast`, for the database that the worker used.
    database: dict[str, Any]
    worker: str
    attempts: list[Settlement]
    stopping: bool
    #: Jobs that stood still while nobody knew who blocked (see `holdfast.worker.surrender`).
    suspects: dict[UUID, int]
    #: How often the app could not be imported since.
    imports: int = 0


class Origin:
    """How and where this process was started: handlers may change its environment and its folder."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        # Windows has neither, and is refused later with advice.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if hasattr(signal, "pthread_sigmask") else set()
        self.limits = SoftLimits()
        self._inherited = {number for number in range(3, 256) if _is_inherited(number)}
        #: What the app said about its database.
        self.database: dict[str, str | None] = {}
        try:
            self._folder: Path | None = Path.cwd()
        except OSError:
            self._folder = None  # it is gone

    def remember(self, config: Config) -> None:
        """The app was imported."""
        self.database = {"database_url": config.database_url, "schema": config.schema, "home": str(config.home)}

    def restore_signals(self) -> None:
        """No timers, nor signals of theirs that wait; blocked are those that were, and those that ask to stop."""
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
        timed = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF}
        signal.pthread_sigmask(signal.SIG_BLOCK, timed)
        while hasattr(signal, "sigtimedwait") and signal.sigtimedwait(timed, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, {*self._mask, *SIGNALS})

    def keep_descriptors(self) -> None:
        """Descriptors that handlers have made inheritable end with this program."""
        most = os.sysconf("SC_OPEN_MAX")
        for number in range(3, min(_DESCRIPTORS, most) if most > 0 else _DESCRIPTORS):
            if number not in self._inherited:
                with contextlib.suppress(OSError):
                    os.set_inheritable(number, False)

    def go_back(self) -> None:
        """To the folder, if it is still there."""
        with contextlib.suppress(OSError):
            os.chdir(self._folder or ".")


def become_anew(worker: Worker, origin: Origin, *, stopping: Callable[[], bool]) -> NoReturn:
    """Replace this process by a new run of its own command line. Nothing of it continues, not even threads."""
    attempts = [
        {**left._asdict(), "job_id": str(left.job_id), "outcome": dataclasses.asdict(left.outcome)}
        for left in worker.stuck
    ]
    remains = {
        "database": origin.database, "worker": worker.id, "attempts": attempts,
        "suspects": {str(job_id): times for job_id, times in worker.suspects.items()},
    }  # fmt: skip
    _become(origin, remains, stopping)


def import_again(load: Callable[[], Holdfast], origin: Origin, remains: Remains) -> Holdfast | None:
    """Import the app in the program that replaces another one; None if it is told to stop.

    The app could be imported before. If it cannot be now, a deploy may be under way: this process is replaced again,
    for some minutes, because modules that could be imported stay in its memory.
    """
    try:
        return load()
    except (click.UsageError, HoldfastError) as fault:
        message = fault.message if isinstance(fault, click.UsageError) else str(fault)
        if remains.imports >= MOST_IMPORTS:
            raise click.ClickException(message) from fault
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(remains.imports, 10))
        _log.warning("the worker cannot import its app, which could be imported before: %s", message)
        _log.warning("it tries again in %g s", pause)
    end = time.monotonic() + pause
    while time.monotonic() < end:
        if asked_early():
            return None
        time.sleep(min(_LOOK_SECONDS, pause))
    left = {
        "database": remains.database, "worker": remains.worker, "attempts": [], "imports": remains.imports + 1,
        "suspects": {str(job_id): times for job_id, times in remains.suspects.items()},
    }  # fmt: skip
    return _become(origin, left, asked_early)


def _become(origin: Origin, remains: dict[str, Any], stopping: Callable[[], bool]) -> NoReturn:
    # The main thread may be blocked forever in a write to one of them.
    in_time(_flush, flush_log)
    origin.limits.restore()
    origin.keep_descriptors()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        # Asked last: a signal that this program has heard does not reach the next one.
        told = json.dumps({**remains, "stopping": stopping()}).encode()
        environment = {**origin.environment, _VARIABLE: str(_written(told))}
        origin.go_back()
        origin.restore_signals()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - our own command
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def take_over() -> Remains | None:
    """What the previous process left, if this one replaces another. The first call forgets it."""
    number = os.environ.pop(_VARIABLE, None)
    if number is None:
        return None
    forget_variable(_VARIABLE)
    note_early()
    with os.fdopen(int(number), "rb") as file:
        found = json.load(file)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # processes of handlers, which ended with the program before
    return Remains(
        database=found["database"],
        worker=found["worker"],
        stopping=found["stopping"],
        suspects={UUID(job_id): times for job_id, times in found.get("suspects", {}).items()},
        imports=found.get("imports", 0),
        attempts=[
            Settlement(**{**left, "job_id": UUID(left["job_id"]), "outcome": Outcome(**left["outcome"])})
            for left in found["attempts"]
        ],
    )


def _is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:
        return False


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _written(content: bytes) -> int:
    """The descriptor of a file with this content, which the next program of this process inherits."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("holdfast-remains")
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    with os.fdopen(number, "wb", closefd=False) as writer:
        writer.write(content)
    os.lseek(number, 0, os.SEEK_SET)
    os.set_inheritable(number, True)
    return number


def settle(remains: Remains) -> None:
    """Settle what was left. If the database stays away, the leases lapse."""
    hf = Holdfast(**remains.database)
    set_up_logging(hf.config.log_format, hf.config.log_level)
    if remains.imports:
        return  # settled by the program before
    run(_settle_patiently(hf, remains), hf.config.event_loop)


async def _settle_patiently(hf: Holdfast, remains: Remains) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    pause = Backoff()
    while True:
        try:
            states = await _settle(hf, remains)
            break
        except DatabaseUnavailable:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(pause.seconds())
    for left, state, ending in zip(remains.attempts, *states, strict=True):
        if ending is not None:
            narrate(ending)
        else:
            kind = left.outcome.kind
            level = logging.INFO if kind in ("released", "success") else logging.WARNING
            _log.log(level, "ended with its process: %s attempt %s %s → %s", left.job_id, left.attempt, kind, state)


async def _settle(hf: Holdfast, remains: Remains) -> tuple[list[str | None], list[AttemptEnded | None]]:
    async with hf:
        database = Database(hf.config, role="worker", size=1)
        await database.open()
        try:
            store = LeaseStore(database, remains.worker)
            states = await store.settle_singly(remains.attempts)
            # Also what it claimed in its last moments without learning of it. If that fails, those leases lapse.
            with contextlib.suppress(HoldfastError):
                known = [entry.job_id for entry, state in zip(remains.attempts, states, strict=True) if state is None]
                await store.hand_back_unheard(known, await store.claim_mark())
                await WorkerStore(database).unregister(remains.worker)
            return states, await store.endings(remains.attempts, states)
        finally:
            await database.close()
