"""The metrics of the control plane: names, labels and buckets that users' dashboards rely on.

They live in a registry of their own: a worker in the same process has another.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast.model.subject import Lane
from holdfast.store.labels import labels_of

__all__ = ["Metrics"]

_SECONDS = (0.1, 0.3, 0.5, 1, 2, 5, 10)
_BYTES = tuple(1024 * 2**power for power in range(11))


class Metrics:
    """The counters, histograms and gauges."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        #: When the figures of lanes were asked for.
        self.lanes_asked_at = float("-inf")
        #: A cache of counters: looking them up by labels costs more than counting.
        self._served: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        http = ("method", "route", "status_code")
        self._seconds = self._histogram("http_request_duration_seconds", "Duration of HTTP requests", http, _SECONDS)
        self._requests = self._counter("http_requests_total", "Total number of HTTP requests", http)
        self._uploads = self._histogram("upload_size_bytes", "Upload size in bytes", ("mime_type",), _BYTES)
        query = ("operation", "table")
        self._queries = self._histogram("db_query_duration_seconds", "Duration of DB queries", query, _SECONDS)
        self._query_errors = self._counter(
            "db_query_error_total", "Total number of DB query errors", (*query, "error_code")
        )
        self._slots = self._gauge("holdfast_lane_slots", "Slots of live workers")
        self._running = self._gauge("holdfast_lane_running", "Running jobs whose type belongs to the lane")
        self._used = self._gauge("holdfast_lane_used", "Slots of live workers in use")
        self._utilisation = self._gauge("holdfast_lane_utilisation", "Slots in use, divided by slots")
        self._database_up = Gauge(
            "holdfast_database_up", "Whether the database answers (1) or not (0)", registry=self.registry
        )
        external = ("service", "operation")
        self._histogram("external_duration_seconds", "Duration of external service calls", external, _SECONDS)
        self._counter("external_error_total", "Total number of external service errors", (*external, "error_code"))

    def served(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        found = self._served.get((method, route, status))
        if found is None:
            labels = (method, route, str(status))
            found = self._requests.labels(*labels), self._seconds.labels(*labels)
            self._served[method, route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def lanes(self, lanes: Sequence[Lane] | None) -> None:
        """How busy the workers of the whole installation are; None if the database did not answer.

        Then the figures are left out, because old ones would look like new ones.
        """
        self._database_up.set(lanes is not None)
        for gauge in (self._slots, self._running, self._used, self._utilisation):
            gauge.clear()
        for lane in lanes or ():
            self._slots.labels(lane.name).set(lane.slots)
            self._running.labels(lane.name).set(lane.running)
            self._used.labels(lane.name).set(lane.used)
            self._utilisation.labels(lane.name).set(lane.utilisation or 0.0)

    def uploaded(self, mime_type: str, size: int) -> None:
        """A body came in."""
        self._uploads.labels(mime_type).observe(size)

    def queried(self, statement: str, seconds: float, error_code: str | None) -> None:
        """A statement was answered, or failed."""
        labels = labels_of(statement)
        self._queries.labels(*labels).observe(seconds)
        if error_code is not None:
            self._query_errors.labels(*labels, error_code).inc()

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ("lane",), registry=self.registry)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)
