"""How often waiting callers poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID, uuid4

from holdfast.client.watch import Watcher
from holdfast.model.states import State
from holdfast.store.tenancy import PublicJob, TenancyStore


class Reporting:
    """A job that has reported something at every look."""

    def __init__(self) -> None:
        now = datetime.now(UTC)
        self.job = PublicJob(
            id=uuid4(), tenant="t", type="x", state=State.RUNNING, target=None, created_at=now, updated_at=now
        )

    async def jobs(self, asked: Sequence[tuple[str, UUID]]) -> list[PublicJob]:
        self.job = replace(self.job, updated_at=self.job.updated_at + timedelta(seconds=1))
        return [self.job]


async def test_reports_without_end_are_not_asked_for_more_and_more_often() -> None:
    source = Reporting()
    watcher = Watcher(cast("TenancyStore", source))
    job, pauses = source.job, []
    for _ in range(12):
        job = await watcher.changed(job, 5)
        pauses.append(watcher._pause)
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.1
    # Another state is another matter, and so is somebody new.
    source.job = replace(source.job, state=State.SUCCESS)
    ended = await watcher.changed(job, 5)
    assert watcher._pause == 0.01
    watcher._pause = 0.25
    await watcher.changed(ended, 5)
    assert watcher._pause < 0.1
