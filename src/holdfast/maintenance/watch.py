"""Watches leases that were spared, brought nearer, or seen after the clock was set: how long nobody has renewed them.

A live worker renews a lease several times within its length, which changes its expiry. If a lease has kept the same
expiry for twice its length of real time, while the database was in touch, its worker is gone, whatever the clocks say
and however often they are set. So repeated breaks cannot put off recovery for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast.store.maintenance_answers import ReviewedLease, WatchedLease

__all__ = ["LeaseWatch"]

_MOST = 20_000
_MARGIN_SECONDS = 1.0


@dataclass(slots=True)
class _Entry:
    expires_at: datetime
    lease_seconds: float
    since: float


class LeaseWatch:
    """Leases under observation, by job and attempt."""

    def __init__(self) -> None:
        self._entries: dict[tuple[UUID, int], _Entry] = {}
        self._now = 0.0

    def pass_time(self, seconds: float) -> None:
        """Note that the database was in touch for this long."""
        self._now += seconds

    def spared(self, job_id: UUID, attempt: int, expires_at: datetime, lease_seconds: float) -> None:
        """Watch a lease that may not be judged by the clock."""
        entry = self._entries.get((job_id, attempt))
        if (entry is None or entry.expires_at != expires_at) and len(self._entries) < _MOST:
            self._entries[job_id, attempt] = _Entry(expires_at, lease_seconds, self._now)

    def clamped(self, lease: ReviewedLease) -> None:
        """Note that a lease was brought nearer by ourselves, which is not a renewal."""
        entry = self._entries.get((lease.job_id, lease.attempt))
        if entry is not None and entry.expires_at == lease.was:
            entry.expires_at = lease.expires_at
        else:
            self.spared(lease.job_id, lease.attempt, lease.expires_at, lease.lease_seconds)

    def ripe(self, most: int) -> list[WatchedLease]:
        """Leases that nobody has renewed for twice their length."""
        return [
            WatchedLease(job_id, attempt, entry.expires_at)
            for (job_id, attempt), entry in self._entries.items()
            if self._now - entry.since > 2 * entry.lease_seconds + _MARGIN_SECONDS
        ][:most]

    def judged(self, leases: Iterable[WatchedLease]) -> None:
        """Stop watching leases that were taken back, renewed at last, or have ended."""
        for job_id, attempt, expires_at in leases:
            entry = self._entries.get((job_id, attempt))
            if entry is not None and entry.expires_at == expires_at:
                del self._entries[job_id, attempt]
