"""Numbers have bounds: the same ones in Python, in the engine's functions, and in the tables themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from holdfast import Context, Holdfast, InvalidInput, Limit, Rate, Retry, RetryPolicy, Snooze
from holdfast.bounds import BOUNDS
from holdfast.model.options import engine_options
from tests.harness.inprocess import working
from tests.sql.factories import claim, enqueue

#: What is declared about a job type: its bound, and how it is given in Python.
DECLARED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "lease_seconds": ("lease", lambda value: _declared(lease=value)),
    "timeout_seconds": ("timeout", lambda value: _declared(timeout=value)),
    "version": ("version", lambda value: _declared(version=value)),
    "max_attempts": ("max_attempts", lambda value: RetryPolicy(max_attempts=value)),
    "backoff_base": ("backoff_base", lambda value: RetryPolicy(base=value)),
    "backoff_factor": ("backoff_factor", lambda value: RetryPolicy(factor=value)),
    "backoff_max": ("backoff_max", lambda value: RetryPolicy(max=value)),
    "backoff_jitter": ("backoff_jitter", lambda value: RetryPolicy(jitter=value)),
    "rate_seconds": ("rate", lambda value: Rate(1, per=value)),
    "rate_count": ("limit", Rate),
    "limit_count": ("limit", Limit),
}
FAR = datetime(9999, 12, 30, tzinfo=UTC)


def _declared(**options: Any) -> None:
    @Holdfast().job("work", **options)
    async def work(ctx: Context) -> None: ...


async def test_python_and_the_engine_have_the_same_bounds(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch("select name, low, high, whole from bounds()")
    assert {row[0]: (*map(float, row[1:3]), row[3]) for row in rows} == {
        name: (float(bound.low), float(bound.high), bound.whole) for name, bound in BOUNDS.items()
    }


@pytest.mark.parametrize("field", DECLARED)
async def test_a_declaration_is_refused_alike_by_python_the_function_and_the_table(
    conn: asyncpg.Connection, field: str
) -> None:
    bound, given = BOUNDS[DECLARED[field][0]], DECLARED[field][1]
    for value in (bound.low, bound.high):
        given(int(value) if bound.whole else value)
        await _publish(conn, field, value)
        await _insert(conn, field, value)
    below = bound.low - (1 if bound.whole else max(0.01, bound.low / 2))
    above = bound.high * 1.01 + 1
    for value in (below, above, math.inf, -math.inf, math.nan):
        odd = int(value) if bound.whole and math.isfinite(value) else value
        with pytest.raises(InvalidInput, match=r"must be|a rate has a time"):
            given(odd)
        with pytest.raises((asyncpg.CheckViolationError, asyncpg.DataError)):
            await _insert(conn, field, value)
        if math.isfinite(value):
            with pytest.raises(asyncpg.PostgresError, match=f"job type work: {field} must be") as refused:
                await _publish(conn, field, value)
            assert refused.value.sqlstate == "HF002"
    with pytest.raises(asyncpg.PostgresError, match=f"job type work: {field} must be"):
        await _publish(conn, field, 1e300)
    with pytest.raises(asyncpg.PostgresError, match=f"{field} must be a number"):
        await _publish(conn, field, "much")


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30, "huge", 3153600001, timedelta(days=3_000_000), True])
def test_an_invalid_delay_is_refused_where_it_is_given(value: Any) -> None:
    value = 10**5000 if value == "huge" else value
    for give in (
        lambda: Snooze(value),
        lambda: Retry(delay=value),
        lambda: engine_options({"delay": value}),
    ):
        with pytest.raises(InvalidInput, match="delay"):
            give()


@pytest.mark.parametrize("name", ["priority", "max_attempts", "target_count"])
def test_an_option_out_of_bounds_is_refused_before_it_is_sent(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} must be a whole number from"):
        engine_options({name: 10**5000})
    with pytest.raises(InvalidInput, match=f"{name} must be a whole number from"):
        engine_options({name: -1})


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 1e30, 3153600001.0, -1.0])
async def test_the_engine_refuses_an_invalid_delay_and_changes_nothing(
    conn: asyncpg.Connection, seconds: float
) -> None:
    job_id = await enqueue(conn)
    (lease,) = await claim(conn)
    for call in ("snooze($1, $2, $3, delays => $4)", "fail($1, $2, $3, delays => $4)"):
        with pytest.raises(asyncpg.PostgresError, match=r"delay of a (snooze|retry) must be") as refused:
            await conn.fetch(f"select * from {call}", "w1", [job_id], [lease.attempt], [seconds])
        assert refused.value.sqlstate == "HF002"
    assert await conn.fetchval("select state from jobs where id = $1", job_id) == "running"
    with pytest.raises(asyncpg.PostgresError, match=r"delay must be|invalid input syntax"):
        await enqueue(conn, delay=seconds)


async def test_the_longest_delay_is_stored_and_every_list_reads_it(conn: asyncpg.Connection, database_url: str) -> None:
    job_id = await enqueue(conn)
    (lease,) = await claim(conn)
    longest = BOUNDS["delay"].high
    await conn.fetch("select * from snooze($1, $2, $3, delays => $4)", "w1", [job_id], [lease.attempt], [longest])
    await enqueue(conn, delay=longest)
    await enqueue(conn, run_at=FAR)
    async with Holdfast(database_url) as hf:
        assert len(await hf.find(limit=10)) == 3


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "10240-01-01", "0001-01-01"])
async def test_no_table_takes_a_moment_that_a_client_cannot_read(conn: asyncpg.Connection, moment: str) -> None:
    job_id = await enqueue(conn)
    await claim(conn)
    for statement in (
        f"update jobs set run_at = '{moment}'",
        f"update jobs set updated_at = '{moment}'",
        f"update jobs set started_at = '{moment}'",
        f"update leases set expires_at = '{moment}'",
        f"insert into due (run_at, job_id) values ('{moment}', '{job_id}')",
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await conn.execute(statement)


@pytest.mark.parametrize("seconds", ["infinity", "nan", "1e30", "-1"])
async def test_claims_and_the_table_refuse_an_endless_lease(conn: asyncpg.Connection, seconds: str) -> None:
    await enqueue(conn)
    with pytest.raises(asyncpg.PostgresError, match=r"lease_seconds must be from 0.1 to 604800"):
        await claim(conn, lease_seconds=float(seconds))
    await claim(conn)
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.execute(f"update leases set lease_seconds = '{seconds}'")


async def test_a_setting_out_of_bounds_stops_neither_claims_nor_duties(conn: asyncpg.Connection) -> None:
    await conn.execute("alter table settings disable trigger usable")
    await conn.execute(
        "update settings set value = 'infinity' where name in "
        "('LEASE_SEC_DEFAULT', 'RETENTION_DAYS', 'RETENTION_DEAD_DAYS', 'AGEING_SECONDS')"
    )
    await enqueue(conn)
    assert len(await claim(conn)) == 1
    assert await conn.fetchval("select lease_seconds from leases") == BOUNDS["lease"].high
    await conn.fetch("select * from retire_known(null)")
    await conn.fetch("select * from age_lines()")


async def test_a_job_due_at_minus_infinity_is_promoted(conn: asyncpg.Connection, database_url: str) -> None:
    """Long before the moments that any clock has shown: an entry of hand-written SQL."""
    job_id = await enqueue(conn, delay=60)
    async with conn.transaction():
        await conn.execute("update jobs set run_at = '0002-01-01 00:00+00' where id = $1", job_id)
        await conn.execute("update due set run_at = '0002-01-01 00:00+00' where job_id = $1", job_id)
    async with Holdfast(database_url) as hf:

        @hf.job("work")
        async def work(ctx: Context) -> None: ...

        async with working(hf):
            assert (await hf.wait(job_id, timeout=30)).state == "success"


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_handler_that_asks_for_an_odd_delay_fails_and_says_so(database_url: str, executor: str) -> None:
    async with Holdfast(database_url) as hf:
        if executor == "async":

            @hf.job("work", retry=RetryPolicy(max_attempts=1))
            async def work(ctx: Context) -> None:
                raise Snooze(math.nan)
        else:

            @hf.job("work", retry=RetryPolicy(max_attempts=1))
            def work_blocking(ctx: Context) -> None:
                raise Retry(delay=math.inf)

        job = await hf.enqueue("work")
        await hf.run_worker(burst=True)
        done = await hf.get(job.id)
        assert (done.state, done.attempt) == ("dead", 1)
        assert "must be seconds or a timedelta, from 0 to 3153600000 s" in (done.last_error or "")


async def test_the_lifetime_and_the_rate_of_a_key_are_bounded(conn: asyncpg.Connection) -> None:
    for seconds, rate in ((1e30, 1.0), (math.inf, 1.0), (math.nan, 1.0), (60.0, math.nan), (60.0, math.inf)):
        with pytest.raises(asyncpg.PostgresError, match="must be from"):
            await conn.fetch(
                "select * from create_key($1, 'default', 'a key', 'p', $2, '{read}', $3, $4, null, 'somebody')",
                uuid4(), b"x" * 32, seconds, rate,
            )  # fmt: skip


@pytest.mark.parametrize("value", ["NaN", "infinity", "-infinity", "-1", "0", "1e30"])
async def test_functions_and_tables_refuse_rates_and_weights_out_of_bounds(
    conn: asyncpg.Connection, value: str
) -> None:
    for call in (
        f"set_limit('queue', 'q', null, 1, '{value}', 'me')",
        f"set_weight('t', '{value}', 'me')",
        f"change_limits('tenant', 't', '{{rate,weight}}', null, 1, '{value}', '{value}', 'me')",
    ):
        with pytest.raises(asyncpg.PostgresError, match="must be"):
            await conn.execute(f"select {call}")
    for table in ("controls (kind, name", "job_types (name"):
        key = "'queue', 'q'" if "kind" in table else "'q'"
        with pytest.raises(asyncpg.CheckViolationError):
            await conn.execute(f"insert into {table}, rate_count, rate_seconds) values ({key}, 1, '{value}')")
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.execute(f"insert into controls (kind, name, weight) values ('tenant', 't', '{value}')")


async def test_a_rate_needs_both_count_and_seconds(conn: asyncpg.Connection) -> None:
    for table in ("controls (kind, name", "job_types (name"):
        key = "'queue', 'q'" if "kind" in table else "'q'"
        for half in ("rate_count", "rate_seconds"):
            with pytest.raises(asyncpg.CheckViolationError):
                await conn.execute(f"insert into {table}, {half}) values ({key}, 1)")
    for half in ("rate_count", "rate_seconds"):
        with pytest.raises(asyncpg.PostgresError, match="job type work: a rate needs both"):
            await _publish(conn, half, None)


@pytest.mark.parametrize("slots", ['"3"', "1.5", "-1", "1e30", "null", "[]"])
async def test_slots_that_nobody_could_add_up_are_refused(conn: asyncpg.Connection, slots: str) -> None:
    lanes = '{"fast": 1, "general": ' + slots + "}"
    for call in ("register_worker", "enlist_worker"):
        tenants = ", null" if call == "enlist_worker" else ""
        with pytest.raises(asyncpg.PostgresError, match="slots of lane general must be"):
            await conn.execute(f"select {call}('w', 'h', 1, '1', $1, '{{}}', null{tenants})", lanes)
    with pytest.raises(asyncpg.PostgresError, match="must be an object"):
        await conn.execute("select register_worker('w', 'h', 1, '1', $1, '{}', null)", slots)
    assert len(await conn.fetch("select * from list_lanes()")) == 2


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("lane", "x" * 201, "job type work: lane must be a string of 1 to 200 characters"),
        ("lane", "", "lane must be a string"),
        ("lane", 7, "lane must be a string"),
        ("queue", None, "queue must be a string"),
        ("queue", "x" * 201, "queue must be a string"),
        ("name", "", "the name of a job type must be"),
        ("name", "x" * 201, "the name of a job type must be"),
        ("name", None, "the name of a job type must be"),
        ("name", ["work"], "the name of a job type must be"),
        ("limit_key", "x" * 1001, "limit_key must be a string of at most 1000 characters"),
        ("rate_key", {}, "rate_key must be a string"),
        ("on_failure", "explode", "on_failure must be retry or hold"),
        ("on_failure", None, "on_failure must be a string"),
        ("version", None, "version must be a number"),
        ("backoff_base", "1", "backoff_base must be a number"),
        ("backoff_jitter", "0.1", "backoff_jitter must be a number"),
        ("payload_schema", ["x" * 1_048_576], "payload_schema must have at most"),
    ],
)
async def test_a_published_type_is_complete_and_of_a_size_that_can_be_listed(
    conn: asyncpg.Connection, field: str, value: Any, message: str
) -> None:
    with pytest.raises(asyncpg.PostgresError, match=message) as refused:
        await _publish(conn, field, value)
    assert refused.value.sqlstate == "HF002"
    assert await conn.fetchval("select count(*) from job_types") == 0


@pytest.mark.parametrize("definitions", ["null", "{}", "[1]", "[null]", "7", '["work"]', "[[]]", None])
async def test_what_is_not_a_list_of_types_is_refused(conn: asyncpg.Connection, definitions: str | None) -> None:
    with pytest.raises(asyncpg.PostgresError, match="job types must be a list of objects") as refused:
        await conn.execute("select publish_types($1::text::jsonb)", definitions)
    assert refused.value.sqlstate == "HF002"


async def test_the_number_of_types_published_at_once_is_limited(conn: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.PostgresError, match="at most 10000 job types") as refused:
        await conn.execute("select publish_types($1::text::jsonb)", json.dumps([{}] * 10_001))
    assert refused.value.sqlstate == "HF002"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": ""}, "must have 1 to 255 characters"),
        ({"id": "w" * 256}, "must have 1 to 255 characters"),
        ({"id": None}, "must have 1 to 255 characters"),
        ({"host": "h" * 256}, "the host of a worker"),
        ({"host": None}, "the host of a worker"),
        ({"version": "1" * 256}, "the version of a worker"),
        ({"types": ["x"] * 10_001}, "at most 10000 job types"),
        ({"types": ["x" * 201]}, "job types of a worker must be names"),
        ({"types": None}, "must name its job types"),
        ({"queues": ["q", ""]}, "queues of a worker must be names"),
        ({"queues": ["q"] * 10_001}, "at most 10000 queues"),
        ({"tenants": [None]}, "tenants of a worker must be names"),
        ({"lanes": json.dumps({"x" * 201: 1})}, "names of 1 to 200 characters"),
        ({"lanes": json.dumps({f"lane{n}": 1 for n in range(1001)})}, "at most 1000 of them"),
    ],
)
async def test_a_worker_describes_itself_in_texts_that_can_be_listed(
    conn: asyncpg.Connection, changed: dict[str, Any], message: str
) -> None:
    usual = {"id": "w", "host": "h", "pid": 1, "version": "1", "lanes": "{}", "types": ["work"], "queues": None}
    for call, fields in (("register_worker", usual), ("enlist_worker", usual | {"tenants": None})):
        if not changed.keys() <= fields.keys():
            continue
        numbers = ", ".join(f"${n}" for n in range(1, len(fields) + 1))
        await conn.execute(f"select {call}({numbers})", *fields.values())
        await conn.execute("delete from workers")
        with pytest.raises(asyncpg.PostgresError, match=message) as refused:
            await conn.execute(f"select {call}({numbers})", *(fields | changed).values())
        assert refused.value.sqlstate == "HF002"
        assert await conn.fetchval("select count(*) from workers") == 0


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1.0, 1e30])
async def test_a_term_and_its_patience_are_lengths_of_time(conn: asyncpg.Connection, seconds: float) -> None:
    for call in ("lead('maintenance'::text, 'me'::text, $1::float8)", "preside('maintenance', 'me', 5, $1)",
                 "preside('maintenance', 'me', 5, 0, null, 1, $1)"):  # fmt: skip
        with pytest.raises(asyncpg.PostgresError, match="must be from"):
            await conn.execute(f"select {call}", seconds)
    assert await conn.fetchval("select count(*) from leaders") == 0


async def test_no_attempt_has_a_negative_duration(conn: asyncpg.Connection) -> None:
    for verb in ("complete", "fail"):
        job_id = await enqueue(conn)
        (lease,) = await claim(conn)
        await conn.fetch(f"select * from {verb}($1, $2, $3, durations_ms => $4)", "w1", [job_id], [lease.attempt], [-5])
        assert await conn.fetchval("select duration_ms from job_attempts where job_id = $1", job_id) == 0


async def _publish(conn: asyncpg.Connection, field: str, value: Any) -> None:
    number = int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
    definition: dict[str, Any] = {"name": "work", "queue": "default", "lane": "general", "on_failure": "retry"}
    definition |= {"version": 1, "backoff_base": 1, "backoff_factor": 2, "backoff_max": 300, "backoff_jitter": 0.1}
    definition |= {"rate_count": 1, "rate_seconds": 1, "limit_count": None, field: number}
    await conn.execute("delete from job_types")
    await conn.execute("select publish_types($1::text::jsonb)", json.dumps([definition]))


async def _insert(conn: asyncpg.Connection, field: str, value: float) -> None:
    count = {"rate_seconds": ", rate_count", "rate_count": ", rate_seconds"}.get(field, "")
    await conn.execute("delete from job_types")
    await conn.execute(
        f"insert into job_types (name, {field}{count}) values ('work', '{value}'::float8{', 1' if count else ''})"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_SEC_DEFAULT", "30s"),
        ("LEASE_SEC_DEFAULT", "NaN"),
        ("LEASE_SEC_DEFAULT", "0"),
        ("LEASE_SEC_DEFAULT", ""),
        ("MAX_ATTEMPTS_DEFAULT", "2.5"),
        ("MAX_ATTEMPTS_DEFAULT", "99999999999"),
        ("AGEING_SECONDS", "-1"),
        ("RESULT_MAX_BYTES", "1e9"),
        ("MAX_ATTEMPTS_DEFAULT", "1e1"),
        ("RESULT_MAX_BYTES", "1e4"),
        ("PAYLOAD_MAX_BYTES", "2000.0"),
        ("RETENTION_DAYS", "infinity"),
    ],
)
async def test_the_database_refuses_a_setting_that_the_engine_cannot_use(
    conn: asyncpg.Connection, name: str, value: str
) -> None:
    for column in ("value", "default_value"):
        with pytest.raises(asyncpg.PostgresError, match=f"{name} must be"):
            await conn.execute(f"update settings set {column} = $2 where name = $1", name, value)
    # In the caller's own configuration it is passed over.
    job = await enqueue(conn)
    await conn.execute("select set_config($1, $2, false)", f"holdfast.{name.lower()}", value)
    assert [lease.job_id for lease in await claim(conn)] == [job]


async def test_a_setting_that_fits_is_used(conn: asyncpg.Connection) -> None:
    await conn.execute("update settings set value = ' 12.5 ' where name = 'LEASE_SEC_DEFAULT'")
    await enqueue(conn)
    await claim(conn)
    assert await conn.fetchval("select lease_seconds from leases") == 12.5
