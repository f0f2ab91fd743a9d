"""Records in the database which of the jobs claimed ahead are about to begin, several at a time, before they do.

A job that a worker had claimed ahead and not begun when it died costs no attempt (`sql/functions/beginnings.sql`).
Jobs claimed ahead are numbered per lane in the order in which they will begin. A number is cleared once the database
has it. If the worker dies, a job that was cleared and has not begun is in doubt, and its attempt counts. So a lane
clears only as many numbers as begin while a statement is under way and in the few milliseconds between two of them. A
statement for every job would cost more than the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from holdfast.lifecycle.service import Service
from holdfast.telemetry.bus import Bus

__all__ = ["Beginnings"]

#: The cost of a statement on both sides together, the cost of a job besides its handler, and the fraction of the jobs'
#: time that may be spent on statements.
_STATEMENT_SECONDS, _JOB_SECONDS, _SHARE = 0.00025, 0.00006, 0.03
#: Handlers shorter than this never wait: the jobs of a claim have begun before a statement could be answered, and
#: waiting for one would cost more than it saves.
_NEVER_WAITS_SECONDS = 0.0002
_AT_ONCE = 250
#: The number that is cleared at once grows if slots had to wait, and shrinks slowly while none had to.
_GROWTH, _SHRINKAGE = 2.0, 0.97
_MOST = 1000
_LANE_SHIFT = 48


class NumberStore(Protocol):
    """Where numbers are cleared."""

    async def may_begin(self, numbers: Sequence[int], /) -> None:
        """Record that jobs up to these numbers, one per lane, are about to begin."""
        ...


class Beginnings(Service):
    """Clears numbers. `on_cleared` is called with each lane that may go on."""

    name = "beginnings"

    def __init__(
        self, store: NumberStore, bus: Bus, lanes: Iterable[tuple[str, int]], *, on_cleared: Callable[[str], None]
    ) -> None:
        super().__init__(bus)
        self._store, self._on_cleared = store, on_cleared
        self._lanes = {name: _Lane(index << _LANE_SHIFT, slots) for index, (name, slots) in enumerate(lanes)}

    def next_number(self, lane: str) -> int:
        """The number of the next job that is claimed ahead."""
        return self._lanes[lane].last + 1

    def claimed(self, lane: str, first: int, last: int) -> None:
        """Note that jobs were given the numbers from `first`, which may be wanted soon, to `last`."""
        numbers = self._lanes[lane]
        numbers.last = max(numbers.last, last)
        if numbers.cleared < first:
            self._want(numbers, first)

    def at_once(self, lane: str, mean_seconds: float, *, free: int, waiting: int) -> int:
        """How many jobs of a claim will probably begin before numbers could be cleared for them.

        These are the jobs for which slots are free. If slots would wait for the first numbers, enough jobs to bridge
        that time are added.
        """
        numbers = self._lanes[lane]
        worth_while = int(_STATEMENT_SECONDS / _SHARE / (mean_seconds + _JOB_SECONDS))
        never_wait = mean_seconds < _NEVER_WAITS_SECONDS
        numbers.least = _AT_ONCE if never_wait else max(numbers.slots, worth_while)
        numbers.chunk = max(numbers.chunk, numbers.least)
        wanted = free if waiting and not never_wait else max(free, numbers.chunk)
        return max(0, wanted - waiting)

    def may_begin(self, lane: str, number: int) -> bool:
        """Whether this job may begin; if not, `on_cleared` is called when it may."""
        numbers = self._lanes[lane]
        if number > numbers.cleared:
            numbers.stalled = True
            self._want(numbers, number)
            return False
        numbers.begun = number
        if numbers.cleared - number < numbers.chunk and numbers.cleared < numbers.last:
            self._want(numbers, number + 1)
        return True

    def _want(self, lane: _Lane, number: int) -> None:
        if lane.wanted < number:
            lane.wanted = number
            self.wake()

    async def round(self) -> float:
        """Clear the numbers that are wanted now, and those that will be wanted during the next statement."""
        asked = {name: lane.ask() for name, lane in self._lanes.items() if lane.wanted}
        if asked:
            await self._store.may_begin(list(asked.values()))
            for name, number in asked.items():
                self._lanes[name].answered(number)
                self._on_cleared(name)
        return 0.0 if any(lane.wanted for lane in self._lanes.values()) else 3600.0


class _Lane:
    """The numbers of one lane: given, cleared, begun; and how many to clear at a time."""

    def __init__(self, start: int, slots: int) -> None:
        self.last = self.cleared = self.begun = start
        #: The number to clear, 0 for none, and whether slots wait for it.
        self.wanted = 0
        self.stalled = False
        self.slots = max(2, slots)
        self.chunk = self.least = self.slots

    def ask(self) -> int:
        """The number up to which to clear."""
        return min(self.last, max(self.wanted - 1, self.begun) + 2 * self.chunk)

    def answered(self, number: int) -> None:
        """Note that numbers up to this one are cleared."""
        self.cleared = max(self.cleared, number)
        if self.wanted <= number:
            self.wanted = 0
        chunk = self.chunk * (_GROWTH if self.stalled else _SHRINKAGE)
        self.chunk, self.stalled = min(_MOST, max(self.least, int(chunk))), False
