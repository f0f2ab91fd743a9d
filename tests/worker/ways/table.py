"""A way to misbehave: what a handler does, in which executors, and the expected outcome of its attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ASYNC", "EVERYWHERE", "IN_THE_WORKER", "PROCESS", "THREAD", "Table", "Way"]

ASYNC, THREAD, PROCESS = ("async",), ("thread",), ("process",)
IN_THE_WORKER = (*ASYNC, *THREAD)
EVERYWHERE = (*IN_THE_WORKER, *PROCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What a handler does; what it returns is its result, and awaited first in an async handler if `act` is async."""

    name: str
    act: Callable[[Any], Any]
    executors: tuple[str, ...]
    #: The outcome of its last attempt, and what the error says.
    outcome: str
    says: str
    #: Whether its time is short.
    brief: bool


class Table(dict[str, Way]):
    """Ways by name."""

    def way(
        self,
        *executors: str,
        outcome: str = "failed",
        says: str = "",
        brief: bool = False,
        name: str | None = None,
    ) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Declare one by its function."""

        def declare(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
            called = (name or act.__name__).strip("_").replace("_", "-")
            assert called not in self, called
            self[called] = Way(
                name=called, act=act, executors=executors or EVERYWHERE, outcome=outcome, says=says, brief=brief
            )
            return act

        return declare

    def of(self, executor: str) -> list[Way]:
        """Those that can be tried in this executor."""
        return [way for way in self.values() if executor in way.executors]
