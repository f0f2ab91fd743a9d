"""What a worker publishes about itself: its job types, where it runs and which jobs it accepts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence

from holdfast.definitions.job_type import JobType
from holdfast.definitions.registry import Registry
from holdfast.errors import DatabaseUnavailable, InvalidInput
from holdfast.store.workers import WorkerEntry, WorkerStore
from holdfast.version import __version__

__all__ = ["Enlistment", "chosen", "new_worker_id"]

#: How long to wait for a database that does not answer when the worker leaves. Its leases will lapse in any case.
_GOODBYE_SECONDS = 1.0


def new_worker_id() -> str:
    """A new worker id from host, process and a random part: never used twice."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def chosen(registry: Registry, names: Sequence[str] | None) -> dict[str, JobType]:
    """The job types of an app that a worker runs, by name."""
    if names is None:
        return {t.name: t for t in registry}
    unknown = [name for name in names if registry.get(name) is None]
    if unknown:
        raise InvalidInput(
            f"the app has no job type {', '.join(unknown)}; it has {', '.join(t.name for t in registry)}"
        )
    return {t.name: t for t in registry if t.name in names}


class Enlistment:
    """A worker's entry in the table of workers."""

    def __init__(
        self,
        store: WorkerStore,
        worker: str,
        types: Mapping[str, JobType],
        *,
        slots: Mapping[str, int],
        queues: Sequence[str] | None,
        tenants: Sequence[str] | None,
    ) -> None:
        self._store, self._worker, self._types = store, worker, types
        self._slots, self._queues, self._tenants = slots, queues, tenants
        self._definitions = json.dumps([t.published() for t in types.values()])
        self._published = False
        self._left = asyncio.Event()

    async def publish(self) -> None:
        """Publish the job types, unless that is done: before it, nobody keeps to the limits that they declare."""
        if not self._published:
            await self._store.publish_types(self._definitions)
            self._published = True

    async def enter(self) -> None:
        """Publish the job types and register the worker; also called again if the database has forgotten it."""
        if self._left.is_set():
            return
        self._published = False
        with contextlib.suppress(DatabaseUnavailable):
            await self._store.enlist(
                WorkerEntry(
                    worker=self._worker,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    version=__version__,
                    slots=json.dumps(self._slots),
                    types=list(self._types),
                    queues=self._queues,
                    tenants=self._tenants,
                    definitions=self._definitions,
                )
            )
            self._published = True
        if self._left.is_set():  # meanwhile: without this, a worker that has ended would count as alive
            await self._unregister()

    async def leave(self) -> None:
        """Unregister the worker, for good."""
        self._left.set()
        await self._unregister()

    async def _unregister(self) -> None:
        with contextlib.suppress(DatabaseUnavailable):
            await self._store.unregister(self._worker, seconds=_GOODBYE_SECONDS)
