"""The page about the HTTP API, followed word for word with curl."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.web.server import address, listen
from tests.contracts.test_docs import ROOT, snippets
from tests.faults.test_intake import servers
from tests.harness import warm

PAGE = ROOT / "docs/how-to/http-api.md"


def commands() -> list[str]:
    """Every command of the page, in order; those that install something are left out."""
    text = "".join(text for _, text in snippets(PAGE, "console")).replace("\\\n", "")
    found = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    return [command for command in found if not command.startswith("pip ")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (scripts/system-packages)")
async def test_the_page_about_http_works_word_for_word(database_url: str, tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as listener:
        place = address(listener).removeprefix("http://")
        async with servers(listener, database_url, [0]):
            with (tmp_path / "worker.log").open("wb") as log:
                worker = warm.Process(
                    ["-m", "holdfast", "worker", "--app", "holdfast.cli.demo:hf"],
                    env={**os.environ, "HOLDFAST_DATABASE_URL": database_url},
                    stdout=log,
                )
            script = "\n".join(
                f"{command.replace('localhost:8080', place)}\necho; echo -----" for command in commands()
            )
            try:
                done = subprocess.run(
                    ["bash", "-eu", "-c", script],
                    capture_output=True,
                    text=True,
                    timeout=120,
                    cwd=tmp_path,
                    env={
                        **os.environ,
                        "HOLDFAST_DATABASE_URL": database_url,
                        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    },
                )
            finally:
                worker.terminate()
                worker.wait(30)
    assert done.returncode == 0, done.stderr
    answers = [part.strip() for part in done.stdout.split("-----")[:-1]]
    told = dict(zip(commands(), answers, strict=True))
    problems = {command: answer for command, answer in told.items() if '"code"' in answer and "/batch" not in command}
    assert not problems
    results = [answer for command, answer in told.items() if "/result" in command]
    assert json.loads(results[0])["status"] == "COMPLETED"
    (events,) = [answer for command, answer in told.items() if command.endswith("/events")]
    assert '"status":"COMPLETED"' in events
    (token,) = [answer for command, answer in told.items() if "/events/token" in command]
    assert "/events?token=" in json.loads(token)["url"]
    assert "http_requests_total" in next(answer for command, answer in told.items() if "/metrics" in command)
