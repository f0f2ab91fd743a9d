"""What `holdfast conform` holds against a worker: what it did in this trial, and nothing else."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from holdfast.remote.conformance import judging
from holdfast.remote.conformance.listening import Incoming, Reply
from holdfast.remote.conformance.stage import Stage, Trouble
from holdfast.remote.conformance.trials import Trial, Wrong


async def call(stage: Stage, verb: str, **body: Any) -> Reply:
    """One call of the worker."""
    headers = {"authorization": "Bearer secret", "content-type": "application/json"}
    text = json.dumps({"worker_id": "w", **body}).encode()
    return await stage.answer(Incoming(method="POST", path=f"/worker/{verb}", headers=headers, body=text))


async def pulled(stage: Stage, request_id: str = "r") -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = (await call(stage, "pull", types=["conform.echo"], request_id=request_id)).body["jobs"]
    return [{"job_id": job["job_id"], "attempt": job["attempt"]} for job in jobs]


async def test_retry_after_counts_for_the_message_that_it_answers() -> None:
    stage = Stage("secret")
    stage.offer("conform.echo", {})
    (first,) = await pulled(stage, "1")
    stage.offer("conform.echo", {})
    (second,) = await pulled(stage, "2")
    stage.trouble.append(Trouble(verb="report", reply=Reply(status=429, headers={"Retry-After": "5"})))
    assert (await call(stage, "report", **first, done=True)).status == 429
    assert (await call(stage, "report", **second, done=True)).status == 200
    assert stage.wrong == []
    await call(stage, "report", **first, done=True)
    assert "came back" in stage.wrong[0]


async def test_a_job_of_an_earlier_trial_is_gone_and_meets_no_trouble() -> None:
    stage = Stage("secret")
    stage.offer("conform.echo", {})
    (old,) = await pulled(stage)
    stage.clear()
    stage.trouble.append(Trouble(verb="report", reply=Reply(status=503)))
    assert (await call(stage, "report", **old, done=True)).status == 409
    assert stage.trouble[0].times == 1
    assert await pulled(stage) == []
    assert stage.wrong == []


async def test_a_lost_lease_is_told_as_the_server_tells_it() -> None:
    stage = Stage("secret")
    job = stage.offer("conform.echo", {})
    (lease,) = await pulled(stage)
    job.take_away()
    answer = (await call(stage, "extend", leases=[lease])).body["leases"][0]
    assert answer == {
        **lease,
        "owned": False,
        "directive": None,
        "lease_expires_at": None,
        "lease_remaining_ms": None,
    }


async def test_what_did_not_come_after_a_trial_broke_off_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(stage: Stage) -> None:
        stage.note("sent something else")
        raise Wrong("lost a report: item-0 never came")

    monkeypatch.setattr(judging, "TRIALS", (Trial(name="items", rule="", try_it=broken),))
    worker = [sys.executable, "-m", "tests.remote.wrong", "right"]
    (judgement,) = await judging.conform(worker)
    assert judgement.wrong == ("sent something else",)
