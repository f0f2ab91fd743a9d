"""Circuit breakers in the engine: when one opens, who may try, what closes it, and what is too late."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.harness.waiting import until
from tests.sql.factories import claim, enqueue, enqueue_copies

POLICY = {"failure_threshold": 5, "open_for": 10, "window": 60, "failure_share": 0.5, "probes": 1}


async def report(
    conn: asyncpg.Connection, successes: int, failures: int, *, worker: str = "w1", generation: int = 1, **policy: Any
) -> asyncpg.Record:
    """What a worker has counted, as it reports it; the answer."""
    said = {"tenant": "", "name": "mail", "generation": generation, "successes": successes, "failures": failures}
    said |= {"error": "Down: no answer" if failures else None, "policy": POLICY | policy}
    row = await conn.fetchrow("select * from sync_circuits($1, $2::jsonb)", worker, json.dumps([said]))
    assert row is not None
    return row


async def circuit(conn: asyncpg.Connection) -> asyncpg.Record:
    row = await conn.fetchrow("select * from circuits")
    assert row is not None
    return row


async def due(conn: asyncpg.Connection) -> None:
    """The time of the next probe has come."""
    await conn.execute("update circuits set next_probe_at = now()")


async def probe(conn: asyncpg.Connection, lease: Any, worker: str = "w1") -> asyncpg.Record:
    row = await conn.fetchrow("select * from try_probe($1, $2, $3, '', 'mail')", worker, lease.job_id, lease.attempt)
    assert row is not None
    return row


async def end(conn: asyncpg.Connection, lease: Any, generation: int, succeeded: bool | None, worker: str = "w1") -> str:
    row = await conn.fetchrow(
        "select * from end_probe($1, $2, $3, '', 'mail', $4, $5, 'Down')",
        worker, lease.job_id, lease.attempt, generation, succeeded,
    )  # fmt: skip
    assert row is not None
    return str(row["state"])


async def half_opened(conn: asyncpg.Connection, **policy: Any) -> int:
    """A circuit that is tried again; its generation."""
    await report(conn, 0, 5, **policy)
    await due(conn)
    row = await report(conn, 0, 0, **policy)
    assert row["state"] == "half_open"
    return int(row["generation"])


async def test_it_opens_on_enough_failures_that_are_a_large_enough_share(conn: asyncpg.Connection) -> None:
    assert (await report(conn, 0, 4))["state"] == "closed"
    assert (await report(conn, 6, 5))["state"] == "closed"
    assert (await report(conn, 5, 5))["state"] == "open"


async def test_the_calls_of_all_workers_count(conn: asyncpg.Connection) -> None:
    assert (await report(conn, 100, 1, worker="w1"))["state"] == "closed"
    assert (await report(conn, 0, 20, worker="w2"))["state"] == "closed"
    assert (await report(conn, 0, 60, worker="w3"))["state"] == "closed"
    assert (await report(conn, 0, 82, worker="w2"))["state"] == "open"


async def test_the_successes_of_others_count_as_soon_as_anybody_fails(conn: asyncpg.Connection) -> None:
    assert not (await report(conn, 100, 0, worker="w2"))["troubled"]
    assert not await conn.fetchval("select exists (select from circuit_counts)")
    assert (await report(conn, 0, 4, worker="w1"))["troubled"]
    assert (await report(conn, 100, 0, worker="w2"))["troubled"]
    assert (await report(conn, 0, 5, worker="w1"))["state"] == "closed"


async def test_a_probe_closes_it(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    (lease,) = await claim(conn)
    generation = await half_opened(conn)
    answer = await probe(conn, lease)
    assert (answer["state"], answer["granted"]) == ("half_open", True)
    assert await end(conn, lease, generation, True) == "closed"
    assert not await conn.fetchval("select exists (select from controls)")
    assert await conn.fetchval("select failures from circuit_counts") == 5
    assert (await report(conn, 0, 5, generation=1))["state"] == "closed"
    generation = (await circuit(conn))["generation"]
    assert (await report(conn, 0, 1, worker="w2", generation=generation))["state"] == "closed"


async def test_a_failed_probe_opens_it_for_twice_as_long_up_to_a_quarter_of_an_hour(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    (lease,) = await claim(conn)
    generation = await half_opened(conn)
    lengths = []
    for _ in range(9):
        await probe(conn, lease)
        assert await end(conn, lease, generation, False) == "open"
        lengths.append((await circuit(conn))["opening_seconds"])
        await due(conn)
        generation = (await report(conn, 0, 0))["generation"]
    assert lengths == [20, 40, 80, 160, 320, 640, 900, 900, 900]


async def test_as_many_probes_as_may_and_no_more(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 5)
    leases = await claim(conn, limit=5)
    await half_opened(conn, probes=2)
    granted = [(await probe(conn, lease))["granted"] for lease in leases]
    assert granted == [True, True, False, False, False]
    assert (await probe(conn, leases[0]))["granted"]


async def test_a_probe_whose_lease_is_gone_makes_room(conn: asyncpg.Connection) -> None:
    """A worker that was killed or is frozen: its lease is swept, and what it says later decides nothing."""
    await enqueue_copies(conn, 2)
    first, second = await claim(conn, limit=2)
    generation = await half_opened(conn)
    assert (await probe(conn, first))["granted"]
    assert not (await probe(conn, second))["granted"]
    await conn.execute("delete from leases where job_id = $1", first.job_id)
    assert (await probe(conn, second))["granted"]
    assert await end(conn, first, generation, True) == "half_open"
    assert await end(conn, second, generation, False) == "open"


async def test_what_began_before_decides_nothing(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    (lease,) = await claim(conn)
    generation = await half_opened(conn)
    assert await end(conn, lease, generation, True) == "half_open"  # it has no permit
    await probe(conn, lease)
    assert await end(conn, lease, generation - 2, True) == "half_open"
    assert await end(conn, lease, generation - 2, False) == "half_open"
    assert (await report(conn, 0, 100, generation=1))["state"] == "half_open"
    assert await end(conn, lease, generation, None) == "half_open"
    assert await end(conn, lease, generation, True) == "half_open"  # it has given its permit back


async def test_as_many_successes_close_it_as_are_asked_for(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    (lease,) = await claim(conn)
    generation = await half_opened(conn, success_threshold=3)
    states = []
    for _ in range(3):
        assert (await probe(conn, lease))["granted"]
        states.append(await end(conn, lease, generation, True))
    assert states == ["half_open", "half_open", "closed"]


async def declare(conn: asyncpg.Connection, name: str = "work", *, per_tenant: bool = False) -> None:
    """A job type that names the circuit."""
    told = {
        "name": name, "queue": "default", "lane": "general", "max_attempts": None, "backoff_base": 1,
        "backoff_factor": 2, "backoff_max": 300, "backoff_jitter": 0.1, "timeout_seconds": None, "lease_seconds": None,
        "on_failure": "retry", "version": 1, "payload_schema": None, "circuit": "mail",
        "circuit_per_tenant": per_tenant,
    }  # fmt: skip
    await conn.execute("select publish_types($1::jsonb)", json.dumps([told]))


async def test_the_streams_of_a_type_are_shut_while_its_circuit_is_open(conn: asyncpg.Connection) -> None:
    await declare(conn)
    await enqueue_copies(conn, 10)
    await enqueue_copies(conn, 2, "other")
    await report(conn, 0, 5)
    assert await claim(conn, limit=10) == []
    assert await conn.fetchval("select shut_streams(array(select id from streams where type = 'work'))")
    assert len(await claim(conn, "other", limit=10)) == 2
    await due(conn)
    await report(conn, 0, 0, probes=2)
    leases = await claim(conn, limit=10)
    assert len(leases) == 1  # the policy was changed while it was half open: it holds from the next time on
    assert (await probe(conn, leases[0]))["granted"]
    assert await claim(conn, limit=10) == []
    assert await end(conn, leases[0], (await circuit(conn))["generation"], True) == "closed"
    assert len(await claim(conn, limit=20)) == 9


async def test_each_tenant_has_a_circuit_of_its_own_if_the_type_says_so(conn: asyncpg.Connection) -> None:
    await declare(conn, per_tenant=True)
    await enqueue(conn, tenant="a")
    await enqueue(conn, tenant="b")
    said = {"tenant": "a", "name": "mail", "generation": 1, "successes": 0, "failures": 5, "policy": POLICY}
    assert await conn.fetchval("select state from sync_circuits('w1', $1::jsonb)", json.dumps([said])) == "open"
    (lease,) = await claim(conn, limit=5)
    assert await conn.fetchval("select tenant from jobs where id = $1", lease.job_id) == "b"


async def test_operators_open_and_reset_circuits_and_it_is_written_down(conn: asyncpg.Connection) -> None:
    await declare(conn)
    await enqueue(conn)
    await conn.execute("select open_circuit('mail', '', null, 'ann', 'maintenance')")
    row = await conn.fetchrow("select * from list_circuits()")
    assert row is not None
    assert (row["state"], row["forced_by"], row["forced_note"], row["next_probe_at"]) == (
        "open", "ann", "maintenance", None,
    )  # fmt: skip
    assert await claim(conn) == []
    await conn.execute("select sync_circuits('w1', '[]')")
    assert (await circuit(conn))["state"] == "open"
    assert await conn.fetchval("select reset_circuit('mail', '', 'bob', 'over')")
    assert not await conn.fetchval("select reset_circuit('unknown', '', 'bob', 'over')")
    assert len(await claim(conn)) == 1
    await conn.execute("select open_circuit('mail', '', 30, 'ann')")
    assert await conn.fetchval("select opening_seconds from circuits where name = 'mail'") == 30
    audit = await conn.fetch("select action, actor, subject, detail ->> 'note' as note from audit_log order by id")
    assert [tuple(row) for row in audit] == [
        ("circuit.open", "ann", "mail", "maintenance"),
        ("circuit.reset", "bob", "mail", "over"),
        ("circuit.reset", "bob", "unknown", "over"),
        ("circuit.open", "ann", "mail", None),
    ]


async def test_a_clock_that_is_set_back_keeps_no_circuit_open(conn: asyncpg.Connection) -> None:
    await report(conn, 0, 5)
    await conn.execute("update circuits set next_probe_at = now() + interval '1 hour'")
    await report(conn, 0, 0)
    assert await conn.fetchval("select next_probe_at <= now() + interval '10 seconds' from circuits")


async def test_the_view_has_the_columns_of_a_plain_table(conn: asyncpg.Connection) -> None:
    await report(conn, 3, 5)
    for schema in ("holdfast", "holdfast_views"):
        row = await conn.fetchrow(
            "select service_name, state, failure_count, success_count, last_failure_at, opened_at, half_opened_at,"
            " updated_at"
            f" from {schema}.circuit_breakers where state != 'closed'"
        )
        assert row is not None
        assert (row["service_name"], row["state"]) == ("mail", "open")


async def test_nonsense_is_refused(conn: asyncpg.Connection) -> None:
    for policy in ({"probes": 0}, {"open_for": -1}, {"failure_share": 2}, {"window": "x"}):
        try:
            await report(conn, 0, 0, **policy)
        except asyncpg.PostgresError as fault:
            assert fault.sqlstate == "HF002"  # noqa: PT017 - one of many
        else:
            raise AssertionError(policy)


async def test_a_control_without_its_circuit_is_an_offence(conn: asyncpg.Connection) -> None:
    await report(conn, 0, 5)
    assert await conn.fetch("select * from verify()") == []
    await conn.execute("delete from controls")
    (offence,) = await conn.fetch("select * from verify()")
    assert offence["invariant"] == "a circuit shuts its types while it is not closed"
    await conn.execute("update circuits set state = 'closed'")
    assert await conn.fetch("select * from verify()") == []
    await conn.execute(
        "insert into controls (kind, name, paused_at, updated_by) values ('circuit', 'x', now(), 'a test')"
    )
    assert len(await conn.fetch("select * from verify()")) == 1


async def test_a_probe_of_the_round_before_takes_nobodys_place(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 4)
    leases = await claim(conn, limit=4)
    generation = await half_opened(conn, probes=2)
    assert [(await probe(conn, lease))["granted"] for lease in leases[:2]] == [True, True]
    assert await end(conn, leases[0], generation, False) == "open"
    await due(conn)
    again = [(await probe(conn, lease))["granted"] for lease in (leases[2], leases[3], leases[1])]
    assert again == [True, True, False]
    assert await end(conn, leases[1], generation, True) == "half_open"


async def test_a_probe_whose_attempt_was_taken_back_decides_nothing(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    (lease,) = await claim(conn)
    generation = await half_opened(conn)
    assert (await probe(conn, lease))["granted"]
    await conn.execute("update leases set worker = 'w2'")
    assert await end(conn, lease, generation, False) == "half_open"
    await conn.execute("delete from leases")
    assert await end(conn, lease, generation, False) == "half_open"
    assert not (await probe(conn, lease))["granted"]


async def test_two_workers_that_open_it_at_once_open_it_once(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    other = await connect_as("worker")
    await report(conn, 0, 1)
    async with asyncio.TaskGroup() as both:
        async with conn.transaction():
            assert (await report(conn, 0, 5))["state"] == "open"
            said = {"tenant": "", "name": "mail", "generation": 1, "successes": 0, "failures": 6}
            second = both.create_task(other.fetchval("select state from sync_circuits('w2', $1)", json.dumps([said])))
            waits = "select exists (select from pg_locks where not granted)"
            await until(lambda: conn.fetchval(waits), what="the second one waits for the first")
    assert await second == "open"
    row = await circuit(conn)
    assert (row["openings"], row["generation"]) == (1, 2)


async def test_what_the_code_does_not_say_follows_the_settings_at_once(conn: asyncpg.Connection) -> None:
    """Seed 002's development configuration, then production's; a number in code wins over both."""

    async def opened_after(**policy: Any) -> tuple[int, float]:
        await conn.execute("delete from circuits")
        await conn.execute("delete from circuit_counts")
        said = {"tenant": "", "name": "mail", "generation": 1, "successes": 0, "error": "Down", "policy": policy}
        failures = 0
        while True:
            failures += 1
            told = json.dumps([said | {"failures": failures}])
            row = await conn.fetchrow("select * from sync_circuits('w1', $1::jsonb)", told)
            assert row is not None
            if row["state"] == "open":
                return failures, round((await circuit(conn))["opening_seconds"], 3)

    assert await opened_after() == (5, 60)
    await conn.execute("select change_setting('CIRCUIT_FAILURE_THRESHOLD', '3', 'ada')")
    await conn.execute("select change_setting('CIRCUIT_OPEN_SECONDS', '30', 'ada')")
    assert await opened_after() == (3, 30)
    assert await opened_after(failure_threshold=4) == (4, 30)
    assert await opened_after(open_for=7) == (3, 7)
    shown = await conn.fetchrow("select failure_threshold, open_seconds from list_circuits()")
    assert tuple(shown or ()) == (3, 7)
    await conn.execute("select change_setting('CIRCUIT_FAILURE_THRESHOLD', null, 'ada')")
    await conn.execute("select change_setting('CIRCUIT_OPEN_SECONDS', null, 'ada')")
    await conn.execute("set holdfast.circuit_failure_threshold = '2'")
    assert await opened_after() == (2, 60)


async def test_a_circuit_that_was_made_before_a_setting_changed_follows_it(conn: asyncpg.Connection) -> None:
    said = {"tenant": "", "name": "mail", "generation": 1, "successes": 0, "failures": 3, "error": "Down", "policy": {}}
    row = await conn.fetchrow("select * from sync_circuits('w1', $1::jsonb)", json.dumps([said]))
    assert row is not None
    assert row["state"] == "closed"
    await conn.execute("select change_setting('CIRCUIT_FAILURE_THRESHOLD', '3', 'ada')")
    del said["policy"]
    row = await conn.fetchrow("select * from sync_circuits('w1', $1::jsonb)", json.dumps([said]))
    assert row is not None
    assert row["state"] == "open"


async def test_an_operators_circuit_follows_the_settings(conn: asyncpg.Connection) -> None:
    await conn.execute("select change_setting('CIRCUIT_OPEN_SECONDS', '30', 'ada')")
    await conn.execute("select reset_circuit('mail', '', 'ada')")
    row = await conn.fetchrow("select failure_threshold, open_seconds from list_circuits()")
    assert tuple(row or ()) == (5, 30)
    wrong = (("CIRCUIT_FAILURE_THRESHOLD", "0"), ("CIRCUIT_OPEN_SECONDS", "1"), ("CIRCUIT_OPEN_SECONDS", "x"))
    for name, value in wrong:
        try:
            await conn.execute("update settings set value = $2 where name = $1", name, value)
        except asyncpg.PostgresError as fault:
            assert fault.sqlstate == "HF002"  # noqa: PT017 - one of many
        else:
            raise AssertionError(name)


async def test_numbers_beyond_their_bounds_are_refused_to_hand_written_sql(conn: asyncpg.Connection) -> None:
    """One such row would fail every look at circuits."""
    await report(conn, 0, 0)
    numbers = "window_seconds = 'NaN'", "open_seconds = 0", "probes = 0", "failure_share = 2", "opening_seconds = -1"
    for wrong in numbers:
        with pytest.raises(asyncpg.CheckViolationError):
            await conn.execute(f"update circuits set {wrong}")
