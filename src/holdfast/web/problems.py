"""Errors over HTTP: RFC 9457 problems with a stable `type` and `code`, and nothing from inside.

A message passes only if Holdfast itself wrote it for callers: checks of Python and of the engine's functions.
What the driver, PostgreSQL or a bug says goes to the log. Of the caller's own words, no more than 200 characters are
repeated in one sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast.errors import (
    AlreadyFinal,
    Conflict,
    DatabaseBusy,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    InvalidPayload,
    KeyConflict,
    NotFound,
    NotOpen,
    PayloadTooLarge,
    Reason,
    SchemaError,
    TooManyQueues,
    TooManySchedules,
)
from holdfast.lifecycle.service import Outage

__all__ = ["CATALOGUE", "Problem", "install_problems", "told", "translated"]

_log = logging.getLogger("holdfast.web")

#: The first match counts: error, status, and whether its message is meant for callers.
_STATUSES: tuple[tuple[type[HoldfastError], int, bool], ...] = (
    (NotFound, 404, True),
    (KeyConflict, 422, False),
    (AlreadyFinal, 409, True),
    (Conflict, 409, True),
    (TooManyQueues, 409, True),
    (TooManySchedules, 409, True),
    (PayloadTooLarge, 413, True),
    (InvalidInput, 422, True),
    (NotOpen, 503, False),
    (DatabaseBusy, 503, True),
    (DatabaseUnavailable, 503, False),
    (SchemaError, 503, False),
)

_DETAILS = {
    "idempotency-key": "The idempotency key belongs to a job of another type or payload.",
    "unavailable": "The database cannot be reached at the moment; the request may be repeated.",
    "schema": "The service is being set up or upgraded; the request may be repeated.",
    "invalid": "A value cannot be stored.",
}

#: What callers see if the database cannot serve, by reason.
_UNAVAILABLE: Mapping[Reason, str] = {
    "slow": "The database did not answer in time; the request may be repeated.",
    "uncertain": "The database did not answer in time: it is not known whether the job was recorded. Repeat the "
    "request with the same idempotency key.",
    "read-only": "The database does not accept writes at the moment; the request may be repeated.",
    "disk-full": "The database's disk is full at the moment; the request may be repeated.",
    "volatile": "With its current settings the database could lose the job in a crash, so nothing was recorded.",
    "connections": "The database has no connection left at the moment; the request may be repeated.",
}

_CODES = {
    401: "no-key", 403: "forbidden", 404: "not-found", 405: "method-not-allowed", 408: "too-slow", 409: "conflict",
    413: "too-large", 415: "media-type", 422: "invalid", 429: "rate-limit", 431: "headers-too-large",
    503: "unavailable",
}  # fmt: skip

#: Every code: its status, what it means, and what to do.
CATALOGUE: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request is not valid HTTP. Check the client that sent it."),
    "malformed-json": (400, "The body is not JSON, is nested too deeply, or has a number that is not valid in JSON."),
    "no-key": (401, "Send a key: `Authorization: Bearer hf_…`. `holdfast keys create` makes one."),
    "bad-key": (401, "The key is unknown, revoked or expired. Ask an administrator for a new one."),
    "scope": (403, "The key is valid, but lacks the scope that the route needs; the detail names it."),
    "host": (403, "Without keys, the server answers only under its own machine's names. Make a key, or use localhost."),
    "origin": (403, "The request comes from a page of another site. Use a key, or see `HOLDFAST_CORS_ORIGINS`."),
    "forbidden": (403, "The application that these routes are mounted in did not admit the caller."),
    "not-found": (404, "The job or page does not exist, or belongs to another tenant."),
    "method-not-allowed": (405, "The route does not support this method; see `Allow`."),
    "too-slow": (408, "The body did not arrive within 30 seconds. Repeat the request."),
    "conflict": (409, "The request conflicts with the state of the job. Look at the job, then decide again."),
    "already-final": (409, "The job has ended and can no longer be changed."),
    "lease-lost": (409, "The attempt no longer owns its job, and nothing was changed. Stop working on it."),
    "already-reported": (
        409,
        "The worker has ended this attempt before, in another way; the detail says how. Nothing was changed.",
    ),
    "schedules-limit": (
        409,
        "The tenant has as many schedules as it may (`SCHEDULES_PER_TENANT`). Delete some, or raise the limit.",
    ),
    "queues-limit": (
        409,
        "The tenant uses as many combinations of queue and job type as it may. Use fewer names, or wait a day.",
    ),
    "type-closed": (
        409,
        "An operator has closed the job type to new jobs; the detail says who and why. Try again once it is open.",
    ),
    "too-large": (413, "The body is larger than 1 MiB. Store the data elsewhere and send its location."),
    "payload-too-large": (413, "The stored payload, with numbers in full, is larger than `PAYLOAD_MAX_BYTES`."),
    "media-type": (415, "Send `Content-Type: application/json`, and no `Content-Encoding`."),
    "invalid": (422, "The body is not valid: `errors` says where, as a JSON pointer, and why."),
    "invalid-payload": (
        422,
        "No live worker accepts the payload: `errors` says where, as a JSON pointer, and why. See `VALIDATE_PAYLOADS`.",
    ),
    "idempotency-key": (422, "The idempotency key belongs to a job of another type or payload. Use a new key."),
    "rate-limit": (429, "The key, or the token, makes too many requests per second. Wait for `Retry-After` seconds."),
    "waiting-limit": (429, "Too many jobs of the tenant wait for this key to add more. Wait until some have run."),
    "streams-limit": (
        429,
        "The token, the key or its tenant has too many streams and waits open. Wait until some end.",
    ),
    "headers-too-large": (431, "The address and the headers have more than 64 KiB, or more than 256 fields."),
    "internal": (500, "The server failed, and logged the error. The request may be repeated."),
    "unavailable": (503, "The database cannot be reached, or this server is about to stop. Repeat the request."),
    "schema": (503, "The database is being set up or upgraded. Repeat the request."),
}
_RETRY_AFTER_SECONDS = "2"
_BETWEEN, _MOST_SENTENCES = "; ", 6
_LONGEST, _LONGEST_END = 200, 50
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Problem(Exception):
    """An error answer."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str | None = None,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.detail, self.errors = status, code, detail, errors
        self.headers = dict(headers or {})
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.headers.setdefault("Retry-After", _RETRY_AFTER_SECONDS)

    def body(self, below: str = "") -> dict[str, Any]:
        """What is said, by an app that is mounted below a path."""
        body: dict[str, Any] = {
            "type": f"{below}/problems/{self.code}",
            "title": _PHRASES.get(self.status, "Error"),
            "status": self.status,
            "code": self.code,
        }
        if self.detail:
            # Each fault is cut on its own: a long text in one of them must not hide the others.
            body["detail"] = _BETWEEN.join(map(_cut, self.detail.split(_BETWEEN)[:_MOST_SENTENCES]))
        if self.errors:
            body["errors"] = [{name: _cut(text) for name, text in error.items()} for error in self.errors]
        return body

    def response(self, request: Request) -> Response:
        """The answer to a request."""
        return JSONResponse(
            self.body(str(request.scope.get("root_path", ""))),
            self.status,
            headers=self.headers,
            media_type="application/problem+json",
        )


def install_problems(app: FastAPI, outage: Outage) -> None:
    """Let every error of an app become a problem. `outage` hears when the database is away, and tells of it once."""

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for this class alone
        return error.response(request)

    async def holdfast_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HoldfastError)  # noqa: S101 - registered for this class alone
        if isinstance(error, DatabaseUnavailable) and error.away:
            outage.lost(error)
        return translated(error).response(request)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
        code = _CODES.get(error.status_code, "bad-request" if error.status_code < 500 else "internal")
        return Problem(error.status_code, code, _detail(request, error), headers=error.headers).response(request)

    async def wrong_parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class alone
        errors = [
            {"pointer": "".join(f"/{part}" for part in fault["loc"]), "detail": str(fault["msg"])}
            for fault in error.errors()[:20]
        ]
        return Problem(422, "invalid", "The address is not valid.", errors=errors).response(request)

    async def gone(request: Request, _error: Exception) -> Response:
        return Problem(400, "bad-request", "The request ended before it was complete.").response(request)

    async def unexpected(request: Request, error: Exception) -> Response:
        _log.error("a request failed", exc_info=error)
        return Problem(500, "internal", "The server failed; the error was logged.").response(request)

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(HoldfastError, holdfast_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(RequestValidationError, wrong_parameters)
    app.add_exception_handler(Exception, unexpected)


def _detail(request: Request, error: HTTPException) -> str | None:
    allowed = (error.headers or {}).get("Allow")
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED or not allowed:
        return None
    return f"{request.method} is not allowed here; use {allowed}."


def translated(error: HoldfastError, *, within: str = "") -> Problem:
    """The problem that callers see; `within` is the position of the job in the body, as a JSON pointer."""
    for kind, status, public in _STATUSES:
        if isinstance(error, kind):
            if status == HTTPStatus.SERVICE_UNAVAILABLE and not (isinstance(error, DatabaseUnavailable) and error.away):
                _log.warning("a request cannot be served: %s", error)
            message = str(error) if public and _is_ours(error) else told(error)
            faults = error.faults if isinstance(error, InvalidPayload) else ()
            errors = [{"pointer": f"{within}/payload{place}", "detail": why} for place, why in faults]
            if isinstance(error, InvalidInput) and error.pointer is not None:
                errors.append({"pointer": f"{within}{error.pointer}", "detail": message})
            return Problem(status, "unavailable" if isinstance(error, NotOpen) else error.code, message, errors=errors)
    _log.error("a request failed", exc_info=error)
    return Problem(500, "internal", "The server failed; the error was logged.")


def told(error: HoldfastError) -> str:
    """What callers see of an error whose own message is not for them."""
    if isinstance(error, DatabaseUnavailable) and error.reason in _UNAVAILABLE:
        return _UNAVAILABLE[error.reason]
    return _DETAILS.get(error.code, "")


def _cut(text: str) -> str:
    """Cut in the middle, where the caller's words are; ours are before and after them."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _LONGEST_END - 1]}…{text[-_LONGEST_END:]}"


def _is_ours(error: HoldfastError) -> bool:
    """Whether the message was written by Holdfast: no cause, or raised by a function of the engine."""
    cause = error.__cause__
    return cause is None or str(getattr(cause, "sqlstate", "")).startswith("HF")
