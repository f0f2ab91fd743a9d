"""Outcomes and retry policies: the fields a settlement needs, in a form that PostgreSQL takes."""

from __future__ import annotations

import time

import pytest

from holdfast.errors import InvalidInput
from holdfast.model.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT, Outcome
from holdfast.model.retry import RetryPolicy


def raised(message: str) -> ValueError:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_a_failure_carries_type_message_and_traceback() -> None:
    outcome = Outcome.failed(raised("boom"), failure="retry", delay_seconds=5)
    assert (outcome.kind, outcome.failure, outcome.error_type, outcome.message, outcome.delay_seconds) == (
        "failed", "retry", "ValueError", "boom", 5,
    )  # fmt: skip
    assert outcome.traceback is not None
    assert outcome.traceback.startswith("Traceback")
    assert Outcome.failed(ValueError()).message == "ValueError"


def test_an_error_that_is_slow_to_say_what_it_is_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.model.foreign._SLOW_SECONDS", 0.01)
    asked: list[BaseException] = []

    class Slow(Exception):
        def __str__(self) -> str:
            asked.append(self)
            time.sleep(0.02)
            return "in the end"

    def fail() -> None:
        raise Slow

    with pytest.raises(Slow) as caught:
        fail()
    outcome = Outcome.failed(caught.value)
    assert (outcome.error_type, outcome.message, len(asked)) == ("Slow", "in the end", 1)
    assert outcome.traceback is not None
    assert "in fail" in outcome.traceback
    assert outcome.traceback.endswith("Slow: in the end\n")


@pytest.mark.parametrize("message", ["a\x00b", "lone \ud800 surrogate", "x" * 100_000, "é" * 100_000])
def test_messages_are_bounded_and_storable(message: str) -> None:
    outcome = Outcome.failed(raised(message))
    for text, limit in ((outcome.message, MESSAGE_LIMIT), (outcome.traceback, TRACEBACK_LIMIT)):
        assert text is not None
        assert len(text) <= limit + 3
        assert "\x00" not in text
        assert text.encode().decode() == text


def test_the_other_endings_say_what_they_are() -> None:
    assert Outcome.success('{"n": 1}') == Outcome(kind="success", result='{"n": 1}')
    assert Outcome.snoozed(5, "later") == Outcome(kind="snoozed", delay_seconds=5, message="later")
    assert Outcome.handed_back("drained") == Outcome(kind="released", message="drained")
    assert Outcome.canceled("asked") == Outcome(kind="canceled", message="asked")
    assert Outcome.paused("asked") == Outcome(kind="paused", message="asked")
    timeout = Outcome.timed_out(2.5)
    assert (timeout.kind, timeout.error_type, timeout.message) == (
        "timeout", "Timeout", "the handler ran longer than 2.5 s",
    )  # fmt: skip


def test_a_policy_that_declares_nothing_follows_the_settings() -> None:
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.base, policy.factor, policy.max, policy.jitter) == (None,) * 5


@pytest.mark.parametrize(
    "fields",
    [
        {"max_attempts": 0},
        {"base": -1},
        {"base": 5e-324},
        {"max": -1},
        {"max": 1e-60},
        {"factor": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"jitter": 1e-100},
    ],
)
def test_senseless_policies_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        RetryPolicy(**fields)  # type: ignore[arg-type]
