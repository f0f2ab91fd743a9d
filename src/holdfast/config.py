"""`HOLDFAST_*` → one frozen Config, checked once, with all faults reported at once.

Precedence: an argument in code, then the environment, then the default. Engine settings (those that have a
row in the database) are only defaults here: a row in the database wins over the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.bounds import BOUNDS
from holdfast.errors import ConfigError
from holdfast.model.addresses import addresses_of, parameter_of
from holdfast.model.durations import seconds_of
from holdfast.model.lanes import LANES, pairs_of, slots_of

__all__ = ["ENTRIES", "Config", "Entry", "names_of", "timeouts_of"]


def _text(value: str) -> str:
    return value


def _number(low: float, high: float = 1e9) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError("must be a number") from None
        if not low <= number <= high:
            raise ValueError(f"must be from {low:g} to {high:g}")
        return number

    return parse


def _seconds(low: float, high: float = 1e9) -> Callable[[str], float]:
    """A number of seconds, or a length such as 15m."""
    within = _number(low, high)

    def parse(value: str) -> float:
        if value[-1:] not in ("s", "m", "h", "d", "w"):
            return within(value)
        try:
            seconds = seconds_of(value)
        except ValueError:
            raise ValueError("must be a duration (e.g. 90s, 15m, 2h, 1d, or a number of seconds)") from None
        return within(repr(seconds))

    return parse


def _whole(low: int, high: int = 10**9) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}")
        return number

    return parse


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return parse


def _flag(value: str) -> bool:
    if value.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise ValueError("must be true or false")
    return value.lower() in ("1", "true", "yes", "on")


def _schema(value: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", value):
        raise ValueError("must be 1 to 40 lower-case letters, digits and underscores, not beginning with a digit")
    return value


def _url(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgres", "postgresql"):
        raise ValueError("must look like postgresql://user:password@host:5432/database")
    url = f"postgresql://{rest}"
    wanted = parameter_of(url, "target_session_attrs")
    if len(addresses_of(url)) > 1 and wanted not in (None, "primary", "read-write", "any"):
        raise ValueError(f"has target_session_attrs={wanted}, but Holdfast writes: use primary or read-write")
    return url


def _origins(value: str) -> str:
    for origin in value.split(","):
        if not re.fullmatch(r"https?://[^/?#*\s]+", origin.strip()):
            raise ValueError("must look like https://app.example.com,http://localhost:3000")
    return value


def _names(value: str) -> str:
    for name in names_of(value):
        if not 1 <= len(name) <= 200 or name.startswith("holdfast."):
            raise ValueError(
                'must be names of 1 to 200 characters, separated by commas, none beginning with "holdfast."'
            )
    return value


def names_of(text: str) -> tuple[str, ...]:
    """The names in a list such as `a,b`."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _header(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,100}", value):
        raise ValueError("must be the name of a header, such as X-Internal-Secret")
    return value


def _lanes(value: str) -> str:
    slots_of(value)
    return value


def timeouts_of(text: str) -> dict[str, float]:
    """Timeouts of custom lanes, in seconds; ValueError says what is wrong."""
    found = pairs_of(text, "reports=2h,imports=30m", _timeout) if text else {}
    for lane in LANES:
        if lane in found:
            raise ValueError(f"must not name {lane}, which has {lane.upper()}_TIMEOUT_SECONDS")
    return found


def _timeout(text: str) -> float | None:
    try:
        return _seconds(*BOUNDS["timeout"][:2])(text)
    except ValueError:
        return None


def _lane_timeouts(value: str) -> str:
    """As the database has it: `reports=7200,imports=1800`."""
    return ",".join(f"{lane}={seconds:.15g}" for lane, seconds in timeouts_of(value).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configurable thing: its name in the environment is `HOLDFAST_` and `name` in capitals."""

    name: str
    default: Any
    parse: Callable[[str], Any]
    description: str
    engine: bool = False

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"HOLDFAST_{self.name.upper()}"


_TIMEOUT = _seconds(*BOUNDS["timeout"][:2])

ENTRIES: tuple[Entry, ...] = (
    Entry(name="database_url", default=None, parse=_url, description="URL of PostgreSQL; embedded if not set"),
    Entry(name="direct_url", default=None, parse=_url, description="URL of the server without a pooler, for LISTEN"),
    Entry(name="home", default=Path(".holdfast"), parse=Path, description="folder of the embedded PostgreSQL"),
    Entry(name="schema", default="holdfast", parse=_schema, description="schema of the engine in the database"),
    Entry(
        name="allow_fsync_off",
        default=False,
        parse=_flag,
        description="accept a server with fsync off, which loses accepted jobs when it crashes; for tests only",
    ),
    Entry(name="host", default="127.0.0.1", parse=_text, description="address that the HTTP server binds"),
    Entry(name="port", default=8080, parse=_whole(0, 65535), description="port of the HTTP server"),
    Entry(
        name="shutdown_delay_seconds",
        default=0.0,
        parse=_seconds(0, 3600),
        description="how long the HTTP server keeps serving after SIGTERM, while /readyz answers 503",
    ),
    Entry(
        name="cors_origins",
        default="",
        parse=_origins,
        description="origins of other sites whose pages may call the HTTP API, separated by commas; none if not set",
    ),
    Entry(
        name="pull_job_types",
        default="",
        parse=_names,
        description="job types that /api/pull_job hands out, separated by commas; without any, it does not exist",
    ),
    Entry(
        name="pull_job_queues",
        default="",
        parse=_names,
        description="queues that /api/pull_job takes jobs from, separated by commas; all if not set",
    ),
    Entry(
        name="pull_job_item_key",
        default="phone",
        parse=_text,
        description="field that identifies an item that /api/report_results is sent",
    ),
    Entry(
        name="pull_job_key_header",
        default="",
        parse=_header,
        description="header in which /api/pull_job and /api/report_results take a key, too (e.g. X-Internal-Secret)",
    ),
    Entry(name="lanes", default="fast=3,general=5", parse=_lanes, description="slots per lane of a worker process"),
    Entry(
        name="batch_size",
        default=20,
        parse=_whole(1, 1000),
        description="jobs per claim ahead of the slots; very short jobs are claimed up to 40 batches ahead",
    ),
    Entry(name="poll_interval", default=1.0, parse=_seconds(0.01, 3600), description="seconds between polls for work"),
    Entry(name="heartbeat_seconds", default=2.0, parse=_seconds(0.05, 3600), description="seconds between heartbeats"),
    Entry(
        name="fast_timeout_seconds",
        default=120.0,
        parse=_TIMEOUT,
        description="timeout of the fast lane, for job types that declare none",
        engine=True,
    ),
    Entry(
        name="general_timeout_seconds",
        default=1200.0,
        parse=_TIMEOUT,
        description="timeout of the general lane, for job types that declare none",
        engine=True,
    ),
    Entry(
        name="lane_timeouts",
        default="",
        parse=_lane_timeouts,
        description="timeouts of custom lanes, for job types that declare none (e.g. reports=2h,imports=30m); "
        "others have that of the general lane",
        engine=True,
    ),
    Entry(
        name="shutdown_grace_period_seconds",
        default=300.0,
        parse=_seconds(*BOUNDS["delay"][:2]),
        description="how long running jobs may continue after SIGTERM",
        engine=True,
    ),
    Entry(
        name="drain_policy",
        default="auto",
        parse=_choice("auto", "pause", "requeue"),
        description="what becomes of jobs that a drain interrupts; auto: those of types with on_failure=hold are "
        "paused, others handed back; pause and requeue apply to all jobs with a target",
        engine=True,
    ),
    Entry(
        name="event_loop",
        default="auto",
        parse=_choice("auto", "asyncio", "uvloop"),
        description="event loop of the processes that holdfast starts; auto: uvloop if it is installed",
    ),
    Entry(name="log_format", default="auto", parse=_choice("auto", "json", "text"), description="format of log lines"),
    Entry(
        name="log_level",
        default="INFO",
        parse=_choice("DEBUG", "INFO", "WARNING", "ERROR"),
        description="lowest level that is logged",
    ),
    Entry(
        name="lease_sec_default",
        default=30.0,
        parse=_seconds(*BOUNDS["lease"][:2]),
        description="length of a lease in seconds",
        engine=True,
    ),
    Entry(
        name="max_attempts_default",
        default=3,
        parse=_whole(1, 2**31 - 1),
        description="how many failures and lost leases a job may have",
        engine=True,
    ),
    Entry(
        name="retry_base_seconds",
        default=1.0,
        parse=_seconds(*BOUNDS["backoff_base"][:2]),
        description="delay before the first retry, for job types that declare none",
        engine=True,
    ),
    Entry(
        name="retry_factor",
        default=2.0,
        parse=_number(*BOUNDS["backoff_factor"][:2]),
        description="factor by which the delay grows with each retry, for job types that declare none",
        engine=True,
    ),
    Entry(
        name="retry_max_seconds",
        default=300.0,
        parse=_seconds(*BOUNDS["backoff_max"][:2]),
        description="longest delay before a retry, for job types that declare none",
        engine=True,
    ),
    Entry(
        name="retry_jitter",
        default=0.1,
        parse=_number(*BOUNDS["backoff_jitter"][:2]),
        description="random part that is added to the delay of a retry, for job types that declare none",
        engine=True,
    ),
    Entry(
        name="circuit_failure_threshold",
        default=5,
        parse=_whole(1, 1_000_000),
        description="how many failures open a circuit breaker, for circuits that declare no number",
        engine=True,
    ),
    Entry(
        name="circuit_open_seconds",
        default=60.0,
        parse=_seconds(*BOUNDS["circuit_open"][:2]),
        description="how long a circuit breaker stays open the first time, for circuits that declare no length",
        engine=True,
    ),
    Entry(
        name="backoff_base_sec",
        default=30.0,
        parse=_seconds(*BOUNDS["backoff_base"][:2]),
        description="delay before the first retry of a job that a remote worker ran, unless its type declares one",
        engine=True,
    ),
    Entry(
        name="backoff_max_sec",
        default=3600.0,
        parse=_seconds(*BOUNDS["backoff_max"][:2]),
        description="longest delay before a retry of a job that a remote worker ran, unless its type declares one",
        engine=True,
    ),
    Entry(
        name="payload_max_bytes",
        default=1_048_576,
        parse=_whole(1024, 100 * 2**20),
        description="how large the payload of a job may be, in bytes of JSON",
        engine=True,
    ),
    Entry(
        name="validate_payloads",
        default="refuse",
        parse=_choice("refuse", "warn", "off"),
        description="what to do with payloads, over HTTP or the command line, that no live worker accepts",
        engine=True,
    ),
    Entry(
        name="result_max_bytes",
        default=1_048_576,
        parse=_whole(1, 100 * 2**20),
        description="how large a result, a cursor and the data of an item may be, in bytes of JSON",
        engine=True,
    ),
    Entry(
        name="ageing_seconds",
        default=900.0,
        parse=_seconds(*BOUNDS["ageing"][:2]),
        description="a job that has waited longer goes first within its tenant",
        engine=True,
    ),
    Entry(
        name="retention_days",
        default=7.0,
        parse=_number(*BOUNDS["retention_days"][:2]),
        description="how long succeeded and canceled jobs are kept",
        engine=True,
    ),
    Entry(
        name="retention_dead_days",
        default=30.0,
        parse=_number(*BOUNDS["retention_days"][:2]),
        description="how long dead jobs are kept after they were acknowledged",
        engine=True,
    ),
    Entry(
        name="streams_per_tenant",
        default=10_000,
        parse=_whole(1, 10_000_000),
        description="how many combinations of queue and job type a tenant may use",
        engine=True,
    ),
    Entry(
        name="schedules_per_tenant",
        default=1000,
        parse=_whole(1, 1_000_000),
        description="how many schedules a tenant may have; those that are there stay",
        engine=True,
    ),
    Entry(
        name="stream_idle_seconds",
        default=86_400.0,
        parse=_seconds(*BOUNDS["stream_idle"][:2]),
        description="how long such a combination must be idle before it is forgotten",
        engine=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of a process."""

    database_url: str | None
    direct_url: str | None
    home: Path
    schema: str
    allow_fsync_off: bool
    host: str
    port: int
    shutdown_delay_seconds: float
    cors_origins: str
    pull_job_types: str
    pull_job_queues: str
    pull_job_item_key: str
    pull_job_key_header: str
    lanes: str
    batch_size: int
    poll_interval: float
    heartbeat_seconds: float
    fast_timeout_seconds: float
    general_timeout_seconds: float
    lane_timeouts: str
    shutdown_grace_period_seconds: float
    drain_policy: str
    event_loop: str
    log_format: str
    log_level: str
    lease_sec_default: float
    max_attempts_default: int
    retry_base_seconds: float
    retry_factor: float
    retry_max_seconds: float
    retry_jitter: float
    circuit_failure_threshold: int
    circuit_open_seconds: float
    backoff_base_sec: float
    backoff_max_sec: float
    payload_max_bytes: int
    validate_payloads: str
    result_max_bytes: int
    ageing_seconds: float
    retention_days: float
    retention_dead_days: float
    streams_per_tenant: int
    schedules_per_tenant: int
    stream_idle_seconds: float
    origins: Mapping[str, str]

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None, **arguments: Any) -> Config:
        """Read the environment. Arguments that are not None take precedence."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        faults: list[str] = []
        for entry in ENTRIES:
            raw, origin = arguments.pop(entry.name, None), "argument"
            if raw is None:
                raw, origin = environment.get(entry.variable) or None, "environment"
            if raw is None:
                values[entry.name], origins[entry.name] = entry.default, "default"
                continue
            try:
                values[entry.name] = entry.parse(str(raw))
            except ValueError as fault:
                name = entry.variable if origin == "environment" else entry.name
                faults.append(f"{name} is {_shown(entry.name, str(raw))!r}: {fault}")
            origins[entry.name] = origin
        if arguments:
            raise TypeError(f"unknown configuration: {', '.join(sorted(arguments))}")
        if faults:
            raise ConfigError("; ".join(faults))
        return cls(**values, origins=origins)

    @property
    def trusted_origins(self) -> tuple[str, ...]:
        """The sites of `cors_origins`, one by one."""
        return tuple(origin.strip().lower() for origin in self.cors_origins.split(",") if origin.strip())

    @property
    def is_of_a_test(self) -> bool:
        """Whether the testing kit chose the database."""
        return self.origins.get("database_url") == "testing"

    def engine_environment(self) -> dict[str, str]:
        """Engine settings that were given to this process, as session parameters for the database."""
        return {
            f"holdfast.{entry.name}": str(getattr(self, entry.name))
            for entry in ENTRIES
            if entry.engine and self.origins.get(entry.name) != "default"
        }

    def shown(self) -> list[tuple[str, str, str, str]]:
        """(variable, value, origin, description) of every entry, with passwords hidden."""
        return [
            (e.variable, _shown(e.name, str(getattr(self, e.name) or "")), self.origins[e.name], e.description)
            for e in ENTRIES
        ]


def _shown(name: str, value: str) -> str:
    """A value that may be printed: of a URL only what cannot be a password."""
    if not name.endswith("url") or not value:
        return value
    scheme, separator, rest = value.partition("://")
    if not separator:
        return "***"
    rest, question, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    shown = f"{login.partition(':')[0]}{':***' if ':' in login else ''}{at}{place}"
    query = re.sub(r"(password=)[^&]*", r"\1***", query, flags=re.IGNORECASE)
    return f"{scheme}{separator}{shown}{question}{query}"


assert {f.name for f in fields(Config)} == {e.name for e in ENTRIES} | {"origins"}  # noqa: S101 - one list each way
