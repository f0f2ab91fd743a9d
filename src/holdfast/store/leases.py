"""What a worker does with jobs: claim, renew, settle."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.errors import Conflict, HoldfastError, InvalidInput
from holdfast.model.hints import Ranges
from holdfast.model.job import Claim, Stream
from holdfast.model.outcome import Kind, Outcome
from holdfast.store.database import Database
from holdfast.store.rows import ending_of
from holdfast.telemetry.events import AttemptEnded

__all__ = ["ClaimMark", "LeaseStore", "Refusal", "Settlement"]

#: SQLSTATEs of a server that works, but not for this statement: canceled, locked, or too expensive in some way. By
#: class: out of memory and other limits, program limits, locks, deadlocks, cancellation, internal errors.
_PASSING = ("40", "532", "534", "54", "55P03", "57014", "XX")


class Settlement(NamedTuple):
    """How an attempt ended, how long its handler ran, and the end of its log."""

    job_id: UUID
    attempt: int
    outcome: Outcome
    duration_ms: int
    log_excerpt: str | None


class ClaimMark(NamedTuple):
    """A mark that separates earlier claims from later ones: a moment, and the number of the next transaction."""

    claimed_until: datetime
    before_number: int


class Refusal(HoldfastError):
    """The database answered, but refused a batch of settlements. A smaller one may pass, or the same one later.

    `lasting`: the content is the reason, so the same batch will never pass.
    """

    code = "refused"

    def __init__(self, fault: HoldfastError, *, lasting: bool) -> None:
        super().__init__(str(fault))
        self.lasting = lasting


class LeaseStore:
    """The worker's operations, as statements of the engine."""

    def __init__(self, database: Database, worker: str) -> None:
        self._database = database
        self._worker = worker

    async def claim(
        self,
        ranges: Ranges,
        streams: Mapping[int, Stream],
        limit: int,
        lease_seconds: float | None,
        *,
        at_once: int | None = None,
        next_number: int | None = None,
        records: bool = False,
    ) -> list[Claim]:
        """Lease up to `limit` jobs. Those beyond the first `at_once` are numbered from `next_number` on.

        With `records`, jobs at their last chance get no number: the beginning of each is recorded separately.
        """
        rows = await self._database.rows(
            "claim_jobs",
            self._worker,
            limit,
            lease_seconds,
            *ranges,
            limit if at_once is None else at_once,
            next_number,
            records,
        )
        return [_claim(row, streams) for row in rows]

    async def payloads(self, claimed: Sequence[tuple[UUID, int]]) -> dict[UUID, tuple[str, str | None]]:
        """Payload and cursor, as JSON text, of those (job, attempt) that are still claimed."""
        ids, attempts = [job_id for job_id, _ in claimed], [attempt for _, attempt in claimed]
        rows = await self._database.rows("payloads", self._worker, ids, attempts)
        return {row["job_id"]: (row["payload"], row["cursor"]) for row in rows}

    async def may_begin(self, numbers: Sequence[int]) -> None:
        """Record that jobs up to these numbers, one per lane, are about to begin."""
        await self._database.value("may_begin", self._worker, list(numbers))

    async def record_beginning(self, job_id: UUID, attempt: int) -> bool | None:
        """Record that this job is about to begin; False if its lease is locked, None if it is lost."""
        rows = await self._database.rows("record_beginnings", self._worker, [job_id], [attempt])
        return bool(rows[0]["recorded"]) if rows else None

    async def streams(
        self,
        types: Sequence[str],
        queues: Sequence[str] | None,
        tenants: Sequence[str] | None,
        used: Collection[int] = (),
    ) -> dict[int, Stream]:
        """The streams with jobs of these types that are not paused. `used` are those from which it claimed lately."""
        rows = await self._database.rows("open_streams", types, queues, tenants, list(used))
        return {row["id"]: Stream(**dict(row)) for row in rows}

    async def settings(self) -> dict[str, str]:
        """The settings that the database has a value for."""
        return dict(json.loads(await self._database.value("worker_settings")))

    async def ready_streams(self, streams: Sequence[int]) -> list[int]:
        """Those of the streams in which something is ready."""
        return [row["id"] for row in await self._database.rows("ready_streams", list(streams))]

    async def work_left(self, streams: Sequence[int]) -> bool:
        """Whether a worker for these streams has anything left to do."""
        return bool(await self._database.value("work_left", list(streams)))

    async def claim_mark(self) -> ClaimMark:
        """A mark: every lease that is claimed from now on is younger."""
        (row,) = await self._database.rows("claim_mark")
        return ClaimMark(*row)

    async def hand_back_unheard(self, known: Sequence[UUID], mark: ClaimMark) -> int:
        """Hand back jobs that this worker was given before the mark without learning of it."""
        return int(await self._database.value("release_unheard", self._worker, list(known), *mark))

    async def renew(self, batch: Sequence[Settlement], *, seconds: float) -> None:
        """Prolong the leases of attempts that another process will settle later."""
        await self._database.rows("renew", self._worker, *_keys(batch), seconds=seconds)

    async def interrupted(self, job_id: UUID, attempt: int) -> str | None:
        """Why somebody wants to interrupt an attempt; None if nobody does."""
        for row in await self._database.rows("interrupted", self._worker, [job_id], [attempt]):
            return str(row["interrupt"])
        return None

    async def settle(self, batch: Sequence[Settlement]) -> list[str]:
        """Record how attempts ended. Returns each state, or `lease-lost`. Raises Refusal if nothing was recorded."""
        try:
            told = await self._settle(batch)
        except (InvalidInput, Conflict) as fault:
            raise Refusal(fault, lasting=True) from fault
        except HoldfastError as fault:
            if str(getattr(fault.__cause__, "sqlstate", None)).startswith(_PASSING):
                raise Refusal(fault, lasting=False) from fault
            raise
        if not told and all(entry.outcome.kind == "success" for entry in batch):
            return ["success"] * len(batch)
        return [told.get(entry[:2], "success" if entry.outcome.kind == "success" else "lease-lost") for entry in batch]

    async def settle_singly(self, batch: Sequence[Settlement]) -> list[str | None]:
        """Settle one by one if the batch is refused; None for an attempt that is refused alone and may pass later."""
        try:
            return list(await self.settle(batch))
        except Refusal as fault:
            if len(batch) == 1 and fault.lasting:
                refused = batch[0]._replace(outcome=Outcome.refused(str(fault)), log_excerpt=None)
                return list(await self.settle([refused]))
            if len(batch) == 1:
                return [None]
        return [state for entry in batch for state in await self.settle_singly([entry])]

    async def endings(self, batch: Sequence[Settlement], states: Sequence[str | None]) -> list[AttemptEnded | None]:
        """The events of attempts that were settled with these states; None if there are no details."""
        details: dict[tuple[UUID, int], Any] = {}
        with contextlib.suppress(HoldfastError):
            rows = await self._database.rows("ended_attempts", *_keys(batch))
            details = {(row["job_id"], row["attempt"]): row for row in rows}
        return [
            None if state is None or entry[:2] not in details else ending_of(details[entry[:2]], state)
            for entry, state in zip(batch, states, strict=True)
        ]

    async def _settle(self, batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        """Settle a batch. Of successful attempts, the engine returns only those that did not count."""
        states: dict[tuple[UUID, int], str] = {}
        done = [entry for entry in batch if entry.outcome.kind == "success"]
        if done:
            results = [entry.outcome.result for entry in done]
            excerpts = [entry.log_excerpt for entry in done]
            rows = await self._database.rows(
                "complete_many",
                self._worker,
                *_keys(done),
                results if any(results) else None,
                [entry.duration_ms for entry in done],
                excerpts if any(excerpts) else None,
            )
            states = {(row[0], row[1]): row[2] for row in rows}
        if len(done) == len(batch):
            return states
        for verb in dict.fromkeys(_VERBS.values()):
            some = [entry for entry in batch if _VERBS.get(entry.outcome.kind) is verb]
            if some:
                states |= await verb(self, some)
        return states

    async def other_shapes(self, job_type: str, tenant: str, queue: str) -> list[str | None]:
        """The shapes of other live workers that could run a job; None accepts everything."""
        rows = await self._database.rows("other_shapes", self._worker, job_type, tenant, queue)
        return [row["shape"] for row in rows]

    async def _fail(self, batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        outcomes = [entry.outcome for entry in batch]
        rows = await self._database.rows(
            "fail",
            self._worker,
            *_keys(batch),
            [o.failure for o in outcomes],
            [o.error_type for o in outcomes],
            [o.message for o in outcomes],
            [o.traceback for o in outcomes],
            [entry.log_excerpt for entry in batch],
            [o.delay_seconds for o in outcomes],
            [o.kind for o in outcomes],
            [entry.duration_ms for entry in batch],
        )
        return {(row[0], row[1]): row[2] for row in rows}

    async def _snooze(self, batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        delays = [entry.outcome.delay_seconds for entry in batch]
        reasons = [entry.outcome.message for entry in batch]
        circuits = [entry.outcome.circuit for entry in batch]
        rows = await self._database.rows("snooze", self._worker, *_keys(batch), delays, reasons, circuits)
        return {(row[0], row[1]): row[2] for row in rows}

    async def _hand_back(self, batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        states: dict[tuple[UUID, int], str] = {}
        for reason in dict.fromkeys(entry.outcome.message for entry in batch):
            some = [entry for entry in batch if entry.outcome.message == reason]
            rows = await self._database.rows("release", self._worker, *_keys(some), reason)
            states |= {(row[0], row[1]): row[2] for row in rows}
        return states

    async def _stop(self, batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        outcomes = [entry.outcome for entry in batch]
        rows = await self._database.rows(
            "stop", self._worker, *_keys(batch), [o.kind for o in outcomes], [o.message for o in outcomes]
        )
        return {(row[0], row[1]): row[2] for row in rows}


def _claim(row: Iterable[Any], streams: Mapping[int, Stream]) -> Claim:
    """Create a claim from a row; its fields are set directly, because calling the class takes five times as long."""
    claim = object.__new__(Claim)
    (
        claim.job_id,
        claim.attempt,
        stream,
        claim.rank,
        claim.seq,
        claim.payload,
        correlation_id,
        claim.target,
        claim.failures,
        claim.max_attempts,
        claim.ready_at,
        claim.claimed_at,
        claim.lease_seconds,
        claim.cursor,
        claim.last_chance,
        claim.number,
        claim.traceparent,
    ) = row
    claim.stream = streams[stream]
    claim.correlation_id = correlation_id or str(claim.job_id)
    return claim


def _keys(batch: Sequence[Settlement]) -> tuple[list[UUID], list[int]]:
    return [entry[0] for entry in batch], [entry[1] for entry in batch]


#: The methods that settle attempts which did not succeed, by outcome.
_VERBS: dict[Kind, Callable[[LeaseStore, Sequence[Settlement]], Awaitable[dict[tuple[UUID, int], str]]]] = {
    "failed": LeaseStore._fail,
    "timeout": LeaseStore._fail,
    "snoozed": LeaseStore._snooze,
    "released": LeaseStore._hand_back,
    "canceled": LeaseStore._stop,
    "paused": LeaseStore._stop,
}
