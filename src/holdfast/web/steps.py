"""The event loop's time, shared among tenants: many requests of one tenant do not keep the others waiting.

A request runs in steps, from one wait (for the database, the body, a turn) to the next. All steps of all requests run
in one thread, one after the other, so forty busy callers of one tenant would be forty steps ahead of all others.

1. In each round of the loop a tenant may take one step at once, and more as long as the round is short. Its further
   steps wait in line, in their order, and tenants take turns.
2. While somebody is about who asks for little, a tenant has at most a share of the loop's time: the rest stays free,
   so that a light caller finds the loop, the connections and the processor idle more often than not. Among tenants
   that all ask for much, and for a tenant alone, no time is left unused.
3. Until its key is known to be a tenant's, a request counts for the address that it comes from.
4. Long computations say where others may get a turn: `await asyncio.sleep(0)`.
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
#: How long the steps of a round may take, with several tenants and with only one.
_ROUND_SECONDS, _LONG_ROUND_SECONDS = 0.00025, 0.002
#: A tenant is alone after this time without another one.
_ALONE_SECONDS = 1.0
#: The share of the loop's time that a tenant's steps may take beside a light caller; how much it can save, and owe.
_SHARE, _SAVED_SECONDS, _OWED_SECONDS = 0.25, 0.02, 0.005
#: How long a light caller counts after its latest request.
_ABOUT_SECONDS = 1.0
#: How long a tenant rests that has used its share up; the loop's timers are no finer.
_REST_SECONDS = 0.001
#: The weight of the latest step in the average length of a step.
_WEIGHT = 0.1
_REMEMBERED = 10_000
#: What the name of a party begins with that is an address; no tenant's name does.
_NO_TENANT = " "


class _Account:
    """The loop's time that a party may still use, beside light callers."""

    __slots__ = ("_at", "_seconds", "crowded_until")

    def __init__(self, now: float) -> None:
        self._seconds, self._at = _SAVED_SECONDS, now
        self.crowded_until = float("-inf")

    def left(self, now: float) -> float:
        """How many seconds are left; negative if it has used more than its share."""
        self._seconds = min(_SAVED_SECONDS, self._seconds + _SHARE * (now - self._at))
        self._at = now
        return self._seconds

    def use(self, seconds: float) -> None:
        """A step took so long."""
        self._seconds = max(self._seconds - seconds, -_OWED_SECONDS)


class Steps:
    """The steps of all requests of one app."""

    def __init__(self) -> None:
        self._waiters = Waiters[None]()
        self._served: set[str] = set()
        self._used = self._usual = 0.0
        self._round: asyncio.Handle | None = None
        self._latest, self._alone_from = "", float("-inf")
        self._accounts: dict[str, _Account] = {}
        self._light_until = float("-inf")
        self._tenants: dict[bytes, str] = {}

    def party(self, scope: Scope) -> str:
        """The party that a request counts for until its tenant is known."""
        key = _key(scope)
        tenant = self._tenants.get(key) if key else None
        if tenant is not None:
            return tenant
        client = scope.get("client")
        return f"{_NO_TENANT}{client[0]}" if client else _NO_TENANT

    def remember(self, scope: Scope, tenant: str) -> None:
        """The request belongs to this tenant, and so do later ones with the same key."""
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
        first = party not in self._waiters
        self._look(party, first, loop.time())
        if first and (self._used < self._enough or party not in self._served) and self._may(party):
            self._served.add(party)
            return None
        return self._waiters.join(party)

    def _look(self, party: str, first: bool, now: float) -> None:
        """Note who is a crowd, and whether a tenant that is none is about. Probes of `/livez` are nobody's."""
        account = self._account(party, now)
        if not first:
            account.crowded_until = now + _ABOUT_SECONDS
        elif account.crowded_until < now and not party.startswith(_NO_TENANT):
            self._light_until = now + _ABOUT_SECONDS

    def _account(self, party: str, now: float) -> _Account:
        account = self._accounts.get(party)
        if account is None:
            if len(self._accounts) >= _REMEMBERED:
                self._accounts.clear()
            account = self._accounts[party] = _Account(now)
        return account

    def _may(self, party: str) -> bool:
        """Whether it has not used its share up, or nobody is about to whom that matters."""
        now = asyncio.get_running_loop().time()
        account = self._account(party, now)
        return now > self._light_until or account.crowded_until < now or account.left(now) > 0

    @property
    def _enough(self) -> float:
        alone = asyncio.get_running_loop().time() > self._alone_from
        return _LONG_ROUND_SECONDS if alone else _ROUND_SECONDS

    def took(self, party: str, seconds: float) -> None:
        """A step of this party was taken."""
        if account := self._accounts.get(party):
            account.use(seconds)
        self._used += seconds
        self._usual += _WEIGHT * (seconds - self._usual)

    def _begin_round(self) -> None:
        self._served.clear()
        self._used, ahead = 0.0, 0.0
        parties = len(self._waiters)
        while (parties > 0 or ahead < self._enough) and (waiting := self._waiters.next(self._may)):
            party, turn = waiting
            turn.set_result(None)
            self._served.add(party)
            parties -= 1
            ahead += self._usual
        loop = asyncio.get_running_loop()
        if not self._waiters:
            self._round = None
        elif self._served:
            self._round = loop.call_soon(self._begin_round)
        else:
            self._round = loop.call_later(_REST_SECONDS, self._begin_round)


class Paced(Generic[T]):
    """Awaits a coroutine, and takes a turn before each of its steps."""

    def __init__(self, work: Coroutine[Any, Any, T], steps: Steps, party: str) -> None:
        self._work, self._steps, self.party = work, steps, party

    @property
    def tenant(self) -> str | None:
        """Whose request it is, as far as that is known."""
        return None if self.party.startswith(_NO_TENANT) else self.party

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
            self._steps.took(self.party, time.perf_counter() - began)


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
