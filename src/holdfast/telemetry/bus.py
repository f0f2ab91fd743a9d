"""Events go to subscribers, one after the other; a subscriber that fails harms nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.telemetry.events import Event

__all__ = ["Bus"]

E = TypeVar("E", bound=Event)

_log = logging.getLogger("holdfast")


class Bus:
    """Who hears of what happens in this process."""

    def __init__(self) -> None:
        self._subscribers: list[tuple[Callable[[Any], object], tuple[type[Event], ...]]] = []

    def subscribe(self, subscriber: Callable[[E], object], *kinds: type[E]) -> None:
        """Hear of every event of these kinds from now on, or of all."""
        self._subscribers.append((subscriber, kinds or (Event,)))

    def hears(self, kind: type[Event]) -> bool:
        """Whether anybody wants events of this kind; those that happen very often are not even made otherwise."""
        return any(issubclass(kind, kinds) for _, kinds in self._subscribers)

    def emit(self, event: Event) -> None:
        """Tell everybody who wants to hear of it."""
        for subscriber, kinds in self._subscribers:
            if isinstance(event, kinds):
                try:
                    subscriber(event)
                except Exception:  # noqa: BLE001 - foreign code runs here
                    _log.exception("a subscriber failed")
