"""FastAPI and Starlette: the app is open while the application serves, transactions are joined, routes mounted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from holdfast import Context, Holdfast, HoldfastError
from holdfast.integrations.fastapi import CurrentHoldfast, current, lifespan, loopback_only, mount_control_plane

BODY = {"jobType": "add", "payload": {"a": 1, "b": 2}}


@asynccontextmanager
async def serving(
    app: Starlette, *, host: str = "127.0.0.1", caller: str = "127.0.0.1", headers: dict[str, str] | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """An application with its lifespan, as a server runs it, and a client of it."""
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(with_state, client=(caller, 5000), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers) as client:
            yield client


@pytest.fixture
def hf(database_url: str) -> Holdfast:
    app = Holdfast(database_url)

    @app.job("add")
    async def add(ctx: Context, a: int, b: int) -> int:
        return a + b

    return app


async def test_the_app_is_open_while_the_application_serves(hf: Holdfast) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def own(application: FastAPI) -> AsyncIterator[dict[str, Any]]:
        ref = await hf.enqueue("add", {"a": 1, "b": 2})
        steps.append(f"begins with Holdfast open: {ref.state}")
        yield {"greeting": "hello"}
        await hf.get(ref)
        steps.append("ends before Holdfast closes")

    app = FastAPI(lifespan=lifespan(hf, own))

    @app.post("/add")
    async def add(opened: CurrentHoldfast, request: Request) -> dict[str, Any]:
        ref = await opened.enqueue("add", {"a": 1, "b": 2})
        return {"id": str(ref.id), "greeting": request.state.greeting}

    async with serving(app) as client:
        answer = (await client.post("/add")).json()
        assert answer["greeting"] == "hello"
    assert steps == ["begins with Holdfast open: queued", "ends before Holdfast closes"]
    with hf.sync as sync:
        assert sync.get(answer["id"]).state == "queued"


async def test_without_the_lifespan_the_dependency_says_what_is_missing(hf: Holdfast) -> None:
    app = FastAPI(lifespan=lifespan(hf))

    @app.post("/add")
    async def add(opened: CurrentHoldfast) -> None: ...

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        with pytest.raises(HoldfastError, match="with TestClient"):
            await client.post("/add")


async def test_plain_starlette_finds_the_app_too(hf: Holdfast) -> None:
    async def add(request: Request) -> JSONResponse:
        ref = await current(request).enqueue("add", {"a": 1, "b": 2})
        return JSONResponse({"state": ref.state})

    async with serving(Starlette(routes=[Route("/add", add)], lifespan=lifespan(hf))) as client:
        assert (await client.get("/add")).json() == {"state": "queued"}


async def test_a_request_records_its_jobs_with_its_own_transaction(hf: Holdfast, database_url: str) -> None:
    engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"))
    sessions = async_sessionmaker(engine)

    async def session() -> AsyncIterator[AsyncSession]:
        async with sessions.begin() as opened:
            yield opened

    @asynccontextmanager
    async def own(application: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as conn:
            await conn.execute(text("create table orders (id int primary key deferrable initially deferred)"))
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan(hf, own))

    @app.post("/orders/{number}", status_code=202)
    async def place(
        number: int,
        opened: CurrentHoldfast,
        db: AsyncSession = Depends(session, scope="function"),  # noqa: B008
    ) -> str:
        ref = await opened.enqueue("add", {"a": number, "b": 0}, conn=db)
        await db.execute(text("insert into orders values (:id)"), {"id": number})
        return str(ref.id)

    async with serving(app) as client:
        # The second order fails on commit, not before: nobody may have been told of its job by then.
        answers = [await client.post(f"/orders/{n}") for n in (1, 1, 2)]
        assert [answer.status_code for answer in answers] == [202, 500, 202]
    with hf.sync as sync:
        assert sorted(sync.get(job).payload["a"] for job in sync.find()) == [1, 2]


async def test_a_worker_within_the_application_runs_jobs_and_is_drained(hf: Holdfast) -> None:
    app = FastAPI(lifespan=lifespan(hf, worker=True, poll_interval=0.1))

    @app.get("/add/{a}")
    async def add(a: int, opened: CurrentHoldfast) -> Any:
        ref = await opened.enqueue("add", {"a": a, "b": 1})
        return (await opened.wait(ref, timeout=30)).result

    async with serving(app) as client:
        assert (await client.get("/add/2")).json() == 3
    with hf.sync as sync:
        sync.enqueue("add", {"a": 1, "b": 1})
        assert {job.state for job in sync.find(limit=1)} == {"queued"}


async def test_a_job_under_way_is_finished_before_the_application_ends(database_url: str) -> None:
    hf, began = Holdfast(database_url), threading.Event()
    go_on = threading.Event()

    @hf.job("slow")
    def slow(ctx: Context) -> str:
        began.set()
        go_on.wait(30)
        return "done"

    ended: list[str] = []

    @asynccontextmanager
    async def own(application: FastAPI) -> AsyncIterator[None]:
        yield
        ended.append("resources")

    async with serving(FastAPI(lifespan=lifespan(hf, own, worker=True))):
        ref = await hf.enqueue("slow")
        assert await asyncio.to_thread(began.wait, 30)
        asyncio.get_running_loop().call_later(0.2, go_on.set)
    assert ended == ["resources"]
    with hf.sync as sync:
        assert sync.get(ref).result == "done"


async def test_the_control_plane_can_be_mounted_and_opens_the_app_itself(hf: Holdfast) -> None:
    begun: list[str] = []

    @asynccontextmanager
    async def own(application: FastAPI) -> AsyncIterator[None]:
        begun.append("own")
        yield

    app = FastAPI(lifespan=own)
    mount_control_plane(app, "/jobs-api", hf, guard=loopback_only)
    async with serving(app) as client:
        answer = await client.post("/jobs-api/jobs", json=BODY)
        assert answer.status_code == 202
        status = await client.get(f"/jobs-api/jobs/{answer.json()['jobId']}")
        assert status.json()["status"] == "PENDING"
        assert (await client.get("/jobs-api/readyz")).status_code == 200
        batch = {"jobs": [{"jobType": ""}, {"jobType": "x", "queue": "holdfast"}]}
        for result in (await client.post("/jobs-api/jobs/batch", json=batch)).json()["results"]:
            assert result["problem"]["type"] == "/jobs-api/problems/invalid"
        described = (await client.get("/jobs-api/openapi.json")).json()
        assert described["servers"] == [{"url": "/jobs-api"}]
        for method in ("GET", "POST"):  # no redirect to an address of the caller's choice
            bare = await client.request(method, "/jobs-api", headers={"Host": "evil.example"})
            assert (bare.status_code, bare.headers.get("location")) == (404, None)
        assert "/jobs" in described["paths"]
    assert begun == ["own"]


async def test_mounting_another_app_leaves_the_applications_own_in_place(hf: Holdfast, database_url: str) -> None:
    app, other = FastAPI(lifespan=lifespan(hf)), Holdfast(database_url)
    mount_control_plane(app, "/other", other, guard=loopback_only)

    @app.get("/current")
    async def which(opened: CurrentHoldfast) -> bool:
        return opened is hf

    async with serving(app) as client:
        assert (await client.get("/current")).json() is True
        assert (await client.get("/other/readyz")).status_code == 200


async def test_passing_a_guard_does_not_make_a_caller_an_operator(hf: Holdfast) -> None:
    app = FastAPI()
    mount_control_plane(app, "/jobs-api", hf, guard=lambda: True)
    mount_control_plane(app, "/ops-api", hf, guard=lambda: True, scopes=["operate"])
    async with serving(app) as client:
        assert (await client.post("/jobs-api/jobs", json={"jobType": "x"})).status_code == 202
        refused = await client.get("/jobs-api/ops/jobs")
        assert refused.status_code == 403
        assert (
            "Callers that the guard `<lambda>` admits have `submit`, `read`: add it to `scopes`"
            in refused.json()["detail"]
        )
        assert (await client.get("/ops-api/ops/jobs")).status_code == 200
        assert (await client.get("/ops-api/ops/keys")).status_code == 403


async def test_without_a_guard_a_key_is_needed_even_where_there_is_none(hf: Holdfast) -> None:
    app = FastAPI()
    mount_control_plane(app, "/jobs-api", hf)
    body = {"jobType": "x"}
    async with serving(app) as client:
        refused = await client.post("/jobs-api/jobs", json=body)
        assert (refused.status_code, refused.json()["type"]) == (401, "/jobs-api/problems/no-key")
        assert (await client.get(refused.json()["type"])).status_code == 200
        _, secret = await (await hf.operations()).keys.create("first", scopes=["submit"], tenant="acme", by="a test")
        answer = await client.post("/jobs-api/jobs", json=body, headers={"Authorization": f"Bearer {secret}"})
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/jobs-api/jobs/{answer.json()['jobId']}"
        assert (await hf.get(answer.json()["jobId"])).tenant == "acme"


def test_mounting_needs_no_server() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from fastapi import FastAPI; from holdfast import Holdfast\n"
        "from holdfast.integrations.fastapi import loopback_only, mount_control_plane\n"
        "mount_control_plane(FastAPI(), '/x', Holdfast('postgresql://127.0.0.1:1/x'), guard=loopback_only)\n"
        "print('mounted', flush=True)\n"
        "import holdfast.web.server"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "mounted\n", done.stderr
    assert "(uvicorn is missing): pip install 'holdfast[server]'" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("caller", "host", "headers"),
    [
        ("10.0.0.1", "127.0.0.1", {}),
        ("127.0.0.1", "jobs.example", {}),
        ("127.0.0.1", "127.0.0.1", {"x-forwarded-for": "10.0.0.1"}),
        ("127.0.0.1", "127.0.0.1", {"x-real-ip": "10.0.0.1"}),
        ("127.0.0.1", "127.0.0.1", {"origin": "https://evil.example"}),
        ("127.0.0.1", "127.0.0.1", {"origin": "null"}),
        ("127.0.0.1", "127.0.0.1", {"origin": "http://localhost:3000"}),
        ("127.0.0.1", "127.0.0.1", {"origin": "http://[oops"}),
        ("unknown", "127.0.0.1", {}),
    ],
)
async def test_loopback_only_answers_to_this_machine(
    hf: Holdfast, caller: str, host: str, headers: dict[str, str]
) -> None:
    app = FastAPI()
    mount_control_plane(app, "/jobs-api", hf, guard=loopback_only)
    async with serving(app, caller=caller, host=host, headers=headers) as far:
        assert (await far.post("/jobs-api/jobs", json=BODY)).status_code == 403
        assert (await far.get("/jobs-api/openapi.json")).status_code == 403
    with hf.sync as sync:
        assert sync.find() == []


async def test_loopback_only_answers_to_pages_of_the_application_itself(hf: Holdfast) -> None:
    app = FastAPI()
    mount_control_plane(app, "/jobs-api", hf, guard=loopback_only)
    async with serving(app, headers={"origin": "http://127.0.0.1"}) as near:
        assert (await near.post("/jobs-api/jobs", json=BODY)).status_code == 202


def says_no(request: Request) -> None:
    if request.headers.get("authorization") != "Bearer secret":
        raise HTTPException(401)


def answers_no(request: Request) -> bool:
    return request.headers.get("authorization") == "Bearer secret"


async def answers_no_later(request: Request) -> bool:
    return answers_no(request)


def passes_the_question_on(request: Request) -> Awaitable[bool]:
    return answers_no_later(request)


@pytest.mark.parametrize(
    ("guard", "status"),
    [(says_no, 401), (answers_no, 403), (answers_no_later, 403), (passes_the_question_on, 403)],
)
async def test_a_guard_decides_who_passes(hf: Holdfast, guard: Any, status: int) -> None:
    app = FastAPI()
    mount_control_plane(app, "/jobs-api", hf, guard=guard)
    async with serving(app, host="jobs.example", caller="10.0.0.1") as client:
        assert (await client.post("/jobs-api/jobs", json=BODY)).status_code == status
        for path in ("livez", "openapi.json"):
            assert (await client.get(f"/jobs-api/{path}")).status_code == status
        client.headers["authorization"] = "Bearer secret"
        assert (await client.post("/jobs-api/jobs", json=BODY)).status_code == 202
        assert (await client.get("/jobs-api/openapi.json")).status_code == 200


@pytest.mark.parametrize("verdict", [False, 0, 1, "", "no", {}])
async def test_a_guard_that_does_not_return_true_refuses(hf: Holdfast, verdict: Any) -> None:
    app = FastAPI()
    mount_control_plane(app, "/jobs-api", hf, guard=lambda: verdict)
    async with serving(app) as client:
        assert (await client.get("/jobs-api/livez")).status_code == 403
