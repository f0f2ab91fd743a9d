"""What the control plane does for one tenant at a time, as statements of the engine. Role: client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from holdfast.errors import HoldfastError
from holdfast.model.job import Enqueued
from holdfast.model.key import Caller
from holdfast.model.options import Intent
from holdfast.model.provenance import provenance
from holdfast.model.states import State, Status, public_status
from holdfast.store.database import Session
from holdfast.store.faults import refused_intent

__all__ = ["Ended", "Keyed", "LeftOut", "PublicJob", "StoredItem", "TenancyStore"]

#: Why an intent was not recorded with the others.
LeftOut = Literal["locked", "refused"]


#: The type of an intent, its idempotency key and its dedup key.
Keyed = tuple[str, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicJob:
    """What clients may know about a job."""

    id: UUID
    tenant: str
    type: str
    state: State
    target: str | None
    created_at: datetime
    updated_at: datetime
    #: Why it is paused, held or canceled, if somebody wrote that for clients.
    message: str | None = None
    #: What it has reported; None if it has reported nothing.
    progress_count: int | None = None
    result_count: int | None = None
    target_count: int | None = None
    last_progress_at: datetime | None = None
    done_reason: str | None = None

    @property
    def status(self) -> Status:
        """The state as clients see it."""
        return public_status(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a job ended, or that it has not. `result` is JSON text, for callers that pass it on without parsing."""

    state: State
    result: str | None
    error_type: str | None
    error_message: str | None


class StoredItem(NamedTuple):
    """One item of a job. `data` is JSON text, for callers that pass it on without parsing."""

    id: int
    collection: str
    key: str
    data: str
    created_at: datetime


class TenancyStore:
    """Every method names the tenant; the engine refuses a call without one."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def submit(self, intents: Sequence[Intent]) -> list[Enqueued]:
        """Record the intents of many callers in one transaction; answers come in their order."""
        rows = await self._session.rows("submit", *_columns(intents))
        rows.sort(key=lambda row: row["item"])
        return [Enqueued(row["job_id"], State(row["state"]), row["outcome"]) for row in rows]

    async def submit_free(self, intents: Sequence[Intent]) -> list[Enqueued | LeftOut]:
        """The same, but each intent that is refused, or whose key belongs to an open transaction, is left out."""
        answers: list[Enqueued | LeftOut] = ["locked"] * len(intents)
        for row in await self._session.rows("submit_free", *_columns(intents)):
            if row["job_id"] is None:
                answers[row["item"] - 1] = "refused"
            else:
                answers[row["item"] - 1] = Enqueued(row["job_id"], State(row["state"]), row["outcome"])
        return answers

    async def refused(self, intents: Sequence[Intent]) -> dict[int, HoldfastError]:
        """The intents that would be refused, by position, each with its error; nothing is recorded."""
        rows = await self._session.rows("refused_intents", *_columns(intents)[:-1])
        return {row["item"] - 1: refused_intent(row["code"], row["message"], row["constraint"]) for row in rows}

    async def jobs(self, asked: Sequence[tuple[str, UUID]]) -> list[PublicJob]:
        """The jobs that exist among (tenant, id), in no order."""
        rows = await self._session.rows("visible_jobs", [tenant for tenant, _ in asked], [job for _, job in asked])
        return [PublicJob(**{**dict(row), "state": State(row["state"])}) for row in rows]

    async def result(self, tenant: str, job_id: UUID) -> Ended | None:
        """How a job ended."""
        rows = await self._session.rows("job_result", tenant, job_id)
        for row in rows:
            return Ended(
                state=State(row["state"]),
                result=row["result"],
                error_type=row["error_type"],
                error_message=row["error_message"],
            )
        return None

    async def items(self, tenant: str, job_id: UUID, *, after: int | None, limit: int) -> tuple[list[StoredItem], bool]:
        """The items of a job, in the order in which it stored them, and whether there are more."""
        rows = await self._session.rows("tenant_items", tenant, job_id, after, limit)
        items = [StoredItem(row["id"], row["collection"], row["key"], row["data"], row["created_at"]) for row in rows]
        return items, bool(rows) and rows[-1]["more"]

    async def request(self, caller: Caller, verb: str, job_id: UUID, *, reason: str | None, target: str | None) -> str:
        """Make a request in a caller's name. Returns the engine's answer."""
        by = caller.name, reason, target, caller.key_id, *provenance.get()
        (row,) = await self._session.rows("tenant_request", caller.tenant, verb, job_id, *by)
        return str(row[0])

    async def probe(self) -> None:
        """Write, as a submission would. Raises DatabaseUnavailable with the reason if that fails."""
        await self._session.rows("probe")

    async def repeats(self, tenant: str, keyed: Sequence[Keyed]) -> int:
        """How many of these intents only repeat what their keys have a job for."""
        columns = [list(column) for column in zip(*keyed, strict=True)]
        (row,) = await self._session.rows("count_repeats", tenant, *columns)
        return int(row[0])

    async def waiting(self, tenant: str, up_to: int) -> int:
        """How many jobs wait, counted no further than `up_to`."""
        (row,) = await self._session.rows("waiting_jobs", tenant, up_to)
        return int(row[0])


def _columns(intents: Sequence[Intent]) -> tuple[list[Any], ...]:
    return (
        [i.tenant for i in intents],
        [i.created_by for i in intents],
        [i.type for i in intents],
        [i.payload for i in intents],
        [json.dumps(dict(i.options)) if i.options else None for i in intents],
        [i.id for i in intents],
    )
