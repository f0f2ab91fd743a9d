"""A worker over HTTP, as tests speak with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.server import create_app
from tests.web.remote.scraping import Scraper


class Remote:
    """A remote worker: its calls answer the parsed body, or the whole response if the server refuses."""

    def __init__(self, client: httpx.AsyncClient, worker_id: str = "w1", headers: dict[str, str] | None = None) -> None:
        self.client, self.worker_id, self.headers = client, worker_id, headers or {}

    async def call(self, verb: str, **body: Any) -> httpx.Response:
        """The response to a call."""
        body = {"worker_id": self.worker_id} | body
        return await self.client.post(f"/worker/{verb}", json=body, headers=self.headers)

    async def good(self, verb: str, **body: Any) -> dict[str, Any]:
        """The answer to a call that is not refused."""
        answer = await self.call(verb, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def pull(self, *types: str, **more: Any) -> list[dict[str, Any]]:
        """Jobs."""
        return list((await self.good("pull", types=list(types or ("work",)), **more))["jobs"])

    async def one(self, *types: str, **more: Any) -> dict[str, Any]:
        """The one job that there is."""
        (job,) = await self.pull(*types, **more)
        return job

    async def report(self, job: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Report about a job."""
        return await self.good("report", job_id=job["job_id"], attempt=job["attempt"], **more)

    async def refused(self, job: dict[str, Any], **more: Any) -> httpx.Response:
        """The response to a report."""
        return await self.call("report", job_id=job["job_id"], attempt=job["attempt"], **more)


@pytest.fixture
def remote(client: httpx.AsyncClient) -> Remote:
    """A worker of a server without keys."""
    return Remote(client)


@pytest.fixture
async def scraped(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """A caller of a server that has the paths of a fleet of before."""
    monkeypatch.setenv("HOLDFAST_PULL_JOB_TYPES", "work, other")
    monkeypatch.setenv("HOLDFAST_PULL_JOB_KEY_HEADER", "X-Internal-Secret")
    async with Holdfast(database_url) as app:
        transport = httpx.ASGITransport(create_app(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client


@pytest.fixture(params=["", ".php"])
def scraper(request: pytest.FixtureRequest, scraped: httpx.AsyncClient) -> Scraper:
    """A scraper, with either way to write the paths."""
    return Scraper(scraped, suffix=request.param)
