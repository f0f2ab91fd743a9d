"""What a handler in a child gets: the same as elsewhere, by way of the worker."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Unpack
from uuid import UUID

from holdfast.client.job_ref import JobRef
from holdfast.lifecycle.portal import immediately
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent, Options
from holdfast.model.outcome import EXCERPT_LIMIT, clean
from holdfast.model.states import State
from holdfast.store.foreign import Foreign
from holdfast.store.jobs import JobStore
from holdfast.worker.context import SyncContext
from holdfast.worker.processes.frames import Frame
from holdfast.worker.processes.interruption import Interruption

__all__ = ["ChildAttempt", "ProcessContext", "RemoteStore", "forward_lines", "set_level"]

_log = logging.getLogger("holdfast.job")


class RemoteStore:
    """Records jobs by asking the worker to. Its coroutine never waits for an event loop: it blocks."""

    def __init__(self, ask: Callable[[Frame], Frame], schema: str) -> None:
        self._ask, self._schema = ask, schema

    def over(self, conn: Any) -> JobStore:
        """A store on the handler's own connection, which needs no worker."""
        return JobStore(Foreign(conn, self._schema))

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
        answer = self._ask({"kind": "record", "intents": asked})
        return [
            Enqueued(job_id=UUID(job_id), state=State(state), outcome=outcome)
            for job_id, state, outcome in answer["answers"]
        ]


class ChildAttempt:
    """The attempt that a child runs, as the worker told it. The worker hears of it when the handler ends its job."""

    def __init__(self, order: Frame, interruption: Interruption, send: Callable[[Frame], None]) -> None:
        self._interruption, self._send = interruption, send
        self.job_id = UUID(order["job_id"])
        self.type = str(order["address"]["job_type"])
        self.attempt = int(order["attempt"])
        self.tenant = str(order["tenant"])
        self.correlation_id = str(order["correlation_id"])
        self.result: Any = None
        self._log: deque[str] = deque(maxlen=50)
        self._started = time.monotonic()
        self._ending = self._completed = False

    @property
    def told_to_stop(self) -> bool:
        """Whether the handler is to stop. It need not look: `Interrupted` is raised in the process's main thread."""
        return self._interruption.told

    @property
    def running_ms(self) -> int:
        """How long its handler has run so far."""
        return int((time.monotonic() - self._started) * 1000)

    @property
    def excerpt(self) -> str | None:
        """What is kept of the handler's log."""
        return clean("\n".join(self._log), EXCERPT_LIMIT) if self._log else None

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
        self._send({"kind": "ending", "value": value})

    @property
    def completed(self) -> bool:
        """Whether it has."""
        return self._completed

    @completed.setter
    def completed(self, value: bool) -> None:
        self._completed = value
        self._send({"kind": "completed"})


class ProcessContext(SyncContext):
    """The handler's view of its own attempt, in a child."""

    def enqueue(  # type: ignore[override]
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child, and wait for it to be recorded. With `conn`, which must block, in that transaction."""
        client = self._client if conn is None else self._client.over(conn)
        return immediately(client.enqueue(job_type, payload, **self._inherited(options)))


def forward_lines(send: Callable[[Frame], None]) -> None:
    """Have lines of `ctx.logger` sent to the worker."""
    _log.propagate = False
    _log.handlers[:] = [_Forward(send)]


def set_level(level: int) -> None:
    """Have no lines sent that the worker would not log."""
    _log.setLevel(level)


class _Forward(logging.Handler):
    def __init__(self, send: Callable[[Frame], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send({"kind": "log", "level": record.levelno, "text": self.format(record)})
