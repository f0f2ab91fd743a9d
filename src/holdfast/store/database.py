"""A pool of connections to one database in one role. It runs named statements, and only it repeats them.

Each face of Holdfast connects as its own role (`<schema>_api`, `<schema>_worker`, `<schema>_operator`), so that
PostgreSQL itself refuses what the face may not do. Through a pooler in transaction mode (a direct URL is set as well)
nothing is kept per session: there the login itself must be a member of only one role.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import asyncpg

from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError, NotOpen, SchemaError
from holdfast.store.confirmation import unconfirmed
from holdfast.store.connections import Connections
from holdfast.store.disk import DiskWatch, refuse_forgetful_server
from holdfast.store.faults import ANSWERED, CONNECTION_FAULTS, REPEATABLE, never_sent, translated
from holdfast.store.servers import open_connection, retire
from holdfast.store.statements import migrations, queries

__all__ = [
    "LOCK_SECONDS",
    "READS",
    "STATEMENT_SECONDS",
    "Backoff",
    "Database",
    "Session",
    "connect",
    "connection_arguments",
    "refuse_testing_schema",
]

#: The default time limit of a statement, and the longest wait for a lock in the server.
STATEMENT_SECONDS = 30.0
LOCK_SECONDS = 10.0
_REPEATS = 5
#: Statements that only read, and so can be repeated when the connection was cut.
READS = frozenset({
    "accepted_payloads", "answered_key", "attempts_page", "backlog", "claim_mark", "correlated_ids", "current_step",
    "drain_progress", "due_schedules", "ended_attempts", "events_page", "explain", "find_events_token",
    "find_events_tokens", "find_key", "find_keys", "get_jobs", "get_letters", "is_maintained", "issue_events_token",
    "items_page", "job_family", "job_result", "job_statistics", "job_totals", "keys_after", "list_audit", "list_bulks",
    "list_circuits", "list_controls", "list_failures", "list_fires", "list_jobs", "list_lanes", "list_queues",
    "list_schedules", "list_settings", "list_targets", "list_tenants", "list_types", "list_workers", "other_names",
    "other_shapes", "payload_limit", "payloads", "preview_bulk", "probe", "queue_depths", "ready_streams",
    "remote_news", "remote_repeats", "search_jobs", "search_letters", "show_targets", "summaries", "tenant_items",
    "visible_jobs", "waiting_jobs", "work_left", "worker_settings", "claims_ended", "count_repeats", "refused_intents",
})  # fmt: skip
_CLOSE_SECONDS = 5.0
_CHECK_SECONDS = 30.0

#: How the server learns that this client is gone: abandoned statements end, and so do silent sessions.
_LINE_SETTINGS = {
    "client_connection_check_interval": "2s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
}


class Session(Protocol):
    """Runs named statements: our own pool, or a caller's connection (holdfast.store.foreign)."""

    @property
    def schema(self) -> str:
        """The engine's schema."""
        ...

    @property
    def inside_transaction(self) -> bool:
        """Whether statements here are committed later, in a transaction of the caller."""
        ...

    @property
    def disk(self) -> DiskWatch:
        """Whether the server waits for its disk."""
        ...

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """The rows of a named statement; values are found by column name."""
        ...


class Backoff:
    """Jittered, growing pauses between attempts to reach the database again."""

    def __init__(self, first: float = 0.05, longest: float = 2.0) -> None:
        self._first, self._longest, self._next = first, longest, first
        self._cut = False

    def seconds(self) -> float:
        """How long to wait now; the next pause is longer."""
        current, self._next = self._next, min(self._longest, self._next * 2)
        return current * random.uniform(0.5, 1.0)  # noqa: S311 - jitter is no secret

    def after_cut(self) -> float:
        """How long to wait after a connection was cut: the first time not at all, since a new one may be available."""
        cut, self._cut = self._cut, True
        return self.seconds() if cut else 0.0

    def reset(self) -> None:
        """Note that the database answered."""
        self._next, self._cut = self._first, False


async def connect(
    config: Config,
    *,
    role: str | None,
    name: str,
    direct: bool = False,
    seconds: float | None = None,
    lock_seconds: float | None = None,
) -> asyncpg.Connection:
    """Open a single connection outside any pool; with `direct`, past the pooler if there is one."""
    arguments = connection_arguments(
        config, role=role, name=name, direct=direct, seconds=seconds, lock_seconds=lock_seconds
    )
    return await open_connection(arguments)


class _WrongServer(Exception):
    """A write was refused on a connection that is being replaced. Nothing was done; a new one may lead elsewhere."""

    def __init__(self, refusal: BaseException) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Database:
    """A pool of connections in one role. Open it before use; it may be opened again after `close`."""

    inside_transaction = False

    def __init__(self, config: Config, *, role: str | None, size: int = 4, seconds: float = STATEMENT_SECONDS) -> None:
        """`seconds` is the default time limit of a statement, including the wait for a connection."""
        self.config = config
        self.role = role
        self._size, self._seconds = size, seconds
        self._connections: Connections | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sql = queries(config.schema)
        self.disk = DiskWatch(config)
        #: Called for every statement: its name, its duration, and the code of the error, if there was one.
        self.observe: Callable[[str, float, str | None], None] | None = None

    @property
    def schema(self) -> str:
        """The engine's schema."""
        return self.config.schema

    def open_later(self) -> None:
        """Connect when it is needed. Another pool in this role has checked the schema."""
        self._loop = asyncio.get_running_loop()
        self.disk.judge(forgets=False)
        self._connections = Connections(self._arguments(), self._size)

    async def open(self) -> None:
        """Connect, and refuse to work with a schema that is missing or older than this release."""
        self._loop = asyncio.get_running_loop()
        arguments = self._arguments()
        # Whether the role can be assumed should be known now, not only at the first statement.
        try:
            conn = await open_connection(arguments)
        except HoldfastError:
            await check_schema(self.config)  # if the schema is missing, so are its roles: report that instead
            raise
        await _check(conn, self.config)
        self.disk.judge(forgets=False)
        self._connections = Connections(arguments, self._size)
        self._connections.adopt(conn)

    def _arguments(self) -> dict[str, Any]:
        name = f"holdfast {self.role or 'owner'}"
        return connection_arguments(self.config, role=self.role, name=name, direct=False, seconds=self._seconds)

    async def close(self) -> None:
        """Close all connections; those still in use are cut after a moment."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close(_CLOSE_SECONDS)

    async def check(self) -> None:
        """Raise unless the database answers and its schema is of this release or a newer one."""
        _compare(await self.value("current_step"))

    async def rows(self, statement: str, *arguments: Any, seconds: float | None = None) -> list[asyncpg.Record]:
        """The rows of a named statement."""
        return await self._run("fetch", statement, arguments, seconds)  # type: ignore[no-any-return]

    async def value(self, statement: str, *arguments: Any, seconds: float | None = None) -> Any:
        """The first value of the first row of a named statement."""
        return await self._run("fetchval", statement, arguments, seconds)

    async def row(self, statement: str, *arguments: Any, seconds: float | None = None) -> asyncpg.Record | None:
        """The first row of a named statement."""
        return await self._run("fetchrow", statement, arguments, seconds)  # type: ignore[no-any-return]

    async def _run(self, method: str, statement: str, arguments: Sequence[Any], seconds: float | None) -> Any:
        """Run one statement. Deadlocks and serialization failures are repeated here and nowhere else.

        One time limit covers everything: the wait for a connection, connecting, the statement and its repeats.
        """
        connections = self._connections
        if connections is None:
            raise NotOpen("the app is not open: use `async with hf:`, or the blocking `hf.sync`")
        if self._loop is not asyncio.get_running_loop():
            raise HoldfastError("the app was opened in another event loop: open it in this one, or use `hf.sync`")
        end = time.monotonic() + (self._seconds if seconds is None else seconds)
        for repeat in range(_REPEATS):
            try:
                return await self._run_once(connections, method, statement, arguments, end)
            except _WrongServer as fault:
                if repeat:
                    raise translated(fault.refusal) from fault.refusal
            except REPEATABLE as fault:
                if repeat == _REPEATS - 1:
                    raise translated(fault) from fault
                await asyncio.sleep(random.uniform(0, 0.02 * 2**repeat))  # noqa: S311 - jitter is no secret
            except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
                told = translated(fault)
                # If idle connections are being cut, the next one may be cut as well.
                harmless = never_sent(fault) or (statement in READS and getattr(told, "reason", None) == "cut")
                if not harmless or repeat == _REPEATS - 1:
                    raise told from fault
        raise AssertionError("unreachable")

    async def _run_once(
        self, connections: Connections, method: str, statement: str, arguments: Sequence[Any], end: float
    ) -> Any:
        began = time.monotonic()
        try:
            conn = await connections.take(max(0.001, end - began))
        except DatabaseUnavailable as fault:
            self._observe(statement, began, fault.__cause__ or fault)
            raise
        began = time.monotonic()
        try:
            if self.disk.is_due(statement):
                await self._ask_for_disk(conn, end - began)
            answer = await getattr(conn, method)(self._sql[statement], *arguments, timeout=max(0.001, end - began))
        except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
            self._observe(statement, began, fault)
            doubtful = isinstance(fault, asyncpg.ReadOnlySQLTransactionError) and connections.doubt(conn)
            if isinstance(fault, CONNECTION_FAULTS) and not isinstance(fault, ANSWERED):
                connections.drop(conn)
            else:
                connections.give(conn)
            if doubtful:
                raise _WrongServer(fault) from fault
            raise
        except HoldfastError:
            connections.give(conn)  # nothing was sent
            raise
        except BaseException:
            connections.drop(conn)  # nobody waits for its statement any more
            raise
        confirmed = not connections.confirmation.missing(conn)
        connections.give(conn)
        self._observe(statement, began, None)
        if not confirmed:
            raise unconfirmed()
        return answer

    def _observe(self, statement: str, began: float, fault: BaseException | None) -> None:
        if self.observe is not None:
            code = None if fault is None else getattr(fault, "sqlstate", None) or type(fault).__name__
            self.observe(statement, time.monotonic() - began, code)

    async def _ask_for_disk(self, conn: asyncpg.Connection, seconds: float) -> None:
        sql = self._sql["forgets_unasked"]
        self.disk.judge(await conn.fetchval(sql, self.disk.self_allowed, timeout=max(0.001, seconds)))


async def check_schema(config: Config) -> None:
    """Raise SchemaError, with advice, unless the schema is of this release or a newer one."""
    conn = await connect(config, role=None, name="holdfast check")
    await _check(conn, config)
    await retire(conn)


async def _check(conn: asyncpg.Connection, config: Config) -> None:
    """Check the schema on a connection, which is ended if anything is wrong."""
    sql = queries(config.schema)
    try:
        if not await conn.fetchval(sql["has_steps"], config.schema, timeout=_CHECK_SECONDS):
            raise SchemaError(f"the schema {config.schema!r} does not exist yet; run `holdfast migrate`")
        await refuse_testing_schema(conn, config)
        await refuse_forgetful_server(conn, config)
        _compare(await conn.fetchval(sql["current_step"], timeout=_CHECK_SECONDS))
    except BaseException as fault:
        await retire(conn)
        if isinstance(fault, (*CONNECTION_FAULTS, asyncpg.PostgresError)):
            raise translated(fault) from fault
        raise


async def refuse_testing_schema(conn: asyncpg.Connection, config: Config) -> None:
    """Raise SchemaError if real work would go into a schema that tests empty and whose time they move."""
    sql = queries(config.schema)["testing_clock"]
    if not config.is_of_a_test and await conn.fetchval(sql, config.schema, timeout=_CHECK_SECONDS):
        raise SchemaError(
            f"the schema {config.schema!r} was made by the testing kit, which empties it; use another database"
        )


def _compare(step: int) -> None:
    needed = migrations()[-1][0]
    if step < needed:
        raise SchemaError(f"the schema is at step {step}, this release needs {needed}; run `holdfast migrate`")


def connection_arguments(
    config: Config,
    *,
    role: str | None,
    name: str,
    direct: bool,
    seconds: float | None = None,
    lock_seconds: float | None = None,
) -> dict[str, Any]:
    """The arguments for a connection. Behind a pooler neither prepared statements nor session parameters survive.

    `seconds` is the default time limit of the connection's statements; the server ends them too. It also covers
    statements that the driver itself sends, such as LISTEN.
    """
    if config.database_url is None:
        raise DatabaseUnavailable("no database URL: set HOLDFAST_DATABASE_URL, or open an app, which starts one")
    pooled = config.direct_url is not None and not direct
    settings = {
        "application_name": name,
        "jit": "off",
        # The server reports a commit that no standby confirmed by a warning.
        "client_min_messages": "warning",
        # A snapshot for the whole transaction would make renewals, claims and settlements fail each other.
        "default_transaction_isolation": "read committed",
        **_LINE_SETTINGS,
    }
    if role is not None:
        settings["role"] = f"{config.schema}_{role}"
    if seconds is not None:
        settings["statement_timeout"] = f"{int(seconds * 1000) + 1000}ms"
        settings["lock_timeout"] = f"{int((lock_seconds or min(seconds, LOCK_SECONDS)) * 1000)}ms"
    settings |= config.engine_environment()
    return {
        "dsn": config.direct_url if direct and config.direct_url else config.database_url,
        "command_timeout": seconds,
        "statement_cache_size": 0 if pooled else 256,
        "server_settings": {} if pooled else settings,
    }
