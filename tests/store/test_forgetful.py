"""A server that does not wait for its disk is refused, unless somebody says that this is intended."""

from __future__ import annotations

import asyncpg
import pytest

from holdfast import Config, Holdfast
from holdfast.errors import ConfigError
from holdfast.store.database import check_schema


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


@pytest.mark.parametrize("said", ["1", "true", "ON"])
async def test_a_flag_allows_it(unmentioned: Config, said: str) -> None:
    await check_schema(
        Config.load(environment={"HOLDFAST_ALLOW_FSYNC_OFF": said}, database_url=unmentioned.database_url)
    )


async def test_the_flag_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_ALLOW_FSYNC_OFF is 'maybe': must be true or false"):
        Config.load(environment={"HOLDFAST_ALLOW_FSYNC_OFF": "maybe"})
    assert not Config.load(environment={"HOLDFAST_ALLOW_FSYNC_OFF": "off"}).allow_fsync_off
