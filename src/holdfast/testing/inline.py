"""Inline mode: what is enqueued is recorded, claimed, run and settled before `enqueue` returns.

What the engine would not run at once is not run here either: scheduled and held jobs, those behind another one of
their target, and what was recorded through a caller's connection, whose transaction has not committed yet. They wait,
as ever, for `run_due`.
"""

from __future__ import annotations

from holdfast.client.job_ref import JobRef
from holdfast.client.new_job import NewJob, Record
from holdfast.model.states import State
from holdfast.testing.running import Runner
from holdfast.worker.middleware import Middleware

__all__ = ["Inline"]


class Inline(Middleware):
    """Stands around every recording, and runs what was recorded."""

    def __init__(self, runner: Runner, *, raise_errors: bool) -> None:
        self._runner, self._raise_errors = runner, raise_errors

    async def enqueue(self, jobs: list[NewJob], call_next: Record) -> list[JobRef]:
        """Record the jobs, then run those that can be, in their order."""
        refs = await call_next(jobs)
        for ref in refs:
            if ref.outcome == "created" and ref.state is State.QUEUED and self._runner.could_run(ref.id, ref.type):
                await self._runner.run_one(ref.id, self._raise_errors)
        return refs
