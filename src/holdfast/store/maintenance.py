"""What maintenance asks of the engine: leadership, and a method per duty, each of which does a bounded amount of work.

A method takes the maximal amount of work, and where the last call ended. It returns what was done and where the next
call goes on. The code that creates the store decides on which connection it runs, and for how long.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from holdfast.store.rows import ending_of
from holdfast.telemetry.events import AttemptEnded

__all__ = [
    "AddedUp",
    "Admitted",
    "Aged",
    "BroughtNearer",
    "DueSchedule",
    "Elected",
    "FiredSchedule",
    "JudgedLease",
    "MaintenanceStore",
    "MendedJob",
    "Place",
    "Presidency",
    "Promoted",
    "PromotedBehind",
    "Retired",
    "ReviewedLease",
    "ScheduleDecision",
    "Statements",
    "Walked",
    "WatchedLease",
]

#: An entry of `due`: when, and which job.
Place = tuple[datetime, UUID]


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


class AddedUp(NamedTuple):
    """How many failures were added up, and the last of them."""

    added: int
    reached: int


class Presidency(NamedTuple):
    """The answer to a renewal of the leader's term."""

    leads: bool
    clock: datetime
    server_started: datetime
    unheard: bool
    renewals: int


class Promoted(NamedTuple):
    """How many jobs became queued, when the next one is due, and how far the call has come."""

    promoted: int
    next_in_seconds: float | None
    reached: datetime | None


class PromotedBehind(NamedTuple):
    """Whether everything due was seen, how far the call has come, and where each tenant with more jobs goes on."""

    ended: bool
    reached: Place
    left: dict[str, Place]


class Elected(NamedTuple):
    """How many targets were called, and the last call that was answered."""

    called: int
    reached: int


class Admitted(NamedTuple):
    """How many gates with parked jobs were looked at, and the last of them; empty at the end."""

    looked: int
    reached: str


class WatchedLease(NamedTuple):
    """A lease that nobody has renewed for long, as it was at the last look."""

    job_id: UUID
    attempt: int
    expires_at: datetime


class JudgedLease(NamedTuple):
    """A lapsed lease: taken back, with the state of its job, or spared (None)."""

    job_id: UUID
    attempt: int
    worker: str
    state: str | None
    expires_at: datetime
    lease_seconds: float


class ReviewedLease(NamedTuple):
    """A lease whose end was checked, and perhaps brought nearer."""

    job_id: UUID
    attempt: int
    lease_seconds: float
    was: datetime
    expires_at: datetime


class BroughtNearer(NamedTuple):
    """How many times were brought nearer, and where to go on; None at the end."""

    changed: int
    reached: tuple[Any, Any] | None


class Aged(NamedTuple):
    """Where to go on, None at the end; and the lowest and highest rank that were seen."""

    reached: tuple[int, int] | None
    ranks: tuple[int, int] | None


class MendedJob(NamedTuple):
    """A job that lacked a side row, and the repair."""

    job_id: UUID
    repair: str


class Reconciled(NamedTuple):
    """The repairs on some pages, whether they have open jobs, and the page to go on with; None at the end."""

    mended: list[MendedJob]
    has_open_jobs: bool
    reached: int | None


class Walked(NamedTuple):
    """How many entries were mended or forgotten, and where to go on; None at the end."""

    mended: int
    reached: list[str] | None


class DueSchedule(NamedTuple):
    """A schedule that is to be looked at, as it was when the database's clock said `clock`."""

    id: int
    tenant: str
    name: str
    revision: int
    cron: str | None
    every_seconds: float | None
    anchor: datetime
    tz: str
    next_fire_at: datetime | None
    reckoned_from: datetime
    catch_up: float
    clock: datetime


class ScheduleDecision(NamedTuple):
    """What is to become of a schedule: fire times that are due, the next one, and up to when it came too late."""

    schedule: DueSchedule
    following: datetime | None
    missed_to: datetime | None
    fires: list[datetime]


class FiredSchedule(NamedTuple):
    """What a schedule fired and skipped, since when it missed fire times, or why it failed, and how many times."""

    id: int
    tenant: str
    name: str
    fired: int
    skipped: int
    missed_from: datetime | None
    fault: str | None
    failures: int


class Retired(NamedTuple):
    """How many jobs were deleted, how far the call has come (None at the end), and the first job that was kept."""

    deleted: int
    reached: UUID | None
    kept: UUID | None


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

    async def due_schedules(self, most: int) -> tuple[list[DueSchedule], float | None]:
        """Schedules that are to be looked at, and in how many seconds the next one follows."""
        *rows, last = await self._statements.rows("due_schedules", most)
        return [DueSchedule(*row[:12]) for row in rows], last["next_in_seconds"]

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
