"""All duties, one module each. The leader and the testing kit get them from here."""

from __future__ import annotations

from holdfast.maintenance.duties.ageing import Ageing
from holdfast.maintenance.duties.bulk import BulkWork
from holdfast.maintenance.duties.clock import ClockWalk
from holdfast.maintenance.duties.fingerprints import (
    Fingerprints,
    ForgetFingerprints,
    OldFailures,
    OldLetters,
    Recovered,
)
from holdfast.maintenance.duties.forgetting import ForgetPermits, ForgetPulls, ForgetWorkers
from holdfast.maintenance.duties.permits import Permits
from holdfast.maintenance.duties.promotion import Promotion
from holdfast.maintenance.duties.reconciliation import Reconciliation
from holdfast.maintenance.duties.recovery import Recovery
from holdfast.maintenance.duties.requests import Requests
from holdfast.maintenance.duties.retention import Retention
from holdfast.maintenance.duties.schedules import FireSchedules, ForgetFires, RetireSchedules
from holdfast.maintenance.duties.seating import Seating
from holdfast.maintenance.duties.strays import (
    Headless,
    Hidden,
    LostHeads,
    OldDormant,
    StrayDormant,
    StrayDue,
    StrayEntries,
    StrayLeases,
)
from holdfast.maintenance.duties.streams import ForgetStreams, ServeStreams
from holdfast.maintenance.duty import Duty
from holdfast.maintenance.patience import LeaseJudge
from holdfast.telemetry.bus import Bus

__all__ = ["DUTIES", "new_duties"]

#: In the order in which the testing kit runs them, one after the other.
DUTIES: tuple[type[Duty], ...] = (
    BulkWork,
    Requests,
    Seating,
    FireSchedules,
    Promotion,
    Permits,
    Recovery,
    ServeStreams,
    Ageing,
    ClockWalk,
    Reconciliation,
    StrayLeases,
    StrayEntries,
    StrayDue,
    StrayDormant,
    Hidden,
    LostHeads,
    Headless,
    OldLetters,
    OldFailures,
    OldDormant,
    Fingerprints,
    Recovered,
    ForgetFingerprints,
    ForgetWorkers,
    ForgetPermits,
    ForgetPulls,
    ForgetStreams,
    RetireSchedules,
    ForgetFires,
    Retention,
)


def new_duties(bus: Bus, patience: LeaseJudge) -> list[Duty]:
    """One instance of each duty."""
    return [kind(bus, patience) for kind in DUTIES]
