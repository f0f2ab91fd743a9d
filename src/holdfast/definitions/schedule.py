"""What a schedule says: checked here, and in the shape that the engine stores. And when it fires next."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.bounds import BOUNDS, delay_of, shown
from holdfast.definitions.cron import Cron, zone_of
from holdfast.errors import InvalidInput
from holdfast.model.names import refuse_unknown
from holdfast.model.options import DECLARED, engine_options
from holdfast.model.schedule import CATCH_UP_SECONDS, OVERLAPS
from holdfast.model.visible import is_printable

__all__ = ["SCHEDULE_OPTIONS", "Times", "schedule_definition", "times_of"]

#: What would be the same for all jobs of a schedule, or is the schedule's own to decide.
_NOT_TAKEN = ("run_at", "delay", "idempotency_key", "parent", "hold", "traceparent", "created_by")
#: The options of its jobs that a schedule takes.
SCHEDULE_OPTIONS = tuple(name for name in DECLARED if name not in _NOT_TAKEN)
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


class Every:
    """Fires at a fixed interval in seconds, counted from a moment."""

    def __init__(self, seconds: float, anchor: datetime) -> None:
        """InvalidInput if hand-written SQL has stored a length that is none."""
        if not BOUNDS["every"].holds(seconds):
            raise InvalidInput(f"every must be seconds, {BOUNDS['every']}, not {shown(seconds)}")
        self._length, self._anchor = timedelta(seconds=seconds), anchor

    def following(self, after: datetime) -> datetime | None:
        """The first fire time after a moment."""
        try:
            return self._anchor + ((after - self._anchor) // self._length + 1) * self._length
        except OverflowError:
            return None

    def words(self) -> str:
        """When it fires, in words."""
        seconds = self._length.total_seconds()
        for size, unit in _UNITS:
            if seconds >= size and math.isclose(seconds % size, 0, abs_tol=1e-9):
                count = round(seconds / size)
                return f"Every {unit}" if count == 1 else f"Every {count} {unit}s"
        return f"Every {seconds:g} seconds"


Times = Cron | Every


def times_of(cron: str | None, every: float | None, tz: str, anchor: datetime) -> Times:
    """What computes fire times; InvalidInput if the expression or the zone is unknown here."""
    return Cron(cron, tz) if cron is not None else Every(every or 0.0, anchor)


def schedule_definition(
    name: str,
    *,
    job: str,
    cron: str | None = None,
    every: float | timedelta | None = None,
    payload: Mapping[str, Any] | str | None = None,
    tz: str = "UTC",
    overlap: str = "skip",
    catch_up: float | timedelta = CATCH_UP_SECONDS,
    jitter: float | timedelta = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A definition as the engine stores it; InvalidInput says what is wrong with it. `payload` may be JSON text."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not is_printable(name) or "/" in name:
        raise InvalidInput(
            f"the name of a schedule must have 1 to 200 characters, no control characters and no slash: {shown(name)}"
        )
    if (cron is None) == (every is None):
        raise InvalidInput(f"schedule {shown(name)}: give either cron or every")
    zone_of(tz)
    if cron is not None:
        Cron(cron, tz)
    elif tz != "UTC":
        raise InvalidInput(f"schedule {shown(name)}: tz does not apply to every; leave it out, or use cron")
    if overlap not in OVERLAPS:
        raise InvalidInput(f"schedule {shown(name)}: overlap must be {', '.join(OVERLAPS)}, not {shown(overlap)}")
    given = {key: value for key, value in (options or {}).items() if value is not None}
    for option in given:
        if option in _NOT_TAKEN:
            raise InvalidInput(f"schedule {shown(name)}: {option} cannot be given: it is decided per fire time")
    refuse_unknown("option", given, SCHEDULE_OPTIONS)
    tenant = given.pop("tenant", "default")
    if not isinstance(tenant, str) or not 1 <= len(tenant) <= 200:
        raise InvalidInput(f"schedule {shown(name)}: tenant must be a string of 1 to 200 characters")
    return {
        "name": name,
        "tenant": tenant,
        "cron": None if cron is None else " ".join(cron.split()),
        "every": None if every is None else _seconds(name, "every", every),
        "tz": tz,
        "type": job,
        "payload": json.loads(payload) if isinstance(payload, str) else dict(payload or {}),
        "options": engine_options(given),
        "overlap": overlap,
        "catch_up": _seconds(name, "catch_up", catch_up),
        "jitter": _seconds(name, "jitter", jitter),
    }


def _seconds(name: str, what: str, value: object) -> float:
    seconds = delay_of(value, what) if not isinstance(value, timedelta) or value >= timedelta(0) else None
    if seconds is None or not BOUNDS[what].holds(value.total_seconds() if isinstance(value, timedelta) else value):
        raise InvalidInput(
            f"schedule {shown(name)}: {what} must be seconds or a timedelta, {BOUNDS[what]} s, not {shown(value)}"
        )
    return float(seconds)
