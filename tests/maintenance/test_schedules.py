"""Schedules: one job for each fire time, whatever leaders, clocks and definitions do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.definitions.schedule import schedule_definition
from holdfast.maintenance.duties.schedules import decision_on
from holdfast.telemetry.events import ScheduleFailed, ScheduleMissed
from tests.maintenance.schedules import Clockwork, at, clockwork

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = at("2026-05-04 12:00")


@pytest.fixture
async def world(clockwork_config: Config) -> AsyncIterator[Clockwork]:
    async with clockwork(clockwork_config) as made:
        await made.set(NOON)
        yield made


async def test_each_fire_time_makes_one_job_and_the_leader_sleeps_until_the_next(world: Clockwork) -> None:
    schedule = await world.put("report", cron="30 * * * *", payload={"n": 1}, options={"priority": 7}, jitter=0)
    assert await world.work() == 15.0, "nothing is nearer than that"
    await world.set(NOON + 29 * MINUTE + timedelta(seconds=58))
    assert await world.work() == pytest.approx(2.0)
    await world.set(NOON + 30 * MINUTE)
    await world.work()
    await world.work()
    assert await world.fires(schedule) == [(NOON + 30 * MINUTE, "fired")]
    (job,) = await world.conn.fetch("select * from jobs")
    assert (job["type"], job["created_by"], job["priority"], job["run_at"]) == (
        "report", "schedule:report", 7, NOON + 30 * MINUTE,
    )  # fmt: skip
    row = await world.schedule(schedule)
    assert (row["last_job_id"], row["last_fire_at"], row["next_fire_at"], row["fired"]) == (
        job["id"], NOON + 30 * MINUTE, NOON + 90 * MINUTE, 1,
    )  # fmt: skip


async def test_two_leaders_and_a_late_caller_make_one_job(world: Clockwork) -> None:
    schedule = await world.put("report", every=60, overlap="allow")
    await world.work()
    await world.set(NOON + MINUTE)
    due, *_ = await world.store.due_schedules(10)
    decisions = [decision_on(each) for each in due]
    await asyncio.gather(*(world.store.fire_schedules(decisions) for _ in range(4)))
    assert await world.jobs() == 1
    await world.set(NOON + 2 * MINUTE)
    await world.work()
    assert await world.store.fire_schedules(decisions) == [], "what it computed from is over"
    assert await world.jobs() == 2
    # Even with the state of then, a fire time that was decided stays decided.
    await world.conn.execute("update schedules set next_fire_at = $1", NOON + MINUTE)
    await world.store.fire_schedules(decisions)
    assert await world.jobs() == 2
    assert [moment for moment, _ in await world.fires(schedule)] == [NOON + MINUTE, NOON + 2 * MINUTE]


async def test_a_caller_with_a_clock_ahead_fires_nothing_early(world: Clockwork) -> None:
    schedule = await world.put("report", every=60)
    await world.work()
    await world.set(NOON + HOUR)
    due, *_ = await world.store.due_schedules(10)
    await world.set(NOON + MINUTE)
    await world.store.fire_schedules([decision_on(each) for each in due])
    assert [moment for moment, _ in await world.fires(schedule)] == [NOON + MINUTE]


@pytest.mark.parametrize(
    ("overlap", "made", "outcomes"),
    [("skip", 1, "fired skipped"), ("queue", 2, "fired fired"), ("allow", 2, "fired fired")],
)
async def test_overlap_says_what_happens_while_an_earlier_job_is_open(
    world: Clockwork, overlap: str, made: int, outcomes: str
) -> None:
    schedule = await world.put("report", every=60, overlap=overlap)
    await world.work()
    for minute in (1, 2):
        await world.set(NOON + minute * MINUTE)
        await world.work()
    assert await world.jobs() == made
    assert [outcome for _, outcome in await world.fires(schedule)] == outcomes.split()
    targets = await world.conn.fetchval("select array_agg(distinct target) from jobs")
    assert targets == (["schedule:report"] if overlap == "queue" else [None])
    await world.end_jobs()
    await world.set(NOON + 3 * MINUTE)
    await world.work()
    assert (await world.fires(schedule))[-1] == (NOON + 3 * MINUTE, "fired")


async def test_what_is_late_is_made_up_for_within_the_window_and_the_rest_is_missed(world: Clockwork) -> None:
    missed: list[ScheduleMissed] = []
    world.bus.subscribe(missed.append, ScheduleMissed)
    schedule = await world.put("report", cron="0 * * * *", catch_up=7200, overlap="allow")
    await world.work()
    await world.set(NOON + 10 * HOUR + 30 * MINUTE)
    await world.work()
    assert await world.fires(schedule) == [
        (NOON + HOUR, "missed"), (NOON + 9 * HOUR, "fired"), (NOON + 10 * HOUR, "fired"),
    ]  # fmt: skip
    assert [event.since for event in missed] == [NOON + HOUR]
    assert await world.conn.fetchval("select missed_to from schedule_fires where outcome = 'missed'") < NOON + 9 * HOUR


async def test_a_leader_that_is_a_little_late_misses_nothing_even_without_a_window(world: Clockwork) -> None:
    schedule = await world.put("report", every=3600, catch_up=0)
    await world.work()
    await world.set(NOON + HOUR + timedelta(seconds=40))
    await world.work()
    assert await world.fires(schedule) == [(NOON + HOUR, "fired")]
    await world.end_jobs()
    await world.set(NOON + 2 * HOUR + 2 * MINUTE)
    await world.work()
    assert (await world.fires(schedule))[-1] == (NOON + 2 * HOUR, "missed")


async def test_a_long_outage_is_made_up_for_in_portions(world: Clockwork) -> None:
    schedule = await world.put("report", every=60, overlap="allow")
    await world.work()
    await world.set(NOON + HOUR)
    await world.work()
    assert [moment for moment, _ in await world.fires(schedule)] == [NOON + n * MINUTE for n in range(1, 61)]
    assert await world.jobs() == 60


async def test_jitter_delays_each_job_by_a_share_that_follows_from_its_fire_time(world: Clockwork) -> None:
    await world.put("report", every=60, overlap="allow", jitter=50)
    await world.work()
    for minute in range(1, 6):
        await world.set(NOON + minute * MINUTE)
        await world.work()
    rows = await world.conn.fetch(
        "select j.run_at - f.fire_at as late from schedule_fires f join jobs j on j.id = f.job_id"
    )
    late = [row["late"].total_seconds() for row in rows]
    assert all(0 <= seconds < 50 for seconds in late)
    assert len(set(late)) == 5


async def test_a_failure_of_one_schedule_is_told_and_stops_no_other(world: Clockwork) -> None:
    told: list[ScheduleFailed] = []
    world.bus.subscribe(told.append, ScheduleFailed)
    await world.conn.execute("select close_type('closed', 'somebody', 'a reason')")
    closed = await world.put("a closed one", every=60, job="closed")
    odd = await world.put("an odd one", cron="0 * * * *", tz="Europe/Berlin")
    good = await world.put("good", every=60)
    await world.conn.execute("update schedules set tz = 'Nowhere/Gone' where id = $1", odd)
    await world.work()
    await world.set(NOON + MINUTE)
    await world.work()
    assert [moment for moment, _ in await world.fires(good)] == [NOON + MINUTE]
    assert await world.fires(closed) == []
    assert {event.name for event in told} == {"a closed one", "an odd one"}
    failed = await world.schedule(closed)
    assert failed["failures"] == 1
    assert "takes no new jobs" in failed["last_error"]
    assert failed["look_at"] > NOON + MINUTE
    await world.conn.execute("select open_type('closed', 'somebody')")
    await world.set(NOON + 90 * timedelta(seconds=1))
    await world.work()
    assert await world.fires(closed) == [(NOON + MINUTE, "fired")], "its fire time is made up for"
    assert (await world.schedule(closed))["failures"] == 0


@pytest.mark.parametrize("wrong", ["every_seconds = 'NaN'", "every_seconds = 0", "catch_up = 'NaN'", "jitter = -1"])
async def test_numbers_beyond_their_bounds_are_refused_and_would_stop_no_other_schedule(
    world: Clockwork, wrong: str
) -> None:
    """Also from hand-written SQL; and a length that came in by other ways does not stop the leader."""
    odd, good = await world.put("an odd one", every=60), await world.put("good", every=60)
    change = f"update schedules set {wrong} where id = $1"
    with pytest.raises(asyncpg.CheckViolationError):
        await world.conn.execute(change, odd)
    if not wrong.startswith("every"):
        return
    await world.conn.execute("alter table schedules drop constraint schedules_bounds_check")
    await world.conn.execute(change, odd)
    await world.conn.execute("update schedules set next_fire_at = null, look_at = now()")
    await world.work()
    await world.set(NOON + MINUTE)
    await world.work()
    assert [moment for moment, _ in await world.fires(good)] == [NOON + MINUTE]
    assert "every must be seconds" in (await world.schedule(odd))["last_error"]


async def test_a_paused_schedule_does_not_fire_and_goes_on_from_when_it_is_resumed(world: Clockwork) -> None:
    schedule = await world.put("report", every=60)
    await world.work()
    assert await world.conn.fetchval("select pause_schedule('report', 'default', 'somebody')") is True
    await world.set(NOON + 5 * MINUTE + timedelta(seconds=10))
    await world.work()
    assert await world.fires(schedule) == []
    assert await world.conn.fetchval("select resume_schedule('report', 'default', 'somebody')") is True
    await world.work()
    await world.set(NOON + 6 * MINUTE)
    await world.work()
    assert await world.fires(schedule) == [(NOON + 6 * MINUTE, "fired")]


async def test_a_change_keeps_what_is_due_and_repeats_nothing(world: Clockwork) -> None:
    schedule = await world.put("report", cron="0 * * * *", overlap="allow")
    await world.work()
    await world.set(NOON + HOUR)
    await world.put("report", cron="*/30 * * * *", overlap="allow")
    await world.work()
    await world.set(NOON + HOUR + 10 * MINUTE)
    await world.put("report", cron="0 * * * *", overlap="allow", payload={"other": True})
    await world.work()
    await world.set(NOON + 2 * HOUR)
    await world.work()
    assert [moment for moment, _ in await world.fires(schedule)] == [NOON + HOUR, NOON + 2 * HOUR]
    assert (await world.schedule(schedule))["revision"] == 3


def definition(**changes: Any) -> dict[str, Any]:
    return schedule_definition("report", **{"job": "report", "cron": "0 * * * *", "overlap": "allow", **changes})


async def test_a_rolling_deploy_makes_neither_a_double_nor_a_gap(world: Clockwork) -> None:
    """Old and new processes declare in turns: the new definition stays, until its last process has gone."""
    old, new = definition(), definition(cron="*/30 * * * *")
    for worker in ("old 1", "old 2", "new"):
        await world.worker(worker)
    await world.declare("old 1", old)
    await world.work()
    await world.set(NOON + HOUR)
    for worker in ("old 1", "old 2", "new"):
        await world.worker(worker)
    await world.declare("new", new)
    await world.declare("old 2", old)
    await world.declare("old 1", old)
    await world.work()
    row = await world.row("select * from schedules")
    assert (row["cron"], row["revision"]) == ("*/30 * * * *", 2)
    await world.set(NOON + HOUR + 30 * MINUTE)
    await world.work()
    assert [moment for moment, _ in await world.fires(row["id"])] == [NOON + HOUR, NOON + HOUR + 30 * MINUTE]

    await world.conn.execute("select unregister_worker('new')")
    await world.declare("old 1", old)
    assert await world.conn.fetchval("select cron from schedules") == "0 * * * *", "the deploy was taken back"
    await world.work()
    await world.set(NOON + 2 * HOUR)
    await world.work()
    assert [moment for moment, _ in await world.fires(row["id"])][2:] == [NOON + 2 * HOUR]


async def test_a_declaration_that_is_not_new_writes_nothing(world: Clockwork) -> None:
    await world.worker("w")
    await world.declare("w", definition())
    before = await world.conn.fetchval("select xmin from schedules")
    await world.declare("w", definition())
    assert await world.conn.fetchval("select xmin from schedules") == before
    await world.set(NOON + HOUR)
    await world.declare("w", definition())
    assert await world.conn.fetchval("select declared_at from schedules") == NOON + HOUR
    assert await world.conn.fetchval("select count(*) from audit_log where action like 'schedule.%'") == 1


async def test_operators_schedules_and_declared_ones_do_not_replace_each_other(world: Clockwork) -> None:
    await world.worker("w")
    await world.put("report", every=60)
    (refused,) = await world.declare("w", definition())
    assert "an operator has made a schedule" in refused["fault"]
    await world.conn.execute("select delete_schedule('report', 'default', 'somebody')")
    assert await world.declare("w", definition()) == []
    for verb in ("put_schedule($1::text::jsonb, 'default', true, 'x')", "delete_schedule($1, 'default', 'x')"):
        asked = (
            "report"
            if verb.startswith("delete")
            else '{"name": "report", "every": 60, "tz": "UTC", "type": "t",'
            ' "payload": {}, "overlap": "skip", "catch_up": 0, "jitter": 0}'
        )
        assert await world.conn.fetchval(f"select {verb}", asked) == "declared"


async def retire(world: Clockwork) -> int:
    return int(await world.conn.fetchval("select mended from retire_schedules()"))


async def test_a_declared_schedule_is_retired_a_day_after_it_was_last_declared(world: Clockwork) -> None:
    await world.worker("w")
    await world.declare("w", definition())
    await world.put("an operator's", every=60)
    await world.set(NOON + 23 * HOUR)
    await world.worker("other", started_at=NOON)
    assert await retire(world) == 0
    await world.set(NOON + 25 * HOUR)
    assert await retire(world) == 0, "no worker lives"
    await world.worker("w")
    assert await retire(world) == 0, "a live worker declares it"
    await world.conn.execute("select unregister_worker('w')")
    await world.worker("fresh", started_at=NOON + 25 * HOUR)
    assert await retire(world) == 0, "after an outage of all workers, each has the time to declare its own"
    await world.worker("other", started_at=NOON)
    assert await retire(world) == 1
    row = await world.row("select * from schedules where name = 'report'")
    assert row["retired_at"] is not None
    assert row["look_at"] is None
    assert await world.conn.fetchval("select count(*) from audit_log where action = 'schedule.retire'") == 1

    await world.worker("w")
    await world.declare("w", definition())
    row = await world.row("select * from schedules where name = 'report'")
    assert row["retired_at"] is None
    await world.work()
    assert (await world.schedule(row["id"]))["next_fire_at"] == NOON + 26 * HOUR


async def test_a_step_of_the_clock_neither_doubles_nor_loses_fire_times(world: Clockwork) -> None:
    schedule = await world.put("report", cron="0 * * * *", catch_up=7200, overlap="allow")
    await world.work()
    await world.set(NOON + HOUR)
    await world.work()
    # Three days ahead, where a leader has fired and missed, and back again.
    await world.set(NOON + 3 * DAY)
    await world.work()
    ahead = dict(await world.fires(schedule))
    assert ahead[NOON + 2 * HOUR] == "missed"
    await world.put("made then", cron="0 * * * *")
    await world.work()
    await world.set(NOON + HOUR + MINUTE)
    world.duty.resume()
    for hour in range(1, 3 * 24 + 3):
        await world.set(NOON + hour * HOUR + 2 * MINUTE)
        await world.work()
    fires = await world.fires(schedule)
    assert [moment for moment, _ in fires] == [NOON + hour * HOUR for hour in range(1, 3 * 24 + 3)]
    assert all(outcome == "fired" for _, outcome in fires)
    assert (
        await world.conn.fetchval(
            "select count(*) from schedule_fires f where f.outcome <> 'skipped'"
            " and schedule_id = (select id from schedules where name = 'made then')"
        )
        > 0
    )


async def test_a_run_by_hand_is_beside_the_fire_times_and_keeps_to_the_overlap(world: Clockwork) -> None:
    schedule = await world.put("report", every=60)
    await world.work()
    await world.conn.execute("select pause_schedule('report', 'default', 'somebody')")
    run = await world.row("select * from run_schedule('report', 'default', 'somebody', 'why')")
    assert run["outcome"] == "recorded"
    again = await world.row("select * from run_schedule('report', 'default', 'somebody')")
    assert (again["outcome"], again["job_id"]) == ("overlap", run["job_id"])
    assert await world.fires(schedule) == [(NOON, "by-hand")]
    assert await world.conn.fetchval("select run_at <= $1 from jobs", NOON)


async def test_old_fire_times_are_forgotten_except_for_the_last_ones(world: Clockwork) -> None:
    schedule = await world.put("report", every=3600, overlap="allow")
    gone = await world.put("gone", every=3600, overlap="allow")
    await world.work()
    await world.set(NOON + DAY)
    await world.work()
    await world.conn.execute("select delete_schedule('gone', 'default', 'somebody')")
    await world.set(NOON + 9 * DAY)
    assert await world.conn.fetchval("select mended from forget_fires()") == 24 + 14
    assert await world.fires(gone) == []
    assert [moment for moment, _ in await world.fires(schedule)] == [NOON + n * HOUR for n in range(15, 25)]


async def test_a_leader_that_stood_still_does_not_fire_what_is_too_late_by_now(world: Clockwork) -> None:
    schedule = await world.put("report", cron="0 * * * *", catch_up=600)
    await world.work()
    await world.set(NOON + HOUR)
    due, *_ = await world.store.due_schedules(10)
    decisions = [decision_on(each) for each in due]
    await world.set(NOON + 2 * HOUR - MINUTE)
    assert await world.store.fire_schedules(decisions) == []
    await world.work()
    assert await world.fires(schedule) == [(NOON + HOUR, "missed")]
