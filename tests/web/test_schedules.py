"""Schedules over HTTP: made, shown, changed, paused, run, removed; and whose they are."""

from __future__ import annotations

import asyncio
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.definitions.json_text import JsonText
from tests.sql.factories import state_of
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem
from tests.web.test_rooms import BLOCKED
from tests.web.test_steering import pages

SCHEDULES = "/ops/schedules"
NIGHTLY: dict[str, Any] = {
    "name": "nightly report", "cron": "30 2 * * MON-FRI", "job": "report", "tz": "Europe/Berlin",
    "payload": {"kind": "short"}, "overlap": "queue", "catch_up": 3600, "jitter": 5.5,
    "options": {"priority": 7, "queue": "reports"},
}  # fmt: skip


async def test_a_schedule_is_what_was_asked_for_and_says_when_it_fires(
    client: httpx.AsyncClient, key: KeyMaker
) -> None:
    operate = await key("operate")
    made = await client.post(SCHEDULES, json=NIGHTLY, headers=operate)
    assert made.status_code == 201
    told = made.json()
    assert {name: told[name] for name in NIGHTLY} == NIGHTLY
    assert (told["state"], told["declared"], told["created_by"], told["tenant"]) == (
        "active",
        False,
        "a key",
        "default",
    )
    assert told["words"] == "At 02:30 on Monday through Friday (Europe/Berlin)"
    assert told["fires"] == []
    assert (await pages(client, SCHEDULES, operate))[0]["name"] == "nightly report"
    following = (await client.get(f"{SCHEDULES}/nightly report/next", params={"count": 7}, headers=operate)).json()
    moments = [datetime.fromisoformat(moment) for moment in following["items"]]
    assert len(moments) == 7
    assert moments[0] > datetime.now(UTC)
    assert moments == sorted(set(moments))
    assert {moment.astimezone(UTC).minute for moment in moments} == {30}

    changed = {**NIGHTLY, "cron": None, "every": 90, "tz": "UTC", "note": "more often"}
    del changed["name"]
    answer = (await client.put(f"{SCHEDULES}/nightly report", json=changed, headers=operate)).json()
    assert (answer["every"], answer["cron"], answer["words"]) == (90, None, "Every 90 seconds")
    is_problem(await client.post(SCHEDULES, json=NIGHTLY, headers=operate), 409, "conflict")
    assert (await client.delete(f"{SCHEDULES}/nightly report", headers=operate)).status_code == 204
    is_problem(await client.get(f"{SCHEDULES}/nightly report", headers=operate), 404, "not-found")
    log = (await client.get("/ops/audit", headers=await key("admin"))).json()["items"]
    assert [entry["action"] for entry in log[1:4]] == ["schedule.delete", "schedule.change", "schedule.create"]
    assert log[2]["detail"]["note"] == "more often"


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": "61 * * * *"}, {"cron": "* * *"}, {"cron": "0 0 31 2 *"}, {"cron": None}, {"every": 60},
        {"cron": None, "every": 0.5}, {"tz": "Mars/Olympus"}, {"tz": "../etc/passwd"}, {"overlap": "maybe"},
        {"catch_up": -1}, {"jitter": 100_000}, {"job": "holdfast.cancel"}, {"job": ""}, {"name": "a/b"}, {"name": ""},
        {"options": {"run_at": "2026-01-01T00:00:00Z"}}, {"options": {"idempotency_key": "k"}}, {"unknown": 1},
        {"payload": [1]},
    ],
)  # fmt: skip
async def test_what_cannot_fire_is_refused_with_advice(
    client: httpx.AsyncClient, key: KeyMaker, wrong: dict[str, Any]
) -> None:
    answer = await client.post(SCHEDULES, json={**NIGHTLY, **wrong}, headers=await key("operate"))
    assert is_problem(answer, 422, "invalid")


async def test_it_is_paused_resumed_and_run(client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker) -> None:
    operate = await key("operate")
    place = f"{SCHEDULES}/s"
    await client.put(place, json={"every": 3600, "job": "report"}, headers=operate)
    paused = (await client.post(f"{place}/pause", json={"note": "holidays"}, headers=operate)).json()
    assert (paused["state"], paused["paused_by"], paused["paused_note"]) == ("paused", "a key", "holidays")
    assert (await client.get(f"{place}/next", headers=operate)).json() == {"items": []}
    ran = await client.post(f"{place}/run", headers=operate)
    assert ran.status_code == 202
    assert await state_of(conn, ran.json()["job_id"]) == "queued"
    assert (
        ran.json()["job_id"]
        in is_problem(await client.post(f"{place}/run", headers=operate), 409, "conflict")["detail"]
    )
    assert (await client.post(f"{place}/resume", headers=operate)).json()["state"] == "active"
    shown = (await client.get(place, headers=operate)).json()
    (fire,) = shown["fires"]
    assert (fire["outcome"], fire["job_id"], fire["state"], fire["by"]) == (
        "by-hand", ran.json()["job_id"], "queued", "a key",
    )  # fmt: skip
    moment = datetime.fromisoformat((await client.get(f"{place}/next", headers=operate)).json()["items"][0])
    assert timedelta(0) < moment - datetime.now(UTC) <= timedelta(hours=1)


async def test_a_key_is_for_the_schedules_of_its_tenant(client: httpx.AsyncClient, key: KeyMaker) -> None:
    mine, other, admin = await key("operate", tenant="mine"), await key("operate", tenant="other"), await key("admin")
    await client.put(f"{SCHEDULES}/s", json={"every": 3600, "job": "report"}, headers=mine)
    await client.put(f"{SCHEDULES}/s", json={"every": 60, "job": "report"}, headers=other)
    assert [each["every"] for each in await pages(client, SCHEDULES, mine)] == [3600]
    assert len(await pages(client, SCHEDULES, admin)) == 2
    assert (await client.get(f"{SCHEDULES}/s", params={"tenant": "other"}, headers=admin)).json()["every"] == 60
    for method, path, body in (
        ("get", "", None), ("get", "/next", None), ("post", "/run", None), ("post", "/pause", None),
        ("delete", "", None),
        ("put", "", {"every": 60, "job": "report"}),
    ):  # fmt: skip
        asked = await client.request(
            method, f"{SCHEDULES}/s{path}", params={"tenant": "other"}, json=body, headers=mine
        )
        is_problem(asked, 404, "not-found")
    job = (await client.post(f"{SCHEDULES}/s/run", headers=other)).json()["job_id"]
    assert (await client.get(f"/ops/jobs/{job}", headers=admin)).json()["tenant"] == "other"


async def test_what_code_declares_can_be_paused_and_run_but_not_changed(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    operate = await key("operate")

    @hf.job("report", schedule={"cron": "@daily", "tz": "Asia/Tokyo"})
    async def report(ctx: Any) -> None: ...

    await hf.run_worker(burst=True)
    place = f"{SCHEDULES}/report"
    shown = (await client.get(place, headers=operate)).json()
    assert (shown["declared"], shown["words"], shown["job"]) == (True, "At 00:00 every day (Asia/Tokyo)", "report")
    for answer in (
        await client.put(place, json={"every": 60, "job": "report"}, headers=operate),
        await client.delete(place, headers=operate),
    ):
        assert "belongs to the code" in is_problem(answer, 409, "conflict")["detail"]
    assert (await client.post(f"{place}/pause", headers=operate)).json()["state"] == "paused"
    assert (await client.post(f"{place}/run", headers=operate)).status_code == 202


async def test_lists_and_changes_are_without_payloads(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    operate, schedules = await key("operate"), (await hf.operations()).schedules
    large = {"text": "x" * 100_000}
    for name in "abc":
        made = await schedules.put(name, every=3600, job="report", payload=large, by="tester")
        assert made.payload is None
    listed = await client.get(SCHEDULES, headers=operate)
    assert [(each["name"], "payload" in each) for each in listed.json()["items"]] == [(name, False) for name in "abc"]
    assert len(listed.content) < 5_000
    assert [each.payload for each in await schedules.list()] == [None] * 3
    assert (await client.get(f"{SCHEDULES}/b", headers=operate)).json()["payload"] == large
    assert (await schedules.get("b")).payload == large


async def test_payloads_of_schedules_stay_text(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    operate, schedules = await key("operate"), (await hf.operations()).schedules
    text = JsonText('{"n":[' + ",".join(['{"":0}'] * 40_000) + "]}")  # thirty times as large as Python values
    await client.get(SCHEDULES, headers=operate)  # what the first call imports
    tracemalloc.start()
    try:
        await schedules.put("s", every=3600, job="report", payload=text, by="tester")
        put = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert len((await client.get(f"{SCHEDULES}/s", headers=operate)).content) > len(text)
        shown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(put, shown) < 12 * len(text), (put, shown, len(text))


async def test_large_schedules_are_recorded_in_turns_with_large_jobs(
    client: httpx.AsyncClient, key: KeyMaker, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.turns._TURN_SECONDS", 0.1)
    greedy, modest = await key("operate", "submit", tenant="greedy"), await key("submit", tenant="modest")
    large = {"every": 3600, "job": "report", "payload": {"text": "x" * 100_000}}
    job = {"jobType": "x", "payload": large["payload"], "hold": True}
    for method, path, body in (("post", SCHEDULES, {"name": "s", **large}), ("put", f"{SCHEDULES}/s", large)):
        async with asyncio.timeout(20):
            async with conn.transaction():
                await conn.execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.schedules'), 0)")
                first = asyncio.create_task(client.request(method, path, json=body, headers=greedy))
                while not await conn.fetchval(BLOCKED):
                    await asyncio.sleep(0.01)
                is_problem(await client.post("/jobs", json=job, headers=greedy), 503, "unavailable")
                is_problem(await client.request(method, path, json=body, headers=greedy), 503, "unavailable")
                assert (await client.post("/jobs", json=job, headers=modest)).status_code == 202
                assert not first.done()
            assert (await first).status_code in (200, 201)
