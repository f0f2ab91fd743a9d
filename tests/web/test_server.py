from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigError, Conflict, DatabaseUnavailable, HoldfastError, NotOpen
from holdfast.web import health
from holdfast.web.server import address, admit, listen
from tests.harness.databases import with_database
from tests.web.test_jobs import is_problem


async def test_livez_never_touches_the_database(gatekeeper: httpx.AsyncClient) -> None:
    assert (await gatekeeper.get("/livez")).json() == {"status": "ok"}


async def test_readyz_wants_a_schema_that_fits(
    client: httpx.AsyncClient, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_FRESH_SECONDS", 0.0)
    assert (await client.get("/readyz")).status_code == 200
    await conn.execute("delete from schema_steps")
    is_problem(await client.get("/readyz"), 503, "schema")
    assert (await client.get("/livez")).status_code == 200


async def test_readyz_answers_with_codes_of_the_catalogue(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_FRESH_SECONDS", 0.0)
    for fault in (HoldfastError("x"), NotOpen("x"), DatabaseUnavailable("x"), Conflict("x")):

        async def check(_hf: Holdfast, fault: HoldfastError = fault) -> None:
            raise fault

        monkeypatch.setattr(Holdfast, "check", check)
        is_problem(await client.get("/readyz"), 503, "unavailable")


async def test_without_database_everything_may_be_repeated_later(
    client: httpx.AsyncClient, server_url: str, database_url: str
) -> None:
    name = urlsplit(database_url).path.strip("/")
    admin = await asyncpg.connect(with_database(server_url, "postgres"))
    await admin.execute(f"alter database {name} allow_connections false")
    await admin.execute(f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '{name}'")
    await admin.execute(f"alter database {name} rename to {name}_away")
    for call in (client.get("/readyz"), client.post("/jobs", json={"jobType": "x"}), client.get(f"/jobs/{uuid4()}")):
        answer = await call
        is_problem(answer, 503, "unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert name not in answer.text
    await admin.execute(f"alter database {name}_away rename to {name}")
    await admin.execute(f"alter database {name} allow_connections true")
    assert (await client.post("/jobs", json={"jobType": "x"})).status_code == 202
    await admin.close()


async def test_what_goes_wrong_inside_stays_inside(
    client: httpx.AsyncClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("select secret from inside")

    monkeypatch.setattr(await hf.control(), "submit", broken)
    answer = await client.post("/jobs", json={"jobType": "x"})
    is_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    figures = (await client.get("/metrics")).text
    assert 'http_requests_total{method="POST",route="/jobs",status_code="500"} 1.0' in figures


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_without_keys_only_loopback_is_served(hf: Holdfast, host: str) -> None:
    with listen(host, 0) as listener:
        with pytest.raises(ConfigError, match="no keys"):
            await admit(hf, listener)
        assert not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)  # nobody could connect until then
        await (await hf.operations()).keys.create("first", scopes=["submit"], by="a test")
        async with asyncio.timeout(5):
            while not await (await hf.control()).keyring.any_key():
                await asyncio.sleep(0.05)
        await admit(hf, listener)
    with listen("127.0.0.1", 0) as listener:
        await admit(hf, listener)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "localhost"])
def test_loopback_has_a_url(host: str) -> None:
    with listen(host, 0) as listener:
        assert address(listener).startswith("http://")
        assert listener.getsockname()[1] != 0


def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="--port"):
        listen("127.0.0.1", taken.getsockname()[1])


async def test_a_server_maintains_too(hf: Holdfast) -> None:
    """A waiting job is canceled with no worker at all, and released targets get their head."""
    async with hf, hf.maintaining():
        job = await hf.enqueue("nobody.runs.this", {}, delay=3600)
        await hf.cancel(job)
        assert (await hf.wait(job, timeout=10)).state == "canceled"


@pytest.mark.parametrize(("host", "status"), [("localhost:8080", 200), ("[::1]:1", 200), ("evil.example", 403)])
async def test_only_loopback_names_are_answered(gatekeeper: httpx.AsyncClient, host: str, status: int) -> None:
    assert (await gatekeeper.get("/livez", headers={"host": host})).status_code == status
