"""Calls that are under way at once share statements: each has its own answer, and none harms another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast import DatabaseUnavailable, Holdfast, InvalidInput
from holdfast.client.job_ref import JobRef
from holdfast.errors import DatabaseBusy, PayloadTooLarge
from holdfast.model.ids import new_job_id
from holdfast.model.options import Intent, Options
from tests.harness.waiting import WAITED_FOR, until


@pytest.fixture
def statements(hf: Holdfast) -> Iterator[list[str]]:
    """Every statement of the app, once it was answered."""
    seen: list[str] = []
    hf._database.observe = lambda statement, _seconds, _code: seen.append(statement)
    yield seen
    hf._database.observe = None


async def together(hf: Holdfast, *calls: Any) -> list[Any]:
    """The answers of calls that certainly share a statement: they come while both slots are taken."""
    slots = [asyncio.create_task(hf.enqueue("slot")) for _ in range(2)]
    await asyncio.sleep(0)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.gather(*slots)
    return answers


async def blocked(conn: asyncpg.Connection, count: int) -> list[int]:
    """The sessions of the app that wait for a lock, once there are this many."""
    pids: list[int] = []

    async def enough() -> bool:
        found = f"select pid from {WAITED_FOR} where relation = 'jobs'::regclass"
        pids[:] = [row["pid"] for row in await conn.fetch(found)]
        return len(pids) >= count

    await until(enough, what=f"{count} statements wait")
    return pids


async def test_a_lone_call_is_sent_at_once_and_is_one_statement(
    hf: Holdfast, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    rows = hf._database.rows

    def noted(statement: str, *arguments: Any) -> Any:
        sent.append(statement)
        return rows(statement, *arguments)

    monkeypatch.setattr(hf._database, "rows", noted)
    ways: list[Options] = [{}, {"priority": 3}]
    for options in ways:
        call = asyncio.create_task(hf.enqueue("other", {}, **options))
        await asyncio.sleep(0)  # the one turn in which a task begins
        assert len(sent) == len(statements) + 1
        await call
    assert statements == sent == ["enqueue_plain", "enqueue_many"]


async def test_calls_of_two_hundred_tasks_share_few_statements_in_their_own_tenants_names(
    hf: Holdfast, statements: list[str], conn: asyncpg.Connection
) -> None:
    calls = [hf.enqueue("other", {"n": n}, tenant=f"t{n % 5}", created_by=f"c{n % 3}") for n in range(200)]
    refs = await asyncio.gather(*calls)
    stored = {
        row["id"]: row for row in await conn.fetch("select id, tenant, created_by, payload ->> 'n' as n from jobs")
    }
    assert [(stored[r.id]["tenant"], stored[r.id]["created_by"], stored[r.id]["n"]) for r in refs] == [
        (f"t{n % 5}", f"c{n % 3}", str(n)) for n in range(200)
    ]
    assert len(stored) == 200
    assert len(statements) <= 4
    statements.clear()
    await asyncio.gather(*(hf.enqueue("other", {"n": n}) for n in range(200)))
    assert Counter(statements) <= Counter({"enqueue_plain": 3})


async def test_a_refused_job_harms_none_of_its_group(hf: Holdfast, conn: asyncpg.Connection) -> None:
    odd: list[Options] = [{"priority": n} for n in range(20)]
    odd[7] = {"parent": uuid4()}
    calls = [hf.enqueue("other", {}, **options) for options in odd]
    answers = await together(hf, *calls)
    refused = [n for n, answer in enumerate(answers) if not isinstance(answer, JobRef)]
    assert (refused, type(answers[7])) == ([7], InvalidInput)
    assert await conn.fetchval("select count(*) from jobs where type = 'other'") == 19


async def test_a_refused_payload_harms_none_of_a_plain_group(hf: Holdfast, conn: asyncpg.Connection) -> None:
    intents = [Intent(new_job_id(), "other", '{"a": "\\u0000"}' if n == 3 else "{}") for n in range(9)]
    answers = await together(hf, *(hf._groups.enqueue_one(intent) for intent in intents))
    assert [n for n, answer in enumerate(answers) if isinstance(answer, InvalidInput)] == [3]
    assert await conn.fetchval("select count(*) from jobs where id = any ($1)", [i.id for i in intents]) == 8


async def test_a_key_answers_each_call_of_a_group_as_it_would_alone(hf: Holdfast) -> None:
    calls = [hf.enqueue("other", {"n": n}, idempotency_key="k") for n in (1, 1, 2)]
    first, again, other, _ = await together(hf, *calls, hf.enqueue("greet", {"name": "Ada"}))
    assert (first.outcome, again.outcome, again.id) == ("created", "existing", first.id)
    assert "which has another type or payload" in str(other)


async def test_a_key_of_an_open_transaction_holds_up_nobody_else(hf: Holdfast, conn: asyncpg.Connection) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("select enqueue('other', idempotency_key => 'taken')")
    held = [asyncio.create_task(hf.enqueue("other", idempotency_key="taken")) for _ in range(6)]
    async with asyncio.timeout(4):  # a lone call waits for the key for ten seconds
        for _ in range(3):
            await asyncio.gather(*(hf.enqueue("other", tenant=f"t{n % 2}") for n in range(20)))
    assert not any(call.done() for call in held)
    await transaction.commit()
    assert {ref.outcome for ref in await asyncio.gather(*held)} == {"existing"}


async def test_jobs_with_keys_of_their_own_do_not_wait_for_locked_ones(hf: Holdfast, conn: asyncpg.Connection) -> None:
    taken = [f"taken{n}" for n in range(4)]
    transaction = conn.transaction()
    await transaction.start()
    for key in taken:
        await conn.execute("select enqueue('other', idempotency_key => $1)", key)
    locked = [asyncio.create_task(hf.enqueue("other", idempotency_key=key)) for key in taken]
    own = [asyncio.create_task(hf.enqueue("other", idempotency_key=f"own{n}")) for n in range(40)]
    async with asyncio.timeout(9):  # a lone call waits for a key for ten seconds
        assert {ref.outcome for ref in await asyncio.gather(*own)} == {"created"}
    assert not any(call.done() for call in locked)
    await transaction.commit()
    assert {ref.outcome for ref in await asyncio.gather(*locked)} == {"existing"}


async def test_many_calls_with_one_locked_key_hold_up_nobody_else(hf: Holdfast, conn: asyncpg.Connection) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("select enqueue('other', idempotency_key => 'taken')")
    calls = [hf.enqueue("other", idempotency_key="taken" if n % 5 else f"own{n}") for n in range(150)]
    tasks = [asyncio.create_task(call) for call in calls]
    own = tasks[::5]
    async with asyncio.timeout(8):  # one try for each of the others would take 12 seconds
        assert {ref.outcome for ref in await asyncio.gather(*own)} == {"created"}
    locked = [task for task in tasks if task not in own]
    assert not any(task.done() for task in locked)
    await transaction.commit()
    assert {ref.outcome for ref in await asyncio.gather(*locked)} == {"existing"}


async def test_many_locked_keys_are_found_together(hf: Holdfast, conn: asyncpg.Connection) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("select enqueue('other', idempotency_key => 'taken' || n) from generate_series(1, 40) n")
    keys = [f"taken{n}" for n in range(1, 41)] + [f"own{n}" for n in range(15)]
    tasks = {key: asyncio.create_task(hf.enqueue("other", idempotency_key=key)) for key in keys}
    own = [task for key, task in tasks.items() if key.startswith("own")]
    async with asyncio.timeout(3):  # one try after the other would take more than 8 seconds
        assert {ref.outcome for ref in await asyncio.gather(*own)} == {"created"}
    locked = [task for task in tasks.values() if task not in own]
    assert not any(task.done() for task in locked)
    await transaction.commit()
    assert {ref.outcome for ref in await asyncio.gather(*locked)} == {"existing"}


async def test_refused_jobs_are_found_without_waiting_for_locked_keys_each_time(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("select enqueue('other', idempotency_key => 'taken' || n) from generate_series(1, 30) n")
    calls: dict[str, list[asyncio.Task[JobRef]]] = {"own": [], "taken": [], "refused": []}
    for n in range(1, 31):
        calls["own"].append(asyncio.create_task(hf.enqueue("other", idempotency_key=f"own{n}")))
        calls["taken"].append(asyncio.create_task(hf.enqueue("other", idempotency_key=f"taken{n}")))
        large = {"a": [1e308] * 4000}
        if n % 2:
            calls["refused"].append(asyncio.create_task(hf.enqueue("other", large, idempotency_key=f"large{n}")))
    async with asyncio.timeout(2):  # in halves, each of which waits for the locks, it would take more than 3 seconds
        assert {ref.outcome for ref in await asyncio.gather(*calls["own"])} == {"created"}
        refused = await asyncio.gather(*calls["refused"], return_exceptions=True)
    assert {type(fault) for fault in refused} == {PayloadTooLarge}
    await transaction.commit()
    assert {ref.outcome for ref in await asyncio.gather(*calls["taken"])} == {"existing"}


async def test_calls_with_locked_keys_are_told_so_at_the_same_time(
    hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.groups.LOCK_SECONDS", 0.5)
    transaction = conn.transaction()
    await transaction.start()
    for n in range(5):
        await conn.execute("select enqueue('other', idempotency_key => $1)", f"taken{n}")
    calls = [hf.enqueue("other", idempotency_key=f"taken{n}") for n in range(5)]
    answers = await together(hf, *calls)
    assert {type(answer) for answer in answers} == {DatabaseBusy}
    await transaction.rollback()
    assert (await hf.enqueue("other", idempotency_key="taken1")).outcome == "created"


async def test_a_cut_connection_is_told_to_each_of_a_group(hf: Holdfast, conn: asyncpg.Connection) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("lock table jobs in share row exclusive mode")
    first = [asyncio.create_task(hf.enqueue("other")) for _ in range(2)]
    calls = [asyncio.create_task(hf.enqueue("other", {"n": n})) for n in range(20)]
    for pid in await blocked(conn, 3):
        await conn.execute("select pg_terminate_backend($1)", pid)
    faults = await asyncio.gather(*first, *calls, return_exceptions=True)
    assert {getattr(fault, "reason", fault) for fault in faults} == {"cut"}
    assert len({id(fault) for fault in faults}) == 22
    await transaction.rollback()
    await asyncio.gather(*(hf.enqueue("other") for _ in range(5)))
    assert await conn.fetchval("select count(*) from jobs") == 5


async def test_what_was_acknowledged_exists_once_while_connections_are_cut(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    told: list[UUID] = []
    failed = 0
    cut = asyncio.Event()

    async def call(tenant: str) -> None:
        nonlocal failed
        while not cut.is_set():
            try:
                told.append((await hf.enqueue("other", tenant=tenant)).id)
            except DatabaseUnavailable:
                failed += 1

    def reached(count: int) -> bool:
        return len(told) >= count

    crowd = [asyncio.create_task(call(f"t{n % 5}")) for n in range(20)]
    kill = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name = 'holdfast api' and datname = current_database()"
    )
    for enough in (100, 200, 300):
        await until(partial(reached, enough), what="calls go on")
        await conn.fetchval(kill)
    await until(partial(reached, 400), what="calls go on after the last cut")
    cut.set()
    await asyncio.gather(*crowd)
    stored = {row["id"] for row in await conn.fetch("select id from jobs")}
    assert len(told) == len(set(told))
    assert set(told) <= stored
    assert len(stored) - len(told) <= failed


async def test_canceling_a_call_drops_only_its_own_job(hf: Holdfast, conn: asyncpg.Connection) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("lock table jobs in share row exclusive mode")
    slots = [asyncio.create_task(hf.enqueue("slot")) for _ in range(2)]
    await blocked(conn, 2)
    waiting = [asyncio.create_task(hf.enqueue("other", {"n": n})) for n in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # not sent yet
    await blocked(conn, 3)
    waiting[1].cancel()  # under way
    await asyncio.sleep(0)
    await transaction.rollback()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2 + [JobRef] * 8
    await asyncio.gather(*slots)
    numbers = {row["n"] for row in await conn.fetch("select payload ->> 'n' as n from jobs where type = 'other'")}
    assert numbers == {str(n) for n in range(1, 10)}


async def test_calls_on_a_callers_connection_never_join(hf: Holdfast, conn: asyncpg.Connection) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await together(hf, hf.enqueue("own", conn=conn), *(hf.enqueue("other") for _ in range(5)))
    await transaction.rollback()
    assert Counter(await conn.fetchval("select array_agg(type) from jobs")) == {"slot": 2, "other": 5}
