"""`ctx.transaction()`: a handler's writes and the end of its job commit together, or neither does.

From the moment the completion is sent until the transaction has ended, the attempt is not interrupted, and the lease
keeper does not take its lease for lost: the lease ends with that very commit. If the answer to the commit is lost,
nothing is guessed: the handler fails, it is not called again in this attempt, and the settlement of that failure learns
the truth from the database.

A transaction ends with its handler. One that is still open then, because its block was never left or because a task or
thread that the handler left behind is in it, is rolled back, and the handler has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from holdfast.definitions.json_text import encode_result
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.lifecycle.portal import immediately, in_loop
from holdfast.store.foreign import is_blocking
from holdfast.store.transactions import Transactions
from holdfast.worker.endings import Misfit
from holdfast.worker.own_attempt import OwnAttempt

__all__ = ["BlockingConnection", "JobTransaction", "blocking_transaction", "refuse_open"]

T = TypeVar("T")
Wait = Callable[[Coroutine[Any, Any, Any]], Any]


class JobTransaction:
    """A transaction whose commit completes the job of this attempt.

    A block that is never left is rolled back when Python collects it, which may be before the handler returns. It stays
    open as far as its attempt is concerned, so that the handler fails all the same.
    """

    def __init__(self, claimed: OwnAttempt, transactions: Transactions, conn: Any) -> None:
        self._claimed = claimed
        self._block = _completing(claimed, transactions, conn)

    async def __aenter__(self) -> Any:
        claimed = self._claimed
        if claimed.over:
            raise HoldfastError("the handler of this attempt has ended; it can no longer begin a transaction")
        if claimed.completed:
            raise HoldfastError("this job was completed by an earlier transaction")
        if claimed.transacting:
            raise HoldfastError("a transaction that completes this job is already open")
        claimed.transacting = True
        try:
            return await self._block.__aenter__()
        except BaseException:
            claimed.transacting = False
            raise

    async def __aexit__(self, *error: Any) -> bool | None:
        try:
            return await self._block.__aexit__(*error)
        finally:
            self._claimed.transacting = False


@asynccontextmanager
async def _completing(claimed: OwnAttempt, transactions: Transactions, conn: Any) -> AsyncIterator[Any]:
    sent = False
    try:
        async with transactions.begin(conn) as lent:
            if conn is None:
                claimed.cut_transaction = lent.terminate
            mark = await transactions.mark(lent)
            yield lent
            if claimed.over:
                raise HoldfastError("the handler of this attempt has ended; nothing can be committed for it")
            claimed.ending = True
            try:
                result = encode_result(claimed.result, claimed.type, transactions.result_limit())
                await transactions.complete(
                    lent,
                    claimed.job_id,
                    claimed.attempt,
                    mark=mark,
                    result=result,
                    duration_ms=claimed.running_ms,
                    excerpt=claimed.excerpt,
                )
            except InvalidInput as fault:
                raise Misfit(fault, "fatal") from fault
            sent = True
        claimed.completed = True
    finally:
        claimed.cut_transaction = None
        if sent and not claimed.completed:
            claimed.in_doubt = True
        if not claimed.completed:
            claimed.ending = False


def refuse_open(claimed: OwnAttempt) -> None:
    """Raise if a handler that has returned left its transaction open: its writes are not committed."""
    if claimed.transacting:
        raise HoldfastError("the handler returned while its transaction was open; it is rolled back")


@contextmanager
def blocking_transaction(
    claimed: OwnAttempt, transactions: Transactions, conn: Any, loop: Callable[[], asyncio.AbstractEventLoop]
) -> Iterator[Any]:
    """The same for a handler in a thread. It uses its own connection directly; ours lives in the event loop."""
    if conn is not None and not is_blocking(conn):
        raise InvalidInput("this handler does not run in the event loop that the connection belongs to")

    def patiently(work: Coroutine[Any, Any, T]) -> T:
        return in_loop(work, loop())

    wait: Wait = patiently if conn is None else immediately
    block = JobTransaction(claimed, transactions, conn)
    lent = wait(_entered(block))
    try:
        yield BlockingConnection(lent, patiently) if conn is None else lent
    except GeneratorExit:
        # The block was never left: it is being garbage-collected, in any thread, perhaps the event loop's own.
        raise
    except BaseException as error:
        if not wait(_left(block, error)):
            raise
    else:
        wait(_left(block, None))


async def _entered(block: Any) -> Any:
    return await block.__aenter__()


async def _left(block: Any, error: BaseException | None) -> bool:
    return bool(await block.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None))


class BlockingConnection:
    """A connection in the event loop, for a handler in a thread: the usual methods of asyncpg, which block here."""

    def __init__(self, conn: Any, wait: Wait) -> None:
        self._conn, self._wait = conn, wait

    def execute(self, query: str, *arguments: Any) -> str:
        """Run a statement. Returns PostgreSQL's status text."""
        return str(self._wait(self._conn.execute(query, *arguments)))

    def executemany(self, query: str, arguments: Any) -> None:
        """Run a statement once for each set of arguments."""
        self._wait(self._conn.executemany(query, arguments))

    def fetch(self, query: str, *arguments: Any) -> list[Any]:
        """All rows."""
        return list(self._wait(self._conn.fetch(query, *arguments)))

    def fetchrow(self, query: str, *arguments: Any) -> Any:
        """The first row, or None."""
        return self._wait(self._conn.fetchrow(query, *arguments))

    def fetchval(self, query: str, *arguments: Any) -> Any:
        """The first value of the first row, or None."""
        return self._wait(self._conn.fetchval(query, *arguments))
