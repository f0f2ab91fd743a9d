"""A worker whose maintenance forgets streams works as before: jobs that return are run, and soon."""

from __future__ import annotations

import time

import asyncpg
import pytest

from holdfast import Context, Holdfast, Retry
from holdfast.maintenance.duties.streams import ForgetStreams, ServeStreams
from holdfast.worker import intake
from tests.conftest import ConnectAs
from tests.harness.inprocess import working
from tests.harness.waiting import until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
async def hasty(conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are idle at once, and looked at all the time."""
    monkeypatch.setattr(ForgetStreams, "interval_seconds", 0.01)
    await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")


@pytest.fixture
def ran(hf: Holdfast) -> list[str]:
    """What has run."""
    names: list[str] = []

    @hf.job("note")
    async def note(ctx: Context, name: str, delay: float = 0.0) -> None:
        if delay and ctx.attempt == 1:
            raise Retry("later", delay=delay)
        names.append(name)

    return names


async def test_a_worker_runs_what_comes_back_to_a_stream_that_was_forgotten(
    hf: Holdfast, ran: list[str], conn: asyncpg.Connection
) -> None:
    async def forgotten() -> bool:
        return not await conn.fetchval("select exists (select from streams where type = 'note')")

    held = await hf.enqueue("note", {"name": "held"}, hold=True)
    async with working(hf):
        await hf.enqueue("note", {"name": "retried", "delay": 3.0})
        for count in (1, 2):
            await hf.enqueue("note", {"name": str(count)})
            await until(lambda: str(count) in ran, what="it ran")  # noqa: B023 - asked at once
            await until(forgotten, seconds=20, what="the stream is forgotten")
        await until(lambda: "retried" in ran, seconds=20, what="the retry ran")
        await until(forgotten, seconds=20, what="the stream is forgotten again")
        await hf.release(held.id)
        released = time.monotonic()
        await until(lambda: "held" in ran, seconds=20, what="the released job ran")
        print(f"released → run: {time.monotonic() - released:.3f} s")
    assert sorted(ran) == ["1", "2", "held", "retried"]
    assert await conn.fetch("select * from verify()") == []


async def test_a_worker_keeps_nothing_of_streams_that_are_gone(
    hf: Holdfast, ran: list[str], conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_STREAMS_EVERY", 0.05)
    monkeypatch.setattr(intake, "_ACTIVE_SECONDS", 0.1)
    monkeypatch.setattr(intake, "_FOREIGN_KEPT", 3)
    async with working(hf, poll_interval=0.05) as worker:
        for number in range(5):
            await hf.enqueue("note", {"name": str(number)}, queue=f"q{number}")
            await hf.enqueue("nobody", {}, queue=f"q{number}")
        await until(lambda: len(ran) == 5, what="all ran")
        mind = worker._intake

        def empty() -> bool:
            return not (mind._hints._now or mind._active or mind._offer.streams) and len(mind._foreign) <= 3

        await until(empty, seconds=20, what="they are forgotten here too")


async def test_a_worker_says_which_streams_it_takes_from(
    hf: Holdfast, ran: list[str], conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_STREAMS_EVERY", 0.05)
    await conn.execute("update settings set value = '3600' where name = 'STREAM_IDLE_SECONDS'")
    async with working(hf, poll_interval=0.05):
        await hf.enqueue("note", {"name": "first"})
        await until(lambda: ran == ["first"], what="it ran")
        await conn.execute("update streams set used_at = now() - interval '50 minutes'")
        await hf.enqueue("note", {"name": "second"})
        used = "select used_at > now() - interval '1 minute' from streams"
        await until(lambda: conn.fetchval(used), what="the stream counts as used")


async def test_a_job_recorded_before_its_stream_was_closed_runs_when_its_transaction_commits(
    hf: Holdfast, ran: list[str], conn: asyncpg.Connection, connect_as: ConnectAs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServeStreams, "interval_seconds", 0.2)
    client = await connect_as("api")
    await conn.execute("update settings set value = null where name = 'STREAM_IDLE_SECONDS'")
    async with working(hf):
        await hf.enqueue("note", {"name": "first"})
        await until(lambda: ran == ["first"], what="it ran")
        stream = await conn.fetchval("select id from streams")
        async with client.transaction():
            await client.execute("""select enqueue('note', '{"name": "late"}')""")
            await conn.execute("update settings set value = '0' where name = 'STREAM_IDLE_SECONDS'")
            closed = "select closed_in is not null from streams where id = $1"
            await until(lambda: conn.fetchval(closed, stream), what="the stream is closed")
            await hf.enqueue("note", {"name": "second"})
            await until(lambda: "second" in ran, what="others go on elsewhere")
            assert await conn.fetchval(closed, stream), "it is kept for whoever was given it"
        await until(lambda: "late" in ran, seconds=20, what="the late one ran")
    assert await conn.fetchval("select count(distinct stream) from jobs") == 2
    assert await conn.fetch("select * from verify()") == []
