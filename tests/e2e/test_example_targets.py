"""The example `examples/targets`: its README word for word, and the promises of targets kept by real processes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.store.database import Database
from holdfast.store.jobs import JobStore
from tests.contracts.test_docs import ROOT, snippets
from tests.faults.conftest import started_warm
from tests.harness.fleet import WorkerProcess
from tests.harness.history import History
from tests.harness.waiting import until

README = ROOT / "examples/targets/README.md"
INTERRUPTED = "Job was interrupted by user"


class Processes:
    """The example's processes on the test's database; leases and graces are short."""

    def __init__(self, url: str, folder: Path) -> None:
        self._history, self._folder = History(folder), folder
        self._environment = {
            **os.environ,
            "HOLDFAST_DATABASE_URL": url,
            "HOLDFAST_LEASE_SEC_DEFAULT": "2",
            "HOLDFAST_HEARTBEAT_SECONDS": "0.2",
            "HOLDFAST_SHUTDOWN_GRACE_PERIOD_SECONDS": "0.2",
        }
        self._all: list[WorkerProcess] = []

    def start(self, *arguments: str) -> WorkerProcess:
        output = self._folder / f"process-{len(self._all)}.log"
        self._all.append(WorkerProcess(["-m", *arguments], self._environment, self._history, output, started_warm))
        return self._all[-1]

    async def workers(self, count: int) -> list[WorkerProcess]:
        new = [self.start("holdfast", "worker", "--app", "examples.targets.app:hf") for _ in range(count)]
        await until(lambda: all(worker.started for worker in new), what="workers start")
        return new

    async def service(self) -> str:
        process = self.start("uvicorn", "examples.targets.service:service", "--port", "0")
        found = await until(lambda: re.search(r"http://[\d.:]+", process.output.read_text()), what="the service starts")
        return str(found[0])

    def kill(self) -> None:
        for process in self._all:
            process.kill()


class Tenant:
    """Somebody with a key."""

    def __init__(self, url: str, secret: str) -> None:
        self.http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=30)

    async def target(self, name: str, *, tokens: int = 1000, seconds: float = 0) -> None:
        await self._call("PUT", f"/targets/{name}", 204, {"tokens": tokens, "seconds_per_call": seconds})

    async def run(self, target: str, calls: int = 1) -> str:
        return str((await self._call("POST", f"/targets/{target}/runs", 202, {"calls": calls})).json()["id"])

    async def ask(self, path: str) -> None:
        await self._call("POST", path, 202)

    async def look(self, target: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self._call("GET", f"/targets/{target}", 200)).json()
        return found

    async def becomes(self, target: str, **runs: str) -> dict[str, Any]:
        """Wait until runs stand so; the target. Given as `becomes(target, **{run: status})`."""

        async def there() -> dict[str, Any] | None:
            found = await self.look(target)
            status = {run["id"]: run["status"] for run in found["runs"]}
            return found if all(status[run] == wanted for run, wanted in runs.items()) else None

        found: dict[str, Any] = await until(there, seconds=30, what=f"{target}: {runs}")
        return found

    async def _call(self, method: str, path: str, status: int, body: object = None) -> httpx.Response:
        answer = await self.http.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        return answer


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(database_url) as app:
        yield app


@pytest.fixture
def processes(database_url: str, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(database_url, tmp_path)
    yield started
    started.kill()


async def test_runs_per_target_keep_their_promises(hf: Holdfast, processes: Processes) -> None:
    url = await processes.service()
    workers = await processes.workers(2)
    keys = (await hf.operations()).keys
    acme, globex = [
        Tenant(url, (await keys.create(name, scopes=("submit", "read"), tenant=name, by="a test"))[1])
        for name in ("acme", "globex")
    ]
    async with acme.http, globex.http:
        await one_at_a_time_in_order(hf, acme, globex)
        await interrupted_and_resumed(hf, acme)
        await out_of_tokens(acme)
        await nobody_elses(acme, globex)
        await killed_and_drained(hf, acme, workers, processes)
    database = Database(hf.config, role="operator", size=1)
    await database.open()
    assert await JobStore(database).verify() == []
    await database.close()


async def one_at_a_time_in_order(hf: Holdfast, acme: Tenant, globex: Tenant) -> None:
    for tenant in (acme, globex):
        await tenant.target("crm", seconds=0.03)
    runs = [(await acme.run("crm", 3), await globex.run("crm", 3)) for _ in range(4)]
    for tenant, own in zip((acme, globex), zip(*runs, strict=True), strict=True):
        found = await tenant.becomes("crm", **dict.fromkeys(own, "COMPLETED"))
        assert [run["id"] for run in found["runs"]] == list(own)
        assert found["tokens"] == 1000 - 4 * 3 * 10
        ran = [(await hf.attempts(run))[0] for run in own]
        assert all(ended.finished_at <= begun.started_at for ended, begun in pairwise(ran))


async def interrupted_and_resumed(hf: Holdfast, acme: Tenant) -> None:
    await acme.target("billing", seconds=60)
    first, second = await acme.run("billing"), await acme.run("billing")
    await acme.becomes("billing", **{first: "RUNNING"})
    await acme.ask(f"/jobs/{first}/pause")
    paused = await acme.becomes("billing", **{first: "PAUSED"})
    assert paused["tokens"] == 990, "the handler itself noticed: it has paid for the call that it was in"
    assert [run["message"] for run in paused["runs"]] == [INTERRUPTED, None]
    await acme.target("billing")
    other = await acme.run("crm")
    await acme.becomes("crm", **{other: "COMPLETED"})
    await acme.becomes("billing", **{first: "PAUSED", second: "PENDING"})
    assert (await acme.http.post(f"/targets/crm/jobs/{first}/resume/")).status_code == 404, "it has another target"
    await acme.ask(f"/targets/billing/jobs/{first}/resume/")
    await acme.becomes("billing", **{first: "COMPLETED", second: "COMPLETED"})
    assert (await hf.attempts(first))[-1].finished_at <= (await hf.attempts(second))[0].started_at


async def out_of_tokens(acme: Tenant) -> None:
    await acme.target("mail", tokens=25)
    first, second = await acme.run("mail", 3), await acme.run("mail")
    held = await acme.becomes("mail", **{first: "ERROR", second: "PENDING"})
    assert held["runs"][0]["message"] == "the token limit of mail is exceeded"
    other = await acme.run("crm")
    await acme.becomes("crm", **{other: "COMPLETED"})
    await acme.becomes("mail", **{first: "ERROR", second: "PENDING"})
    await acme.target("mail", tokens=5, seconds=60)
    await acme.ask(f"/jobs/{first}/cancel")
    await acme.becomes("mail", **{first: "CANCELED", second: "RUNNING"})
    await acme.ask(f"/jobs/{second}/pause")
    held = await acme.becomes("mail", **{second: "ERROR"})
    assert held["runs"][1]["message"] == "the token limit of mail is exceeded"
    await acme.target("mail")
    await acme.ask(f"/targets/mail/jobs/{second}/resume")
    await acme.becomes("mail", **{second: "COMPLETED"})


async def nobody_elses(acme: Tenant, globex: Tenant) -> None:
    run = (await acme.look("billing"))["runs"][0]["id"]
    for path in (f"/jobs/{run}", f"/jobs/{run}/result", "/targets/billing"):
        assert (await globex.http.get(path)).status_code == 404
    for path in (f"/jobs/{run}/pause", f"/targets/billing/jobs/{run}/resume/"):
        assert (await globex.http.post(path)).status_code == 404
    assert (await globex.http.post("/targets/billing/runs", json={})).status_code == 404
    await globex.target("billing")
    assert (await globex.look("billing"))["runs"] == []
    for headers in ({"Authorization": "Bearer hf_nobody"}, {"Authorization": ""}):
        for path in ("/targets/billing", f"/jobs/{run}"):
            assert (await globex.http.get(path, headers=headers)).status_code == 401


async def killed_and_drained(hf: Holdfast, acme: Tenant, workers: list[WorkerProcess], processes: Processes) -> None:
    for name in ("erp", "shop"):
        await acme.target(name, seconds=60)
    lost, behind = await acme.run("erp"), await acme.run("erp")
    await acme.becomes("erp", **{lost: "RUNNING"})
    (owner,) = [worker for worker in workers if f":{worker.pid}:" in str((await hf.get(lost)).lease_owner)]
    owner.kill()
    await acme.becomes("erp", **{lost: "ERROR", behind: "PENDING"})

    drained = await acme.run("shop")
    await acme.becomes("shop", **{drained: "RUNNING"})
    (survivor,) = [worker for worker in workers if worker.alive]
    survivor.drain()
    assert await survivor.ended() == 0
    (run,) = (await acme.look("shop"))["runs"]
    assert (run["status"], run["message"]) == ("PAUSED", INTERRUPTED)

    for name in ("erp", "shop"):
        await acme.target(name)
    await processes.workers(1)
    await acme.ask(f"/targets/erp/jobs/{lost}/resume/")
    await acme.ask(f"/targets/shop/jobs/{drained}/resume/")
    await acme.becomes("erp", **{lost: "COMPLETED", behind: "COMPLETED"})
    await acme.becomes("shop", **{drained: "COMPLETED"})


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_readme_works_word_for_word(database_url: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = subprocess.run(
        ["bash", "-eu", "-c", script(README).replace("8000", port)],
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
    assert "call 1 of 100 to billing" in (tmp_path / ".holdfast/worker.log").read_text()


def script(page: Path) -> str:
    """Every command of a page, in order; one that tells what will be seen is repeated until that is seen."""
    commands = re.findall(r"^\$ (.*)$", "".join(text for _, text in snippets(page, "console")), re.MULTILINE)
    lines = ["trap 'kill -9 $(jobs -p) 2> /dev/null || true' EXIT"]
    for command in commands:
        asked, _, seen = command.partition("  # ")
        if not seen:
            lines += [f"echo {shlex.quote(command)}", command]
            continue
        pattern = "".join(f"*{shlex.quote(word)}" for word in seen.split(", ")) + "*"
        lines.append(
            f"for _ in {{1..200}}; do SEEN=$({asked} || true); [[ $SEEN != {pattern} ]] || break; sleep 0.05; done"
        )
        lines.append(f'echo {shlex.quote(command)}; echo "$SEEN"; [[ $SEEN == {pattern} ]]')
    return "\n".join(lines)
