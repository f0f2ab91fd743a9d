"""Fires schedules on time, and forgets what nobody needs.

Fire times are computed here, from the definition and the database's clock; whether one fires is the engine's decision
(`schedule_fires.sql`). So it is harmless if two leaders compute the same, or one computes from what has changed.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from functools import lru_cache
from typing import ClassVar

from holdfast.definitions.schedule import Times, times_of
from holdfast.errors import InvalidInput
from holdfast.maintenance.duties.walks import Walk
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.maintenance_answers import DueSchedule, ScheduleDecision
from holdfast.telemetry.events import ScheduleFailed, ScheduleMissed

__all__ = ["FireSchedules", "ForgetFires", "RetireSchedules"]

#: How many fire times of one schedule are made up for at once: those of others come in between.
_FIRES_AT_ONCE = 20
#: As the engine's `fire_grace`.
_GRACE = timedelta(minutes=1)
_REWOUND = 1000
#: Before the next look, when something was due: somebody may have it locked.
_PAUSE_SECONDS = 0.05


class FireSchedules(Duty):
    """Sleeps until the next fire time. A notification says that a schedule was made or changed.

    When it begins to lead, or the clock was set, it first has fire times computed again that came from a later clock.
    """

    name = "schedules"
    urgency = Urgency.URGENT
    #: Changes are announced; this only bounds what a notification that was lost costs.
    interval_seconds = 15.0
    limit_seconds = 5.0
    most: ClassVar[int] = 100
    heeds = True

    _rewinds: bool = True
    _reached: list[str] | None = None
    #: The tenant whose turn was the last one, while more is due than is decided at once.
    _turned: str | None = None

    async def work(self, store: MaintenanceStore) -> Next:
        """Decide what is due."""
        if self._rewinds:
            _, self._reached = await store.rewind_schedules(self._reached, _REWOUND)
            self._rewinds = self._reached is not None
            return self.at_once()
        due, next_in_seconds, self._turned = await store.due_schedules(self.batch.size, self._turned)
        decisions = []
        for schedule in due:
            try:
                decisions.append(decision_on(schedule))
            except (InvalidInput, OverflowError, ValueError) as fault:
                failures = await store.refuse_schedule(schedule.id, schedule.revision, str(fault))
                if failures is not None:
                    self._tell_failure(schedule.name, schedule.tenant, str(fault), failures)
        for fired in await store.fire_schedules(decisions):
            if fired.fault is not None:
                self._tell_failure(fired.name, fired.tenant, fired.fault, fired.failures)
            elif fired.missed_from is not None:
                self.bus.emit(ScheduleMissed(name=fired.name, tenant=fired.tenant, since=fired.missed_from))
        if due:
            # Whatever is left, and what somebody has locked, after a moment.
            return self.at_once() if len(due) >= self.batch.size else self.after(_PAUSE_SECONDS)
        return self.later(min(self.interval_seconds, math.inf if next_in_seconds is None else next_in_seconds))

    def resume(self) -> None:
        """Compute again what was computed from a later clock."""
        self._rewinds, self._reached = True, None

    def _tell_failure(self, name: str, tenant: str, fault: str, failures: int) -> None:
        if failures & (failures - 1) == 0:  # 1, 2, 4, 8 …: a log line each time would drown the rest
            self.bus.emit(ScheduleFailed(name=name, tenant=tenant, fault=fault, failures=failures))


class RetireSchedules(Walk):
    """Retires declared schedules that no code has declared for a day."""

    name = "retire schedules"
    interval_seconds = 300.0
    step = staticmethod(MaintenanceStore.retire_schedules)


class ForgetFires(Walk):
    """Forgets what became of fire times a week ago."""

    name = "forget fires"
    interval_seconds = 300.0
    step = staticmethod(MaintenanceStore.forget_fires)


def decision_on(schedule: DueSchedule) -> ScheduleDecision:
    """Which fire times are due, which came too late, and which is the next one."""
    times = _times(schedule.cron, schedule.every_seconds, schedule.tz, schedule.anchor)
    upcoming, missed_to = schedule.next_fire_at, None
    if upcoming is None:
        return ScheduleDecision(schedule, following=times.following(schedule.reckoned_from), missed_to=None, fires=[])
    too_late = schedule.clock - timedelta(seconds=schedule.catch_up) - _GRACE
    if upcoming <= too_late:
        missed_to, upcoming = too_late, times.following(too_late)
    fires: list[datetime] = []
    while upcoming is not None and upcoming <= schedule.clock and len(fires) < _FIRES_AT_ONCE:
        fires.append(upcoming)
        upcoming = times.following(upcoming)
    return ScheduleDecision(schedule, following=upcoming, missed_to=missed_to, fires=fires)


@lru_cache(maxsize=20_000)
def _times(cron: str | None, every: float | None, tz: str, anchor: datetime) -> Times:
    """To read an expression takes as long as to compute a fire time."""
    return times_of(cron, every, tz, anchor)
