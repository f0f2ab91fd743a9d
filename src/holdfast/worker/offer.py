"""The streams from which a worker may claim: which lane they fit, and which are limited."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.model.job import Stream

__all__ = ["Offer"]


class Offer:
    """The streams that are open to a worker now, by number."""

    def __init__(self, lanes: Collection[str], lane_of: Mapping[str, str]) -> None:
        """`lanes` are those with slots, `lane_of` the lane of each type."""
        self._names, self._lane_of = tuple(lanes), lane_of
        #: The streams from which jobs were claimed since the database was last asked.
        self.used: set[int] = set()
        self.streams: dict[int, Stream] = {}
        self._lanes: dict[str, tuple[list[int], list[int]]] = {}
        #: Whether any stream is limited.
        self.limited = False

    def renew(self, streams: dict[int, Stream]) -> None:
        """Replace the streams with a new answer of the database."""
        self.streams = streams
        self.used.clear()
        self.limited = any(stream.limited for stream in streams.values())
        for lane in self._names:
            fitting = [s for s in streams.values() if lane == "general" or self._lane_of.get(s.type) == lane]
            self._lanes[lane] = [s.id for s in fitting], [s.id for s in fitting if not s.limited]

    def every(self, lane: str) -> list[int]:
        """All streams whose jobs slots of this lane may run."""
        return self._lanes[lane][0]

    def unlimited(self, lane: str) -> list[int]:
        """The streams of a lane without limits."""
        return self._lanes[lane][1]

    def has_limits(self, lane: str) -> bool:
        """Whether a lane has streams with limits."""
        every, unlimited = self._lanes[lane]
        return len(unlimited) < len(every)
