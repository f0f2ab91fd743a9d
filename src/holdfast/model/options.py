"""The options of an enqueue, checked before anything is sent, and in the shape that the engine takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from holdfast.bounds import BOUNDS, delay_of, shown
from holdfast.errors import InvalidInput
from holdfast.model.names import refuse_unknown

__all__ = ["OPTIONS", "Intent", "Options", "engine_options"]


class Options(TypedDict, total=False):
    """What an enqueue may say about a job; what is None or absent is decided by job type and settings."""

    priority: int | None
    run_at: datetime | None
    delay: float | timedelta | None
    idempotency_key: str | None
    dedup_key: str | None
    correlation_id: str | None
    parent: Any
    max_attempts: int | None
    target: str | None
    tenant: str | None
    queue: str | None
    hold: bool | None
    target_count: int | None
    created_by: str | None
    traceparent: str | None


OPTIONS = tuple(Options.__annotations__)
#: What every client can read back, and PostgreSQL can store.
_FIRST, _LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
#: How many characters an option may have, if not 255.
_LONGEST = {"tenant": 200, "queue": 200, "created_by": 500}
_NO_TRACE = f"00-{0:032x}-{0:016x}-00"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Intent(NamedTuple):
    """One job to be recorded; `options` are those of the engine, `payload` is JSON text.

    A tuple, because one is made for every job: a frozen dataclass takes six times as long.
    """

    id: UUID
    type: str
    payload: str
    options: Mapping[str, Any] = MappingProxyType({})
    tenant: str = "default"
    created_by: str | None = None


def engine_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of one job and put them into the engine's names and JSON types."""
    refuse_unknown("option", options, OPTIONS)
    engine: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name in ("tenant", "created_by"):
            _checked(name, value)
            continue
        engine["parent_id" if name == "parent" else name] = _checked(name, value)
    if not _TRACEPARENT.fullmatch(engine.get("traceparent", _NO_TRACE)):
        raise InvalidInput("traceparent must be as in W3C Trace Context, such as 00-<32 hex>-<16 hex>-01")
    if options.get("run_at") is not None and not _FIRST <= options["run_at"] <= _LAST:
        raise InvalidInput("run_at must be a time with its zone, before the year 10000")
    if engine.get("queue") == "holdfast":
        raise InvalidInput('the queue "holdfast" is reserved')
    if "run_at" in engine and "delay" in engine:
        raise InvalidInput("give run_at or delay, not both")
    return engine


def _checked(name: str, value: Any) -> Any:
    match name:
        case "priority" | "max_attempts" | "target_count":
            if not BOUNDS[name].holds(value):
                raise InvalidInput(f"{name} must be {BOUNDS[name]}, not {shown(value)}")
            return value
        case "run_at":
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise InvalidInput("run_at must be a datetime with a time zone, such as datetime.now(UTC)")
            return value.isoformat()
        case "delay":
            if (seconds := delay_of(value)) is None:
                raise InvalidInput(f"delay must be seconds or a timedelta, {BOUNDS['delay']} s, not {shown(value)}")
            return seconds
        case "parent":
            return str(getattr(value, "id", value))
        case "hold":
            if not isinstance(value, bool):
                raise InvalidInput(f"hold must be True or False, not {shown(value)}")
            return value
        case _:
            return _text(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} must be a text that is not empty, not {shown(value)}")
    if name == "idempotency_key" and not _KEY.fullmatch(value):
        raise InvalidInput("idempotency_key must be 1 to 255 visible ASCII characters")
    if len(value) > (longest := _LONGEST.get(name, 255)):
        raise InvalidInput(f"{name} must have 1 to {longest} characters")
    return value
