"""The metrics of a worker: names, labels and buckets that users' dashboards rely on.

`job_*` and `db_*` are those of the image-processing service that Holdfast replaces; all others begin with `holdfast_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import (
    AttemptEnded,
    AttemptStarted,
    DatabaseLost,
    DutyFailed,
    Event,
    LeaderChanged,
    LeaseLost,
    LoopBlocked,
    Mended,
    ScheduleFailed,
    ScheduleMissed,
)
from holdfast.telemetry.shared_metrics import SharedMetrics

__all__ = ["STATUSES", "WorkerMetrics"]

_SECONDS = (0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10)
_MILLISECONDS = (10, 30, 50, 70, 100, 300, 500, 700, *range(1000, 10_001, 500))
#: What dashboards call the state of a job after an attempt; other states keep their names.
STATUSES = {"success": "completed", "retry": "failed_retryable", "dead": "failed"}


class WorkerMetrics:
    """Counts what one worker does."""

    def __init__(self, shared: SharedMetrics, worker: str) -> None:
        self._worker = worker
        #: Whether this process leads maintenance.
        self.leads = False
        kind = ("job_type",)
        self._durations = shared.histogram(
            "job_processing_duration_seconds", "Duration of job processing", ("job_type", "status"), _SECONDS
        )
        self._latencies = shared.histogram(
            "job_queue_latency_milliseconds", "Duration of job queue latency", kind, _MILLISECONDS
        )
        self._processed = shared.counter(
            "job_processed_total", "Total number of jobs processed", ("job_type", "status")
        )
        self._active = shared.gauge("job_active_count", "Number of active jobs", kind)
        self._depth = shared.gauge("job_queue_depth", "Number of jobs in the queue; the leader alone tells", kind)
        self._queries = shared.histogram(
            "db_query_duration_seconds", "Duration of DB queries", ("query_type",), _SECONDS
        )
        self._query_errors = shared.counter(
            "db_query_errors_total", "Total number of DB query errors", ("query_type", "error_type")
        )
        self._slots = shared.gauge("holdfast_worker_slots", "Slots of this worker", ("lane",))
        self._used = shared.gauge("holdfast_worker_slots_used", "Slots of this worker in use", ("lane",))
        self._unsettled = shared.gauge("holdfast_worker_unsettled", "Attempts that ended and are not recorded yet")
        self._lag = shared.gauge(
            "holdfast_worker_settlement_lag_seconds",
            "Age of the oldest outcome that is not recorded yet",
            together="max",
        )
        self._memory = shared.gauge("holdfast_worker_memory_bytes", "Resident memory of the worker's processes")
        self._leader = shared.gauge("holdfast_leader", "Whether a process here leads maintenance (1) or not (0)")
        self._leader.set(0)
        self._lost = shared.counter("holdfast_leases_lost_total", "Attempts whose lease was lost", kind)
        self._dead = shared.counter("holdfast_dead_letters_total", "Jobs that died here", kind)
        self._repairs = shared.counter("holdfast_repairs_total", "What maintenance has repaired", ("what",))
        self._duties = shared.counter("holdfast_duty_failures_total", "Failures of duties of maintenance", ("duty",))
        self._plain = {
            ScheduleMissed: shared.counter("holdfast_schedules_missed_total", "Times that a schedule came too late"),
            ScheduleFailed: shared.counter("holdfast_schedule_failures_total", "Failures of schedules to fire"),
            DatabaseLost: shared.counter("holdfast_database_outages_total", "Times that a part lost the database"),
            LoopBlocked: shared.counter("holdfast_loop_blocked_total", "Reports of a blocked event loop"),
        }

    def subscribe(self, bus: Bus) -> None:
        """Hear of all that is counted."""
        bus.subscribe(
            self.hear,
            AttemptStarted,
            AttemptEnded,
            LeaseLost,
            LeaderChanged,
            Mended,
            DutyFailed,
            ScheduleMissed,
            ScheduleFailed,
            DatabaseLost,
            LoopBlocked,
        )

    def hear(self, event: Event) -> None:
        """Something happened."""
        match event:
            case AttemptStarted():
                self._latencies.observe(event.queue_seconds * 1000, event.type)
            case AttemptEnded():
                self._ended(event)
            case LeaseLost():
                self._lost.add(event.type)
            case LeaderChanged():
                self._leading(event.leading)
            case Mended():
                self._repairs.add(event.what)
            case DutyFailed():
                self._duties.add(event.duty)
            case _:
                self._plain[type(event)].add()

    def _ended(self, event: AttemptEnded) -> None:
        if event.worker != self._worker:
            return  # the leader took back the lease of another worker
        status = STATUSES.get(event.state, event.state)
        self._processed.add(event.type, status)
        self._durations.observe(event.duration_seconds, event.type, status)
        if event.state == "dead":
            self._dead.add(event.type)

    def _leading(self, leading: bool) -> None:
        self.leads = leading
        self._leader.set(float(leading))
        if not leading:
            self._depth.set_all(())

    def queried(self, statement: str, seconds: float, error_code: str | None) -> None:
        """A statement was answered, or failed."""
        self._queries.observe(seconds, statement)
        if error_code is not None:
            self._query_errors.add(statement, error_code)

    def depths(self, depths: Iterable[tuple[str, int]]) -> None:
        """How many jobs of each type wait for a worker."""
        self._depth.set_all(((job_type,), float(count)) for job_type, count in depths)

    def sample(
        self,
        *,
        running: Mapping[str, int],
        slots: Mapping[str, int],
        used: Mapping[str, int],
        unsettled: int,
        lag_seconds: float,
        memory_bytes: int,
    ) -> None:
        """How the worker is now."""
        self._active.set_all(((job_type,), float(count)) for job_type, count in running.items())
        for lane, count in slots.items():
            self._slots.set(count, lane)
            self._used.set(used.get(lane, 0), lane)
        self._unsettled.set(unsettled)
        self._lag.set(lag_seconds)
        self._memory.set(memory_bytes)
