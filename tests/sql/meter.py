"""What the engine's statements cost, by the server's own counters, and a bare worker to spend it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from holdfast.model.hints import Hints
from holdfast.model.job import Claim, Stream
from holdfast.store.statements import queries
from tests.harness.waiting import until

#: Any transaction that is under way in the cluster, be it in another database, keeps the versions that died
#: after its start from being pruned, and so adds to what is touched. Wait for it and measure anew,
#: up to so many times.
TRIES = 30

#: What pg_statio_all_tables, pg_stat_all_tables and pg_stat_all_indexes add up, for a tenth of their price.
_TOTALS = """
    select
      sum(pg_stat_get_blocks_fetched(oid)
        + case when reltoastrelid <> 0 then pg_stat_get_blocks_fetched(reltoastrelid) else 0 end)::bigint as buffers,
      sum(pg_stat_get_tuples_returned(oid) + pg_stat_get_tuples_fetched(oid))::bigint as rows
    from pg_class
    where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'i')"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What was read and written."""

    buffers: float
    rows: float

    def per(self, jobs: int) -> Cost:
        """The share of one job."""
        return Cost(self.buffers / jobs, self.rows / jobs)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.buffers - other.buffers, self.rows - other.rows)


async def totals(conn: asyncpg.Connection) -> Cost:
    """All that was touched so far, once this session's own counters are in."""
    await conn.execute("select pg_stat_force_next_flush()")
    row = await conn.fetchrow(_TOTALS)
    assert row is not None
    return Cost(row["buffers"], row["rows"])


async def leave_alone(conn: asyncpg.Connection) -> None:
    """No vacuum but ours: its reads would count, and its moment is chance."""
    for row in await conn.fetch("select tablename as relname from pg_tables where schemaname = 'holdfast'"):
        await conn.execute(f"alter table {row['relname']} set (autovacuum_enabled = off)")


async def undisturbed(conn: asyncpg.Connection) -> None:
    """Wait until no transaction of another test's database is older than this moment, but not for long."""
    moment = await conn.fetchval("select clock_timestamp()")

    async def alone() -> bool:
        older = "select from pg_stat_activity where datname <> current_database() and xact_start < $1"
        return bool(await conn.fetchval(f"select not exists ({older})", moment))

    with suppress(TimeoutError):
        await until(alone, seconds=3)


class BareWorker:
    """Claims with hints and completes, as the worker runtime does, with nothing in between."""

    def __init__(self, conn: asyncpg.Connection, types: Sequence[str], tenants: Sequence[str] | None = None) -> None:
        self._conn, self._sql = conn, queries("holdfast")
        self._types, self._tenants = types, tenants
        self._hints = Hints()
        self._streams: dict[int, Stream] = {}

    async def drain(self, jobs: int, batch: int = 200) -> int:
        """Claim and complete this many jobs. Returns how many there were."""
        if not self._streams:
            await self._find_streams()
        done = 0
        while done < jobs:
            taken = await self._turn(min(batch, jobs - done))
            done += taken
            if not taken:
                break
        return done

    async def _turn(self, limit: int) -> int:
        rows = await self._conn.fetch(
            self._sql["claim_jobs"], "w1", limit, None, *self._hints.ranges(list(self._streams)), limit, None, True
        )
        self._hints.learn(self._claim(row) for row in rows)
        if rows:
            ids, numbers = [row["job_id"] for row in rows], [row["attempt"] for row in rows]
            lost = await self._conn.fetch(self._sql["complete_many"], "w1", ids, numbers, None, [1] * len(ids), None)
            assert not lost
        return len(rows)

    async def _find_streams(self) -> None:
        rows = await self._conn.fetch(self._sql["open_streams"], self._types, None, self._tenants, [])
        self._streams = {row["id"]: Stream(**dict(row)) for row in rows}

    def _claim(self, row: asyncpg.Record) -> Claim:
        values: dict[str, Any] = dict(row)
        return Claim(
            stream=self._streams[values.pop("stream")],
            lease_seconds=values.pop("lease_seconds_given"),
            **values,
        )
