"""`holdfast keys`: create, list, rotate and revoke keys, with entries in the audit log."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from tests.cli.conftest import ROOT, Cli
from tests.harness import warm


async def test_a_key_is_shown_once_and_lives_until_it_is_revoked(cli: Cli) -> None:
    made = await cli("keys", "create", "my-app", "--tenant", "acme", "--scope", "read", "--expires", "90d")
    secret = made.stdout.strip()
    assert secret.startswith("hf_")
    assert "not shown again" in made.stderr
    (listed,) = json.loads((await cli("keys", "list", "-o", "json")).stdout)
    assert (listed["name"], listed["tenant"], listed["scopes"], listed["state"]) == ("my-app", "acme", ["read"], "good")
    assert secret.startswith(listed["prefix"])
    assert secret not in (await cli("keys", "list", "-o", "json")).stdout

    turned = json.loads((await cli("keys", "rotate", listed["id"], "--overlap", "1h", "-o", "json")).stdout)
    assert turned["secret"] != secret
    states = {key["id"]: key["state"] for key in json.loads((await cli("keys", "list", "-o", "json")).stdout)}
    assert states == {listed["id"]: "replaced", turned["id"]: "good"}

    assert "--yes" in (await cli("keys", "revoke", turned["id"], code=2)).stderr
    await cli("keys", "revoke", turned["id"], "--yes")
    await cli("keys", "revoke", turned["id"], "--yes", code=3)
    log = json.loads((await cli("keys", "audit", "-o", "json")).stdout)
    assert [entry["action"] for entry in log] == ["key.revoke", "key.rotate", "key.create", "key.create"]
    assert all(entry["actor"].startswith("cli") for entry in log)


async def test_a_table_has_scopes_as_words_and_json_as_a_list(cli: Cli) -> None:
    await cli("keys", "create", "my-app", "--scope", "read", "--scope", "submit")
    (listed,) = json.loads((await cli("keys", "list", "-o", "json")).stdout)
    table = (await cli("keys", "list")).stdout
    assert sorted(listed["scopes"]) == ["read", "submit"]
    assert f"  {', '.join(listed['scopes'])}  " in table


async def test_nothing_is_served_to_others_without_keys(database_url: str) -> None:
    refused = await asyncio.to_thread(
        warm.run,
        ["-m", "holdfast", "serve", "--host", "0.0.0.0", "--port", "0"],
        env={**os.environ, "HOLDFAST_DATABASE_URL": database_url},
        cwd=ROOT,
        timeout=60,
    )
    assert refused.returncode == 2
    assert "no keys" in refused.stderr
    assert "holdfast keys create" in refused.stderr


async def test_a_key_is_named_by_its_id_or_by_a_name_that_no_other_has(cli: Cli) -> None:
    for name in ("one", "twin", "twin"):
        await cli("keys", "create", name)
    assert "no key is called 'other'" in (await cli("keys", "revoke", "other", "--yes", code=3)).stderr
    assert "2 keys are called 'twin': give the id" in (await cli("keys", "revoke", "twin", "--yes", code=4)).stderr
    assert "revoked one" in (await cli("keys", "revoke", "one", "--yes")).stdout
    assert "or it is no longer valid" in (await cli("keys", "rotate", "one", code=3)).stderr


async def test_the_audit_log_has_a_command_of_its_own(cli: Cli) -> None:
    await cli("keys", "create", "one", "--expires", "1.5h")
    (entry,) = json.loads((await cli("audit", "-o", "json")).stdout)
    assert entry["action"] == "key.create"


@pytest.mark.parametrize("wrong", ["soon", "-1", "1y", "1e3", "", "1 d"])
async def test_what_is_not_a_duration_is_refused_with_examples(cli: Cli, wrong: str) -> None:
    refused = await cli("keys", "create", "one", f"--expires={wrong}", code=2)
    assert "is not a duration (e.g. 90s, 15m, 2h, 1d, or a number of seconds)" in " ".join(refused.stderr.split())
