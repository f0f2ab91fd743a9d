"""Every situation of a job has a sentence that names the culprit, and only one."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from tests.sql.factories import (
    Lease,
    claim,
    claim_by_id,
    elect,
    enqueue,
    enqueue_many,
    expire,
    job_in,
    make_due,
    publish,
    request,
    run_one,
    settle,
)
from tests.sql.test_steering import register

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


class Asking:
    """The explanations of jobs, with times as `T` and known ids by name."""

    def __init__(self, conn: asyncpg.Connection) -> None:
        self._conn = conn
        self.culprit: Any = None

    async def __call__(self, job_id: UUID, tenant: str | None = None, **names: UUID) -> tuple[str, str]:
        row = await self._conn.fetchrow("select * from explain($1, $2)", job_id, tenant)
        assert row is not None
        sentence = _MOMENT.sub("T", row["sentence"])
        for name, known in {**names, "ID": job_id}.items():
            sentence = sentence.replace(str(known), name)
        unquoted = re.sub(r'"[^"]*"', "", row["sentence"])
        assert unquoted.endswith(".")
        assert unquoted.count(". ") == 0
        assert "\n" not in row["sentence"]
        self.culprit = None if row["culprit"] is None else json.loads(row["culprit"])
        return row["code"], sentence


async def test_explain_of_jobs_that_are_not_queued(conn: asyncpg.Connection) -> None:
    asking = Asking(conn)
    assert await asking(uuid4()) == ("unknown", "There is no job ID.")
    created = await job_in(conn, "created", created_by="ada")
    assert await asking(created) == ("held", "The job is held since T by ada until somebody releases it.")
    assert await asking(created, "another") == ("unknown", "There is no job ID.")
    anonymous = await job_in(conn, "created")
    assert await asking(anonymous) == ("held", "The job is held since T until somebody releases it.")

    scheduled = await job_in(conn, "scheduled")
    assert await asking(scheduled) == ("scheduled", "The job is scheduled for T.")
    assert asking.culprit["kind"] == "time"
    await make_due(conn, scheduled)
    unled = "The job is scheduled for T, but no process does maintenance."
    assert await asking(scheduled) == ("scheduled", unled)
    lapsed = (await run_one(conn)).job_id
    await expire(conn, lapsed)
    told = "The job ran on worker w1, whose lease lapsed at T, but no process does maintenance to take it back."
    assert await asking(lapsed) == ("lapsed", told)
    unseated = await enqueue(conn, target="new")
    told = "The job waits to be called to the head of its target, but no process does maintenance."
    assert await asking(unseated) == ("seating", told)
    await request(conn, "pause", unseated)
    asked = await conn.fetchval("select id from jobs where type = 'holdfast.pause'")
    told = "The job is a request, but no process does maintenance to carry it out."
    assert await asking(asked) == ("request", told)
    await conn.execute("select lead('maintenance', 'me', 600)")
    assert await asking(scheduled) == ("scheduled", "The job is scheduled for T, which is now.")
    told = "The job ran on worker w1, whose lease lapsed at T, and is taken back by the next sweep."
    assert await asking(lapsed) == ("lapsed", told)
    assert await asking(unseated) == ("seating", "The job is called to the head of its target in a moment.")
    assert await asking(asked) == ("request", "The job is a request that maintenance carries out in a moment.")

    retry = await job_in(conn, "retry")
    told = 'The job failed 1 of 3 times, last with "boom", and runs again at T.'
    assert await asking(retry) == ("retry", told)
    snoozed = await run_one(conn)
    await settle(conn, "snooze", [snoozed], delays=[60.0])
    assert await asking(snoozed.job_id) == ("snoozed", "The job was put off by its handler until T.")
    paused = await enqueue(conn)
    await request(conn, "pause", paused, by="ada", note="the disk is full. Wait!\nMore tomorrow.")
    await conn.execute("select execute_requests()")
    told = 'The job was paused by ada at T ("the disk is full. Wait!") until somebody resumes it.'
    assert await asking(paused) == ("paused", told)
    assert asking.culprit["by"] == "ada"
    error = await job_in(conn, "error")
    told = 'The job failed with "boom" at T and is held until somebody resumes or resolves it.'
    assert await asking(error) == ("error", told)

    running = (await run_one(conn)).job_id
    assert await asking(running) == ("running", "The job runs on worker w1 since T.")
    await request(conn, "cancel", running, by="ada", note="wrong")
    told = 'The job runs on worker w1 since T and was told to cancel by ada ("wrong").'
    assert await asking(running) == ("interrupted", told)
    await conn.execute("delete from leases where job_id = $1", running)
    assert await asking(running) == ("misplaced", "The job runs without a lease, which maintenance mends.")

    assert await asking(await job_in(conn, "success")) == ("ended", "The job succeeded at T.")
    assert await asking(await job_in(conn, "dead")) == ("ended", 'The job died at T of "boom".')
    canceled = await enqueue(conn)
    await request(conn, "cancel", canceled, by="bob")
    await conn.execute("select execute_requests(100)")
    assert await asking(canceled) == ("ended", "The job was canceled by bob at T.")


async def test_explain_of_jobs_behind_the_head_of_their_target(conn: asyncpg.Connection) -> None:
    asking = Asking(conn)
    head = await enqueue(conn, target="t")
    await elect(conn)
    job = await enqueue(conn, target="t")
    await elect(conn)
    behind = 'The job waits behind job HEAD of its target "t", which '
    await conn.execute("select pause_subject('queue', 'default', 'ada')")
    told = behind + 'waits because its queue "default" was paused by ada at T.'
    assert await asking(job, HEAD=head) == ("target", told)
    await conn.execute("select resume_subject('queue', 'default', 'ada')")
    lease = await claim_by_id(conn, head)
    assert lease is not None
    assert await asking(job, HEAD=head) == ("target", behind + "runs on worker w1 since T.")
    await settle(conn, "fail", [lease], kinds=["retryable"], error_messages=["100% full"])
    told = behind + 'failed 1 of 3 times, last with "100% full", and runs again at T.'
    assert await asking(job, HEAD=head) == ("target", told)
    await request(conn, "pause", head, by="ada")
    await conn.execute("select execute_requests()")
    told = behind + "was paused by ada at T until somebody resumes it."
    assert await asking(job, HEAD=head) == ("target", told)
    assert (asking.culprit["id"], asking.culprit["state"], asking.culprit["culprit"]["by"]) == (
        str(head), "paused", "ada")  # fmt: skip


async def test_why_a_queued_job_does_not_start(conn: asyncpg.Connection) -> None:
    asking = Asking(conn)
    job = await enqueue(conn, tenant="acme", queue="post")
    waits = "The job waits because "
    scopes = {"lane": "general", "type": "work", "queue": "post", "tenant": "acme", "everything": ""}
    for kind, name in scopes.items():
        await conn.execute("select pause_subject($1, $2, 'ada', 'because')", kind, name)
        what = "claiming was stopped everywhere" if not name else f'its {kind} "{name}" was paused'
        assert await asking(job) == (f"{kind}-paused", f'{waits}{what} by ada at T ("because").')
        assert (asking.culprit["kind"], asking.culprit["name"], asking.culprit["by"]) == (kind, name, "ada")
    await conn.execute("select resume_subject(c.kind, c.name, 'ada') from list_steering() c")

    assert await asking(job) == ("no-worker", f"{waits}no worker is alive.")
    await register(conn, "w1", "other", queues=["other"], lanes={"fast": 1, "general": 0})
    assert await asking(job) == ("type-unserved", f'{waits}no live worker knows its type "work".')
    await conn.execute("update workers set types = '{work}'")
    told = f'{waits}no live worker that knows its type serves its queue "post".'
    assert await asking(job) == ("queue-unserved", told)
    await conn.execute("update workers set queues = '{post}', tenants = '{other}'")
    told = f'{waits}no live worker that knows its type serves its tenant "acme".'
    assert await asking(job) == ("tenant-unserved", told)
    await conn.execute("update workers set tenants = '{acme}'")
    told = f"{waits}no live worker that knows its type has slots for its lane general."
    assert await asking(job) == ("lane-unserved", told)
    await conn.execute("""update workers set lanes = '{"general": 1}', draining = true""")
    assert await asking(job) == ("draining", f"{waits}every live worker that could run it drains.")
    await conn.execute("update workers set draining = false, tenants = null, queues = null, types = '{work,fast}'")
    assert await asking(job) == ("starting", "The job will start in a moment.")

    await enqueue_many(conn, [("work", {}, {"priority": 1})] * 2, tenant="acme")
    await enqueue(conn, "unknown", tenant="acme", priority=1)
    assert await asking(job) == ("behind", f"{waits}2 jobs of its tenant stand before it.")
    # Whatever its priority, a job of another tenant does not stand before it.
    await enqueue(conn, priority=0)
    share = "; 1 other tenant shares the slots by weight."
    assert await asking(job) == ("behind", f"{waits}2 jobs of its tenant stand before it{share}")
    running = (await run_one(conn, priority=0)).job_id
    told = f"{waits}the one slot of the worker that may run it is busy and 2 jobs of its tenant stand before it{share}"
    assert await asking(job) == ("busy", told)
    # A fast job takes a fast slot, and leaves the general one free.
    await publish(conn, "fast", lane="fast")
    await conn.execute("""update workers set lanes = '{"general": 2, "fast": 1}'""")
    await run_one(conn, "fast")
    assert (await asking(job))[0] == "behind"
    await run_one(conn, "fast")
    told = (
        f"{waits}all 2 slots of the workers that may run it (1 alive) are busy and 2 jobs of its tenant stand before it"
    )
    assert await asking(job) == ("busy", told + share)
    assert (asking.culprit["slots"], asking.culprit["before"], asking.culprit["tenants"]) == (2, 2, 1)
    # A tenant learns nothing of others, nor of how large the installation is.
    told = f"{waits}the workers that may run it are busy and 2 jobs of its tenant stand before it."
    assert await asking(job, "acme") == ("busy", told)
    assert asking.culprit == {"kind": "lane", "name": "general", "before": 2}
    await conn.execute("update workers set lanes = lanes || '{\"general\": 9}'")
    assert await asking(job, "acme") == ("behind", f"{waits}2 jobs of its tenant stand before it.")
    # What is shut stands in nobody's way.
    await enqueue(conn, tenant="acme", queue="post", priority=1)
    assert await asking(job) == ("behind", f"{waits}3 jobs of its tenant stand before it{share}")
    await conn.execute("select pause_subject('tenant', 'default', 'ada')")
    assert await asking(job) == ("behind", f"{waits}3 jobs of its tenant stand before it.")
    await conn.execute("select set_limit('queue', 'default', 0, null, null, 'ada')")
    for tenant in (None, "acme"):
        assert await asking(job, tenant) == ("behind", f"{waits}1 job of its tenant stands before it.")
    await conn.execute("select resume_subject('tenant', 'default', 'ada')")
    await conn.execute("select set_limit('queue', 'default', null, null, null, 'ada')")
    await enqueue_many(conn, [("work", {}, {"priority": 2})] * 10_000, tenant="acme")
    assert "more than 10000 jobs of its tenant stand before it" in (await asking(job))[1]
    for stream in ("default", "post"):
        await conn.execute("delete from ready using jobs where id = job_id and id <> $1 and queue = $2", job, stream)
    assert await asking(job) == ("starting", "The job will start in a moment.")
    await conn.execute("delete from ready where job_id = $1", job)
    assert (await asking(job))[0] == "misplaced"
    assert (await asking(running))[0] == "running"


async def test_which_limit_is_reached(conn: asyncpg.Connection) -> None:
    asking = Asking(conn)
    await register(conn, "w1", "work", "keyed")
    waits = "The job waits because the "
    for kind, name in (("queue", "post"), ("tenant", "acme"), ("type", "work")):
        running = await enqueue_many(conn, [("work", {}, {"queue": "post"})] * 2, tenant="acme")
        for row in running:
            assert await claim_by_id(conn, row["job_id"]) is not None
        job = await enqueue(conn, tenant="acme", queue="post")
        # What ran before the limit was set counts.
        await conn.execute("select set_limit($1, $2, 2, null, null, 'ada')", kind, name)
        assert await asking(job) == ("limit", f'{waits}limit of its {kind} "{name}" is reached: 2 of 2 run.')
        assert (asking.culprit["kind"], asking.culprit["name"], asking.culprit["limit"]) == (kind, name, 2)
        assert await claim_by_id(conn, job) is None
        await conn.execute("select set_limit($1, $2, null, 2, 60, 'ada')", kind, name)
        assert (await asking(job))[0] == "starting"
        for _ in range(2):
            assert len(await claim(conn, tenants=["acme"])) == 1
            await enqueue(conn, tenant="acme", queue="post")
        late = await enqueue(conn, tenant="acme", queue="post")
        told = f'{waits}rate of its {kind} "{name}", 2/min, is used up: the next may start at T.'
        assert await asking(late) == ("rate", told)
        await conn.execute("select set_limit($1, $2, null, null, null, 'ada')", kind, name)
        leases = await claim(conn, limit=100)
        await settle(
            conn,
            "complete",
            [
                *leases,
                *[
                    Lease(*row)
                    for row in await conn.fetch(
                        "select job_id, attempt from leases where not job_id = any ($1)",
                        [lease.job_id for lease in leases],
                    )
                ],
            ],
        )

    await publish(conn, "keyed", limit_count=1, limit_key="who")
    first = await enqueue(conn, "keyed", {"who": "ada"})
    second = await enqueue(conn, "keyed", {"who": "ada"})
    other = await enqueue(conn, "keyed", {"who": "bob"})
    assert await claim_by_id(conn, first) is not None
    assert await claim(conn, "keyed", limit=1) == [Lease(other, 1)]
    told = f'{waits}limit of its type "keyed" for "ada" is reached: 1 of 1 run.'
    assert await asking(second) == ("limit", told)
    # Jobs without the field share a permit of their own: those that run for others do not count.
    code, _ = await asking(await enqueue(conn, "keyed"))
    assert code != "limit"
    assert await conn.fetchval("select count(*) from parked") == 1
    await conn.execute("delete from permits where job_id = $1", first)
    assert (await asking(second))[0] == "starting"
