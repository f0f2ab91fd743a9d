"""`holdfast settings`: list, set and reset, with entries in the audit log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli import children
from tests.cli.conftest import TASKS, Cli
from tests.harness.inprocess import reached


async def test_a_setting_is_set_and_reset(cli: Cli) -> None:
    told = (await cli("settings", "set", "lease_sec_default", "1m", "--note", "slow uploads")).stdout
    assert told.strip() == "LEASE_SEC_DEFAULT is 60 for all processes"
    listed = {s["name"]: s for s in json.loads((await cli("settings", "list", "-o", "json")).stdout)}
    assert (listed["LEASE_SEC_DEFAULT"]["value"], listed["LEASE_SEC_DEFAULT"]["origin"]) == ("60", "database")
    assert listed["MAX_ATTEMPTS_DEFAULT"]["origin"] == "default"
    told = (await cli("settings", "reset", "LEASE_SEC_DEFAULT")).stdout
    assert told.strip() == "LEASE_SEC_DEFAULT is 30 here (default)"
    (reset, was_set) = json.loads((await cli("audit", "-o", "json")).stdout)
    assert (was_set["action"], was_set["detail"]["note"]) == ("setting.set", "slow uploads")
    assert reset["action"] == "setting.reset"


async def test_mistakes_say_what_to_do(cli: Cli) -> None:
    assert "must be a number" in (await cli("settings", "set", "LEASE_SEC_DEFAULT", "soon", code=2)).stderr
    assert "LEASE_SEC_DEFAULT?" in (await cli("settings", "reset", "LEASE_SEC_DEFAULTS", code=3)).stderr
    assert "HOLDFAST_LANES" in (await cli("settings", "set", "LANES", "fast=1", code=3)).stderr


async def test_config_and_settings_agree(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What wins is shown: the database, then the environment, then the default."""
    monkeypatch.setenv("HOLDFAST_RETENTION_DAYS", "3")
    monkeypatch.setenv("HOLDFAST_DRAIN_POLICY", "pause")
    await cli("settings", "set", "GENERAL_TIMEOUT_SECONDS", "30m")
    await cli("settings", "set", "DRAIN_POLICY", "requeue")
    listed = json.loads((await cli("settings", "list", "-o", "json")).stdout)
    shown = {row["variable"]: row for row in json.loads((await cli("config", "-o", "json")).stdout)}
    for setting in listed:
        row = shown[f"HOLDFAST_{setting['name']}"]
        assert (row["value"], row["origin"]) == (setting["value"], setting["origin"])
    names = ("GENERAL_TIMEOUT_SECONDS", "DRAIN_POLICY", "RETENTION_DAYS", "FAST_TIMEOUT_SECONDS")
    rows = {name: shown[f"HOLDFAST_{name}"] for name in names}
    assert {name: (row["value"], row["origin"]) for name, row in rows.items()} == {
        "GENERAL_TIMEOUT_SECONDS": ("1800", "database"),
        "DRAIN_POLICY": ("requeue", "database"),
        "RETENTION_DAYS": ("3.0", "environment"),
        "FAST_TIMEOUT_SECONDS": ("120", "default"),
    }


@pytest.mark.parametrize("reachable", ["no server", "nobody listens"])
async def test_config_says_that_the_database_was_not_asked_and_starts_none(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reachable: str
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    url = "" if reachable == "no server" else "postgresql://nobody@127.0.0.1:9/none"
    found = await cli("config", "-o", "json", url=url)
    assert "the database was not asked" in found.stderr
    shown = {row["variable"]: row for row in json.loads(found.stdout)}
    assert shown["HOLDFAST_FAST_TIMEOUT_SECONDS"]["origin"] == "default"
    assert not (tmp_path / "home").exists()


async def test_a_parent_gives_its_child_the_grace_of_the_database(
    hf: Holdfast, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own settings, which are older, it would kill the child, and the job would cost an attempt."""
    monkeypatch.setattr(children, "_HURRY_SECONDS", 0.5)
    await (await hf.operations()).settings.set("SHUTDOWN_GRACE_PERIOD_SECONDS", 60, by="ada")
    job = await hf.enqueue("nap", {"seconds": 3})
    environment = {"HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_SHUTDOWN_GRACE_PERIOD_SECONDS": "0"}
    child = children.ChildCommand(
        "worker", ["worker", "--app", TASKS, "--no-maintenance"], environment=environment, grace_seconds=0
    )
    running = asyncio.create_task(child.run())
    await reached(hf, job.id, "running")
    child.drain()
    assert await running == 0
    done = await hf.get(job.id)
    assert (done.state, done.attempt) == ("success", 1)


async def test_a_value_of_the_environment_is_told_from_the_default_that_it_equals(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_RETRY_JITTER", "0.1")
    monkeypatch.setenv("HOLDFAST_DRAIN_POLICY", "auto")
    listed = {s["name"]: s["origin"] for s in json.loads((await cli("settings", "list", "-o", "json")).stdout)}
    assert {name for name, origin in listed.items() if origin == "environment"} == {"RETRY_JITTER", "DRAIN_POLICY"}
