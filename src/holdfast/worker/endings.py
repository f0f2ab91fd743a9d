"""How running a handler ends when it ends without a value, other than by what the handler itself raised.

Middleware sees these pass by; `Execution` makes outcomes of them.
"""

from __future__ import annotations

from typing import cast

from holdfast.errors import HandlerSignal, HoldfastError, InvalidInput
from holdfast.model.outcome import FailureKind

__all__ = ["Late", "LeaseOver", "Misfit", "NotBegun", "ProcessDied", "RemoteFailure", "no_room", "signal_of"]

#: After this long, a thread or a process may be had again.
START_AGAIN_SECONDS = 1.0


def signal_of(error: BaseException) -> HandlerSignal | None:
    """What a handler raised, if it says what is to become of the job. Errors are asked for their type only."""
    return cast("HandlerSignal", error) if issubclass(type(error), HandlerSignal) else None


class Late(HoldfastError):
    """The handler was told to stop, and has."""

    code = "late"


class LeaseOver(HoldfastError):
    """The handler's process was ended because its lease was over: another attempt may have begun."""

    code = "lease-over"


class Misfit(HoldfastError):
    """The stored payload does not fit the handler, or its result cannot be stored: no retry would help.

    A payload waits for somebody to mend the handler; nothing of it is lost. A result is gone already.
    """

    code = "misfit"

    def __init__(self, fault: InvalidInput, failure: FailureKind) -> None:
        super().__init__(str(fault))
        self.fault, self.failure = fault, failure


class NotBegun(HoldfastError):
    """The handler did not run: its lease was over before, its beginning could not be recorded, or it got no thread.

    `delay_seconds`: how long to wait before it is tried again, where that would fail at once.
    """

    code = "not-begun"

    def __init__(self, message: str, *, delay_seconds: float | None = None) -> None:
        super().__init__(message)
        self.delay_seconds = delay_seconds


def no_room(fault: BaseException) -> NotBegun:
    """The system gave no thread, or no process, to run a handler in: that is not the job's fault."""
    return NotBegun(f"its handler could not be started: {fault}", delay_seconds=START_AGAIN_SECONDS)


class ProcessDied(HoldfastError):
    """The process that ran the handler has ended by itself, or could not begin."""

    code = "process-died"


class RemoteFailure(HoldfastError):
    """What a handler raised in another process: the name of its type, its message, its traceback as text."""

    code = "remote-failure"

    def __init__(self, type_name: str, message: str, traceback: str) -> None:
        super().__init__(message)
        self.type_name, self.traceback = type_name, traceback
