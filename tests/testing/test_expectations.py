"""Enqueued jobs are found by what matters, and a failure shows what is there instead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import InvalidInput
from holdfast.testing.jobs import Jobs
from tests.testing.app import hf, send


async def test_a_job_is_found_by_type_payload_and_options(jobs: Jobs) -> None:
    jobs.freeze()
    parent = await send.options(tenant="acme").enqueue(to="parent")
    ref = await hf.enqueue(
        "order.ship",
        {"order": {"id": 7, "lines": [1, 2]}, "express": True},
        queue="warehouse",
        priority=5,
        delay=3600,
        target="order-7",
        tenant="acme",
        parent=parent,
        idempotency_key="ship-7",
        max_attempts=9,
        created_by="ada",
    )
    job = jobs.assert_enqueued(
        "order.ship",
        payload={"order": {"id": 7}},
        queue="warehouse",
        priority=5,
        delay=timedelta(hours=1),
        run_at=jobs.now() + timedelta(hours=1),
        target="order-7",
        tenant="acme",
        parent=parent,
        idempotency_key="ship-7",
        max_attempts=9,
        created_by="ada",
        state="scheduled",
        tolerance=0,
    )
    assert job.id == ref.id
    assert jobs.enqueued(send, payload={"to": "parent"})[0].id == parent.id


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"payload": {"to": "bob"}}, r"payload\.to is 'ada', not 'bob'"),
        ({"payload": {"cc": "bob"}}, r"payload has no 'cc'"),
        ({"queue": "mail"}, r"queue is 'default', not 'mail'"),
        ({"priority": 1}, r"priority is 100, not 1"),
        ({"delay": 120}, r"delay is 60 s, not 120 s"),
        ({"target": "t"}, r"target is None, not 't'"),
    ],
)
async def test_what_is_there_instead_is_shown(jobs: Jobs, expected: dict[str, object], reason: str) -> None:
    jobs.freeze()
    await hf.enqueue("other")
    await hf.enqueue("email.send", {"to": "ada"}, delay=60)
    with pytest.raises(
        AssertionError, match=rf"(?s)no job was enqueued as email.send with .*waiting are.*but {reason}"
    ):
        jobs.assert_enqueued("email.send", **expected)  # type: ignore[arg-type]


def test_an_empty_database_is_said_to_be_empty(jobs: Jobs) -> None:
    with pytest.raises(AssertionError, match="nothing is waiting"):
        jobs.assert_enqueued("email.send")


async def test_jobs_are_counted(jobs: Jobs) -> None:
    for to in ("ada", "bob"):
        await send.enqueue(to=to)
    jobs.assert_enqueued(send, count=2)
    jobs.assert_enqueued(send, count=1, payload={"to": "bob"})
    with pytest.raises(AssertionError, match=r"2 jobs were enqueued as email.send, and 1 should have been"):
        jobs.assert_enqueued(send, count=1)


async def test_jobs_that_have_ended_count_on_request_alone(jobs: Jobs) -> None:
    await send.enqueue(to="ada")
    await jobs.run_due()
    jobs.assert_not_enqueued(send)
    with pytest.raises(AssertionError, match="1 such have ended already: `ended=True` counts them"):
        jobs.assert_enqueued(send)
    jobs.assert_enqueued(send, ended=True, state="success")


async def test_what_should_not_be_there_is_shown(jobs: Jobs) -> None:
    await send.enqueue(to="ada")
    jobs.assert_not_enqueued(send, payload={"to": "bob"})
    with pytest.raises(AssertionError, match=r'(?s)1 job was enqueued.*email.send \{"to": "ada"\} queued'):
        jobs.assert_not_enqueued(send)


async def test_what_the_preparations_enqueued_can_be_forgotten(jobs: Jobs) -> None:
    moment = jobs.freeze()
    await send.enqueue(to="ada")
    await jobs.run_due()
    await send.options(delay=60).enqueue(to="ada")
    jobs.clear()
    assert jobs.enqueued(ended=True) == []
    assert jobs.now() == moment


def test_a_misspelt_expectation_is_refused(jobs: Jobs) -> None:
    with pytest.raises(InvalidInput, match="did you mean 'priority'"):
        jobs.assert_not_enqueued("email.send", prioritty=1)  # type: ignore[call-arg]
