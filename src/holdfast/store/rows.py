"""Rows become values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.model.job import Attempt, Event, Job
from holdfast.model.progress import Item
from holdfast.model.states import State

__all__ = ["attempt_of", "event_of", "item_of", "job_of"]


def job_of(row: Mapping[str, Any]) -> Job:
    """A job from a row of `job_details`."""
    values = dict(row)
    values["state"] = State(values["state"])
    values["payload"] = json.loads(values["payload"])
    values["result"] = None if values["result"] is None else json.loads(values["result"])
    values["cursor"] = None if values["cursor"] is None else json.loads(values["cursor"])
    return Job(**values)


def attempt_of(row: Mapping[str, Any]) -> Attempt:
    """An attempt from a row of `job_attempts`."""
    return Attempt(**dict(row))


def item_of(row: Mapping[str, Any]) -> Item:
    """An item from a row of `job_items`."""
    return Item(**{**dict(row), "data": json.loads(row["data"])})


def event_of(row: Mapping[str, Any]) -> Event:
    """An event from a row of `job_events`."""
    values: dict[str, Any] = dict(row)
    del values["id"]
    return Event(**values)
