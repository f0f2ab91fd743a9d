"""Gives up a process whose app blocks the event loop while the worker starts or ends, if it has been told to stop.

The app's lifespan may block, and so may observers of the worker's start or stop.

1. No task or timer of a blocked loop runs, so a thread asks the loop whether it answers.
2. While jobs run, `blockage` detects who blocks the loop; this thread rests then.
3. The loop is given up when the drain should be over and several questions in a row got no answer: a process that was
   frozen finds all clocks ahead, but its loop answers at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType

__all__ = ["LifespanWatch"]

_LOOK_SECONDS = 1.0
_SILENT_LOOKS = 3


class LifespanWatch:
    """Watches the running event loop for the length of a block; `over_at` says when a drain must be over."""

    def __init__(self, over_at: Callable[[], float | None], give_up: Callable[[], object]) -> None:
        self._over_at, self._give_up = over_at, give_up
        #: Jobs run, and `Blockage` watches the loop.
        self.rests = False
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()

    def __enter__(self) -> LifespanWatch:
        threading.Thread(target=self._watch, name="holdfast-lifespan", daemon=True).start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            if self._is_late() and not self._answers() and self._is_late():
                self._give_up()

    def _is_late(self) -> bool:
        if self.rests or self._ended.is_set():
            return False
        over = self._over_at()
        return over is not None and time.monotonic() > over

    def _answers(self) -> bool:
        answered = threading.Event()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return True  # the loop has ended
        return any(answered.wait(_LOOK_SECONDS) for _ in range(_SILENT_LOOKS))
