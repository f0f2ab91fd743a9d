"""Request bodies: JSON, of bounded size and depth, checked against a model that refuses what it does not know."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from holdfast.web.problems import Problem

__all__ = ["BODY_LIMIT", "read_body"]

BODY_LIMIT = 1024 * 1024
_MODEL = TypeVar("_MODEL", bound=BaseModel)


async def read_body(request: Request, model: type[_MODEL]) -> _MODEL:
    """The body of a request as a model, or the problem with it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "media-type", "The body must be sent as application/json.")
    raw = await _read(request)
    try:
        from_json(raw, allow_inf_nan=False)
    except ValueError as fault:
        raise Problem(400, "malformed-json", f"The body is not JSON: {fault}.") from None
    try:
        return model.model_validate_json(raw)
    except ValidationError as fault:
        raise Problem(422, "invalid", "The body does not fit.", errors=_errors(fault)) from None


async def _read(request: Request) -> bytes:
    """Everything that is sent, unless it is too much: then the rest is not even read."""
    announced = request.headers.get("content-length", "")
    body = bytearray()
    if not announced.isdigit() or int(announced) <= BODY_LIMIT:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_LIMIT:
                break
        else:
            return bytes(body)
    raise Problem(413, "too-large", f"The body may have {BODY_LIMIT} bytes.", headers={"Connection": "close"})


def _errors(fault: ValidationError) -> list[dict[str, Any]]:
    """Where, as a JSON pointer, and what; never the value itself."""
    return [
        {
            "pointer": "".join(f"/{part}" for part in error["loc"]),
            "detail": error["msg"].removeprefix("Value error, "),
        }
        for error in fault.errors(include_url=False, include_input=False, include_context=False)[:20]
    ]
