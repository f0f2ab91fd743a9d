from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from holdfast.cli.up import hints
from tests.cli.conftest import TASKS, Running, Start, alive, invoke
from tests.harness.waiting import until


async def server_of(up: Running) -> str:
    """Wait until it is ready; the URL of its server."""
    await up.wrote("Ready.", seconds=60)
    found = re.search(r"http://127\.0\.0\.1:\d+", up.text)
    assert found is not None
    return found[0]


def processes_in(folder: Path) -> list[int]:
    """Every process that works in a folder or below."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink().is_relative_to(folder) and alive(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def test_up_runs_everything_in_an_empty_folder_and_leaves_nothing(start: Start, roomy_path: Path) -> None:
    folder = roomy_path / "empty"
    folder.mkdir()
    up = start("up", "--port", 0, folder=folder, HOLDFAST_DATABASE_URL="")
    async with httpx.AsyncClient(base_url=await server_of(up)) as client:
        assert str(folder / ".holdfast") in up.text
        assert (await client.get("/readyz")).status_code == 200
        await until(lambda: '"state":"success"' in up.text, what="demo jobs succeed")
        answer = await client.post("/jobs", json={"jobType": "demo.email", "payload": {"to": "ada"}})
        assert answer.status_code == 202

        async def completed() -> bool:
            return bool((await client.get(answer.headers["location"])).json()["status"] == "COMPLETED")

        await until(completed, what="the job is completed")
    up.process.send_signal(signal.SIGINT)
    assert await up.ended(15) == 0, up.text
    await until(lambda: not processes_in(folder), seconds=15, what="no process is left")


async def test_up_restarts_a_child_that_dies_and_its_children_do_not_outlive_it(start: Start) -> None:
    up = start("up", "--port", 0, "--app", TASKS)
    url = await server_of(up)
    await until(lambda: up.lines("started"), what="the worker has started")
    server, worker = up.children()
    for pid in (server, worker):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: len(up.lines("started")) == 2, what="the worker is back")
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        assert (await client.get("/readyz")).status_code == 200
    children = up.children()
    assert len(children) == 2
    up.process.kill()
    await until(lambda: not any(alive(pid) for pid in children), seconds=20, what="children end")


def test_up_says_which_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = invoke("up", "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "--port" in result.stderr


def test_hints_can_be_pasted_whole_into_another_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    lines = hints("http://127.0.0.1:8080", {"HOLDFAST_HOME": f"{folder}/home"})
    stubs = ["curl() { printf '%s\\n' \"$@\"; }", 'holdfast() { echo "$@ in $PWD of $HOLDFAST_HOME"; }', "cd /"]
    done = subprocess.run(["sh", "-euc", "\n".join([*stubs, *lines])], capture_output=True, text=True, check=True)
    *posted, listed, examined = done.stdout.splitlines()
    assert posted[0] == "-s"
    assert json.loads(posted[-1])["jobType"] == "demo.email"
    assert (listed, examined) == (f"jobs list in {folder} of {folder}/home", f"doctor in {folder} of {folder}/home")
