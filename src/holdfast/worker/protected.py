"""`ctx.circuit(...)`: a block of a handler that calls a service through a circuit breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol

from holdfast.errors import CircuitOpen
from holdfast.lifecycle.portal import in_loop
from holdfast.model.circuit import Circuit, Ending
from holdfast.model.foreign import message_of, name_of
from holdfast.model.outcome import clean
from holdfast.worker.endings import bare
from holdfast.worker.own_attempt import OwnAttempt

__all__ = ["Breaker", "Protected", "blocking"]

_ERROR_LIMIT = 1000


class Breaker(Protocol):
    """Who says whether a call may be made: the worker's `Circuits`, or in a child process the worker from afar."""

    async def enter(self, attempt: OwnAttempt, circuit: Circuit, /) -> Any: ...  # noqa: D102 - see Circuits
    async def leave(self, call: Any, ending: Ending, error: str | None = None, /) -> CircuitOpen | None: ...  # noqa: D102 - see Circuits
    def policy(self, name: str, /) -> Circuit | None: ...  # noqa: D102 - see Circuits


class Protected:
    """One call of a service. Without a breaker (in tests without a worker) it lets everything through."""

    def __init__(self, breaker: Breaker | None, attempt: OwnAttempt, circuit: Circuit) -> None:
        self._breaker, self._attempt, self._circuit = breaker, attempt, circuit
        self._call: Any = None

    async def __aenter__(self) -> None:
        if self._breaker is not None:
            self._call = await self._breaker.enter(self._attempt, self._circuit)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._breaker is None:
            return
        ending = self._circuit.ending(None if error is None else bare(error))
        if ending == "neither" and getattr(self._attempt, "timed_out", False):
            ending = "failure"
        told = None
        if error is not None:
            told = clean(f"{name_of(error)}: {message_of(error)}", _ERROR_LIMIT)
        refusal = await self._breaker.leave(self._call, ending, told)
        if refusal is not None and isinstance(error, Exception):
            raise refusal from error


@contextmanager
def blocking(block: Protected, loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[None]:
    """The same for a handler in a thread or a process of its own."""

    def wait(work: Coroutine[Any, Any, None]) -> None:
        in_loop(work, loop())

    wait(block.__aenter__())
    try:
        yield
    except GeneratorExit:
        # Never left: it is being garbage-collected, in any thread. The call ends with its attempt.
        raise
    except BaseException as error:
        wait(block.__aexit__(type(error), error, error.__traceback__))
        raise
    else:
        wait(block.__aexit__(None, None, None))
