"""Counts what a worker does, and writes every second how it is: its gauges and its vital signs.

The latter happens in the lease keeper's thread, which no busy handler can starve, and which runs to the end of a drain.
Only the depth of queues is asked of the database, by the leader alone.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.lifecycle.service import Service
from holdfast.telemetry.worker_metrics import WorkerMetrics
from holdfast.worker.vitals import VitalSigns, resident_bytes
from holdfast.worker.worker import Worker

__all__ = ["Measuring"]

_DEPTH_SECONDS = 15.0
_LOOK_SECONDS = 1.0


class Measuring(Service):
    """Measures one worker."""

    name = "measuring"

    def __init__(self, worker: Worker, metrics: WorkerMetrics, vitals: Path) -> None:
        super().__init__(worker.events)
        self._worker, self._metrics, self._vitals = worker, metrics, vitals

    def begin(self) -> None:
        """Before the worker runs: hear of all that it does."""
        self._metrics.subscribe(self._worker.events)
        self._worker.observe_statements(self._metrics.queried)
        self._worker.on_pulse = self._pulse
        self._worker.attend(self)

    async def round(self) -> float:
        """Ask for the depth of queues, if this process leads."""
        if not self._metrics.leads:
            return _LOOK_SECONDS
        self._metrics.depths(await self._worker.queue_depths())
        return _DEPTH_SECONDS

    def _pulse(self, signs: VitalSigns) -> None:
        figures = self._worker.figures()
        self._metrics.sample(
            running=figures.running,
            slots=figures.slots,
            used=figures.used,
            unsettled=figures.unsettled,
            lag_seconds=figures.lag_seconds,
            memory_bytes=resident_bytes(),
        )
        signs.write(self._vitals)
