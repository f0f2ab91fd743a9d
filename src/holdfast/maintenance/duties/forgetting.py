"""Forgets rows that nobody needs any more: silent workers, unused permits, answers to pulls."""

from __future__ import annotations

from holdfast.maintenance.duties.walks import Walk
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["ForgetPermits", "ForgetPulls", "ForgetWorkers"]


class ForgetWorkers(Duty):
    """Forgets workers that have been silent for a day."""

    name = "forget workers"
    urgency = Urgency.BACKGROUND
    interval_seconds = 15.0
    limit_seconds = 5.0

    async def work(self, store: MaintenanceStore) -> Next:
        """Forget them."""
        await store.forget_workers()
        return self.later()


class ForgetPermits(Walk):
    """Forgets permits of keys that nobody has used for long."""

    name = "forget permits"
    step = staticmethod(MaintenanceStore.forget_idle_permits)


class ForgetPulls(Walk):
    """Forgets what pulls of remote workers were given: a repeat comes within five minutes."""

    name = "forget pulls"
    interval_seconds = 15.0
    step = staticmethod(MaintenanceStore.forget_pulls)
