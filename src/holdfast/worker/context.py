"""What a handler gets: who it is, what it may use, whether it should stop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack
from uuid import UUID

from holdfast.client.client import Client
from holdfast.client.job_ref import JobRef
from holdfast.definitions.items import encode_cursor, encode_items
from holdfast.errors import HoldfastError, InvalidInput, LeaseLost
from holdfast.lifecycle.portal import immediately, in_loop
from holdfast.model.foreign import message_of, name_of
from holdfast.model.names import refuse_unknown
from holdfast.model.options import Options
from holdfast.model.progress import DONE_REASONS, DoneReason, Report, Reported
from holdfast.store.foreign import is_blocking
from holdfast.store.transactions import Transactions
from holdfast.worker.own_attempt import ENDED, OwnAttempt
from holdfast.worker.transaction import blocking_transaction, transaction

if TYPE_CHECKING:
    # With a default, so that a plain `Context` stays complete for strict type checkers. Python has that from 3.13 on.
    import typing_extensions

    R = typing_extensions.TypeVar("R", default=Any)
else:
    R = TypeVar("R")

__all__ = ["LOST", "Context", "SendReport", "SyncContext"]

T = TypeVar("T")
#: Stores a report: job, attempt, number of the report.
SendReport = Callable[[UUID, int, int, Report], Awaitable[Reported]]

#: Why an attempt may not enqueue any more.
LOST = "the lease is lost, and the job somebody else's: nothing is enqueued for this attempt any more"

_log = logging.getLogger("holdfast.job")


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds job and attempt to every line, and keeps the last lines for the attempt's record."""

    def __init__(self, logger: logging.Logger, extra: dict[str, object], held: OwnAttempt) -> None:
        super().__init__(logger, extra)
        self._held = held

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log one line. One that cannot be formatted says so: nobody loses a job by it."""
        if self.isEnabledFor(level):
            try:
                text = "".join([logging.LogRecord("", level, "", 0, msg, args, None).getMessage()])
            except Exception as error:  # noqa: BLE001 - arguments that do not fit, or that cannot say what they are
                text = f"(a line that cannot be formatted: {name_of(error)}: {message_of(error)})"
                msg, args = "%s", (text,)
            self._held.kept(f"{logging.getLevelName(level)} {text[:500]}")
            try:
                super().log(level, msg, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - where lines go is foreign code, too
                self._held.kept(f"(a line that could not be logged: {name_of(error)}: {message_of(error)})"[:500])


class Context(Generic[R]):
    """The handler's view of its own attempt. `Context[Resources]` tells type checkers what `ctx.resources` is."""

    def __init__(
        self,
        held: OwnAttempt,
        client: Client,
        resources: R,
        transactions: Transactions | None = None,
        *,
        send: SendReport | None = None,
    ) -> None:
        self._held = held
        self._client = client
        self._transactions = transactions
        self._send = send
        #: What the app's `lifespan` yielded, None without one.
        self.resources: R = resources

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
    def failures(self) -> int:
        """How many of the job's attempts have failed or were lost before this one; 0 the first time.

        It differs from `attempt - 1` where attempts ended that cost nothing: handed back, snoozed or paused.
        """
        return self._held.failures

    @property
    def max_attempts(self) -> int:
        """How many failures the job may have: it is in its last try when `failures + 1 == max_attempts`.

        It is what counted when the attempt began: the job's own number, else its type's, else MAX_ATTEMPTS_DEFAULT.
        """
        return self._held.max_attempts

    @property
    def traceparent(self) -> str | None:
        """The trace that the job was enqueued with, as in W3C Trace Context; None if with none."""
        return self._held.traceparent

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

    @property
    def cursor(self) -> Any:
        """Where the attempts before this one had come to: the last cursor that they stored, None if they stored none.

        It stays what it was when the attempt began.
        """
        return None if self._held.cursor is None else json.loads(self._held.cursor)

    async def items(
        self, items: Iterable[Mapping[str, Any]], *, collection: str | None = None, cursor: Any = None
    ) -> Reported:
        """Store what was found, and where to go on from, in one transaction; how the job stands then.

        An item is `{"key": "...", "data": ...}`; without a key it is known by its data. Each key is stored once in its
        collection, which is shared within the tenant; without a name it is the job's own. When the answer's
        `target_reached` is true, the job has what it was asked for: return. `LeaseLost` if somebody else has the job.
        """
        return await self._report(
            Report(items=encode_items(items), collection=collection, cursor=encode_cursor(cursor))
        )

    async def progress(self, count: int = 0, *, cursor: Any = None, done_reason: DoneReason | None = None) -> Reported:
        """Tell that so many more were dealt with, and where to go on from; how the job stands then.

        `done_reason` is shown when the job has succeeded. `LeaseLost` if somebody else has the job.
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**53:
            raise InvalidInput(f"progress is a number of things, 0 or more, not {count!r}")
        if done_reason is not None:
            refuse_unknown("done_reason", [done_reason], DONE_REASONS)
        return await self._report(Report(progress=count, cursor=encode_cursor(cursor), done_reason=done_reason))

    async def _report(self, report: Report) -> Reported:
        if self._send is None:
            raise HoldfastError("there is no worker behind this context, so no job that could report")
        self._refuse_ended()
        self._held.reports += 1
        return await self._send(self.job_id, self.attempt, self._held.reports, report)

    async def enqueue(
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child: same tenant and correlation, this job as parent. With `conn`, in that transaction.

        `LeaseLost` once the worker knows that somebody else has the job; refused to what a handler left behind.
        """
        self._refuse_ended()
        if self._held.lost:
            raise LeaseLost(LOST)
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

    def _refuse_ended(self) -> None:
        if self._held.over:
            raise HoldfastError(ENDED)

    def _own_transactions(self) -> Transactions:
        if self._transactions is None:
            raise HoldfastError("there is no worker behind this context, so no job that a transaction could complete")
        return self._transactions

    def _inherited(self, options: Options) -> Options:
        own: Options = {"parent": self.job_id, "correlation_id": self.correlation_id, "tenant": self.tenant}
        return {**own, **options}


class SyncContext(Context[R]):
    """The same for a plain `def` handler: what is awaited elsewhere blocks."""

    def __init__(
        self,
        held: OwnAttempt,
        client: Client,
        resources: R,
        loop: Callable[[], asyncio.AbstractEventLoop],
        transactions: Transactions | None = None,
        *,
        send: SendReport | None = None,
    ) -> None:
        super().__init__(held, client, resources, transactions, send=send)
        self._loop = loop

    def items(  # type: ignore[override]
        self, items: Iterable[Mapping[str, Any]], *, collection: str | None = None, cursor: Any = None
    ) -> Reported:
        """Store what was found, and where to go on from, and wait until it is stored."""
        # Made into a list in the handler's thread: foreign code may be behind it.
        return self._wait(super().items(list(items), collection=collection, cursor=cursor))

    def progress(  # type: ignore[override]
        self, count: int = 0, *, cursor: Any = None, done_reason: DoneReason | None = None
    ) -> Reported:
        """Tell how far the job has come, and wait until it is stored."""
        return self._wait(super().progress(count, cursor=cursor, done_reason=done_reason))

    def enqueue(  # type: ignore[override]
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child, and wait for it to be recorded."""
        blocking = conn is not None and is_blocking(conn)
        call = super().enqueue(job_type, payload, conn=conn, **options)
        if blocking:
            return immediately(call)
        return self._wait(call)

    def transaction(self, conn: Any = None) -> AbstractContextManager[Any]:  # type: ignore[override]
        """As for coroutines, but blocking: `with ctx.transaction() as conn: conn.execute(...)`."""
        return blocking_transaction(self._held, self._own_transactions(), conn, self._loop)

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        return in_loop(call, self._loop())
