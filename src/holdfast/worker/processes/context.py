"""The context of a handler in a child process: the same as elsewhere, served by the worker."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Unpack
from uuid import UUID

from holdfast.client.job_ref import JobRef
from holdfast.errors import CircuitOpen, HoldfastError
from holdfast.model.circuit import Circuit, Ending
from holdfast.model.job import Enqueued, HandlerFacts
from holdfast.model.options import Intent, Options
from holdfast.model.outcome import EXCERPT_LIMIT, TRACEBACK_LIMIT, clean
from holdfast.model.progress import Report, Reported
from holdfast.model.states import State
from holdfast.store.disk import DiskWatch
from holdfast.store.jobs import JobStore, Recorder
from holdfast.worker.claimed import whole_ms
from holdfast.worker.context import SendReport, SyncContext
from holdfast.worker.own_attempt import OwnAttempt
from holdfast.worker.processes.frames import Frame
from holdfast.worker.processes.interruption import Interruption
from holdfast.worker.processes.line import Line

__all__ = ["ChildAttempt", "ProcessContext", "RemoteBreaker", "forward_lines", "remote_store", "reporting", "set_level"]

_log = logging.getLogger("holdfast.job")


def remote_store(ask: Callable[[Frame], Awaitable[Frame]], schema: str) -> JobStore:
    """A store that asks the worker to record jobs. It can also record on the handler's own connection; nothing else."""
    return JobStore(_NoSession(schema), recorder=_Remote(ask))


class _Remote(Recorder):
    """The worker, which records jobs for its child."""

    def __init__(self, ask: Callable[[Frame], Awaitable[Frame]]) -> None:
        self._ask = ask

    async def enqueue(self, intents: Sequence[Intent]) -> list[Enqueued]:
        """Record intents, in order."""
        asked = [
            {
                "id": str(intent.id),
                "type": intent.type,
                "payload": intent.payload,
                "options": dict(intent.options),
                "tenant": intent.tenant,
                "created_by": intent.created_by,
            }
            for intent in intents
        ]
        answer = await self._ask({"kind": "record", "intents": asked})
        return [
            Enqueued(job_id=UUID(job_id), state=State(state), outcome=outcome)
            for job_id, state, outcome in answer["answers"]
        ]


def reporting(ask: Callable[[Frame], Awaitable[Frame]]) -> SendReport:
    """A function that asks the worker to store reports. The worker knows to which attempt they belong."""

    async def send(_job_id: UUID, _attempt: int, seq: int, report: Report) -> Reported:
        answer = await ask({"kind": "report", "seq": seq, "report": dataclasses.asdict(report)})
        return Reported(**answer["reported"])

    return send


class RemoteBreaker:
    """The worker's circuit breakers, for its child."""

    def __init__(self, ask: Callable[[Frame], Awaitable[Frame]], declared: Iterable[Circuit]) -> None:
        self._ask = ask
        self._declared = {circuit.name: circuit for circuit in declared}

    def policy(self, name: str) -> Circuit | None:
        """What a job type declares about a circuit."""
        return self._declared.get(name)

    async def enter(self, _attempt: OwnAttempt, circuit: Circuit) -> int:
        """Begin a call. Raises CircuitOpen if it may not be made now."""
        asked = {"name": circuit.name, "policy": circuit.policy, "per_tenant": circuit.per_tenant}
        answer = await self._ask({"kind": "enter circuit", **asked})
        if "delay_seconds" in answer:
            raise CircuitOpen(circuit.name, delay=answer["delay_seconds"])
        return int(answer["call"])

    async def leave(self, call: int, ending: Ending, error: str | None = None) -> CircuitOpen | None:
        """End a call. The answer is what the job should wait for instead of failing."""
        answer = await self._ask({"kind": "leave circuit", "call": call, "ending": ending, "error": error})
        if "delay_seconds" not in answer:
            return None
        return CircuitOpen(answer["circuit"], delay=answer["delay_seconds"])


class _NoSession:
    """Holds the schema, for stores on other connections."""

    inside_transaction = False

    def __init__(self, schema: str) -> None:
        self.schema, self.disk = schema, DiskWatch(None)

    async def rows(self, statement: str, *_arguments: Any) -> list[Any]:
        raise HoldfastError(f"{statement} needs a connection, and a handler's process has none for it: use `hf.sync`")


class ChildAttempt:
    """The attempt that a child runs, as the worker described it. The worker is told when the handler ends its job."""

    def __init__(self, order: Frame, interruption: Interruption, line: Line) -> None:
        self._interruption, self.line = interruption, line
        self.order = int(order["order"])
        self.job_id = UUID(order["job_id"])
        self.type = str(order["address"]["job_type"])
        self.attempt = int(order["attempt"])
        self.facts = HandlerFacts(**order["facts"])
        self.reports = 0
        self.lost = False  # the worker knows it, and answers accordingly
        self.result: Any = None
        self._log: deque[str] = deque(maxlen=50)
        self._started = time.monotonic()
        self.cut_transaction: Callable[[], None] | None = None  # the whole process ends instead
        #: Whether its handler has changed the process in a way that would affect the next one.
        self.left = False
        self.transacting = self._ending = self._completed = self._in_doubt = self.over = False

    @property
    def told_to_stop(self) -> bool:
        """Whether the handler should stop. It need not check: `Interrupted` is raised in the process's main thread."""
        return self._interruption.told

    @property
    def running_ms(self) -> int:
        """How long its handler has run so far."""
        return whole_ms(time.monotonic() - self._started)

    @property
    def excerpt(self) -> str | None:
        """The stored part of the handler's log."""
        return clean("\n".join(self._log), EXCERPT_LIMIT) if self._log else None

    def ended(self) -> bool:
        """Note that its handler has ended. Returns whether a thread that it left behind has a transaction open."""
        self.over = True
        return self.transacting

    def kept(self, line: str) -> None:
        """Keep a line that the handler logged; the worker keeps it, too."""
        self._log.append(line)

    @property
    def ending(self) -> bool:
        """Whether the handler's own transaction is about to end the job."""
        return self._ending

    @ending.setter
    def ending(self, value: bool) -> None:
        self._ending = value
        self.line.say(self.order, {"kind": "ending", "value": value})

    @property
    def completed(self) -> bool:
        """Whether the handler's own transaction has ended the job."""
        return self._completed

    @completed.setter
    def completed(self, value: bool) -> None:
        self._completed = value
        self.line.say(self.order, {"kind": "completed"})

    @property
    def in_doubt(self) -> bool:
        """Whether the commit that would have ended the job failed, perhaps only on its way back."""
        return self._in_doubt

    @in_doubt.setter
    def in_doubt(self, value: bool) -> None:
        self._in_doubt = value
        self.line.say(self.order, {"kind": "in doubt"})


class ProcessContext(SyncContext):
    """The handler's view of its own attempt, in a child. Calls that wait do so in the child's event loop."""

    _claimed: ChildAttempt

    def enqueue(  # type: ignore[override]
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child, and wait for it to be recorded."""
        if conn is None:
            self._claimed.line.check()
        return super().enqueue(job_type, payload, conn=conn, **options)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines name the job; the last of them are kept with the attempt."""
        logger = super().logger
        logger.extra = {**(logger.extra or {}), "order": self._claimed.order}
        return logger

    def transaction(self, conn: Any = None) -> AbstractContextManager[Any]:  # type: ignore[override]
        """As for handlers in threads: `with ctx.transaction() as conn: conn.execute(...)`."""
        self._claimed.line.check()
        return super().transaction(conn)


def forward_lines(line: Line) -> None:
    """Send lines of `ctx.logger` to the worker. In a forked copy of this process they are logged as usual."""
    _log.propagate = False
    _log.handlers[:] = [_Forward(line)]
    os.register_at_fork(after_in_child=_stay_here)


def set_level(level: int) -> None:
    """Send only lines that the worker would log."""
    _log.setLevel(level)


def _stay_here() -> None:
    _log.propagate = True
    _log.handlers.clear()


class _Forward(logging.Handler):
    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        order = getattr(record, "order", self._line.current)
        if order is not None:
            text = clean(self.format(record), TRACEBACK_LIMIT)
            self._line.say(order, {"kind": "log", "level": record.levelno, "text": text})
