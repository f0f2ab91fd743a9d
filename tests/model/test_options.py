"""Options are checked before anything is sent, and errors say what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from holdfast.errors import InvalidInput
from holdfast.model.options import DECLARED, engine_options


def test_options_become_what_the_engine_takes() -> None:
    parent = SimpleNamespace(id=uuid4())
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert engine_options({"priority": 0, "parent": parent, "delay": timedelta(minutes=1), "hold": True}) == {
        "priority": 0, "parent_id": str(parent.id), "delay": 60.0, "hold": True,
    }  # fmt: skip
    assert engine_options({"run_at": moment, "target": "t"}) == {"run_at": moment.isoformat(), "target": "t"}


def test_what_the_statement_takes_itself_and_what_is_none_is_left_out() -> None:
    assert engine_options({"tenant": "a", "created_by": "b", "priority": None}) == {}


def test_a_negative_delay_means_now() -> None:
    assert engine_options({"delay": -5}) == {"delay": 0.0}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"priorty": 1}, "did you mean 'priority'"),
        ({"zzz": 1}, "known are priority"),
        ({"priority": -1}, "a whole number from 0 to 1000000000"),
        ({"priority": True}, "whole number"),
        ({"priority": 1.5}, "whole number"),
        ({"max_attempts": 0}, "a whole number from 1 to"),
        ({"target_count": 0}, "a whole number from 1 to"),
        ({"run_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - that it has none is the point
        ({"run_at": "2030-01-01"}, "datetime"),
        ({"delay": "soon"}, "seconds or a timedelta"),
        ({"delay": float("nan")}, "seconds or a timedelta"),
        ({"delay": float("inf")}, "seconds or a timedelta"),
        ({"hold": 1}, "True or False"),
        ({"target": ""}, "non-empty string"),
        ({"queue": 5}, "non-empty string"),
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "not both"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        engine_options(options)


def test_every_option_of_the_specification_is_known() -> None:
    assert set(DECLARED) >= {
        "priority", "run_at", "delay", "idempotency_key", "dedup_key", "correlation_id", "parent", "max_attempts",
        "target", "tenant", "queue", "hold", "target_count", "created_by", "traceparent",
    }  # fmt: skip
