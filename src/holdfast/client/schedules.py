"""Schedules: list and show them, make and change operators' own, pause, resume and run any.

A schedule is known by its tenant and its name. Those that code declares are changed in the code; here they can be
paused, resumed and run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace as replaced
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast.bounds import shown
from holdfast.client.acceptance import Acceptance
from holdfast.definitions.json_text import JsonText, encode_plain
from holdfast.definitions.schedule import schedule_definition, times_of
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.model.ids import new_job_ids
from holdfast.model.options import Intent
from holdfast.model.pages import checked_limit
from holdfast.model.schedule import CATCH_UP_SECONDS, Fire, Schedule
from holdfast.store.database import Database
from holdfast.store.schedules import ScheduleStore

__all__ = ["Schedules"]

#: How many fire times ahead, and how many past ones, are told at most.
_MOST_NEXT = 1000


class Schedules:
    """The verbs, over a database in the role `operator`. `tenant` None in a list means all of them."""

    def __init__(self, database: Database, acceptance: Acceptance) -> None:
        self._store, self._acceptance = ScheduleStore(database), acceptance

    async def list(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 50
    ) -> Sequence[Schedule]:
        """Schedules by tenant and name, after the given ones, without their payloads."""
        checked_limit(limit)
        return [_shown(row) for row in await self._store.list(tenant=tenant, after=after, limit=limit)]

    async def get(self, name: str, *, tenant: str = "default") -> Schedule:
        """One schedule, with its payload; NotFound if there is none."""
        schedule, payload = await self.get_text(name, tenant=tenant)
        return replaced(schedule, payload=_mapping(payload))

    async def get_text(self, name: str, *, tenant: str = "default") -> tuple[Schedule, str]:
        """The same with the payload as JSON text."""
        for row in await self._store.list(tenant=tenant, name=name, payload=True):
            return _shown(row), row["payload"]
        raise _unknown(name)

    async def _known(self, name: str, tenant: str) -> Schedule:
        for row in await self._store.list(tenant=tenant, name=name):
            return _shown(row)
        raise _unknown(name)

    async def fires(
        self, name: str, *, tenant: str = "default", before: datetime | None = None, limit: int = 20
    ) -> Sequence[Fire]:
        """What became of the last fire times of a schedule, newest first, and of their jobs."""
        checked_limit(limit)
        return await self._store.fires((await self._known(name, tenant)).id, before=before, limit=limit)

    async def next(self, name: str, *, tenant: str = "default", count: int = 5) -> Sequence[datetime]:
        """The next fire times; none while the schedule is paused or retired."""
        if not isinstance(count, int) or not 1 <= count <= _MOST_NEXT:
            raise InvalidInput(f"count must be a whole number from 1 to {_MOST_NEXT}, not {shown(count)}")
        schedule = await self._known(name, tenant)
        if schedule.state != "active":
            return []
        times = times_of(schedule.cron, schedule.every, schedule.tz, schedule.anchor)
        moment = schedule.next_fire_at or times.following(schedule.reckoned_from)
        found: list[datetime] = []
        while moment is not None and len(found) < count:
            found.append(moment)
            moment = times.following(moment)
        return found

    async def create(self, name: str, *, by: str, **definition: Any) -> Schedule:
        """Make a schedule; Conflict if there is one with this name. See `put` for its arguments."""
        return await self.put(name, by=by, replace=False, **definition)

    async def put(
        self,
        name: str,
        *,
        by: str,
        job: str,
        cron: str | None = None,
        every: float | timedelta | None = None,
        payload: Any = None,
        tz: str = "UTC",
        overlap: str = "skip",
        catch_up: float | timedelta = CATCH_UP_SECONDS,
        jitter: float | timedelta = 0,
        options: Mapping[str, Any] | None = None,
        tenant: str = "default",
        replace: bool = True,
        note: str | None = None,
        by_key: UUID | None = None,
    ) -> Schedule:
        """Make a schedule, or change the one with this name; its last fire time stays. The arguments are those of
        `Holdfast.schedule`, with `options` as a mapping. Conflict, if the schedule belongs to code. The answer is
        without the payload.
        """
        if options is not None and "tenant" in options:
            raise InvalidInput("tenant is not an option of a schedule's jobs: they belong to the schedule's tenant")
        if not isinstance(job, str) or not job:
            raise InvalidInput("job must be the name of a job type")
        text = payload if type(payload) is JsonText else encode_plain(job, {} if payload is None else payload)
        (job_id,) = new_job_ids(1)
        await self._acceptance.answers([Intent(job_id, job, text, tenant=tenant)])
        definition = schedule_definition(
            name,
            job=job,
            cron=cron,
            every=every,
            tz=tz,
            overlap=overlap,
            catch_up=catch_up,
            jitter=jitter,
            options={**(options or {}), "tenant": tenant},
        )
        del definition["payload"]
        answer = await self._store.put(
            definition, text, tenant=tenant, replace=replace, by=by, note=note, by_key=by_key
        )
        if answer == "exists":
            raise Conflict(f"a schedule {name!r} already exists: change that one, or choose another name")
        if answer == "declared":
            raise _belongs_to_code(name)
        return await self._known(name, tenant)

    async def pause(
        self, name: str, *, by: str, note: str | None = None, tenant: str = "default", by_key: UUID | None = None
    ) -> bool:
        """Stop it from firing; False if it was paused already. Jobs that are recorded run."""
        changed = await self._store.pause(name, tenant, by=by, note=note, by_key=by_key)
        if changed is None:
            raise _unknown(name)
        return changed

    async def resume(
        self, name: str, *, by: str, note: str | None = None, tenant: str = "default", by_key: UUID | None = None
    ) -> bool:
        """Let it fire again, from now on; False if it was not paused."""
        changed = await self._store.resume(name, tenant, by=by, note=note, by_key=by_key)
        if changed is None:
            raise _unknown(name)
        return changed

    async def run(
        self, name: str, *, by: str, note: str | None = None, tenant: str = "default", by_key: UUID | None = None
    ) -> UUID:
        """Record a job now, besides its fire times, also while it is paused. Answers the job.

        Conflict, if an earlier job is open and the schedule skips fire times then.
        """
        answer = await self._store.run(name, tenant, by=by, note=note, by_key=by_key)
        if answer is None:
            raise _unknown(name)
        outcome, job_id = answer
        if outcome == "overlap":
            raise Conflict(
                f"the job {job_id} of the schedule {name!r} is still open, and its overlap is skip: "
                "wait until that job has ended, or cancel it"
            )
        return job_id

    async def delete(
        self, name: str, *, by: str, note: str | None = None, tenant: str = "default", by_key: UUID | None = None
    ) -> None:
        """Remove it. Its jobs stay. Conflict, if the schedule belongs to code."""
        answer = await self._store.delete(name, tenant, by=by, note=note, by_key=by_key)
        if answer is None:
            raise _unknown(name)
        if answer == "declared":
            raise _belongs_to_code(name)


def _shown(row: Mapping[str, Any]) -> Schedule:
    fields = dict(row)
    for stored in ("every_seconds", "type", "retired_at", "payload", "options"):
        del fields[stored]
    return Schedule(
        every=row["every_seconds"],
        job=row["type"],
        payload=None,
        options=_mapping(row["options"]),
        state=_state(row),
        words=_words(row["cron"], row["every_seconds"], row["tz"], row["anchor"]),
        **fields,
    )


def _state(row: Mapping[str, Any]) -> str:
    if row["retired_at"] is not None:
        return "retired"
    return "active" if row["paused_at"] is None else "paused"


def _words(cron: str | None, every: float | None, tz: str, anchor: datetime) -> str:
    """In words, also for what this process cannot read: another release may have stored it."""
    try:
        return times_of(cron, every, tz, anchor).words()
    except InvalidInput:
        return f"{cron} ({tz})" if cron is not None else f"every {every:g} seconds"


def _mapping(text: str) -> dict[str, Any]:
    """A JSON object; empty if it cannot be read, so that one row does not break a list."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {shown(name)}")


def _belongs_to_code(name: str) -> Conflict:
    return Conflict(
        f"the schedule {name!r} belongs to the code that declares it: change it there; you may pause, resume and run it"
    )
