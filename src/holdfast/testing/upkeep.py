"""What maintenance does, on demand and to the end, by the engine's clock: the same duties, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.maintenance.duties import new_duties
from holdfast.maintenance.duty import Duty, Urgency
from holdfast.maintenance.watch import LeaseWatch
from holdfast.store.database import Database
from holdfast.store.maintenance import MaintenanceStore
from holdfast.telemetry.bus import Bus

__all__ = ["Certain", "Upkeep"]


class Upkeep:
    """The duties of maintenance, over the kit's connections. Nobody is told what they mend."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def briefly(self) -> None:
        """All that decides which job is next."""
        await self._do(duty for duty in _duties() if duty.urgency is not Urgency.BACKGROUND)

    async def thoroughly(self) -> None:
        """The same, and what mends, forgets and deletes."""
        await self._do(_duties())

    async def _do(self, duties: Iterable[Duty]) -> None:
        for duty in duties:
            while (await duty.work(MaintenanceStore(self._database))).more:
                pass


def _duties() -> list[Duty]:
    """New ones each time: what they remember fits one database at one time."""
    return new_duties(Bus(), Certain())


class Certain:
    """In a test there was no outage: every lease may be judged."""

    clock = None

    def __init__(self) -> None:
        self.watch = LeaseWatch()

    def spared(self) -> tuple[list[float], list[float]]:
        """None."""
        return [], []

    def said(self, spared_leases: int) -> None:
        """Nothing to say."""

    async def fresh(self) -> None:
        """It answers."""
