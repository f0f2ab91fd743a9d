"""Pages of other sites: what a browser sends for them, with cookies, is refused where no key protects."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import httpx
import pytest

from holdfast import Holdfast
from holdfast.model.key import SCOPES
from holdfast.web.routes import create_app
from tests.web.conftest import KeyMaker
from tests.web.test_auth import BODIES, SECURED, call
from tests.web.test_jobs import is_problem

EVIL = "https://evil.example"

#: What browsers send for a page of another site: with a form, with `fetch`, from a sandbox, from another port, and
#: those that do not know `Sec-Fetch-Site`.
FOREIGN: list[dict[str, str]] = [
    {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "http://[oops"},
    {"Origin": ""},
]
OWN: list[dict[str, str]] = [
    {},
    {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:80"},
    {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
]
GUARDED, OPEN = "guarded", "open"


@asynccontextmanager
async def browser(hf: Holdfast, mode: str, host: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    """Somebody whom a guard lets pass, by a cookie; or anybody, where there are no keys."""
    app = create_app(hf, guard=lambda: True, scopes=SCOPES) if mode == GUARDED else create_app(hf)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as caller:
        yield caller


@pytest.mark.parametrize("mode", [GUARDED, OPEN])
async def test_a_foreign_page_can_call_no_route(hf: Holdfast, mode: str) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    async with browser(hf, mode) as caller:
        for (method, path, _), headers in itertools.product(SECURED, FOREIGN):
            is_problem(await call(caller, method, path, job.id, headers), 403, "origin")
        audit = (await caller.get("/ops/audit")).json()["items"]
    assert audit == []
    assert (await hf.get(job)).state == "scheduled"


@pytest.mark.parametrize("mode", [GUARDED, OPEN])
@pytest.mark.parametrize("headers", OWN)
async def test_own_pages_and_programs_can(hf: Holdfast, mode: str, headers: dict[str, str]) -> None:
    async with browser(hf, mode) as caller:
        for method, path in (("post", "/jobs"), ("get", "/ops/jobs"), ("post", "/ops/drain"), ("post", "/ops/resume")):
            answer = await caller.request(method, path, json=BODIES.get((method, path)), headers=headers)
            assert answer.status_code < 300, (method, path, answer.text)


@pytest.mark.parametrize("mode", [GUARDED, OPEN])
async def test_a_link_on_a_foreign_page_can_be_followed(hf: Holdfast, mode: str) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with browser(hf, mode) as caller:
        assert (await caller.get("/ops/jobs", headers=followed)).status_code == 200
        is_problem(await caller.post("/ops/drain", headers=followed), 403, "origin")


async def test_without_keys_a_foreign_page_cannot_show_answers_in_a_frame(hf: Holdfast) -> None:
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with browser(hf, OPEN) as caller:
        for where in ("iframe", "frame", "embed", "object"):
            answer = await caller.get("/ops/jobs", headers={**framed, "Sec-Fetch-Dest": where})
            is_problem(answer, 403, "origin")


async def test_behind_a_proxy_the_guarded_applications_pages_are_its_own(hf: Holdfast) -> None:
    async with browser(hf, GUARDED, "jobs.example") as caller:
        for headers in (
            {"Origin": "https://jobs.example"},  # TLS ends at the proxy
            {"Origin": "https://public.example", "Sec-Fetch-Site": "same-origin"},  # and it writes `Host` anew
        ):
            assert (await caller.post("/ops/drain", headers=headers)).status_code == 200
        for origin in ("https://jobs.example:8443", "https://other.jobs.example"):
            is_problem(await caller.post("/ops/drain", headers={"Origin": origin}), 403, "origin")


async def test_without_keys_the_origin_counts_exactly(hf: Holdfast) -> None:
    async with browser(hf, OPEN, "localhost:8080") as caller:
        assert (await caller.post("/ops/drain", headers={"Origin": "http://localhost:8080"})).status_code == 200
        for origin in ("https://localhost:8080", "http://localhost", "http://127.0.0.1:8080", "http://localhost:8081"):
            is_problem(await caller.post("/ops/drain", headers={"Origin": origin}), 403, "origin")
            site = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
            is_problem(await caller.post("/ops/drain", headers=site), 403, "origin")


async def test_sites_that_are_configured_are_trusted_behind_a_guard_only(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CORS_ORIGINS", "https://App.example, http://localhost:3000")
    async with Holdfast(database_url) as hf:
        for mode, status in ((GUARDED, 200), (OPEN, 403)):
            async with browser(hf, mode) as caller:
                for origin in ("https://app.example", "http://localhost:3000"):
                    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
                    assert (await caller.post("/ops/drain", headers=headers)).status_code == status


async def test_a_key_needs_no_origin(hf: Holdfast, key: KeyMaker) -> None:
    admin = await key("admin")
    async with browser(hf, OPEN) as caller:
        answer = await caller.get(f"/ops/jobs/{uuid4()}", headers=admin | FOREIGN[0])
        assert answer.status_code == 404
