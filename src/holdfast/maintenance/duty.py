"""What a duty is: a declaration, a bounded bit of work, and when it wants to come again.

1. A duty names its urgency. An urgent one never waits for another duty. The others share a few slots.
2. Its work is one statement, or several small ones, over a desk that ends each of them after the duty's time limit.
3. How much it does at once is its batch: halved when the time limit strikes, so that the next try is a smaller one.
4. It keeps where it has come to. Nothing is lost with that: another leader starts from the beginning.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from holdfast.maintenance.patience import Judge
from holdfast.telemetry.bus import Bus

__all__ = ["Batch", "Desk", "Duty", "Next", "Urgency"]


class Urgency(enum.Enum):
    """Who waits for a duty."""

    URGENT = "somebody waits for it: it never waits for another duty"
    ORDINARY = "it decides which job is next, but may wait for its turn"
    BACKGROUND = "it mends, forgets or deletes"


@dataclass(frozen=True, slots=True)
class Next:
    """When a duty wants to come again, and whether it left something undone."""

    seconds: float
    more: bool = False


class Desk(Protocol):
    """Where a duty runs its named statements."""

    async def rows(self, statement: str, *arguments: Any) -> Sequence[Any]:
        """The rows of a statement."""
        ...

    async def row(self, statement: str, *arguments: Any) -> Any:
        """Its first row."""
        ...

    async def value(self, statement: str, *arguments: Any) -> Any:
        """The first value of its first row."""
        ...


class Batch:
    """How much is done at once: half as much after the time limit struck, and slowly more while work is quick.

    The limit that strikes may be somebody else's (a `statement_timeout` of the server), so the time at which it
    struck is remembered: the batch grows only while work takes less than half of that.
    """

    def __init__(self, most: int, limit_seconds: float) -> None:
        self._most, self._limit = most, limit_seconds
        self._struck_after = limit_seconds
        self.size = most

    def struck(self, after_seconds: float) -> None:
        """The time limit struck: less at once from now on."""
        self._struck_after = min(self._limit, max(0.01, after_seconds))
        self.size = max(1, self.size // 2)

    def ended(self, after_seconds: float) -> None:
        """The work was done in this time."""
        if self.size < self._most and after_seconds < self._struck_after / 2:
            self.size = min(self._most, self.size + self.size // 4 + 1)
            self._struck_after = min(self._limit, self._struck_after * 1.05)


class Duty(ABC):
    """One duty of maintenance, with what it remembers from one call to the next."""

    name: ClassVar[str]
    urgency: ClassVar[Urgency]
    #: How long to wait when nothing is left to be done, unless the duty says otherwise.
    interval_seconds: ClassVar[float]
    #: When a statement of this duty is ended.
    limit_seconds: ClassVar[float]
    #: How much is done at once, at most.
    most: ClassVar[int] = 500
    #: Whether a notification makes it due at once.
    heeds: ClassVar[bool] = False

    def __init__(self, bus: Bus, patience: Judge) -> None:
        self.bus, self.patience = bus, patience
        self.batch = Batch(self.most, self.limit_seconds)

    @abstractmethod
    async def work(self, desk: Desk) -> Next:
        """Do a bounded bit, at most `self.batch.size`."""

    def resume(self) -> None:  # noqa: B027 - most duties remember nothing that could mislead
        """Another one may have led meanwhile, or the clock was set: forget what could mislead."""

    def at_once(self) -> Next:
        """There is more to do, and it should be done now."""
        return Next(0.0, more=True)

    def after(self, seconds: float) -> Next:
        """There is more to do, after a pause."""
        return Next(seconds, more=True)

    def later(self, seconds: float | None = None) -> Next:
        """Nothing is left to be done for now."""
        return Next(self.interval_seconds if seconds is None else seconds)
