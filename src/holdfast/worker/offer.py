"""The streams that a worker may take from: which lane they fit, and which are limited."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model.job import Stream

__all__ = ["Offer"]


class Offer:
    """What is open to a worker now, by the number of the stream."""

    def __init__(self, fast_types: Collection[str]) -> None:
        self._fast_types = frozenset(fast_types)
        #: From which streams jobs were taken since the database was last asked.
        self.used: set[int] = set()
        self.streams: dict[int, Stream] = {}
        self._lanes: dict[str, tuple[list[int], list[int]]] = {}
        #: Whether any stream is limited.
        self.limited = False

    def renew(self, streams: dict[int, Stream]) -> None:
        """The database was asked again."""
        self.streams = streams
        self.used.clear()
        self.limited = any(stream.limited for stream in streams.values())
        for lane in ("fast", "general"):
            fitting = [s for s in streams.values() if lane == "general" or s.type in self._fast_types]
            self._lanes[lane] = [s.id for s in fitting], [s.id for s in fitting if not s.limited]

    def every(self, lane: str) -> list[int]:
        """All streams that slots of this lane may run."""
        return self._lanes[lane][0]

    def unlimited(self, lane: str) -> list[int]:
        """Those without limits."""
        return self._lanes[lane][1]

    def has_limits(self, lane: str) -> bool:
        """Whether there are others."""
        every, unlimited = self._lanes[lane]
        return len(unlimited) < len(every)
