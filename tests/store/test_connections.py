"""Connections are lent to one at a time, in turn, and only whole ones."""

from __future__ import annotations

import asyncio

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError, NotOpen
from holdfast.model.ids import new_job_id
from holdfast.model.provenance import speaker
from holdfast.store import confirmation
from holdfast.store import connections as module
from holdfast.store.connections import Connections
from holdfast.store.database import Database
from holdfast.store.upkeep import UpkeepDatabase
from tests.harness.waiting import until
from tests.lines import Line, over_lines


@pytest.fixture
async def two(database_url: str) -> Connections:
    return Connections({"dsn": database_url}, 2)


async def test_the_pool_is_bounded_and_lends_the_last_used_connection_first(two: Connections) -> None:
    first, second = await two.take(), await two.take()
    third = asyncio.create_task(two.take())
    await asyncio.sleep(0.05)
    assert not third.done()
    two.give(second)
    assert await third is second
    two.give(first)
    two.give(second)
    assert await two.take() is second
    two.give(second)
    await two.close(1)
    assert first.is_closed()
    assert second.is_closed()


async def test_the_longest_waiter_is_next(two: Connections) -> None:
    held = [await two.take(), await two.take()]
    order: list[int] = []

    async def use(number: int) -> None:
        conn = await two.take()
        order.append(number)
        await asyncio.sleep(0)
        two.give(conn)

    users = [asyncio.create_task(use(n)) for n in range(10)]
    await asyncio.sleep(0)
    for conn in held:
        two.give(conn)
    await asyncio.gather(*users)
    assert order == list(range(10))
    await two.close(1)


async def test_tenants_take_turns_and_none_has_them_all(two: Connections) -> None:
    order: list[str] = []

    async def use(tenant: str, end: asyncio.Event | None = None) -> None:
        speaker.set(tenant)
        conn = await two.take()
        order.append(tenant)
        await (end.wait() if end else asyncio.sleep(0))
        two.give(conn)

    end = asyncio.Event()
    first = asyncio.create_task(use("acme", end))
    await until(lambda: order == ["acme"])
    others = [asyncio.create_task(use("acme")) for _ in range(5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await use("beta")  # the second connection is not acme's
    assert order == ["acme", "beta"]
    held = asyncio.create_task(use("gamma", end))
    await until(lambda: order[-1] == "gamma")
    late = asyncio.create_task(use("beta"))
    await asyncio.sleep(0)
    end.set()
    await asyncio.gather(first, held, late, *others)
    assert order.index("beta", 3) <= 5, order  # acme's five came first, and are not all before it
    await two.close(1)


async def test_a_canceled_waiter_takes_no_connection_along(two: Connections) -> None:
    held = [await two.take(), await two.take()]
    waiting = [asyncio.create_task(two.take()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    two.give(held[0])  # handed to the second, for the first is gone
    waiting[1].cancel()  # which is canceled before it learns of it
    assert await waiting[2] is held[0]
    for task in waiting[:2]:
        with pytest.raises(asyncio.CancelledError):
            await task
    two.give(held[0])
    two.give(held[1])
    await two.close(1)


async def test_a_broken_connection_is_replaced(two: Connections, conn: asyncpg.Connection) -> None:
    broken, other = await two.take(), await two.take()
    waiting = asyncio.create_task(two.take())
    await asyncio.sleep(0)
    await conn.execute("select pg_terminate_backend($1)", broken.get_server_pid())
    await until(lambda: _closed(broken))
    two.give(broken)
    assert await (await waiting).fetchval("select 1") == 1
    two.give(other)
    idle = other.get_server_pid()
    await conn.execute("select pg_terminate_backend($1)", idle)
    await until(lambda: _closed(other))
    assert await (await two.take()).fetchval("select 1") == 1
    await two.close(0.1)


async def _closed(conn: asyncpg.Connection) -> bool:
    return bool(conn.is_closed())


async def test_a_connection_whose_statement_was_canceled_can_be_used_at_once(two: Connections) -> None:
    conn = await two.take()
    task = asyncio.create_task(conn.fetch("select pg_sleep(60)"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    two.give(conn)
    async with asyncio.timeout(30):
        assert await (await two.take()).fetchval("select 1") == 1
    await two.close(1)


async def test_a_failed_connection_leaves_its_place_to_others() -> None:
    nowhere = Connections({"dsn": "postgresql://127.0.0.1:1/none"}, 1)
    results = await asyncio.gather(*(nowhere.take() for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, DatabaseUnavailable) and "127.0.0.1:1" in str(result) for result in results)
    await nowhere.close(1)


async def test_one_given_back_while_the_server_refuses_more_is_used(
    two: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, connecting, go_on = await two.take(), asyncio.Event(), asyncio.Event()

    async def refuse(*_: object) -> asyncpg.Connection:
        connecting.set()
        await go_on.wait()
        raise DatabaseUnavailable("there is no connection left", reason="connections")

    monkeypatch.setattr(module, "open_connection", refuse)
    second = asyncio.create_task(two.take())
    await connecting.wait()
    two.give(first)
    go_on.set()
    assert await asyncio.wait_for(second, 5) is first
    two.give(first)
    await two.close(1)


async def test_closing_waits_for_what_is_lent_and_then_cuts(two: Connections) -> None:
    conn = await two.take()
    other = await two.take()
    waiting = asyncio.create_task(two.take())
    await asyncio.sleep(0)
    closing = asyncio.create_task(two.close(30))
    await asyncio.sleep(0)
    two.give(conn)
    two.give(other)
    async with asyncio.timeout(5):
        await closing
    with pytest.raises(NotOpen):
        await waiting
    with pytest.raises(NotOpen):
        await two.take()


async def test_closing_cuts_what_does_not_come_back(two: Connections) -> None:
    conn = await two.take()
    async with asyncio.timeout(5):
        await two.close(0.05)
    assert conn.is_closed()


async def test_unused_connections_are_closed(database_url: str) -> None:
    two = Connections({"dsn": database_url}, 2, kept_seconds=0.1)
    conns = [await two.take(), await two.take()]
    for conn in conns:
        two.give(conn)

    async def gone() -> bool:
        return all(conn.is_closed() for conn in conns)

    await until(gone)
    assert await (await two.take()).fetchval("select 1") == 1
    await two.close(1)


async def test_a_statement_is_one_round_trip(database_url: str) -> None:
    sent: list[str] = []
    async with Holdfast(database_url) as hf:
        await hf.enqueue("of nobody")
        assert hf._database._connections is not None
        conn = await hf._database._connections.take()
        conn.add_query_logger(lambda record: sent.append(record.query))
        hf._database._connections.give(conn)
        await hf.enqueue("of nobody")
    assert len(sent) == 1


async def test_a_connection_that_failed_is_not_used_again(database_url: str, conn: asyncpg.Connection) -> None:
    async with Holdfast(database_url) as hf:
        await hf.enqueue("of nobody")
        assert hf._database._connections is not None
        (failing, _), *_ = hf._database._connections._idle
        # The driver learns of the end only after it has sent something: until then the connection seems whole.
        await conn.execute("select pg_terminate_backend($1)", failing.get_server_pid())
        for _ in range(2):
            try:
                await hf.enqueue("of nobody")
            except DatabaseUnavailable:
                assert failing.is_closed()
                continue
            break
        else:
            pytest.fail("the broken connection was used twice")


async def test_nobody_waits_for_ever(two: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    held = [await two.take(), await two.take()]
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    with pytest.raises(DatabaseUnavailable, match="2 are in use"):
        await two.take()
    two.give(held[0])
    assert await two.take() is held[0], "it went to nobody who has left"
    await two.close(0.1)


async def test_a_tenant_that_waits_for_its_own_statements_is_told_so(
    two: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker.set("acme")
    await two.take()
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    with pytest.raises(DatabaseUnavailable, match="one tenant may use 1 of 2, and acme uses as many"):
        await two.take()
    await two.close(0.1)


async def test_closing_that_is_canceled_leaves_nothing_open(two: Connections) -> None:
    conn = await two.take()
    closing = asyncio.create_task(two.close(60))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert conn.is_closed()


async def test_a_missing_role_is_told_when_the_app_is_opened(config: Config) -> None:
    with pytest.raises(HoldfastError, match="nobody"):
        await Database(config, role="nobody").open()


async def test_one_that_is_given_twice_is_not_lent_twice(two: Connections) -> None:
    conn = await two.take()
    two.give(conn)
    two.give(conn)
    assert await two.take() is conn
    assert await two.take() is not conn
    await two.close(0.1)


async def test_a_dropped_connection_keeps_its_place_until_its_statement_has_ended(
    two: Connections, conn: asyncpg.Connection
) -> None:
    dropped = await two.take()
    pid = dropped.get_server_pid()

    async def abandon() -> None:
        try:
            await dropped.fetch("select pg_sleep(60)")
        except asyncio.CancelledError:
            two.drop(dropped)
            raise

    running = asyncio.create_task(abandon())
    await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.wait([running])
    other = await two.take()
    third = await two.take()  # once the server has ended the first
    assert await conn.fetchval("select count(*) from pg_stat_activity where pid = $1", pid) == 0
    two.give(other)
    two.give(third)
    await two.close(1)


async def test_a_server_that_confirms_nothing_is_not_filled_with_statements(
    two: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unconfirmed(conn: asyncpg.Connection) -> bool:
        conn.terminate()
        return False

    monkeypatch.setattr(module, "retire", unconfirmed)
    for _ in range(4):
        two.drop(await two.take())
    await asyncio.sleep(0)
    with pytest.raises(DatabaseUnavailable, match="may still run"):
        await two.take()
    await two.close(1)


async def test_the_connection_that_was_opened_for_a_look_serves_the_first_statement(config: Config) -> None:
    assert config.database_url is not None
    async with Line(config.database_url).running() as line:
        database = Database(
            Config.load(environment={}, database_url=over_lines(config.database_url, line.port)), role="worker"
        )
        await database.open()
        await database.value("current_step")
        await database.close()
        assert line.accepted == 1


@pytest.mark.parametrize("adopted", [True, False])
async def test_commits_of_every_connection_are_listened_to(
    two: Connections, database_url: str, monkeypatch: pytest.MonkeyPatch, adopted: bool
) -> None:
    """The function of the server that sends a warning stands for the one that waits for standbys."""
    monkeypatch.setattr(confirmation, "_SENDER", "exec_stmt_raise")
    if adopted:
        two.adopt(await asyncpg.connect(database_url))
    conn = await two.take()
    await conn.execute("do $$ begin raise warning 'the wait was canceled'; end $$")
    assert two.confirmation.missing(conn)
    two.give(conn)
    await two.close(1)


async def test_one_that_was_adopted_is_ended_if_nobody_needs_it(
    two: Connections, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ADOPTED_SECONDS", 0.05)
    conn = await asyncpg.connect(database_url)
    two.adopt(conn)
    await until(conn.is_closed, what="it is ended")
    other = await two.take()
    assert other is not conn
    two.give(other)
    await two.close(1)


@pytest.mark.parametrize("upkeep", [False, True], ids=["client", "maintenance"])
async def test_a_statement_that_was_never_sent_is_repeated(
    config: Config, monkeypatch: pytest.MonkeyPatch, upkeep: bool
) -> None:
    """The server has ended an idle connection, and the driver knows only that it cannot be used: nobody is told."""
    database = UpkeepDatabase(config, size=2) if upkeep else Database(config, role="worker")
    await database.open()
    desk = database.within(5.0) if isinstance(database, UpkeepDatabase) else database
    refusals = iter(["cannot switch to state 12; another operation (2) is in progress"])
    fetchval = asyncpg.Connection.fetchval

    async def refuse_first(conn: asyncpg.Connection, *arguments: object, **more: object) -> object:
        for refusal in refusals:
            raise asyncpg.InternalClientError(refusal)
        return await fetchval(conn, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncpg.Connection, "fetchval", refuse_first)
    assert await desk.value("unheard") is False
    await database.close()


async def test_a_read_survives_that_several_idle_connections_were_cut(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is cut after it was taken, so that the driver learns of it only by its statement."""
    database = Database(config, role="api")
    await database.open()
    take, cuts = Connections.take, iter(range(3))

    with psycopg.connect(str(config.database_url), autocommit=True) as admin:

        async def cut(connections: Connections, seconds: float | None = None) -> asyncpg.Connection:
            conn = await take(connections, seconds)
            for _ in cuts:
                admin.execute("select pg_terminate_backend(%s, 5000)", [conn.get_server_pid()])
                break
            return conn

        monkeypatch.setattr(Connections, "take", cut)
        assert await database.rows("get_jobs", [new_job_id()], None) == []
    assert next(cuts, None) is None, "three were cut"
    await database.close()


@pytest.mark.parametrize("asked", [b"max(step)", b"testing_clock"])
async def test_opening_a_database_that_does_not_answer_fails_in_time(
    database_url: str, asked: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.database._CHECK_SECONDS", 0.5)
    async with Line(database_url).running() as line:
        line.swallow(asked)
        database = Database(
            Config.load(environment={}, database_url=over_lines(database_url, line.port)), role="worker"
        )
        with pytest.raises(DatabaseUnavailable):
            await asyncio.wait_for(database.open(), 15)
        assert line.swallowed.is_set()
