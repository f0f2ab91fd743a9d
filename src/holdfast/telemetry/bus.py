"""Events go to subscribers, one after the other; a subscriber that fails harms nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.telemetry.events import Event

__all__ = ["Bus"]

_log = logging.getLogger("holdfast")


class Bus:
    """Who hears of what happens in this process."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Hear of every event from now on."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        """Tell everybody."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - foreign code runs here
                _log.exception("a subscriber failed")
