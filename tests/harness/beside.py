"""A process beside a test that measures something the test's own process would falsify: it is busy with the test."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Beside", "answer"]

_ROOT = Path(__file__).parents[2]


class Beside:
    """Runs a script that answers each question with a number (see `answer`)."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pid = self._process.pid
        self.ask()

    def ask(self) -> float:
        """What was measured."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"?")
        return float(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=10)


def answer(every_seconds: float, measure: Callable[[], None], say: Callable[[], float]) -> None:
    """In that process: measure now and then, and answer what is asked, until nobody can ask any more."""
    questions = sys.stdin.fileno()
    while True:
        asked, _, _ = select.select([questions], [], [], every_seconds)
        measure()
        if asked:
            if not os.read(questions, 1):
                return
            print(say(), flush=True)
