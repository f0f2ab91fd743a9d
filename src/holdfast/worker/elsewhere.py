"""What becomes of a job whose payload this worker's handler does not take.

While a deploy is under way, workers of two releases run, and payloads of both are recorded. A job that another live
worker takes is left to it, at no cost, after a pause that grows each time; then others go first. All other jobs are
held for a person.

1. Only what this worker's own shape refuses is left to others. If the handler's own code refuses a payload, no shape
   tells what theirs would say, and the job would go to and fro.
2. A worker that has published no shape takes everything, as far as anybody knows: it is to try.
3. While the database does not answer, the job is handed back: nobody can tell.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import lru_cache

from holdfast.definitions.job_type import JobType
from holdfast.definitions.judge import Judge, judge_of
from holdfast.errors import DatabaseUnavailable
from holdfast.model.outcome import Outcome
from holdfast.store.leases import LeaseStore
from holdfast.worker.endings import Misfit
from holdfast.worker.held import Held

__all__ = ["Elsewhere"]

_REMEMBER_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
#: How many characters are judged for one payload, by one shape.
_WORK = 4 * 2**20


class Elsewhere:
    """What the other workers take, as one worker knows it."""

    def __init__(self, store: LeaseStore, *, stand_back: Callable[[int, float], None]) -> None:
        self._store, self._stand_back = store, stand_back
        self._seen: dict[tuple[str, str, str], tuple[float, list[str | None]]] = {}

    async def outcome(self, held: Held, job_type: JobType, misfit: Misfit) -> Outcome:
        """Left to another worker, or held."""
        payload = held.claim.payload or ""
        if misfit.failure == "hold" and _refuses(_own_judge(job_type), payload):
            try:
                shapes = await self._shapes(held)
            except DatabaseUnavailable:
                return Outcome.snoozed(_pause(held), "its payload does not fit here, and nobody could be asked")
            if any(shape is None or not _refuses(_judge(shape), payload) for shape in shapes):
                pause = _pause(held)
                self._stand_back(held.claim.stream.id, pause)
                return Outcome.snoozed(pause, f"left to another worker, which takes its payload: {misfit.fault}")
        return Outcome.failed(misfit.fault, failure=misfit.failure)

    async def _shapes(self, held: Held) -> list[str | None]:
        stream = held.claim.stream
        key = stream.type, stream.tenant, stream.queue
        until, shapes = self._seen.get(key, (float("-inf"), []))
        if time.monotonic() >= until:
            shapes = await self._store.other_shapes(*key)
            if len(self._seen) > 1000:
                self._seen.clear()
            self._seen[key] = time.monotonic() + _REMEMBER_SECONDS, shapes
        return shapes


def _refuses(judge: Judge | None, payload: str) -> bool:
    """Whether a payload does not fit; what cannot be judged does, as far as anybody knows."""
    return judge is not None and len(payload) * judge.weight <= _WORK and bool(judge.faults(payload))


@lru_cache(256)
def _own_judge(job_type: JobType) -> Judge | None:
    shape = job_type.payload.shape()
    return None if shape is None else judge_of(json.dumps(shape))


@lru_cache(64)
def _judge(shape: str) -> Judge | None:
    return judge_of(shape)


def _pause(held: Held) -> float:
    """Longer each time: others may have much to do."""
    before = held.claim.attempt - held.claim.failures - 1
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(max(0, before), 10)))
