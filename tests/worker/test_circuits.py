"""Circuit breakers as handlers meet them, in the event loop, in threads and in processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import (
    Circuit,
    CircuitOpen,
    Context,
    Fatal,
    Holdfast,
    InvalidInput,
    Retry,
    RetryPolicy,
    Snooze,
    SyncContext,
)
from tests.harness.inprocess import working
from tests.harness.waiting import until
from tests.worker import circuit_calls

#: Opens soon, and is tried again soon.
SHORT: dict[str, Any] = {"failure_threshold": 3, "open_for": 0.5}
PATIENT = RetryPolicy(max_attempts=100, base=0.01, max=0.05)


class Down(Exception):
    """The service does not answer."""


class Service:
    """A service outside, with a log of its own."""

    def __init__(self) -> None:
        self.down = True
        self.calls: list[str] = []
        self.at_once = self.most = 0

    async def call(self, who: str = "") -> None:
        self.calls.append(who)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(0.01)
            if self.down:
                raise Down("no answer")
        finally:
            self.at_once -= 1


async def circuit(conn: asyncpg.Connection, name: str = "mail") -> asyncpg.Record:
    row = await conn.fetchrow("select * from circuits where name = $1", name)
    assert row is not None
    return row


async def outcomes(conn: asyncpg.Connection, job_type: str = "send") -> Counter[str]:
    rows = await conn.fetch(
        "select a.outcome from job_attempts a join jobs j on j.id = a.job_id where j.type = $1", job_type
    )
    return Counter(row["outcome"] for row in rows)


async def test_an_open_circuit_puts_jobs_off_at_no_cost_and_lets_them_go_on(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    service = Service()

    @hf.job("send", retry=PATIENT)
    async def send(ctx: Context) -> None:
        async with ctx.circuit("mail", **SHORT):
            await service.call()

    jobs = await hf.enqueue_many([("send", {})] * 10)
    async with working(hf, lanes="general=2"):
        await until(lambda: _state(conn, "mail", "open"))
        explained = [await (await hf.operations()).explain(job.id) for job in jobs]
        service.down = False
        for job in jobs:
            assert (await hf.wait(job.id, timeout=30)).state == "success"
    assert (await circuit(conn))["state"] == "closed"
    found = await outcomes(conn)
    failed = await conn.fetchval("select sum(failures) from jobs where type = 'send'")
    assert found["failed"] == failed
    assert found["snoozed"] > 0
    assert not await conn.fetchval("select exists (select from controls where kind = 'circuit')")
    assert any(e.code == "circuit" and 'waits for circuit "mail"' in e.sentence for e in explained)


async def test_a_declared_circuit_shuts_its_type_instead_of_putting_jobs_off(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    service = Service()

    @hf.job("send", retry=PATIENT, circuit=Circuit("mail", **SHORT))
    async def send(ctx: Context) -> None:
        await service.call()

    await hf.enqueue_many([("send", {})] * 500)
    async with working(hf, lanes="general=4"):
        await until(lambda: _state(conn, "mail", "open"))
        await until(lambda: _state(conn, "mail", "half_open"))
        await until(lambda: _openings(conn, 2))
        waiting = await conn.fetchval("select id from jobs where type = 'send' and attempt = 0 limit 1")
        explained = await (await hf.operations()).explain(waiting)
        assert explained.code == "circuit"
        assert explained.sentence.startswith('The job waits for circuit "mail", which ')
        service.down = False
        await until(lambda: _done(conn), seconds=60)
    found = await outcomes(conn)
    assert found["snoozed"] < 20, found
    assert found["failed"] < 20, found
    assert not await conn.fetchval("select exists (select from jobs where state <> 'success')")


@pytest.mark.parametrize("probes", [1, 3])
async def test_only_as_many_probes_pass_as_may(hf: Holdfast, conn: asyncpg.Connection, probes: int) -> None:
    at_once = most = 0
    opened, answered = asyncio.Event(), asyncio.Event()

    @hf.job("send", retry=PATIENT)
    async def send(ctx: Context) -> None:
        nonlocal at_once, most
        async with ctx.circuit("mail", failure_threshold=3, open_for=0.5, probes=probes):
            if not opened.is_set():
                raise Down
            at_once += 1
            most = max(most, at_once)
            await answered.wait()
            at_once -= 1

    await hf.enqueue_many([("send", {})] * 20)
    async with working(hf, lanes="general=10"), working(hf, lanes="general=10", maintenance=False):
        await until(lambda: _state(conn, "mail", "open"))
        opened.set()
        await until(lambda: _held(conn, probes))
        await until(lambda: _refused(conn, 20))
        answered.set()
        assert most == probes
        await until(lambda: _done(conn))


async def _refused(conn: asyncpg.Connection, count: int) -> bool:
    return bool(await conn.fetchval("select count(*) >= $1 from job_attempts where error_type = 'CircuitOpen'", count))


async def _state(conn: asyncpg.Connection, name: str, state: str) -> bool:
    return bool(await conn.fetchval("select state = $2 from circuits where name = $1", name, state))


async def _openings(conn: asyncpg.Connection, count: int) -> bool:
    return bool(await conn.fetchval("select openings >= $1 from circuits", count))


async def _held(conn: asyncpg.Connection, count: int) -> bool:
    return bool(
        await conn.fetchval(
            "select count(*) = $1 from permits p join leases l using (job_id, attempt) where gate like 'circuit:%'",
            count,
        )
    )


async def _done(conn: asyncpg.Connection, job_type: str = "send") -> bool:
    return not await conn.fetchval("select exists (select from jobs where type = $1 and state <> 'success')", job_type)


@pytest.mark.parametrize("declared", [False, True])
async def test_handlers_in_threads_have_circuits_too(hf: Holdfast, conn: asyncpg.Connection, declared: bool) -> None:
    down = True

    @hf.job("send", retry=PATIENT, circuit=Circuit("mail", **SHORT) if declared else None)
    def send(ctx: SyncContext) -> None:
        with ctx.circuit("mail", **SHORT):
            if down:
                raise Down

    await hf.enqueue_many([("send", {})] * 10)
    async with working(hf, lanes="general=4"):
        await until(lambda: _state(conn, "mail", "open"))
        down = False
        await until(lambda: _done(conn))
    assert (await circuit(conn))["state"] == "closed"


@pytest.mark.parametrize("job_type", ["send", "declared"])
@pytest.mark.usefixtures("warm_children")
async def test_handlers_in_processes_have_circuits_too(
    database_url: str, conn: asyncpg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_type: str
) -> None:
    monkeypatch.setattr(circuit_calls.hf, "config", Holdfast(database_url).config)
    (mark := tmp_path / "down").touch()
    async with circuit_calls.hf as hf:
        await hf.enqueue_many([(job_type, {"place": str(mark)})] * 10)
        async with working(hf, lanes="general=3"):
            await until(lambda: _state(conn, "mail", "open"))
            await until(lambda: _refused(conn, 1) if job_type == "send" else True)
            mark.unlink()
            await until(lambda: _done(conn, job_type))
    assert (await circuit(conn))["state"] == "closed"


async def test_neither_a_probe_nor_what_opens_the_circuit_spends_an_attempt(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    """The same jobs are first in line for every probe: an outage would bury them."""
    down = True
    causes: list[BaseException | None] = []

    @hf.job("send", retry=RetryPolicy(max_attempts=1))
    async def send(ctx: Context) -> None:
        try:
            async with ctx.circuit("mail", failure_threshold=1, open_for=0.1):
                if down:
                    raise Down
        except CircuitOpen as refusal:
            causes.append(refusal.__cause__)
            raise

    job = await send.enqueue()
    async with working(hf):
        await until(lambda: _openings(conn, 3))
        down = False
        ended = await hf.wait(job.id, timeout=30)
    assert (ended.state, ended.failures) == ("success", 0)
    assert sum(isinstance(cause, Down) for cause in causes) >= 3


async def test_only_what_counts_is_a_failure(hf: Holdfast, conn: asyncpg.Connection) -> None:
    errors: list[BaseException] = [
        Retry("r", delay=3600), Snooze(3600), Fatal("f"), ValueError("v"), Down("d"),
        ExceptionGroup("g", [Snooze(3600)]),
    ]  # fmt: skip

    @hf.job("send", retry=RetryPolicy(max_attempts=1))
    async def send(ctx: Context, nth: int) -> None:
        async with ctx.circuit("mail", counts=lambda error: not isinstance(error, ValueError)):
            raise errors[nth]

    await hf.enqueue_many([("send", {"nth": n}) for n in range(len(errors))])
    async with working(hf):
        await until(lambda: _attempts(conn, len(errors)))
    row = await conn.fetchrow("select successes, failures, last_error from circuit_counts")
    assert row is not None
    assert tuple(row) == (0, 1, "Down: d")


async def test_a_call_in_which_the_handlers_time_ran_out_has_failed(hf: Holdfast, conn: asyncpg.Connection) -> None:
    @hf.job("send", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    async def send(ctx: Context) -> None:
        async with ctx.circuit("mail", failure_threshold=2):
            await asyncio.sleep(60)

    await hf.enqueue_many([("send", {})] * 2)
    async with working(hf):
        await until(lambda: _state(conn, "mail", "open"))


async def test_calls_through_a_closed_circuit_write_nothing(hf: Holdfast, conn: asyncpg.Connection) -> None:
    @hf.job("send")
    async def send(ctx: Context) -> None:
        async with ctx.circuit("mail"):
            pass

    await hf.enqueue_many([("send", {})] * 1000)
    async with working(hf):
        await until(lambda: _done(conn))
    assert not await conn.fetchval("select exists (select from circuit_counts)")
    row = await conn.fetchrow("select xmin, generation, used_at = updated_at as as_made from circuits")
    assert row is not None
    assert (row["generation"], row["as_made"]) == (1, True)


async def test_a_block_within_a_declared_circuit_is_what_counts(hf: Holdfast, conn: asyncpg.Connection) -> None:
    """Otherwise each failure would count twice, and an error outside of the block as one of the service."""

    @hf.job("send", retry=RetryPolicy(max_attempts=1), circuit="mail")
    async def send(ctx: Context, *, inside: bool) -> None:
        async with ctx.circuit("mail"):
            if inside:
                raise Down
        raise ValueError

    await hf.enqueue_many([("send", {"inside": n < 2}) for n in range(4)])
    async with working(hf):
        await until(lambda: _attempts(conn, 4))
    row = await conn.fetchrow("select failures from circuit_counts")
    assert row is not None
    assert row["failures"] == 2


async def test_a_circuit_that_cannot_be_is_refused(hf: Holdfast) -> None:
    for wrong in ({"probes": 0}, {"open_for": 0}, {"failure_share": 1.5}, {"window": True}, {"counts": 5}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            Circuit("mail", **wrong)
    with pytest.raises(InvalidInput, match="name"):
        hf.job("send", circuit="\x00")(lambda ctx: None)
    assert CircuitOpen("mail", 5).delay_seconds == 5


async def _attempts(conn: asyncpg.Connection, count: int) -> bool:
    return bool(await conn.fetchval("select count(*) >= $1 from job_attempts", count))
