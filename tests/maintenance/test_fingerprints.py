"""The duty `fingerprints`: portions follow one another, and looks from the beginning are rare but certain."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from holdfast.maintenance.duties.fingerprints import Fingerprints
from holdfast.maintenance.patience import LeaseJudge
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.maintenance_answers import AddedUp
from holdfast.telemetry.bus import Bus


class Failures:
    """Stands for the store: rows by number."""

    def __init__(self, *numbers: int) -> None:
        self.rows, self.looks = list(numbers), list[int]()

    async def add_failures(self, after: int, most: int) -> AddedUp:
        self.looks.append(after)
        taken = [number for number in sorted(self.rows) if number > after][:most]
        self.rows = [number for number in self.rows if number not in taken]
        return AddedUp(len(taken), max(taken, default=after))


@pytest.fixture
def duty() -> Fingerprints:
    return Fingerprints(Bus(), cast("LeaseJudge", None))


async def work(duty: Fingerprints, store: Failures) -> Any:
    return await duty.work(cast("MaintenanceStore", store))


async def test_portions_go_on_where_the_last_one_ended(duty: Fingerprints) -> None:
    duty.batch.size = 2
    store = Failures(1, 2, 3, 4, 5)
    assert (await work(duty, store)).more
    assert (await work(duty, store)).more
    assert not (await work(duty, store)).more
    assert store.looks == [0, 2, 4]
    assert store.rows == []


async def test_what_commits_late_is_found_by_the_next_full_look(
    duty: Fingerprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Failures(5)
    await work(duty, store)
    store.rows = [3]
    await work(duty, store)
    assert store.rows == [3]
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    await work(duty, store)
    assert store.rows == []
    assert store.looks == [0, 5, 0]


async def test_a_new_term_begins_at_the_beginning(duty: Fingerprints) -> None:
    store = Failures(500)
    await work(duty, store)
    store.rows = [7]
    duty.resume()
    await work(duty, store)
    assert store.rows == []
