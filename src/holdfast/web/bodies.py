"""Request bodies: JSON, of bounded size, depth and slowness, checked against a model that refuses the unknown.

Where a name stands twice in an object, the last one counts, as in PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from holdfast.web.problems import Problem

__all__ = ["BODY_LIMIT", "problem_of", "read_body"]

BODY_LIMIT = 1024 * 1024
_SLOWEST_SECONDS = 30.0
_MODEL = TypeVar("_MODEL", bound=BaseModel)
_CLOSE = {"Connection": "close"}


async def read_body(request: Request, model: type[_MODEL]) -> _MODEL:
    """The body of a request as a model, or the problem with it."""
    headers = request.headers
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "media-type", "The body must be sent as application/json.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "media-type", "The body must be sent as it is, without Content-Encoding.")
    raw = await _read(request)
    try:
        if b"NaN" in raw or b"Infinity" in raw:
            from_json(raw, allow_inf_nan=False)  # the model would let them pass inside a payload
    except ValueError as fault:
        raise Problem(400, "malformed-json", f"The body is not JSON: {fault}.") from None
    try:
        return model.model_validate_json(raw)
    except ValidationError as fault:
        raise problem_of(fault) from None


async def _read(request: Request) -> bytes:
    """Everything that is sent, unless it is too much or takes too long: then the rest is not even read."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > BODY_LIMIT:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(_SLOWEST_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise _too_large()
    except TimeoutError:
        raise Problem(408, "too-slow", "The body did not arrive in time.", headers=_CLOSE) from None
    return bytes(body)


def _too_large() -> Problem:
    return Problem(413, "too-large", f"The body may have {BODY_LIMIT} bytes.", headers=_CLOSE)


def problem_of(fault: ValidationError) -> Problem:
    """What is wrong with a body."""
    errors = fault.errors(include_url=False, include_input=False)
    if errors[0]["type"] == "json_invalid":
        return Problem(400, "malformed-json", f"The body is not JSON: {errors[0].get('ctx', {}).get('error', '')}.")
    return Problem(422, "invalid", "The body does not fit.", errors=[_told(dict(error)) for error in errors[:20]])


def _told(error: dict[str, Any]) -> dict[str, Any]:
    """Where, as a JSON pointer, and what; never the value itself."""
    return {
        "pointer": "".join(f"/{part}" for part in error["loc"]),
        "detail": str(error["msg"]).removeprefix("Value error, "),
    }
