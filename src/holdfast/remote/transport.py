"""Requests that are repeated until they are answered, and problems that become Holdfast's errors.

Only what may be repeated comes here: reads, requests for what is to become of a job, and submissions with an
idempotency key, which the client gives them if the caller does not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    AlreadyFinal,
    Conflict,
    Forbidden,
    HoldfastError,
    InvalidInput,
    InvalidPayload,
    KeyConflict,
    LeaseLost,
    LimitExceeded,
    NotFound,
    ServerUnavailable,
    TooManyQueues,
    TypeClosed,
)

if TYPE_CHECKING:
    import httpx

__all__ = ["AGAIN", "Transport", "error_of"]

_ERRORS: Mapping[str, type[HoldfastError]] = {
    kind.code: kind
    for kind in (
        AlreadyFinal,
        Conflict,
        InvalidInput,
        InvalidPayload,
        KeyConflict,
        LeaseLost,
        NotFound,
        TooManyQueues,
        TypeClosed,
    )
}
#: Statuses after which the same may be asked again.
AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Transport:
    """One server, one key."""

    def __init__(self, url: str, key: str | None, *, timeout: float, patience: float) -> None:
        self._url, self._key = url.rstrip("/"), key
        self._timeout, self._patience = timeout, patience
        self._http: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Give the connections back."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    @property
    def http(self) -> httpx.AsyncClient:
        """The connections, made when they are first needed."""
        if self._http is None:
            try:
                import httpx
            except ModuleNotFoundError:
                raise ModuleNotFoundError(
                    "the client of the HTTP API is not installed (httpx is missing): pip install 'holdfast[remote]'",
                    name="httpx",
                ) from None
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._http = httpx.AsyncClient(base_url=self._url, headers=headers, timeout=self._timeout)
        return self._http

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        text: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 0,
        reached: Callable[[], Awaitable[bool]] | None = None,
    ) -> httpx.Response:
        """The answer; repeated until there is one, for as long as there is patience. `text` is a body as JSON text.

        An earlier try whose answer was lost may have done what a later one is refused for, as a conflict: then
        `reached` is asked whether things are as the caller wants them, which is an answer too.
        """
        import httpx

        http = self.http
        content: Any = {"json": json} if text is None else {"content": text.encode()}
        if text is not None:
            headers = {"Content-Type": "application/json", **(headers or {})}
        end, pause, repeated = time.monotonic() + self._patience, _FIRST_PAUSE, False
        while True:
            told: float | None = None
            try:
                answer = await http.request(method, path, headers=headers, timeout=self._timeout + wait, **content)
            except httpx.TransportError as fault:
                error: HoldfastError = ServerUnavailable(
                    f"{self._url} cannot be reached: {fault or type(fault).__name__}"
                )
            else:
                if answer.is_success:
                    return answer
                error = error_of(answer.status_code, _json(answer))
                if repeated and reached is not None and isinstance(error, Conflict) and await reached():
                    return answer
                if answer.status_code not in AGAIN:
                    raise error
                told = _retry_after(answer)
            seconds = max(pause * random.uniform(0.5, 1.0), told or 0.0)  # noqa: S311 - jitter is no secret
            if time.monotonic() + seconds > end:
                raise error
            await asyncio.sleep(seconds)
            repeated = True
            pause = min(_LONGEST_PAUSE, pause * 2)


def error_of(status: int, problem: Any) -> HoldfastError:
    """What a problem means, as one of Holdfast's errors."""
    problem = problem if isinstance(problem, dict) else {}
    detail = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
    where = "; ".join(f"{e['pointer']}: {e['detail']}" for e in problem.get("errors", ()))
    kind = _ERRORS.get(str(problem.get("code")))
    if kind is None and status in (401, 403):
        kind = Forbidden
    elif kind is None:
        kind = LimitExceeded if status == 429 else ServerUnavailable if status >= 500 or status < 400 else InvalidInput
    if issubclass(kind, InvalidPayload):
        return kind(detail, faults=[(e["pointer"], e["detail"]) for e in problem.get("errors", ())])
    return kind(f"{detail} {where}".strip())


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _retry_after(answer: httpx.Response) -> float | None:
    told = answer.headers.get("retry-after", "")
    return float(told) if told.isdigit() else None
