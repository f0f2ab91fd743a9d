"""One intent, one job, however many ask at once."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast, KeyConflict
from tests.harness.deeds import Deeds
from tests.harness.history import History

CLIENTS = 4


async def test_two_hundred_enqueues_of_one_key_from_four_processes_make_one_job(
    hf: Holdfast, database_url: str, tmp_path: Path, deeds: Deeds
) -> None:
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": database_url, "HISTORY_FOLDER": str(tmp_path)}
    clients = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.same_key",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        for _ in range(CLIENTS)
    ]
    async with asyncio.timeout(90):
        for client in clients:
            assert client.stdout is not None
            assert await client.stdout.readline() == b"ready\n"
        ends = await asyncio.gather(*(client.communicate(b"go\n") for client in clients))
    assert [client.returncode for client in clients] == [0] * CLIENTS, ends

    answers = [fact for fact in History(tmp_path).facts() if fact.kind == "enqueued"]
    deeds.say(f"{len(answers)} enqueues from {CLIENTS} processes, {len({fact.job_id for fact in answers})} jobs")
    assert len([fact for fact in answers if fact.key == "order-1"]) == 200
    found = {fact.key: {other.job_id for other in answers if other.key == fact.key} for fact in answers}
    assert {len(ids) for ids in found.values()} == {1}
    jobs = await hf.find(limit=1000)
    assert {job.idempotency_key for job in jobs} == found.keys()
    assert len(jobs) == len(found) == 61

    with pytest.raises(KeyConflict, match=r"the idempotency key 'order-1' belongs to job .* another type or payload"):
        await hf.enqueue("pay", {"amount": 8}, idempotency_key="order-1")
    with pytest.raises(KeyConflict):
        await hf.enqueue("refund", {"amount": 7}, idempotency_key="order-1")
    again = await hf.enqueue("pay", {"amount": 7}, idempotency_key="order-1")
    assert (again.existing, {again.id}) == (True, found["order-1"])
