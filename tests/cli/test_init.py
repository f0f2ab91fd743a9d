"""`holdfast init` writes what runs as it is, and overwrites nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it comes with Schemathesis
from click.testing import CliRunner

from holdfast.cli.root import holdfast
from holdfast.version import __version__
from tests.cli.conftest import ROOT, invoke
from tests.contracts.test_docs import PYTEST, snippets
from tests.harness import warm

NAMES = ["app.py", "compose.yaml", "pytest.ini", "test_app.py"]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder that `init` has made."""
    folder = tmp_path / "shop"
    assert invoke("init", folder).exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    return folder


def test_the_app_and_its_test_run_as_they_were_written(written: Path, database_url: str, roomy_path: Path) -> None:
    given = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "PYTEST_"))}
    environment = {**given, "HOLDFAST_DATABASE_URL": database_url, "TMPDIR": str(roomy_path)}
    ran = warm.run(["-W", "error", "app.py"], cwd=written, env=environment, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "{'sent_to': 'ada@example.com'}\n"), ran.stderr
    tested = warm.run(["-m", "pytest", *PYTEST], cwd=written, env=environment, timeout=60)
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


def test_the_first_page_shows_the_app_that_is_written(written: Path) -> None:
    assert ("app.py", (written / "app.py").read_text()) in snippets(ROOT / "README.md", "python")


def test_the_compose_file_calls_commands_that_exist(written: Path) -> None:
    text = (written / "compose.yaml").read_text()
    composed: dict[str, Any] = yaml.safe_load(text)
    services = composed["services"]
    assert services.keys() == {"db", "migrate", "worker", "server"}
    by_hand = [
        line.split("holdfast ", 1)[1].split() for line in text.splitlines() if line.startswith("#   docker compose run")
    ]
    assert by_hand
    for _, *words in [*(one["command"] for one in services.values() if "command" in one), *(["", *w] for w in by_hand)]:
        names = [word for word in words[:2] if re.fullmatch("[a-z]+", word)]
        told = CliRunner().invoke(holdfast, [*names, "--help"])
        assert told.exit_code == 0, words
        assert all(word in told.output for word in words if word.startswith("--")), words
    for service in services.values():
        assert all(name in services for name in service.get("depends_on", {}))
    docker = services["worker"]["build"]["dockerfile_inline"]
    wheel = f"holdfast-{__version__}-py3-none-any.whl"
    assert f"COPY {wheel} ." in docker
    assert f'"./{wheel}[all]"' in docker
    assert "COPY app.py ." in docker
    assert "app:hf" in services["worker"]["command"]


@pytest.mark.parametrize("there", NAMES)
def test_nothing_is_overwritten(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("mine")
    refused = invoke("init", tmp_path)
    assert refused.exit_code == 4
    assert f"{there} is already there; nothing was written" in refused.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]
