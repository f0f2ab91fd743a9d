"""What foreign errors say of themselves, whatever they do when they are asked.

A handler, a subscriber or a library may raise something whose `__str__` raises, whose parts cannot be formatted, or
whose text is not a string. Describing an error must never fail: its attempt would never be settled.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

__all__ = ["message_of", "name_of", "traceback_of"]


def name_of(thing: object) -> str:
    """The name of the type of an error, or of anything else."""
    return _said(lambda: type(thing).__name__, "an error without a name")


def message_of(error: BaseException) -> str:
    """What an error says."""
    return _said(lambda: str(error), f"{name_of(error)}, which cannot say what it is")


def traceback_of(error: BaseException) -> str:
    """Where an error comes from; the frames alone, if it cannot be formatted with its causes."""
    last = f"{name_of(error)}: {message_of(error)}\n"
    frames = _said(lambda: "".join(traceback.format_tb(error.__traceback__)), "")
    return _said(lambda: "".join(traceback.format_exception(error)), f"{frames}{last}")


def _said(say: Callable[[], str], instead: str) -> str:
    try:
        return "".join([say()])  # plain text: a subclass of str would come with methods of its own
    except BaseException:  # noqa: BLE001 - also SystemExit and CancelledError, which nobody meant for us
        return instead
