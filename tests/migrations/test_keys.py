"""Step 6 moves the idempotency keys of jobs to a table of their own, while the release before goes on recording."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.store.migrate import migrate
from tests.harness.waiting import until

#: What the functions of the release before did last of all.
RECORD = """
    insert into holdfast.jobs (id, seq, stream, state, tenant, type, queue, payload, idempotency_key, fingerprint)
    values (gen_random_uuid(), nextval('holdfast.places'), 1, 'queued', 'default', 'work', 'default', $2::text::jsonb,
      $1::text, sha256(convert_to('work ' || $2::text::jsonb::text, 'UTF8')))
    on conflict do nothing
    returning id"""


@pytest.fixture
async def sessions(empty_database_url: str) -> AsyncIterator[list[asyncpg.Connection]]:
    opened = [await asyncpg.connect(empty_database_url) for _ in range(3)]
    yield opened
    for conn in opened:
        conn.terminate()


async def test_keys_are_moved_under_load(empty_database_url: str, sessions: list[asyncpg.Connection]) -> None:
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config, up_to=5)
    early, late, onlooker = sessions
    first: UUID = await early.fetchval(RECORD, "k1", '{"n": 1}')
    transaction = early.transaction()
    await transaction.start()
    second: UUID = await early.fetchval(RECORD, "k2", '{"n": 2}')

    async def wait(sessions: int) -> bool:
        return bool(
            await onlooker.fetchval(
                "select count(*) = $1 from pg_stat_activity"
                " where datname = current_database() and wait_event_type = 'Lock'",
                sessions,
            )
        )

    migration = asyncio.create_task(migrate(config))
    await until(lambda: wait(1), what="the migration waits for a job that is being recorded")
    overtaken = asyncio.create_task(late.fetchval(RECORD, "k2", '{"n": 2}'))
    await until(lambda: wait(2), what="whoever comes now waits for the migration")
    await transaction.commit()
    await migration
    with pytest.raises(asyncpg.SerializationError, match="try again"):
        await overtaken
    for key, payload, job_id in (("k1", '{"n": 1}', first), ("k2", '{"n": 2}', second)):
        for sent, outcome in ((payload, "existing"), ("{}", "conflict")):
            row = await late.fetchrow(
                "select * from holdfast.enqueue('work', $2::text::jsonb, idempotency_key => $1)", key, sent
            )
            assert row is not None
            assert (row["job_id"], row["outcome"]) == (job_id, outcome)
