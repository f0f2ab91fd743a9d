"""Metrics of several processes in one folder, for one page that adds them up.

1. A process writes its figures into files of its own that are mapped into memory, so a kill loses nothing of them.
2. A process has the number of its place: the process that replaces it goes on counting where it stopped.
3. Only counters go on. Gauges say how things are now: they begin anew with each process, and those of a place without a
   living process are left out.

Files and their reader are those of `prometheus_client`'s mode for several processes. That mode itself is not used,
because it is switched on for a whole process, and would take in the metrics that handlers keep for themselves.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.utils import INF, floatToGoString

__all__ = ["Counter", "Gauge", "Histogram", "SharedMetrics", "collected"]


class SharedMetrics:
    """The figures of the process at one place."""

    def __init__(self, folder: Path, place: int) -> None:
        self._folder, self._place = folder, place
        self._files: dict[str, _File] = {}
        #: Name, type and labels of every metric.
        self.declared: list[tuple[str, str, tuple[str, ...]]] = []
        for left in folder.glob(f"gauge_*_{place}.db"):
            left.unlink()

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """A count that only grows; `name` ends with `_total`."""
        self.declared.append((name, "counter", tuple(labels)))
        counter = Counter(self._file("counter"), name.removesuffix("_total"), name, text, labels)
        if not labels:
            counter.add(amount=0.0)
        return counter

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
        """Observations, counted by their size."""
        self.declared.append((name, "histogram", tuple(labels)))
        return Histogram(self._file("histogram"), name, text, labels, buckets)

    def gauge(self, name: str, text: str, labels: Sequence[str] = (), *, together: str = "sum") -> Gauge:
        """How things are now. `together`: what counts of several processes, their `sum` or the greatest (`max`)."""
        self.declared.append((name, "gauge", tuple(labels)))
        return Gauge(self._file(f"gauge_live{together}"), name, name, text, labels)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _file(self, kind: str) -> _File:
        if kind not in self._files:
            self._files[kind] = _File(self._folder / f"{kind}_{self._place}.db")
        return self._files[kind]


class _File:
    """Values by key. Threads take turns."""

    def __init__(self, path: Path) -> None:
        self._values = MmapedDict(str(path))
        self._lock = threading.Lock()

    def add(self, *amounts: tuple[str, float]) -> None:
        with self._lock:
            for key, amount in amounts:
                self._values.write_value(key, self._values.read_value(key)[0] + amount, 0.0)

    def set(self, key: str, value: float) -> None:
        with self._lock:
            self._values.write_value(key, value, 0.0)

    def close(self) -> None:
        with self._lock:
            self._values.close()


class _Keys:
    """The keys of one metric, by the values of its labels; they take longer to make than to use."""

    def __init__(self, file: _File, metric: str, name: str, text: str, labels: Sequence[str]) -> None:
        self._file, self._metric, self._name, self._text, self._labels = file, metric, name, text, list(labels)
        self._made: dict[tuple[str, ...], str] = {}

    def key(self, values: tuple[str, ...]) -> str:
        """The key for these values of the labels."""
        made = self._made.get(values)
        if made is None:
            made = mmap_key(self._metric, self._name, self._labels, list(values), self._text)
            self._made[values] = made
        return made


class Counter(_Keys):
    """A count that only grows."""

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """Count."""
        self._file.add((self.key(labels), amount))


class Gauge(_Keys):
    """How things are now."""

    def set(self, value: float, *labels: str) -> None:
        """Say how they are."""
        self._file.set(self.key(labels), value)

    def set_all(self, values: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Say how they are for these labels; for all others that were named before, they are 0."""
        found = dict(values)
        for labels in {*self._made, *found}:
            self.set(found.get(labels, 0.0), *labels)


class Histogram:
    """Observations, counted by their size."""

    def __init__(self, file: _File, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._file, self._bounds = file, (*buckets, INF)
        self._sums = _Keys(file, name, f"{name}_sum", text, labels)
        self._buckets = _Keys(file, name, f"{name}_bucket", text, [*labels, "le"])
        self._known: set[tuple[str, ...]] = set()

    def observe(self, value: float, *labels: str) -> None:
        """Count an observation."""
        if labels not in self._known:
            self._known.add(labels)
            self._file.add(*((self._bucket(bound, labels), 0.0) for bound in self._bounds))
        bound = self._bounds[bisect.bisect_left(self._bounds, value)]
        self._file.add((self._sums.key(labels), value), (self._bucket(bound, labels), 1.0))

    def _bucket(self, bound: float, labels: tuple[str, ...]) -> str:
        return self._buckets.key((*labels, floatToGoString(bound)))


def collected(folder: Path, living: Collection[int]) -> Iterable[Metric]:
    """The metrics of all processes together; gauges of the places where one is alive."""
    files = [
        str(file)
        for file in sorted(folder.glob("*.db"))
        if not file.name.startswith("gauge_") or int(file.stem.rsplit("_", 1)[1]) in living
    ]
    found: Iterable[Metric] = MultiProcessCollector.merge(files)
    return found
