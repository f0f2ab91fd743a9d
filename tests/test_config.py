"""The configuration: where it comes from, what is refused, what is never shown."""

from __future__ import annotations

import pytest

from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.worker.slots import parse_lanes


def test_an_argument_wins_over_the_environment_and_that_over_the_default() -> None:
    config = Config.load({"HOLDFAST_PORT": "99", "HOLDFAST_SCHEMA": "jobs"}, port=100)
    assert (config.port, config.schema, config.batch_size) == (100, "jobs", 20)
    assert [config.origins[name] for name in ("port", "schema", "batch_size")] == ["argument", "environment", "default"]


def test_lengths_of_time_are_seconds_or_have_a_unit() -> None:
    given = {"HOLDFAST_AGEING_SECONDS": "15m", "HOLDFAST_LEASE_SEC_DEFAULT": "90", "HOLDFAST_POLL_INTERVAL": "0.5s"}
    config = Config.load(given)
    assert (config.ageing_seconds, config.lease_sec_default, config.poll_interval) == (900, 90, 0.5)
    assert config.engine_environment()["holdfast.ageing_seconds"] == "900.0"
    for wrong, says in (
        ("1 day", "a number"),
        ("1.5.s", "90s, 15m, 2h, 1d, or a number of seconds"),
        ("8d", "to 604800"),
    ):
        with pytest.raises(ConfigError, match=says):
            Config.load({"HOLDFAST_LEASE_SEC_DEFAULT": wrong})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as fault:
        Config.load({"HOLDFAST_PORT": "x", "HOLDFAST_LANES": "slow", "HOLDFAST_DRAIN_POLICY": "hope"})
    assert all(name in str(fault.value) for name in ("HOLDFAST_PORT", "HOLDFAST_LANES", "HOLDFAST_DRAIN_POLICY"))


@pytest.mark.parametrize(
    ("lanes", "says"),
    [
        ("fsat=3", "'fsat=3': must look like fast=3,general=5: there is no lane 'fsat'"),
        ("fast=3,generals=1", "did you mean general?"),
        ("fast=3,my lane=1", "must look like fast=3,general=5"),
        ("fast=three", "'fast=three': must look like fast=3,general=5"),
        ("3", "must look like fast=3,general=5"),
        ("fast=3,fast=5", "must name each lane once: fast"),
    ],
)
def test_lanes_that_are_written_wrong_are_refused(lanes: str, says: str) -> None:
    with pytest.raises(ConfigError) as fault:
        Config.load({"HOLDFAST_LANES": lanes})
    assert says in str(fault.value)
    with pytest.raises(ConfigError) as option:
        parse_lanes(lanes)
    assert says in str(option.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:secret@db:5432/app",
        "postgresql://ada:sec@ret@db/app",
        "postgresql://db/app?user=ada&password=secret",
        "postgres://ada:secret@/app?host=/run",
    ],
)
def test_passwords_are_never_shown(url: str) -> None:
    shown = {name: value for name, value, _, _ in Config.load({}, database_url=url).shown()}["HOLDFAST_DATABASE_URL"]
    assert "ret" not in shown
    assert "app" in shown


@pytest.mark.parametrize("url", ["ada:secret@db/app", "mysql://ada:secret@db/app", "postgresql://ada:sec/ret@db/app"])
def test_a_url_that_is_refused_is_not_quoted_with_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as fault:
        Config.load({}, database_url=url)
    assert "secret" not in str(fault.value)
    assert "ret" not in str(fault.value)


def test_leases_heartbeats_and_the_grace_of_a_drain_last_as_long_as_promised() -> None:
    config = Config.load({})
    assert (config.lease_sec_default, config.heartbeat_seconds) == (30, 2)
    assert (config.shutdown_grace_period_seconds, config.drain_policy) == (300, "auto")


def test_lanes_of_ones_own_have_slots_and_timeouts() -> None:
    config = Config.load({"HOLDFAST_LANES": "reports=2,fast=1", "HOLDFAST_LANE_TIMEOUTS": "reports=2h, imports=30m"})
    assert parse_lanes(config.lanes) == {"fast": 1, "general": 0, "reports": 2}
    assert config.lane_timeouts == "reports=7200,imports=1800"


@pytest.mark.parametrize(
    ("timeouts", "says"),
    [("fast=1m", "FAST_TIMEOUT_SECONDS"), ("reports", "must look like"), ("reports=0", "must look like"),
     ("genral=2h", "did you mean general?"), ("reports=1h,reports=2h", "must name each lane once: reports")],
)  # fmt: skip
def test_timeouts_of_lanes_that_are_written_wrong_are_refused(timeouts: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config.load({"HOLDFAST_LANE_TIMEOUTS": timeouts})
