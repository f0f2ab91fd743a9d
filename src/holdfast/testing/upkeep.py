"""What maintenance does, on demand and to the end, by the engine's clock and through the engine's own functions."""

from __future__ import annotations

from uuid import UUID

from holdfast.store.database import Database

__all__ = ["Upkeep"]

_BATCH = 500
_REQUESTS = 10


class Upkeep:
    """The duties of maintenance, over a connection that knows the statements of the testing kit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def briefly(self) -> None:
        """All that decides which job is next. A leader's patience after an outage is not needed: there was none."""
        while True:
            row = await self._database.row("testing_tend", _REQUESTS, _BATCH)
            if row is None or (row["requests"] < _REQUESTS and max(row.values()) < _BATCH):
                return

    async def thoroughly(self) -> None:
        """The same, and what mends, forgets and deletes."""
        await self.briefly()
        walked: UUID | None = None
        while rows := await self._database.rows("reconcile", walked, 1000):
            walked = rows[-1]["last"]
            if walked is None:
                break
        await self._database.value("drop_strays")
        await self._database.value("headless_targets")
        await self._database.value("forget_workers")
        retired: UUID | None = None
        while True:
            row = await self._database.row("retire", retired, _BATCH)
            retired = None if row is None else row["reached"]
            if retired is None:
                break
