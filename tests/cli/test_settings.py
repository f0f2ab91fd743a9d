"""`holdfast settings`: list, set and reset, with entries in the audit log."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli


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
