"""Backoff by the settings: seed 002's table, for job types that declare none."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from tests.sql.factories import claim, enqueue

#: What seed 002 lists: attempt 1 after a second, then about 2 and 4, at most 5 minutes.
SEED_002 = [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (8, 128.0), (9, 256.0), (10, 300.0), (50, 300.0)]


async def _publish(conn: asyncpg.Connection, **more: Any) -> None:
    definition = {
        "name": "work", "queue": "default", "lane": "general", "on_failure": "retry", "version": 1,
        "max_attempts": 1000, "backoff_base": None, "backoff_factor": None, "backoff_max": None, "backoff_jitter": None,
    } | more  # fmt: skip
    await conn.execute("select publish_types($1::jsonb)", json.dumps([definition]))


async def _set(conn: asyncpg.Connection, **values: object) -> None:
    for name, value in values.items():
        await conn.fetchval("select change_setting($1, $2, 'ada')", name, None if value is None else str(value))


async def failed_for(conn: asyncpg.Connection, failures: int = 1, outcome: str = "failed") -> float:
    """How long a job waits after this many failures, the last of them just now."""
    job = await enqueue(conn, max_attempts=2000)
    ((_, attempt),) = await claim(conn)
    await conn.execute("update jobs set failures = $2 where id = $1", job, failures - 1)
    state = await conn.fetchval(
        "select state from fail('w1', array[$1::uuid], array[$2::integer], outcomes => array[$3::text])",
        job, attempt, outcome,
    )  # fmt: skip
    assert state == "retry"
    found: float = await conn.fetchval(
        "select extract(epoch from run_at - updated_at)::double precision from jobs where id = $1", job
    )
    return found


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(("failures", "seconds"), SEED_002)
async def test_the_delays_are_those_of_seed_002(
    conn: asyncpg.Connection, failures: int, seconds: float, declared: bool
) -> None:
    """With a tenth of jitter at most; the same for types that nobody has published."""
    if declared:
        await _publish(conn)
    assert seconds <= await failed_for(conn, failures) <= 1.1 * seconds + 1e-6


async def test_timeouts_wait_as_long_as_failures(conn: asyncpg.Connection) -> None:
    assert 4 <= await failed_for(conn, 3, "timeout") <= 4.4


async def test_a_setting_that_was_changed_holds_for_the_next_failure(conn: asyncpg.Connection) -> None:
    await _publish(conn)
    await _set(conn, RETRY_BASE_SECONDS=10, RETRY_FACTOR=3, RETRY_MAX_SECONDS=80, RETRY_JITTER=0)
    assert [await failed_for(conn, failures) for failures in (1, 2, 3, 4)] == [10, 30, 80, 80]
    await _set(conn, RETRY_BASE_SECONDS=None, RETRY_FACTOR=None, RETRY_MAX_SECONDS=None)
    assert [await failed_for(conn, failures) for failures in (1, 2, 9, 10)] == [1, 2, 256, 300]


async def test_what_a_type_declares_wins_and_the_rest_follows_the_settings(conn: asyncpg.Connection) -> None:
    """Workers of older releases publish numbers for all of them."""
    await _set(conn, RETRY_BASE_SECONDS=10, RETRY_FACTOR=3, RETRY_MAX_SECONDS=80, RETRY_JITTER=0)
    await _publish(conn, backoff_base=5)
    assert [await failed_for(conn, failures) for failures in (1, 2, 9)] == [5, 15, 80]
    await _publish(conn, backoff_base=1, backoff_factor=2, backoff_max=300, backoff_jitter=0)
    assert [await failed_for(conn, failures) for failures in (1, 3, 10)] == [1, 4, 300]
    await _publish(conn)
    assert await failed_for(conn) == 10


async def test_the_environment_of_a_session_holds_where_the_database_has_no_value(conn: asyncpg.Connection) -> None:
    await conn.execute("set holdfast.retry_base_seconds = '7'")
    await conn.execute("set holdfast.retry_jitter = '0'")
    assert await failed_for(conn) == 7
    await _set(conn, RETRY_BASE_SECONDS=2)
    assert await failed_for(conn) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAST_TIMEOUT_SECONDS", "0"), ("GENERAL_TIMEOUT_SECONDS", "1e9"), ("SHUTDOWN_GRACE_PERIOD_SECONDS", "-1"),
        ("SHUTDOWN_GRACE_PERIOD_SECONDS", "5m"), ("DRAIN_POLICY", "hurry"), ("DRAIN_POLICY", ""),
        ("RETRY_BASE_SECONDS", "-1"), ("RETRY_FACTOR", "0.5"), ("RETRY_MAX_SECONDS", "NaN"), ("RETRY_JITTER", "1.5"),
    ],
)  # fmt: skip
async def test_sql_refuses_values_that_workers_and_retries_could_not_use(
    conn: asyncpg.Connection, name: str, value: str
) -> None:
    for statement in ("select change_setting($1, $2, 'ada')", "update settings set value = $2 where name = $1"):
        with pytest.raises(asyncpg.PostgresError, match=f"{name} must be"):
            await conn.execute(statement, name, value)


@pytest.mark.parametrize("statement", ["delete from settings where name = 'RETENTION_DAYS'", "truncate settings"])
async def test_rows_of_settings_cannot_be_deleted(conn: asyncpg.Connection, statement: str) -> None:
    """Without its row a setting has no default, and claims would fail."""
    with pytest.raises(asyncpg.PostgresError, match="set its value to null") as raised:
        await conn.execute(statement)
    assert raised.value.sqlstate == "HF002"
