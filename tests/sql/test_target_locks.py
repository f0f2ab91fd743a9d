"""Enqueueing for a target and whatever moves that target never wait for each other."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    claim,
    elect,
    enqueue,
    execute,
    expire,
    make_due,
    offences,
    promote,
    run_one,
    settle,
    sweep,
)


async def act(conn: asyncpg.Connection, admin: asyncpg.Connection, deed: str, lease: Lease) -> None:
    """Do one thing to target t, whose head holds the given lease."""
    if deed == "elect":
        await elect(conn)
    elif deed == "lapse":
        await expire(admin, lease.job_id)
        assert await sweep(conn) == {lease.job_id: "queued"}
    elif deed == "promote":
        await settle(conn, "fail", [lease])
        await make_due(admin, lease.job_id)
        assert await promote(conn) == 1
    elif deed == "cancel":
        assert await execute(conn, "cancel", lease.job_id) == "accepted"
    elif deed == "reconcile":
        await conn.execute("select reconcile(), drop_strays(), headless_targets()")
    else:
        more: dict[str, Any] = {"delays": [60.0]} if deed == "snooze" else {}
        await settle(conn, deed, [lease], **more)
    await claim(conn, limit=10)


DEEDS = ["complete", "fail", "hand_back", "snooze", "elect", "lapse", "promote", "cancel", "reconcile"]


async def prepared(connect_as: ConnectAs) -> tuple[asyncpg.Connection, asyncpg.Connection, Lease]:
    """A worker that waits for no lock, an enqueuer that does not either, and a running head of target t."""
    worker, client = await connect_as("worker"), await connect_as("api")
    lease = await run_one(worker, target="t")
    await execute(worker, "pause", await enqueue(worker, "other"))
    for conn in (worker, client):
        await conn.execute("set lock_timeout = '1s'")
    return worker, client, lease


@pytest.mark.parametrize("deed", DEEDS)
async def test_an_open_enqueue_holds_nobody_up(connect_as: ConnectAs, deed: str) -> None:
    worker, client, lease = await prepared(connect_as)
    admin = await connect_as("superuser")
    async with client.transaction():
        late = await enqueue(client, target="t")
        await act(worker, admin, deed, lease)
        assert not await admin.fetchval("select exists (select from jobs where id = $1)", late)
    await elect(worker)
    assert await offences(admin) == []


@pytest.mark.parametrize("deed", sorted(set(DEEDS) - {"lapse", "promote"}))  # these need another session's writes
async def test_an_open_move_of_the_target_holds_no_enqueue_up(connect_as: ConnectAs, deed: str) -> None:
    worker, client, lease = await prepared(connect_as)
    admin = await connect_as("superuser")
    async with worker.transaction():
        await act(worker, admin, deed, lease)
        await enqueue(client, target="t")
        await enqueue(client, target="t", idempotency_key="k")
        await enqueue(client, target="t", delay=1.0)
    await elect(worker)
    assert await offences(admin) == []


async def test_a_job_enqueued_in_an_open_transaction_is_elected_once_it_commits(connect_as: ConnectAs) -> None:
    worker, client, head = await prepared(connect_as)
    async with client.transaction():
        late = await enqueue(client, target="t")
        assert await settle(worker, "complete", [head]) == ["success"]
        await elect(worker)
        assert await claim(worker) == []
    await elect(worker)
    assert await claim(worker) == [Lease(late, 1)]


async def test_enqueueing_waits_for_no_claim(connect_as: ConnectAs) -> None:
    worker, client, _ = await prepared(connect_as)
    await enqueue(worker)
    async with worker.transaction():
        assert len(await claim(worker)) == 1
        await enqueue(client)
