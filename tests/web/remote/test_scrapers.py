"""The paths of a fleet of before: what its scrapers send, and what they are told."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.web.description import describe
from holdfast.web.remote.scraper_shapes import Handle
from tests.sql.factories import offences
from tests.web.conftest import KeyMaker
from tests.web.remote.scraping import Scraper
from tests.web.test_jobs import is_problem


async def items_of(conn: asyncpg.Connection) -> dict[str, Any]:
    return {row["key"]: row["data"] for row in await conn.fetch("select key, data::text from job_items")}


async def test_the_paths_exist_only_if_they_are_switched_on(client: httpx.AsyncClient) -> None:
    for method, path in (("GET", "/api/pull_job"), ("POST", "/api/report_results.php")):
        assert (await client.request(method, path, json={})).status_code == 404


def test_the_description_has_them_once_each(scraped: httpx.AsyncClient) -> None:
    paths = describe(scraped._transport.app)["paths"]  # type: ignore[attr-defined]
    ours = {path: verbs for path, verbs in paths.items() if path.startswith("/api/")}
    assert set(ours) == {"/api/pull_job", "/api/report_results"}
    assert {operation["x-scope"] for verbs in ours.values() for operation in verbs.values()} == {"work"}
    assert {operation["operationId"] for verbs in ours.values() for operation in verbs.values()} == {
        "scrapers_pull_job", "scrapers_report_results",
    }  # fmt: skip


async def test_only_the_types_and_queues_of_the_settings_are_handed_out(
    hf: Holdfast, database_url: str, monkeypatch: pytest.MonkeyPatch, scraper: Scraper
) -> None:
    await hf.enqueue("foreign", {})
    assert await scraper.pull() is None
    await hf.enqueue("other", {}, queue="slow")
    assert (await scraper.one())["queue"] == "slow"
    with pytest.raises(ConfigError, match="PULL_JOB_TYPES"):
        Config.load({"HOLDFAST_PULL_JOB_TYPES": "work,,other"})


async def test_every_report_counts_although_none_has_a_number(
    hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("work", {})
    job = await scraper.one()
    for page in range(5):
        told = await scraper.report(job, items=[{"phone": str(page)}, {"phone": "0"}], cursor=page)
    assert (told["progress_count"], told["result_count"]) == (10, 5)
    told = await scraper.report(job, items=[{"phone": "last"}], error="captcha")
    assert (told["status"], told["result_count"]) == ("queued", 6), "what came with the error is kept"
    assert await offences(conn) == []


async def test_a_report_of_a_job_that_its_attempt_has_ended_is_told_so(hf: Holdfast, scraper: Scraper) -> None:
    """The answer was lost, and the scraper sends the same again, or one more page: it knows no other way to go on."""
    await hf.enqueue("work", {}, target_count=1)
    job = await scraper.one()
    page = {"items": [{"phone": "1"}], "cursor": 1}
    assert (await scraper.report(job, **page))["done"] is True
    again = await scraper.report(job, **page)
    assert (again["ok"], again["done"], again["duplicate"]) == (True, True, True)
    await hf.enqueue("work", {})
    job = await scraper.one()
    assert (await scraper.report(job, **page, done=True))["duplicate"] is False
    assert (await scraper.report(job, **page, done=True))["duplicate"] is True


async def test_a_scraper_that_has_failed_cannot_report_success_afterwards(hf: Holdfast, scraper: Scraper) -> None:
    await hf.enqueue("work", {})
    job = await scraper.one()
    await scraper.report(job, error="no")
    is_problem(await scraper.send(job, done=True), 409, "already-reported")


async def test_a_canceled_job_is_over_for_scrapers_that_know_nothing_of_directives(
    hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection
) -> None:
    ref = await hf.enqueue("work", {})
    job = await scraper.one()
    await hf.cancel(ref)
    told = await scraper.report(job, cursor=1)
    assert (told["done"], told["directive"], told["status"]) == (True, "cancel", "processing")


async def test_items_are_identified_by_the_field_of_the_setting(
    hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("work", {})
    found = [{"phone": " +1 555 "}, {"phone": 1555}, {"phone": ""}, {"phone": None}, {"name": "x"}, "text"]
    told = await scraper.report(await scraper.one(), items=found)
    assert told["result_count"] == len(found)
    stored = await items_of(conn)
    assert {"+1 555", "1555"} < set(stored)
    assert stored["+1 555"] == '{"phone": " +1 555 "}', "the data is as it was sent"


@pytest.mark.parametrize(
    ("item", "pointer"),
    [({"phone": "x" * 256}, "/items/1/phone"), ({"phone": "a\x00"}, "/items/1/phone"), ({"n": "\x00"}, "/items/1")],
)
async def test_a_bad_item_is_pointed_at_where_the_scraper_has_it(
    hf: Holdfast, scraper: Scraper, item: dict[str, Any], pointer: str
) -> None:
    await hf.enqueue("work", {})
    refused = await scraper.send(await scraper.one(), items=[{"phone": "1"}, item])
    is_problem(refused, 422, "invalid")
    assert refused.json()["errors"][0]["pointer"] == pointer


async def test_what_scrapers_send_beside_is_ignored_and_lengths_are_brought_within_bounds(
    hf: Holdfast, scraper: Scraper
) -> None:
    await hf.enqueue("work", {})
    job = await scraper.one(lease_sec=100_000, debug=1)
    assert job["lease_sec"] == 3600
    body = {"attempt_id": "a", "category_id": 7, "cursor": 0, "error": "", "log": None, "extend_lease_sec": "0"}
    told = await scraper.report(job, done=0, **body)
    assert (told["status"], told["done"]) == ("processing", False)
    assert (await scraper.report(job, error="broken \ud800"))["status"] == "queued"


async def test_the_payload_stands_beside_the_columns_and_cannot_replace_them(hf: Holdfast, scraper: Scraper) -> None:
    payload = {"query": "q", "job_id": "mine", "cursor": "mine", "payload": 1}
    await hf.enqueue("work", payload)
    job = await scraper.one()
    assert (job["query"], job["cursor"], job["payload"]) == ("q", None, payload)
    assert job["job_id"] == job["id"] != "mine"


@pytest.mark.parametrize("job_id", ["", "1", "A" * 28, "ü" * 30, "A" * 300, "=" * 28, 7, None])
async def test_an_id_that_was_not_handed_out_is_refused(scraper: Scraper, job_id: Any) -> None:
    is_problem(await scraper.send({"job_id": job_id}, done=True), 422, "invalid")


async def test_a_scraper_without_a_name_is_known_by_its_address(
    hf: Holdfast, scraper: Scraper, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("work", {})
    nameless = Scraper(scraper.client, None, scraper.suffix)
    job = await nameless.one()
    strange = Scraper(scraper.client, "wörker nr. 1", scraper.suffix)
    assert (await strange.report(job, done=True))["status"] == "done", "who reports is in the id, not in a header"
    assert await conn.fetchval("select worker from job_attempts") == "remote:open:at-127.0.0.1"
    await hf.enqueue("work", {})
    await strange.report(await strange.one(), done=True)
    names = await conn.fetch("select worker from job_attempts where worker like '%nr.-1'")
    assert len(names) == 1


async def test_keys_come_as_everywhere_or_in_the_header_of_the_setting(
    hf: Holdfast, scraper: Scraper, key: KeyMaker
) -> None:
    header = await key("work")
    secret = header["Authorization"].removeprefix("Bearer ")
    await hf.enqueue("work", {})
    path = f"/api/pull_job{scraper.suffix}"
    is_problem(await scraper.client.get(path), 401, "no-key")
    is_problem(await scraper.client.get(path, headers={"X-Internal-Secret": "wrong"}), 401, "bad-key")
    is_problem(await scraper.client.get(path, headers=await key("read")), 403, "scope")
    is_problem(await scraper.client.get("/ops/jobs", headers={"X-Internal-Secret": secret}), 401, "no-key")
    job = await Scraper(scraper.client, "w1", scraper.suffix, **{"X-Internal-Secret": secret}).one()
    other = await key("work")
    is_problem(await Scraper(scraper.client, "w1", scraper.suffix, **other).send(job, done=True), 409, "lease-lost")
    assert (await Scraper(scraper.client, "w1", scraper.suffix, **header).report(job, done=True))["done"] is True


@pytest.mark.parametrize("worker", ["w", "at-::1", "~" * 100])
def test_a_handle_is_read_as_it_was_written(worker: str) -> None:
    handle = Handle(uuid4(), 2**31 - 1, True, worker)
    assert Handle.read(handle.text()) == handle
