"""The plugin in projects of others: with any kind of asynchronous tests or none, in parallel, and quickly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness import warm
from tests.harness.plugins import FORKED, WITHOUT_OURS
from tests.harness.slowness import Slowness

APP = """
from holdfast import Holdfast

hf = Holdfast("postgresql://nobody@nowhere.invalid/production")
sent = []

@hf.job("email.send")
async def send(ctx, to: str):
    sent.append(to)
    return {"sent_to": to}

@hf.job("report.build")
def build(ctx, number: int):
    ctx.enqueue("email.send", {"to": f"reader {number}"})
"""

SYNC_TEST = """
from myproject import hf

def test_blocking_{n}(jobs):
    hf.sync.enqueue("report.build", {{"number": {n}}}, priority=5)
    jobs.assert_enqueued("report.build", payload={{"number": {n}}}, priority=5, count=1)
    assert [run.state for run in jobs.sync.run_due()] == ["success", "success"]
    jobs.assert_not_enqueued()
"""

ASYNC_TEST = """
import pytest
from myproject import hf

{mark}
async def test_async_{n}(jobs):
    await hf.enqueue("email.send", {{"to": "ada"}}, delay=60)
    jobs.assert_enqueued("email.send", payload={{"to": "ada"}}, delay=60, count=1)
    assert await jobs.run_due() == []
    jobs.advance(61)
    assert [run.result for run in await jobs.run_due()] == [{{"sent_to": "ada"}}]
    jobs.assert_not_enqueued()
"""

QUIET = ["-p", "no:cacheprovider", "-p", "no:randomly"]
NO_ASYNC = ["-p", "no:asyncio", "-p", "no:anyio"]
AUTO = ["-p", "no:anyio", "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
STRICT = ["-p", "no:anyio", "-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function"]
ANYIO = ["-p", "no:asyncio"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "myproject.py").write_text(APP)
    (tmp_path / "pytest.ini").write_text("[pytest]\nholdfast_app = myproject:hf\nfilterwarnings = error\n")
    return tmp_path


def run(project: Path, *arguments: str, url: str | None = None, passed: int | None = None, cold: bool = False) -> str:
    """What pytest says in the project, in a process of its own; `cold`: in one that has imported nothing."""
    chosen = ["--holdfast-database-url", url] if url else []
    command = ["-m", "pytest", *WITHOUT_OURS, *QUIET, *chosen, *arguments]
    if cold:
        done = subprocess.run([sys.executable, *command], cwd=project, capture_output=True, text=True, timeout=100)
    else:
        done = warm.run([*command, *FORKED], cwd=project, env=os.environ, timeout=100)
    said = done.stdout + done.stderr
    if passed is not None:
        assert done.returncode == 0, said
        assert f"{passed} passed" in said, said
    return said


def test_tests_without_any_plugin_for_asyncio(project: Path, server_url: str) -> None:
    (project / "test_it.py").write_text("".join(SYNC_TEST.format(n=n) for n in range(3)))
    run(project, *NO_ASYNC, url=server_url, passed=3)


@pytest.mark.parametrize(
    ("plugin", "mark"),
    [(AUTO, ""), (STRICT, "@pytest.mark.asyncio"), (ANYIO, "@pytest.mark.anyio")],
    ids=["auto", "strict", "anyio"],
)
def test_asynchronous_tests_of_every_kind(project: Path, server_url: str, plugin: list[str], mark: str) -> None:
    backend = "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    (project / "conftest.py").write_text(backend)
    tests = [ASYNC_TEST.format(n=n, mark=mark) + SYNC_TEST.format(n=n) for n in range(2)]
    (project / "test_it.py").write_text("".join(tests))
    run(project, *plugin, url=server_url, passed=4)


def test_the_app_may_be_given_by_a_fixture_and_have_a_schema_of_its_own(project: Path, server_url: str) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "conftest.py").write_text(
        "import pytest\nfrom holdfast import Holdfast\n\n"
        "@pytest.fixture\ndef holdfast_app():\n    return Holdfast(schema='acme')\n"
    )
    (project / "test_it.py").write_text(
        "def test_it(holdfast_app, holdfast_jobs):\n"
        "    holdfast_app.sync.enqueue('anything')\n    holdfast_jobs.assert_enqueued('anything')\n\n"
        "def test_another(holdfast_app, holdfast_separate_jobs):\n    holdfast_separate_jobs.assert_not_enqueued()\n"
    )
    run(project, *NO_ASYNC, url=server_url, passed=2)


def test_what_is_missing_is_said(project: Path, server_url: str) -> None:
    (project / "test_it.py").write_text("def test_it(jobs):\n    pass\n")
    said = run(project, *NO_ASYNC, "-o", "holdfast_app=myproject:app", url=server_url)
    assert "myproject:app is not a Holdfast app; did you mean myproject:hf?" in said
    said = run(project, *NO_ASYNC, "-o", "holdfast_app=", url=server_url)
    assert "Set the ini option holdfast_app" in said


def test_a_project_that_does_not_use_it_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('holdfast')\n"
        "    assert not {'holdfast', 'asyncpg', 'pydantic'} & sys.modules.keys()\n"
    )
    said = run(tmp_path, *NO_ASYNC, passed=1, cold=True)
    assert "holdfast" not in said.replace(str(tmp_path), "").split("collected")[1]


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    run(tmp_path, *NO_ASYNC, "-p", "no:holdfast", passed=1)


def test_a_database_that_was_made_is_dropped(project: Path, server_url: str) -> None:
    (project / "test_it.py").write_text(
        SYNC_TEST.format(n=1) + "\ndef test_where(jobs):\n    print('it is', jobs.database_url)\n"
    )
    said = run(project, *NO_ASYNC, "-s", url=server_url, passed=2)
    (name,) = re.findall(r"it is .*/(holdfast_test_\w+)", said)
    check = subprocess.run(
        [sys.executable, "-c", CONNECT, server_url, name], capture_output=True, text=True, timeout=30, check=True
    )
    assert check.stdout.strip() == "0"


CONNECT = """
import asyncio, asyncpg, sys

async def main():
    conn = await asyncpg.connect(sys.argv[1])
    print(await conn.fetchval("select count(*) from pg_database where datname = $1", sys.argv[2]))
    await conn.close()

asyncio.run(main())
"""


def test_a_hundred_tests_run_in_seconds(
    project: Path, slow: Slowness, roomy_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a server of its own, which all processes share and nobody leaves behind."""
    monkeypatch.setenv("TMPDIR", str(roomy_path))
    (project / "test_place.py").write_text("def test_place(jobs):\n    print('it is', jobs.database_url)\n")
    for file in range(4):
        tests = [SYNC_TEST.format(n=n) + ASYNC_TEST.format(n=n, mark="") for n in range(12 if file else 14)]
        (project / f"test_{file}.py").write_text("".join(tests))
    began = time.monotonic()
    said = run(project, *AUTO, "-n", "2", "-rP", passed=101)
    whole = time.monotonic() - began
    print(f"\n101 tests in {whole:.1f} s, with the start of a server and of two processes")
    assert whole < 30 * slow.factor, said
    (home,) = re.findall(r"it is .*host=([^&\n]*?)/postgres/", said)
    assert Path(home).is_relative_to(roomy_path)
    assert not Path(home).exists()
