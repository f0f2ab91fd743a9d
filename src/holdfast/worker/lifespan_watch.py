"""Gives a process up whose app blocks the event loop while the worker starts or ends, and that is to stop.

The app's lifespan may do so, and whoever observes that the worker has started, or stopped.

1. No task or timer of a blocked loop comes to anything, so a thread asks the loop whether it answers.
2. While jobs run, `blockage` judges who blocks the loop; this thread rests then.
3. The loop is given up when the drain must have been over and several questions in a row got no answer: a process that
   was frozen finds all clocks ahead, and its loop answers at once.
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
        #: Jobs run, and others watch the loop.
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
