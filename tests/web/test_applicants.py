"""Callers whose key this server has not seen yet, beside others who made theirs up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.model.key import EventsToken, new_secret
from holdfast.store.keys import KeyStore
from holdfast.web import places
from holdfast.web import steps as pacing
from holdfast.web.bounded import Bounded
from holdfast.web.budget import Budget
from holdfast.web.impatient import Impatient
from holdfast.web.steps import Steps
from tests.harness.waiting import until
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import serving

HEAD = b"GET /jobs/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n"


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], asyncio.Event]:
    """What was looked up, and an event that lets the database answer."""
    asked: list[Any] = []
    answers = asyncio.Event()
    find_all = KeyStore.find_all

    async def slowly(store: KeyStore, proofs: Sequence[bytes | EventsToken]) -> Any:
        asked.extend(proofs)
        await answers.wait()
        return await find_all(store, proofs)

    monkeypatch.setattr(KeyStore, "find_all", slowly)
    return asked, answers


@contextlib.asynccontextmanager
async def connected(port: int, *sent: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in sent]
    for (_, writer), data in zip(lines, sent, strict=True):
        writer.write(data)
    yield [reader for reader, _ in lines]
    for _, writer in lines:
        writer.close()


def made_up() -> bytes:
    return HEAD % b"Bearer %b" % new_secret().encode() + b"\r\n"


async def test_whoever_makes_keys_up_does_not_push_out_those_who_wait(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch, look_ups: tuple[list[Any], asyncio.Event]
) -> None:
    good = (await key("read"))["Authorization"].encode()
    monkeypatch.setattr(places, "_MOST_STRANGERS", 4)
    monkeypatch.setattr(places, "_MOST_APPLICANTS", 4)
    monkeypatch.setattr(Impatient, "places", places.Places())
    asked, answers = look_ups
    async with serving(hf) as port, asyncio.timeout(20):
        async with connected(port, HEAD % good + b"\r\n") as (reader,):
            await until(lambda: len(asked) == 1, seconds=10, what="it is looked up")
            for _ in range(4):
                async with connected(port, *[made_up() for _ in range(8)]):
                    await until(lambda: len(Impatient.places._applicants) == 4, seconds=10, what="they apply")
            answers.set()
            assert b" 404 " in await reader.readline()


async def test_whose_a_key_is_is_found_out_before_its_request_waits_in_line(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = (await key("read", tenant="acme"))["Authorization"].encode()
    parties: list[str] = []
    turn = Steps.turn

    def counted(steps: Steps, party: str, *args: Any, **options: Any) -> Any:
        parties.append(party)
        return turn(steps, party, *args, **options)

    monkeypatch.setattr(Steps, "turn", counted)
    async with serving(hf) as port, asyncio.timeout(20):
        for sent, party, status in (
            (HEAD % good + b"\r\n", "acme", b" 404 "),
            (made_up(), pacing._STRANGERS, b" 401 "),
        ):
            parties.clear()
            async with connected(port, sent) as (reader,):
                assert status in await reader.readline()
            assert set(parties) == {party}


@pytest.mark.parametrize("away", [True, False])
async def test_a_database_that_does_not_answer_is_the_routes_matter(
    hf: Holdfast,
    key: KeyMaker,
    monkeypatch: pytest.MonkeyPatch,
    look_ups: tuple[list[Any], asyncio.Event],
    away: bool,
) -> None:
    await key("read")
    asked, answers = look_ups
    if away:

        async def fails(*_: Any) -> None:
            raise DatabaseUnavailable("away", reason="slow")

        monkeypatch.setattr(KeyStore, "find_all", fails)
    monkeypatch.setattr(pacing, "_LOOK_UP_SECONDS", 0.02)
    paced: list[str] = []
    begin = pacing.Paced.__init__

    def counted(self: Any, work: Any, steps: Steps, party: str, address: str = "") -> None:
        paced.append(party)
        begin(self, work, steps, party, address)

    monkeypatch.setattr(pacing.Paced, "__init__", counted)
    async with serving(hf) as port, asyncio.timeout(20), connected(port, made_up()) as (reader,):
        await until(lambda: paced == [pacing._APPLICANTS], seconds=10, what="the route begins")
        answers.set()
        assert (b" 503 " if away else b" 401 ") in await reader.readline()
    assert len(asked) == (0 if away else 1)


@pytest.mark.parametrize("spelt", [b"Authorization: ", b"authorization:"])
async def test_large_heads_of_known_callers_do_not_wait_for_those_of_strangers(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch, spelt: bytes
) -> None:
    good = (await key("read"))["Authorization"].encode()
    known = HEAD % good + b"\r\n"
    many = b"abc: d\r\n" * 80
    never = Budget(0.0)
    monkeypatch.setattr(Bounded, "_strangers_heads", never)
    large: Callable[[bytes], bytes] = lambda field: HEAD.split(b"Auth")[0] + field + many + b"\r\n"  # noqa: E731
    async with serving(hf) as port, asyncio.timeout(20):
        async with connected(port, known) as (reader,):
            assert b" 404 " in await reader.readline()
        sent = [large(field) for field in (b"", b"Authorization: Bearer %b\r\n" % new_secret().encode())]
        async with connected(port, *sent):
            await until(lambda: len(never._line) == 2, seconds=10, what="strangers wait")
            async with connected(port, large(spelt + good + b"\r\n")) as (reader,):
                assert b" 404 " in await reader.readline()
