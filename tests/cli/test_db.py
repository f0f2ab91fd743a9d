from __future__ import annotations

import asyncio
import time
from pathlib import Path

import asyncpg

from holdfast.store.embedded import EmbeddedPostgres, status
from tests.cli.conftest import invoke


def test_db_stop_without_a_server_is_no_failure(tmp_path: Path) -> None:
    result = invoke("db", "stop", environment={"HOLDFAST_HOME": str(tmp_path)})
    assert result.exit_code == 0
    assert "no server runs" in result.stdout


async def test_db_url_is_good_until_db_stop(roomy_path: Path) -> None:
    home = {"HOLDFAST_HOME": str(roomy_path / "home")}
    first = await asyncio.to_thread(invoke, "db", "url", environment=home)
    assert first.exit_code == 0, first.output
    conn = await asyncpg.connect(first.stdout.strip())
    assert await conn.fetchval("select count(*) from holdfast.jobs") == 0
    again = await asyncio.to_thread(invoke, "db", "url", environment=home)
    assert again.stdout == first.stdout
    await conn.close()
    stopped = await asyncio.to_thread(invoke, "db", "stop", environment=home)
    assert "stopped the server" in stopped.stdout
    assert not list((roomy_path / "home/postgres/run").glob(".s.PGSQL*"))


async def test_db_stop_knows_the_embedded_server_by_its_url(roomy_path: Path) -> None:
    home = {"HOLDFAST_HOME": str(roomy_path / "home")}
    url = (await asyncio.to_thread(invoke, "db", "url", environment=home)).stdout.strip()
    other = {**home, "HOLDFAST_DATABASE_URL": url.replace("@/", "@elsewhere/")}
    refused = await asyncio.to_thread(invoke, "db", "stop", environment=other)
    assert refused.exit_code == 2
    assert "unset HOLDFAST_DATABASE_URL" in refused.stderr
    assert status(roomy_path / "home").running
    stopped = await asyncio.to_thread(invoke, "db", "stop", environment={**home, "HOLDFAST_DATABASE_URL": url})
    assert "stopped the server" in stopped.stdout
    assert "HOLDFAST_DATABASE_URL still names it" in stopped.stderr
    assert not status(roomy_path / "home").running


async def test_db_url_asked_after_the_last_program_hands_out_a_server_that_stays(roomy_path: Path) -> None:
    home = roomy_path / "home"
    last = EmbeddedPostgres(home, stop_after_seconds=0.5)
    await asyncio.to_thread(last.start)
    last.release()
    url = await asyncio.to_thread(invoke, "db", "url", environment={"HOLDFAST_HOME": str(home)})
    assert url.exit_code == 0, url.output
    try:
        # The keeper looks four times a second: without a stay it is gone after three looks.
        handed_out = time.monotonic()
        while time.monotonic() < handed_out + 1.5:
            assert status(home).running
            await asyncio.sleep(0.02)
        conn = await asyncpg.connect(url.stdout.strip())
        await conn.close()
    finally:
        await asyncio.to_thread(EmbeddedPostgres(home).stop)
