"""Why running a handler ended without a value, other than by an exception of the handler itself.

Middleware sees these exceptions; `Execution` turns them into outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast.errors import CircuitOpen, HandlerSignal, HoldfastError, InvalidInput
from holdfast.model.outcome import FailureKind

__all__ = [
    "SIGNALS",
    "Late",
    "LeaseOver",
    "Misfit",
    "NotBegun",
    "ProcessDied",
    "RemoteFailure",
    "bare",
    "fit",
    "no_room",
    "signal_of",
]

#: What a handler can raise to decide what becomes of its job, by name: processes tell each other in text.
#: The most specific ones come first.
SIGNALS: dict[str, type[HandlerSignal]] = {CircuitOpen.__name__: CircuitOpen} | {
    kind.__name__: kind for kind in HandlerSignal.__subclasses__() if kind.__module__ == HandlerSignal.__module__
}

T = TypeVar("T")

#: After this long, a thread or a process may be available again.
START_AGAIN_SECONDS = 1.0


def signal_of(error: BaseException) -> HandlerSignal | None:
    """The signal that a handler raised, if it did. Only the type of the error is checked, not its own code."""
    return cast("HandlerSignal", error) if issubclass(type(error), HandlerSignal) else None


def bare(error: BaseException) -> BaseException:
    """The signal in a group that holds nothing else, as a TaskGroup raises it; otherwise the error itself."""
    inner = error
    while issubclass(type(inner), BaseExceptionGroup):
        inner, *others = BaseExceptionGroup.exceptions.__get__(inner)
        if others:
            return error
    return error if signal_of(inner) is None else inner


class Late(HoldfastError):
    """The handler was told to stop, and has stopped."""

    code = "late"


class LeaseOver(HoldfastError):
    """The handler's process was ended because its lease was over: another attempt may have begun."""

    code = "lease-over"


class Misfit(HoldfastError):
    """The stored payload does not fit the handler, or its result cannot be stored: a retry would not help.

    A job with a bad payload waits until somebody fixes the handler; nothing is lost. A bad result is lost already.
    """

    code = "misfit"

    def __init__(self, fault: InvalidInput, failure: FailureKind) -> None:
        super().__init__(str(fault))
        self.fault, self.failure = fault, failure


def fit(convert: Callable[[Any], T], value: Any, failure: FailureKind) -> T:
    """Convert a payload or a result. Exceptions of the handler itself do not pass through here."""
    try:
        return convert(value)
    except InvalidInput as fault:
        raise Misfit(fault, failure) from fault


class NotBegun(HoldfastError):
    """The handler did not run: its lease was over, its beginning could not be recorded, or there was no thread.

    `delay_seconds` is how long to wait before the next try, if an immediate one would fail again.
    """

    code = "not-begun"

    def __init__(self, message: str, *, delay_seconds: float | None = None) -> None:
        super().__init__(message)
        self.delay_seconds = delay_seconds


def no_room(fault: BaseException) -> NotBegun:
    """The system had no thread or process for a handler: that is not the job's fault."""
    return NotBegun(f"its handler could not be started: {fault}", delay_seconds=START_AGAIN_SECONDS)


class ProcessDied(HoldfastError):
    """The process that ran the handler ended by itself, or could not start."""

    code = "process-died"


class RemoteFailure(HoldfastError):
    """An exception from a handler in another process: the name of its type, its message, its traceback as text."""

    code = "remote-failure"

    def __init__(self, type_name: str, message: str, traceback: str) -> None:
        super().__init__(message)
        self.type_name, self.traceback = type_name, traceback
