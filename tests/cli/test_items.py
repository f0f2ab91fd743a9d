"""`holdfast jobs items`, and what the command line shows of jobs that remote workers ran."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast
from holdfast.web.server import create_app
from tests.cli.conftest import Cli
from tests.web.remote.conftest import Remote


@pytest.fixture
async def remote(hf: Holdfast) -> AsyncIterator[Remote]:
    transport = httpx.ASGITransport(create_app(hf), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield Remote(client)


async def test_items_are_a_table_of_what_their_data_has(cli: Cli, hf: Holdfast, remote: Remote) -> None:
    ref = await hf.enqueue("work", {})
    job = await remote.one()
    found = [{"key": f"+{n}", "data": {"name": f"Lead {n}", "city": ["x"]}} for n in range(3)]
    await remote.report(job, seq=1, items=found)
    table = (await cli("jobs", "items", ref.id)).stdout.splitlines()
    assert table[0].split() == ["KEY", "CITY", "NAME"]
    assert [line.split()[0] for line in table[1:]] == ["+0", "+1", "+2"]
    assert '["x"]' in table[1]
    await remote.report(job, seq=2, items=[{"key": "odd", "data": 7}], collection="others")
    table = (await cli("jobs", "items", ref.id)).stdout.splitlines()
    assert table[0].split() == ["KEY", "COLLECTION", "DATA"]
    only = await cli("jobs", "items", ref.id, "--collection", "others", "-o", "json")
    (item,) = json.loads(only.stdout)
    assert (item["key"], item["collection"], item["data"]) == ("odd", "others", 7)


async def test_a_table_goes_on_where_it_ended_and_an_export_has_everything(
    cli: Cli, hf: Holdfast, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.items._PAGE", 10)
    monkeypatch.setattr("holdfast.cli.items._TABLE", 20)
    ref = await hf.enqueue("work", {})
    await remote.report(await remote.one(), seq=1, items=[{"key": f"{n:03}", "data": {"n": n}} for n in range(45)])
    keys: list[str] = []
    more: list[str] = []
    while len(keys) < 45:
        page = await cli("jobs", "items", ref.id, *more)
        keys += [line.split()[0] for line in page.stdout.splitlines()[1:]]
        more = page.stderr.removeprefix("more: ").split()
    assert keys == [f"{n:03}" for n in range(45)]
    assert more == []
    lines = (await cli("jobs", "items", ref.id, "-o", "ndjson")).stdout.splitlines()
    assert [json.loads(line)["data"]["n"] for line in lines] == list(range(45))
    assert len(json.loads((await cli("jobs", "items", ref.id, "-o", "json", "--limit", 7)).stdout)) == 7


async def test_a_job_without_items_says_so_and_one_that_does_not_exist_too(cli: Cli, hf: Holdfast) -> None:
    ref = await hf.enqueue("work", {})
    assert "no items" in (await cli("jobs", "items", ref.id)).stderr
    assert json.loads((await cli("jobs", "items", ref.id, "-o", "json")).stdout) == []
    assert "there is no job" in (await cli("jobs", "items", "019a0000-0000-7000-8000-000000000000", code=3)).stderr


async def test_an_export_of_many_items_takes_little_memory(
    hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await hf.enqueue("work", {})
    await conn.execute(
        """
        insert into job_items (job_id, id, tenant, collection, key, data)
        select $1::uuid, n, 'default', ($1::uuid)::text, n::text, to_jsonb(repeat('x', 10000))
        from generate_series(1, 3000) n
        """,
        ref.id,
    )
    from holdfast.cli import items

    written = 0

    def count(record: dict[str, object]) -> None:
        nonlocal written
        written += len(str(record["data"]))

    monkeypatch.setattr(items, "echo_json", count)
    monkeypatch.setattr(items, "Holdfast", lambda: hf_of(hf))
    tracemalloc.start()
    await items._show(ref.id, None, None, None, "ndjson")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert written == 30_000_000
    assert peak < 10_000_000


class hf_of:  # noqa: N801 - stands for the class
    """The open app, as the command opens it."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf

    async def __aenter__(self) -> Holdfast:
        return self._hf

    async def __aexit__(self, *_: object) -> None: ...


async def test_attempts_and_logs_of_both_kinds_of_worker_are_shown(cli: Cli, hf: Holdfast, remote: Remote) -> None:
    ref = await hf.enqueue("work", {})
    error = {"kind": "retryable", "message": "captcha", "type": "Blocked", "traceback": "at page 2", "delay_sec": 0}
    await remote.report(await remote.one(), error=error, log="page 1\npage 2")

    @hf.job("work")
    async def work(ctx: Context) -> None:
        ctx.logger.warning("done in Python")

    await hf.run_worker(burst=True, types=["work"])
    attempts = json.loads((await cli("jobs", "attempts", ref.id, "-o", "json")).stdout)
    assert [(one["outcome"], one["error_type"]) for one in attempts] == [("failed", "Blocked"), ("success", None)]
    assert attempts[0]["worker"] == "remote:open:w1"
    logs = (await cli("jobs", "logs", ref.id)).stdout
    for line in ("attempt 1, failed (Blocked: captcha)", "  page 1", "  page 2", "  at page 2", "attempt 2, success"):
        assert f"{line}\n" in logs
    assert "done in Python" in logs
    assert "remote:open:w1" in (await cli("jobs", "show", ref.id)).stdout
