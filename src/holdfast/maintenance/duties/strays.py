"""Mends side rows without a fitting job, and targets without a head."""

from __future__ import annotations

from holdfast.maintenance.duties.walks import Walk

__all__ = ["Headless", "Hidden", "LostHeads", "StrayDue", "StrayEntries", "StrayLeases"]


class StrayLeases(Walk):
    """Leases of attempts that do not run are dropped."""

    name = "stray leases"
    statement = "drop_stray_leases"
    mends = "stray leases"


class StrayEntries(Walk):
    """Entries of jobs that cannot be claimed there are dropped; nobody waits for that, so it takes its time."""

    name = "stray entries"
    statement = "drop_stray_entries"
    mends = "stray entries"
    interval_seconds = 60.0
    share = 0.02
    longest_rest_seconds = 5.0


class StrayDue(Walk):
    """The same for entries of jobs that do not wait for that moment."""

    name = "stray due"
    statement = "drop_stray_due"
    mends = "stray due entries"
    interval_seconds = 60.0
    share = 0.02
    longest_rest_seconds = 5.0


class Hidden(Walk):
    """Entries that are hidden from claims without being parked come back."""

    name = "hidden"
    statement = "show_hidden"
    mends = "hidden entries"


class LostHeads(Walk):
    """Targets whose head has ended or is gone get another."""

    name = "lost heads"
    statement = "replace_heads"
    mends = "lost heads"


class Headless(Walk):
    """Targets with a line but no head get one."""

    name = "headless"
    statement = "seat_headless"
    mends = "headless targets"
