"""The context of a handler: which job it runs, what it may use, whether it should stop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack
from uuid import UUID

from holdfast.client.client import Client
from holdfast.client.job_ref import JobRef
from holdfast.definitions.items import encode_cursor, encode_items
from holdfast.errors import HoldfastError, InvalidInput, LeaseLost
from holdfast.lifecycle.portal import immediately, in_loop
from holdfast.model.circuit import Circuit, Policy
from holdfast.model.foreign import message_of, name_of
from holdfast.model.names import refuse_unknown
from holdfast.model.options import Options
from holdfast.model.progress import DONE_REASONS, DoneReason, Report, Reported
from holdfast.store.foreign import is_blocking
from holdfast.store.transactions import Transactions
from holdfast.worker.own_attempt import ENDED, OwnAttempt
from holdfast.worker.protected import Breaker, Protected, blocking
from holdfast.worker.transaction import JobTransaction, blocking_transaction

if TYPE_CHECKING:
    # With a default, so that a plain `Context` is complete for strict type checkers. Python has that from 3.13 on.
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

    def __init__(self, logger: logging.Logger, extra: dict[str, object], claimed: OwnAttempt) -> None:
        super().__init__(logger, extra)
        self._claimed = claimed

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log one line. If it cannot be formatted, the line says so: the job must not fail because of it."""
        if self.isEnabledFor(level):
            try:
                text = "".join([logging.LogRecord("", level, "", 0, msg, args, None).getMessage()])
            except Exception as error:  # noqa: BLE001 - arguments that do not fit, or that cannot say what they are
                text = f"(a line that cannot be formatted: {name_of(error)}: {message_of(error)})"
                msg, args = "%s", (text,)
            self._claimed.kept(f"{logging.getLevelName(level)} {text[:500]}")
            try:
                super().log(level, msg, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - where lines go is foreign code, too
                self._claimed.kept(f"(a line that could not be logged: {name_of(error)}: {message_of(error)})"[:500])


class Context(Generic[R]):
    """The handler's view of its own attempt. `Context[Resources]` tells type checkers what `ctx.resources` is."""

    def __init__(
        self,
        claimed: OwnAttempt,
        client: Client,
        resources: R,
        transactions: Transactions | None = None,
        *,
        send: SendReport | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._claimed = claimed
        self._client = client
        self._transactions = transactions
        self._send = send
        self._breaker = breaker
        #: What the app's `lifespan` yielded, None without one.
        self.resources: R = resources

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self._claimed.job_id

    @property
    def type(self) -> str:
        """The job's type."""
        return self._claimed.type

    @property
    def attempt(self) -> int:
        """The number of this attempt. It is larger than any before, so you can use it as a fence elsewhere."""
        return self._claimed.attempt

    @property
    def failures(self) -> int:
        """How many attempts before this one failed or were lost; 0 for the first attempt.

        Attempts that cost nothing (handed back, snoozed, paused) count in `attempt`, but not here.
        """
        return self._claimed.facts.failures

    @property
    def max_attempts(self) -> int:
        """How many failures the job may have. This is its last attempt if `failures + 1 == max_attempts`.

        The number is the one when the attempt began: the job's own, else its type's, else MAX_ATTEMPTS_DEFAULT.
        """
        return self._claimed.facts.max_attempts

    @property
    def traceparent(self) -> str | None:
        """The trace that the job was enqueued with, as in W3C Trace Context, or None."""
        return self._claimed.facts.traceparent

    @property
    def tenant(self) -> str:
        """The job's tenant."""
        return self._claimed.facts.tenant

    @property
    def correlation_id(self) -> str:
        """The id that this job shares with related jobs, such as its parent and children."""
        return self._claimed.facts.correlation_id

    @property
    def canceled(self) -> bool:
        """Whether the handler should stop: canceled, paused, timed out, or the worker drains.

        If a handler in a thread has read True here and then returns, it counts as stopped, not as finished: its job
        is canceled, paused, handed back or timed out. A handler that wants to finish must not read this.
        """
        return self._claimed.told_to_stop

    @property
    def cancelled(self) -> bool:
        """The same as `canceled`, in British spelling."""
        return self.canceled

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines name the job. The last lines are stored with the attempt."""
        return _JobLogger(_log, {"job_id": str(self.job_id), "attempt": self.attempt}, self._claimed)

    @property
    def result(self) -> Any:
        """The job's result if the handler returns none. `transaction` stores it when it completes the job."""
        return self._claimed.result

    @result.setter
    def result(self, value: Any) -> None:
        self._claimed.result = value

    @property
    def cursor(self) -> Any:
        """The last cursor that earlier attempts stored, or None.

        It does not change during the attempt.
        """
        cursor = self._claimed.facts.cursor
        return None if cursor is None else json.loads(cursor)

    async def items(
        self, items: Iterable[Mapping[str, Any]], *, collection: str | None = None, cursor: Any = None
    ) -> Reported:
        """Store items and a cursor in one transaction; returns the progress of the job.

        An item is `{"key": "...", "data": ...}`; without a key it is identified by its data. Each key is stored once in
        its collection. A named collection is shared within the tenant; without a name it is the job's own. If
        `target_reached` is true, the job has enough items and the handler should return. Raises `LeaseLost` if another
        worker has the job.
        """
        return await self._report(
            Report(items=encode_items(items), collection=collection, cursor=encode_cursor(cursor))
        )

    async def progress(self, count: int = 0, *, cursor: Any = None, done_reason: DoneReason | None = None) -> Reported:
        """Add to the job's progress count, and store a cursor; returns the progress of the job.

        `done_reason` is shown when the job has succeeded. Raises `LeaseLost` if another worker has the job.
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**53:
            raise InvalidInput(f"progress must be a whole number, 0 or more, not {count!r}")
        if done_reason is not None:
            refuse_unknown("done_reason", [done_reason], DONE_REASONS)
        return await self._report(Report(progress=count, cursor=encode_cursor(cursor), done_reason=done_reason))

    async def _report(self, report: Report) -> Reported:
        if self._send is None:
            raise HoldfastError("this context has no worker, so there is no job that could report")
        self._refuse_ended()
        self._claimed.reports += 1
        return await self._send(self.job_id, self.attempt, self._claimed.reports, report)

    async def enqueue(
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child: same tenant and correlation id, this job as parent. With `conn`, in that transaction.

        Raises `LeaseLost` once the worker knows that another worker has the job, and in tasks or threads that the
        handler left behind.
        """
        self._refuse_ended()
        if self._claimed.lost:
            raise LeaseLost(LOST)
        client = self._client if conn is None else self._client.over(conn)
        return await client.enqueue(job_type, payload, **self._inherited(options))

    def transaction(self, conn: Any = None) -> AbstractAsyncContextManager[Any]:
        """A transaction whose commit completes this job: its writes and the job's success are stored together.

        Without `conn`, it uses one of Holdfast's own connections (asyncpg), with the login's own rights. With your own
        connection or session, everything that it has done since its last commit is part of the transaction. It is
        committed at the end of the block. After an error, or if another worker has the job by now (`LeaseLost`), it is
        rolled back. Set `ctx.result` within the block to store a result.
        """
        return JobTransaction(self._claimed, self._own_transactions(), conn)

    def circuit(self, circuit: Circuit | str, **policy: Unpack[Policy]) -> AbstractAsyncContextManager[None]:
        """Call a service within this block: `async with ctx.circuit("email-service", failure_threshold=5): ...`.

        Exceptions that leave the block are failures of the service; what `policy` may say is described at `Circuit`.
        While the circuit is open, entering the block raises `CircuitOpen`, which puts the job off at no cost. So does
        leaving it with a failure, if the circuit is open by then; `__cause__` is that failure.
        """
        return self._protected(circuit, policy)

    def _protected(self, circuit: Circuit | str, policy: Policy) -> Protected:
        self._refuse_ended()
        if isinstance(circuit, Circuit):
            return Protected(self._breaker, self._claimed, replace(circuit, **policy))
        declared = None if self._breaker is None else self._breaker.policy(circuit)
        asked = Circuit(circuit, **policy) if declared is None else replace(declared, **policy)
        return Protected(self._breaker, self._claimed, asked)

    def _refuse_ended(self) -> None:
        if self._claimed.over:
            raise HoldfastError(ENDED)

    def _own_transactions(self) -> Transactions:
        if self._transactions is None:
            raise HoldfastError("this context has no worker, so there is no job that a transaction could complete")
        return self._transactions

    def _inherited(self, options: Options) -> Options:
        own: Options = {"parent": self.job_id, "correlation_id": self.correlation_id, "tenant": self.tenant}
        return {**own, **options}


class SyncContext(Context[R]):
    """The context of a plain `def` handler: its methods block."""

    def __init__(
        self,
        claimed: OwnAttempt,
        client: Client,
        resources: R,
        loop: Callable[[], asyncio.AbstractEventLoop],
        transactions: Transactions | None = None,
        *,
        send: SendReport | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        super().__init__(claimed, client, resources, transactions, send=send, breaker=breaker)
        self._loop = loop

    def items(  # type: ignore[override]
        self, items: Iterable[Mapping[str, Any]], *, collection: str | None = None, cursor: Any = None
    ) -> Reported:
        """Store items and a cursor, and wait until they are stored."""
        # Converted to a list in the handler's thread: iterating may run foreign code.
        return self._wait(super().items(list(items), collection=collection, cursor=cursor))

    def progress(  # type: ignore[override]
        self, count: int = 0, *, cursor: Any = None, done_reason: DoneReason | None = None
    ) -> Reported:
        """Report progress, and wait until it is stored."""
        return self._wait(super().progress(count, cursor=cursor, done_reason=done_reason))

    def enqueue(  # type: ignore[override]
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child, and wait until it is recorded."""
        blocking = conn is not None and is_blocking(conn)
        call = super().enqueue(job_type, payload, conn=conn, **options)
        if blocking:
            return immediately(call)
        return self._wait(call)

    def transaction(self, conn: Any = None) -> AbstractContextManager[Any]:  # type: ignore[override]
        """The same as for coroutines, but blocking: `with ctx.transaction() as conn: conn.execute(...)`."""
        return blocking_transaction(self._claimed, self._own_transactions(), conn, self._loop)

    def circuit(  # type: ignore[override]
        self, circuit: Circuit | str, **policy: Unpack[Policy]
    ) -> AbstractContextManager[None]:
        """The same as for coroutines, but blocking: `with ctx.circuit("email-service"): ...`."""
        return blocking(self._protected(circuit, policy), self._loop)

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        return in_loop(call, self._loop())
