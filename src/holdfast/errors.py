"""Every exception that Holdfast raises, as one tree.

::

    HoldfastError
    ├── ConfigError            config             the configuration is wrong; lists every fault at once
    ├── NotOpen                not-open           the app is not open, so it has no connection
    ├── DatabaseUnavailable    unavailable        PostgreSQL could not be reached; the call may be repeated
    │   └── DatabaseBusy       unavailable        another session held a lock for too long; the call may be repeated
    ├── SchemaError            schema             the database's schema is not that of this release
    ├── InvalidInput           invalid            an argument is not valid; nothing was done
    │   ├── InvalidPayload     invalid-payload    a payload does not fit its job type
    │   │   └── PayloadTooLarge payload-too-large a payload is larger than PAYLOAD_MAX_BYTES
    │   └── ResultTooLarge     result-too-large   a result is larger than RESULT_MAX_BYTES
    ├── NotFound               not-found          there is no such job
    ├── Conflict               conflict           the request conflicts with what is stored
    │   ├── KeyConflict        idempotency-key    the key belongs to a job with another type or payload
    │   ├── AlreadyFinal       already-final      the job has ended and can no longer be changed
    │   └── TypeClosed         type-closed        the job type is closed to new jobs; says who closed it, and why
    ├── LeaseLost              lease-lost         the attempt no longer owns its job; its writes were rolled back
    ├── WaitTimeout            timeout            the job had not ended when `wait` timed out
    ├── ServerUnavailable      server-unavailable the HTTP API could not be reached; the call may be repeated
    ├── Forbidden              forbidden          the API key is not valid, or it lacks a scope
    ├── LimitExceeded          limit              the API key is over one of its limits, for longer than the call waits
    │   ├── TooManyQueues      queues-limit       the tenant uses too many queues and job types
    │   └── TooManySchedules   schedules-limit    the tenant has too many schedules
    └── HandlerSignal          (raised by a handler to decide what becomes of its job)
        ├── Fatal              fatal              the job is dead at once
        ├── Retry              retry              the job is retried after the given delay
        ├── Snooze             snooze             the job runs again later, at no cost
        │   └── CircuitOpen    circuit-open       a circuit is open: the job runs again when it is tried, at no cost
        └── Hold               hold               the job is held for a person, who may resume it

    Interrupted                (not an Exception: raised in a process handler that has to stop, so that it can clean up)

Codes are stable: they are the `type` of HTTP problems and the `code` in logs.
A lost lease and a repeated idempotency key are results, not exceptions. The exception is a handler that is about to
commit its own writes, or that reports: LeaseLost stops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, Self

from holdfast.bounds import BOUNDS, delay_of, shown

__all__ = [
    "AlreadyFinal",
    "CircuitOpen",
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
    "TooManySchedules",
    "TypeClosed",
    "WaitTimeout",
]


class HoldfastError(Exception):
    """The base class of all exceptions that Holdfast raises."""

    code: str = "error"


class ConfigError(HoldfastError):
    """The configuration is not valid; the message lists every fault."""

    code = "config"


class NotOpen(HoldfastError):
    """The app is not open, so it has no connection."""

    code = "not-open"


#: Why the database cannot serve: no connection could be made; one was cut; no answer came in time; it does not accept
#: writes; its disk is full; it has no connection left; another session holds a lock; another resource is short; the
#: answer to a write was lost, so that it is not known whether it was made; or the server does not wait for its disk.
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
        """Whether the server could not be reached at all. All parts of a process notice this at about the same time."""
        return self.reason in ("unreachable", "cut")


class DatabaseBusy(DatabaseUnavailable):
    """Another session held a lock for too long."""

    def __init__(self, message: str = "", *, reason: Reason = "locked") -> None:
        super().__init__(message, reason=reason)


class SchemaError(HoldfastError):
    """The schema is missing, or has another version than this release needs."""

    code = "schema"


class InvalidInput(HoldfastError):
    """An argument is not valid; nothing was done."""

    code = "invalid"
    #: Where it stands in the request, as a JSON pointer, if that is known.
    pointer: str | None = None


class InvalidPayload(InvalidInput):
    """A payload does not match its job type. `faults`, if known, has pairs of a JSON pointer and the fault there."""

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
    """A handler's result is larger than RESULT_MAX_BYTES. A retry would give the same, so the job is dead."""

    code = "result-too-large"

    @classmethod
    def of(cls, job_type: str, size: int, most: int) -> ResultTooLarge:
        """The error for one result; the engine words it alike."""
        return cls(
            f"the result of {job_type} takes {size} bytes as JSON, more than RESULT_MAX_BYTES ({most}): "
            "return less, store it elsewhere and return where it is, or raise the limit"
        )


class NotFound(HoldfastError):
    """There is no such job."""

    code = "not-found"


class Conflict(HoldfastError):
    """The request conflicts with what is stored."""

    code = "conflict"


class KeyConflict(Conflict):
    """The idempotency key already belongs to a job with another type or payload."""

    code = "idempotency-key"


class AlreadyFinal(Conflict):
    """The job has ended and can no longer be changed."""

    code = "already-final"


class TypeClosed(Conflict):
    """An operator has closed the job type to new jobs; nothing was recorded."""

    code = "type-closed"


class LeaseLost(HoldfastError):
    """The attempt no longer owns its job, so its transaction or report was rolled back."""

    code = "lease-lost"


class WaitTimeout(HoldfastError):
    """The job had not ended when `wait` timed out."""

    code = "timeout"


class ServerUnavailable(HoldfastError):
    """The HTTP API could not be reached, or could not answer."""

    code = "server-unavailable"


class Forbidden(HoldfastError):
    """The API key is not valid, or it lacks a scope."""

    code = "forbidden"


class LimitExceeded(HoldfastError):
    """The API key is over one of its limits."""

    code = "limit"


class TooManyQueues(LimitExceeded):
    """The tenant uses as many combinations of queue and job type as it may (STREAMS_PER_TENANT)."""

    code = "queues-limit"


class TooManySchedules(LimitExceeded):
    """The tenant has as many schedules as it may (SCHEDULES_PER_TENANT)."""

    code = "schedules-limit"


class HandlerSignal(HoldfastError):
    """The base class of what a handler raises to decide what becomes of its job."""

    code = "handler"
    #: How long the job is to wait, if the handler said so.
    delay_seconds: float | None = None

    @classmethod
    def passed_on(cls, message: str, delay_seconds: float | None) -> Self:
        """The same signal as another process raised, whatever its class takes as arguments."""
        signal = cls.__new__(cls, message)
        signal.delay_seconds = delay_seconds
        return signal


class Fatal(HandlerSignal):
    """The job is dead at once, even if it has attempts left."""

    code = "fatal"


class Hold(HandlerSignal):
    """The job is held in the state `error` for a person, who may resume it."""

    code = "hold"


class Retry(HandlerSignal):
    """The job failed and runs again after `delay`."""

    code = "retry"

    def __init__(self, message: str = "retry requested", *, delay: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.delay_seconds = None if delay is None else _seconds("Retry", delay)


class Snooze(HandlerSignal):
    """The job runs again after `delay`; this costs no attempt."""

    code = "snooze"

    def __init__(self, delay: timedelta | float, message: str = "snoozed") -> None:
        super().__init__(message)
        self.delay_seconds = _seconds("Snooze", delay)


class CircuitOpen(Snooze):
    """The circuit breaker of a service is open, so the call was not made.

    Uncaught, it puts the job off until the service is tried again.
    """

    code = "circuit-open"
    #: The name of the circuit.
    circuit: str = ""

    def __init__(self, circuit: str, delay: timedelta | float = 0) -> None:
        super().__init__(delay, f'the circuit "{circuit}" is open')
        self.circuit = circuit


class Interrupted(BaseException):
    """The handler's process has to stop: the job was canceled or paused, took too long, or the worker drains.

    Like `KeyboardInterrupt`, it is not caught by `except Exception`. Clean up and do not stop it: the process is killed
    soon after.
    """


def _seconds(who: str, delay: timedelta | float) -> float:
    """A delay as seconds; negative ones mean now. Out of bounds it fails the attempt, in its own words."""
    seconds = delay_of(delay)
    if seconds is None:
        raise InvalidInput(
            f"the delay of {who} must be seconds or a timedelta, {BOUNDS['delay']} s, not {shown(delay)}"
        )
    return seconds
