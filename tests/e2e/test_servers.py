"""The engine on the oldest server that is supported: Debian's PostgreSQL 15."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Context, Holdfast, RetryPolicy, State
from holdfast.config import Config
from holdfast.store.database import Database
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.store.jobs import JobStore
from holdfast.store.migrate import migrate

POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")


@pytest.mark.skipif(not POSTGRES_15.exists(), reason="PostgreSQL 15 is not installed (scripts/system-packages)")
async def test_a_job_lives_on_postgresql_15(roomy_path: Path) -> None:
    with EmbeddedPostgres(roomy_path / "home", binaries=POSTGRES_15) as server:
        config = Config.load(environment={}, database_url=server.url)
        await migrate(config)
        hf = Holdfast(database_url=server.url)

        @hf.job("flaky", retry=RetryPolicy(base=0.05))
        async def flaky(ctx: Context, number: int) -> int:
            if ctx.attempt == 1:
                raise ValueError("once")
            return number

        async with hf:
            jobs = [await flaky.options(target=f"t{n % 2}", priority=n).enqueue(number=n) for n in range(6)]
            await hf.run_worker(burst=True, poll_interval=0.1)
            states = [(await hf.get(job)).state for job in jobs]
        assert states == [State.SUCCESS] * 6

        database = Database(config, role="operator")
        await database.open()
        assert await JobStore(database).verify() == []
        await database.close()
