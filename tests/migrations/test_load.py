"""Steps are taken while clients and workers go on, whose functions take tables in orders of their own."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import partial

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.config import Config
from holdfast.errors import DatabaseBusy
from holdfast.store import migrate as module
from holdfast.store.migrate import migrate, plan
from tests.harness.waiting import until

#: Back to the tables before steps 11 and 12, as far as their locks are concerned; all functions are applied again.
BEFORE = """
    set search_path = holdfast;
    drop view dead_letter_jobs, job_queue_health, holdfast_views.jobs, holdfast_views.job_attempts cascade;
    drop trigger guard_names on jobs;
    drop trigger guard_names on streams;
    drop trigger printable on streams;
    alter table leases drop constraint leases_bounds_check;
    alter table job_types drop constraint job_types_bounds_check;
    alter table api_keys drop constraint api_keys_expiry_check;
    alter table jobs drop constraint jobs_moments_check;
    alter table due drop constraint due_moment_check;
    drop table clock_steps;
    alter table leaders drop column place;
    alter table due drop column entered;
    alter table permits drop column entered;
    delete from schema_steps where step in (11, 12) or name like '%_lengths';
    update schema_functions set checksum = ''"""

TIMES = 2


@pytest.mark.timeout(120)
async def test_steps_are_taken_beside_a_busy_worker_and_producers(empty_database_url: str) -> None:
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config)
    admin = await asyncpg.connect(empty_database_url)
    ran: set[int] = set()
    sent: set[int] = set()
    async with Holdfast(empty_database_url) as hf:

        @hf.job("count")
        async def count(ctx: Context, n: int) -> None:
            ran.add(n)

        async def produce(first: int) -> None:
            for n in range(first, first + 10**6, 4):
                await hf.enqueue_many(
                    [
                        ("count", {"n": n}),
                        ("count", {"n": n + 1}, {"target": f"t{n % 3}"}),
                        ("count", {"n": n + 2}, {"delay": 0.05}),
                        ("count", {"n": n + 3}, {"idempotency_key": str(n)}),
                    ]
                )
                sent.update(range(n, n + 4))
                await until(lambda: len(sent) < len(ran) + 200, what="the worker keeps up")

        async def read() -> None:
            while True:
                with suppress(DatabaseBusy):  # a statement that waits for the view while it is replaced fails
                    await hf.find(limit=5)

        worker = asyncio.create_task(hf.run_worker())
        busy = [asyncio.create_task(produce(first * 10**6)) for first in range(3)] + [asyncio.create_task(read())]
        for number in range(1, TIMES + 1):
            await until(partial(more_than, ran, 100 * number), what="the worker is busy")
            await set_back(admin)
            await migrate(config)
            assert (await plan(config)).current
        for task in busy:
            assert task.cancel(), "it has failed"
        assert {type(end) for end in await asyncio.gather(*busy, return_exceptions=True)} == {asyncio.CancelledError}
        await until(lambda: ran >= sent, what="all jobs have run")
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
    assert await admin.fetch("select * from holdfast.verify()") == []
    await admin.close()


def more_than(ran: set[int], number: int) -> bool:
    return len(ran) > number


async def set_back(admin: asyncpg.Connection) -> str:
    """Undo steps 11 and 12. That meets the others head-on, too, so it steps back as a migration does."""
    for _ in range(50):
        with suppress(asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError):
            return await admin.execute(f"set lock_timeout = {module.LOCK_TIMEOUTS[0]!r}; {BEFORE}")
        await asyncio.sleep(random.uniform(*module._PAUSE_SECONDS))
    raise AssertionError("never alone")


async def test_a_migration_tries_more_than_once_to_lock_a_table_in_use(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUTS", ("100ms",) * 3)
    monkeypatch.setattr(module, "_PAUSE_SECONDS", (0.0, 0.1))
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config)
    admin = await asyncpg.connect(empty_database_url)
    await admin.execute(BEFORE)
    open_one = admin.transaction()
    await open_one.start()
    await admin.execute("select holdfast.enqueue('count')")
    with pytest.raises(DatabaseBusy):
        await migrate(config)
    monkeypatch.setattr(module, "LOCK_TIMEOUTS", ("100ms",) * 100)
    migration = asyncio.create_task(migrate(config))
    assert not (await asyncio.wait([migration], timeout=0.5))[0]
    await open_one.commit()
    await migration
    assert (await plan(config)).current
    await admin.close()
