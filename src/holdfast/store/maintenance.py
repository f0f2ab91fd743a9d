"""What maintenance asks of the engine: leadership, and a method per duty, each of which does a bounded amount of work.

A method takes the maximal amount of work, and where the last call ended. It returns what was done and where the next
call goes on. The code that creates the store decides on which connection it runs, and for how long.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from holdfast.store.maintenance_answers import (
    AddedUp,
    Admitted,
    Aged,
    BroughtNearer,
    DueSchedule,
    Elected,
    FiredSchedule,
    JudgedLease,
    MendedJob,
    Place,
    Presidency,
    Promoted,
    PromotedBehind,
    Reconciled,
    Retired,
    ReviewedLease,
    ScheduleDecision,
    Walked,
    WatchedLease,
)
from holdfast.store.rows import ending_of
from holdfast.telemetry.events import AttemptEnded

__all__ = ["MaintenanceStore", "Statements"]


class Statements(Protocol):
    """Runs named statements: a pool, or a part of it with a time limit."""

    async def rows(self, statement: str, *arguments: Any) -> Sequence[Any]:
        """The rows of a statement."""
        ...

    async def row(self, statement: str, *arguments: Any) -> Any:
        """The first row of a statement."""
        ...

    async def value(self, statement: str, *arguments: Any) -> Any:
        """The first value of the first row."""
        ...


class MaintenanceStore:
    """The operations of the leader and of its duties, in the role `worker`."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    async def preside(
        self,
        name: str,
        holder: str,
        *,
        term_seconds: float,
        calm_seconds: float,
        report: str,
        renewals: int | None,
        renewals_for_seconds: float,
    ) -> Presidency:
        """Become or stay the leader, and learn the state of the database's clock and server."""
        waited = renewals, renewals_for_seconds
        row = await self._statements.row("preside", name, holder, term_seconds, calm_seconds, report, *waited)
        return Presidency(*row)

    async def resign(self, name: str, holder: str) -> None:
        """Let another process lead at once."""
        await self._statements.value("resign", name, holder)

    async def unheard(self) -> bool:
        """Whether there may be work for which no notification was sent."""
        return bool(await self._statements.value("unheard"))

    async def execute_requests(self, most: int) -> int:
        """Carry out requests to cancel, pause, resume, delete and retry, oldest first. Returns how many."""
        return int(await self._statements.value("execute_requests", most))

    async def elect(self, after: int, most: int) -> Elected:
        """Seat the heads of targets that were called after the given call."""
        return Elected(*await self._statements.row("elect", after, most))

    async def promote(self, most: int, after: datetime | None) -> Promoted:
        """Queue the oldest due jobs, from that moment on."""
        return Promoted(*await self._statements.row("promote", most, after))

    async def promote_behind(
        self, place: Place | None, passed: Collection[str], *, most: int, look_at: int
    ) -> PromotedBehind:
        """Queue due jobs behind a place, for tenants that are not passed over."""
        row = await self._statements.row("promote_behind", *(place or (None, None)), list(passed), most, look_at)
        places = zip(row["left_run_at"] or (), row["left_job_ids"] or (), strict=True)
        return PromotedBehind(
            ended=row["ended"],
            reached=(row["reached_run_at"], row["reached_job_id"]),
            left=dict(zip(row["left_tenants"] or (), places, strict=True)),
        )

    async def admit(self, after: str, most: int) -> Admitted:
        """Bring back parked jobs for which there is room."""
        return Admitted(*await self._statements.row("admit", after, most))

    async def recover(
        self,
        clock: datetime | None,
        spared: tuple[list[float], list[float]],
        watched: Sequence[WatchedLease],
        most: int,
    ) -> list[JudgedLease] | None:
        """Take back lapsed leases, and learn which are spared; None if the database has stood still since `clock`."""
        rows = await self._statements.rows(
            "recover",
            clock,
            *spared,
            [lease.job_id for lease in watched],
            [lease.attempt for lease in watched],
            [lease.expires_at for lease in watched],
            most,
        )
        if rows and rows[0]["state"] == "too-late":
            return None
        return [JudgedLease(*row) for row in rows]

    async def endings(self, swept: Sequence[JudgedLease]) -> dict[UUID, AttemptEnded]:
        """The events of attempts whose leases were taken back, by job, as far as there are details."""
        ids, attempts = [lease.job_id for lease in swept], [lease.attempt for lease in swept]
        states = {lease.job_id: lease.state or "" for lease in swept}
        rows = await self._statements.rows("ended_attempts", ids, attempts)
        return {row["job_id"]: ending_of(row, states[row["job_id"]]) for row in rows}

    async def clamp_leases(
        self, after: UUID | None, most: int, *, all_of_them: bool
    ) -> tuple[list[ReviewedLease], UUID | None]:
        """Let no lease last longer than its length. Returns those that did, or all leases, and where to go on."""
        *rows, place = await self._statements.rows("review_leases" if all_of_them else "clamp_leases", after, most)
        return [ReviewedLease(*row[:5]) for row in rows], place["reached"]

    async def clamp_rates(self, after: tuple[str, int], most: int) -> BroughtNearer:
        """Let no permit of a rate have been granted in the future."""
        row = await self._statements.row("clamp_rates", *after, most)
        return BroughtNearer(row["changed"], _place(row["reached_gate"], row["reached_slot"]))

    async def clamp_backoff(self, after: Place, most: int) -> BroughtNearer:
        """Let no backoff last longer than its length."""
        row = await self._statements.row("clamp_backoff", *after, most)
        return BroughtNearer(row["changed"], _place(row["reached_job"], row["reached_run_at"], reverse=True))

    async def age(self, after: tuple[int, int], *, lines: int, most: int, mixed: bool) -> Aged:
        """Let old jobs go first, after that stream and rank; `mixed` says that there are several ranks."""
        row = await self._statements.row("age", *after, lines, most, mixed)
        return Aged(_place(row["reached_stream"], row["reached_rank"]), _place(row["lowest"], row["highest"]))

    async def reconcile(self, page: int, most: int) -> Reconciled:
        """Restore missing rows of open jobs on some pages."""
        *rows, last = await self._statements.rows("reconcile", page, most)
        mended = [MendedJob(row["job_id"], row["repair"]) for row in rows]
        return Reconciled(mended, bool(last["open_jobs"]), last["reached"])

    async def retire(self, clock: datetime | None, after: UUID | None, *, most: int, visit: int) -> Retired | None:
        """Delete ended jobs whose retention is over; None while the database's clock does not fit the last probe."""
        row = await self._statements.row("retire", clock, after, most, visit)
        return None if row["visited"] is None else Retired(row["deleted"], row["reached"], row["kept"])

    async def forget_workers(self) -> None:
        """Forget workers that have been silent for a day."""
        await self._statements.value("forget_workers")

    async def drop_stray_leases(self, after: list[str] | None, most: int) -> Walked:
        """Drop leases of attempts that do not run."""
        return await self._walk("drop_stray_leases", after, most)

    async def drop_stray_entries(self, after: list[str] | None, most: int) -> Walked:
        """Drop entries of jobs that cannot be claimed there."""
        return await self._walk("drop_stray_entries", after, most)

    async def drop_stray_due(self, after: list[str] | None, most: int) -> Walked:
        """Drop entries of jobs that do not wait for that moment."""
        return await self._walk("drop_stray_due", after, most)

    async def drop_stray_dormant(self, after: list[str] | None, most: int) -> Walked:
        """Drop rows of jobs that are not created, paused or in error."""
        return await self._walk("drop_stray_dormant", after, most)

    async def note_dormant(self, after: list[str] | None, most: int) -> Walked:
        """Note jobs that were created, paused or in error before there was a table of them."""
        return await self._walk("note_dormant", after, most)

    async def show_hidden(self, after: list[str] | None, most: int) -> Walked:
        """Bring back entries that are hidden from claims without being parked."""
        return await self._walk("show_hidden", after, most)

    async def replace_heads(self, after: list[str] | None, most: int) -> Walked:
        """Replace heads that have ended or are gone."""
        return await self._walk("replace_heads", after, most)

    async def seat_headless(self, after: list[str] | None, most: int) -> Walked:
        """Seat a head for targets without one."""
        return await self._walk("seat_headless", after, most)

    async def forget_idle_permits(self, after: list[str] | None, most: int) -> Walked:
        """Forget permits that nobody uses any more."""
        return await self._walk("forget_idle_permits", after, most)

    async def serve_streams(self, after: list[str] | None, most: int) -> Walked:
        """Bring back the streams that have entries."""
        return await self._walk("serve_streams", after, most)

    async def forget_streams(self, after: list[str] | None, most: int) -> Walked:
        """Forget streams that have been idle for long."""
        return await self._walk("forget_streams", after, most)

    async def add_failures(self, after: int, most: int) -> AddedUp:
        """Add up failures by fingerprint."""
        return AddedUp(*await self._statements.row("add_failures", after, most))

    async def drop_recovered(self, after: list[str] | None, most: int) -> Walked:
        """Note that jobs which have ended do not fail any more."""
        return await self._walk("drop_recovered", after, most)

    async def forget_fingerprints(self, after: list[str] | None, most: int) -> Walked:
        """Forget fingerprints that are old, or too many."""
        return await self._walk("forget_fingerprints", after, most)

    async def read_letters(self, after: list[str] | None, most: int) -> Walked:
        """Give letters from before there were fingerprints theirs."""
        return await self._walk("read_letters", after, most)

    async def note_held(self, after: list[str] | None, most: int) -> Walked:
        """Count open jobs among what fails that failed before there were fingerprints."""
        return await self._walk("note_held", after, most)

    async def turn_bulk(self) -> UUID | None:
        """The bulk operation whose turn it is, if there is one: noted before its portion, which may fail altogether."""
        chosen: UUID | None = await self._statements.value("turn_bulk")
        return chosen

    async def advance_bulk(self, bulk_id: UUID, most: int) -> None:
        """Do a portion of a bulk operation."""
        await self._statements.value("advance_bulk", bulk_id, most)

    async def forget_bulks(self, most: int) -> int:
        """Forget bulk operations that ended long ago; how many."""
        return int(await self._statements.value("forget_bulks", most))

    async def due_schedules(
        self, most: int, after_tenant: str | None = None
    ) -> tuple[list[DueSchedule], float | None, str | None]:
        """Schedules that are to be looked at, in how many seconds the next one follows, and the tenant behind which the
        next turns begin."""
        *rows, last = await self._statements.rows("due_schedules", most, after_tenant)
        return [DueSchedule(*row[:12]) for row in rows], last["next_in_seconds"], last["tenant"]

    async def fire_schedules(self, decisions: Sequence[ScheduleDecision]) -> list[FiredSchedule]:
        """Decide fire times."""
        if not decisions:
            return []
        fires = [(decision.schedule.id, moment) for decision in decisions for moment in decision.fires]
        rows = await self._statements.rows(
            "fire_schedules",
            [decision.schedule.id for decision in decisions],
            [decision.schedule.revision for decision in decisions],
            [decision.schedule.next_fire_at for decision in decisions],
            [decision.following for decision in decisions],
            [decision.missed_to for decision in decisions],
            [schedule_id for schedule_id, _ in fires],
            [moment for _, moment in fires],
        )
        return [FiredSchedule(*row) for row in rows]

    async def refuse_schedule(self, schedule_id: int, revision: int, fault: str) -> int | None:
        """Note that fire times cannot be computed; how many times, None if the schedule has changed meanwhile."""
        failures: int | None = await self._statements.value("refuse_schedule", schedule_id, revision, fault)
        return failures

    async def rewind_schedules(self, after: list[str] | None, most: int) -> Walked:
        """Have fire times computed again that were computed from a later clock."""
        return await self._walk("rewind_schedules", after, most)

    async def retire_schedules(self, after: list[str] | None, most: int) -> Walked:
        """Retire schedules that nobody declares any more."""
        return await self._walk("retire_schedules", after, most)

    async def forget_fires(self, after: list[str] | None, most: int) -> Walked:
        """Forget what became of old fire times."""
        return await self._walk("forget_fires", after, most)

    async def forget_pulls(self, after: list[str] | None, most: int) -> Walked:
        """Forget what pulls of remote workers were answered."""
        return await self._walk("forget_pulls", after, most)

    async def _walk(self, statement: str, after: list[str] | None, most: int) -> Walked:
        row = await self._statements.row(statement, after, most)
        return Walked(row["mended"], row["reached"])


def _place(first: Any, second: Any, *, reverse: bool = False) -> tuple[Any, Any] | None:
    """Two columns that are null together, as a pair or None."""
    if first is None:
        return None
    return (second, first) if reverse else (first, second)
