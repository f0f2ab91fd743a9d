"""The event loop's time is shared: what one tenant asks for at once is not before the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.web import steps as module
from holdfast.web.steps import Paced, Steps

STEP_SECONDS = 0.0005


class Clock:
    """Tells how long steps took: as long as they say."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    time = perf_counter

    async def steps(self, taken: list[str], party: str, count: int) -> None:
        for _ in range(count):
            self.now += STEP_SECONDS
            taken.append(party)
            await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


async def _run(work: Coroutine[Any, Any, Any], steps: Steps, party: str, address: str = "") -> Any:
    return await Paced(work, steps, party, address)


async def test_many_requests_of_one_tenant_are_not_before_another(clock: Clock) -> None:
    steps, taken = Steps(), list[str]()
    async with asyncio.TaskGroup() as group:
        for _ in range(40):
            group.create_task(_run(clock.steps(taken, "acme", 10), steps, "acme"))
        while len(taken) < 100:
            await asyncio.sleep(0)
        began = len(taken)
        await group.create_task(_run(clock.steps(taken, "beta", 5), steps, "beta"))
        meanwhile = taken[began:].count("acme")
    assert meanwhile <= 30  # without turns it is 200: forty before each of the five
    assert taken.count("acme") == 400


async def test_every_tenant_has_a_step_in_each_round(clock: Clock) -> None:
    steps, taken = Steps(), list[str]()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            for _ in range(1 if number else 20):
                group.create_task(_run(clock.steps(taken, f"t{number}", 10), steps, f"t{number}"))
    last_of_small = max(place for place, party in enumerate(taken) if party != "t0")
    assert taken[:last_of_small].count("t0") <= 60  # of 200


async def test_alone_a_tenant_has_longer_rounds(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rounds() -> int:
        steps, taken = Steps(), list[str]()
        count = 0
        begin = steps._begin_round

        def counted() -> None:
            nonlocal count
            count += 1
            begin()

        monkeypatch.setattr(steps, "_begin_round", counted)
        if not alone:
            steps.turn("other")
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(_run(clock.steps(taken, "acme", 10), steps, "acme"))
        return count

    monkeypatch.setattr(module, "_LONG_ROUND_SECONDS", 10 * STEP_SECONDS)
    alone = False
    shared = await rounds()
    monkeypatch.setattr(module, "_ALONE_SECONDS", -1.0)
    alone = True
    assert await rounds() < shared / 3


async def _rounds_left_unused(clock: Clock, monkeypatch: pytest.MonkeyPatch, beside: dict[str, int]) -> int:
    """How often forty requests of a tenant rest, beside some of others."""
    rested = 0
    loop = asyncio.get_running_loop()
    soon = loop.call_soon

    def later(seconds: float, begin: Callable[[], None]) -> asyncio.Handle:
        nonlocal rested
        rested += 1
        clock.now += seconds
        return soon(begin)

    monkeypatch.setattr(loop, "time", clock.time)
    monkeypatch.setattr(loop, "call_later", later)
    steps, taken = Steps(), list[str]()
    async with asyncio.TaskGroup() as group:
        for party, requests in {"acme": 40, **beside}.items():
            for _ in range(requests):
                group.create_task(_run(clock.steps(taken, party, 400 // requests), steps, party))
    monkeypatch.undo()
    assert {party: taken.count(party) for party in beside} == dict.fromkeys(beside, 400)
    assert taken.count("acme") == 400
    return rested


async def test_beside_a_light_caller_a_crowd_leaves_the_loop_free_at_times(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = 400 * STEP_SECONDS
    rested = await _rounds_left_unused(clock, monkeypatch, {"beta": 1}) * module._REST_SECONDS
    assert rested > used


@pytest.mark.parametrize("beside", [{}, {"beta": 40}, {module._PROBES: 1}], ids=["alone", "among crowds", "probed"])
async def test_without_light_callers_no_time_is_left_unused(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, beside: dict[str, int]
) -> None:
    monkeypatch.setattr(module, "_ABOUT_SECONDS", 0.01)  # each of them was light when it came
    rested = await _rounds_left_unused(clock, monkeypatch, beside)
    assert rested <= 40


async def test_a_request_that_is_canceled_hears_of_it_wherever_it_waits() -> None:
    steps = Steps()
    heard: list[str] = []

    async def request(name: str) -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            heard.append(name)
            raise

    in_a_wait = asyncio.create_task(_run(request("in a wait"), steps, "acme"))
    for _ in range(5):
        await asyncio.sleep(0)
    steps.took("acme", 1.0)  # the round is over: who comes now stands in line
    in_line = asyncio.create_task(_run(request("in line"), steps, "acme"))
    steps.turn("acme")
    await asyncio.sleep(0)
    for task in (in_a_wait, in_line):
        task.cancel()
    ends = await asyncio.gather(in_a_wait, in_line, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 2
    assert heard == ["in a wait"]  # the other one had not begun
    async with asyncio.timeout(5):  # and nobody waits for the turn of one who is gone
        await _run(asyncio.sleep(0), steps, "acme")


async def test_results_faults_and_timeouts_come_through() -> None:
    steps = Steps()

    async def late() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            return "late"
        return "in time"

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    async def hears() -> str:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, LookupError("told"))
        try:
            await future
        except LookupError as fault:
            return str(fault)
        return ""

    assert await _run(late(), steps, "acme") == "late"
    assert await _run(hears(), steps, "acme") == "told"
    with pytest.raises(LookupError, match="gone"):
        await _run(fails(), steps, "acme")


def scope(key: bytes = b"", path: str = "/jobs") -> dict[str, Any]:
    headers = [(b"authorization", key)] if key else []
    return {"headers": headers, "path": path, "query_string": b"", "steps": SimpleNamespace(party="", tenant=None)}


async def test_a_request_is_a_strangers_until_its_key_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    for unknown in (scope(), scope(b"Bearer x")):
        assert steps.party(unknown) == module._STRANGERS
    known = scope(b"Bearer a")
    steps.remember(known, "acme")
    assert (known["steps"].party, known["steps"].tenant) == ("acme", "acme")
    assert steps.party(scope(b"Bearer a")) == "acme"
    steps.forget(scope(b"Bearer a"))
    assert steps.party(scope(b"Bearer a")) == module._STRANGERS
    monkeypatch.setattr(module, "_REMEMBERED", 10)
    for number in range(100):
        steps.remember(scope(b"Bearer %d" % number), "acme")
    assert len(steps._tenants) <= 10


async def test_callers_without_a_key_are_no_strangers_where_they_are_let_in() -> None:
    steps = Steps()
    steps.remember(scope(), "acme")  # by a token, say
    assert steps.party(scope()) == module._STRANGERS
    steps.remember(scope(), "default", keyless=True)
    assert steps.party(scope()) == "default"
    assert steps.party(scope(path="/livez")) == module._PROBES
    steps.forget(scope())
    assert steps.party(scope()) == module._STRANGERS


@pytest.mark.parametrize("party", [module._STRANGERS, module._PROBES])
async def test_strangers_from_however_many_addresses_cost_a_tenant_little(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, party: str
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", clock.time)
    steps, taken = Steps(), list[str]()
    strangers = [
        asyncio.create_task(_run(clock.steps(taken, "", 10_000), steps, party, f"10.0.0.{number}"))
        for number in range(200)
    ]
    while len(taken) < 1000:  # nobody else is about: they have all the time there is
        await asyncio.sleep(0)
    began = len(taken)
    await _run(clock.steps(taken, "acme", 300), steps, "acme")
    meanwhile = taken[began:].count("")
    for stranger in strangers:
        stranger.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    saved = module._SAVED_SECONDS / STEP_SECONDS
    assert meanwhile <= saved + 100  # with turns alone as many as the tenant's; without them 200 for each of those


async def test_addresses_of_strangers_take_turns(clock: Clock) -> None:
    steps, taken = Steps(), list[str]()
    async with asyncio.TaskGroup() as group:
        for _ in range(40):
            group.create_task(_run(clock.steps(taken, "many", 10), steps, module._STRANGERS, "10.0.0.1"))
        while len(taken) < 50:
            await asyncio.sleep(0)
        began = len(taken)
        await group.create_task(_run(clock.steps(taken, "one", 5), steps, module._STRANGERS, "10.0.0.2"))
        assert taken[began:].count("many") <= 30  # of 350
