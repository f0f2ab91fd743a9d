"""The state of whichever app serves the request at hand.

Routes are made from the signatures of their functions, which takes longer than anything else at a server's start, and
is the same for each app. So apps share them: routers are given what stands for the state of the app, and find behind
it, with each request, the state of the one that serves it.

What a router keeps between requests therefore belongs to the state, and not to the router: otherwise apps would share
that, too.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.web.auth import Auth
from holdfast.web.state import AppState

__all__ = ["CURRENT", "Serving"]

_state: ContextVar[AppState] = ContextVar("holdfast.web.serving")


class Serving:
    """Around the routes of an app: within them, `CURRENT` is its state."""

    def __init__(self, app: ASGIApp, state: AppState) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. One app may call another before it goes on."""
        before = _state.set(self._state)
        try:
            await self._app(scope, receive, send)
        finally:
            _state.reset(before)


class _Auth:
    """Stands for how that app admits callers. What a scope requires is asked for before there is any app."""

    __slots__ = ()
    requires = Auth.requires

    def __getattr__(self, name: str) -> Any:
        return getattr(_state.get().auth, name)


class _Current:
    """Stands for that state."""

    __slots__ = ()
    auth = _Auth()

    def __getattr__(self, name: str) -> Any:
        return getattr(_state.get(), name)


CURRENT = cast("AppState", _Current())
