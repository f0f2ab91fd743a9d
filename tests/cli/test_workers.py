"""`holdfast workers`: list, show and quiet."""

from __future__ import annotations

import json

import asyncpg

from tests.cli.conftest import Cli

WORKER = "h:1:a"


async def test_workers_are_listed_shown_and_told_to_be_quiet(cli: Cli, conn: asyncpg.Connection) -> None:
    assert "no workers" in (await cli("workers", "list")).stderr
    await conn.execute(
        "select enlist_worker($1, 'h', 1, '0.3.0', '{\"fast\": 3, \"general\": 5}', array['work'], null, null)", WORKER
    )
    await conn.execute('select beat_with_slots($1, false, \'{"fast": 0, "general": 2}\')', WORKER)
    table = (await cli("workers", "list")).stdout
    assert "general 2/5" in table
    assert "live" in table
    (listed,) = json.loads((await cli("workers", "list", "-o", "json")).stdout)
    assert (listed["worker"], listed["lanes"]["fast"]) == (WORKER, {"slots": 3, "used": 0})
    told = (await cli("workers", "quiet", WORKER, "--note", "a new machine")).stdout
    assert told.strip() == f"{WORKER} claims no more; it runs 0 jobs"
    assert "quiet" in (await cli("workers", "list")).stdout
    assert "a new machine" in (await cli("workers", "show", WORKER)).stdout
    (entry,) = json.loads((await cli("audit", "-o", "json")).stdout)
    assert (entry["action"], entry["subject"], entry["detail"]["note"]) == ("worker.quiet", WORKER, "a new machine")


async def test_unknown_workers_are_not_found(cli: Cli) -> None:
    for words in (("show", "h:2:b"), ("quiet", "h:2:b")):
        assert "there is no worker" in (await cli("workers", *words, code=3)).stderr


async def test_the_list_says_why_no_worker_claims(cli: Cli) -> None:
    await cli("drain", "--yes", "--reason", "the disk is full")
    told = (await cli("workers", "list")).stderr
    assert "none of them claims jobs: drained " in told
    assert ": the disk is full; `holdfast drain --resume` resumes work" in told
    await cli("drain", "--resume")
    assert "drained" not in (await cli("workers", "list")).stderr
