"""Everything Holdfast raises, as one tree.

::

    HoldfastError
    ├── ConfigError            config             the configuration is wrong; lists every fault at once
    ├── NotOpen                not-open           the app was not opened, so it has no connection
    ├── DatabaseUnavailable    unavailable        PostgreSQL could not be reached, the call may be repeated
    │   └── DatabaseBusy       unavailable        somebody else held a lock for too long, the call may be repeated
    ├── SchemaError            schema             the database's schema does not fit this release
    ├── InvalidInput           invalid            an argument is wrong; nothing was done
    │   ├── InvalidPayload     invalid-payload    a payload does not fit its job type
    │   │   └── PayloadTooLarge payload-too-large a payload is larger than PAYLOAD_MAX_BYTES
    │   └── ResultTooLarge     result-too-large   a result is larger than RESULT_MAX_BYTES
    ├── NotFound               not-found          no such job
    ├── Conflict               conflict           the request contradicts what is stored
    │   ├── KeyConflict        idempotency-key    the key belongs to a job of another type or payload
    │   ├── AlreadyFinal       already-final      the job has ended; nothing can be changed any more
    │   └── TypeClosed         type-closed        the job type takes no new jobs; says who closed it, and why
    ├── LeaseLost              lease-lost         a handler's transaction or report came too late; it was rolled back
    ├── WaitTimeout            timeout            `wait` ended before the job did
    ├── ServerUnavailable      server-unavailable the HTTP API could not be reached, the call may be repeated
    ├── Forbidden              forbidden          the HTTP API does not know the key, or it lacks a scope
    ├── LimitExceeded          limit              the key asks for more than it may, for longer than the call waits
    │   └── TooManyQueues      queues-limit       the tenant has as many queues and job types in use as it may
    └── HandlerSignal          (what a handler raises to say what is to become of its job)
        ├── Fatal              fatal              dead at once
        ├── Retry              retry              again, after the given delay
        ├── Snooze             snooze             later, without costing an attempt
        └── Hold               hold               held for a person, resumable

    Interrupted                (no Exception: raised into a handler in a process that is to stop, for its `finally`)

Codes are stable: they are the `type` of the HTTP problems and the `code` in logs.
A lost lease and a repeated idempotency key are results, not exceptions; but a handler that is about to commit
its own writes, or reports, must be stopped, by LeaseLost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from holdfast.bounds import BOUNDS, delay_of, shown

__all__ = [
    "AlreadyFinal",
    "ConfigError",
    "Conflict",
    "DatabaseBusy",
    "DatabaseUnavailable",
    "Fatal",
    "Forbidden",
    "HandlerSignal",
    "Hold",
    "HoldfastError",
    "Interrupted",
    "InvalidInput",
    "InvalidPayload",
    "KeyConflict",
    "LeaseLost",
    "LimitExceeded",
    "NotFound",
    "NotOpen",
    "PayloadTooLarge",
    "ResultTooLarge",
    "Retry",
    "SchemaError",
    "ServerUnavailable",
    "Snooze",
    "TooManyQueues",
    "TypeClosed",
    "WaitTimeout",
]


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises."""

    code: str = "error"


class ConfigError(HoldfastError):
    """The configuration is wrong."""

    code = "config"


class NotOpen(HoldfastError):
    """The app has no connection, because nobody opened it."""

    code = "not-open"


#: Why the database cannot serve: no connection could be made; one was cut; no answer came in time; it takes no
#: writes; its disk is full; it has no connection left; somebody else holds a lock; another resource is short; the
#: answer to a write was lost, so that nobody knows whether it was made; or the server does not wait for its disk.
Reason = Literal[
    "unreachable", "cut", "slow", "read-only", "disk-full", "connections", "locked", "short", "uncertain", "volatile"
]  # fmt: skip


class DatabaseUnavailable(HoldfastError):
    """PostgreSQL could not be reached, or could not do what it was asked; `reason` says which."""

    code = "unavailable"

    def __init__(self, message: str = "", *, reason: Reason = "unreachable") -> None:
        super().__init__(message)
        self.reason: Reason = reason

    @property
    def away(self) -> bool:
        """Whether the server could not be reached at all, as all parts of a process notice at about the same time."""
        return self.reason in ("unreachable", "cut")


class DatabaseBusy(DatabaseUnavailable):
    """Somebody else held a lock for too long."""

    def __init__(self, message: str = "", *, reason: Reason = "locked") -> None:
        super().__init__(message, reason=reason)


class SchemaError(HoldfastError):
    """The schema is missing, or of another version than this release needs."""

    code = "schema"


class InvalidInput(HoldfastError):
    """An argument is wrong; nothing was done."""

    code = "invalid"


class InvalidPayload(InvalidInput):
    """A payload does not fit the annotations of its job type. `faults`, where known: (JSON pointer, what is wrong)."""

    code = "invalid-payload"

    def __init__(self, message: str = "", *, faults: Sequence[tuple[str, str]] = (), position: int = 0) -> None:
        super().__init__(message)
        #: What was found, and which of several payloads it is about.
        self.faults, self.position = faults, position


class PayloadTooLarge(InvalidPayload):
    """A payload is larger than PAYLOAD_MAX_BYTES; nothing was recorded."""

    code = "payload-too-large"

    @classmethod
    def of(cls, job_type: str, size: int, most: int) -> PayloadTooLarge:
        """The error for one payload; the engine words it alike."""
        return cls(
            f"the payload of {job_type} takes {size} bytes as JSON, more than PAYLOAD_MAX_BYTES ({most}): "
            "send less, store it elsewhere and send where it is, or raise the limit"
        )


class ResultTooLarge(InvalidInput):
    """A handler's result is larger than RESULT_MAX_BYTES; it would be so again, so the job is not retried."""

    code = "result-too-large"

    @classmethod
    def of(cls, job_type: str, size: int, most: int) -> ResultTooLarge:
        """The error for one result; the engine words it alike."""
        return cls(
            f"the result of {job_type} takes {size} bytes as JSON, more than RESULT_MAX_BYTES ({most}): "
            "return less, store it elsewhere and return where it is, or raise the limit"
        )


class NotFound(HoldfastError):
    """No such job."""

    code = "not-found"


class Conflict(HoldfastError):
    """The request contradicts what is stored."""

    code = "conflict"


class KeyConflict(Conflict):
    """The idempotency key already belongs to a job of another type or payload."""

    code = "idempotency-key"


class AlreadyFinal(Conflict):
    """The job has ended; nothing about it can be changed any more."""

    code = "already-final"


class TypeClosed(Conflict):
    """An operator has closed the job type to new jobs; nothing was recorded."""

    code = "type-closed"


class LeaseLost(HoldfastError):
    """The attempt does not own its job any more, so its transaction, or report, was rolled back."""

    code = "lease-lost"


class WaitTimeout(HoldfastError):
    """The job had not ended when the time given to `wait` was over."""

    code = "timeout"


class ServerUnavailable(HoldfastError):
    """The HTTP API could not be reached, or could not serve."""

    code = "server-unavailable"


class Forbidden(HoldfastError):
    """The HTTP API does not know the key, or the key lacks a scope."""

    code = "forbidden"


class LimitExceeded(HoldfastError):
    """The key asks for more than it may."""

    code = "limit"


class TooManyQueues(LimitExceeded):
    """The tenant has as many combinations of queue and job type in use as it may (STREAMS_PER_TENANT)."""

    code = "queues-limit"


class HandlerSignal(HoldfastError):
    """What a handler raises to say what is to become of its job."""

    code = "handler"


class Fatal(HandlerSignal):
    """The job is dead at once, whatever is left of its budget."""

    code = "fatal"


class Hold(HandlerSignal):
    """The job is held in state `error` for a person, who may resume it."""

    code = "hold"


class Retry(HandlerSignal):
    """The job failed and runs again after `delay`."""

    code = "retry"

    def __init__(self, message: str = "retry requested", *, delay: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.delay_seconds = None if delay is None else _seconds("Retry", delay)


class Snooze(HandlerSignal):
    """The job runs again after `delay`; its budget is not touched."""

    code = "snooze"

    def __init__(self, delay: timedelta | float, message: str = "snoozed") -> None:
        super().__init__(message)
        self.delay_seconds = _seconds("Snooze", delay)


class Interrupted(BaseException):
    """The handler's process was told to stop: the job was canceled or paused, took too long, or the worker drains.

    Like `KeyboardInterrupt` it passes `except Exception`. Clean up and let it go on: soon after, the process is killed.
    """


def _seconds(who: str, delay: timedelta | float) -> float:
    """A delay as seconds; negative ones mean now. Out of bounds it fails the attempt, in its own words."""
    seconds = delay_of(delay)
    if seconds is None:
        raise InvalidInput(
            f"the delay of {who} must be seconds or a timedelta, {BOUNDS['delay']} s, not {shown(delay)}"
        )
    return seconds
