"""A row that hand-written SQL has left keeps nobody from reading the others, nor jobs from running."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast
from holdfast.web.loopback import meant_for_loopback
from holdfast.web.server import create_app

#: A text is longer than a page may be (`PAGE_BYTES`).
FAR, HUGE = "'20000-01-01'::timestamptz", "repeat('x', 3200000)"
#: By table: what is planted there for the job {job}.
PLANTS = {
    "jobs": (
        f"update jobs set created_at = {FAR}, updated_at = 'infinity', run_at = '-infinity', started_at = 'infinity',"
        f" finished_at = {FAR}, last_error_at = '4000-01-01 BC', last_error = {HUGE}, created_by = {HUGE},"
        f" reason = {HUGE},"
        " traceparent = repeat('x', 100000), attempt = 2147483647, failures = -5, result = '1e131000',"
        " target_count = 9223372036854775807, payload = (repeat('[', 900) || repeat(']', 900))::jsonb"
        " where id = '{job}'"
    ),
    "job_attempts": (
        "insert into job_attempts select '{job}', n, 'infinity', '-infinity', -1, 2147483647, 'failed',"
        f" repeat('w', 1000), {HUGE}, {HUGE}, {HUGE}, {HUGE} from generate_series(10, 25) n"
    ),
    "job_events": (
        f"insert into job_events (job_id, at, event, by, note) select '{{job}}', {FAR}, 'x', {HUGE}, {HUGE}"
        " from generate_series(1, 3)"
    ),
    "job_items": (
        f"insert into job_items select '{{job}}', n + 100, 'default', 'c', n::text, to_jsonb(repeat('x', 1000000)),"
        f" {FAR} from generate_series(1, 20) n"
    ),
    "job_progress": "update job_progress set last_progress_at = 'infinity' where job_id = '{job}'",
    "controls": (
        "insert into controls (kind, name, paused_at, paused_by, paused_note, updated_at)"
        f" values ('queue', 'odd', {FAR}, {HUGE}, {HUGE}, 'infinity'), ('tenant', 'odd', 'infinity', 'x', 'y', {FAR})"
    ),
    "api_keys": (
        "insert into api_keys (id, tenant, name, prefix, digest, scopes, created_at, last_used_at, revoked_at)"
        f" values (gen_random_uuid(), 'odd', {HUGE}, 'p', '\\x00', '{{{{read}}}}', {FAR}, 'infinity', now())"
    ),
    "audit_log": (
        "insert into audit_log (at, actor, action, detail)"
        f" select {FAR}, {HUGE}, 'x', jsonb_build_object('note', {HUGE}) from generate_series(1, 5)"
    ),
    "job_types": (
        f"insert into job_types (name, queue, updated_at, payload_schema) values ('odd', 'q', {FAR}, to_jsonb({HUGE}))"
    ),
    "workers": (
        "insert into workers (id, host, pid, version, started_at, heartbeat_at, lanes, types)"
        f" values ('odd', {HUGE}, 1, 'v', {FAR}, 'infinity', '[1]', array['x'])"
    ),
}
PATHS = (
    "/ops/jobs", "/ops/jobs/{job}", "/ops/jobs/{job}/attempts?limit=500", "/ops/jobs/{job}/events", "/jobs/{job}",
    "/jobs/{job}/result", "/jobs/{job}/items?limit=1000", "/ops/queues", "/ops/types", "/ops/tenants", "/ops/lanes",
    "/ops/targets", "/ops/keys", "/ops/audit", "/ops/stats", "/ops/drain",
)  # fmt: skip
#: A page of what one job has left behind, with the last thing on it, and JSON around it.
PAGE_BYTES = 3_000_000


@pytest.fixture
async def operator(hf: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    """A caller who needs no key, though there may be some."""
    transport = httpx.ASGITransport(create_app(hf, guard=meant_for_loopback), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as caller:
        yield caller


@pytest.mark.fresh_database
async def test_no_row_breaks_a_read_of_others(
    hf: Holdfast, operator: httpx.AsyncClient, conn: asyncpg.Connection
) -> None:
    @hf.job("work")
    async def work(ctx: Context) -> int:
        await ctx.items([{"key": "a", "data": 1}])
        return 1

    job, other = await work.enqueue(), await work.enqueue()
    await hf.run_worker(burst=True)
    await conn.execute("alter table jobs drop constraint jobs_moments_check")
    await conn.execute("set session_replication_role = replica")
    for table, plant in PLANTS.items():
        await conn.execute(plant.format(job=job.id))
        for path in PATHS:
            answer = await operator.get(path.format(job=job.id))
            assert answer.status_code == 200, (table, path, answer.text)
            assert len(answer.content) < PAGE_BYTES, (table, path)
        assert {found.id for found in await hf.find()} >= {job.id, other.id}
        assert (await hf.get(other)).state == (await hf.get(job)).state == "success"
        await hf.attempts(job)
        await hf.history(job)
        await hf.items(job)
        late = await work.enqueue()
        await conn.execute(f"update ready set ready_at = {FAR}")
        await hf.run_worker(burst=True)
        assert (await hf.get(late)).state == "success", table


DEEP = "(repeat('[', 6000) || repeat(']', 6000))::jsonb"


@pytest.mark.fresh_database
@pytest.mark.parametrize("detail", [f"jsonb_build_object('a', {DEEP})", "'{\"a\": 1e5000}'", DEEP, "'[1]'", "'7'"])
async def test_an_unreadable_detail_is_left_out_and_breaks_no_read_of_the_audit_log(
    hf: Holdfast, operator: httpx.AsyncClient, conn: asyncpg.Connection, detail: str
) -> None:
    await conn.execute("insert into audit_log (actor, action, detail) values ('a', 'before', '{\"b\": 2}')")
    await conn.execute(f"insert into audit_log (actor, action, detail) values ('a', 'odd', {detail})")
    for limit in (1, 2, 50):
        answer = await operator.get("/ops/audit", params={"limit": limit})
        assert answer.status_code == 200, answer.text
    entries = {entry["action"]: entry["detail"] for entry in answer.json()["items"]}
    assert entries == {"before": {"b": 2}, "odd": None}
    found = await (await hf.operations()).keys.audit()
    assert [entry.detail for entry in found] == [None, {"b": 2}]


async def test_an_item_of_too_many_levels_is_replaced_and_breaks_no_read_of_the_others(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    @hf.job("work")
    async def work(ctx: Context) -> None:
        await ctx.items([{"key": key, "data": 1} for key in "abc"])

    job = await work.enqueue()
    await hf.run_worker(burst=True)
    await conn.execute(f"update job_items set data = {DEEP} where key = 'b'")
    items = {item.key: item.data for item in await hf.items(job)}
    assert (items["a"], items["c"]) == (1, 1)
    assert "more levels" in items["b"]["unreadable"]


async def test_an_explanation_is_short_whatever_texts_a_job_has(hf: Holdfast, conn: asyncpg.Connection) -> None:
    held = await hf.enqueue("work", {}, hold=True)
    huge = f"created_by = {HUGE}, last_error = {HUGE}, reason = {HUGE}"
    await conn.execute("set session_replication_role = replica")
    for state in ("created", "scheduled", "retry", "paused", "error", "running", "success", "dead", "canceled"):
        await conn.execute(f"update jobs set state = $2, {huge} where id = $1", held.id, state)
        if state == "running":
            await conn.execute(
                "insert into leases (job_id, stream, attempt, lease_seconds, claimed_at, ready_at, expires_at, worker)"
                f" select id, stream, attempt, 30, now(), now(), now() + interval '1 hour', {HUGE}"
                " from jobs where id = $1",
                held.id,
            )
        row = await conn.fetchrow("select sentence, culprit from explain($1)", held.id)
        assert row is not None
        assert len(row["sentence"]) < 2000, state
        assert len(row["culprit"] or "") < 20_000, state


async def test_a_number_that_nobody_can_read_is_read_nevertheless(
    hf: Holdfast, client: httpx.AsyncClient, conn: asyncpg.Connection
) -> None:
    job = await hf.enqueue("work", {"a": 1}, hold=True)
    await conn.execute("update jobs set payload = jsonb_build_object('a', 1e5000) where id = $1", job.id)
    assert (await hf.get(job)).payload["a"] == 10**5000
    assert '"a": 1000' in (await client.get(f"/ops/jobs/{job.id}")).text
