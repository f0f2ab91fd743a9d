"""Worker processes to kill, freeze and drain, and the judgement on what they left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import asyncpg

from holdfast.app import Holdfast
from holdfast.model.job import Attempt, Job
from holdfast.store.database import Database
from holdfast.store.jobs import JobStore
from holdfast.store.rows import attempt_of
from tests.harness.checker import Offence, check
from tests.harness.history import History
from tests.harness.waiting import until

__all__ = ["Fleet", "Start", "Started", "WorkerProcess", "interpreter", "judge"]

_PAGE = 1000
_ATTEMPTS = """
select job_id, attempt, started_at, finished_at, queue_ms, duration_ms, outcome, worker, error_type, error_message,
  traceback, log_excerpt, false as more
from job_attempts
order by job_id desc, attempt
"""


class Started(Protocol):
    """A process that was started, as `subprocess.Popen` shows it."""

    pid: int
    returncode: int | Any

    def poll(self) -> int | None:
        """How it ended, if it has."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""
        ...

    def terminate(self) -> None:
        """SIGTERM."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...


#: Starts an interpreter with arguments, environment and a file for all that it writes.
Start = Callable[[list[str], Mapping[str, str], IO[bytes]], Started]


def interpreter(arguments: list[str], environment: Mapping[str, str], output: IO[bytes]) -> Started:
    """Start python."""
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


class WorkerProcess:
    """One process that runs a worker. Its standard error is its log."""

    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], history: History, output: Path, start: Start
    ) -> None:
        self._history = history
        self.output = output
        with output.open("wb") as file:
            self._process = start(arguments, environment, file)
        self.pid = self._process.pid
        self._noted = False

    @property
    def alive(self) -> bool:
        """Whether it runs; a death is noted in the history once."""
        if self._process.poll() is None:
            return True
        if not self._noted and self._process.returncode < 0:
            self._history.note("killed", process=self.pid)
        self._noted = True
        return False

    @property
    def started(self) -> bool:
        """Whether its worker has begun to work."""
        return "worker started" in self.output.read_text(errors="replace")

    @property
    def returncode(self) -> int | None:
        """How it ended, if it has."""
        return self._process.poll()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.alive:
            self._process.kill()
            self._process.wait()
            self._history.note("killed", process=self.pid)
            self._noted = True

    def freeze(self) -> None:
        """Stop it where it stands."""
        self._history.note("frozen", process=self.pid)
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def drain(self) -> None:
        """SIGTERM."""
        if self.alive:
            self._process.terminate()

    async def ended(self, seconds: float = 60.0) -> int:
        """Wait for its end; how it ended."""
        await until(lambda: not self.alive, seconds=seconds, what=f"process {self.pid} ends")
        assert self._process.returncode is not None
        return self._process.returncode

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Its log lines so far, or those of one kind of event."""
        found = []
        for line in self.output.read_text(errors="replace").splitlines():
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if isinstance(fields, dict) and (event is None or fields.get("event") == event):
                found.append(fields)
        return found


class Fleet:
    """Worker processes of one app module, on one database, with one history."""

    def __init__(self, module: str, url: str, folder: Path, *, start: Start = interpreter, **settings: object) -> None:
        self._module, self._start = module, start
        self.history = History(folder)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "HOLDFAST_DATABASE_URL": url,
            "HISTORY_FOLDER": str(folder),
            **_environment(settings),
        }
        self.processes: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()

    @property
    def living(self) -> list[WorkerProcess]:
        """Those that run."""
        return [process for process in self.processes if process.alive]

    def spawn(self, **settings: object) -> WorkerProcess:
        """Start one more."""
        environment = {**self._environment, **_environment(settings)}
        # Other fleets may have the same history.
        output = self.history.folder / f"worker-{len(list(self.history.folder.glob('worker-*.log')))}.log"
        process = WorkerProcess(["-m", self._module], environment, self.history, output, self._start)
        self.processes.append(process)
        return process

    async def ready(self, seconds: float = 60.0) -> None:
        """Wait until all that live have begun to work."""
        await until(lambda: all(p.started for p in self.living), seconds=seconds, what="workers start")

    async def drained(self, seconds: float = 60.0) -> None:
        """Drain all that live, and wait for their ends."""
        for process in self.living:
            process.drain()
        for process in self.processes:
            await process.ended(seconds)


async def judge(app: Holdfast, history: History) -> tuple[list[Job], list[Attempt]]:
    """All jobs and attempts; AssertionError where the checker, or `verify`, finds an offence."""
    jobs = await _all_jobs(app)
    asked = {job.id for job in jobs}
    attempts = [attempt for attempt in await _all_attempts(app) if attempt.job_id in asked]
    offences = check(history.facts(), jobs, attempts)
    database = Database(app.config, role="operator", size=1)
    await database.open()
    try:
        for rule, job_id, detail in await JobStore(database).verify():
            offences.append(Offence(rule=rule, job_id=job_id, detail=detail or ""))
    finally:
        await database.close()
    repairs = (await app.client.backlog())["repairs"]
    if repairs:
        offences.append(Offence(rule="nothing needs repair", job_id=None, detail=f"{repairs} repairs"))
    if offences:
        shown = "\n".join(f"  {o.rule}: {o.job_id} {o.detail}" for o in offences[:20])
        raise AssertionError(f"{len(offences)} offences over {len(jobs)} jobs:\n{shown}")
    return jobs, attempts


async def _all_jobs(app: Holdfast) -> list[Job]:
    """With their results: what a job returned is compared with what its handler says."""
    database = Database(app.config, role="operator", size=1)
    await database.open()
    try:
        store = JobStore(database)
        jobs: list[Job] = []
        page = await store.list(limit=_PAGE)
        while page:
            whole = {job.id: job for job in await store.get([job.id for job in page])}
            jobs += [whole[job.id] for job in page if job.id in whole]
            page = await store.list(limit=_PAGE, before=page[-1].id)
        return jobs
    finally:
        await database.close()


async def _all_attempts(app: Holdfast) -> list[Attempt]:
    """In one query: a page for each of a thousand jobs takes longer than all else that is judged."""
    conn = await asyncpg.connect(app.config.database_url, server_settings={"search_path": app.config.schema})
    try:
        return [attempt_of(dict(row)) for row in await conn.fetch(_ATTEMPTS)]
    finally:
        await conn.close()


def _environment(settings: Mapping[str, object]) -> dict[str, str]:
    return {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
