"""One system, driven in its own environment: every verb of `bench.drive` is a process, and so is every worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import IO, Any

from bench import tally
from bench.field import Contestant
from bench.options import BATCH, CONCURRENCY
from bench.servers import ROOT, tied

__all__ = ["Runner", "RunnerError", "Workers"]

_NO_SUCH_CALL = "NotImplementedError"


class RunnerError(Exception):
    """The system did not do what it was asked; the message is for the table."""


class Runner:
    """The verbs of one system."""

    def __init__(self, contestant: Contestant, python: Path) -> None:
        self.contestant, self._python = contestant, python
        self._lacks: set[str] = set()

    async def prepare(self, url: str) -> None:
        """Make its tables."""
        await self._do(url, "prepare")

    async def one(self, url: str, count: int, size: int) -> float:
        """Enqueue one by one; how many a second."""
        answer = await self._do(url, "one", count, size)
        return count / float(answer["seconds"])

    async def bulk(self, url: str, count: int, size: int) -> float:
        """Enqueue in batches; how many a second. NotImplementedError where the system has no such call."""
        return await self._offered(url, "bulk", count, size, BATCH)

    async def tasks(self, tasks: int, url: str, count: int, size: int) -> float:
        """Enqueue one by one from so many tasks; how many a second."""
        answer = await self._do(url, "tasks", count, size, tasks)
        return count / float(answer["seconds"])

    async def threads(self, threads: int, url: str, count: int, size: int) -> float:
        """Enqueue one by one from so many threads; how many a second. NotImplementedError without a blocking call."""
        return await self._offered(url, "threads", count, size, threads)

    async def _offered(self, url: str, verb: str, count: int, *numbers: int) -> float:
        """How many a second by a verb that not every system has."""
        if verb in self._lacks:
            raise NotImplementedError
        try:
            answer = await self._do(url, verb, count, *numbers)
        except RunnerError as error:
            if _NO_SUCH_CALL not in str(error):
                raise
            self._lacks.add(verb)
            raise NotImplementedError from None
        return count / float(answer["seconds"])

    async def enqueue(self, url: str, count: int, size: int) -> None:
        """Enqueue by whatever is fastest."""
        try:
            await self.bulk(url, count, size)
        except NotImplementedError:
            await self.one(url, count, size)

    async def paced(self, url: str, count: int, size: int, rate: int) -> float:
        """Enqueue so many a second; by how many seconds the enqueuer itself was late at worst."""
        answer = await self._do(url, "paced", count, size, rate)
        return float(answer["late"])

    async def unfinished(self, url: str) -> int:
        """What it has not recorded as done."""
        return int((await self._do(url, "unfinished"))["unfinished"])

    async def await_finished(self, url: str, remaining: int, seconds: float) -> int:
        """Wait until no more than `remaining` are unfinished; by how many it still is too much."""
        deadline = time.monotonic() + seconds
        while True:
            left = await self.unfinished(url) - remaining
            if left <= 0 or time.monotonic() > deadline:
                return max(0, left)
            await asyncio.sleep(0.2)

    @contextlib.asynccontextmanager
    async def workers(
        self, url: str, processes: int = 1, *, waits: bool = False, settings: Mapping[str, str] | None = None
    ) -> AsyncIterator[Workers]:
        """Running workers; afterwards they are stopped, and ended where they do not stop."""
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            folder = Path(name)
            tallies = folder / "tallies"
            tallies.mkdir()
            environment = {"BENCH_TALLY": str(tallies), "BENCH_WAITS": str(int(waits)), **(settings or {})}
            with (folder / "log").open("w+") as log:
                started = [
                    await self._spawn(url, ["work", str(CONCURRENCY)], environment, log) for _ in range(processes)
                ]
                workers = Workers(started, tallies, folder / "log")
                try:
                    yield workers
                finally:
                    await workers.stop()

    async def _do(self, url: str, verb: str, *numbers: int) -> dict[str, Any]:
        with tempfile.TemporaryFile("w+") as log:
            process = await self._spawn(url, [verb, *map(str, numbers)], {}, log, asyncio.subprocess.PIPE)
            try:
                printed, _ = await asyncio.wait_for(process.communicate(), 1800)
            except TimeoutError:
                raise RunnerError(f"{verb} did not end within half an hour") from None
            finally:
                _signal(process, signal.SIGKILL)
            log.seek(0)
            if process.returncode:
                raise RunnerError(f"{verb} failed: {_last_line(log.read())}")
            lines = printed.decode().strip().splitlines()
            return dict(json.loads(lines[-1])) if lines else {}

    async def _spawn(
        self, url: str, words: list[str], environment: dict[str, str], log: IO[str], stdout: int | None = None
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(*tied(), str(self._python), "-m", "bench.drive", self.contestant.name, *words),
            cwd=ROOT,
            env=_clean() | {"BENCH_URL": url, "PYTHONPATH": str(ROOT)} | environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log if stdout is None else stdout,
            stderr=log,
            start_new_session=True,
        )


class Workers:
    """Worker processes of one system, and what their handlers noted."""

    def __init__(self, processes: list[asyncio.subprocess.Process], tallies: Path, log: Path) -> None:
        self._processes, self._tallies, self._log = processes, tallies, log

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [process.pid for process in self._processes]

    def read(self) -> tally.Reading:
        """What was noted so far."""
        return tally.read(self._tallies)

    def waits(self) -> Counter[float]:
        """How long jobs had waited, in seconds."""
        return Counter(tally.read(self._tallies, waits=True).waits)

    async def reach(self, count: int, seconds: float) -> tally.Reading:
        """Wait until so many handlers began; RunnerError where that does not happen in time."""
        deadline = time.monotonic() + seconds
        while (reading := self.read()).count < count:
            if any(process.returncode is not None for process in self._processes):
                raise RunnerError(f"a worker ended by itself: {_last_line(self._log.read_text())}")
            if time.monotonic() > deadline:
                raise RunnerError(f"stalled: {reading.count} of {count} after {seconds:.0f} s")
            await asyncio.sleep(0.02)
        return reading

    async def stop(self) -> None:
        """SIGTERM, and after ten seconds SIGKILL, to all that they started too."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(process.wait() for process in self._processes)), 10)
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL."""
        for process in self._processes:
            _signal(process, signal.SIGKILL)
            await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # The session has the id of its leader, and may outlive it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "HOLDFAST_", "BENCH_"))}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it gave no reason"
