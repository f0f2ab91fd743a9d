"""Circuit breakers from the command line."""

from __future__ import annotations

import json

import asyncpg

from tests.cli.conftest import Cli
from tests.sql.test_circuits import report


async def test_circuits_are_listed_reset_and_opened(cli: Cli, conn: asyncpg.Connection) -> None:
    assert "no circuits yet" in (await cli("circuits", "list")).stderr
    await report(conn, 2, 5)
    table = (await cli("circuits", "list")).stdout
    assert "mail" in table
    assert "Down: no answer" in table
    assert "circuit mail closed" in (await cli("circuits", "reset", "mail", "--reason", "it is back")).stdout
    assert "until somebody resets it" in (await cli("circuits", "open", "mail", "--reason", "maintenance")).stdout
    (listed,) = json.loads((await cli("circuits", "list", "-o", "json")).stdout)
    assert (listed["state"], listed["forced_note"], listed["next_probe_at"]) == ("open", "maintenance", None)
    assert "until 2" in (await cli("circuits", "open", "other", "--for", "10m", "--tenant", "acme")).stdout
    assert len(json.loads((await cli("circuits", "list", "--tenant", "acme", "-o", "json")).stdout)) == 1
    assert "circuit unknown closed" in (await cli("circuits", "reset", "unknown")).stdout
    await cli("circuits", "open", "mail", "--for", "0s", code=2)
