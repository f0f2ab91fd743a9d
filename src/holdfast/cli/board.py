"""The demo's view on a terminal, made from the log lines of the children."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.backlog import watching
from holdfast.cli.output import styled

__all__ = ["Board"]

_EVENTS_SHOWN = 10
_RATE_SECONDS = 5.0
_STANDING = {"ready": "queued", "running": "running", "due": "scheduled, retry", "waiting": "behind a target"}


class Board:
    """Counts per state, throughput per type, and the last events."""

    def __init__(self, hf: Holdfast, url: str) -> None:
        self._hf, self._url = hf, url
        self._standing: dict[str, int] = {}
        self._ended: dict[str, Counter[str]] = {}
        self._times: deque[float] = deque()
        self._events: deque[Text] = deque(maxlen=_EVENTS_SHOWN)
        self._note = "Ctrl-C drains and stops"
        self._live = Live(console=Console(), get_renderable=self._render, refresh_per_second=4, transient=False)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the board for the duration of a block."""
        with self._live, watching(self._hf, self._learn):
            yield

    def print(self, text: str) -> None:
        """Print something above the board."""
        # Whole lines, however narrow the terminal is: what is copied from it must not have breaks in it.
        self._live.console.print(Text(text), soft_wrap=True)

    def say(self, note: str) -> None:
        """Set the last line."""
        self._note = note

    def hear(self, line: str) -> None:
        """Take a log line of a child: one of our events, or any other text."""
        try:
            entry = json.loads(line)
        except ValueError:
            self._events.append(Text(line[:200], style="yellow"))
            return
        if entry.get("event") == "AttemptEnded":
            self._times.append(time.monotonic())
            self._ended.setdefault(entry["type"], Counter())[entry["state"]] += 1
        self._events.append(_told(entry))

    def _learn(self, backlog: dict[str, int]) -> None:
        self._standing = backlog

    def _render(self) -> Group:
        now = time.monotonic()
        while self._times and self._times[0] < now - _RATE_SECONDS:
            self._times.popleft()
        head = Text.assemble(
            ("Holdfast", "bold"), f"  {self._url}  ", (f"{len(self._times) / _RATE_SECONDS:.1f} attempts/s", "cyan")
        )
        standing = Text("   ").join(
            Text.assemble((f"{self._standing.get(measure, 0)} ", "bold"), name) for measure, name in _STANDING.items()
        )
        note = Text(self._note, style="dim")
        return Group(Text(), head, standing, Text(), self._types(), Text(), *self._events, note)

    def _types(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
        states = ("success", "retry", "dead")
        table.add_column("since the start")
        for state in states:
            table.add_column(state, justify="right")
        for name, counts in sorted(self._ended.items()):
            table.add_row(name, *(str(counts[state]) for state in states))
        return table


def _told(entry: dict[str, Any]) -> Text:
    when = str(entry.get("time", ""))[11:19]
    if entry.get("event") != "AttemptEnded":
        style = "yellow" if entry.get("level") in ("warning", "error") else "dim"
        return Text.assemble((f"{when}  ", "dim"), (str(entry.get("message", ""))[:160], style))
    error = f"  {entry['error_type']}: {entry.get('error', '')}" if entry.get("error_type") else ""
    return Text.assemble(
        (f"{when}  ", "dim"),
        f"{entry['type']:<12} ",
        styled(entry["state"]),
        (f"  attempt {entry['attempt']}, {entry['duration_seconds'] * 1000:.0f} ms", "dim"),
        (error.replace("\n", " ")[:100], "red"),
    )
