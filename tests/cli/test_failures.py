"""`holdfast failures`: causes for people and for programs."""

from __future__ import annotations

import json

import asyncpg

from tests.cli.conftest import Cli
from tests.sql.factories import run_one, settle


async def test_causes_are_shown_newest_first(cli: Cli, conn: asyncpg.Connection) -> None:
    told = await cli("failures")
    assert "no failures" in told.stderr
    for job_type, message in (("mail", "disk full"), ("mail", "no user 'ada'"), ("report", "no user 'bob'")):
        lease = await run_one(conn, job_type)
        await settle(conn, "fail", [lease], error_types=["Fault"], error_messages=[message])
    shown = (await cli("failures")).stdout
    assert shown.index("report") < shown.index("no user ?") < shown.index("disk full")
    (group,) = json.loads((await cli("failures", "--type", "report", "-o", "json")).stdout)
    assert (group["message"], group["count"], group["open_count"]) == ("no user ?", 1, 1)
    lines = (await cli("failures", "--limit", "2", "-o", "ndjson")).stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["report", "mail"]
    assert "there are more" in (await cli("failures", "--limit", "2")).stderr
    assert (await cli("failures", "--tenant", "acme", "-o", "json")).stdout.strip() == "[]"
