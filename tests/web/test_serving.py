"""Apps in one process share their routes, and nothing else: each request is served with the state of its own app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import FunctionType
from uuid import uuid4

import httpx
import pytest
from fastapi.routing import APIRoute

from holdfast import Holdfast
from holdfast.model.key import SCOPES
from holdfast.web.description import describe
from holdfast.web.routes import create_app
from holdfast.web.serving import CURRENT

#: What a route's function may know from when it was made: nothing that changes while requests are served.
UNCHANGING = (str, int, bool, tuple, frozenset, type, FunctionType, type(CURRENT), type(None))


def caller(hf: Holdfast, guard: Callable[..., object] | None = None) -> httpx.AsyncClient:
    app = create_app(hf, guard=guard, scopes=SCOPES)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


@pytest.fixture
async def nowhere() -> AsyncIterator[httpx.AsyncClient]:
    """A caller of an app that has no database."""
    async with caller(Holdfast("postgresql://127.0.0.1:1/nothing")) as nowhere:
        yield nowhere


async def test_a_request_is_served_by_its_own_app_whatever_comes_to_others_meanwhile(
    client: httpx.AsyncClient, nowhere: httpx.AsyncClient
) -> None:
    begun, others = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        begun.set()
        await others.wait()
        yield b"{}"

    path, headers = f"/ops/dead-letters/{uuid4()}/ack", {"Content-Type": "application/json"}
    asked = asyncio.create_task(client.post(path, content=body(), headers=headers))
    await asyncio.wait_for(begun.wait(), 30)
    assert (await nowhere.post(path)).status_code == 503
    others.set()
    assert (await asked).status_code == 404
    page = (await client.get("/metrics")).text
    counted = 'http_requests_total{method="POST",route="/ops/dead-letters/{job_id}/ack"'
    assert f'{counted},status_code="404"}} 1.0' in page
    assert f'{counted},status_code="503"' not in page


async def test_an_app_that_calls_another_goes_on_as_itself(hf: Holdfast, nowhere: httpx.AsyncClient) -> None:
    asked: list[int] = []

    async def guard() -> None:
        asked.append((await nowhere.get("/ops/jobs")).status_code)

    async with caller(hf, guard) as guarded:
        assert (await guarded.get("/ops/jobs")).status_code == 200
    assert asked == [503]


async def test_a_route_keeps_nothing_of_its_own() -> None:
    app = create_app(Holdfast("postgresql://127.0.0.1:1/nothing"))
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path != "/openapi.json"]
    assert len(routes) > 80
    for route in routes:
        kept = [cell.cell_contents for cell in route.endpoint.__closure__ or ()]
        assert not [what for what in kept if not isinstance(what, UNCHANGING)], route.path


def test_the_description_is_the_same_with_a_guard_and_without() -> None:
    hf = Holdfast("postgresql://127.0.0.1:1/nothing")
    assert describe(create_app(hf, guard=lambda: True)) == describe(create_app(hf))
