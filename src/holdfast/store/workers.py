"""What a worker publishes about itself: its job types, that it has started, and that it has left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.store.database import Database

__all__ = ["WorkerEntry", "WorkerStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEntry:
    """A worker as it registers. `slots` and `definitions` are JSON; None means all queues or tenants."""

    worker: str
    host: str
    pid: int
    version: str
    slots: str
    types: Sequence[str]
    queues: Sequence[str] | None
    tenants: Sequence[str] | None
    definitions: str


class WorkerStore:
    """The statements of a worker about itself, in the role `worker`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def publish_types(self, definitions: str) -> None:
        """Publish job types: a JSON array of what their code declares."""
        await self._database.value("publish_types", definitions)

    async def enlist(self, entry: WorkerEntry) -> None:
        """Register a worker, with its job types; also called again if the database has forgotten it."""
        await self._database.value(
            "enlist",
            entry.worker,
            entry.host,
            entry.pid,
            entry.version,
            entry.slots,
            list(entry.types),
            entry.queues,
            entry.tenants,
            entry.definitions,
        )

    async def queue_depths(self) -> list[tuple[str, int]]:
        """How many jobs of each type wait for a worker; the types with most of them."""
        return [(row["type"], row["depth"]) for row in await self._database.rows("queue_depths")]

    async def unregister(self, worker: str, *, seconds: float | None = None) -> None:
        """Record that a worker has left in good order."""
        await self._database.value("unregister_worker", worker, seconds=seconds)
