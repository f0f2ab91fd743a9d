"""The document of the pull-based fleet, example by example, through its own paths (seed 003)."""

from __future__ import annotations

import asyncpg

from holdfast import Holdfast
from tests.sql.factories import expire, job_row, make_due, offences, promote, sweep
from tests.web.remote.scraping import Scraper
from tests.web.remote.test_seed_003 import BACKOFF, set_to
from tests.web.test_jobs import is_problem


async def delay(hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection, attempts: int) -> float:
    """How long a job that failed so often waits after one more failure."""
    ref = await hf.enqueue("work", {}, max_attempts=1000)
    await conn.execute("update jobs set failures = $2 where id = $1", ref.id, attempts)
    await scraper.report(await scraper.one(), error="no")
    row = await job_row(conn, ref.id)
    return float((row["run_at"] - row["last_error_at"]).total_seconds())


async def test_the_table_of_backoffs(hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection) -> None:
    for attempts, seconds in BACKOFF:
        assert seconds <= await delay(hf, scraper, conn, attempts) <= seconds * 1.2


async def test_the_knobs_are_turned_at_run_time(hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection) -> None:
    await set_to(scraper.client, "BACKOFF_BASE_SEC", 5)
    await set_to(scraper.client, "BACKOFF_MAX_SEC", 17)
    assert 5 <= await delay(hf, scraper, conn, 0) <= 6
    assert 17 <= await delay(hf, scraper, conn, 9) <= 17 * 1.2
    await set_to(scraper.client, "LEASE_SEC_DEFAULT", 77)
    await set_to(scraper.client, "MAX_ATTEMPTS_DEFAULT", 1)
    await hf.enqueue("work", {})
    job = await scraper.one()
    assert (job["lease_sec"], job["max_attempts"]) == (77, 1)
    assert (await scraper.report(job, error="no"))["status"] == "failed"


async def test_the_flow_from_queued_to_done(hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection) -> None:
    """Pull, report with a cursor, fail, pull again when it is due, be lost, pull again, and be done."""
    ref = await hf.enqueue("work", {"query": "dentists"})
    job = await scraper.one(lease_sec=60)
    assert (job["status"], job["attempts"], job["query"], job["lease_sec"]) == ("processing", 1, "dentists", 60)
    assert await scraper.pull() is None, "while the lease is active, other workers avoid the job"
    told = await scraper.report(job, items=[{"phone": "+1 555", "name": "A"}], cursor=2, extend_lease_sec=120)
    assert (told["ok"], told["done"], told["status"]) == (True, False, "processing")
    assert 119_000 < told["lease_remaining_ms"] <= 120_000
    assert (await scraper.report(job, error="captcha", log="…"))["status"] == "queued"
    assert await scraper.pull() is None, "not before next_retry_at"

    await make_due(conn, ref.id)
    await promote(conn)
    job = await scraper.one()
    assert (job["attempts"], job["cursor"], job["last_cursor"]) == (2, 2, 2)
    assert (job["progress_count"], job["result_count"]) == (1, 1)
    await expire(conn, ref.id)
    await sweep(conn)

    another = Scraper(scraper.client, "another", scraper.suffix)
    job = await another.one()
    assert (job["attempts"], job["cursor"]) == (3, 2)
    told = await another.report(job, items=[{"phone": "+1 555", "name": "B"}], cursor=3, done=True)
    assert (told["done"], told["status"], told["progress_count"], told["result_count"]) == (True, "done", 2, 1)
    assert await conn.fetchval("select data ->> 'name' from job_items") == "A", "duplicates are ignored"

    log = await conn.fetch("select worker_id, success, log_excerpt from holdfast_views.job_attempts order by attempt")
    assert [(row["worker_id"], row["success"], row["log_excerpt"]) for row in log] == [
        ("remote:open:w1", False, "…"),
        ("remote:open:w1", False, None),
        ("remote:open:another", True, None),
    ]
    assert await offences(conn) == []


async def test_the_reasons_why_a_job_is_done(hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection) -> None:
    cases = [(None, 1, "worker_done"), (2, 2, "target_reached"), (2, 1, "no_more_results")]
    for target_count, found, reason in cases:
        ref = await hf.enqueue("work", {}, target_count=target_count)
        job = await scraper.one()
        told = await scraper.report(job, items=[{"phone": str(number)} for number in range(found)], done=found != 2)
        assert (told["done"], told["status"]) == (True, "done")
        assert (await conn.fetchval("select done_reason from job_progress where job_id = $1", ref.id)) == reason


async def test_a_job_fails_for_good_after_its_attempts(
    hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection
) -> None:
    ref = await hf.enqueue("work", {})
    states = []
    for _ in range(3):
        states.append((await scraper.report(await scraper.one(), error="no"))["status"])
        if states[-1] == "queued":
            await make_due(conn, ref.id)
            await promote(conn)
    assert states == ["queued", "queued", "failed"]
    assert (await hf.get(ref)).last_error == "no"


async def test_a_worker_whose_lease_has_expired_changes_nothing(
    hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection
) -> None:
    """It was never told of attempts: the job_id that it sends back carries its own."""
    ref = await hf.enqueue("work", {})
    old = await scraper.one()
    await expire(conn, ref.id)
    await sweep(conn)
    new = await scraper.one()
    assert old["job_id"] != new["job_id"]
    for report in ({"items": [{"phone": "1"}], "cursor": 9}, {"done": True}, {"error": "no"}, {}):
        is_problem(await scraper.send(old, **report), 409, "lease-lost")
    told = await scraper.report(new, items=[], done=True)
    assert (told["status"], told["progress_count"]) == ("done", 0)
