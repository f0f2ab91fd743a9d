"""Runs attempts: announces, runs and settles each one in any case; and handles those that end without a handler."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from holdfast.definitions.job_type import JobType
from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.outcome import Outcome
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import AttemptStarted, LeaseLost
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.deadlines import Timeouts
from holdfast.worker.execution import Execution
from holdfast.worker.verdicts import STRUCK

__all__ = ["Attempts"]

#: How long a job is put off at most while an earlier attempt of it still runs here.
_LONGEST_PUT_OFF_SECONDS = 60.0
_INTERRUPTED = Outcome.handed_back("the worker was interrupted")


class Attempts:
    """Runs a worker's attempts and passes their outcomes to `settle`."""

    def __init__(
        self,
        worker: str,
        bus: Bus,
        claimed: ClaimedAttempts,
        execution: Execution,
        *,
        types: Mapping[str, JobType],
        timeouts: Timeouts,
        on_ended: Callable[[Claimed], None],
        on_struck: Callable[[Claimed], None],
        settle: Callable[[Claimed, Outcome], None],
    ) -> None:
        self._worker, self._bus, self._claimed, self._execution = worker, bus, claimed, execution
        self._types, self._timeouts = types, timeouts
        self._on_ended, self._on_struck, self._settle = on_ended, on_struck, settle

    async def run(self, claimed: Claimed) -> None:
        """Run an attempt to its end, and have it settled."""
        outcome = _INTERRUPTED
        try:
            job_type = self._types[claimed.claim.stream.type]
            timeout = self._timeouts.begin(claimed)
            # The timeout counts from here: observers of the start event are foreign code, and may block the loop.
            claimed.started = time.monotonic()
            if self._bus.hears(AttemptStarted):
                self._tell_start(claimed)
            outcome = await self._execution.run(claimed, job_type, timeout)
            if outcome is STRUCK:
                self._on_struck(claimed)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            outcome = Outcome.failed(error)
        finally:
            claimed.stuck_at, claimed.ended = None, True
            try:
                self._on_ended(claimed)
            finally:
                self._settle_surely(claimed, outcome)

    def _settle_surely(self, claimed: Claimed, outcome: Outcome) -> None:
        """Pass on an outcome. One that cannot be passed on is a failure: handed back at no cost, it would never end."""
        try:
            self._settle(claimed, outcome)
        except MemoryError:
            raise  # the lookout finds the attempt
        except Exception as fault:  # noqa: BLE001 - whatever is wrong with it
            self._settle(claimed, Outcome.failed(fault))

    def hand_back(self, claimed: Claimed) -> None:
        """Hand back a job that was claimed ahead and not started."""
        claimed.ended = True  # the job may be claimed again before this is answered
        self._settle(claimed, Outcome.handed_back("claimed ahead and not needed"))

    def lost(self, claimed: Claimed) -> None:
        """Stop a handler whose lease is gone, as the database says: its result would be dropped.

        Otherwise, the slots of handlers that nobody counts any more would add up.
        """
        if self._claimed.get(claimed.claim.job_id) is claimed and claimed.running:
            claimed.stop("lease")
            self._bus.emit(
                LeaseLost(
                    job_id=claimed.claim.job_id,
                    type=claimed.claim.stream.type,
                    attempt=claimed.claim.attempt,
                    worker=self._worker,
                )
            )

    def claimed_again(self, earlier: Claimed, claimed: Claimed) -> None:
        """Put off a job that was claimed again while an earlier attempt of it, whose lease is gone, still runs here.

        Each time leaves a row, so the job comes back after as long as it has waited by now, at most a minute.
        """
        if not earlier.lost:
            earlier.lost = True
            self.lost(earlier)
        pause = min(2.0 ** min(earlier.put_off, 6), _LONGEST_PUT_OFF_SECONDS)
        earlier.put_off += 1
        self._settle(claimed, Outcome.snoozed(pause, "an earlier attempt has not ended yet in this worker"))

    def _tell_start(self, claimed: Claimed) -> None:
        claim = claimed.claim
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
