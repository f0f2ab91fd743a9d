"""Questions that are asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.client import lookups
from holdfast.client.lookups import _AT_ONCE, _MOST, LookUps
from holdfast.errors import DatabaseUnavailable
from holdfast.model.provenance import speaker


class Database:
    """Doubles numbers, once it may answer."""

    def __init__(self) -> None:
        self.statements: list[list[int]] = []
        self.speakers: set[str] = set()
        self.answers = asyncio.Event()
        self.away = False

    async def find(self, numbers: Sequence[int]) -> dict[int, int]:
        self.statements.append(list(numbers))
        self.speakers.add(speaker.get())
        await self.answers.wait()
        if self.away:
            raise DatabaseUnavailable("away", reason="slow")
        return {number: 2 * number for number in numbers}


async def rest() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_all_that_wait_are_asked_for_in_one_statement() -> None:
    database = Database()
    asked = LookUps(database.find)
    first = [asyncio.create_task(asked.ask(number)) for number in (0, 1)]
    await rest()
    second = asyncio.create_task(asked.ask(2))
    await rest()
    assert database.statements == [[0, 1], [2]]
    later = [asyncio.create_task(asked.ask(number)) for number in (0, *range(3, 3 + _MOST), 3)]
    await rest()
    assert len(database.statements) == _AT_ONCE
    database.answers.set()
    assert await asyncio.gather(*first, second) == [0, 2, 4]
    assert await asyncio.gather(*later) == [0, *range(6, 6 + 2 * _MOST, 2), 6]
    assert [len(statement) for statement in database.statements] == [2, 1, _MOST]


async def test_a_statement_for_all_is_nobodys() -> None:
    database = Database()
    database.answers.set()
    speaker.set("acme")
    await LookUps(database.find).ask(1)
    assert database.speakers == {""}


async def test_a_failure_is_told_to_those_who_wait_and_to_nobody_else() -> None:
    database = Database()
    asked = LookUps(database.find)
    gone, waits = (asyncio.create_task(asked.ask(number)) for number in (1, 2))
    await rest()
    gone.cancel()
    database.away = True
    database.answers.set()
    with pytest.raises(DatabaseUnavailable):
        await waits
    database.away = False
    assert await asked.ask(2) == 4


async def test_whoever_asks_in_the_moment_in_which_the_last_statement_ends_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "_AT_ONCE", 1)
    late: list[asyncio.Task[int]] = []

    async def find(numbers: Sequence[int]) -> dict[int, int]:
        if 2 not in numbers:
            late.append(asyncio.create_task(asked.ask(2)))
        return {number: 2 * number for number in numbers}

    asked = LookUps(find)
    async with asyncio.timeout(5):
        assert await asked.ask(1) == 2
        assert await late[0] == 4
