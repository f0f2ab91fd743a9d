"""A server that does not wait for its disk is refused unless this is intended, and is noticed while all runs."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import httpx
import psycopg
import pytest

from holdfast import Config, Holdfast
from holdfast.errors import ConfigError, DatabaseUnavailable
from holdfast.store import disk
from holdfast.store.database import check_schema
from holdfast.store.kit_databases import SERVER_SETTINGS
from holdfast.store.migrate import migrate
from holdfast.web import health
from holdfast.web.server import create_app
from tests.faults.clusters import Cluster, clusters
from tests.harness.waiting import until


@pytest.fixture
async def unmentioned(database_url: str, conn: asyncpg.Connection) -> Config:
    """A server with fsync off whose configuration does not say why; the tests' own has to be one."""
    if await conn.fetchval("show fsync") == "on":
        pytest.skip("this server waits for its disk")
    option = f"{'&' if '?' in database_url else '?'}options=-choldfast.allow_fsync_off%3Doff"
    return Config.load(environment={}, database_url=database_url + option)


async def test_it_is_refused_with_advice(unmentioned: Config) -> None:
    with pytest.raises(ConfigError, match=r"fsync = off.*HOLDFAST_ALLOW_FSYNC_OFF=true"):
        await check_schema(unmentioned)
    with pytest.raises(ConfigError, match="fsync = off"):
        await Holdfast(unmentioned.database_url).open()
    with pytest.raises(ConfigError, match="fsync = off"):
        await migrate(unmentioned)


@pytest.mark.parametrize("said", ["1", "true", "ON"])
async def test_a_flag_allows_it(unmentioned: Config, said: str) -> None:
    await check_schema(
        Config.load(environment={"HOLDFAST_ALLOW_FSYNC_OFF": said}, database_url=unmentioned.database_url)
    )


async def test_the_flag_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_ALLOW_FSYNC_OFF is 'maybe': must be true or false"):
        Config.load(environment={"HOLDFAST_ALLOW_FSYNC_OFF": "maybe"})
    assert not Config.load(environment={"HOLDFAST_ALLOW_FSYNC_OFF": "off"}).allow_fsync_off


@pytest.mark.parametrize("own", ["options=-choldfast.allow_fsync_off%3Don", "holdfast.allow_fsync_off=on"])
async def test_a_url_cannot_allow_it(unmentioned: Config, own: str) -> None:
    url = str(unmentioned.database_url).replace("options=-choldfast.allow_fsync_off%3Doff", own)
    with pytest.raises(ConfigError, match="fsync = off"):
        await check_schema(Config.load(environment={}, database_url=url))


@pytest.mark.parametrize("whose", ["database {database}", "role {login} in database {database}"])
async def test_neither_database_nor_role_can_allow_it(database_url: str, conn: asyncpg.Connection, whose: str) -> None:
    if await conn.fetchval("show fsync") == "on":
        pytest.skip("this server waits for its disk")
    names = await conn.fetchrow("select current_database() as database, session_user as login")
    owner = whose.format(**dict(names or ()))
    await conn.execute(f"alter {owner} set holdfast.allow_fsync_off = on")
    try:
        with pytest.raises(ConfigError, match="fsync = off"):
            await check_schema(Config.load(environment={}, database_url=database_url))
    finally:
        await conn.execute(f"alter {owner} reset holdfast.allow_fsync_off")
    await check_schema(Config.load(environment={}, database_url=database_url))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A server of our own, whose settings can be changed."""
    with clusters(1) as (made,):
        yield made


@pytest.mark.slow
async def test_it_is_noticed_while_everything_runs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr(health, "_FRESH_SECONDS", 0.0)
    cluster.create()
    await cluster.start()
    admin = await asyncpg.connect(cluster.url)

    async def turn(value: str) -> None:
        await admin.execute(f"alter system set fsync = {value}")
        await admin.execute("select pg_reload_conf()")
        await until(lambda: is_turned(admin, value), what="the setting is in force")

    async with Holdfast(cluster.url) as hf:
        transport = httpx.ASGITransport(create_app(hf), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            await hf.enqueue("work")
            assert (await client.get("/readyz")).status_code == 200
            await turn("off")
            with pytest.raises(DatabaseUnavailable, match="fsync = off") as refused:
                await hf.enqueue("work")
            assert refused.value.reason == "volatile"
            with psycopg.connect(cluster.url) as lent, pytest.raises(DatabaseUnavailable, match="fsync = off"):
                hf.sync.enqueue("work", conn=lent)
            assert (await client.get("/readyz")).status_code == 503
            answer = await client.post("/jobs", json={"jobType": "work", "payload": {}})
            assert (answer.status_code, "could lose the job" in answer.json()["detail"]) == (503, True)
            assert await admin.fetchval("select count(*) from holdfast.jobs") == 1
            await turn("on")
            await hf.enqueue("work")
            assert (await client.get("/readyz")).status_code == 200
    await admin.close()


async def is_turned(conn: asyncpg.Connection, value: str) -> bool:
    return bool(await conn.fetchval("show fsync") == value)


def test_the_servers_of_tests_say_so_themselves() -> None:
    assert SERVER_SETTINGS["holdfast.allow_fsync_off"] == "on"
