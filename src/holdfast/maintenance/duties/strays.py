"""Mends side rows that fit no job, and targets without a head."""

from __future__ import annotations

from holdfast.maintenance.duties.walks import Walk
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Headless", "Hidden", "LostHeads", "OldDormant", "StrayDormant", "StrayDue", "StrayEntries", "StrayLeases"]


class StrayLeases(Walk):
    """Drops leases of attempts that do not run."""

    name = "stray leases"
    step = staticmethod(MaintenanceStore.drop_stray_leases)
    mends = "stray leases"


class StrayEntries(Walk):
    """Drops entries of jobs that cannot be claimed there. Nobody waits for that, so it is slow."""

    name = "stray entries"
    step = staticmethod(MaintenanceStore.drop_stray_entries)
    mends = "stray entries"
    interval_seconds = 60.0
    share = 0.02
    longest_rest_seconds = 5.0


class StrayDue(Walk):
    """Drops entries of `due` whose jobs do not wait for that moment; slow, too."""

    name = "stray due"
    step = staticmethod(MaintenanceStore.drop_stray_due)
    mends = "stray due entries"
    interval_seconds = 60.0
    share = 0.02
    longest_rest_seconds = 5.0


class StrayDormant(Walk):
    """Drops rows of `dormant` whose jobs have moved on; slow, too."""

    name = "stray dormant"
    step = staticmethod(MaintenanceStore.drop_stray_dormant)
    mends = "stray dormant entries"
    interval_seconds = 60.0
    share = 0.02
    longest_rest_seconds = 5.0


class OldDormant(Walk):
    """Notes jobs that were created, paused or in error before there was a table of them."""

    name = "old dormant"
    step = staticmethod(MaintenanceStore.note_dormant)


class Hidden(Walk):
    """Brings back entries that are hidden from claims without being parked."""

    name = "hidden"
    step = staticmethod(MaintenanceStore.show_hidden)
    mends = "hidden entries"


class LostHeads(Walk):
    """Replaces heads that have ended or are gone."""

    name = "lost heads"
    step = staticmethod(MaintenanceStore.replace_heads)
    mends = "lost heads"


class Headless(Walk):
    """Seats a head for targets that have a line but no head."""

    name = "headless"
    step = staticmethod(MaintenanceStore.seat_headless)
    mends = "headless targets"
