"""The progress of a burst on a terminal: what is done, what is left."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.telemetry.events import AttemptEnded, Event
from holdfast.telemetry.narrator import set_up_logging

__all__ = ["BurstProgress"]

_LOOK_SECONDS = 0.5


class BurstProgress:
    """A bar below the log lines. It asks the database twice a second how much is left."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._bar = self._progress.add_task("jobs", total=None, left="?")
        self._look: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        # Standard error is now the bar's: log lines that go through it stay above the bar.
        set_up_logging(self._hf.config.log_format, self._hf.config.log_level)
        self._hf.events.subscribe(self._count)
        self._look = asyncio.create_task(self._ask_what_is_left())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._look is not None:
            self._look.cancel()
        self._progress.update(self._bar, left=0)
        self._progress.stop()

    def _count(self, event: Event) -> None:
        if isinstance(event, AttemptEnded) and event.state in ("success", "dead", "canceled", "error", "paused"):
            self._progress.advance(self._bar)

    async def _ask_what_is_left(self) -> None:
        while True:
            with contextlib.suppress(HoldfastError):
                backlog = await self._hf.client.backlog()
                left = backlog["ready"] + backlog["running"] + backlog["waiting"]
                done = self._progress.tasks[0].completed
                self._progress.update(self._bar, total=done + left, left=left)
            await asyncio.sleep(_LOOK_SECONDS)
