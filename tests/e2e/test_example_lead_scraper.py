"""The example `examples/lead_scraper`: its README word for word, with workers in two languages that are killed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
from examples.lead_scraper.site import pages

from tests.contracts.test_docs import ROOT
from tests.e2e.test_example_targets import script
from tests.remote.test_conformance import node
from tests.sql.factories import offences

README = ROOT / "examples/lead_scraper/README.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (scripts/system-packages)")
async def test_the_readme_works_word_for_word(database_url: str, conn: asyncpg.Connection, tmp_path: Path) -> None:
    node()
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    text = script(README)
    for port in ("8080", "8001"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            text = text.replace(port, str(free.getsockname()[1]))
    done = subprocess.run(
        ["bash", "-eu", "-c", text],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env={
            **os.environ,
            "HOLDFAST_DATABASE_URL": database_url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert await offences(conn) == []
    for city, wanted in (("berlin", 200), ("lyon", 1000), ("porto", 1000)):
        await check(conn, city, wanted)
    exported = [json.loads(line) for line in (tmp_path / ".holdfast/berlin.ndjson").read_text().splitlines()]
    assert [line.get("key", line) for line in exported] == await stored(conn, "berlin")


async def check(conn: asyncpg.Connection, city: str, wanted: int) -> None:
    """The job of a city has what the site has on its pages, in their order, up to the page with the last wanted one."""
    expected: dict[str, None] = {}
    reported = 0
    for page in pages(city):
        if len(expected) >= wanted:
            break
        reported += len(page["entries"])
        expected |= dict.fromkeys(entry["phone"] for entry in page["entries"])
    assert await stored(conn, city) == list(expected)
    counted = await conn.fetchrow(
        """
        select p.progress_count, p.result_count, j.attempt from jobs j join job_progress p on p.job_id = j.id
        where j.payload ->> 'city' = $1
        """,
        city,
    )
    assert counted is not None
    assert counted["result_count"] == len(expected)
    # At most the last page before the kill is reported again: its answer may not have come.
    assert reported <= counted["progress_count"] <= reported + 10 * (counted["attempt"] - 1)


async def stored(conn: asyncpg.Connection, city: str) -> list[str]:
    """The keys of what the job of a city has stored, in order."""
    rows = await conn.fetch(
        "select i.key from job_items i join jobs j on j.id = i.job_id where j.payload ->> 'city' = $1 order by i.id",
        city,
    )
    return [row["key"] for row in rows]
