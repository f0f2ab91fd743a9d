"""Places for large answers while they are made: results, payloads, items and histories.

An answer of 1 MiB takes ten times as much while it is read from the database and written as text. The database reads
faster than a tenant with many callers has turns in the event loop, so that answers would pile up between the two.

1. A request takes a place before it reads from the database, and has it until its answer was handed to the connection.
   What is not read there is counted by `holdfast.web.unread`.
2. A tenant has two of eight places. Tenants take turns, and a request that waits for more than ten seconds gets 503.
3. Nothing is made for a connection whose earlier answers were not read: the place would be taken until they are.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.lifecycle.waiters import Waiters
from holdfast.web.problems import Problem
from holdfast.web.standing import standing_of

__all__ = ["Answers", "AnswersMiddleware"]

_ALL, _OF_ONE = 8, 2
_PATIENCE_SECONDS = 10.0
_MARK = "answers"


class Answers:
    """One app's."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._waiting = Waiters[None]()

    async def take(self, request: Request) -> None:
        """A place for the answer to this request, which has it until it ends; a problem if there is none in time."""
        await standing_of(request.scope).drained()
        tenant: str = request.state.caller.tenant
        if tenant not in self._waiting and self._may(tenant):
            self._held[tenant] += 1
        else:
            await self._wait(tenant)
        request.scope[_MARK] = tenant

    def give_back(self, scope: Scope) -> None:
        """The request has ended."""
        tenant = scope.pop(_MARK, None)
        if tenant is not None:
            self._release(tenant)

    async def _wait(self, tenant: str) -> None:
        place = self._waiting.join(tenant)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await place
        except BaseException as fault:
            if place.done() and not place.cancelled():  # it was given in that very moment
                self._release(tenant)
            else:
                self._waiting.leave(place, tenant)
            if isinstance(fault, TimeoutError):
                detail = "Too many large answers are being made at once."
                raise Problem(503, "unavailable", detail, headers={"Retry-After": "1"}) from None
            raise

    def _may(self, tenant: str) -> bool:
        return self._held[tenant] < _OF_ONE and self._held.total() < _ALL

    def _release(self, tenant: str) -> None:
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        while (turn := self._waiting.next(self._may)) is not None:
            who, place = turn
            self._held[who] += 1
            place.set_result(None)


class AnswersMiddleware:
    """Around every request: its place is free when it ends, however it ends."""

    def __init__(self, app: ASGIApp, answers: Answers) -> None:
        self._app, self._answers = app, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            await self._app(scope, receive, send)
        finally:
            self._answers.give_back(scope)
