"""`ctx.transaction()`: what a handler writes and the end of its job commit together, or neither does.

From the moment the completion is sent until the transaction has ended, the attempt is not interrupted and not
missed by the lease keeper: its lease goes with that very commit. If the commit's answer is lost, nothing is
guessed: the handler fails, and the settlement of that failure finds out what the database says.

A transaction ends with its handler. One that is still open then, because its block was never left or because a task or
thread that the handler left behind is in it, is rolled back, and the handler has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from holdfast.definitions.payload import encode_result
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.lifecycle.portal import immediately, in_loop
from holdfast.store.foreign import is_blocking
from holdfast.store.transactions import Transactions
from holdfast.worker.endings import Misfit
from holdfast.worker.own_attempt import OwnAttempt

__all__ = ["BlockingConnection", "blocking_transaction", "refuse_open", "transaction"]

T = TypeVar("T")
Wait = Callable[[Coroutine[Any, Any, Any]], Any]


@asynccontextmanager
async def transaction(held: OwnAttempt, transactions: Transactions, conn: Any) -> AsyncIterator[Any]:
    """A transaction whose commit completes the job of this attempt."""
    if held.over:
        raise HoldfastError("the handler of this attempt has ended; no transaction can begin for it any more")
    if held.completed:
        raise HoldfastError("this job was completed by an earlier transaction")
    if held.transacting:
        raise HoldfastError("a transaction that completes this job is open already")
    held.transacting = True
    try:
        async with transactions.begin(conn) as lent:
            if conn is None:
                held.cut_transaction = lent.terminate
            yield lent
            if held.over:
                raise HoldfastError("the handler of this attempt has ended; nothing is committed for it any more")
            held.ending = True
            try:
                result = encode_result(held.result, held.type, transactions.result_limit())
                await transactions.complete(
                    lent,
                    held.job_id,
                    held.attempt,
                    result=result,
                    duration_ms=held.running_ms,
                    excerpt=held.excerpt,
                )
            except InvalidInput as fault:
                raise Misfit(fault, "fatal") from fault
        held.completed = True
    finally:
        held.transacting = False
        held.cut_transaction = None
        if not held.completed:
            held.ending = False


def refuse_open(held: OwnAttempt) -> None:
    """Raise if a handler that has returned left its transaction open: what it wrote there is not committed."""
    if held.transacting:
        raise HoldfastError("the handler returned while its transaction was open; it is rolled back")


@contextmanager
def blocking_transaction(
    held: OwnAttempt, transactions: Transactions, conn: Any, loop: Callable[[], asyncio.AbstractEventLoop]
) -> Iterator[Any]:
    """The same for a handler in a thread. A connection of its own it uses itself; ours lives in the event loop."""
    if conn is not None and not is_blocking(conn):
        raise InvalidInput("this handler does not run in the event loop that the connection belongs to")

    def patiently(work: Coroutine[Any, Any, T]) -> T:
        return in_loop(work, loop())

    wait: Wait = patiently if conn is None else immediately
    block = transaction(held, transactions, conn)
    lent = wait(_entered(block))
    try:
        yield BlockingConnection(lent, patiently) if conn is None else lent
    except GeneratorExit:
        # Nobody has left the block, and nobody will: it is collected, in any thread, the event loop's own perhaps.
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
    """A connection in the event loop, for a handler in a thread: the usual verbs of asyncpg, which block here."""

    def __init__(self, conn: Any, wait: Wait) -> None:
        self._conn, self._wait = conn, wait

    def execute(self, query: str, *arguments: Any) -> str:
        """Run a statement; what PostgreSQL says of it."""
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
