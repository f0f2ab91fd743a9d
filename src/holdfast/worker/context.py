"""What a handler gets: who it is, what it may use, whether it should stop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import UUID

from holdfast.client.client import Client
from holdfast.client.job_ref import JobRef
from holdfast.worker.held import Held

__all__ = ["Context", "ThreadContext"]

_log = logging.getLogger("holdfast.job")


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds job and attempt to every line, and keeps the last lines for the attempt's record."""

    def __init__(self, logger: logging.Logger, extra: dict[str, object], held: Held) -> None:
        super().__init__(logger, extra)
        self._held = held

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log one line."""
        if self.isEnabledFor(level):
            text = str(msg) % args if args else str(msg)
            self._held.log.append(f"{logging.getLevelName(level)} {text[:500]}")
            super().log(level, msg, *args, **kwargs)


class Context:
    """The handler's view of its own attempt."""

    def __init__(self, held: Held, client: Client, resources: Any) -> None:
        self._held = held
        self._client = client
        #: What the app's `lifespan` yielded.
        self.resources = resources

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self._held.claim.job_id

    @property
    def type(self) -> str:
        """The job's type."""
        return self._held.claim.stream.type

    @property
    def attempt(self) -> int:
        """The number of this attempt: larger than any before, so it serves as a fence for others, too."""
        return self._held.claim.attempt

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self._held.claim.stream.tenant

    @property
    def correlation_id(self) -> str:
        """What ties this job to those that it comes from and leads to."""
        return self._held.claim.correlation_id

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: canceled, paused, timed out, or the worker drains.

        A handler in a thread that has seen this be true and returns has stopped, not finished: its job is
        canceled, paused, handed back or timed out, as it was told. To finish all the same, do not look.
        """
        self._held.noticed = self._held.stopped.is_set()
        return self._held.noticed

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines name the job; the last of them are kept with the attempt."""
        return _JobLogger(_log, {"job_id": str(self.job_id), "attempt": self.attempt}, self._held)

    async def enqueue(self, job_type: str, payload: Any = None, **options: Any) -> JobRef:
        """Record a child: same tenant and correlation, this job as parent."""
        return await self._client.enqueue(job_type, payload, **self._inherited(options))

    def _inherited(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "parent": self.job_id,
            "correlation_id": self.correlation_id,
            "tenant": self.tenant,
            **options,
        }


class ThreadContext(Context):
    """The same for a handler in a thread: `enqueue` blocks instead of being awaited."""

    def __init__(self, held: Held, client: Client, resources: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(held, client, resources)
        self._loop = loop

    def enqueue(self, job_type: str, payload: Any = None, **options: Any) -> JobRef:  # type: ignore[override]
        """Record a child, and wait for it to be recorded."""
        call = self._client.enqueue(job_type, payload, **self._inherited(options))
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
