"""Variables of libpq count as they were at the first connection: handlers may set some for programs of their own."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from holdfast import Context, Holdfast
from holdfast.store.servers import open_connection
from holdfast.store.variables import with_first_variables
from tests.harness.inprocess import working

HARMFUL = {
    "PGSSLMODE": "verify-full",
    "PGTARGETSESSIONATTRS": "read-only",
    "PGSSLNEGOTIATION": "direct",
    "PGUSER": "nobody-here",
    "PGDATABASE": "nothing-here",
    "PGPORT": "1",
    "PGHOST": "127.0.0.9",
}


@pytest.mark.parametrize("variable", HARMFUL)
async def test_what_a_handler_sets_does_not_meet_connections_that_its_worker_opens_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "x")  # so that it is gone after the test, too
    monkeypatch.delenv(variable)
    async with Holdfast(database_url) as hf:

        @hf.job("dump", executor="thread")
        def dump(ctx: Context) -> None:
            os.environ[variable] = HARMFUL[variable]

        @hf.job("innocent")
        async def innocent(ctx: Context) -> None:
            async with ctx.transaction():
                pass

        async with working(hf):
            await hf.wait(await hf.enqueue("dump"), timeout=30)
            done = await hf.wait(await hf.enqueue("innocent"), timeout=30)
        assert (done.state, done.attempt) == ("success", 1), done.last_error
        async with Holdfast(database_url) as again:
            assert (await again.get(done.id)).state == "success"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://ada:secret@db:1/shop", "postgresql://ada:secret@db:1/shop?sslmode=require"),
        ("postgresql:///shop?host=%2Frun%2Fx&sslmode=allow", "user=hopper"),
        ("postgresql://db", "dbname=hopper"),
        ("postgresql://ada@h1:5,h2/shop", "postgresql://ada@h1:5,h2/shop?sslmode=require"),
    ],
)
def test_what_a_url_does_not_say_is_taken_from_the_variables_once(
    monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setattr("holdfast.store.variables._first", {})
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGUSER", "hopper")
    first = with_first_variables(url)
    assert said in first
    assert first.startswith(url)
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.delenv("PGUSER")
    assert with_first_variables(url) == first


def test_a_service_is_left_to_say_what_the_url_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.variables._first", {})
    monkeypatch.setenv("PGUSER", "hopper")
    assert with_first_variables("postgresql:///?service=shop") == "postgresql:///?service=shop"


async def test_a_service_leads_to_its_server(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(database_url)
    words = {
        "host": parse_qs(parts.query)["host"][0] if parts.query else parts.hostname,
        "user": parts.username,
        "password": parts.password,
    }
    lines = [f"{name}={unquote(str(value))}" for name, value in words.items() if value]
    (tmp_path / "services").write_text("\n".join(["[shop]", *lines, ""]))
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    conn = await open_connection({"dsn": f"postgresql:///{parts.path[1:]}?service=shop"})
    try:
        assert await conn.fetchval("select current_user") == words["user"]
    finally:
        await conn.close()
