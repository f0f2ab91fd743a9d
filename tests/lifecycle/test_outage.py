"""How long to pause when the database is away: not at all after a cut, ever longer after what fails again."""

from __future__ import annotations

import pytest

from holdfast.errors import DatabaseUnavailable
from holdfast.lifecycle import service
from holdfast.lifecycle.service import Outage, Service
from holdfast.telemetry import narrator
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import DatabaseBack, DatabaseLost, Event
from holdfast.telemetry.narrator import Narrator

CUT = DatabaseUnavailable("cut", reason="cut")
AWAY = DatabaseUnavailable("no server there")
REFUSED = DatabaseUnavailable("refused", reason="read-only")


def test_a_connection_that_worked_and_was_cut_is_replaced_at_once() -> None:
    outage = Outage("a part", Bus())
    for _ in range(10):
        outage.over()
        assert outage.lost(CUT) == 0.0


def test_repeated_cuts_right_after_connecting_are_followed_by_growing_pauses() -> None:
    outage = Outage("a part", Bus())
    outage.over()
    pauses = [outage.lost(CUT) for _ in range(8)]
    assert pauses[0] == 0.0
    assert pauses[-1] >= 0.5


def test_failures_after_a_short_success_are_retried_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = Outage("a part", Bus())
    for _ in range(6):
        outage.over()
        pause = outage.lost(REFUSED)
    assert pause >= 0.5, "a success that did not last begins nothing anew"
    monkeypatch.setattr(service, "_LASTING_SECONDS", 0.0)
    outage.over()
    assert outage.lost(REFUSED) <= 0.05


def test_the_log_tells_of_an_outage_once_though_every_part_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    bus = Bus()

    def heard(event: Event) -> None:
        told.append(f"{type(event).__name__} {getattr(event, 'part', '')}")

    monkeypatch.setattr(narrator, "narrate", heard)
    bus.subscribe(Narrator())
    intake, settlement, keeper = (Outage(part, bus) for part in ("intake", "settlement", "keeper"))
    for outage in (intake, settlement, keeper) * 3:
        outage.lost(AWAY)
    for outage in (settlement, intake):
        outage.over()
    assert told == ["DatabaseLost this process", "DatabaseBack this process"]
    # One that never came back hides no other outage, and what only one part is refused is told of that part.
    monkeypatch.setattr(narrator, "_NOTICED_SECONDS", 0.0)
    told.clear()
    intake.lost(AWAY)
    settlement.lost(REFUSED)
    settlement.over()
    assert told == ["DatabaseLost this process", "DatabaseLost settlement", "DatabaseBack settlement"]


class Hungry(Service):
    """Finds no memory in its first round."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.rounds = 0

    async def round(self) -> float:
        self.rounds += 1
        if self.rounds == 1:
            raise MemoryError
        self.stop()
        return 0.0


async def test_a_service_that_finds_no_memory_tries_again_and_says_so() -> None:
    bus, told = Bus(), list[Event]()
    bus.subscribe(told.append)
    await Hungry(bus).run()
    lost, back = told
    assert isinstance(lost, DatabaseLost)
    assert lost.fault == "this process has no memory left"
    assert isinstance(back, DatabaseBack)
