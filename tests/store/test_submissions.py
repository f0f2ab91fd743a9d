"""Group commit: together in one statement, each with its own answer, and nothing lost or doubled on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, InvalidInput
from holdfast.model.ids import new_job_id
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.database import Database
from holdfast.store.sharing import patience_seconds
from holdfast.store.submissions import Submissions


@pytest.fixture
async def database(config: Config) -> AsyncIterator[Database]:
    """As the control plane connects."""
    database = Database(config, role="client")
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def submissions(database: Database) -> Submissions:
    """What is tested."""
    return Submissions(database)


def intent(job_type: str = "x", tenant: str = "default", **options: Any) -> Intent:
    return Intent(new_job_id(), job_type, "{}", options, tenant, "me")


async def test_concurrent_submissions_share_statements(
    submissions: Submissions, database: Database, conn: asyncpg.Connection
) -> None:
    statements: list[str] = []
    database.observe = lambda statement, _seconds, _code: statements.append(statement)
    intents = [intent(tenant=f"t{n % 5}") for n in range(400)]
    answers = await asyncio.gather(*(submissions.enqueue([i]) for i in intents))
    assert [a.job_id for (a,) in answers] == [i.id for i in intents]
    assert len(statements) <= 6  # two may be under way at a time
    stored = {row["id"]: row["tenant"] for row in await conn.fetch("select id, tenant from jobs")}
    assert stored == {i.id: i.tenant for i in intents}


async def test_a_refused_submission_does_not_harm_others(submissions: Submissions, conn: asyncpg.Connection) -> None:
    intents = [intent() for _ in range(50)]
    intents[17] = intent(queue="holdfast")
    intents[31] = Intent(new_job_id(), "x", '{"a": "\\u0000"}', {}, "default", "me")
    answers = await asyncio.gather(*(submissions.enqueue([i]) for i in intents), return_exceptions=True)
    refused = [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)]
    assert refused == [17, 31]
    assert all(isinstance(answers[n], InvalidInput) for n in refused)
    assert await conn.fetchval("select count(*) from jobs") == 48


async def test_a_batch_with_many_refused_ones_takes_a_few_statements(
    submissions: Submissions, database: Database, conn: asyncpg.Connection
) -> None:
    known = intent("closed", idempotency_key="k")
    await submissions.enqueue([known])
    await conn.execute("select close_type('closed', 'ada', 'for the night')")
    refused = [intent(queue="holdfast"), intent("closed"), intent(parent_id=str(new_job_id()))]
    batch = [*refused, intent(), intent("closed", idempotency_key="k"), intent()] * 25
    batch = [one._replace(id=new_job_id()) for one in batch]
    statements: list[str] = []
    database.observe = lambda statement, _seconds, _code: statements.append(statement)
    answers = await submissions.enqueue_each(batch)
    kinds = [type(answer).__name__ for answer in answers[:6]]
    assert kinds == ["InvalidInput", "TypeClosed", "InvalidInput", "Enqueued", "Enqueued", "Enqueued"]
    assert [type(answer).__name__ for answer in answers] == kinds * 25
    assert "closed by ada" in str(answers[1])
    assert {answer.job_id for answer in answers[4::6] if isinstance(answer, Enqueued)} == {known.id}
    assert await conn.fetchval("select count(*) from jobs where type = 'x'") == 50
    assert len(statements) <= 9


async def test_a_connection_lost_after_the_commit_records_nothing_twice(
    submissions: Submissions, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost once: the same ids are sent again, and answered as existing."""
    submit, lost = submissions._tenancy.submit, [True]

    async def losing(intents: Any) -> Any:
        answers = await submit(intents)
        if lost.pop() if lost else False:
            raise DatabaseUnavailable("the connection was lost")
        return answers

    monkeypatch.setattr(submissions._tenancy, "submit", losing)
    first, second = intent(), intent(idempotency_key="k")
    answers = await asyncio.gather(submissions.enqueue([first]), submissions.enqueue([second]))
    assert [a.job_id for (a,) in answers] == [first.id, second.id]
    assert await conn.fetchval("select count(*) from jobs") == 2


async def test_a_key_that_is_not_committed_yet_holds_up_nobody_else(
    submissions: Submissions, conn: asyncpg.Connection
) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("select enqueue('x', idempotency_key => 'taken')")
    held = asyncio.create_task(submissions.enqueue([intent(idempotency_key="taken")]))
    others = [asyncio.create_task(submissions.enqueue([intent()])) for _ in range(20)]
    async with asyncio.timeout(4):
        await asyncio.gather(*others)
        await asyncio.gather(*(submissions.enqueue([intent()]) for _ in range(20)))
    assert not held.done()
    await transaction.commit()
    (answer,) = await held
    assert answer.outcome == "existing"


async def test_a_database_that_stays_away_is_reported(
    submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_intents: Any) -> Any:
        raise DatabaseUnavailable("away")

    patience_seconds.set(0.2)
    monkeypatch.setattr(submissions._tenancy, "submit", away)
    with pytest.raises(DatabaseUnavailable):
        await submissions.enqueue([intent()])


async def test_submissions_of_callers_that_have_gone_are_not_waited_for(
    submissions: Submissions, conn: asyncpg.Connection
) -> None:
    gone = asyncio.create_task(submissions.enqueue([intent()]))
    await asyncio.sleep(0)
    gone.cancel()
    (answer,) = await submissions.enqueue([intent()])
    assert await conn.fetchval("select count(*) from jobs where id = $1", answer.job_id) == 1


async def test_every_caller_is_answered_in_time_and_told_whether_the_outcome_is_known(
    submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement hangs: those in it do not know their outcome, those behind it know that there is none."""
    hanging = asyncio.Event()

    async def hang(_intents: Any) -> Any:
        hanging.set()
        await asyncio.sleep(60)

    patience_seconds.set(0.2)
    monkeypatch.setattr(submissions._tenancy, "submit", hang)
    first = asyncio.create_task(submissions.enqueue([intent()]))
    await hanging.wait()
    second = asyncio.create_task(submissions.enqueue([intent()]))
    async with asyncio.timeout(2):
        with pytest.raises(DatabaseUnavailable, match="not known") as unclear:
            await first
        with pytest.raises(DatabaseUnavailable, match="nothing was recorded") as refused:
            await second
    assert (unclear.value.reason, refused.value.reason) == ("uncertain", "slow")
    for task in submissions._tasks:
        task.cancel()
