"""What operators see: the filter language on real jobs, pages in a stable order, and figures."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from holdfast import Context, Fatal, Holdfast, RetryPolicy
from tests.web.test_jobs import is_problem


@pytest.fixture
async def jobs(hf: Holdfast) -> dict[str, str]:
    """Some jobs by name, ended and waiting."""

    @hf.job("report.daily")
    async def report(ctx: Context, n: int, who: str = "ada") -> dict[str, int]:
        return {"pages": n}

    @hf.job("report.broken", retry=RetryPolicy(max_attempts=1))
    async def broken(ctx: Context) -> None:
        raise Fatal("the disk is 100% full")

    made = {
        "one": await hf.enqueue("report.daily", {"n": 1}),
        "two": await hf.enqueue("report.daily", {"n": 2, "who": "bob"}, correlation_id="c", created_by="cron"),
        "dead": await hf.enqueue("report.broken"),
    }
    await hf.run_worker(burst=True)
    made |= {
        "later": await hf.enqueue("mail", {"to": {"name": "ada", "tags": ["a"]}}, delay=3600, priority=5),
        "aimed": await hf.enqueue("mail", {}, target="t_1", queue="bulk", idempotency_key="k"),
        "foreign": await hf.enqueue("mail", {"x": 1}, tenant="acme"),
    }
    return {name: str(ref.id) for name, ref in made.items()}


ALL = "one two dead later aimed foreign"


QUERIES = [
    ("", ALL),
    ("state:success", "one two"),
    ("-state:success", "dead later aimed foreign"),
    ("state:success,dead -type:report.broken", "one two"),
    ("type:report.*", "one two dead"),
    ("type:mail queue:bulk", "aimed"),
    ("target:t_1", "aimed"),
    ("target:t*1", "aimed"),
    ("target:tx1", ""),
    ("tenant:acme OR priority<10", "later foreign"),
    ("correlation:c", "two"),
    ("by:cron", "two"),
    ("key:k", "aimed"),
    ('error:"100% full"', "dead"),
    ("error:100_", ""),
    ("payload.n=2", "two"),
    ("payload.n>1", "two"),
    ("payload.n>=1", "one two"),
    ("payload.to.name=ada", "later"),
    ('payload.n="2"', ""),
    ("result.pages=1", "one"),
    ("bob", "two"),
    ("DISK", "dead"),
    ("attempt=1", "one two dead"),
    ("failures>0", "dead"),
    ("age<1h", ALL),
    ("age>1h", ""),
    ("created>2020-01-01 finished>2020-01-01", "one two dead"),
    ("(state:dead OR queue:bulk) -target:none", "dead aimed"),
    ("payload.n=1'; drop table jobs; --", ""),
    ('"\'; drop table jobs; --"', ""),
]


async def test_the_filter_language_finds(client: httpx.AsyncClient, jobs: dict[str, str]) -> None:
    names = {job_id: name for name, job_id in jobs.items()}
    found: dict[str, list[str]] = {}
    for query, _ in QUERIES:
        answer = await client.get("/ops/jobs", params={"q": query})
        assert answer.status_code == 200, (query, answer.text)
        found[query] = [names[item["id"]] for item in answer.json()["items"]]
    assert found == {
        query: [name for name in reversed(ALL.split()) if name in expected.split()] for query, expected in QUERIES
    }


@pytest.mark.parametrize("query", ["colour:red", "(", "state:ded"])
async def test_what_is_no_query_is_explained(client: httpx.AsyncClient, query: str) -> None:
    assert is_problem(await client.get("/ops/jobs", params={"q": query}), 422, "invalid")["detail"]


@pytest.mark.parametrize("parameters", [{"limit": 0}, {"limit": 501}, {"limit": "x"}, {"cursor": "x"}, {"cursor": "é"}])
async def test_wrong_parameters_are_problems(client: httpx.AsyncClient, parameters: dict[str, Any]) -> None:
    is_problem(await client.get("/ops/jobs", params=parameters), 422, "invalid")


async def test_pages_follow_each_other_while_jobs_come_in(client: httpx.AsyncClient, hf: Holdfast) -> None:
    made = [str(ref.id) for ref in await hf.enqueue_many([("x", {"n": n}) for n in range(25)])]
    seen, cursor = [], None
    while True:
        page = (await client.get("/ops/jobs", params={"limit": 10} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [item["id"] for item in page["items"]]
        await hf.enqueue("x", {"n": -1})
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == sorted(made, reverse=True)


async def test_a_search_says_how_far_back_it_looked(
    client: httpx.AsyncClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.operations.VISITED", 10)
    await hf.enqueue("needle", {})
    await hf.enqueue_many([("hay", {}) for _ in range(15)])
    first = (await client.get("/ops/jobs", params={"q": "type:needle"})).json()
    assert first["items"] == []
    assert first["looked_back_to"]
    second = (await client.get("/ops/jobs", params={"q": "type:needle", "cursor": first["next_cursor"]})).json()
    assert [item["type"] for item in second["items"]] == ["needle"]
    assert (second["next_cursor"], second["looked_back_to"]) == (None, None)


async def test_everything_about_a_job(client: httpx.AsyncClient, jobs: dict[str, str]) -> None:
    job = (await client.get(f"/ops/jobs/{jobs['dead']}")).json()
    assert (job["state"], job["status"], job["last_error"]) == ("dead", "FAILED", "the disk is 100% full")
    (attempt,) = (await client.get(f"/ops/jobs/{jobs['dead']}/attempts")).json()
    assert (attempt["outcome"], attempt["error_message"]) == ("failed", "the disk is 100% full")
    assert (await client.get(f"/ops/jobs/{jobs['dead']}/events")).json() == []
    assert (await client.get(f"/ops/jobs/{jobs['two']}")).json()["payload"] == {"n": 2, "who": "bob"}


async def test_figures_tell_what_stands_where(client: httpx.AsyncClient, jobs: dict[str, str]) -> None:
    assert jobs
    figures = (await client.get("/ops/stats")).json()
    ready = {(s["tenant"], s["queue"], s["type"]): s["ready"] for s in figures["streams"]}
    assert ready == {("acme", "default", "mail"): 1}
    assert (figures["due"], figures["waiting"], figures["dead"]) == (1, 1, 1)


async def test_a_search_walks_an_index_and_stops_when_the_page_is_full(conn: asyncpg.Connection, hf: Holdfast) -> None:
    await hf.enqueue_many([("x", {"n": n}) for n in range(5000)])
    await conn.execute("analyze jobs")
    reads = "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relname = 'jobs'"
    async with conn.transaction():
        before = await conn.fetchval(reads)
        await conn.fetch("""select * from search_jobs('{"text": "1"}', null, null, 50, 100000)""")
        assert await conn.fetchval(reads) - before < 1000
