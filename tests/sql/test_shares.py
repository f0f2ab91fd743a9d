"""How tenants share slots: by weight alone, whatever their queues and priorities; within one, priority is strict.

`make test` looks at hundreds of jobs, `make chaos` at a flood of a hundred thousand.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import CHAOS_SECONDS, ConnectAs
from tests.sql.factories import (
    Lease,
    claim,
    enqueue,
    enqueue_copies,
    enqueue_many,
    offences,
    publish,
    settle,
)
from tests.sql.meter import TRIES

FLOOD = 100_000 if CHAOS_SECONDS else 1_400
STARTS = 3_000 if CHAOS_SECONDS else 160
#: By weight, turns are so regular that fewer say the same.
BY_WEIGHT = STARTS if CHAOS_SECONDS else 80
QUEUES = [f"q{n}" for n in range(7)]


async def crowd(conn: asyncpg.Connection, *, aged: bool = False) -> None:
    """A has seven queues, priority 0 and a flood; B has one queue, and nothing urgent."""
    for queue in QUEUES:
        for part in range(0, FLOOD // 7, 5_000):
            number = min(5_000, FLOOD // 7 - part)
            await enqueue_many(conn, [("work", {}, {"queue": queue, "priority": 0})] * number, tenant="a")
    await enqueue_many(conn, [("work", {}, {"priority": 100})] * (2 * STARTS), tenant="b")
    if aged:
        await enqueue(conn, tenant="a", priority=200)  # so that others can be passed
        await conn.execute("update ready set ready_at = ready_at - interval '1 hour' where rank = 2")
        while await conn.fetchval("select age(10000)"):
            pass
        assert await conn.fetchval("select count(*) from ready where rank = 0") == FLOOD // 7 * 7


async def tenants_of(conn: asyncpg.Connection, leases: Sequence[Lease]) -> list[str]:
    """Whose jobs these are, in order."""
    rows = await conn.fetch("select id, tenant from jobs where id = any ($1)", [lease.job_id for lease in leases])
    names = {row["id"]: row["tenant"] for row in rows}
    return [names[lease.job_id] for lease in leases]


async def used(conns: Sequence[asyncpg.Connection], slots: int, starts: int, *, ahead: int = 1) -> dict[str, float]:
    """The share of slots that each tenant had: jobs of any length, `ahead` of them claimed at a time by anybody."""
    chance = random.Random(slots)
    running: list[tuple[Lease, str]] = []
    used = Counter[str]()
    started = 0
    while started < starts:
        while len(running) > slots - ahead:
            lease, _ = running.pop(chance.randrange(len(running)))
            await settle(chance.choice(conns), "complete", [lease])
        conn = chance.choice(conns)
        leases = await claim(conn, limit=ahead)
        assert len(leases) == ahead, "slots are not left empty"
        running += zip(leases, await tenants_of(conn, leases), strict=True)
        started += ahead
        used.update(tenant for _, tenant in running)
    await settle(conns[0], "complete", [lease for lease, _ in running])
    return {tenant: count / used.total() for tenant, count in used.items()}


async def weigh(conn: asyncpg.Connection, tenant: str, weight: float) -> None:
    await conn.execute("select set_weight($1, $2, 'ada')", tenant, weight)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("aged", [False, True], ids=["urgent", "aged"])
async def test_neither_priority_nor_queues_nor_age_gain_a_tenant_slots(
    conn: asyncpg.Connection, connect_as: ConnectAs, aged: bool
) -> None:
    conns = [conn, await connect_as("superuser"), await connect_as("superuser")]
    await crowd(conn, aged=aged)
    for slots, ahead in ((1, 1), (3, 1), (8, 1), (20, 20)):
        share = await used(conns, slots, STARTS // 4, ahead=ahead)
        assert share["b"] >= 0.45, f"{slots} slots"
    assert await offences(conn) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("slots", "ahead"), [(1, 1), (2, 1), (5, 1), (10, 10), (20, 20)])
async def test_weights_are_shares_of_slots_however_few_there_are(
    conn: asyncpg.Connection, connect_as: ConnectAs, slots: int, ahead: int
) -> None:
    conns = [conn, await connect_as("superuser")]
    await crowd(conn)
    await weigh(conn, "b", 3)
    share = await used(conns, slots, BY_WEIGHT, ahead=ahead)
    assert share["b"] == pytest.approx(0.75, rel=0.1)
    await weigh(conn, "a", 9)
    share = await used(conns, slots, BY_WEIGHT, ahead=ahead)
    assert share["b"] == pytest.approx(0.25, rel=0.1)


async def test_a_tenant_with_less_than_a_slot_has_its_share_of_one(conn: asyncpg.Connection) -> None:
    for n in range(12):
        await enqueue_many(conn, [("work", {}, None)] * BY_WEIGHT, tenant=f"t{n}")
    await weigh(conn, "t0", 5)
    share = await used([conn], 4, 2 * BY_WEIGHT)  # 1.25 slots for the first, a quarter of one for each of the others
    assert share["t0"] == pytest.approx(5 / 16, rel=0.15)
    assert all(share[f"t{n}"] == pytest.approx(1 / 16, rel=0.35) for n in range(1, 12)), share


async def test_callers_without_a_memory_draw_lots(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, {"priority": 0})] * 200, tenant="a")
    await enqueue_many(conn, [("work", {}, None)] * 200, tenant="b")
    await weigh(conn, "b", 3)
    await conn.execute("select setseed(0.5)")
    served = Counter[str]()
    memories = [
        "", "nonsense", '{"turns": [1]}', '{"turns": {"a": ["x", "y"]}}', '{"turns": {"a": ["x", 9999999999]}}',
        '{"turns": {"a": ["1e400", 9999999999]}}', '{"counted": {"at": "x", "until": "y"}}',
        '{"counted": {"at": 0, "until": 1e18, "running": {"a": "x"}}}',
    ]  # fmt: skip
    for memory in memories * 20:
        await conn.execute("select set_config('holdfast.turns', $1, false)", memory)
        leases = await claim(conn)
        served.update(await tenants_of(conn, leases))
        await settle(conn, "complete", leases)
    assert 95 <= served["b"] <= 145  # 120 of 160, by three standard deviations and more


async def test_long_jobs_of_one_tenant_do_not_fill_up_the_slots(conn: asyncpg.Connection) -> None:
    """If only starts counted, the tenant with the longer jobs would have all slots in the end."""
    await enqueue_many(conn, [("work", {}, {"priority": 0})] * 50, tenant="a")
    await enqueue_many(conn, [("work", {}, None)] * 50, tenant="b")
    leases = await claim(conn, limit=6)
    for _ in range(20):
        short = [lease for lease, name in zip(leases, await tenants_of(conn, leases), strict=True) if name == "b"]
        assert len(short) == 3
        await settle(conn, "complete", short[:1])
        leases = [lease for lease in leases if lease != short[0]] + await claim(conn)


async def test_an_idle_tenant_saves_up_no_slots(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, None)] * 200, tenant="a")
    await enqueue_many(conn, [("work", {}, None)] * 100, tenant="c")
    for _ in range(50):
        await settle(conn, "complete", await claim(conn, limit=2))
    await enqueue_many(conn, [("work", {}, None)] * 100, tenant="b")
    served: list[str] = []
    for _ in range(12):
        leases = await claim(conn)
        served += await tenants_of(conn, leases)
        await settle(conn, "complete", leases)
    assert Counter(served)["b"] in (4, 5)


async def test_a_tenant_not_served_for_long_gets_at_most_one_extra_slot(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, None)] * 100, tenant="a")
    long = await claim(conn, limit=9)
    await enqueue_many(conn, [("work", {}, None)] * 100, tenant="b")
    for _ in range(20):  # in the one slot that the long jobs have left
        leases = await claim(conn)
        assert await tenants_of(conn, leases) == ["b"]
        await settle(conn, "complete", leases)
    await settle(conn, "complete", long)
    served: list[str] = []
    for _ in range(10):
        leases = await claim(conn)
        served += await tenants_of(conn, leases)
        await settle(conn, "complete", leases)
    assert 4 <= Counter(served)["b"] <= 7


async def test_old_turns_are_forgotten(conn: asyncpg.Connection) -> None:
    for tenant in ("a", "b"):
        await enqueue_many(conn, [("work", {}, None)] * 90, tenant=tenant)
    await conn.execute("select setseed(0.5)")
    for seconds, least in ((50, 0), (70, 10)):
        served: list[str] = []
        for _ in range(40):
            await conn.execute(
                "select set_config('holdfast.turns', json_build_object('turns', json_build_object("
                "'a', json_build_array(1, t), 'b', json_build_array(-1, t)))::text, false)"
                " from (select extract(epoch from now()) - $1::integer as t) t",
                seconds,
            )
            leases = await claim(conn)
            served += await tenants_of(conn, leases)
            await settle(conn, "complete", leases)
        assert Counter(served)["b"] >= least
        assert least or set(served) == {"a"}


async def test_a_turn_takes_no_tenant_beyond_its_share(conn: asyncpg.Connection) -> None:
    """Three tenants and two slots: the one that has a slot has more than its share already."""
    for tenant in ("a", "b", "c"):
        await enqueue_many(conn, [("work", {}, None)] * 9, tenant=tenant)
    assert len(await claim(conn, tenants=["a"])) == 1
    await conn.execute(
        "select set_config('holdfast.turns', json_build_object('turns', json_build_object("
        "'a', json_build_array(1, t), 'b', json_build_array(-1, t), 'c', json_build_array(-1, t)))::text, false)"
        " from (select extract(epoch from now()) as t) t"
    )
    assert await tenants_of(conn, await claim(conn)) in (["b"], ["c"])


async def test_a_tenant_that_comes_back_from_a_rush_is_not_made_to_wait(conn: asyncpg.Connection) -> None:
    """What it had while nobody else wanted anything counts against nobody."""
    await enqueue_many(conn, [("work", {}, None)] * 100, tenant="a")
    for _ in range(40):
        await settle(conn, "complete", await claim(conn, limit=2))
    await enqueue_many(conn, [("work", {}, None)] * 40, tenant="b")
    served: list[str] = []
    for _ in range(10):
        leases = await claim(conn)
        served += await tenants_of(conn, leases)
        await settle(conn, "complete", leases)
    assert Counter(served)["a"] in (4, 5, 6)


async def test_within_a_tenant_priority_is_strict_with_other_tenants_present(conn: asyncpg.Connection) -> None:
    async def add(tenant: str, queue: str, priority: int) -> UUID:
        return await enqueue(conn, tenant=tenant, queue=queue, priority=priority)

    own = [await add("a", queue, priority) for priority in (30, 20, 10) for queue in ("x", "y", "x")]
    alone = [lease.job_id for _ in range(4) for lease in await claim(conn)]
    assert alone == [own[6], own[7], own[8], own[3]]
    await enqueue_many(conn, [("work", {}, {"priority": 0})] * 20, tenant="b")
    mixed = [lease.job_id for _ in range(4) for lease in await claim(conn, limit=3)]
    assert [job_id for job_id in mixed if job_id in own] == [own[4], own[5], own[0], own[1]]


async def test_slots_a_tenant_cannot_use_go_to_the_others_at_once(conn: asyncpg.Connection) -> None:
    for tenant, number in (("a", 1), ("b", 50), ("c", 4)):
        await enqueue_many(conn, [("work", {}, None)] * number, tenant=tenant)
    served = Counter(await tenants_of(conn, await claim(conn, limit=30)))
    assert served == {"a": 1, "b": 25, "c": 4}


async def test_limits_and_pauses_do_not_cost_a_tenant_its_share_of_the_rest(conn: asyncpg.Connection) -> None:
    await publish(conn, "few", limit_count=2)
    await publish(conn, "keyed", limit_count=1, limit_key="who")
    await enqueue_many(conn, [("few", {}, {"priority": 0})] * 50, tenant="a")
    await enqueue_many(conn, [("keyed", {"who": 1}, {"priority": 1})] * 50, tenant="a")
    await enqueue_many(conn, [("work", {}, {"priority": 2, "queue": "shut"})] * 50, tenant="a")
    await enqueue_many(conn, [("work", {}, {"priority": 3})] * 50, tenant="a")
    await enqueue_many(conn, [("work", {}, None)] * 50, tenant="b")
    await conn.execute("select pause_subject('queue', 'shut', 'ada')")
    types = ("few", "keyed", "work")
    leases = await claim(conn, *types, limit=20)
    assert Counter(await tenants_of(conn, leases)) == {"a": 10, "b": 10}
    rows = await conn.fetch("select type from jobs where id = any ($1)", [lease.job_id for lease in leases])
    assert Counter(row["type"] for row in rows) == {"few": 2, "keyed": 1, "work": 17}
    more = await claim(conn, *types, limit=20)
    assert Counter(await tenants_of(conn, more)) == {"a": 10, "b": 10}
    assert await offences(conn) == []


async def test_tenants_begin_in_turns(conn: asyncpg.Connection) -> None:
    """What a worker comes to last is handed back when handlers get slower: that is not all of one tenant."""
    await enqueue_many(conn, [("work", {}, {"priority": 0})] * 30, tenant="a")
    await enqueue_many(conn, [("work", {}, None)] * 30, tenant="b")
    await weigh(conn, "b", 2)
    streams = [row["id"] for row in await conn.fetch("select id from streams order by id")]
    rows = await conn.fetch("select job_id, attempt from claim_streams('w1', $1, 12, 30)", streams)
    served = await tenants_of(conn, [Lease(*row) for row in rows])
    assert [Counter(served[n : n + 3]) for n in range(0, 12, 3)] == [{"a": 1, "b": 2}] * 4


async def test_a_lapsed_lease_does_not_count(conn: asyncpg.Connection) -> None:
    await enqueue_many(conn, [("work", {}, None)] * 20, tenant="a")
    await claim(conn, limit=6)
    await conn.execute("update leases set expires_at = now() - interval '1 second'")
    await enqueue_many(conn, [("work", {}, None)] * 20, tenant="b")
    assert Counter(await tenants_of(conn, await claim(conn, limit=8))) == {"a": 4, "b": 4}


@pytest.mark.fresh_database
async def test_leases_that_ended_behind_an_open_transaction_are_counted_rarely(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    other = await connect_as("superuser")
    await conn.execute("alter table leases set (autovacuum_enabled = off)")
    for tenant in ("a", "b"):
        await enqueue_many(conn, [("work", {}, None)] * 3000, tenant=tenant)
    transaction = other.transaction(isolation="repeatable_read")
    await transaction.start()
    await other.execute("select count(*) from jobs")
    for _ in range(10):
        await settle(conn, "complete", await claim(conn, limit=500))
    walked = "select pg_stat_get_xact_tuples_returned('leases_expiry'::regclass)"
    for _ in range(TRIES):
        async with conn.transaction():
            before = await conn.fetchval(walked)
            leases = [lease for _ in range(10) for lease in await claim(conn, limit=4)]
            assert Counter(await tenants_of(conn, leases)) == {"a": 20, "b": 20}, "what was dealt since is known"
            walks = (await conn.fetchval(walked) - before) // 5000
        if walks <= 1:
            break
    assert walks <= 1, "each of them counted"
    await transaction.rollback()


async def test_one_tenant_with_many_streams_is_dealt_with_as_before(conn: asyncpg.Connection) -> None:
    for queue in QUEUES:
        await enqueue_copies(conn, 2, queue=queue)
    assert len(await claim(conn, limit=20)) == 14
    assert await conn.fetchval("select current_setting('holdfast.turns', true)") in (None, "")


async def first_of_all(conn: asyncpg.Connection, *, starts: int, slots: int = 8) -> Counter[str]:
    """The tenants of this many jobs that began, where each job ends as soon as the next claim is made."""
    await conn.execute("select setseed(0.5)")
    began = Counter[str]()
    while began.total() < starts:
        leases = await claim(conn, limit=slots)
        assert leases
        began.update(await tenants_of(conn, leases))
        await settle(conn, "complete", leases)
    return began


@pytest.mark.parametrize("kind", ["type", "queue"])
@pytest.mark.parametrize(("limit", "queues"), [(1, 1), (2, 6), (3, 6)])
async def test_tenants_share_a_limit_that_is_smaller_than_what_waits(
    conn: asyncpg.Connection, kind: str, limit: int, queues: int
) -> None:
    """Before, the tenant with the older backlog, or with more queues, got every permit."""
    if kind == "type":
        await publish(conn, "work", limit_count=limit)
    else:
        for queue in QUEUES:
            await conn.execute("select set_limit('queue', $1, $2, null, null, 'ada')", queue, limit)
    await enqueue_many(conn, [("work", {}, {"queue": QUEUES[n % queues]}) for n in range(400)], tenant="a")
    await enqueue_many(conn, [("work", {}, {"queue": QUEUES[0]})] * 200, tenant="b")
    began = await first_of_all(conn, starts=80)
    least = 80 * 0.35 if kind == "type" or queues == 1 else 80 * 0.5 / queues * 0.7
    assert began["b"] >= least, began
    assert began["a"] >= 80 * 0.35, began


async def test_tenants_share_a_rate_by_weight(conn: asyncpg.Connection) -> None:
    await conn.execute("select set_weight('b', 3, 'ada')")
    await publish(conn, "work", rate_count=1, rate_seconds=60)
    await enqueue_many(conn, [("work", {}, {})] * 200, tenant="a")
    await enqueue_many(conn, [("work", {}, {})] * 200, tenant="b")
    await conn.execute("select setseed(0.5)")
    began = Counter[str]()
    for _ in range(100):
        (lease,) = await claim(conn, limit=8)
        began.update(await tenants_of(conn, [lease]))
        await settle(conn, "complete", [lease])
        await conn.execute("update permits set granted_at = granted_at - interval '61 seconds'")
    assert 60 <= began["b"] <= 90, began


async def test_permits_that_a_tenant_already_has_count_for_its_share(conn: asyncpg.Connection) -> None:
    await publish(conn, "work", limit_count=4)
    await enqueue_many(conn, [("work", {}, {})] * 20, tenant="a")
    assert await tenants_of(conn, await claim(conn, limit=3)) == ["a"] * 3
    await enqueue_many(conn, [("work", {}, {})] * 20, tenant="b")
    assert await tenants_of(conn, await claim(conn, limit=8)) == ["b"]
    # What nobody else wants is nobody's.
    await conn.execute("delete from ready where job_id in (select id from jobs where tenant = 'b')")
    running = await conn.fetch("select job_id, l.attempt from leases l join jobs j on j.id = job_id where tenant = 'b'")
    await settle(conn, "complete", [Lease(*row) for row in running])
    assert await tenants_of(conn, await claim(conn, limit=8)) == ["a"]
