"""Tells a user's Ctrl-C from a `KeyboardInterrupt` that foreign code has raised itself.

Ctrl-C ends the program, a handler's own exception only its job. Python raises the former in the main thread alone, and
only where a handler of SIGINT does so. A process that handles SIGINT in another way says so with `never_raised`.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["is_ctrl_c", "never_raised"]

_quiet: Any = None


def never_raised() -> None:
    """The handler of SIGINT that is in place now raises nothing."""
    global _quiet  # noqa: PLW0603 - a process has one handler of SIGINT
    _quiet = signal.getsignal(signal.SIGINT)


def is_ctrl_c(error: BaseException) -> bool:
    """Whether an error in this thread can come from the user. It is asked for its type only, which cannot lie."""
    if not issubclass(type(error), KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) not in (_quiet, None, signal.SIG_DFL, signal.SIG_IGN)
