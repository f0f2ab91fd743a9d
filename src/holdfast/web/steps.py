"""The event loop's time, shared among tenants: what one of them asks for at once does not keep the others waiting.

A request goes on in steps: from one wait (for the database, the body, a turn) to the next. All steps of all requests
run in one thread, one after the other, so that forty busy callers of one tenant would be forty steps ahead of
everybody else.

1. In each round of the loop a tenant may take one step at once, and more as long as the round is short. Its further
   steps stand in line, in their order, and tenants take turns.
2. Until its key is known to be a tenant's, a request counts for the address that it comes from.
3. What takes long says where others may have a turn: `await asyncio.sleep(0)`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.lifecycle.waiters import Waiters

__all__ = ["Paced", "Steps", "StepsMiddleware"]

T = TypeVar("T")
#: A round in which steps took so long is long enough. Where only one tenant is about, nobody waits for it to end.
_ROUND_SECONDS, _LONG_ROUND_SECONDS = 0.00025, 0.002
#: For how long no other must have come.
_ALONE_SECONDS = 1.0
#: How much the latest step counts in the usual length of one.
_WEIGHT = 0.1
_REMEMBERED = 10_000


class Steps:
    """Of all requests of one app."""

    def __init__(self) -> None:
        self._waiters = Waiters[None]()
        self._served: set[str] = set()
        self._used = self._usual = 0.0
        self._round: asyncio.Handle | None = None
        self._latest, self._alone_from = "", float("-inf")
        self._tenants: dict[bytes, str] = {}

    def party(self, scope: Scope) -> str:
        """Who the request counts for until it is known whose it is."""
        key = _key(scope)
        tenant = self._tenants.get(key) if key else None
        if tenant is not None:
            return tenant
        client = scope.get("client")
        return f" {client[0]}" if client else " "  # no tenant's name begins with a space

    def remember(self, scope: Scope, tenant: str) -> None:
        """The request is this tenant's, and so are those that come with the same key."""
        scope["steps"].party = tenant
        key = _key(scope)
        if key and self._tenants.get(key) != tenant:
            if len(self._tenants) >= _REMEMBERED:
                self._tenants.clear()
            self._tenants[key] = tenant

    def turn(self, party: str) -> asyncio.Future[None] | None:
        """What to wait for before the next step; None if it may be taken at once."""
        loop = asyncio.get_running_loop()
        if self._round is None:
            self._round = loop.call_soon(self._begin_round)
        if party != self._latest:
            self._latest, self._alone_from = party, loop.time() + _ALONE_SECONDS
        if party not in self._waiters and (self._used < self._enough or party not in self._served):
            self._served.add(party)
            return None
        return self._waiters.join(party)

    @property
    def _enough(self) -> float:
        alone = asyncio.get_running_loop().time() > self._alone_from
        return _LONG_ROUND_SECONDS if alone else _ROUND_SECONDS

    def took(self, seconds: float) -> None:
        """A step was taken."""
        self._used += seconds
        self._usual += _WEIGHT * (seconds - self._usual)

    def _begin_round(self) -> None:
        self._served.clear()
        self._used, ahead = 0.0, 0.0
        parties = len(self._waiters)
        while (parties > 0 or ahead < self._enough) and (waiting := self._waiters.next()):
            party, turn = waiting
            turn.set_result(None)
            self._served.add(party)
            parties -= 1
            ahead += self._usual
        self._round = asyncio.get_running_loop().call_soon(self._begin_round) if self._waiters else None


class Paced(Generic[T]):
    """Awaits a coroutine, and takes a turn before each of its steps."""

    def __init__(self, work: Coroutine[Any, Any, T], steps: Steps, party: str) -> None:
        self._work, self._steps, self.party = work, steps, party

    def __await__(self) -> Generator[Any, Any, T]:
        """Step by step, as a task would."""
        fault: BaseException | None = None
        try:
            while True:
                if fault is None and (turn := self._steps.turn(self.party)):
                    try:
                        yield from turn
                    except BaseException as thrown:  # noqa: BLE001 - canceled while it waited; the request is told
                        fault = thrown
                try:
                    awaited = self._step(fault)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                try:
                    fault = yield awaited
                except BaseException as thrown:  # noqa: BLE001 - it is the request's
                    fault = thrown
        finally:
            fault = None  # its traceback refers to this frame

    def _step(self, fault: BaseException | None) -> Any:
        began = time.perf_counter()
        try:
            return self._work.send(None) if fault is None else self._work.throw(fault)
        finally:
            self._steps.took(time.perf_counter() - began)


class StepsMiddleware:
    """Around every request."""

    def __init__(self, app: ASGIApp, steps: Steps) -> None:
        self._app, self._steps = app, steps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        work = cast("Coroutine[Any, Any, None]", self._app(scope, receive, send))
        paced = scope["steps"] = Paced(work, self._steps, self._steps.party(scope))
        await paced


def _key(scope: Scope) -> bytes:
    return next((value for name, value in scope["headers"] if name == b"authorization"), b"")
