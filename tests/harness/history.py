"""What clients, handlers and the harness saw: one file per process, one JSON line per fact.

1. A line is one `write` to a file opened for appending, so that a kill -9 leaves whole lines.
2. Times are of the monotonic clock, which all processes of one host share; the wall clock is for people.
3. An enqueue is a fact once it was acknowledged; a run ends as a fact before its worker settles it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from uuid import UUID

__all__ = ["Fact", "History", "Run", "Runner"]

T = TypeVar("T")
Kind = Literal["enqueued", "started", "ended", "seen", "killed", "frozen", "resumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a process saw. `process` is the one it is about, `log` the file it stands in."""

    kind: Kind
    at: float
    process: int
    log: str
    job_id: UUID | None = None
    attempt: int | None = None
    how: str | None = None
    key: str | None = None
    target: str | None = None
    value: Any = None


class Runner(Protocol):
    """What a history needs of a handler's context."""

    @property
    def job_id(self) -> UUID:
        """The job."""

    @property
    def attempt(self) -> int:
        """The number of the attempt."""


class Run:
    """A run that is under way, as its handler sees it."""

    value: Any = None

    def returns(self, value: T) -> T:
        """Note what the handler is about to return."""
        self.value = value
        return value


class History:
    """A folder of logs; this process appends to its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{secrets.token_hex(3)}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._known: list[Fact] = []
        self._counts: Counter[Kind] = Counter()
        self._read: dict[Path, int] = {}

    def note(self, kind: Kind, *, process: int | None = None, **fields: Any) -> None:
        """Append a fact."""
        now = {"at": time.monotonic(), "wall": time.time()}
        line = json.dumps({"kind": kind, "process": process or os.getpid(), **now, **fields}, default=str)
        os.write(self._file, f"{line}\n".encode())

    def enqueued(self, job_id: UUID, *, key: str | None = None, target: str | None = None) -> None:
        """The database acknowledged a job. Name the target only where the job stands in line from now on."""
        self.note("enqueued", job_id=job_id, key=key, target=target)

    def seen(self, job_id: UUID, state: str) -> None:
        """A client was told this state."""
        self.note("seen", job_id=job_id, how=state)

    @contextmanager
    def run(self, runner: Runner) -> Iterator[Run]:
        """Wrap a handler's work: its start, and how it ended."""
        about: dict[str, Any] = {"job_id": runner.job_id, "attempt": runner.attempt}
        run = Run()
        self.note("started", **about)
        try:
            yield run
        except asyncio.CancelledError:
            self.note("ended", how="canceled", **about)
            raise
        except BaseException as error:
            self.note("ended", how=f"raised {type(error).__name__}", **about)
            raise
        self.note("ended", how="success", value=run.value, **about)

    def facts(self) -> list[Fact]:
        """All facts of all logs in the folder, in the order of time. Only what is new is read."""
        self._read_on()
        return list(self._known)

    def count(self, kind: Kind) -> int:
        """How many facts of a kind there are. A look at all of them takes long once there are very many."""
        self._read_on()
        return self._counts[kind]

    def _read_on(self) -> None:
        found: list[Fact] = []
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                # The last one may still be under way.
                lines = [line for line in file.readlines() if line.endswith(b"\n")]
            self._read[path] = self._read.get(path, 0) + sum(map(len, lines))
            found += [_fact(line, path.name) for line in lines]
        if found:
            self._counts.update(fact.kind for fact in found)
            self._known += found
            self._known.sort(key=lambda fact: fact.at)


def _fact(line: bytes, log: str) -> Fact:
    fields = json.loads(line)
    del fields["wall"]
    if fields.get("job_id") is not None:
        fields["job_id"] = UUID(fields["job_id"])
    return Fact(log=log, **fields)
