"""Converts rows to values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model.job import Attempt, Job, JobEvent, ListedJob
from holdfast.model.progress import Item
from holdfast.model.states import State
from holdfast.telemetry.events import AttemptEnded

__all__ = ["attempt_of", "ending_of", "event_of", "item_of", "job_of", "listed_job_of", "value_of"]

#: Python refuses to parse longer whole numbers.
_DIGITS = 4300


def job_of(row: Mapping[str, Any]) -> Job:
    """A job from a row of `job_details`."""
    values = dict(row)
    values["state"] = State(values["state"])
    for name in ("payload", "result", "cursor"):
        values[name] = value_of(values[name])
    return Job(**values)


def listed_job_of(row: Mapping[str, Any]) -> ListedJob:
    """A job from a row of `summaries`."""
    values = dict(row)
    values["state"] = State(values["state"])
    return ListedJob(**values)


def value_of(text: str | None) -> Any:
    """Stored JSON as a value; None if there is none.

    The engine accepts only values that can be read here, but hand-written SQL may have stored others: a number with
    very many digits becomes a Decimal.
    """
    if text is None:
        return None
    try:
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise HoldfastError("a stored value has more levels of lists and objects than can be read here") from None


def _whole(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _DIGITS else Decimal(digits)


def attempt_of(row: Mapping[str, Any]) -> Attempt:
    """An attempt from a row of `attempts_page`."""
    values: dict[str, Any] = dict(row)
    del values["more"]
    return Attempt(**values)


def item_of(row: Mapping[str, Any]) -> Item:
    """An item from a row of `items_page`."""
    values: dict[str, Any] = dict(row)
    del values["more"]
    try:
        values["data"] = value_of(values["data"])
    except HoldfastError as fault:  # the other items of the page can be read
        values["data"] = {"unreadable": str(fault)}
    return Item(**values)


def event_of(row: Mapping[str, Any]) -> JobEvent:
    """An event from a row of `events_page`."""
    values: dict[str, Any] = dict(row)
    del values["more"]
    return JobEvent(**values)


def ending_of(row: Mapping[str, Any], state: str) -> AttemptEnded:
    """The event of an attempt that another process than its own worker has settled, with the resulting state."""
    return AttemptEnded(
        job_id=row["job_id"],
        type=row["type"],
        tenant=row["tenant"],
        queue=row["queue"],
        attempt=row["attempt"],
        outcome=row["outcome"],
        state=state,
        failures=row["failures"],
        duration_seconds=row["duration_seconds"],
        queue_seconds=row["queue_seconds"],
        correlation_id=row["correlation_id"],
        worker=row["worker"],
        error_type=row["error_type"],
        error=row["error_message"],
    )
