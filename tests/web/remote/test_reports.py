"""Reports over HTTP: what counts, what is a repeat, what comes too late, and what is refused."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast
from tests.sql.factories import expire, job_row, offences, state_of, sweep
from tests.web.remote.conftest import Remote
from tests.web.test_jobs import is_problem


def items(*keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "data": {"of": key}} for key in keys]


async def test_a_job_is_pulled_reported_and_done(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    ref = await hf.enqueue("work", {"page": 1}, correlation_id="c1")
    job = await remote.one()
    assert job["job_id"] == str(ref.id)
    assert (job["type"], job["queue"], job["payload"], job["attempt"]) == ("work", "default", {"page": 1}, 1)
    assert (job["correlation_id"], job["max_attempts"], job["cursor"], job["target_count"]) == ("c1", 3, None, None)
    assert 29_000 < job["lease_remaining_ms"] <= 30_000
    assert job["lease_sec"] == 30
    assert await remote.pull() == []

    told = await remote.report(job, seq=1, items=items("a", "b", "a"), cursor={"page": 2})
    assert told["directive"] == "continue"
    assert told["owned"]
    assert told["state"] == "running"
    assert (told["progress_count"], told["result_count"], told["duplicate"]) == (3, 2, False)
    told = await remote.report(job, seq=2, items=items("c"), done=True, result={"pages": 2})
    assert (told["state"], told["owned"], told["progress_count"], told["result_count"]) == ("success", False, 4, 3)
    row = await job_row(conn, ref.id)
    assert (row["state"], row["result"]) == ("success", '{"pages": 2}')
    assert await conn.fetchval("select worker from job_attempts") == "remote:open:w1"
    assert await offences(conn) == []


async def test_the_same_report_again_changes_nothing_twice(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    first = await remote.report(job, seq=5, items=items("a"), progress=10)
    again = await remote.report(job, seq=5, items=items("a"), progress=10)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["progress_count"] == first["progress_count"] == 11
    late = await remote.report(job, seq=2, items=items("b"))
    assert (late["duplicate"], late["result_count"]) == (False, 2)


async def test_the_same_final_report_again_is_a_repeat_and_another_one_too_late(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    final = {"seq": 1, "items": items("a"), "done": True, "result": [1]}
    assert (await remote.report(job, **final))["duplicate"] is False
    again = await remote.report(job, **final)
    assert (again["duplicate"], again["state"], again["owned"], again["result_count"]) == (True, "success", False, 1)
    other = await remote.refused(job, **(final | {"result": [2]}))
    is_problem(other, 409, "already-reported")
    assert "success" in other.json()["detail"]


async def test_a_stale_attempt_changes_nothing(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    ref = await hf.enqueue("work", {})
    old = await remote.one()
    await remote.report(old, seq=1, items=items("a"), cursor="here")
    await expire(conn, ref.id)
    await sweep(conn)
    for report in ({"seq": 2, "items": items("b")}, {"done": True}, {"error": "no"}, {}):
        is_problem(await remote.refused(old, **report), 409, "lease-lost")
    new = await Remote(remote.client, "w2").one()
    assert (new["attempt"], new["cursor"], new["result_count"]) == (2, "here", 1)
    is_problem(await remote.refused(old, done=True), 409, "lease-lost")
    assert await state_of(conn, ref.id) == "running"


async def test_an_error_sets_the_time_of_the_next_attempt(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    ref = await hf.enqueue("work", {})
    told = await remote.report(await remote.one(), error="boom\x00", log="tried\x00")
    assert (told["state"], told["owned"]) == ("retry", False)
    row = await job_row(conn, ref.id)
    assert row["last_error"] == "boom\ufffd"
    assert 30 <= (row["run_at"] - row["last_error_at"]).total_seconds() <= 36
    attempt = await conn.fetchrow("select * from job_attempts")
    assert attempt is not None
    assert (attempt["outcome"], attempt["error_type"], attempt["log_excerpt"]) == (
        "failed",
        "RemoteError",
        "tried\ufffd",
    )


@pytest.mark.parametrize(
    ("error", "state"),
    [
        ({"kind": "fatal", "message": "m"}, "dead"),
        ({"kind": "hold", "message": "m"}, "error"),
        ({"kind": "snooze", "message": "m", "delay_sec": 60}, "scheduled"),
        ({"kind": "snooze", "message": "m"}, "queued"),
        ({"message": "m", "delay_sec": 5}, "retry"),
    ],
)
async def test_the_kind_of_an_error_decides(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection, error: dict[str, Any], state: str
) -> None:
    ref = await hf.enqueue("work", {})
    job = await remote.one()
    assert (await remote.report(job, error=error))["state"] == state == await state_of(conn, ref.id)
    assert (await remote.report(job, error=error))["duplicate"] is True
    assert await offences(conn) == []


async def test_the_target_count_ends_the_job(hf: Holdfast, remote: Remote) -> None:
    ref = await hf.enqueue("work", {}, target_count=2)
    job = await remote.one()
    assert (await remote.report(job, seq=1, items=items("a")))["owned"]
    told = await remote.report(job, seq=2, items=items("a", "b"))
    assert (told["state"], told["owned"], told["directive"]) == ("success", False, "continue")
    assert (await remote.report(job, seq=2, items=items("a", "b")))["duplicate"] is True
    assert (await hf.get(ref)).state == "success"


async def test_a_bad_item_refuses_the_whole_report_and_the_number_stays_free(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    bad = [*items("a"), {"key": "b", "data": "x\x00"}]
    refused = await remote.refused(job, seq=1, items=bad)
    is_problem(refused, 422, "invalid")
    assert refused.json()["errors"][0]["pointer"] == "/items/1/data"
    told = await remote.report(job, seq=1, items=bad[:1])
    assert (told["duplicate"], told["progress_count"]) == (False, 1)


async def test_an_item_that_is_too_large_is_pointed_at(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    await conn.execute("update settings set value = '2000' where name = 'RESULT_MAX_BYTES'")
    await hf.enqueue("work", {})
    refused = await remote.refused(await remote.one(), seq=1, items=[*items("a"), {"data": "x" * 3000}])
    is_problem(refused, 422, "invalid")
    assert refused.json()["errors"][0]["pointer"] == "/items/1/data"


async def test_many_reports_have_an_answer_each(hf: Holdfast, remote: Remote) -> None:
    for _ in range(4):
        await hf.enqueue("work", {})
    jobs = [{"job_id": job["job_id"], "attempt": job["attempt"]} for job in await remote.pull(max=10)]
    reports = [
        jobs[0] | {"done": True},
        jobs[1] | {"items": items("a")},
        jobs[2] | {"attempt": 7, "done": True},
        jobs[3] | {"seq": 1, "items": items("a")},
    ]
    told = (await remote.good("report", reports=reports))["results"]
    assert told[0]["state"] == "success"
    assert told[3]["result_count"] == 1
    assert told[1]["problem"]["code"] == "invalid"
    assert told[1]["problem"]["errors"][0]["pointer"] == "/reports/1"
    assert told[2]["problem"]["code"] == "lease-lost"


async def test_a_lease_is_kept_and_a_job_handed_back(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    ref = await hf.enqueue("work", {})
    job = await remote.one(lease_sec=2)
    lease = {"job_id": job["job_id"], "attempt": 1}
    told = await remote.good("extend", leases=[lease | {"lease_sec": 60}, lease | {"attempt": 2}])
    assert [one["owned"] for one in told["leases"]] == [True, False]
    assert 59_000 < told["leases"][0]["lease_remaining_ms"] <= 60_000
    assert told["directive"] == "continue"
    told = await remote.good("release", leases=[lease, lease | {"attempt": 2}], reason="enough")
    assert [(one["owned"], one["state"]) for one in told["leases"]] == [(True, "queued"), (False, None)]
    row = await job_row(conn, ref.id)
    assert (row["state"], row["failures"]) == ("queued", 0)


async def test_the_same_pull_again_gives_the_same_jobs(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    for _ in range(3):
        await hf.enqueue("work", {})
    first = await remote.pull(request_id="r1", max=2)
    again = await remote.pull(request_id="r1", max=2)
    assert [job["job_id"] for job in again] == [job["job_id"] for job in first]
    assert len(first) == 2
    assert {job["attempt"] for job in again} == {1}
    await remote.report(first[0], done=True)
    assert [job["job_id"] for job in await remote.pull(request_id="r1", max=2)] == [first[1]["job_id"]]
    await remote.report(first[1], done=True)
    assert len(await remote.pull(request_id="r1", max=2)) == 1, "none is left: this is a new request"
    assert await offences(conn) == []


@pytest.mark.parametrize("broken", [b'"a\\ud83d"', b'"a\xff"', b'{"message": "a\\udc00", "kind": "retryable"}'])
async def test_broken_unicode_in_error_and_log_is_replaced(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection, broken: bytes
) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    body = b'{"worker_id": "w1", "job_id": "%s", "attempt": 1, "error": %s, "log": "l\\ud83d\\u0000"}'
    answer = await remote.client.post(
        "/worker/report",
        content=body % (job["job_id"].encode(), broken),
        headers={"Content-Type": "application/json"},
    )
    assert answer.json()["state"] == "retry", answer.text
    row = await conn.fetchrow("select error_message, log_excerpt from job_attempts")
    assert row is not None
    assert tuple(row) == ("a\ufffd", "l\ufffd\ufffd")


async def test_broken_unicode_elsewhere_is_refused_with_its_place(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    body = b'{"worker_id": "w1", "job_id": "%s", "attempt": 1, "seq": 1, "items": [{"data": ["x", "\\ud83d"]}]}'
    answer = await remote.client.post(
        "/worker/report", content=body % job["job_id"].encode(), headers={"Content-Type": "application/json"}
    )
    is_problem(answer, 422, "invalid")
    assert answer.json()["errors"][0]["pointer"] == "/items/0/data/1"


async def test_the_log_of_all_reports_is_kept_with_the_attempt(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    for line in ("one", "two"):
        await remote.report(job, log=line)
    await remote.report(job, seq=1, items=items("a"), log="three")
    await remote.report(job, done=True, log="four" + "." * 9_990)
    told = await conn.fetchval("select log_excerpt from job_attempts")
    assert await conn.fetchval("select log_excerpt from job_progress") is None
    assert len(told) == 10_000
    assert told.startswith("three\nfour")


async def test_a_final_report_needs_a_number_of_its_own(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    await remote.report(job, seq=1, items=items("a"))
    refused = await remote.refused(job, seq=1, done=True)
    is_problem(refused, 422, "invalid")
    assert refused.json()["errors"][0]["pointer"] == "/seq"
    assert (await remote.report(job, done=True, done_reason="no_more_results"))["state"] == "success"


async def test_a_report_prolongs_the_lease_when_asked_or_once_half_of_it_is_over(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("work", {})
    job = await remote.one(lease_sec=100)
    assert 99_000 < (await remote.report(job))["lease_remaining_ms"] <= 100_000
    await conn.execute("update leases set expires_at = now() + interval '60 seconds'")
    assert 59_000 < (await remote.report(job))["lease_remaining_ms"] <= 60_000
    await conn.execute("update leases set expires_at = now() + interval '40 seconds'")
    assert 99_000 < (await remote.report(job))["lease_remaining_ms"] <= 100_000
    assert 199_000 < (await remote.report(job, extend_lease_sec=200))["lease_remaining_ms"] <= 200_000


async def test_unknown_fields_are_refused(remote: Remote) -> None:
    for verb, body in (("pull", {"types": ["x"]}), ("extend", {"leases": []}), ("release", {"leases": []})):
        is_problem(await remote.call(verb, surplus=1, **body), 422, "invalid")
    refused = await remote.call("report", job_id="0" * 32, attempt=1, surplus=1)
    assert refused.json()["errors"][0]["pointer"] == "/surplus"


async def test_an_attempt_has_its_own_log_only(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    ref = await hf.enqueue("work", {})
    first = await remote.one()
    await remote.report(first, seq=1, items=items("a"), log="of the first")
    await expire(conn, ref.id)
    await sweep(conn)
    second = await remote.one()
    await remote.report(second, seq=1, items=items("b"))
    await remote.report(second, done=True, log="of the second")
    rows = await conn.fetch("select log_excerpt from job_attempts order by attempt")
    assert [row["log_excerpt"] for row in rows] == [None, "of the second"]


async def test_a_pull_is_repeated_although_nothing_else_is_ready(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    (job,) = await remote.pull(request_id="r1")
    assert [one["job_id"] for one in await remote.pull(request_id="r1")] == [job["job_id"]]
    assert await remote.pull(request_id="r2") == []
    assert await Remote(remote.client, "w2").pull(request_id="r1") == [], "the id is the worker's own"


async def test_reports_about_one_job_keep_their_order(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    for _ in range(2):
        await hf.enqueue("work", {})
    one, other = [{"job_id": job["job_id"], "attempt": 1} for job in await remote.pull(max=2)]
    reports = [
        one | {"seq": 1, "items": items("a")},
        other | {"done": True, "result": 1},
        one | {"done": True},
        one | {"done": True},
        other | {"done": True, "result": 2},
    ]
    told = (await remote.good("report", reports=reports))["results"]
    assert [each.get("state", each.get("problem", {}).get("code")) for each in told] == [
        "running", "success", "success", "success", "already-reported",
    ]  # fmt: skip
    assert [each.get("duplicate") for each in told] == [False, False, False, True, None]
    assert told[2]["result_count"] == 1
    assert await offences(conn) == []


async def test_plain_successes_are_settled_together_and_each_for_itself(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    for number in range(6):
        await hf.enqueue("work", {}, target=f"t{number % 2}" if number < 4 else None)
    await conn.execute("select elect()")
    jobs = [{"job_id": job["job_id"], "attempt": 1} for job in await remote.pull(max=6)]
    assert len(jobs) == 4, "two of each target wait behind another"
    stale = jobs[0] | {"attempt": 3}
    big = jobs[1] | {"done": True, "result": "x" * 700_000}
    await conn.execute("update settings set value = '600000' where name = 'RESULT_MAX_BYTES'")
    told = await remote.good("report", reports=[stale | {"done": True}, big, *[j | {"done": True} for j in jobs[2:]]])
    told = told["results"]
    assert told[0]["problem"]["code"] == "lease-lost"
    assert told[1]["problem"]["errors"][0]["pointer"] == "/reports/1/result"
    assert [one["state"] for one in told[2:]] == ["success", "success"]
    again = (await remote.good("report", reports=[j | {"done": True} for j in jobs[2:]]))["results"]
    assert [one["duplicate"] for one in again] == [True, True]
    assert await offences(conn) == []
