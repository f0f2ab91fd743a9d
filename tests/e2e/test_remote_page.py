"""The page about workers over HTTP, followed: a key, three workers in three languages, their jobs done."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.web.server import address, listen
from tests.contracts.test_docs import ROOT, snippets
from tests.faults.test_intake import servers
from tests.remote.test_conformance import node

PAGE = ROOT / "docs/how-to/remote-workers.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (scripts/system-packages)")
async def test_the_workers_of_the_page_do_their_jobs(database_url: str, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    for language in ("python", "javascript", "sh"):
        for name, text in snippets(PAGE, language):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    for name in ("worker.mjs", "worker.sh"):
        shutil.copy(ROOT / "examples/workers" / name, fleet)
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": database_url}
    subprocess.run([sys.executable, "enqueue.py"], cwd=tmp_path, env=environment, check=True, timeout=60)
    async with Holdfast(database_url) as hf:
        _, secret = await (await hf.operations()).keys.create("fleet", scopes=["work"], by="a test")
        with listen("127.0.0.1", 0) as listener:
            url = address(listener)
            async with servers(listener, database_url, [0]), workers(tmp_path, url, secret) as started:
                async with asyncio.timeout(60):
                    jobs = {job.type: await hf.wait(job.id, timeout=60) for job in await hf.find()}
                assert all(process.poll() is None for process in started)
    assert {job.type: job.result for job in jobs.values()} == {
        "leads.collect": "4 pages",
        "text.shout": {"shouted": "HELLO"},
        "text.count": {"words": 3},
    }
    assert jobs["leads.collect"].result_count == 12


@asynccontextmanager
async def workers(folder: Path, url: str, secret: str) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
    """One worker of each kind, each of which drains at the end."""
    commands = [
        [sys.executable, "fleet/worker.py"],
        [str(node()), "fleet/worker.mjs", "fleet/handlers.mjs"],
        ["sh", "fleet/worker.sh", "text.count=sh fleet/count.sh"],
    ]
    environment = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_KEY": secret}
    started = [subprocess.Popen(command, cwd=folder, env=environment) for command in commands]
    try:
        yield started
        for process in started:
            process.terminate()
        codes = [await asyncio.to_thread(process.wait, 20) for process in started]
        assert codes == [0, 0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
