"""One attempt after the other: told, run, settled, whatever happens; and those that end without a handler."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from holdfast.definitions.job_type import JobType
from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.outcome import Outcome
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import AttemptStarted, LeaseLost
from holdfast.worker.execution import STRUCK, Execution
from holdfast.worker.held import Held, HeldAttempts

__all__ = ["Attempts"]

_INTERRUPTED = Outcome.released("the worker was interrupted")


class Attempts:
    """Runs attempts of a worker and gives their outcomes to those who settle."""

    def __init__(
        self,
        worker: str,
        bus: Bus,
        held: HeldAttempts,
        execution: Execution,
        *,
        types: Mapping[str, JobType],
        timeouts: Mapping[str, float],
        on_ended: Callable[[Held], None],
        on_struck: Callable[[Held], None],
        settle: Callable[[Held, Outcome], None],
    ) -> None:
        self._worker, self._bus, self._held, self._execution = worker, bus, held, execution
        self._types, self._timeouts = types, timeouts
        self._on_ended, self._on_struck, self._settle = on_ended, on_struck, settle

    async def run(self, held: Held) -> None:
        """Run an attempt to its end, and have it settled."""
        outcome = _INTERRUPTED
        try:
            job_type = self._types[held.claim.stream.type]
            timeout = self._timeouts[job_type.name]
            # Its time counts from here: those who are told of its start are foreign code, and may block the loop.
            held.started = time.monotonic()
            if self._bus.hears(AttemptStarted):
                self._tell_start(held)
            outcome = await self._execution.run(held, job_type, timeout)
            if outcome is STRUCK:
                self._on_struck(held)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            outcome = Outcome.failed(error)
        finally:
            held.stuck_at, held.ended = None, True
            try:
                self._on_ended(held)
            finally:
                self._settle(held, outcome)

    def hand_back(self, held: Held) -> None:
        """It was claimed ahead, and its time did not come."""
        held.ended = True  # it may come again before the answer to this
        self._settle(held, Outcome.released("claimed ahead and not needed"))

    def lost(self, held: Held) -> None:
        """The database says that a lease is gone, while its handler still runs."""
        if self._held.get(held.claim.job_id) is held and held.running:
            if held.claim.target is not None:
                held.stop("lease")
            self._bus.emit(
                LeaseLost(
                    job_id=held.claim.job_id,
                    type=held.claim.stream.type,
                    attempt=held.claim.attempt,
                    worker=self._worker,
                )
            )

    def claimed_again(self, earlier: Held, held: Held) -> None:
        """A job came back to us while an attempt of it whose lease has lapsed is still here: one at a time."""
        if not earlier.lost:
            earlier.lost = True
            self.lost(earlier)
        self._settle(held, Outcome.snoozed(1.0, "an earlier attempt has not ended yet in this worker"))

    def _tell_start(self, held: Held) -> None:
        claim = held.claim
        self._bus.emit(
            AttemptStarted(
                job_id=claim.job_id,
                type=claim.stream.type,
                tenant=claim.stream.tenant,
                queue=claim.stream.queue,
                attempt=claim.attempt,
                queue_seconds=(claim.claimed_at - claim.ready_at).total_seconds(),
                correlation_id=claim.correlation_id,
                worker=self._worker,
            )
        )
