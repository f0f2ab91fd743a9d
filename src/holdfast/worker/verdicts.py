"""Decides how an attempt has ended when its handler did not simply return."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import cast

from holdfast.errors import CircuitOpen, Fatal, Hold, InvalidInput, Retry, Snooze
from holdfast.model.outcome import FailureKind, Outcome
from holdfast.worker.claimed import Claimed, Interrupt
from holdfast.worker.endings import Late, NotBegun, RemoteFailure, bare, signal_of

__all__ = ["DRAINED", "STRUCK", "Verdicts", "canceled", "not_begun"]

#: A snooze that is shorter lasts this much longer with each attempt that cost nothing, up to the longest.
_SHORT_SECONDS, _FLOOR_SECONDS, _LONGEST_FLOOR_SECONDS = 0.1, 0.01, 1.0

#: The text that earlier systems and their users know.
DRAINED = "Job was interrupted by user"

#: For a task that was canceled, but not by us, after it had run other handlers.
STRUCK = Outcome.handed_back("its task was canceled, perhaps by what another job had left behind")


class Verdicts:
    """The outcomes of attempts that were interrupted, ran for too long, or raised an error."""

    def __init__(self, pauses_drained: Callable[[Claimed], bool]) -> None:
        self._pauses_drained = pauses_drained

    def unfinished(self, claimed: Claimed, error: BaseException, timeout: float | None) -> Outcome:
        """The outcome of a handler that did not return."""
        if issubclass(type(error), Late):
            return self.interrupted(claimed) or Outcome.timed_out(timeout or 0)
        if issubclass(type(error), asyncio.CancelledError):
            return self.interrupted(claimed) or canceled(claimed, error, timeout)
        # After its timeout, nothing that it raises can make the attempt free.
        return Outcome.timed_out(timeout or 0) if claimed.timed_out else self.raised(claimed, error)

    def given_up(self, claimed: Claimed, timeout: float) -> Outcome:
        """The outcome of a handler in a thread that does not return, once its process has been replaced."""
        return self.interrupted(claimed) or Outcome.timed_out(timeout)

    def raised(self, claimed: Claimed, error: BaseException) -> Outcome:
        """The outcome of a handler that raised this error."""
        error = bare(error)
        match signal_of(error):
            case Hold():
                return _failed(claimed, error, failure="hold")
            case CircuitOpen(delay_seconds=float(delay), circuit=circuit):
                delay = _unhurried(claimed, delay)
                return self.interrupted(claimed) or Outcome.snoozed(delay, str(error), circuit=circuit or None)
            case Snooze(delay_seconds=float(delay)):
                reason = _failed(claimed, error).message
                return self.interrupted(claimed) or Outcome.snoozed(_unhurried(claimed, delay), reason or "")
            case Snooze():
                told = f"{type(error).__name__} has no delay: its __init__ must call that of Snooze"
                return self.interrupted(claimed) or _failed(claimed, InvalidInput(told))
            case Fatal():
                return _failed(claimed, error, failure="fatal")
            case Retry(delay_seconds=delay):
                return self.interrupted(claimed) or _failed(claimed, error, failure="retry", delay_seconds=delay)
            case _:
                return self.interrupted(claimed) or _failed(claimed, error)

    def interrupted(self, claimed: Claimed) -> Outcome | None:
        """The outcome of a handler that was told to stop; None if it was not, or had timed out before.

        A worker that drains because of a stuck handler must not make its attempt free: it would run again without end.
        """
        return None if claimed.interrupt is None or claimed.timed_out else self.stopped(claimed, claimed.interrupt)

    def stopped(self, claimed: Claimed, why: Interrupt) -> Outcome:
        """The outcome of a handler that was told to stop for this reason."""
        match why:
            case "cancel":
                return Outcome.canceled("canceled while running")
            case "pause":
                return Outcome.paused(DRAINED)
            case "drain" if self._pauses_drained(claimed):
                return Outcome.paused(DRAINED)
            case "drain":
                return Outcome.handed_back("the worker drained")
            case "lease":
                return Outcome.handed_back("the lease could not be renewed")


def _unhurried(claimed: Claimed, delay: float) -> float:
    """The delay of a snooze: short ones become longer each time, or a job could spin at no cost and never end."""
    free = max(0, claimed.claim.attempt - claimed.claim.failures - 1)
    return max(delay, min(_LONGEST_FLOOR_SECONDS, free * _FLOOR_SECONDS)) if delay < _SHORT_SECONDS else delay


def not_begun(fault: NotBegun) -> Outcome:
    """The outcome of a handler that could not be started."""
    if fault.delay_seconds is None:
        return Outcome.handed_back(str(fault))
    return Outcome.snoozed(fault.delay_seconds, str(fault))


def canceled(claimed: Claimed, error: BaseException, timeout: float | None) -> Outcome:
    """The outcome of a handler whose task was canceled without a request."""
    if claimed.late:
        return Outcome.timed_out(timeout or 0)
    return STRUCK if claimed.shares_task else Outcome.failed(error)


def _failed(
    claimed: Claimed, error: BaseException, *, failure: FailureKind = "retryable", delay_seconds: float | None = None
) -> Outcome:
    """The outcome for an exception that the handler raised here, in a thread or in another process."""
    if claimed.described is not None and claimed.described[0] is error:
        outcome: Outcome = claimed.described[1]
        return dataclasses.replace(outcome, failure=failure, delay_seconds=delay_seconds)
    signal = signal_of(error)
    source = error if signal is None else signal.__cause__
    if not issubclass(type(source), RemoteFailure):
        return Outcome.failed(error, failure=failure, delay_seconds=delay_seconds)
    remote = cast("RemoteFailure", source)
    return Outcome.failed(
        error,
        failure=failure,
        delay_seconds=delay_seconds,
        error_type=remote.type_name,
        traceback=remote.traceback,
    )
