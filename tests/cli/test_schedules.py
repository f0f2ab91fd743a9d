"""Schedules from the command line."""

from __future__ import annotations

import json

import asyncpg

from holdfast import Holdfast
from tests.cli.conftest import Cli


async def test_a_schedule_is_made_looked_at_changed_and_removed(cli: Cli, conn: asyncpg.Connection) -> None:
    made = await cli(
        "schedules", "create", "nightly", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--job", "report",
        "--payload", '{"kind": "short"}', "--priority", "7", "--catch-up", "2h",
    )  # fmt: skip
    assert "schedule nightly: At 02:00 every day (Europe/Berlin)" in made.stdout
    await cli("schedules", "create", "nightly", "--every", "15m", "--job", "report", code=4)
    (listed,) = json.loads((await cli("schedules", "list", "-o", "json")).stdout)
    assert (listed["name"], listed["catch_up"], listed["options"]) == ("nightly", 7200.0, {"priority": 7})
    assert "payload" not in listed, "it may be large"
    shown = json.loads((await cli("schedules", "show", "nightly", "-o", "json")).stdout)
    assert {**shown, **listed} == shown
    assert shown["payload"] == {"kind": "short"}
    assert "At 02:00 every day" in (await cli("schedules", "list")).stdout
    assert len(json.loads((await cli("schedules", "next", "nightly", "--count", "3", "-o", "json")).stdout)) == 3
    await cli("schedules", "set", "nightly", "--every", "15m", "--job", "report")
    assert json.loads((await cli("schedules", "show", "nightly", "-o", "json")).stdout)["words"] == "Every 15 minutes"
    assert "add --yes" in (await cli("schedules", "delete", "nightly", code=2)).stderr
    await cli("schedules", "delete", "nightly", "--yes", "--note", "not needed")
    await cli("schedules", "show", "nightly", code=3)
    assert await conn.fetchval("select array_agg(action order by id) from audit_log") == [
        "schedule.create", "schedule.change", "schedule.delete",
    ]  # fmt: skip


async def test_a_row_that_hand_written_sql_broke_is_listed_with_the_others(cli: Cli, conn: asyncpg.Connection) -> None:
    for name in ("broken", "hourly", "zoneless"):
        await cli("schedules", "create", name, "--cron", "@hourly", "--job", "report")
    await conn.execute("alter table schedules drop constraint schedules_bounds_check")
    await conn.execute("update schedules set cron = null, every_seconds = 'NaN' where name = 'broken'")
    await conn.execute("update schedules set tz = 'Mars/Olympus' where name = 'zoneless'")
    listed = json.loads((await cli("schedules", "list", "-o", "json")).stdout)
    words = {schedule["name"]: schedule["words"] for schedule in listed}
    assert words["hourly"] == "At the start of every hour"
    assert (words["broken"], words["zoneless"]) == ("every nan seconds", "@hourly (Mars/Olympus)")
    await cli("schedules", "delete", "broken", "--yes")


async def test_a_length_that_is_out_of_bounds_is_shown_in_seconds(cli: Cli) -> None:
    told = await cli("schedules", "create", "often", "--every", "0.1", "--job", "report", code=2)
    assert "every must be seconds or a timedelta, from 1 to 31622400 s, not 0.1 s" in told.stderr


async def test_it_is_paused_run_and_resumed(cli: Cli, hf: Holdfast) -> None:
    await cli("schedules", "create", "often", "--every", "1h", "--job", "report")
    assert "paused" in (await cli("schedules", "pause", "often", "--note", "holidays")).stdout
    assert "was paused already" in (await cli("schedules", "pause", "often")).stdout
    job = (await cli("schedules", "run", "often")).stdout.strip()
    assert (await hf.get(job)).created_by == "schedule:often"
    shown = (await cli("schedules", "show", "often")).stdout
    assert "by-hand" in shown
    assert job in shown
    assert job in (await cli("schedules", "run", "often", code=4)).stderr
    assert "resumed" in (await cli("schedules", "resume", "often")).stdout
    await cli("schedules", "run", "unknown", code=3)


async def test_bad_definitions_are_told(cli: Cli) -> None:
    assert "bad minute" in (await cli("schedules", "create", "s", "--cron", "99 * * * *", "--job", "x", code=2)).stderr
    assert "cron or every" in (await cli("schedules", "create", "s", "--job", "x", code=2)).stderr
    assert (
        "Europe/Berlin"
        in (await cli("schedules", "create", "s", "--cron", "@daily", "--tz", "Berlin", "--job", "x", code=2)).stderr
    )


async def test_doctor_names_schedules_that_miss_their_fire_times(cli: Cli, conn: asyncpg.Connection) -> None:
    await cli("schedules", "create", "late", "--every", "1h", "--job", "report")

    async def finding() -> tuple[str, str]:
        found = json.loads((await cli("doctor", "-o", "json", code=None)).stdout)
        (one,) = [each for each in found if each["check"] == "schedules"]
        return one["level"], one["detail"]

    assert await finding() == ("ok", "all fire on time")
    await conn.execute("update schedules set look_at = now() - interval '5 minutes'")
    assert await finding() == ("warn", "1 missed: late of default is late")
    await conn.execute("update schedules set failures = 3, last_error = 'the type is closed'")
    assert "failed 3 times: the type is closed" in (await finding())[1]
