"""The options of an enqueue, declared once, checked before anything is sent, and in the shape that the engine takes.

A new option begins in `DECLARED`. `tests/contracts/test_options.py` then names every other place that lacks it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

from holdfast.bounds import BOUNDS, delay_of, shown
from holdfast.errors import InvalidInput
from holdfast.model.names import refuse_unknown

__all__ = ["DECLARED", "Intent", "JobOption", "Options", "engine_options"]


class JobOption(NamedTuple):
    """What an option is, for all who take it. Numbers have the bound of the option's name in holdfast.bounds."""

    kind: Literal["whole", "seconds", "moment", "flag", "job", "text", "key", "trace"]
    #: How many characters a text may have.
    longest: int = 255
    #: Its name in the engine and in descriptions of a job, if that differs.
    engine_name: str | None = None
    #: The engine takes it as an argument for all jobs of a call, and not among the options of each.
    of_the_call: bool = False


DECLARED = {
    "priority": JobOption("whole"),
    "run_at": JobOption("moment"),
    "delay": JobOption("seconds"),
    "idempotency_key": JobOption("key"),
    "dedup_key": JobOption("text"),
    "correlation_id": JobOption("text"),
    "parent": JobOption("job", engine_name="parent_id"),
    "max_attempts": JobOption("whole"),
    "target": JobOption("text"),
    "tenant": JobOption("text", longest=200, of_the_call=True),
    "queue": JobOption("text", longest=200),
    "hold": JobOption("flag"),
    "target_count": JobOption("whole"),
    "created_by": JobOption("text", longest=500, of_the_call=True),
    "traceparent": JobOption("trace"),
}


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


#: What every client can read back, and PostgreSQL can store.
_FIRST, _LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


_KEYS = ("idempotency_key", "dedup_key")


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

    @property
    def keys(self) -> list[tuple[str, str, str]]:
        """The keys that an open transaction elsewhere may hold, with their tenant and kind."""
        return [(self.tenant, name, self.options[name]) for name in _KEYS if name in self.options]


def engine_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of one job and put them into the engine's names and JSON types."""
    refuse_unknown("option", options, DECLARED)
    engine: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        option = DECLARED[name]
        checked = _checked(name, option, value)
        if not option.of_the_call:
            engine[option.engine_name or name] = checked
    if options.get("run_at") is not None and not _FIRST <= options["run_at"] <= _LAST:
        raise InvalidInput("run_at must be a time with its zone, before the year 10000")
    if engine.get("queue") == "holdfast":
        raise InvalidInput('the queue "holdfast" is reserved')
    if "run_at" in engine and "delay" in engine:
        raise InvalidInput("give run_at or delay, not both")
    return engine


def _checked(name: str, option: JobOption, value: Any) -> Any:
    match option.kind:
        case "whole":
            if not BOUNDS[name].holds(value):
                raise InvalidInput(f"{name} must be {BOUNDS[name]}, not {shown(value)}")
            return value
        case "moment":
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise InvalidInput(f"{name} must be a datetime with a time zone, such as datetime.now(UTC)")
            return value.isoformat()
        case "seconds":
            if (seconds := delay_of(value, name)) is None:
                raise InvalidInput(f"{name} must be seconds or a timedelta, {BOUNDS[name]} s, not {shown(value)}")
            return seconds
        case "job":
            return str(getattr(value, "id", value))
        case "flag":
            if not isinstance(value, bool):
                raise InvalidInput(f"{name} must be True or False, not {shown(value)}")
            return value
        case _:
            return _text(name, option, value)


def _text(name: str, option: JobOption, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} must be a non-empty string, not {shown(value)}")
    if option.kind == "key" and not _KEY.fullmatch(value):
        raise InvalidInput(f"{name} must be 1 to 255 visible ASCII characters")
    if len(value) > option.longest:
        raise InvalidInput(f"{name} must have 1 to {option.longest} characters")
    if option.kind == "trace" and not _TRACEPARENT.fullmatch(value):
        raise InvalidInput(f"{name} must be as in W3C Trace Context, such as 00-<32 hex>-<16 hex>-01")
    return value
