"""Errors over HTTP: RFC 9457 problems with a stable `type` and `code`, and nothing from inside.

A message passes only if Holdfast itself wrote it for callers: checks of Python and of the engine's functions.
What the driver, PostgreSQL or a bug says goes to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from holdfast.errors import (
    AlreadyFinal,
    Conflict,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    KeyConflict,
    NotFound,
    SchemaError,
)

__all__ = ["Problem", "install_problems"]

_log = logging.getLogger("holdfast.web")

#: The first that fits: error, status, code, and whether its message is meant for callers.
_STATUSES: tuple[tuple[type[HoldfastError], int, bool], ...] = (
    (NotFound, 404, True),
    (KeyConflict, 422, False),
    (AlreadyFinal, 409, True),
    (Conflict, 409, True),
    (InvalidInput, 422, True),
    (DatabaseUnavailable, 503, False),
    (SchemaError, 503, False),
)

_DETAILS = {
    "idempotency-key": "The idempotency key belongs to a job of another type or payload.",
    "unavailable": "The database cannot be reached at the moment; the request may be repeated.",
    "schema": "The service is being set up or upgraded; the request may be repeated.",
    "invalid": "A value cannot be stored.",
}

_CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}
_RETRY_AFTER_SECONDS = "2"


class Problem(Exception):
    """What is answered instead of a result."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str | None = None,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.detail, self.errors = status, code, detail, errors
        self.headers = dict(headers or {})
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.headers.setdefault("Retry-After", _RETRY_AFTER_SECONDS)

    def response(self) -> Response:
        """The answer."""
        body: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
        }
        if self.detail:
            body["detail"] = self.detail
        if self.errors:
            body["errors"] = list(self.errors)
        return JSONResponse(body, self.status, headers=self.headers, media_type="application/problem+json")


def install_problems(app: FastAPI) -> None:
    """Let every error of an app become a problem."""

    async def problem(_request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for this class alone
        return error.response()

    async def holdfast_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HoldfastError)  # noqa: S101 - registered for this class alone
        return _translated(error).response()

    async def http_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class alone
        code = _CODES.get(error.status_code, "http")
        return Problem(error.status_code, code, headers=error.headers).response()

    async def unexpected(_request: Request, error: Exception) -> Response:
        _log.error("a request failed", exc_info=error)
        return Problem(500, "internal", "Something went wrong here.").response()

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(HoldfastError, holdfast_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected)


def _translated(error: HoldfastError) -> Problem:
    for kind, status, public in _STATUSES:
        if isinstance(error, kind):
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                _log.warning("a request cannot be served: %s", error)
            message = str(error) if public and _is_ours(error) else _DETAILS.get(error.code, "")
            return Problem(status, error.code, message)
    _log.error("a request failed", exc_info=error)
    return Problem(500, "internal", "Something went wrong here.")


def _is_ours(error: HoldfastError) -> bool:
    """Whether the message was written by Holdfast: no cause, or raised by a function of the engine."""
    cause = error.__cause__
    return cause is None or str(getattr(cause, "sqlstate", "")).startswith("HF")
