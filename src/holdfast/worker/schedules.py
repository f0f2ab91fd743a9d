"""Declares the schedules of the worker's code: when it starts, and again and again while it lives.

Only what is new or different is written, so that thousands of schedules cost next to nothing; and a schedule counts as
declared for as long as a worker lives that declares it.
"""

from __future__ import annotations

import json

from holdfast.definitions.registry import Registry
from holdfast.lifecycle.service import Service
from holdfast.store.database import Database
from holdfast.store.schedules import Declarations, RefusedSchedule
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import ScheduleRefused

__all__ = ["DeclareSchedules"]

#: How soon a definition comes into force that had to make way for that of a worker which has ended since.
_AGAIN_SECONDS = 60.0


class DeclareSchedules(Service):
    """Declares all schedules of an app in one statement."""

    name = "schedules"

    def __init__(self, database: Database, worker: str, registry: Registry, bus: Bus) -> None:
        super().__init__(bus)
        self._declarations, self._worker = Declarations(database), worker
        self._definitions = json.dumps(list(registry.schedules))
        self._told: set[RefusedSchedule] = set()

    async def round(self) -> float:
        """Declare them, and tell once what was refused."""
        refused = await self._declarations.declare(self._worker, self._definitions)
        for fault in refused:
            if fault not in self._told:
                self._bus.emit(ScheduleRefused(name=fault.name, tenant=fault.tenant, fault=fault.fault))
        self._told = set(refused)
        return _AGAIN_SECONDS
