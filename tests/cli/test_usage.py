from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.cli.asking import confirm
from holdfast.cli.exits import exit_code
from holdfast.config import ENTRIES
from tests.cli.conftest import ROOT, TASKS, invoke
from tests.harness import warm

AWAY = {"HOLDFAST_DATABASE_URL": "postgresql://nobody:secret@127.0.0.1:1/nothing"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wroker"], "worker"),
        (["enqueue"], "TYPE"),
        (["enqueue", "add", "{"], "not JSON"),
        (["enqueue", "add", "[1]"], "must be a JSON object"),
        (["enqueue", "add", "--run-at", "soon"], "2030-01-31T08:00"),
        (["enqueue", "add", "--delay", "-1"], "--delay"),
        (["enqueue", "add", "--timeout", "1"], "--wait"),
        (["enqueue", "add", "-", "--wait"], "single job"),
        (["jobs", "show", "no-id"], "UUID"),
        (["jobs", "list", "--state", "gone"], "success"),
        (["jobs", "list", "-o", "yaml"], "ndjson"),
        (["worker"], "--app"),
        (["worker", "--app", "tasks"], "MODULE:NAME"),
        (["worker", "--app", "tests.cli.nothing:hf"], "no module 'tests.cli.nothing'"),
        (["worker", "--app", "tests.cli.tasks:app"], "tests.cli.tasks:hf"),
        (["worker", "--app", "tests.cli.tasks:not_an_app"], "is a int, not a Holdfast app"),
        (["worker", "--app", TASKS, "--lanes", "fsat=1"], "did you mean fast?"),
        (["keys", "create", "x", "--scope", "everything"], "operate"),
        (["keys", "create", "x", "--expires", "soon"], "is not a duration (e.g. 90s"),
        (["keys", "revoke", "my-app"], "revoke cannot be undone: add --yes"),
        (["db", "stop"], "unset HOLDFAST_DATABASE_URL"),
        (["types", "limit", "x", "--limit", "three"], "'three' is not a whole number"),
        (["tenants", "set", "x", "--weight", "three"], "'three' is not a number"),
    ],
)
def test_wrong_use_is_said_in_one_line_and_exits_2(arguments: list[str], said: str) -> None:
    result = invoke(*arguments, environment=AWAY)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.output


def test_a_module_that_cannot_be_imported_is_named_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tasks.py").write_text("from holdfast import Holdfast\n\nhf = Holdfast(1 / 0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = invoke("worker", "--app", "broken_tasks:hf", environment=AWAY)
    assert result.exit_code == 2
    assert "ZeroDivisionError" in result.stderr
    assert "line 3" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "list"],
        ["jobs", "show", "01a1e215-8f28-7fb8-868d-fc47658bc523"],
        ["enqueue", "add"],
        ["verify"],
        ["migrate"],
        ["migrate", "--check"],
    ],
)
def test_a_database_that_is_away_exits_5(arguments: list[str]) -> None:
    result = invoke(*arguments, environment=AWAY)
    assert result.exit_code == 5
    assert result.stderr.startswith("error: PostgreSQL cannot be reached")
    assert "is it running? Check HOLDFAST_DATABASE_URL, or run `holdfast doctor`." in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "secret" not in result.output


def test_a_worker_whose_database_is_away_exits_5() -> None:
    done = warm.run(["-m", "holdfast", "worker", "--app", TASKS], env=AWAY, cwd=ROOT, timeout=60)
    assert done.returncode == 5
    assert "error: PostgreSQL cannot be reached" in done.stderr


def test_a_traceback_is_for_those_who_ask() -> None:
    result = invoke("jobs", "list", environment={**AWAY, "HOLDFAST_LOG_LEVEL": "DEBUG"})
    assert result.exit_code == 5
    assert "Traceback" in result.stderr


def test_config_lists_every_setting_with_its_origin_and_hides_passwords() -> None:
    result = invoke("config", "-o", "json", environment={**AWAY, "HOLDFAST_PORT": "9000"})
    found = {entry["variable"]: entry for entry in json.loads(result.stdout)}
    assert set(found) == {entry.variable for entry in ENTRIES}
    assert found["HOLDFAST_PORT"]["value"] == "9000"
    assert found["HOLDFAST_PORT"]["origin"] == "environment"
    assert found["HOLDFAST_HOST"]["origin"] == "default"
    assert found["HOLDFAST_DATABASE_URL"]["value"] == "postgresql://nobody:***@127.0.0.1:1/nothing"


def test_a_misspelt_variable_is_told_with_the_setting_that_may_be_meant() -> None:
    known = {
        "HOLDFAST_PORT": "8501",
        "HOLDFAST_TEST_DATABASE_URL": "x",
        "HOLDFAST_URL": "http://localhost:8080",
        "HOLDFAST_KEY": "hf_x",
        "HOLDFAST_WEB_SERVICE_HOST": "10.0.0.1",
        "HOLDFAST_WEB_PORT": "tcp://10.0.0.1:80",
        "HOLDFAST_WEB_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    quiet = invoke("config", environment={**AWAY, **known})
    assert [line for line in quiet.stderr.splitlines() if "not a setting" in line] == []
    told = invoke("config", environment={**AWAY, "HOLDFAST_PROT": "8501", "HOLDFAST_XYZ": ""})
    assert told.exit_code == 0
    assert told.stderr.splitlines()[:2] == [
        "HOLDFAST_PROT is not a setting; did you mean HOLDFAST_PORT?",
        "HOLDFAST_XYZ is not a setting",
    ]
    assert told.stdout == invoke("config", environment=AWAY).stdout


@pytest.mark.parametrize("command", [["up"], ["serve"], ["worker", "--app", TASKS]])
def test_processes_tell_of_misspelt_variables_and_their_children_do_not(command: list[str]) -> None:
    # A wrong port ends the command before it starts anything.
    wrong = {**AWAY, "HOLDFAST_PROT": "8501", "HOLDFAST_PORT": "x"}
    for leash, times in (dict[str, str](), 1), ({"HOLDFAST_LEASH": "0"}, 0):
        done = warm.run(["-m", "holdfast", *command], env={**wrong, **leash}, cwd=ROOT, timeout=60)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("HOLDFAST_PROT") == times


def test_all_faults_of_the_configuration_are_said_at_once() -> None:
    result = invoke("config", environment={"HOLDFAST_PORT": "x", "HOLDFAST_BATCH_SIZE": "0"})
    assert result.exit_code == 2
    assert "HOLDFAST_PORT" in result.stderr
    assert "HOLDFAST_BATCH_SIZE" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound(), 3),
        (errors.Conflict(), 4),
        (errors.AlreadyFinal(), 4),
        (errors.KeyConflict(), 4),
        (errors.DatabaseUnavailable(), 5),
        (errors.InvalidInput(), 2),
        (errors.InvalidPayload(), 2),
        (errors.ConfigError(), 2),
        (errors.SchemaError(), 1),
        (errors.WaitTimeout(), 1),
        (errors.HoldfastError(), 1),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_without_click_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['click'] = None; from holdfast.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the command line is not installed: pip install 'holdfast[cli]'\n"


def test_a_wrong_setting_is_told_in_a_line() -> None:
    """In a process of its own: no module of the command line may need the settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "config"],
        env={**os.environ, "HOLDFAST_PORT": "abc"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: HOLDFAST_PORT is 'abc'")
    assert len(done.stderr.splitlines()) == 1


def test_a_command_imports_what_it_needs_and_no_more() -> None:
    program = "import sys, holdfast.cli.root as r; r.holdfast.get_command(None, 'worker'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "holdfast.cli.worker" in modules
    assert not {"rich", "holdfast.cli.jobs", "holdfast.web"} & modules


def test_a_no_is_no_interruption_and_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    with pytest.raises(SystemExit) as end:
        confirm("this cannot be undone", "Do it?")
    assert end.value.code == 1
    assert "nothing was done" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    confirm("this cannot be undone", "Do it?")
