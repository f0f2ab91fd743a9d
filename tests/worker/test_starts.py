"""Jobs at their last chance begin in turn: a fault that one of them meets stops no other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import pytest

from holdfast.errors import DatabaseBusy, DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.elapsed import elapsed
from holdfast.telemetry.bus import Bus
from holdfast.worker.claimed import Claimed
from holdfast.worker.endings import NotBegun
from holdfast.worker.starts import Starts

pytestmark = pytest.mark.timeout(20)


class StubStore:
    """Records every beginning, but for jobs with a fault."""

    def __init__(self) -> None:
        self.faults: dict[UUID, HoldfastError] = {}
        self.tries = 0

    async def record_beginning(self, job_id: UUID, _attempt: int) -> bool:
        self.tries += 1
        await asyncio.sleep(0)
        if job_id in self.faults:
            raise self.faults[job_id]
        return True


def job() -> Claimed:
    leased = SimpleNamespace(
        job_id=uuid4(), attempt=1, interrupt=None, lost=False, lease_end=elapsed() + 60, waited=0.0
    )
    return cast("Claimed", leased)


@pytest.fixture
def store() -> StubStore:
    return StubStore()


@pytest.fixture
def starts(store: StubStore) -> Starts:
    return Starts(store, Bus())


@pytest.mark.parametrize("fault", [DatabaseBusy("locked"), DatabaseUnavailable("ended", reason="slow")])
async def test_a_fault_that_one_job_meets_stops_no_other(
    store: StubStore, starts: Starts, fault: HoldfastError
) -> None:
    unlucky = job()
    store.faults[unlucky.job_id] = fault
    waiting = asyncio.create_task(starts.begin(unlucky))
    for _ in range(5):
        other = job()
        await starts.begin(other)
        starts.pass_on(other)
    assert not waiting.done()
    del store.faults[unlucky.job_id]
    await waiting


async def test_an_outage_is_not_met_with_more_tries_for_more_jobs(store: StubStore, starts: Starts) -> None:
    jobs = [job() for _ in range(50)]
    store.faults = {claimed.job_id: DatabaseUnavailable("nobody answers") for claimed in jobs}
    waiting = [asyncio.create_task(starts.begin(claimed)) for claimed in jobs]
    await asyncio.sleep(0.5)
    assert 2 <= store.tries <= 10
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_job_that_the_database_refuses_is_handed_back(store: StubStore, starts: Starts) -> None:
    refused = job()
    store.faults[refused.job_id] = HoldfastError("permission denied for function record_beginnings")
    with pytest.raises(NotBegun, match="permission denied"):
        await starts.begin(refused)
    assert store.tries == 1
    await starts.begin(job())
