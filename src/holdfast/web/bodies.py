"""Request bodies: JSON, of bounded size, depth and slowness, checked against a model that refuses the unknown.

Where a name stands twice in an object, the last one counts, as in PostgreSQL.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import from_json
from starlette.types import Message, Receive

from holdfast.definitions.collecting import no_collection
from holdfast.web.deadline import Deadline
from holdfast.web.problems import Problem
from holdfast.web.rooms import Rooms

__all__ = ["BODY_LIMIT", "problem_of", "read_body", "read_optional_body", "received", "unhurried"]

BODY_LIMIT = 1024 * 1024
#: From this size on, a body is large.
_LARGE = 64 * 1024
#: How many lists and objects a body may have: reading more would take too long, and they would take too much memory.
_CONTAINERS = 200_000
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SLOWEST_SECONDS = 30.0
#: If a body takes longer than this, the caller is checked again: the key may have been revoked meanwhile.
_SLOW_SECONDS = 1.0
#: For how long a body is read before others may have a turn: the chunks in which it comes may be very small.
_TURN_SECONDS = 0.0005
#: How often a part of a body is dropped that nobody wants.
_DROP_SECONDS = 0.2
_MODEL = TypeVar("_MODEL", bound=BaseModel)
_CLOSE = {"Connection": "close"}


@asynccontextmanager
async def received(
    request: Request, model: type[_MODEL], deadline: Deadline | None = None, *, small: int = _LARGE
) -> AsyncIterator[_MODEL]:
    """The body of a request as a model, or the problem with it; it has its room until the context is left.

    What is more than `small` bytes waits for its tenant's turn. That counts against the deadline, reading does not.
    """
    headers = request.headers
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "media-type", "The body must be sent as application/json.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, "media-type", "The body must be sent without Content-Encoding.")
    announced = headers.get("content-length", "")
    size = int(announced) if announced.isdigit() else BODY_LIMIT
    if size > BODY_LIMIT:
        raise _too_large()
    rooms: Rooms = request.state.rooms
    tenant: str = request.state.caller.tenant
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(rooms.room(tenant, size))
        raw = await (_read(request) if deadline is None else deadline.waits(_read(request)))
        if len(raw) > small:
            await stack.enter_async_context(rooms.turns.place(tenant))
        if time.monotonic() - began > _SLOW_SECONDS:
            await request.state.look_again(request)
        parsed = _parsed(raw, model) if len(raw) <= _LARGE else await _parsed_slowly(raw, model)
        del raw
        yield parsed


async def read_body(request: Request, model: type[_MODEL]) -> _MODEL:
    """The same for a model that is small, whatever the size of the body."""
    async with received(request, model) as body:
        return body


def _containers(raw: bytes) -> int:
    return raw.count(b"[") + raw.count(b"{")


async def _parsed_slowly(raw: bytes, model: type[_MODEL]) -> _MODEL:
    """All others wait while a large body is parsed, so parsing takes half of the time at most."""
    if _containers(raw) > _CONTAINERS and _containers(_STRING.sub(b'""', raw)) > _CONTAINERS:
        raise Problem(413, "too-large", f"The body may have at most {_CONTAINERS} lists and objects.")
    began = time.monotonic()
    try:
        with no_collection():
            return _parsed(raw, model)
    finally:
        await asyncio.sleep(time.monotonic() - began)


def _parsed(raw: bytes, model: type[_MODEL]) -> _MODEL:
    try:
        return _read_as(raw, model)
    except Problem as problem:
        mend = getattr(model, "mended", None)
        mended = mend(raw) if mend is not None and problem.code == "malformed-json" else None
        if mended is None:
            raise
    return _read_as(mended, model)


def _read_as(raw: bytes, model: type[_MODEL]) -> _MODEL:
    try:
        if b"NaN" in raw or b"Infinity" in raw:
            from_json(raw, allow_inf_nan=False)  # the model would let them pass inside a payload
    except ValueError as fault:
        raise Problem(400, "malformed-json", f"The body is not JSON: {fault}.") from None
    try:
        return model.model_validate_json(raw)
    except ValidationError as fault:
        raise problem_of(fault, model) from None


async def read_optional_body(request: Request, model: type[_MODEL]) -> _MODEL:
    """The same for a model whose fields are all optional. The body may be missing."""
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return model()
    return await read_body(request, model)


async def _read(request: Request) -> bytes:
    """The whole body, unless it is too large or takes too long: then the rest is not read."""
    body = bytearray()
    began = time.perf_counter()
    try:
        async with asyncio.timeout(_SLOWEST_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise _too_large()
                if time.perf_counter() - began > _TURN_SECONDS:
                    await asyncio.sleep(0)
                    began = time.perf_counter()
    except TimeoutError:
        raise Problem(408, "too-slow", "The body did not arrive in time.", headers=_CLOSE) from None
    return bytes(body)


def unhurried(receive: Receive) -> Receive:
    """For those who only wait for the caller to go: a body that comes meanwhile is parsed a little at a time."""

    async def receive_slowly() -> Message:
        message = await receive()
        if message.get("more_body"):
            await asyncio.sleep(_DROP_SECONDS)
        return message

    return receive_slowly


def _too_large() -> Problem:
    return Problem(413, "too-large", f"The body may have at most {BODY_LIMIT} bytes.", headers=_CLOSE)


def problem_of(fault: ValidationError, model: type[BaseModel], *, within: str = "") -> Problem:
    """What is wrong with a body, or with a part of one, that should be of this model; a part stands `within`."""
    errors = fault.errors(include_url=False, include_input=False)
    if errors[0]["type"] == "json_invalid":
        return Problem(400, "malformed-json", f"The body is not JSON: {errors[0].get('ctx', {}).get('error', '')}.")
    told = [_told(dict(error), model, within) for error in errors[:20]]
    return Problem(422, "invalid", "The body is not valid.", errors=told)


def _told(error: dict[str, Any], model: type[BaseModel], within: str) -> dict[str, str]:
    """Where, as a JSON pointer, and what; never the value itself."""
    detail = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        detail += _meant(str(error["loc"][0]), model)
    place = error["loc"][1:] if issubclass(model, RootModel) else error["loc"]  # a union names its part first
    return {"pointer": within + "".join(f"/{part}" for part in place), "detail": detail}


def _meant(name: str, model: type[BaseModel]) -> str:
    """The field that is written in another way: `idempotency_key`. To look for similar ones would take too long: a body
    can have very many names.
    """
    spelt = _letters(name)
    known = (field.alias or own for own, field in model.model_fields.items())
    return next((f"; did you mean {field}?" for field in known if _letters(field) == spelt), "")


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
