"""What foreign errors say of themselves, whatever they do when they are asked.

A handler, a subscriber or a library may raise something whose `__str__` raises, whose parts cannot be formatted, or
whose text is not a string. Describing an error must never fail: its attempt would never be settled. And it may take
long, in an event loop that others need: an error that is slow to answer is asked only once.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

__all__ = ["described", "message_of", "name_of", "traceback_of"]

#: An error that takes longer to say what it is, is not asked again.
_SLOW_SECONDS = 1.0


def name_of(thing: object) -> str:
    """The name of the type of an error, or of anything else."""
    return _said(lambda: type(thing).__name__, "an error without a name")


def message_of(error: BaseException) -> str:
    """What an error says."""
    return _said(lambda: str(error), f"{name_of(error)}, which cannot say what it is")


def traceback_of(error: BaseException) -> str:
    """Where an error comes from; the frames alone, if it cannot be formatted with its causes."""
    return _said(lambda: "".join(traceback.format_exception(error)), "") or _plainly(error, message_of(error))


def described(error: BaseException) -> tuple[str, str]:
    """What an error says, and where it comes from; the frames alone, if it is slow to say what it is."""
    began = time.monotonic()
    message = message_of(error)
    is_slow = time.monotonic() - began > _SLOW_SECONDS
    return message, _plainly(error, message) if is_slow else traceback_of(error)


def _plainly(error: BaseException, message: str) -> str:
    """A traceback without the error's own help."""
    frames = _said(lambda: "".join(traceback.format_tb(error.__traceback__)), "")
    return f"{frames}{name_of(error)}: {message}\n"


def _said(say: Callable[[], str], instead: str) -> str:
    try:
        return "".join([say()])  # plain text: a subclass of str would come with methods of its own
    except BaseException:  # noqa: BLE001 - also SystemExit and CancelledError, which nobody meant for us
        return instead
