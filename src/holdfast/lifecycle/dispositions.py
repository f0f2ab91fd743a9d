"""What a signal does to this process, as the system knows it: Python does not know of handlers that C code has set."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["is_unhandled", "stand_down", "stand_in"]

#: In front of what `sigaction` returns stands the address of the handler; more than its size is never written.
_ROOM = 512
_sigaction = getattr(ctypes.CDLL(None), "sigaction", None) if sys.platform != "win32" else None
#: Handlers in place of default actions, by signal, with the addresses that the system has for them.
_stand_ins: dict[int, tuple[Callable[..., Any], int | None]] = {}


def is_unhandled(number: int) -> bool:
    """Whether a signal has its default action, or a stand-in for it."""
    handler, address = signal.getsignal(number), _address(number)
    if number in _stand_ins and _stand_ins[number][0] is handler:
        return _stand_ins[number][1] == address
    return handler is signal.SIG_DFL and not address


def stand_in(number: int, handler: Callable[..., Any]) -> None:
    """Have this function called instead of the default action. In the main thread only."""
    signal.signal(number, handler)
    _stand_ins[number] = handler, _address(number)


def stand_down(number: int, handler: Callable[..., Any]) -> None:
    """Restore the default action, unless somebody else handles the signal by now. In the main thread only."""
    if _stand_ins.get(number, (None,))[0] is handler and is_unhandled(number):
        signal.signal(number, signal.SIG_DFL)
        del _stand_ins[number]


def _address(number: int) -> int | None:
    """The address of the handler in C: 0 for the default action, 1 if ignored; None if it cannot be known."""
    if _sigaction is None:
        return None
    found = ctypes.create_string_buffer(_ROOM)
    return None if _sigaction(number, None, found) else ctypes.c_void_p.from_buffer(found).value or 0
