"""The progress of a burst on a terminal: how many jobs are done and left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.app import Holdfast
from holdfast.cli.backlog import watching
from holdfast.telemetry.events import AttemptEnded, Event
from holdfast.telemetry.narrator import set_up_logging

__all__ = ["burst_progress"]

_ENDED = ("success", "dead", "canceled", "error", "paused")


@contextmanager
def burst_progress(hf: Holdfast) -> Iterator[None]:
    """A progress bar below the log lines, for the duration of a block."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    bar = progress.add_task("jobs", total=None)

    def count(event: Event) -> None:
        if isinstance(event, AttemptEnded) and event.state in _ENDED:
            progress.advance(bar)

    def learn(backlog: dict[str, int]) -> None:
        left = backlog["ready"] + backlog["running"] + backlog["waiting"]
        progress.update(bar, total=progress.tasks[0].completed + left, description=f"{left} jobs left")

    hf.events.subscribe(count)
    with progress, watching(hf, learn):
        # Standard error is now the bar's: log lines that go through it stay above the bar.
        set_up_logging(hf.config.log_format, hf.config.log_level)
        yield
        progress.update(bar, total=progress.tasks[0].completed, description="0 jobs left")
