"""Bad states to drain in, put there before: other jobs in line, finished ones, scheduled ones.

For Holdfast only: peers have no such seeds, and go through the other states alone (see `bench.cells.states`).
"""

from __future__ import annotations

import json

import asyncpg

from bench import upkeep

__all__ = ["backlog", "history", "scheduled"]

_BATCH = 5000
_OTHER = "bench.other"
_TEXT = "x" * 100


async def backlog(url: str, count: int) -> None:
    """Jobs of a type that nobody runs here."""
    await _enqueue(url, count, None)


async def scheduled(url: str, count: int) -> None:
    """Jobs for later, of the type that is measured too."""
    await _enqueue(url, count, json.dumps({"delay": 86_400}), kind="bench.noop")


async def history(url: str, count: int) -> None:
    """Jobs that ended during the last six days, as the engine would have left them, with their attempts."""
    conn = await _connect(url)
    try:
        await _enqueue(url, 1, json.dumps({"delay": 86_400}), kind="bench.noop")
        await conn.execute("set session_replication_role = replica")
        for start in range(0, count, 250_000):
            await conn.execute(_HISTORY, count, start, min(count, start + 250_000), _TEXT)
    finally:
        await conn.close()
    await upkeep.analyze(url, vacuum=True)


_HISTORY = """
with ended as (
  insert into jobs (
    id, seq, created_at, updated_at, run_at, started_at, finished_at, stream, attempt, priority, state, tenant,
    type, queue, payload)
  select uuid_v7(), nextval('places'), moment, moment, moment, moment, moment, stream.id, 1, 100, 'success',
    stream.tenant, stream.type, stream.queue, jsonb_build_object('text', $4::text)
  from generate_series($2::bigint + 1, $3::bigint) as n
  cross join lateral (select now() - interval '6 days' * (1 - n::float8 / $1::bigint)) as a (moment)
  cross join (select * from streams where type = 'bench.noop' limit 1) as stream
  returning id, finished_at
)
insert into job_attempts (job_id, attempt, started_at, finished_at, queue_ms, duration_ms, outcome, worker)
select id, 1, finished_at, finished_at, 1, 1, 'success', 'bench' from ended
"""


async def _enqueue(url: str, count: int, option: str | None, *, kind: str = _OTHER) -> None:
    conn = await _connect(url)
    try:
        payload = json.dumps({"text": _TEXT})
        for start in range(0, count, _BATCH):
            batch = min(_BATCH, count - start)
            await conn.fetch(
                "select item from enqueue_many($1, $2::text[]::jsonb[], $3::text[]::jsonb[])",
                [kind] * batch,
                [payload] * batch,
                [option] * batch if option else None,
            )
    finally:
        await conn.close()
    await upkeep.analyze(url, vacuum=True)


async def _connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, server_settings={"search_path": "holdfast", "jit": "off"})
