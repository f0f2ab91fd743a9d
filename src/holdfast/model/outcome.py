"""How an attempt ended, by named constructors: nobody fills in the fields of a transition by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.model.foreign import described, message_of, name_of

__all__ = [
    "COSTS_ATTEMPT",
    "EXCERPT_LIMIT",
    "MESSAGE_LIMIT",
    "TRACEBACK_LIMIT",
    "FailureKind",
    "Kind",
    "Outcome",
    "clean",
]

Kind = Literal["success", "failed", "timeout", "snoozed", "released", "canceled", "paused"]
FailureKind = Literal["retryable", "retry", "fatal", "hold"]

#: Outcomes that count against the attempts of a job. The engine decides by `costs_attempt`; a test proves them equal.
COSTS_ATTEMPT = frozenset({"failed", "timeout", "lost"})

#: What is kept of messages and tracebacks; more than this helps nobody.
NAME_LIMIT = 200
MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 20_000
EXCERPT_LIMIT = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What happened to one attempt. What becomes of the job is the engine's to decide."""

    kind: Kind
    result: str | None = None
    failure: FailureKind = "retryable"
    error_type: str | None = None
    message: str | None = None
    traceback: str | None = None
    delay_seconds: float | None = None
    #: The circuit that was open, if the job is put off for that reason.
    circuit: str | None = None

    @classmethod
    def success(cls, result: str | None) -> Outcome:
        """The handler returned; `result` is JSON text."""
        return cls(kind="success", result=result)

    @classmethod
    def failed(
        cls,
        error: BaseException,
        *,
        failure: FailureKind = "retryable",
        delay_seconds: float | None = None,
        error_type: str | None = None,
        traceback: str | None = None,
    ) -> Outcome:
        """The handler raised; in another process, if type and traceback are given as text."""
        error_type = clean(error_type or name_of(error), NAME_LIMIT)
        message, traceback = (message_of(error), traceback) if traceback else described(error)
        return cls(
            kind="failed",
            failure=failure,
            error_type=error_type,
            message=clean(message or error_type, MESSAGE_LIMIT),
            traceback=clean(traceback, TRACEBACK_LIMIT),
            delay_seconds=delay_seconds,
        )

    @classmethod
    def refused(cls, fault: str) -> Outcome:
        """The database does not take what the handler came to; it would not take it again either."""
        message = clean(fault, MESSAGE_LIMIT)
        return cls(kind="failed", failure="fatal", error_type="SettlementRefused", message=message)

    @property
    def weight(self) -> int:
        """How many characters there are to send."""
        return sum(map(len, filter(None, (self.result, self.message, self.traceback))))

    @classmethod
    def failed_by_operator(cls) -> Outcome:
        """An operator has failed or killed the job; the engine has the words, and knows which."""
        return cls(kind="failed", error_type="FailedByOperator", message="an operator failed or killed the job")

    @classmethod
    def timed_out(cls, seconds: float) -> Outcome:
        """The handler took longer than it may."""
        return cls(kind="timeout", error_type="Timeout", message=f"the handler ran longer than {seconds:g} s")

    @classmethod
    def snoozed(cls, delay_seconds: float, reason: str, *, circuit: str | None = None) -> Outcome:
        """The handler wants to run later, or the circuit that it needs is open."""
        return cls(kind="snoozed", delay_seconds=delay_seconds, message=clean(reason, MESSAGE_LIMIT), circuit=circuit)

    @classmethod
    def handed_back(cls, reason: str) -> Outcome:
        """The job was not run, or not to its end, and is handed back."""
        return cls(kind="released", message=reason)

    @classmethod
    def canceled(cls, reason: str) -> Outcome:
        """The handler ended because the job was canceled."""
        return cls(kind="canceled", message=reason)

    @classmethod
    def paused(cls, reason: str) -> Outcome:
        """The handler ended because the job was paused, or its worker drained."""
        return cls(kind="paused", message=reason)


def clean(text: str, limit: int) -> str:
    """Text that PostgreSQL takes: no NUL, no lone surrogates, bounded."""
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    return text if len(text) <= limit else f"{text[: limit // 2]}\n…\n{text[-limit // 2 :]}"
