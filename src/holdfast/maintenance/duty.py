"""A duty: a declaration, a bounded part of its work, and when it wants to run again.

1. A duty has an urgency. An urgent one never waits for another duty. The others share a few slots.
2. Its work is one call of the store, or several small ones; each of them ends after the duty's time limit.
3. Its batch is how much it does at once: it is halved when the time limit is exceeded, so that the next try is smaller.
4. It remembers how far it has come. Losing that is harmless: another leader starts from the beginning.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from holdfast.maintenance.patience import LeaseJudge
from holdfast.store.maintenance import MaintenanceStore
from holdfast.telemetry.bus import Bus

__all__ = ["BatchSize", "Duty", "Next", "Urgency"]


class Urgency(enum.Enum):
    """How long a duty may wait."""

    URGENT = "somebody waits for it: it never waits for another duty"
    ORDINARY = "it decides which job is next, but may wait for its turn"
    BACKGROUND = "it mends, forgets or deletes"


@dataclass(frozen=True, slots=True)
class Next:
    """When a duty wants to run again, and whether it left something undone."""

    seconds: float
    more: bool = False


class BatchSize:
    """How much is done at once: half as much after the time limit was exceeded, and slowly more while work is fast.

    The limit may be somebody else's (a `statement_timeout` of the server), so the time after which it struck is
    remembered: the batch grows only while work takes less than half of that.
    """

    def __init__(self, most: int, limit_seconds: float) -> None:
        self._most, self._limit = most, limit_seconds
        self._struck_after = limit_seconds
        self.size = most

    def struck(self, after_seconds: float) -> None:
        """Do less at once from now on, because the time limit was exceeded."""
        self._struck_after = min(self._limit, max(0.01, after_seconds))
        self.size = max(1, self.size // 2)

    def ended(self, after_seconds: float) -> None:
        """Note that the work was done in this time."""
        if self.size < self._most and after_seconds < self._struck_after / 2:
            self.size = min(self._most, self.size + self.size // 4 + 1)
            self._struck_after = min(self._limit, self._struck_after * 1.05)


class Duty(ABC):
    """One duty of maintenance, with its memory between calls."""

    name: ClassVar[str]
    urgency: ClassVar[Urgency]
    #: How long to wait when nothing is left to do, unless the duty says otherwise.
    interval_seconds: ClassVar[float]
    #: The time limit of each statement of this duty.
    limit_seconds: ClassVar[float]
    #: The maximal batch.
    most: ClassVar[int] = 500
    #: Whether a notification makes it due at once.
    heeds: ClassVar[bool] = False

    def __init__(self, bus: Bus, patience: LeaseJudge) -> None:
        self.bus, self.patience = bus, patience
        self.batch = BatchSize(self.most, self.limit_seconds)

    @abstractmethod
    async def work(self, store: MaintenanceStore) -> Next:
        """Do a bounded part of the work, at most `self.batch.size`."""

    def resume(self) -> None:  # noqa: B027 - most duties remember nothing that could mislead
        """Forget misleading state, because another process may have led meanwhile, or the clock was set."""

    def at_once(self) -> Next:
        """There is more to do, at once."""
        return Next(0.0, more=True)

    def after(self, seconds: float) -> Next:
        """There is more to do, after a pause."""
        return Next(seconds, more=True)

    def later(self, seconds: float | None = None) -> Next:
        """Nothing is left to do for now."""
        return Next(self.interval_seconds if seconds is None else seconds)
