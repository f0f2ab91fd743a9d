"""What the environment asks of a run, and the sizes that follow from it.

- `FULL=1`: full sizes and the long cells; else about five minutes in all for Holdfast and the limits;
- `PEERS=none|all|a,b`: whom to measure beside Holdfast; `pgboss` takes part in the cell `remote` only;
- `ROUNDS=n`: how often each cell is measured (3; with peers 5);
- `CELLS=a,b`: only these, by name or first word: `drain`, `drain-1x100`, `state-pinned` (see `bench.cells`);
- `PEER_STATES=1`: peers go through the bad states and the sustained load too, which takes hours for all;
- `SCALE=0.02`: everything shorter by so much, to try the harness itself: its figures mean nothing;
- `BENCH_DATABASE_URL`: another PostgreSQL, as a superuser; `BENCH_VENVS`: environments made elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BATCH", "CONCURRENCY", "SMALL", "Options"]

CONCURRENCY = 100
BATCH = 1000
SMALL = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run's wishes."""

    full: bool
    scale: float
    rounds: int
    peers: str
    cells: tuple[str, ...]
    peer_states: bool
    database_url: str | None
    venvs: str | None

    @classmethod
    def load(cls, environment: Mapping[str, str]) -> Options:
        """Read them."""
        peers = environment.get("PEERS") or "none"
        return cls(
            full=environment.get("FULL") == "1",
            scale=float(environment.get("SCALE") or 1),
            rounds=int(environment.get("ROUNDS") or (3 if peers == "none" else 5)),
            peers=peers,
            cells=tuple(name for name in (environment.get("CELLS") or "").split(",") if name),
            peer_states=environment.get("PEER_STATES") == "1",
            database_url=environment.get("BENCH_DATABASE_URL"),
            venvs=environment.get("BENCH_VENVS"),
        )

    @property
    def drain_seconds(self) -> float:
        """How long a drain is to take; its jobs are counted out by the system's own speed."""
        return self._seconds(3, 5, least=0.1)

    @property
    def enqueue_seconds(self) -> float:
        """How long to enqueue."""
        return self._seconds(1.5, 3, least=0.1)

    @property
    def latency_jobs(self) -> int:
        """How many jobs are timed, at 100 a second."""
        return self._count(600, 3000, least=50)

    @property
    def api_jobs(self) -> int:
        """How many jobs are posted over HTTP."""
        return self._count(6000, 20_000, least=200)

    @property
    def remote_jobs(self) -> int:
        """How many jobs are pulled over HTTP."""
        return self._count(10_000, 40_000, least=500)

    @property
    def backlog(self) -> int:
        """Other jobs in line, or scheduled."""
        return self._count(100_000, 1_000_000, least=1000)

    @property
    def history(self) -> int:
        """Finished jobs."""
        return self._count(500_000, 5_000_000, least=1000)

    @property
    def pinned_seconds(self) -> float:
        """How long there is load behind an open transaction before the drain is measured."""
        return self._seconds(10, 300, least=0.5)

    @property
    def reader_seconds(self) -> float:
        """How long each of the readers keeps its transaction."""
        return self._seconds(8, 60, least=2)

    @property
    def idle_seconds(self) -> float:
        """How long an idle worker is watched."""
        return self._seconds(20, 60, least=3)

    @property
    def sustained_seconds(self) -> float:
        """How long load is kept up: only in a full run."""
        return self._seconds(600, 600, least=10)

    def _seconds(self, short: float, full: float, *, least: float) -> float:
        return max(least, (full if self.full else short) * self.scale)

    def _count(self, short: int, full: int, *, least: int) -> int:
        return max(least, int((full if self.full else short) * self.scale))
