"""The event loop's time, shared among tenants: many requests of one tenant do not keep the others waiting.

A request runs in steps, from one wait (for the database, the body, a turn) to the next. All steps of all requests run
in one thread, one after the other, so forty busy callers of one tenant would be forty steps ahead of all others.

1. In each round of the loop a tenant may take one step at once, and more as long as the round is short. Its further
   steps wait in line, in their order, and tenants take turns.
2. While somebody is about who asks for little, a tenant has at most a share of the loop's time: the rest stays free,
   so that a light caller finds the loop, the connections and the processor idle more often than not. Among tenants
   that all ask for much, and for a tenant alone, no time is left unused.
3. Until its key is known to be a tenant's, a request is a stranger's. All strangers together are one party, however
   many addresses they come from; within it, addresses take turns, and requests that have begun go before most others.
   While a tenant is about, strangers have a smaller share than a tenant.
4. A request with what may be a key (an applicant's) does not wait in line until it is known whether it is one: keys
   are looked up together, which costs less than to accept a connection. Then it is a tenant's, or a stranger's.
   Only if the database does not answer, applicants have a line and a small share of their own.
5. A visitor, whose token is good for the events of one job, is not its tenant: all visitors together are one party
   with a small share, and within it tokens take turns. One token too often is refused before the framework begins.
6. Probes (`/livez`, `/readyz`) have a line and a small share of their own, too. The first probe of a connection does
   not wait at all.
7. A stranger whose connection has ended leaves its line at once.
8. Long computations say where others may get a turn: `await asyncio.sleep(0)`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.lifecycle.waiters import Waiters
from holdfast.model.key import EventsToken
from holdfast.model.provenance import speaker
from holdfast.web.problems import Problem
from holdfast.web.proofs import key_field, proof_in
from holdfast.web.standing import Standing, standing_of

__all__ = ["Paced", "Steps", "StepsMiddleware"]

T = TypeVar("T")
TenantOf = Callable[[str | EventsToken], Awaitable[str | None]]
#: How long the steps of a round may take, with several tenants and with only one.
_ROUND_SECONDS, _LONG_ROUND_SECONDS = 0.00025, 0.002
#: A tenant is alone after this time without another one.
_ALONE_SECONDS = 1.0
#: The share of the loop's time that a tenant's steps may take beside a light caller; how much it can save, and owe.
_SHARE, _SAVED_SECONDS, _OWED_SECONDS = 0.25, 0.02, 0.005
#: How long a tenant counts, as a light caller or at all, after its latest request.
_ABOUT_SECONDS = 1.0
#: How long a tenant rests that has used its share up; the loop's timers are no finer.
_REST_SECONDS = 0.001
#: The weight of the latest step in the average length of a step.
_WEIGHT = 0.1
_REMEMBERED = 10_000
#: No tenant's name begins with a space.
_STRANGERS, _APPLICANTS, _VISITORS, _PROBES = " strangers", " applicants", " visitors", " probes"
#: The share of all of them together while any tenant is about. Probes cost little, and have to be answered in a second;
#: so does somebody with a key that is new here.
_NO_TENANTS = {_STRANGERS: 0.1, _APPLICANTS: 0.2, _VISITORS: 0.1, _PROBES: 0.2}
_PROBED = frozenset({"/livez", "/readyz"})
#: After this time without an answer about its key, a request goes on: its route finds out what is wrong.
_LOOK_UP_SECONDS = 2.0


class _Account:
    """The loop's time that a party may still use, beside light callers; for strangers, beside tenants."""

    __slots__ = ("_at", "_seconds", "_share", "crowded_until")

    def __init__(self, now: float, share: float) -> None:
        self._seconds, self._at, self._share = _SAVED_SECONDS, now, share
        self.crowded_until = float("-inf")

    def left(self, now: float) -> float:
        """How many seconds are left; negative if it has used more than its share."""
        self._seconds = min(_SAVED_SECONDS, self._seconds + self._share * (now - self._at))
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
        self._resting = False  # whether the next round begins later, because nobody in line may go on now
        self._latest, self._alone_from = "", float("-inf")
        self._accounts: dict[str, _Account] = {}
        self._light_until = self._tenants_until = float("-inf")
        self._tenants: dict[bytes, str] = {}
        self._keyless: str | None = None  # the tenant of callers without a key, while those are let in

    def party(self, scope: Scope) -> str:
        """The party that a request counts for until its tenant is known."""
        if scope["path"].removeprefix(scope.get("root_path", "")) in _PROBED:
            return _PROBES
        key = key_field(scope)
        tenant = self._tenants.get(key) if key else self._keyless
        if tenant is not None:
            return tenant
        return _STRANGERS if proof_in(scope) is None else _APPLICANTS

    def knows(self, key: bytes) -> bool:
        """Whether a caller was let in with this field."""
        return key in self._tenants

    def is_visitors(self, scope: Scope) -> bool:
        """Whether its token was looked up, and counted."""
        return bool(scope["steps"].party == _VISITORS)

    def remember(self, scope: Scope, tenant: str, *, keyless: bool = False, visitor: bool = False) -> None:
        """The request belongs to this tenant, and so do later ones with the same key; or without one (`keyless`).

        A visitor of the tenant takes none of its time and places. A problem if there is no place for the connection.
        """
        if visitor:
            scope["steps"].party, scope["steps"].tenant = _VISITORS, _visitors_of(tenant)
            if not standing_of(scope).know(_visitors_of(tenant)):
                raise _crowded()
            return
        scope["steps"].party = scope["steps"].tenant = tenant
        key = key_field(scope)
        if keyless and not key:
            self._keyless = tenant
        if key and self._tenants.get(key) != tenant:
            if len(self._tenants) >= _REMEMBERED:
                self._tenants.clear()
            self._tenants[key] = tenant
        if not standing_of(scope).know(tenant):
            raise _crowded()

    def forget(self, scope: Scope) -> None:
        """The key of this request, or the lack of one, makes nobody a caller."""
        standing_of(scope).doubt()
        if key := key_field(scope):
            self._tenants.pop(key, None)
        else:
            self._keyless = None

    def turn(self, party: str, address: str = "", *, begun: bool = False) -> asyncio.Future[None] | None:
        """What to wait for before the first step, or (`begun`) a later one; None if it may be taken at once."""
        loop = asyncio.get_running_loop()
        if self._round is None:
            self._round = loop.call_soon(self._begin_round)
        if party != self._latest or party in _NO_TENANTS:  # whom strangers keep waiting may not even be accepted yet
            self._latest, self._alone_from = party, loop.time() + _ALONE_SECONDS
        first = party not in self._waiters
        self._look(party, first, loop.time())
        if first and (self._used < self._enough or party not in self._served) and self._may(party):
            self._served.add(party)
            return None
        if self._resting and self._may(party):  # the others rest: it does not wait for them
            self._resting = False
            self._round.cancel()
            self._round = loop.call_soon(self._begin_round)
        if party in _NO_TENANTS:
            return self._waiters.join(party, address, again=begun)
        return self._waiters.join(party)

    def leave(self, turn: asyncio.Future[None], party: str, address: str) -> None:
        """Somebody in line has given up."""
        self._waiters.leave(turn, party, address if party in _NO_TENANTS else "")
        if not turn.done():
            turn.set_result(None)

    def _look(self, party: str, first: bool, now: float) -> None:
        """Note whether a tenant is about, who is a crowd, and whether a tenant that is none is about."""
        if party in _NO_TENANTS:
            return
        self._tenants_until = now + _ABOUT_SECONDS
        account = self._account(party, now)
        if not first:
            account.crowded_until = now + _ABOUT_SECONDS
        elif account.crowded_until < now:
            self._light_until = now + _ABOUT_SECONDS

    def _account(self, party: str, now: float) -> _Account:
        account = self._accounts.get(party)
        if account is None:
            if len(self._accounts) >= _REMEMBERED:
                self._accounts.clear()
            account = self._accounts[party] = _Account(now, _NO_TENANTS.get(party, _SHARE))
        return account

    def _may(self, party: str) -> bool:
        """Whether it has not used its share up, or nobody is about to whom that matters."""
        now = asyncio.get_running_loop().time()
        account = self._account(party, now)
        if party in _NO_TENANTS:
            return now > self._tenants_until or account.left(now) > 0
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
        self._resting = False
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
            self._resting = True
            self._round = loop.call_later(_REST_SECONDS, self._begin_round)


class Paced(Generic[T]):
    """Awaits a coroutine, and takes a turn before each of its steps. The result is None if it was given up."""

    def __init__(self, work: Coroutine[Any, Any, T], steps: Steps, party: str, address: str = "") -> None:
        self._work, self._steps, self._address, self.party = work, steps, address, party
        self._turn: asyncio.Future[None] | None = None
        self._begun = self._given_up = False
        self._task: asyncio.Task[Any] | None = None
        #: Whose request it is, once that is known.
        self.tenant: str | None = None

    def give_up(self) -> None:
        """Its connection has ended: a stranger's request waits no longer, for its turn or for anything else."""
        if self.tenant is not None or self._given_up:
            return
        self._given_up = True
        if self._turn is not None:
            self._steps.leave(self._turn, self.party, self._address)
        elif self._task is not None:
            self._task.cancel()

    def __await__(self) -> Generator[Any, Any, T | None]:
        """Step by step, as a task would."""
        self._task = asyncio.current_task()
        fault: BaseException | None = None
        try:
            while True:
                if fault is None and not self._given_up:
                    fault = yield from self._wait()
                if fault is None and self._given_up:
                    if not self._begun:
                        self._work.close()
                        return None
                    fault = asyncio.CancelledError()
                try:
                    awaited = self._step(fault)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                except asyncio.CancelledError:
                    if self._given_up:
                        return None
                    raise
                try:
                    fault = yield awaited
                except BaseException as thrown:  # noqa: BLE001 - it is the request's
                    fault = thrown
        finally:
            fault = self._task = None  # its traceback refers to this frame

    def _wait(self) -> Generator[Any, Any, BaseException | None]:
        """Until it is its turn; returns what was thrown meanwhile, which is the request's."""
        self._turn = self._steps.turn(self.party, self._address, begun=self._begun)
        if self._turn is not None:
            try:
                yield from self._turn
            except BaseException as thrown:  # noqa: BLE001 - canceled while it waited; the request is told
                return thrown
            finally:
                self._turn = None
        return None

    def _step(self, fault: BaseException | None) -> Any:
        began = time.perf_counter()
        self._begun = True
        try:
            return self._work.send(None) if fault is None else self._work.throw(fault)
        finally:
            self._steps.took(self.party, time.perf_counter() - began)


class StepsMiddleware:
    """Around every request. `tenant_of` looks up whose a key is."""

    def __init__(self, app: ASGIApp, steps: Steps, tenant_of: TenantOf | None = None) -> None:
        self._app, self._steps, self._tenant_of = app, steps, tenant_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        standing = standing_of(scope)
        if self._is_over(standing):
            return
        party, member = self._steps.party(scope), _address(scope)
        place, app = party, self._app
        if party == _APPLICANTS:
            proof = proof_in(scope)
            try:
                place = party = await self._look_up(proof, standing)
            except Problem as refused:
                standing.doubt()
                place = party = _VISITORS
                app = partial(_answer, refused)
            if self._is_over(standing):
                return
            if isinstance(proof, EventsToken):
                member = proof.seal.hex()
                if party not in _NO_TENANTS:
                    place, party = _visitors_of(party), _VISITORS
        if place not in _NO_TENANTS and not standing.know(place):
            app = partial(_answer, _crowded())
        # To look its key up again, a tenant does not wait for those who are unknown. All others speak for nobody: the
        # task may have the context of another request of the connection.
        speaker.set("" if party in _NO_TENANTS else party)
        if party == _PROBES and standing.may_probe():
            await self._app(scope, receive, send)
            return
        work = cast("Coroutine[Any, Any, None]", app(scope, receive, send))
        paced = scope["steps"] = Paced(work, self._steps, party, member)
        await paced

    async def _look_up(self, proof: str | EventsToken | None, standing: Standing) -> str:
        """The party of an applicant, once the database has said whose the key is; a problem if that is all."""
        if proof is None or self._tenant_of is None:
            return _APPLICANTS
        standing.apply()
        try:
            async with asyncio.timeout(_LOOK_UP_SECONDS):
                tenant = await self._tenant_of(proof)
        except (HoldfastError, TimeoutError):
            return _APPLICANTS
        if tenant is None:
            standing.doubt()
        return tenant or _STRANGERS

    @staticmethod
    def _is_over(standing: Standing) -> bool:
        return standing.gone


def _visitors_of(tenant: str) -> str:
    """Whose the connections of a tenant's visitors are: neither the tenant's, nor those of other tenants' visitors."""
    return f"{_VISITORS} of {tenant}"


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


async def _answer(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - as an app is called
    """Without the framework: in it, a thousand who are refused would take as much memory as if they were served."""
    body = to_json(problem.body(scope.get("root_path", "")))
    fields = {"Content-Type": "application/problem+json", "Content-Length": str(len(body)), **problem.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _crowded() -> Problem:
    detail = "Too many connections of this tenant are open. Close idle ones, or use them again."
    return Problem(503, "unavailable", detail, headers={"Retry-After": "5", "Connection": "close"})
