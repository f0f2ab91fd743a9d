"""`holdfast jobs fail|kill|expire-lease|reprioritize|attempts|logs`."""

from __future__ import annotations

import json
from uuid import uuid4

import asyncpg

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.model.states import State
from tests.cli.conftest import Cli
from tests.sql.factories import Lease, job_in, settle


async def test_what_is_decided_about_running_jobs(cli: Cli, hf: Holdfast, conn: asyncpg.Connection) -> None:
    jobs = [await job_in(conn, "running", str(n)) for n in range(4)]
    asked = await cli("jobs", "fail", jobs[0], "--message", "an outage")
    assert f"{jobs[0]}  fail asked for" in asked.stdout
    await cli("jobs", "fail", jobs[1], "--no-retry", "--reason", "no use", "--yes")
    await cli("jobs", "kill", jobs[2], "--reason", "enough", "--yes")
    await cli("jobs", "expire-lease", jobs[3], "--reason", "the host is gone")
    await conn.execute("select execute_requests(100)")
    for job in jobs[:3]:
        await settle(conn, "stop", [Lease(job, 1)], outcomes=["canceled"])
    ended = [await hf.get(job) for job in jobs]
    assert [job.state.value for job in ended] == ["retry", "dead", "dead", "queued"]
    words = [job.last_error for job in ended]
    assert words[:3] == ["an outage", "no use", "enough"]
    assert str(words[3]).startswith("its lease was ended by cli:")
    log = json.loads((await cli("keys", "audit", "-o", "json")).stdout)
    assert [entry["action"] for entry in log] == ["job.expire-lease", "job.kill", "job.fail", "job.fail"]
    assert {str(entry["actor"])[:4] for entry in log} == {"cli:"}


async def test_what_ends_jobs_for_good_needs_yes_where_nobody_can_be_asked(
    cli: Cli, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    job = await job_in(conn, "error")
    for command in (("kill",), ("fail", "--no-retry")):
        refused = await cli("jobs", *command, job, code=2)
        assert "cannot be undone: add --yes" in " ".join(refused.stderr.split())
    assert (await hf.get(job)).state is State.ERROR


async def test_what_cannot_be_done_says_what_to_do_instead(cli: Cli, conn: asyncpg.Connection) -> None:
    queued, running = await job_in(conn, "queued", "a"), await job_in(conn, "running", "b")
    mixed = await cli("jobs", "kill", queued, running, "--yes", code=4)
    assert "is queued, and no attempt of it runs that could fail; cancel it instead" in " ".join(mixed.stderr.split())
    assert f"{running}  kill asked for" in mixed.stdout
    await cli("jobs", "expire-lease", uuid4(), code=3)


async def test_jobs_get_another_priority(cli: Cli, hf: Holdfast, conn: asyncpg.Connection) -> None:
    jobs = [await hf.enqueue("add", {}) for _ in range(2)]
    await cli("jobs", "reprioritize", *(job.id for job in jobs), "--priority", 5, "--reason", "urgent")
    await conn.execute("select execute_requests(100)")
    assert [(await hf.get(job)).priority for job in jobs] == [5, 5]
    await cli("jobs", "reprioritize", jobs[0].id, "--priority", -1, code=2)
    await cli("jobs", "reprioritize", jobs[0].id, code=2)


async def test_attempts_and_what_they_logged(cli: Cli, hf: Holdfast) -> None:
    @hf.job("chatty", retry=RetryPolicy(max_attempts=2, base=0))
    async def chatty(ctx: Context) -> None:
        ctx.logger.warning("attempt %d begins", ctx.attempt)
        raise ValueError(f"attempt {ctx.attempt} is no good")

    job = await chatty.enqueue()
    await hf.run_worker(burst=True, types=["chatty"])
    table = (await cli("jobs", "attempts", job.id)).stdout.splitlines()
    assert [line.split()[:2] for line in table] == [["#", "OUTCOME"], ["1", "failed"], ["2", "failed"]]
    rows = json.loads((await cli("jobs", "attempts", job.id, "-o", "json")).stdout)
    assert [(row["attempt"], row["error_type"]) for row in rows] == [(1, "ValueError"), (2, "ValueError")]
    text = (await cli("jobs", "logs", job.id)).stdout
    for number in (1, 2):
        assert f"attempt {number}, failed (ValueError: attempt {number} is no good)" in text
        assert f"attempt {number} begins" in text
    assert "Traceback" in text
    one = (await cli("jobs", "logs", job.id, "--attempt", 2, "-o", "ndjson")).stdout.splitlines()
    assert ["attempt 2 begins" in json.loads(line)["log_excerpt"] for line in one] == [True]
    silent = await hf.enqueue("add", {})
    assert "nothing was logged" in (await cli("jobs", "logs", silent.id)).stderr
    for command in ("attempts", "logs"):
        await cli("jobs", command, uuid4(), code=3)
