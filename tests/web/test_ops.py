"""What operators see: the filter language on real jobs, pages in a stable order, and figures."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from holdfast import Context, Fatal, Holdfast, RetryPolicy
from holdfast.errors import DatabaseBusy
from holdfast.model.query import parse_query
from holdfast.store import browse
from tests.harness.waiting import WAITED_FOR
from tests.sql.factories import job_in
from tests.web.conftest import KeyMaker
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
    ("error:disk*full", "dead"),
    ('error:"disk*full"', ""),
    ('type:"report.*"', ""),
    ('type:"mail"', "later aimed foreign"),
    ("created:TODAY", ALL),
    ("created<=TODAY created>=TODAY", ALL),
    ("created>TODAY", ""),
    ("created:YESTERDAY", ""),
    ("-created:TODAY", ""),
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
    ("running<1h OR running>0s", ""),
    ("created>2020-01-01 finished>2020-01-01", "one two dead"),
    ("(state:dead OR queue:bulk) -target:none", "dead aimed"),
    ("payload.n=1'; drop table jobs; --", ""),
    ('"\'; drop table jobs; --"', ""),
]


async def test_the_filter_language_finds(client: httpx.AsyncClient, jobs: dict[str, str]) -> None:
    names = {job_id: name for name, job_id in jobs.items()}
    found: dict[str, list[str]] = {}
    today = datetime.fromisoformat((await client.get(f"/ops/jobs/{jobs['one']}")).json()["created_at"]).date()
    for query, _ in QUERIES:
        dated = query.replace("TODAY", str(today)).replace("YESTERDAY", str(today - timedelta(days=1)))
        answer = await client.get("/ops/jobs", params={"q": dated})
        assert answer.status_code == 200, (query, answer.text)
        found[query] = [names[item["id"]] for item in answer.json()["items"]]
    assert found == {
        query: [name for name in reversed(ALL.split()) if name in expected.split()] for query, expected in QUERIES
    }


async def test_jobs_that_run_for_long_are_found(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    """By how long their attempt runs: neither their age nor how long they waited counts, nor what an ended job took."""
    long, short, ended = [await job_in(conn, state, "work") for state in ("running", "running", "success")]
    await conn.execute("update jobs set started_at = now() - interval '2 hours' where id = any ($1)", [long, ended])
    await conn.execute("update jobs set created_at = now() - interval '3 hours' where id = $1", short)
    for query, expected in (("running>1h", [long]), ("running<1h", [short]), ("-running>1h", [ended, short])):
        answer = await client.get("/ops/jobs", params={"q": query})
        assert [item["id"] for item in answer.json()["items"]] == [str(job) for job in expected], query


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("payload.n=1111111111111111", "a"),
        ("payload.n=111111111111111112", "b"),
        ("payload.n>1111111111111111", "b c"),
        ("payload.n>=111111111111111113", "c"),
        ("payload.n<1111111111111111.5", "a x"),
        ("payload.n>1e3", "a b c"),
        ("payload.n=1111111111111111e0", "a"),
        ("payload.n=11111111111111111.2E1", "b"),
        ("payload.n<1e-3", ""),
        ("payload.n=0.1000000000000000055511151231257827", ""),
        ("payload.n=0.1", "x"),
        ("payload.n=100e-3", "x"),
        ("payload.n<1e4300", "a b c x"),
        ('payload.n="1111111111111111"', "t"),
        ("-payload.n>1e3", "x t"),
    ],
)
async def test_numbers_are_compared_with_all_their_digits(
    client: httpx.AsyncClient, hf: Holdfast, query: str, found: str
) -> None:
    numbers = {
        "a": 1111111111111111,
        "b": 111111111111111112,
        "c": 111111111111111113,
        "x": 0.1,
        "t": "1111111111111111",
    }
    jobs = {str((await hf.enqueue("mail", {"n": number})).id): name for name, number in numbers.items()}
    answer = await client.get("/ops/jobs", params={"q": query})
    assert answer.status_code == 200, answer.text
    assert [jobs[item["id"]] for item in answer.json()["items"]][::-1] == found.split()


@pytest.mark.parametrize("number", ['"1; drop"', '"1e10000"', '"NaN"', "null", '"1.e"'])
async def test_the_engine_refuses_what_is_not_a_number(conn: asyncpg.Connection, number: str) -> None:
    tree = f'{{"json": "payload", "path": ["n"], "op": "=", "number": {number}}}'
    with pytest.raises(asyncpg.PostgresError) as fault:
        await conn.fetchval("select cardinality(ids) from holdfast.search_jobs($1)", tree)
    assert fault.value.sqlstate == "HF002"


@pytest.mark.parametrize("query", ["colour:red", "(", "state:ded", "payload.commit=12e45678"])
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


async def test_every_list_comes_in_pages_of_a_stable_order(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin = await key("admin")
    job = await hf.enqueue("x", {}, delay=3600)
    for _ in range(6):
        await key("read")
    await conn.execute(
        "insert into job_attempts (job_id, attempt, started_at, outcome, worker)"
        " select $1, n, now(), 'failed', 'w' from generate_series(1, 7) n", job.id)  # fmt: skip
    await conn.execute(
        "insert into job_events (job_id, event, note) select $1, 'paused', n::text from generate_series(1, 7) n", job.id
    )
    for path in (f"/ops/jobs/{job.id}/attempts", f"/ops/jobs/{job.id}/events", "/ops/keys", "/ops/audit"):
        whole = (await client.get(path, params={"limit": 7}, headers=admin)).json()
        assert (len(whole["items"]), whole["next_cursor"]) == (7, None), path
        assert [item async for item in _pages(client, path, 2, admin)] == whole["items"]
        for wrong in ("x", "é", "LTE", cursor(2**70), cursor(-1)):
            is_problem(await client.get(path, params={"cursor": wrong}, headers=admin), 422, "invalid")


async def _pages(client: httpx.AsyncClient, path: str, limit: int, headers: dict[str, str]) -> AsyncIterator[Any]:
    following: dict[str, str] = {}
    while True:
        page = (await client.get(path, params={"limit": limit, **following}, headers=headers)).json()
        assert 0 < len(page["items"]) <= limit
        for item in page["items"]:
            yield item
        if page["next_cursor"] is None:
            return
        following = {"cursor": page["next_cursor"]}


def cursor(position: object) -> str:
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


async def test_pages_tell_nothing_of_other_tenants(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.operations.VISITED", 3)
    mine: list[UUID] = []
    for _ in range(8):
        await hf.enqueue_many([("hay", {}) for _ in range(5)])
        mine.append((await hf.enqueue("hay", {}, tenant="mine")).id)
    await hf.enqueue_many([("hay", {}) for _ in range(5)])
    moments = [(await hf.get(job)).created_at for job in mine]
    operator = await key("operate", tenant="mine")
    for query, limit, found in (("", 50, mine), ("", 1, mine), ("type:needle", 50, [])):
        following: dict[str, str] = {}
        seen, told = [], 0
        while True:
            params: dict[str, Any] = {"q": query, "limit": limit, **following}
            page = (await client.get("/ops/jobs", params=params, headers=operator)).json()
            seen += [UUID(item["id"]) for item in page["items"]]
            if page["next_cursor"] is None:
                assert page["looked_back_to"] is None
                break
            told += 1
            following = {"cursor": page["next_cursor"]}
            where = UUID(base64.urlsafe_b64decode(page["next_cursor"] + "==").decode())
            assert where in mine
            assert datetime.fromisoformat(page["looked_back_to"]) == moments[mine.index(where)]
        assert told == (8 if limit == 1 else 2)
        assert seen == sorted(found, reverse=True)


async def test_who_searches_keeps_nobody_from_keys_and_single_jobs(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.turns._TURN_SECONDS", 0.1)
    job = await hf.enqueue("x", {})
    await conn.execute(
        "create or replace function query_condition(tree jsonb) returns text immutable language sql"
        " as $$ select 'pg_advisory_xact_lock_shared(4711) is not null' $$"
    )
    blocked = f"select count(*) from {WAITED_FOR} where locktype = 'advisory' and objid = 4711"
    async with conn.transaction(), asyncio.timeout(20):
        await conn.execute("select pg_advisory_xact_lock(4711)")
        searches = [asyncio.create_task(client.get("/ops/jobs")) for _ in range(8)]
        while await conn.fetchval(blocked) < 2:
            await asyncio.sleep(0.01)
        keys = (await hf.operations()).keys
        made, _ = await keys.create("made meanwhile", scopes=["admin"], by="a test")
        assert (await (await hf.operations()).job(job.id)).id == job.id
        await keys.revoke(made.id, by="a test")
        # Lists do not wait for searches, and what is decided waits for nobody.
        ops = await hf.operations()
        for listed in (ops.queues, ops.types, ops.lanes, ops.tenants, ops.targets, partial(ops.explain, job.id)):
            await listed()
        assert await ops.pause("queue", "q", by="a test")
        assert (await ops.subject("queue", "q")).paused_by == "a test"
        refused, _ = await asyncio.wait(searches, return_when=asyncio.FIRST_COMPLETED)
        while len(refused) < 6:
            refused |= (await asyncio.wait(set(searches) - refused, return_when=asyncio.FIRST_COMPLETED))[0]
        for search in refused:
            problem = is_problem(search.result(), 503, "unavailable")
            assert "too many searches" in problem["detail"]
            assert int(search.result().headers["retry-after"]) > 0
        assert await conn.fetchval(blocked) == 2
    answers = await asyncio.gather(*(set(searches) - refused))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert (await (await hf.operations()).search("")).jobs[0].id == job.id


async def test_a_search_that_takes_too_long_ends_in_the_database_too(
    hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hf.enqueue("x", {})
    await conn.execute(
        "create or replace function query_condition(tree jsonb) returns text immutable language sql"
        " as $$ select 'pg_sleep(60) is not null' $$"
    )
    operations = await hf.operations()
    monkeypatch.setattr("holdfast.client.turns._SEARCH_SECONDS", 0.3)
    with pytest.raises(DatabaseBusy):
        await operations.search("")
    running = (
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
        " and pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(10):
        while await conn.fetchval(running):
            await asyncio.sleep(0.05)


async def test_what_is_searched_for_is_not_in_the_servers_log(
    hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when the server ends a search, nor when its client does, nor when it fails."""
    await hf.enqueue("x", {"n": 1})
    log = Path(await conn.fetchval("show data_directory")).parent / "server.log"
    begins = log.stat().st_size if log.exists() else 0
    term = "s3cret"
    query = f'type:{term},x* OR -{term} attempt<5 OR payload.{term}={term} result.a>"{term}" error:{term}*'
    tree = json.dumps(parse_query(query))
    searching = "select * from search_jobs($1, null, null, 50, 1000)"
    (found,) = await conn.fetch(searching, tree)
    assert len(found["ids"]) == 1
    with pytest.raises(asyncpg.PostgresError) as failed:
        await conn.fetch(searching, json.dumps({"and": [json.loads(tree), _moment("2020-13-41")]}))
    await conn.execute(
        "create or replace function like_escaped(value text) returns text language plpgsql volatile"
        " as $$ begin perform pg_sleep(60); return value; end $$"
    )
    async with conn.transaction():
        await conn.execute("set local statement_timeout = '100ms'")
        with pytest.raises(asyncpg.QueryCanceledError) as ended:
            async with conn.transaction():
                await conn.fetch(searching, tree)
    for fault in (failed.value, ended.value):
        assert "search_jobs" in str(fault.context)
        assert term not in f"{fault} {fault.context} {fault.detail} {fault.internal_query}"
    monkeypatch.setattr("holdfast.client.turns._SEARCH_SECONDS", 0.3)
    with pytest.raises(DatabaseBusy):
        await (await hf.operations()).search(query)
    if log.exists():
        with log.open() as lines:
            lines.seek(begins)
            assert term not in lines.read()


def _moment(text: str) -> dict[str, Any]:
    return {"field": "created", "op": ">", "value": text}


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
    (attempt,) = (await client.get(f"/ops/jobs/{jobs['dead']}/attempts")).json()["items"]
    assert (attempt["outcome"], attempt["error_message"]) == ("failed", "the disk is 100% full")
    assert (await client.get(f"/ops/jobs/{jobs['dead']}/events")).json() == {"items": [], "next_cursor": None}
    assert (await client.get(f"/ops/jobs/{jobs['two']}")).json()["payload"] == {"n": 2, "who": "bob"}


async def test_figures_tell_what_stands_where(client: httpx.AsyncClient, jobs: dict[str, str]) -> None:
    assert jobs
    figures = (await client.get("/ops/stats")).json()
    ready = {(s["tenant"], s["queue"], s["type"]): s["ready"] for s in figures["streams"]}
    assert ready == {("acme", "default", "mail"): 1}
    assert (figures["due"], figures["waiting"], figures["dead"]) == (1, 1, 1)
    assert figures["more_streams"] is False


async def test_figures_are_those_of_the_busiest_streams(
    client: httpx.AsyncClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "_STREAMS", 2)
    await hf.enqueue_many([(name, {}) for name in ("a", "b", "c", "c", "b", "c")])
    figures = (await client.get("/ops/stats")).json()
    assert [(s["type"], s["ready"]) for s in figures["streams"]] == [("c", 3), ("b", 2)]
    assert figures["more_streams"] is True


async def test_a_search_walks_an_index_and_stops_when_the_page_is_full(conn: asyncpg.Connection, hf: Holdfast) -> None:
    await hf.enqueue_many([("x", {"n": n}) for n in range(5000)])
    await conn.execute("analyze jobs")
    reads = "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relname = 'jobs'"
    async with conn.transaction():
        before = await conn.fetchval(reads)
        await conn.fetch("""select * from search_jobs('{"text": "1"}', null, null, 50, 100000)""")
        assert await conn.fetchval(reads) - before < 1000
