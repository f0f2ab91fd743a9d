"""The settings of the installation that a running worker follows; it learns them with each heartbeat.

A value in the database wins over the worker's own environment, and that over the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config import ENTRIES, Config, timeouts_of

__all__ = ["WorkerSettings"]

#: What a worker decides by itself; the engine reads all others whenever it needs them.
_FOLLOWED = {
    entry.name.upper(): entry
    for entry in ENTRIES
    if entry.name
    in (
        "drain_policy",
        "fast_timeout_seconds",
        "general_timeout_seconds",
        "lane_timeouts",
        "result_max_bytes",
        "shutdown_grace_period_seconds",
    )
}


class WorkerSettings:
    """What is in force now. `learn` replaces it as a whole, so any thread may read."""

    def __init__(self, config: Config) -> None:
        self._own = {name: getattr(config, entry.name) for name, entry in _FOLLOWED.items()}
        self._values = self._own

    def learn(self, database: Mapping[str, str]) -> dict[str, Any]:
        """Follow the values that the database has. Returns what has changed by that."""
        before, self._values = self._values, self._own | _readable(database)
        return {name: value for name, value in self._values.items() if before[name] != value}

    @property
    def result_limit(self) -> int:
        """The maximal size of a result, as far as it is known here; the engine decides."""
        return int(self._values["RESULT_MAX_BYTES"])

    @property
    def grace_seconds(self) -> float:
        """How long running jobs may continue after SIGTERM."""
        return float(self._values["SHUTDOWN_GRACE_PERIOD_SECONDS"])

    @property
    def drain_policy(self) -> str:
        """What becomes of jobs that a drain interrupts."""
        return str(self._values["DRAIN_POLICY"])

    def lane_timeout(self, lane: str) -> float:
        """The timeout of handlers that declare none."""
        if lane == "fast":
            return float(self._values["FAST_TIMEOUT_SECONDS"])
        own = timeouts_of(self._values["LANE_TIMEOUTS"]) if lane != "general" else {}
        return own.get(lane, float(self._values["GENERAL_TIMEOUT_SECONDS"]))


def _readable(database: Mapping[str, str]) -> dict[str, Any]:
    """The values in use here; not those that a newer release may have, and this one cannot read."""
    found = {}
    for name, entry in _FOLLOWED.items():
        if name in database:
            try:
                found[name] = entry.parse(database[name].strip())
            except ValueError:
                continue
    return found
