"""What connections without a caller may cost: places, lines, and turns."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast
from uuid import uuid4

import pytest

from holdfast import Holdfast
from holdfast.model.key import new_secret
from holdfast.web import heads, places
from holdfast.web import steps as pacing
from holdfast.web.bounded import Bounded
from holdfast.web.budget import Budget
from holdfast.web.impatient import Impatient
from holdfast.web.ration import Ration
from holdfast.web.server import Server, listen
from holdfast.web.standing import Standing
from holdfast.web.steps import Paced, Steps
from holdfast.web.throng import Throng
from tests.harness.waiting import until
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import BODY, CHUNKED, GET, send, serving

POST = b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def bare() -> AsyncIterator[int]:
    """The port of a server without a database."""
    async with serving(Holdfast("postgresql://127.0.0.1:1/nothing")) as port:
        yield port


class Connection:
    """One that says when it has to give way."""

    def __init__(self, gone: list[Connection]) -> None:
        self._gone = gone

    def give_way(self) -> None:
        self._gone.append(self)


def test_whoever_was_quiet_for_longest_gives_way_first() -> None:
    throng = Throng[int](16)
    for number in range(16):
        throng.put(number, f"10.0.0.{number}")
    throng.put(0, "10.0.0.0")
    assert throng.first() == 1
    assert throng.leave(1)
    assert not throng.leave(1)
    assert throng.first() == 2
    assert (len(throng), 0 in throng, 1 in throng) == (15, True, False)


def test_an_address_with_very_many_gives_way_to_others() -> None:
    throng = Throng[int](16)
    throng.put(0, "10.0.0.1")
    for number in (1, 2):
        throng.put(number, "10.0.0.2")
    assert throng.first() == 0  # two are an eighth, and no more
    throng.put(3, "10.0.0.2")
    assert throng.first() == 1
    throng.leave(1)
    assert throng.first() == 0
    for number in (0, 2, 3):
        throng.leave(number)
    assert throng.first() is None


def test_strangers_have_few_of_the_places_and_those_with_a_key_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_MOST_STRANGERS", 8)
    monkeypatch.setattr(places, "_MOST_APPLICANTS", 4)
    gone: list[Any] = []
    taken = places.Places()

    addresses = itertools.count()

    def new() -> Any:
        connection = Connection(gone)
        assert taken.take(cast("Any", connection), f"10.0.0.{next(addresses)}")
        return connection

    caller, applicant = new(), new()
    taken.begin(caller)
    taken.know(caller, "acme")
    taken.begin(applicant)
    taken.apply(applicant)
    strangers = [new() for _ in range(8)]
    assert gone == []
    taken.begin(strangers[0])
    taken.stir(strangers[1])
    for _ in range(8):
        new()
    assert gone == [*strangers[2:], *strangers[:2]]  # those at work, too; the others stay
    taken.end(applicant)  # it was refused
    assert applicant not in gone
    for _ in range(8):
        new()
    assert applicant in gone
    assert caller not in gone
    taken.doubt(caller)
    for _ in range(8):
        new()
    assert caller in gone
    applicants = [new() for _ in range(5)]
    for one in applicants:
        taken.apply(one)
    assert [one in taken._applicants for one in applicants] == [True] * 4 + [False]
    for _ in range(8):
        new()
    assert [one in gone for one in applicants] == [False] * 4 + [True]  # whoever is being looked up is not pushed out


async def test_a_stranger_that_is_gone_leaves_its_line_at_once() -> None:
    steps, ran = Steps(), list[str]()

    async def request(name: str, wait: asyncio.Event | None = None) -> None:
        ran.append(name)
        if wait is not None:
            await wait.wait()
            ran.append(f"{name} again")

    never = asyncio.Event()
    waiting = Paced(request("waiting", never), steps, pacing._STRANGERS, "10.0.0.1")
    tenants = Paced(request("tenant", never), steps, "acme")
    tasks = [asyncio.ensure_future(_awaited(one)) for one in (waiting, tenants)]
    for _ in range(5):
        await asyncio.sleep(0)
    tenants.tenant = "acme"
    steps.took(pacing._STRANGERS, 1.0)
    steps._served.add(pacing._STRANGERS)
    in_line = Paced(request("in line"), steps, pacing._STRANGERS, "10.0.0.1")
    tasks.append(asyncio.ensure_future(_awaited(in_line)))
    await asyncio.sleep(0)
    assert pacing._STRANGERS in steps._waiters
    for one in (waiting, tenants, in_line):
        one.give_up()
    assert pacing._STRANGERS not in steps._waiters
    async with asyncio.timeout(5):
        await asyncio.gather(tasks[0], tasks[2])
        never.set()
        await tasks[1]
    assert ran == ["waiting", "tenant", "tenant again"]


async def _awaited(paced: Paced[None]) -> None:
    await paced


async def test_a_request_whose_connection_is_gone_does_not_begin(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await key("submit")
    monkeypatch.setattr(places, "_MOST_STRANGERS", 2)
    monkeypatch.setattr(Impatient, "places", places.Places())
    parties: list[str] = []
    look = Steps.party

    def party(steps: Steps, scope: Any) -> str:
        parties.append(scope["path"])
        return look(steps, scope)

    monkeypatch.setattr(Steps, "party", party)
    async with serving(hf) as port, asyncio.timeout(20):
        lines = []
        for number in range(5):
            lines.append(await asyncio.open_connection("127.0.0.1", port))
            lines[-1][1].write(b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number)
        await until(lambda: "/4" in parties, seconds=10, what="the last one has begun")
        assert len(Impatient.places._taken) <= 2
        for reader, writer in lines:
            with contextlib.suppress(ConnectionError):
                writer.close()
                await reader.read()


@pytest.mark.parametrize("known", [True, False])
async def test_a_connection_is_a_callers_as_soon_as_its_key_is_known(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    good = (await key("submit"))["Authorization"].encode()
    sent = good if known else f"Bearer {new_secret()}".encode()
    monkeypatch.setattr(Impatient, "places", places.Places())
    applied: list[Any] = []
    apply = places.Places.apply

    def applies(of: places.Places, connection: Impatient) -> None:
        applied.append(connection)
        apply(of, connection)
        assert connection in of._applicants

    monkeypatch.setattr(places.Places, "apply", applies)
    asks = b"GET /ops/types HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n\r\n" % sent
    async with serving(hf) as port, asyncio.timeout(20):
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(asks)
            assert (b" 403 " if known else b" 401 ") in await reader.readline()
            (connection,) = Impatient.places._taken
            assert (connection in Impatient.places._callers) is known
            assert (connection in Impatient.places._strangers) is not known
            writer.close()
            await until(lambda: not Impatient.places._taken, seconds=10, what="it is gone")
        assert len(applied) == (1 if known else 2)


async def test_a_key_that_has_ended_makes_its_connection_a_strangers_again() -> None:
    taken, connection = places.Places(), cast("Any", Connection([]))
    scope: dict[str, Any] = {"headers": [(b"authorization", b"Bearer ended")]}
    Standing(taken, connection).attach(scope)
    taken.take(connection)
    taken.know(connection, "acme")
    assert connection not in taken._strangers
    Steps().forget(scope)
    assert connection in taken._strangers


async def test_what_may_be_a_key_has_a_line_of_its_own() -> None:
    steps = Steps()

    def party(key: str, query: bytes = b"", path: str = "/jobs") -> str:
        headers = [(b"authorization", key.encode())] if key else []
        return steps.party({"headers": headers, "path": path, "query_string": query})

    assert party(f"Bearer {new_secret()}") == pacing._APPLICANTS
    token, events = b"a=b&token=" + b"a" * 75, f"/jobs/{uuid4()}/events"
    assert party("", token, events) == pacing._APPLICANTS
    for other in ("Bearer x", new_secret(), f"Bearer {new_secret()}x", "Basic abc"):
        assert party(other, token, events) == pacing._STRANGERS
    for query, path in ((b"token=abc", events), (token, "/jobs"), (token, "/jobs/x/events")):
        assert party("", query, path) == pacing._STRANGERS


async def test_the_first_probe_of_a_connection_does_not_wait(bare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paced: list[str] = []
    begin = Paced.__init__

    def counted(self: Paced[None], work: Any, steps: Steps, party: str, address: str = "") -> None:
        paced.append(party)
        begin(self, work, steps, party, address)

    monkeypatch.setattr(Paced, "__init__", counted)
    assert (await send(bare, [GET + b"\r\n"]))[0] == 200
    assert paced == []
    reader, writer = await asyncio.open_connection("127.0.0.1", bare)
    async with asyncio.timeout(20):
        writer.write((GET + b"\r\n") * 3)
        for _ in range(3):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert paced == [pacing._PROBES] * 2


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(b"abcdefgh: ijklmnop\r\n" * 100, id="very many fields"),
        pytest.param(b"abc: " + b"d" * 30_000 + b"\r\n", id="a long field"),
        pytest.param((b"abc: " + b"d" * 500 + b"\r\n") * 60, id="large fields"),
        pytest.param(b"a" * 30_000 + b": b\r\n", id="a long name"),
        pytest.param((b"Expect: " + b"," * 500 + b"\r\n") * 60, id="lists"),
        pytest.param(b"abc: " + b"d" * 2048 + b"\r\n", id="more than a small head"),
    ],
)
async def test_heads_of_strangers_take_turns_by_what_they_cost(
    bare: int, monkeypatch: pytest.MonkeyPatch, fields: bytes
) -> None:
    rounds: list[int] = [0]

    class Counted(Budget):
        def _begin(self) -> None:
            rounds.append(0)
            super()._begin()

    parse = Bounded._parse

    def counted(self: Bounded, piece: memoryview) -> int:
        if len(piece) > 1000:
            rounds[-1] += 1
        return parse(self, piece)

    monkeypatch.setattr(Bounded, "_strangers_heads", Counted(1e-9))
    monkeypatch.setattr(Bounded, "_parse", counted)
    async with asyncio.timeout(20):
        lines = [await asyncio.open_connection("127.0.0.1", bare) for _ in range(8)]
        for _, writer in lines:
            writer.write((GET + fields + b"\r\n") * 2)
        for reader, writer in lines:
            for _ in range(2):
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.close()
    assert sum(rounds) >= 16
    assert max(rounds) == 1


async def test_a_small_head_and_a_caller_with_a_large_one_do_not_wait_for_strangers(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = Budget(0.0)
    good = (await key("read"))["Authorization"].encode()
    large = b"Cookie: " + b"c" * 9_000 + b"\r\n"
    async with serving(hf) as port, asyncio.timeout(20):
        asks = b"GET /jobs/%b HTTP/1.1\r\nHost: localhost\r\n" % str(uuid4()).encode()
        asks_with_key = asks + b"Authorization: %b\r\n" % good
        assert (await send(port, [asks_with_key + b"\r\n"]))[0] == 404  # since then the key is known
        monkeypatch.setattr(Bounded, "_strangers_heads", never)
        assert (await send(port, [GET + b"\r\n"]))[0] == 200
        assert (await send(port, [asks + b"\r\n"]))[0] == 401
        assert (await send(port, [asks_with_key + large * 4 + b"\r\n"]))[0] == 404
        assert (await send(port, [asks + b"Authorization: %b\r\n" % good + large + b"\r\n"]))[0] == 404
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asks_with_key + b"\r\n")
        assert b" 404 " in await reader.readuntil(b"}")
        writer.write(asks + large * 4 + b"Authorization: %b\r\n\r\n" % good)  # its key comes last
        assert b" 404 " in await reader.readuntil(b"}")
        writer.close()
        assert not never._line
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + large + b"\r\n")
        await until(lambda: len(never._line) == 1, seconds=10, what="a stranger with a large head waits")
        writer.close()


async def test_small_heads_without_end_wait_for_their_turns_too(bare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    class Counted(Budget):
        def take(self, who: Any, go_on: Any) -> bool:
            taken.append(who)
            return super().take(who, go_on)

    monkeypatch.setattr(Bounded, "_strangers_heads", Counted(1.0))
    monkeypatch.setattr(heads, "_SMALL_EVERY_SECONDS", 3600.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", bare)
    async with asyncio.timeout(20):
        for expected in (0, 10):
            writer.write((GET + b"a: %b\r\n\r\n" % (b"b" * (2048 // 10 - len(GET) - 7))) * 10)
            for _ in range(10):
                assert b" 200 " in await reader.readuntil(b"}")
            assert len(taken) == expected
    writer.close()


async def test_a_round_has_so_much_time_and_both_ends_of_the_line_take_turns() -> None:
    budget, done = Budget(1.0), list[int]()

    def work(number: int) -> None:
        done.append(number)
        budget.spend(0.6)

    assert budget.take(0, lambda: None)
    work(0)
    assert budget.take(1, lambda: None)
    work(1)
    assert [budget.take(number, partial(work, number)) for number in range(2, 8)] == [False] * 6
    budget.leave(4)
    for expected in ([7, 2], [6, 3], [5]):  # the last one, and the one that has waited longest
        await asyncio.sleep(0)
        assert done[-len(expected) :] == expected
    assert budget.take("there is time left", lambda: None)
    await asyncio.sleep(0)
    assert budget.take("later", lambda: None)


async def test_of_what_is_rationed_so_much_is_done_in_a_round() -> None:
    ration, done = Ration(2), list[int]()
    assert [ration.take(number, partial(done.append, number)) for number in range(7)] == [True] * 2 + [False] * 5
    ration.leave(3)
    for expected in ([2, 4], [2, 4, 5, 6]):
        await asyncio.sleep(0)
        assert done == expected
    for _ in range(3):
        await asyncio.sleep(0)
    assert ration.take("later", lambda: None)


async def test_a_listener_accepts_several_connections_in_a_round(hf: Holdfast) -> None:
    server = Server(hf)
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started, seconds=10, what="it serves")
        numbers = {sock.fileno() for one in server.servers for sock in one.sockets}
        assert len(numbers) >= 16
        where = listener.getsockname()
        server.stop()
        await task
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*where)


async def test_a_preference_that_is_no_wait_does_not_cost_a_half_closed_client_its_answer(hf: Holdfast) -> None:
    submission = POST + b"Content-Length: %d\r\nPrefer: %b\r\n\r\n" + BODY
    minimal, waits = (submission % (len(BODY), prefer) for prefer in (b"return=minimal, wait=0", b"wait=60"))
    async with serving(hf) as port, asyncio.timeout(20):
        for sent, answers in ((minimal, 1), (minimal + minimal, 2), (waits, 0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                assert (await reader.read()).count(b"HTTP/1.1 202 ") == answers
            writer.close()


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_client_that_closes_its_side_is_answered(hf: Holdfast, chunked: bool) -> None:
    whole = CHUNKED + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    if not chunked:
        whole = POST + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
    async with serving(hf) as port, asyncio.timeout(20):
        for sent, answers in ((whole, b"HTTP/1.1 202 "), (whole[:-3], b"")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                assert (await reader.read())[:13] == answers
            writer.close()


@pytest.mark.parametrize("expect", [b"100-continue", b"100-Continue, foo"])
async def test_a_body_that_was_not_asked_for_is_not_waited_for(hf: Holdfast, key: KeyMaker, expect: bytes) -> None:
    good = (await key("submit"))["Authorization"].encode()
    head = POST + b"Expect: " + expect + b"\r\nContent-Length: %d\r\nAuthorization: %b\r\n\r\n"
    async with serving(hf) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head % (len(BODY), b"Bearer unknown"))
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"\r\nconnection: close\r\n" in answer
        await reader.read()  # to its end
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head % (len(BODY), good))
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(BODY)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert b"connection: close" not in answer
        writer.close()
