"""The command line on the test's database: inside the test's process where that will do, else as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import Holdfast
from holdfast.cli.root import holdfast
from tests.harness import warm
from tests.harness.waiting import until

ROOT = Path(__file__).parents[2]
TASKS = "tests.cli.tasks:hf"
Cli = Callable[..., Awaitable[Result]]


def invoke(*arguments: object, environment: dict[str, str] | None = None, stdin: str | None = None) -> Result:
    """Run a command in this process."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(holdfast, words, env=environment, input=stdin, prog_name="holdfast")


@pytest.fixture
def cli(database_url: str) -> Cli:
    """Run a command in this process, on the test's database; the exit code is checked unless `code` is None."""

    async def run(
        *arguments: object, code: int | None = 0, url: str = database_url, stdin: str | None = None
    ) -> Result:
        environment = {"HOLDFAST_DATABASE_URL": url}
        result = await asyncio.to_thread(invoke, *arguments, environment=environment, stdin=stdin)
        assert code in (None, result.exit_code), result.output
        return result

    return run


class Running:
    """A command as a process; what it writes goes to a file."""

    def __init__(self, arguments: tuple[object, ...], environment: dict[str, str], folder: Path, output: Path) -> None:
        self.output = output
        with output.open("wb") as file:
            self.process = warm.Process(
                ["-m", "holdfast", *map(str, arguments)], cwd=folder, env={**os.environ, **environment}, stdout=file
            )

    @property
    def text(self) -> str:
        """What it wrote so far."""
        return self.output.read_text(errors="replace")

    def lines(self, change: str) -> list[dict[str, Any]]:
        """Its log lines of workers that `started`, `stopped` and so on."""
        return [line for line in self.logged("WorkerChanged") if line.get("change") == change]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one kind of event."""
        lines = [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    async def wrote(self, text: str, seconds: float = 30) -> None:
        """Wait until it wrote something."""
        await until(lambda: text in self.text or self.process.poll() is not None, seconds=seconds, what=text)
        assert text in self.text, self.text

    async def ended(self, seconds: float = 30) -> int:
        """Wait for its end; the exit code."""
        await until(lambda: self.process.poll() is not None, seconds=seconds, what=f"it ends\n{self.text}")
        return self.process.wait()

    def children(self) -> list[int]:
        """The processes that it started and that still run."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in listed.split()]


Start = Callable[..., Running]


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start commands on the test's database; those that still run at the end are killed."""
    started: list[Running] = []

    def begin(*arguments: object, folder: Path = ROOT, **environment: str) -> Running:
        output = tmp_path / f"output-{len(started)}"
        defaults = {"HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_HEARTBEAT_SECONDS": "0.2"}
        started.append(Running(arguments, defaults | environment, folder, output))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGKILL)
        running.process.wait()


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """A client of the test's database."""
    async with Holdfast(database_url) as app:
        yield app


def alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while it is read
        return False
