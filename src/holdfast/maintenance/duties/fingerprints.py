"""Adds up failures by fingerprint, notes which jobs still fail, and forgets what nobody needs any more."""

from __future__ import annotations

import time
from typing import ClassVar

from holdfast.maintenance.duties.walks import Walk
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Fingerprints", "ForgetFingerprints", "OldFailures", "OldLetters", "Recovered"]

#: The shortest time between two looks from the beginning, and how many times as long as such a look it is.
_FULL_LOOK_SECONDS, _FULL_LOOK_TIMES = 1.0, 20


class Fingerprints(Duty):
    """Takes failures away in portions and adds them up.

    A look goes on behind the last failure that was added: rows before it are gone, but may not have been vacuumed yet.
    Now and then one begins at the beginning, because a transaction may commit late. It takes at most a twentieth of
    the time.
    """

    name = "fingerprints"
    urgency = Urgency.BACKGROUND
    interval_seconds = 1.0
    limit_seconds = 5.0
    most: ClassVar[int] = 1000

    _reached = 0
    _full_look_at = 0.0

    async def work(self, store: MaintenanceStore) -> Next:
        """Add up a portion."""
        asked_at, size = time.monotonic(), self.batch.size
        everything = asked_at >= self._full_look_at
        added, reached = await store.add_failures(0 if everything else self._reached, size)
        if everything:
            self._full_look_at = asked_at + max(_FULL_LOOK_SECONDS, _FULL_LOOK_TIMES * (time.monotonic() - asked_at))
        self._reached = max(self._reached, reached)
        return self.at_once() if added >= size else self.later()

    def resume(self) -> None:
        """Start at the beginning: after a failover to a standby that lagged behind, numbers are used again."""
        self._reached, self._full_look_at = 0, 0.0


class OldLetters(Walk):
    """Gives letters from before there were fingerprints theirs."""

    name = "old letters"
    step = staticmethod(MaintenanceStore.read_letters)


class OldFailures(Walk):
    """Counts open jobs among what fails that failed before there were fingerprints."""

    name = "old failures"
    step = staticmethod(MaintenanceStore.note_held)


class Recovered(Walk):
    """Notes that jobs which have ended do not fail any more."""

    name = "recovered"
    step = staticmethod(MaintenanceStore.drop_recovered)
    interval_seconds = 2.0


class ForgetFingerprints(Walk):
    """Forgets fingerprints that nobody has seen for long, and the oldest of tenants that have too many."""

    name = "forget fingerprints"
    step = staticmethod(MaintenanceStore.forget_fingerprints)
    interval_seconds = 60.0
