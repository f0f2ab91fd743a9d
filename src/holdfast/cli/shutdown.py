"""When a process is to stop, whoever says so: a signal, or the parent that holds its leash.

A process on its own drains at the first SIGTERM or SIGINT and hurries at the second. One on a leash obeys
its parent: a Ctrl-C reaches every process of the terminal and a service manager's SIGTERM every process of
the unit, and neither must count twice or stop things out of order. The leash is a pipe whose other end only
the parent holds: when the parent dies, however it dies, the pipe ends and the child drains.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.lifecycle.loops import run

__all__ = ["DRAIN", "HURRY", "LEASH", "Shutdown", "run_until_told"]

#: The environment variable that tells a child the number of the pipe's descriptor.
LEASH = "HOLDFAST_LEASH"
DRAIN, HURRY = b"d", b"h"


class Shutdown:
    """Calls `stop` when this process is to drain, and again when it is to hurry.

    Until something is attached there is nothing to drain: the task that made this is cancelled.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - made inside a coroutine
        self._stop: Callable[[], object] = task.cancel
        #: 0 run, 1 drain, 2 hurry.
        self.level = 0
        loop = asyncio.get_running_loop()
        self._leash = int(leash) if (leash := os.environ.get(LEASH)) else None
        loop.add_signal_handler(signal.SIGTERM, self._signalled, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, self._signalled, signal.SIGINT)
        if self._leash is not None:
            loop.add_reader(self._leash, self._heard, self._leash)

    @property
    def asked(self) -> bool:
        """Whether anybody asked this process to stop."""
        return self.level > 0

    def attach(self, stop: Callable[[], object]) -> None:
        """From now on, this is what is to be stopped."""
        self._stop = stop
        for _ in range(self.level):
            stop()

    def _signalled(self, number: signal.Signals) -> None:
        if self._leash is None:
            self._raise_to(self.level + 1)
        elif number == signal.SIGTERM:
            self._raise_to(1)

    def _heard(self, leash: int) -> None:
        words = os.read(leash, 64)
        if not words:
            asyncio.get_running_loop().remove_reader(leash)
        self._raise_to(2 if HURRY in words else 1)

    def _raise_to(self, level: int) -> None:
        while self.level < min(level, 2):
            self.level += 1
            self._stop()


def run_until_told(work: Callable[[Shutdown], Coroutine[Any, Any, int]], event_loop: str = "auto") -> int:
    """Run a command that lasts; being told to stop before it really began is no failure."""

    async def main() -> int:
        shutdown = Shutdown()
        try:
            return await work(shutdown)
        except asyncio.CancelledError:
            if not shutdown.asked:
                raise
            return 0

    return run(main(), event_loop)
