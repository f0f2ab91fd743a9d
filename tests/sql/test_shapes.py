"""Which shapes count: those of live workers, else the last one; and which other workers are asked about a payload."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.sql.factories import enqueue

OLD, NEW = {"is": "old"}, {"is": "new"}
EVERYTHING = ("off", None)


async def publish(conn: asyncpg.Connection, shape: dict[str, Any] | None, *, version: int = 1) -> str:
    """What a worker publishes; without a shape as one of the release before does."""
    definition = {
        "name": "work", "queue": "default", "lane": "general", "backoff_base": 1, "backoff_factor": 2, "backoff_max": 9,
        "backoff_jitter": 0, "on_failure": "retry", "version": version,
    }  # fmt: skip
    text = json.dumps([definition | ({} if shape is None else {"payload_shape": shape})])
    await conn.execute("select publish_types($1::jsonb)", text)
    return text


async def enlist(conn: asyncpg.Connection, worker: str, shape: dict[str, Any] | None, **named: Any) -> None:
    definitions = await publish(conn, shape)
    places = named.get("queues"), named.get("tenants")
    if shape is None:
        await conn.execute("select enlist_worker($1, 'h', 1, '1', '{}', '{work}', $2, $3)", worker, *places)
    else:
        await conn.execute("select enlist($1, 'h', 1, '1', '{}', '{work}', $2, $3, $4)", worker, *places, definitions)


async def judged_by(conn: asyncpg.Connection, job_type: str = "work") -> list[tuple[str, Any]]:
    rows = await conn.fetch("select mode, shape from accepted_payloads(array[$1], '{}')", job_type)
    return [(row["mode"], row["shape"] and json.loads(row["shape"])) for row in rows]


async def test_every_live_worker_counts_and_the_newest_is_named_first(conn: asyncpg.Connection) -> None:
    await enlist(conn, "w1", OLD)
    await enlist(conn, "w2", OLD)
    await enlist(conn, "w3", NEW)
    assert await judged_by(conn) == [("refuse", NEW), ("refuse", OLD)]
    await conn.execute("select beat('w3', true)")
    assert await judged_by(conn) == [("refuse", OLD)], "who drains takes nothing more"


async def test_without_a_live_worker_the_last_shape_counts(conn: asyncpg.Connection) -> None:
    assert await judged_by(conn) == [("refuse", None)], "nobody has heard of this type"
    await enlist(conn, "w1", OLD)
    await enlist(conn, "w2", NEW)
    await conn.execute("update workers set heartbeat_at = now() - interval '1 minute'")
    assert await judged_by(conn) == [("refuse", NEW)]
    await publish(conn, OLD, version=0)
    assert await judged_by(conn) == [("refuse", OLD)], "a release that was taken back"


async def test_a_worker_of_the_release_before_takes_everything(conn: asyncpg.Connection) -> None:
    await enlist(conn, "w1", NEW)
    await enlist(conn, "w2", None)
    assert await judged_by(conn) == [EVERYTHING]
    await conn.execute("select unregister_worker('w2')")
    assert await judged_by(conn) == [("refuse", NEW)]
    await conn.execute("select unregister_worker('w1')")
    await publish(conn, None)
    assert await judged_by(conn) == [EVERYTHING]


async def test_payloads_are_not_judged_by_more_shapes_than_a_deploy_has(conn: asyncpg.Connection) -> None:
    for number in range(9):
        assert len(await judged_by(conn)) == max(1, number)
        await enlist(conn, f"w{number}", {"is": "int", "ge": number})
    assert await judged_by(conn) == [("off", None)]


async def test_a_shape_that_the_caller_has_is_not_sent_again(conn: asyncpg.Connection) -> None:
    await enlist(conn, "w1", OLD)
    digest = await conn.fetchval("select digest from accepted_payloads('{work}', '{}')")
    (again,) = await conn.fetch("select digest, shape from accepted_payloads('{work}', array[$1])", digest)
    assert (again["digest"], again["shape"]) == (digest, None)


@pytest.mark.parametrize(("value", "mode"), [("off", "off"), ("warn", "warn"), ("refuse", "refuse")])
async def test_the_setting_says_what_becomes_of_misfits(conn: asyncpg.Connection, value: str, mode: str) -> None:
    await enlist(conn, "w1", OLD)
    await conn.execute("update settings set value = $1 where name = 'VALIDATE_PAYLOADS'", value)
    assert [found for found, _ in await judged_by(conn)] == [mode]


async def test_another_value_is_refused(conn: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.PostgresError, match="VALIDATE_PAYLOADS must be refuse, warn or off, not 'maybe'"):
        await conn.execute("update settings set value = 'maybe' where name = 'VALIDATE_PAYLOADS'")
    await conn.execute("set holdfast.validate_payloads = 'maybe'")
    assert await conn.fetchval("select setting('VALIDATE_PAYLOADS')") == "refuse"


async def test_a_shape_is_bounded(conn: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.PostgresError, match="job type work: payload_shape must have at most 131072 characters"):
        await publish(conn, {"is": "x" * 131_072})


async def test_only_workers_that_could_run_the_job_are_asked(conn: asyncpg.Connection) -> None:
    await enlist(conn, "me", NEW)
    await enlist(conn, "elsewhere", OLD, queues=["other"])
    await enlist(conn, "theirs", OLD, tenants=["other"])
    asked = "select shape from other_shapes('me', 'work', 'default', 'default')"
    assert await conn.fetch(asked) == []
    await enlist(conn, "fits", OLD, queues=["default"], tenants=["default"])
    await enlist(conn, "before", None)
    assert sorted(str(row["shape"]) for row in await conn.fetch(asked)) == ["None", json.dumps(OLD)]


async def test_unused_shapes_are_forgotten_except_for_the_last(conn: asyncpg.Connection) -> None:
    for number in range(3):
        await enlist(conn, f"w{number}", {"is": str(number)})
    await conn.execute("select unregister_worker('w0'), unregister_worker('w2')")
    await conn.execute("update payload_shapes set published_at = published_at - interval '2 days'")
    await conn.execute("select forget_workers()")
    kept = await conn.fetch("select shape ->> 'is' as name from payload_shapes order by 1")
    assert [row["name"] for row in kept] == ["1", "2"]


async def test_a_key_is_answered_with_its_job_of_this_tenant_alone(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn, "work", {"a": 1}, idempotency_key="k")
    answer = "select job_id, state, outcome from answered_key($1, 'k', 'work', $2::jsonb)"
    assert [tuple(row) for row in await conn.fetch(answer, "default", '{"a": 1}')] == [(job, "queued", "existing")]
    assert [tuple(row) for row in await conn.fetch(answer, "default", '{"a": 2}')] == [(job, "queued", "conflict")]
    assert await conn.fetch(answer, str(uuid4()), '{"a": 1}') == []
