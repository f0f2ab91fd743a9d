"""A scraper of before, as tests speak with it: it knows the paths and shapes of seed 003's document only."""

from __future__ import annotations

import json
from typing import Any

import httpx

__all__ = ["Scraper"]


class Scraper:
    """Its calls answer the parsed body."""

    def __init__(
        self, client: httpx.AsyncClient, worker_id: str | None = "w1", suffix: str = "", **headers: str
    ) -> None:
        self.client, self.suffix = client, suffix
        named = {} if worker_id is None else {"X-Worker-Id": worker_id}
        self.headers = httpx.Headers({"Content-Type": "application/json", **named, **headers}, encoding="utf-8")

    async def pull(self, **query: Any) -> dict[str, Any] | None:
        """A job."""
        answer = await self.client.get(f"/api/pull_job{self.suffix}", params=query, headers=self.headers)
        assert answer.status_code == 200, answer.text
        job: dict[str, Any] | None = answer.json()["job"]
        return job

    async def one(self, **query: Any) -> dict[str, Any]:
        """The job that there is."""
        job = await self.pull(**query)
        assert job is not None
        return job

    async def send(self, job: dict[str, Any], **body: Any) -> httpx.Response:
        """The response to a report."""
        path, text = f"/api/report_results{self.suffix}", json.dumps({"job_id": job["job_id"]} | body)
        return await self.client.post(path, content=text, headers=self.headers)

    async def report(self, job: dict[str, Any], **body: Any) -> dict[str, Any]:
        """The answer to a report that is not refused."""
        answer = await self.send(job, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())
