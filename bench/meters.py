"""What a piece of work cost: CPU of processes, WAL, transactions, statements, buffers, connections, sizes.

CPU comes from /proc, over a process and all its descendants, those included that have come and gone. What
PostgreSQL counts is asked on a connection to another database, so that asking is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from bench.results import Figures
from bench.servers import PostgresServer

__all__ = ["UNKNOWN", "Costs", "PostgresMeter", "cpu_seconds", "table_figures"]

#: What cannot be measured here; it is left out of the figures.
UNKNOWN = float("nan")

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of processes and their descendants, in seconds; what has ended meanwhile is in its parent's account."""
    parents, ticks = _processes()
    wanted, total = list(pids), 0
    while wanted:
        pid = wanted.pop()
        total += ticks.get(pid, 0)
        wanted += [child for child, parent in parents.items() if parent == pid]
    return total / _TICKS


def _processes() -> tuple[dict[int, int], dict[int, int]]:
    """The parent of every process, and its ticks with those of the children that it has seen off."""
    parents, ticks = {}, {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(int(field) for field in fields[11:15])
    return parents, ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Counters at a moment, all growing."""

    server_cpu: float
    worker_cpu: float
    wal: float
    statements: float
    buffers: float

    def since(self, earlier: Costs, jobs: int) -> Figures:
        """What was spent per job."""
        figures = {
            "server_cpu_us": (self.server_cpu - earlier.server_cpu) * 1e6 / jobs,
            "worker_cpu_us": (self.worker_cpu - earlier.worker_cpu) * 1e6 / jobs,
            "wal_bytes": (self.wal - earlier.wal) / jobs,
            "statements": (self.statements - earlier.statements) / jobs,
            "buffers": (self.buffers - earlier.buffers) / jobs,
        }
        return {name: value for name, value in figures.items() if value == value}  # noqa: PLR0124 - NaN is unknown


class PostgresMeter:
    """Asks a server about one of its databases."""

    def __init__(self, server: PostgresServer, admin: asyncpg.Connection, *, has_statements: bool) -> None:
        self._server, self._admin, self._has_statements = server, admin, has_statements

    async def costs(self, database: str, workers: Iterable[int]) -> Costs:
        """The counters now."""
        statements = buffers = UNKNOWN
        if self._has_statements:
            row = await self._admin.fetchrow(
                "select coalesce(sum(calls), 0)::float8, coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8 "
                "from pg_stat_statements where dbid = (select oid from pg_database where datname = $1)",
                database,
            )
            statements, buffers = row or (UNKNOWN, UNKNOWN)
        return Costs(
            server_cpu=UNKNOWN if self._server.pid is None else cpu_seconds([self._server.pid]),
            worker_cpu=cpu_seconds(workers),
            wal=float(await self._admin.fetchval("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")),
            statements=statements,
            buffers=buffers,
        )

    async def forget(self) -> None:
        """Begin to count statements afresh: there is room for so many kinds only."""
        if self._has_statements:
            await self._admin.fetchval("select pg_stat_statements_reset()")

    async def transactions(self, database: str) -> int:
        """How many have committed: whole once all others have disconnected."""
        return int(
            await self._admin.fetchval("select xact_commit from pg_stat_database where datname = $1", database) or 0
        )

    async def connections(self, database: str) -> int:
        """How many clients are connected."""
        return int(
            await self._admin.fetchval(
                "select count(*) from pg_stat_activity where datname = $1 and backend_type = 'client backend'", database
            )
        )


async def table_figures(url: str) -> Figures:
    """Dead rows and sizes of all tables of a database."""
    conn = await asyncpg.connect(url)
    try:
        row = await conn.fetchrow(
            "select coalesce(sum(n_dead_tup), 0)::float8 as dead_tuples, "
            "coalesce(sum(pg_table_size(relid)), 0)::float8 as table_bytes, "
            "coalesce(sum(pg_indexes_size(relid)), 0)::float8 as index_bytes from pg_stat_user_tables"
        )
        return dict(row) if row else {}
    finally:
        await conn.close()
