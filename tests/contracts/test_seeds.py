"""The numbers of seeds 002 and 003 on the real surfaces: environment → `holdfast worker`, command line, HTTP, SQL.

The two environments are those that the runbook shows.
"""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.worker.settings import WorkerSettings
from tests.cli.conftest import Cli, Start, cli, hf, start
from tests.contracts.test_runbook import environments
from tests.harness.inprocess import reached
from tests.harness.waiting import until
from tests.sql.factories import claim, enqueue
from tests.sql.test_settings import failed_for

__all__ = ["cli", "hf", "start"]

APP = "tests.contracts.plain_jobs:hf"
#: Seed 003's examples: base 30, cap 3600, up to a fifth of jitter; its `attempts` are the failures before this one.
SEED_003 = [(0, 30.0), (1, 60.0), (2, 120.0), (3, 240.0), (4, 480.0), (5, 960.0), (6, 1920.0), (7, 3600.0), (9, 3600.0)]
PRODUCTION, DEVELOPMENT = environments()


def test_the_environments_are_those_of_seed_002() -> None:
    """In its words; what a configuration leaves out is the default."""

    def of(environment: dict[str, str]) -> dict[str, Any]:
        config = Config.load(environment)
        worker = WorkerSettings(config)
        return {
            "threads": config.lanes, "batch-size": config.batch_size, "poll-interval-ms": config.poll_interval * 1000,
            "fast-timeout-minutes": worker.lane_timeout("fast") / 60,
            "slow-timeout-minutes": worker.lane_timeout("general") / 60,
            "base-ms": config.retry_base_seconds * 1000, "max-ms": config.retry_max_seconds * 1000,
            "jitter": config.retry_jitter, "failure-threshold": config.circuit_failure_threshold,
            "open-duration-ms": config.circuit_open_seconds * 1000,
        }  # fmt: skip

    assert of(PRODUCTION) == of({}) == {
        "threads": "fast=3,general=5", "batch-size": 20, "poll-interval-ms": 1000, "fast-timeout-minutes": 2,
        "slow-timeout-minutes": 20, "base-ms": 1000, "max-ms": 300_000, "jitter": 0.1, "failure-threshold": 5,
        "open-duration-ms": 60_000,
    }  # fmt: skip
    assert of(DEVELOPMENT) == of({}) | {
        "threads": "fast=1,general=2", "batch-size": 5, "poll-interval-ms": 2000, "max-ms": 60_000,
        "failure-threshold": 3, "open-duration-ms": 30_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "lanes", "failures", "open_seconds"),
    [
        pytest.param(PRODUCTION, {"fast": 3, "general": 5}, 5, 60, id="production"),
        pytest.param({}, {"fast": 3, "general": 5}, 5, 60, id="nothing"),
        pytest.param(DEVELOPMENT, {"fast": 1, "general": 2}, 3, 30, id="development"),
    ],
)
async def test_a_worker_follows_the_environment_of_seed_002(
    start: Start, cli: Cli, hf: Holdfast, conn: asyncpg.Connection, *,
    environment: dict[str, str], lanes: dict[str, int], failures: int, open_seconds: float,
) -> None:  # fmt: skip
    worker = start("worker", "--app", APP, "--types", "email,analysis,elevation", **environment)
    await worker.wrote("worker started")
    (listed,) = json.loads((await cli("workers", "list", "-o", "json")).stdout)
    assert {lane: use["slots"] for lane, use in listed["lanes"].items()} == lanes
    assert sorted(listed["types"]) == ["analysis", "elevation", "email"]

    left = await hf.enqueue("webhook", {})
    assert (await reached(hf, (await hf.enqueue("analysis", {})).id, "success")).result == "done"
    slow = await reached(hf, (await hf.enqueue("elevation", {})).id, "retry")
    assert slow.last_error_at is not None
    assert 0.99 <= (slow.run_at - slow.last_error_at).total_seconds() <= 1.11
    for _ in range(failures):
        await hf.enqueue("email", {})
    row = await until(lambda: _opened(conn), what="the circuit opens")
    assert row["seconds"] == open_seconds
    assert abs((row["probe"] - row["opened"]).total_seconds() - open_seconds) < 0.01
    counted = await conn.fetchval("select sum(failures) from circuit_counts")
    assert counted == failures
    assert (await hf.get(left)).state == "queued"


async def _opened(conn: asyncpg.Connection) -> asyncpg.Record | None:
    return await conn.fetchrow(
        "select opening_seconds as seconds, opened_at as opened, next_probe_at as probe from circuits"
        " where name = 'email-service' and state = 'open'"
    )


@pytest.mark.parametrize("way", ["command line", "python", "sql"])
async def test_the_delays_are_those_of_seed_003(cli: Cli, hf: Holdfast, conn: asyncpg.Connection, way: str) -> None:
    """`delay = min(max, base × 2^attempts)`, plus up to 20 %."""
    settings = {"RETRY_BASE_SECONDS": "30", "RETRY_MAX_SECONDS": "3600", "RETRY_JITTER": "0.2"}
    operations = await hf.operations()
    for name, value in settings.items():
        if way == "command line":
            await cli("settings", "set", name, value)
        elif way == "python":
            await operations.settings.set(name, value, by="ada")
        else:
            await conn.execute("update settings set value = $2 where name = $1", name, value)
    for attempts, seconds in SEED_003:
        assert seconds <= await failed_for(conn, attempts + 1) <= 1.2 * seconds + 1e-6


async def test_leases_and_budgets_are_those_of_seed_003(
    start: Start, cli: Cli, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    """LEASE_SEC_DEFAULT and MAX_ATTEMPTS_DEFAULT: the default, the environment of a worker, the settings table."""

    async def lease() -> float:
        await enqueue(conn, max_attempts=1)
        await claim(conn)
        found: float = await conn.fetchval("select max(lease_seconds) from leases")
        await conn.execute("select fail('w1', array(select job_id from leases), array[1])")
        return found

    async def attempts(**environment: str) -> int:
        await conn.execute("select change_setting('RETRY_BASE_SECONDS', '0', 'ada')")
        job = await hf.enqueue("elevation", {})
        worker = start("worker", "--app", APP, "--burst", "--poll-interval", "0.1", **environment)
        assert await worker.ended(60) == 0, worker.text
        done = await hf.get(job)
        assert done.state == "dead"
        return done.attempt

    assert await lease() == 30
    assert await attempts() == 3
    assert await attempts(HOLDFAST_MAX_ATTEMPTS_DEFAULT="2") == 2
    await conn.execute("set holdfast.lease_sec_default = '45'")
    assert await lease() == 45
    await cli("settings", "set", "LEASE_SEC_DEFAULT", "180")
    await cli("settings", "set", "MAX_ATTEMPTS_DEFAULT", "4")
    assert await lease() == 180
    assert await attempts(HOLDFAST_MAX_ATTEMPTS_DEFAULT="2") == 4
