"""What a handler gets: who it is, what it may use, whether it should stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Unpack
from uuid import UUID

from holdfast.client.client import Client
from holdfast.client.job_ref import JobRef
from holdfast.errors import HoldfastError
from holdfast.lifecycle.portal import immediately
from holdfast.model.options import Options
from holdfast.store.foreign import is_blocking
from holdfast.store.transactions import Transactions
from holdfast.worker.own_attempt import OwnAttempt
from holdfast.worker.transaction import blocking_transaction, transaction

__all__ = ["Context", "SyncContext"]

_log = logging.getLogger("holdfast.job")


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds job and attempt to every line, and keeps the last lines for the attempt's record."""

    def __init__(self, logger: logging.Logger, extra: dict[str, object], held: OwnAttempt) -> None:
        super().__init__(logger, extra)
        self._held = held

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log one line."""
        if self.isEnabledFor(level):
            text = logging.LogRecord("", level, "", 0, msg, args, None).getMessage()
            self._held.kept(f"{logging.getLevelName(level)} {text[:500]}")
            super().log(level, msg, *args, **kwargs)


class Context:
    """The handler's view of its own attempt."""

    def __init__(
        self, held: OwnAttempt, client: Client, resources: Any, transactions: Transactions | None = None
    ) -> None:
        self._held = held
        self._client = client
        self._transactions = transactions
        #: What the app's `lifespan` yielded.
        self.resources = resources

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self._held.job_id

    @property
    def type(self) -> str:
        """The job's type."""
        return self._held.type

    @property
    def attempt(self) -> int:
        """The number of this attempt: larger than any before, so it serves as a fence for others, too."""
        return self._held.attempt

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self._held.tenant

    @property
    def correlation_id(self) -> str:
        """What ties this job to those that it comes from and leads to."""
        return self._held.correlation_id

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: canceled, paused, timed out, or the worker drains.

        A handler in a thread that has seen this be true and returns has stopped, not finished: its job is
        canceled, paused, handed back or timed out, as it was told. To finish all the same, do not look.
        """
        return self._held.told_to_stop

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines name the job; the last of them are kept with the attempt."""
        return _JobLogger(_log, {"job_id": str(self.job_id), "attempt": self.attempt}, self._held)

    @property
    def result(self) -> Any:
        """The job's result where the handler returns none; `transaction` stores it when it completes the job."""
        return self._held.result

    @result.setter
    def result(self, value: Any) -> None:
        self._held.result = value

    async def enqueue(
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child: same tenant and correlation, this job as parent. With `conn`, in that transaction."""
        client = self._client if conn is None else self._client.over(conn)
        return await client.enqueue(job_type, payload, **self._inherited(options))

    def transaction(self, conn: Any = None) -> AbstractAsyncContextManager[Any]:
        """A transaction whose commit completes this job: what is written in it and the job's success are one.

        Without `conn`, it is on a connection of Holdfast's own (asyncpg), under the login's own rights. With a
        connection or session of yours, all that it has done since its last commit is part of it. At the end of
        the block it is committed; after an error, or when the job belongs to somebody else by now (`LeaseLost`),
        it is rolled back. Set `ctx.result` within the block to store a result.
        """
        return transaction(self._held, self._own_transactions(), conn)

    def _own_transactions(self) -> Transactions:
        if self._transactions is None:
            raise HoldfastError("there is no worker behind this context, so no job that a transaction could complete")
        return self._transactions

    def _inherited(self, options: Options) -> Options:
        own: Options = {"parent": self.job_id, "correlation_id": self.correlation_id, "tenant": self.tenant}
        return {**own, **options}


class SyncContext(Context):
    """The same for a plain `def` handler: `enqueue` and `transaction` block instead of being awaited."""

    def __init__(
        self,
        held: OwnAttempt,
        client: Client,
        resources: Any,
        loop: Callable[[], asyncio.AbstractEventLoop],
        transactions: Transactions | None = None,
    ) -> None:
        super().__init__(held, client, resources, transactions)
        self._loop = loop

    def enqueue(  # type: ignore[override]
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child, and wait for it to be recorded."""
        blocking = conn is not None and is_blocking(conn)
        call = super().enqueue(job_type, payload, conn=conn, **options)
        if blocking:
            return immediately(call)
        return asyncio.run_coroutine_threadsafe(call, self._loop()).result()

    def transaction(self, conn: Any = None) -> AbstractContextManager[Any]:  # type: ignore[override]
        """As for coroutines, but blocking: `with ctx.transaction() as conn: conn.execute(...)`."""
        return blocking_transaction(self._held, self._own_transactions(), conn, self._loop)
