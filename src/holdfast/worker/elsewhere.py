"""What becomes of a job whose payload this worker's handler does not accept.

During a deploy, workers of two releases run, and payloads of both are recorded. A job that another live worker accepts
is left to it: this costs no attempt, and a pause that grows each time lets others go first. All other jobs are held for
a person.

1. Only payloads that this worker's own shape refuses are left to others. If the handler's own code refuses a payload,
   no shape says what the code of others would do, and the job could go back and forth.
2. A worker that has published no shape accepts everything, as far as anybody knows: it should try.
3. While the database does not answer, the job is put off: nobody can tell.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from holdfast.definitions.job_type import JobType
from holdfast.definitions.judge import Judge, judge_of
from holdfast.errors import DatabaseUnavailable
from holdfast.model.outcome import Outcome
from holdfast.worker.claimed import Claimed
from holdfast.worker.endings import Misfit

__all__ = ["Elsewhere"]

_REMEMBER_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
#: The maximal work of judging one payload by one shape, in characters.
_WORK = 4 * 2**20


class ShapeStore(Protocol):
    """Where the shapes of other workers are stored."""

    async def other_shapes(self, job_type: str, tenant: str, queue: str, /) -> list[str | None]:
        """The shapes of other live workers that could run a job; None accepts everything."""
        ...


class Elsewhere:
    """Which payloads other workers accept, as one worker knows it."""

    def __init__(self, store: ShapeStore, *, stand_back: Callable[[int, float], None]) -> None:
        self._store, self._stand_back = store, stand_back
        self._seen: dict[tuple[str, str, str], tuple[float, list[str | None]]] = {}

    async def outcome(self, claimed: Claimed, job_type: JobType, misfit: Misfit) -> Outcome:
        """Leave the job to another worker, or hold it."""
        payload = claimed.claim.payload or ""
        if misfit.failure == "hold" and _refuses(_own_judge(job_type), payload):
            try:
                shapes = await self._shapes(claimed)
            except DatabaseUnavailable:
                return Outcome.snoozed(_pause(claimed), "its payload does not fit here, and nobody could be asked")
            if any(shape is None or not _refuses(_judge(shape), payload) for shape in shapes):
                pause = _pause(claimed)
                self._stand_back(claimed.claim.stream.id, pause)
                return Outcome.snoozed(pause, f"left to another worker, which takes its payload: {misfit.fault}")
        return Outcome.failed(misfit.fault, failure=misfit.failure)

    async def _shapes(self, claimed: Claimed) -> list[str | None]:
        stream = claimed.claim.stream
        key = stream.type, stream.tenant, stream.queue
        until, shapes = self._seen.get(key, (float("-inf"), []))
        if time.monotonic() >= until:
            shapes = await self._store.other_shapes(*key)
            if len(self._seen) > 1000:
                self._seen.clear()
            self._seen[key] = time.monotonic() + _REMEMBER_SECONDS, shapes
        return shapes


def _refuses(judge: Judge | None, payload: str) -> bool:
    """Whether a payload does not fit. A payload that cannot be judged counts as fitting."""
    return judge is not None and len(payload) * judge.weight <= _WORK and bool(judge.faults(payload))


@lru_cache(256)
def _own_judge(job_type: JobType) -> Judge | None:
    shape = job_type.payload.shape()
    return None if shape is None else judge_of(json.dumps(shape))


@lru_cache(64)
def _judge(shape: str) -> Judge | None:
    return judge_of(shape)


def _pause(claimed: Claimed) -> float:
    """A pause that grows each time: other workers may be busy."""
    before = claimed.claim.attempt - claimed.claim.failures - 1
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(max(0, before), 10)))
