"""What the control plane tells of requests: figures with the names that others rely on, and events without secrets."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack

import asyncpg
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast.client import keyring
from holdfast.telemetry.events import DatabaseLost, RequestServed
from holdfast.web import auth, figures
from holdfast.web.server import create_app
from tests.lines import Line, over_lines
from tests.web.conftest import KeyMaker

SECONDS = ["0.1", "0.3", "0.5", "1.0", "2.0", "5.0", "10.0", "+Inf"]
BYTES = [f"{1024 * 2**power}.0" for power in range(11)]
#: Type, labels and buckets of every figure, as dashboards know them.
FIGURES = {
    "http_request_duration_seconds": ("histogram", ["method", "route", "status_code"], SECONDS),
    "http_requests": ("counter", ["method", "route", "status_code"], None),
    "upload_size_bytes": ("histogram", ["mime_type"], [*BYTES[:10], "1.048576e+06", "+Inf"]),
    "db_query_duration_seconds": ("histogram", ["operation", "table"], SECONDS),
    "db_query_error": ("counter", ["operation", "table", "error_code"], None),
    "external_duration_seconds": ("histogram", ["service", "operation"], SECONDS),
    "external_error": ("counter", ["service", "operation", "error_code"], None),
}


async def test_every_figure_has_its_name_labels_and_buckets(client: httpx.AsyncClient) -> None:
    await client.post("/jobs", json={"jobType": "x"})
    metrics = client._transport.app.state.holdfast.metrics  # type: ignore[attr-defined]
    for name, (kind, labels, _) in FIGURES.items():
        for collector in metrics.registry._names_to_collectors.values():
            if collector._name == name:
                sample = collector.labels(*labels)
                sample.inc() if kind == "counter" else sample.observe(0.2)
    told = {family.name: family for family in text_string_to_metric_families((await client.get("/metrics")).text)}
    platform = {name for name in told if not name.endswith("_created") and not name.startswith("holdfast_")}
    assert platform == FIGURES.keys()
    for name, (kind, labels, buckets) in FIGURES.items():
        family = told[name]
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        assert family.type == kind
        assert samples
        for sample in samples:
            assert set(sample.labels) - {"le"} == set(labels), sample
        if kind == "counter":
            assert {sample.name for sample in samples} == {f"{name}_total"}
        else:
            assert {sample.name for sample in samples} == {f"{name}_{part}" for part in ("bucket", "count", "sum")}
            steps = list(dict.fromkeys(sample.labels["le"] for sample in samples if "le" in sample.labels))
            assert steps == buckets


async def test_the_figures_of_lanes_are_those_of_all_workers(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("x")
    await conn.execute("set search_path = holdfast")
    for name in ("w1", "w2"):
        lanes = '{"fast": 1, "general": 4}'
        await conn.execute("select enlist_worker($1, 'h', 1, '1', $2::jsonb, array['x'], null, null)", name, lanes)
    await conn.execute("select claim('w1', array['x'])")
    told = (await client.get("/metrics")).text
    for line in (
        'holdfast_lane_slots{lane="general"} 8.0', 'holdfast_lane_running{lane="general"} 1.0',
        'holdfast_lane_used{lane="general"} 1.0', 'holdfast_lane_utilisation{lane="general"} 0.125',
        'holdfast_lane_slots{lane="fast"} 2.0',
    ):  # fmt: skip
        assert line in told


async def test_figures_are_answered_while_the_database_is_away_for_keys_that_were_good_lately(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "_REMEMBER_SECONDS", 0.0)
    async with AsyncExitStack() as stack, AsyncExitStack() as line_alone:
        line = await line_alone.enter_async_context(Line(database_url).running())
        hf = await stack.enter_async_context(Holdfast(over_lines(database_url, line.port)))
        lost: list[DatabaseLost] = []
        hf.events.subscribe(lost.append, DatabaseLost)
        transport = httpx.ASGITransport(create_app(hf))
        client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1"))

        async def told(headers: dict[str, str]) -> tuple[int, str]:
            answer = await client.get("/metrics", headers=headers)
            return answer.status_code, answer.text

        assert (await told({}))[0] == 200
        keys = (await hf.operations()).keys
        _, secret = await keys.create("a scraper", scopes=["metrics"], by="a test")
        _, unseen = await keys.create("another", scopes=["metrics"], by="a test")
        good, other = ({"Authorization": f"Bearer {name}"} for name in (secret, unseen))
        status, page = await told(good)
        assert status == 200
        assert "holdfast_database_up 1.0" in page
        assert 'holdfast_lane_slots{lane="fast"}' in page
        assert (await told({}))[0] == 401

        monkeypatch.setattr(auth, "_PATIENCE_SECONDS", 0.1)
        monkeypatch.setattr(figures, "_LANES_PATIENCE", 0.1)
        line.freeze()
        status, page = await told(good)
        assert (status, "holdfast_database_up 0.0" in page) == (200, True)
        line.thaw()
        await line_alone.aclose()
        status, page = await told(good)
        assert (status, "holdfast_database_up 0.0" in page) == (200, True)
        assert "http_requests_total{" in page
        assert "holdfast_lane_slots{" not in page
        assert re.search(
            r'db_query_error_total{error_code="Connection\w+Error",operation="select",table="api_keys"}', page
        )
        for headers in (other, {}):
            assert (await told(headers))[0] == 503
        assert (await client.get("/ops/jobs", headers=good)).status_code == 503
        # The log tells of it once, and not with every request.
        assert [(event.part, event.away) for event in lost] == [("server", True)]
        ring = (await hf.control()).keyring
        ring._good = {digest: found._replace(lately=found.lately - 600) for digest, found in ring._good.items()}
        assert (await told(good))[0] == 503


async def test_events_tell_who_and_what_and_nothing_that_is_secret(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    heard: list[RequestServed] = []
    hf.on(RequestServed)(heard.append)
    mine = await key("submit", "read", tenant="mine")
    payload = {"jobType": "x", "payload": {"word": "hush"}, "idempotencyKey": "order-4711"}
    job = (await client.post("/jobs", json=payload, headers=mine)).json()["jobId"]
    await client.get(f"/jobs/{job}?word=hush", headers=mine)
    await client.get(f"/jobs/{job}", headers={"Authorization": "Bearer hf_hush"})
    await client.get("/hush")
    await client.get("/livez")
    assert [(told.method, told.route, told.status, told.tenant, told.key) for told in heard] == [
        ("POST", "/jobs", 202, "mine", "a key"),
        ("GET", "/jobs/{job_id}", 200, "mine", "a key"),
        ("GET", "/jobs/{job_id}", 401, None, None),
        ("GET", "unknown", 404, None, None),
    ]
    assert len({told.request_id for told in heard}) == len(heard)
    for told in heard:
        assert 0 < told.duration_seconds < 10
        for secret in ("hush", "order-4711", job, mine["Authorization"].removeprefix("Bearer ")):
            assert secret not in repr(told)
