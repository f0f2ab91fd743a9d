"""Events go to subscribers, one after the other; a subscriber that fails harms nobody."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.foreign import traceback_of
from holdfast.telemetry.events import Event

__all__ = ["Bus", "Teller"]

E = TypeVar("E", bound=Event)

_log = logging.getLogger("holdfast")


class Teller(Protocol):
    """Accepts events."""

    def emit(self, event: Event) -> None:
        """Pass an event on to its subscribers."""
        ...


class Bus:
    """The subscribers to events of this process."""

    def __init__(self) -> None:
        self._subscribers: list[tuple[Callable[[Any], object], tuple[type[Event], ...], Callable[[], bool]]] = []
        #: Of each kind that was asked for: what those who may want it say.
        self._askable: dict[type[Event], list[Callable[[], bool]]] = {}

    def subscribe(
        self, subscriber: Callable[[E], object], *kinds: type[E], routine: Callable[[], bool] = lambda: True
    ) -> None:
        """Hear of every event of these kinds from now on, or of all.

        `routine` tells, each time it is asked, whether events that say only that all went well are wanted, too.
        """
        self._subscribers.append((subscriber, kinds or (Event,), routine))
        self._askable.clear()

    def hears(self, kind: type[Event]) -> bool:
        """Whether anybody wants routine events of this kind; what happens very often is not even made otherwise."""
        askable = self._askable.get(kind)
        if askable is None:
            askable = self._askable[kind] = [r for _, kinds, r in self._subscribers if issubclass(kind, kinds)]
        for routine in askable:  # noqa: SIM110 - a generator would cost more than the answer
            if routine():
                return True
        return False

    def emit(self, event: Event) -> None:
        """Tell everybody who wants to hear of it."""
        for subscriber, kinds, _ in self._subscribers:
            if isinstance(event, kinds):
                try:
                    subscriber(event)
                except BaseException as error:
                    if is_ctrl_c(error):
                        raise
                    _tell(error)


def _tell(error: BaseException) -> None:
    # As text: formatting the error in a log line could fail as well.
    with contextlib.suppress(Exception, SystemExit):
        _log.error("a subscriber failed: %s", traceback_of(error))
