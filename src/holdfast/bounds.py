"""How large the numbers may be that users give: the same bounds as the engine's (`sql/functions/bounds.sql`).

They are far beyond what anybody needs, and close enough that no sum of a moment and a length leaves the range of dates
that every client can read. Infinity and NaN lie outside of all of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

__all__ = ["BOUNDS", "Bound", "delay_of", "shown"]


class Bound(NamedTuple):
    """From `low` to `high`, both included."""

    low: float
    high: float
    whole: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value is a number within the bounds."""
        kind = int if self.whole else (int, float)
        return isinstance(value, kind) and not isinstance(value, bool) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{'a whole number ' if self.whole else ''}from {_plain(self.low)} to {_plain(self.high)}"


_DAY = 86_400.0
_LARGEST_INTEGER = 2**31 - 1

#: Lengths are seconds, except for retention.
BOUNDS = {
    "lease": Bound(0.1, 7 * _DAY),
    "timeout": Bound(0.001, 365 * _DAY),
    "max_attempts": Bound(1, _LARGEST_INTEGER, whole=True),
    "version": Bound(0, _LARGEST_INTEGER, whole=True),
    "backoff_base": Bound(0, 30 * _DAY),
    "backoff_factor": Bound(1, 1000),
    "backoff_max": Bound(0, 30 * _DAY),
    "backoff_jitter": Bound(0, 1),
    "delay": Bound(0, 36_500 * _DAY),
    "limit": Bound(1, 10_000, whole=True),
    "rate": Bound(0.001, 31 * _DAY),
    "weight": Bound(0.001, 1000),
    "priority": Bound(0, 10**9, whole=True),
    "target_count": Bound(1, 2**63 - 1, whole=True),
    "retention_days": Bound(0, 36_500),
    "ageing": Bound(0, 36_500 * _DAY),
    "result_bytes": Bound(1, 100 * 2**20, whole=True),
    "streams": Bound(1, 10_000_000, whole=True),
    "schedules": Bound(1, 1_000_000, whole=True),
    "stream_idle": Bound(0, 36_500 * _DAY),
    "payload_bytes": Bound(1024, 100 * 2**20, whole=True),
    "page": Bound(1, 10_000, whole=True),
    "requests_per_second": Bound(0.001, 1_000_000),
    "key_lifetime": Bound(0.001, 36_500 * _DAY),
    "slots": Bound(0, 1_000_000, whole=True),
    "term": Bound(0.001, _DAY),
    "elapsed": Bound(0, 36_500 * _DAY),
    "circuits": Bound(1, 10_000, whole=True),
    "circuit_forced": Bound(0.1, 365 * _DAY),
    #: Not less than twice the time for which workers rely on an answer about a circuit (holdfast.worker.circuits).
    "circuit_open": Bound(4, _DAY),
    "failure_threshold": Bound(1, 1_000_000, whole=True),
    "failure_share": Bound(0.001, 1),
    "window": Bound(1, _DAY),
    "open_for": Bound(0.1, _DAY),
    "probes": Bound(1, 1000, whole=True),
    "success_threshold": Bound(1, 1000, whole=True),
    "every": Bound(1, 366 * _DAY),
    "catch_up": Bound(0, 31 * _DAY),
    "jitter": Bound(0, _DAY),
}


def delay_of(value: object, bound: str = "delay") -> float | None:
    """A delay as seconds, where one in the past means now; None if it is not one, or is out of its bounds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    low, high, _ = BOUNDS[bound]
    return max(float(low), float(seconds)) if -high <= seconds <= high else None


def shown(value: object) -> str:
    """A value that was refused, for the message."""
    try:
        text = f"{value.total_seconds():g} s" if isinstance(value, timedelta) else repr(value)
    except Exception:  # noqa: BLE001 - an integer of thousands of digits, or foreign code
        return f"this {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}…"


def _plain(number: float) -> str:
    return f"{number:g}" if number < 1000 else f"{int(number)}"
