"""What a worker tells the database of itself: its job types, where it runs and what it takes."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence

from holdfast.config import Config
from holdfast.definitions.job_type import JobType
from holdfast.definitions.registry import Registry
from holdfast.errors import DatabaseUnavailable, InvalidInput
from holdfast.store.database import Database
from holdfast.version import __version__

__all__ = ["Enlistment", "chosen", "lane_timeout", "new_worker_id"]

#: How long a word of goodbye waits for a database that does not answer. What cannot be said is found by the leases.
_GOODBYE_SECONDS = 1.0


def new_worker_id() -> str:
    """Host, process and a random part: never used twice."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def chosen(registry: Registry, names: Sequence[str] | None) -> dict[str, JobType]:
    """The job types of an app that a worker takes, by name."""
    if names is None:
        return {t.name: t for t in registry}
    unknown = [name for name in names if registry.get(name) is None]
    if unknown:
        raise InvalidInput(
            f"the app has no job type {', '.join(unknown)}; it has {', '.join(t.name for t in registry)}"
        )
    return {t.name: t for t in registry if t.name in names}


def lane_timeout(config: Config, job_type: JobType) -> float:
    """How long a handler may take that says nothing of it itself."""
    return config.fast_timeout_seconds if job_type.lane == "fast" else config.general_timeout_seconds


class Enlistment:
    """A worker's entry in the table of workers."""

    def __init__(
        self,
        database: Database,
        worker: str,
        types: Mapping[str, JobType],
        *,
        slots: Mapping[str, int],
        queues: Sequence[str] | None,
        tenants: Sequence[str] | None,
    ) -> None:
        self._database, self._worker, self._types = database, worker, types
        self._slots, self._queues, self._tenants = slots, queues, tenants
        self._definitions = json.dumps([t.published() for t in types.values()])
        self._published = False

    async def publish(self) -> None:
        """Make the job types known, unless they are: before that, nobody keeps to the limits that they declare."""
        if not self._published:
            await self._database.value("publish_types", self._definitions)
            self._published = True

    async def enter(self) -> None:
        """Publish the job types and enlist; again where the database has forgotten it."""
        self._published = False
        with contextlib.suppress(DatabaseUnavailable):
            await self._database.value(
                "enlist",
                self._worker,
                socket.gethostname(),
                os.getpid(),
                __version__,
                json.dumps(self._slots),
                list(self._types),
                self._queues,
                self._tenants,
                self._definitions,
            )
            self._published = True

    async def leave(self) -> None:
        """Say goodbye."""
        with contextlib.suppress(DatabaseUnavailable):
            await self._database.value("unregister_worker", self._worker, seconds=_GOODBYE_SECONDS)
