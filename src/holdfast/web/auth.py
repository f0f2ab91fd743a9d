"""Who calls, and what the caller may do: every route names the scope that it needs, and gets the caller from here.

1. with keys: `Authorization: Bearer …`, for the key's tenant and scopes; for the events of one job also `?token=…`,
   because a browser's EventSource sends no header;
2. without any key in the database: callers on this machine that use one of its own names, for the tenant `default`;
3. mounted in an application: with keys, or callers whom its guard admits, for the tenant `default`.

Without a key (2 and 3), requests of other sites' pages are refused. Those who wait are looked at again: a stream or a
wait ends when a new request of the same caller would be refused, and so does a request whose body came slowly. A guard
is asked once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from fastapi import Request

from holdfast.app import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.model.key import SCOPES, Caller, EventsToken
from holdfast.model.provenance import provenance, speaker
from holdfast.web.limits import KeyLimits
from holdfast.web.loopback import from_this_machine
from holdfast.web.origins import refuse_other_sites
from holdfast.web.problems import Problem
from holdfast.web.rooms import Rooms
from holdfast.web.steps import Steps

__all__ = ["LAST_EVENT_ID", "PREFER", "TOKEN", "TRACEPARENT", "Auth", "Guarded", "secret_of", "secured"]


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}


PREFER = _header("Prefer", "`wait=N`: wait up to N seconds until the job has ended")
TRACEPARENT = _header("traceparent", "the trace that the job belongs to; stored with the job")
LAST_EVENT_ID = _header("Last-Event-ID", "the id of the last event that was received")
TOKEN = {
    **_header("token", "a token from `POST /jobs/{job_id}/events/token`, for callers that cannot send a key"),
    "in": "query",
}

_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_EVERYTHING = frozenset(SCOPES)
#: How long to wait for the database if the caller may be admitted without it.
_PATIENCE_SECONDS = 2.0
#: Stands for a missing key.
_NO_TOKEN = EventsToken(UUID(int=0), UUID(int=0), 0, b"")


class Guarded(NamedTuple):
    """The choice of the application that mounted the routes: its guard, and the scopes of the callers it admits."""

    name: str
    scopes: frozenset[str]


class Auth:
    """Admits callers. With `guarded`, the application's guard has already done so."""

    def __init__(self, hf: Holdfast, *, guarded: Guarded | None, keys_only: bool) -> None:
        self._hf, self._guarded, self._keys_only = hf, guarded, keys_only
        self._limits, self._rooms = KeyLimits(), Rooms()
        self.steps = Steps()
        self._trusted = frozenset(hf.config.trusted_origins)

    def requires(
        self, scope: str, *, tokens: bool = False, lately: bool = False
    ) -> Callable[[Request], Awaitable[Caller]]:
        """A dependency that returns the caller, if it has the scope. With `tokens`, a token for the job is enough.

        With `lately`, while the database is away (then `request.state.database_away` is set), who was good in the last
        minutes still is: only for what is read without the database.
        """

        async def let_in(request: Request) -> Caller:
            return await self.let_in(request, scope, tokens=tokens, lately=lately)

        return let_in

    async def let_in(self, request: Request, scope: str, *, tokens: bool, lately: bool) -> Caller:
        """The caller, if it has the scope; a problem otherwise."""
        request.state.tokens = tokens
        caller = await (self._caller_now_or_lately(request) if lately else self._caller(request))
        request.state.caller, request.state.rooms = caller, self._rooms
        request.state.look_again = self.look_again
        visitor, counted = caller.token is not None, self.steps.is_visitors(request.scope)
        self.steps.remember(request.scope, caller.tenant, keyless=caller.key_id is None, visitor=visitor)
        speaker.set(caller.tenant)
        address = None if request.client is None else request.client.host
        provenance.set((address, getattr(request.state, "request_id", None)))
        if not caller.may(scope):
            raise Problem(403, "scope", self._advice(scope))
        if not counted:
            self._limits.count(caller)
        return caller

    def _advice(self, scope: str) -> str:
        """Which scope is missing. Behind a guard a key would not help: the application has to allow it."""
        if self._guarded is None:
            return f"This needs a key with the scope `{scope}`."
        given = ", ".join(f"`{one}`" for one in SCOPES if one in self._guarded.scopes) or "none"
        return (
            f"This needs the scope `{scope}`. Callers that the guard `{self._guarded.name}` admits have {given}: "
            "add it to `scopes` where the routes are mounted."
        )

    async def tenant_of(self, proof: str | EventsToken) -> str | None:
        """Whose key this is, or stands for; None if nobody's. A token is counted; a problem if it comes too often."""
        caller = await (await self._hf.control()).keyring.caller(proof)
        if caller is None:
            return None
        if isinstance(proof, EventsToken):
            self._limits.count(replace(caller, token=proof))
        return caller.tenant

    async def look_again(self, request: Request) -> None:
        """A problem if the caller, who was admitted some time ago, would be refused now."""
        await self._caller(request)

    async def until_refused(self, request: Request, caller: Caller) -> None:
        """Return once the caller, who was admitted, would be refused."""
        if self._guarded is not None:
            await asyncio.Event().wait()
        keyring = (await self._hf.control()).keyring
        await keyring.ended(None if caller.key_id is None else _proof(request))

    async def _caller(self, request: Request) -> Caller:
        if self._guarded is not None:
            refuse_other_sites(request, own="host", trusted=self._trusted)
            return Caller(tenant="default", name="application", scopes=self._guarded.scopes)
        keyring = (await self._hf.control()).keyring
        secret = _proof(request)
        caller = await keyring.caller(secret) if secret else None
        if caller is not None:
            return replace(caller, token=secret) if isinstance(secret, EventsToken) else caller
        if not self._keys_only and not await keyring.any_key():
            return _local(request)
        self.steps.forget(request.scope)
        if secret:
            what = "token" if isinstance(secret, EventsToken) else "key"
            raise Problem(401, "bad-key", f"The {what} is unknown, revoked or expired.", headers=_CHALLENGE)
        raise Problem(401, "no-key", "Send a key: `Authorization: Bearer …`.", headers=_CHALLENGE)

    async def _caller_now_or_lately(self, request: Request) -> Caller:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await self._caller(request)
        except (DatabaseUnavailable, TimeoutError) as fault:
            caller, no_keys = (await self._hf.control()).keyring.lately(secret_of(request))
            if caller is None and no_keys and not self._keys_only:
                caller = _local(request)
            if caller is not None:
                request.state.database_away = True
                return caller
            if isinstance(fault, TimeoutError):
                raise DatabaseUnavailable("the database does not answer", reason="slow") from fault
            raise


def _local(request: Request) -> Caller:
    from_this_machine(request)
    return Caller(tenant="default", name="local", scopes=_EVERYTHING)


def secret_of(request: Request) -> str:
    """The key that a caller has sent, empty if none."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def _proof(request: Request) -> str | EventsToken:
    """The key, or the token for this job if one may be sent instead."""
    secret = secret_of(request)
    if secret or not getattr(request.state, "tokens", False) or "token" not in request.query_params:
        return secret
    try:
        token = EventsToken.read(request.query_params["token"], UUID(request.path_params["job_id"]))
    except ValueError:
        token = None
    return token or _NO_TOKEN  # a key is not taken for one: it does not belong into an address


def secured(scope: str, **extra: Any) -> dict[str, Any]:
    """What the description of a route says about who may call it."""
    return {"security": [{"key": []}], "x-scope": scope, **extra}
