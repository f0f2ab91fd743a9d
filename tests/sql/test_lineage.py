"""Which jobs belong together: those of a correlation id, and parents with their children; in order, and bounded."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from tests.sql.factories import enqueue, run_one, settle


async def correlated(
    conn: asyncpg.Connection, correlation: str, tenant: str | None = None, **page: object
) -> list[UUID]:
    return list(
        await conn.fetchval(
            "select correlated_ids($1, $2, $3, $4)", correlation, tenant, page.get("after"), page.get("limit", 100)
        )
    )


async def family(
    conn: asyncpg.Connection, job: UUID, tenant: str | None = None, **bounds: int
) -> list[tuple[UUID, int]]:
    rows = await conn.fetch(
        "select * from job_family($1, $2, $3, $4)", job, tenant, bounds.get("jobs", 100), bounds.get("depth", 50)
    )
    return [(row["job_id"], row["depth"]) for row in rows]


async def is_complete(conn: asyncpg.Connection, job: UUID, jobs: int, depth: int = 50) -> bool:
    return bool(await conn.fetchval("select complete from job_family($1, null, $2, $3) limit 1", job, jobs, depth))


async def test_the_job_that_gave_its_id_belongs_to_its_correlation(conn: asyncpg.Connection) -> None:
    root = await enqueue(conn)
    children = [await enqueue(conn, parent_id=root) for _ in range(3)]
    grandchild = await enqueue(conn, parent_id=children[0])
    await enqueue(conn)
    assert await correlated(conn, str(root)) == [root, *children, grandchild]


async def test_jobs_of_a_correlation_come_in_pages_oldest_first(conn: asyncpg.Connection) -> None:
    jobs = [await enqueue(conn, correlation_id="order 7") for _ in range(5)]
    seen: list[UUID] = []
    while page := await correlated(conn, "order 7", after=seen[-1] if seen else None, limit=2):
        seen += page
    assert seen == jobs


async def test_the_same_correlation_id_of_another_tenant_is_another_one(conn: asyncpg.Connection) -> None:
    mine = await enqueue(conn, correlation_id="x", tenant="acme")
    others = await enqueue(conn, correlation_id="x", tenant="zeta")
    assert await correlated(conn, "x", "acme") == [mine]
    assert await correlated(conn, "x", "default") == []
    assert await correlated(conn, "x") == [mine, others]


async def test_a_root_of_another_tenant_is_not_shown(conn: asyncpg.Connection) -> None:
    root = await enqueue(conn, tenant="acme")
    assert await correlated(conn, str(root), "zeta") == []
    assert await family(conn, root, "zeta") == []


async def test_a_tree_has_ancestors_and_descendants(conn: asyncpg.Connection) -> None:
    root = await enqueue(conn)
    parent = await enqueue(conn, parent_id=root)
    uncle = await enqueue(conn, parent_id=root)
    job = await enqueue(conn, parent_id=parent)
    children = [await enqueue(conn, parent_id=job) for _ in range(2)]
    grandchild = await enqueue(conn, parent_id=children[1])
    assert await family(conn, job) == [(root, -2), (parent, -1), (job, 0), *((c, 1) for c in children), (grandchild, 2)]
    assert (uncle, 1) in await family(conn, root)
    assert await is_complete(conn, root, 7)


async def test_a_tree_ends_where_it_is_told_to_and_says_so(conn: asyncpg.Connection) -> None:
    line = [await enqueue(conn)]
    for _ in range(6):
        line.append(await enqueue(conn, parent_id=line[-1]))
    assert await family(conn, line[3], jobs=5) == [(line[n], n - 3) for n in range(5)]
    assert not await is_complete(conn, line[3], 5)
    assert await family(conn, line[0], depth=2) == [(line[n], n) for n in range(3)]
    assert not await is_complete(conn, line[0], 100, depth=2)
    assert await is_complete(conn, line[0], 7)
    many = await enqueue(conn)
    for _ in range(10):
        await enqueue(conn, parent_id=many)
    assert len(await family(conn, many, jobs=4)) == 4
    assert not await is_complete(conn, many, 10)
    assert await is_complete(conn, many, 11)


async def test_a_tree_as_deep_as_it_may_be_is_complete(conn: asyncpg.Connection) -> None:
    line = [await enqueue(conn)]
    for _ in range(3):
        line.append(await enqueue(conn, parent_id=line[-1]))
    assert await family(conn, line[0], depth=3) == [(job, depth) for depth, job in enumerate(line)]
    assert await is_complete(conn, line[0], 100, depth=3)
    assert await is_complete(conn, line[0], 4, depth=3)
    assert await is_complete(conn, line[3], 100, depth=3)
    assert not await is_complete(conn, line[0], 100, depth=2)
    assert not await is_complete(conn, line[3], 100, depth=2)


async def test_a_parent_that_is_gone_is_not_missing(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    orphan = await enqueue(conn, parent_id=lease.job_id)
    job = await enqueue(conn, parent_id=orphan)
    await settle(conn, "complete", [lease])
    assert not await is_complete(conn, job, 100, depth=1)
    await conn.execute("select take_away(array[$1::uuid])", lease.job_id)
    assert await family(conn, job, depth=1) == [(orphan, -1), (job, 0)]
    assert await is_complete(conn, job, 100, depth=1)
