"""Recording jobs: payloads, options, keys, batches, and errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast, HoldfastError, InvalidInput, InvalidPayload, KeyConflict, LimitExceeded, NotFound
from holdfast.errors import TooManyQueues, TypeClosed
from holdfast.model.ids import new_job_ids
from holdfast.model.options import Intent
from holdfast.store.database import Session
from holdfast.store.jobs import JobStore


async def test_a_job_is_recorded_with_the_defaults_of_its_type(hf: Holdfast) -> None:
    ref = await hf.enqueue("greet", {"name": "Ada"})
    job = await hf.get(ref.id)
    assert (ref.state, ref.status, ref.outcome, ref.existing) == ("queued", "PENDING", "created", False)
    assert (job.type, job.queue, job.lane, job.tenant) == ("greet", "mail", "general", "default")
    assert (job.priority, job.max_attempts, job.attempt, job.failures) == (100, 3, 0, 0)
    assert job.payload == {"name": "Ada", "times": 1}
    assert job.correlation_id == str(job.id)
    assert job.id.version == 7


async def test_every_option_is_kept(hf: Holdfast) -> None:
    parent = await hf.enqueue("other", tenant="acme")
    run_at = datetime.now(UTC) + timedelta(hours=1)
    options: dict[str, Any] = {
        "priority": 5,
        "run_at": run_at,
        "idempotency_key": "k",
        "dedup_key": "d",
        "correlation_id": "c",
        "max_attempts": 9,
        "target": "t",
        "tenant": "acme",
        "queue": "q",
        "target_count": 12,
        "created_by": "ada",
    }
    job = await hf.get((await hf.enqueue("greet", {"name": "Ada"}, parent=parent, **options)).id)
    assert {name: getattr(job, name) for name in options} == options
    assert (job.parent_id, job.state) == (parent.id, "scheduled")


async def test_handlers_enqueue_with_their_own_arguments(hf: Holdfast) -> None:
    greet = hf.job("greet twice")(_greet)
    by_name = await greet.enqueue(name="Ada")
    by_place = await greet.options(priority=1, delay=timedelta(minutes=1)).enqueue("Ada", 2)
    assert (await hf.get(by_name.id)).payload == {"name": "Ada", "times": 1}
    job = await hf.get(by_place.id)
    assert (job.payload, job.priority, job.state) == ({"name": "Ada", "times": 2}, 1, "scheduled")


def _greet(ctx: Any, name: str, times: int = 1) -> str:
    return f"{name} " * times


async def test_an_unknown_type_is_accepted_and_waits(hf: Holdfast) -> None:
    job = await hf.get((await hf.enqueue("of a later release", {"any": ["thing"]})).id)
    assert (job.queue, job.lane, job.state) == ("default", "general", "queued")


async def test_hold_keeps_a_job_until_it_is_released(hf: Holdfast) -> None:
    held = await hf.enqueue("greet", {"name": "Ada"}, hold=True)
    assert held.state == "created"
    await hf.release(held.id, by="ada")
    assert (await hf.get(held.id)).state == "queued"
    assert [(event.event, event.by) for event in await hf.history(held.id)] == [("released", "ada")]
    with pytest.raises(HoldfastError, match=r"does not allow this request \(release\)"):
        await hf.release(held.id)
    with pytest.raises(NotFound):
        await hf.release(uuid4())


async def test_an_idempotency_key_belongs_to_one_job_per_tenant(hf: Holdfast) -> None:
    first = await hf.enqueue("greet", {"name": "Ada"}, idempotency_key="k")
    again = await hf.enqueue("greet", {"name": "Ada", "times": 1}, idempotency_key="k", priority=1)
    assert (again.id, again.outcome, again.existing) == (first.id, "existing", True)
    other = await hf.enqueue("greet", {"name": "Ada"}, idempotency_key="k", tenant="acme")
    assert other.id != first.id
    with pytest.raises(KeyConflict, match=f"'k' belongs to job {first.id}, which has another type or payload"):
        await hf.enqueue("greet", {"name": "Eve"}, idempotency_key="k")


async def test_a_dedup_key_holds_until_the_job_has_ended(hf: Holdfast) -> None:
    first = await hf.enqueue("greet", {"name": "Ada"}, dedup_key="d")
    again = await hf.enqueue("greet", {"name": "Eve"}, dedup_key="d")
    assert (again.id, again.existing) == (first.id, True)
    assert (await hf.enqueue("fail", dedup_key="d")).id != first.id
    await hf.run_worker(burst=True)
    assert not (await hf.enqueue("greet", {"name": "Ada"}, dedup_key="d")).existing


async def test_a_batch_is_answered_in_order(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    jobs: list[tuple[Any, ...]] = [
        ("greet", {"name": "a"}),
        ("fail",),
        ("greet", {"name": "b"}, {"tenant": "acme", "idempotency_key": "k"}),
        ("greet", {"name": "b"}, {"tenant": "acme", "idempotency_key": "k"}),
        ("greet", {"name": "c"}, {"tenant": "acme", "idempotency_key": "k"}),
        ("greet", {"name": "d"}, {"delay": 60}),
    ]
    answers = await hf.enqueue_many(jobs)
    assert [ref.type for ref in answers] == [job[0] for job in jobs]
    assert [ref.outcome for ref in answers] == ["created", "created", "created", "existing", "conflict", "created"]
    assert answers[2].id == answers[3].id == answers[4].id
    assert [ref.conflict for ref in answers] == [False] * 4 + [True, False]
    (told,) = caplog.messages
    assert "a job of greet was not recorded: the idempotency key 'k' belongs to job" in told
    assert (await hf.get(answers[5].id)).payload["name"] == "d"
    assert await hf.enqueue_many([]) == []


async def test_a_large_batch_is_recorded_whole(hf: Holdfast) -> None:
    answers = await hf.enqueue_many([("greet", {"name": str(number)}) for number in range(4500)])
    assert len({ref.id for ref in answers}) == 4500
    assert [(await hf.get(answers[place].id)).payload["name"] for place in (0, 1999, 2000, 4499)] == [
        "0",
        "1999",
        "2000",
        "4499",
    ]


class Statements:
    """What a store was asked, and how many rows it answered."""

    inside_transaction = False

    def __init__(self, session: Session) -> None:
        self._session, self.schema, self.disk = session, session.schema, session.disk
        self.seen: list[tuple[str, int]] = []

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        rows = await self._session.rows(statement, *arguments)
        self.seen.append((statement, len(rows)))
        return rows


async def test_plain_jobs_are_one_short_statement_without_an_answer(hf: Holdfast) -> None:
    statements = Statements(hf._database)
    client = hf.client.with_store(JobStore(statements))
    await client.enqueue("other")
    await client.enqueue("other", tenant="acme", created_by="ada")
    await client.enqueue("greet", {"name": "of a queue of its own"})
    refs = await client.enqueue_many([("greet", {"name": str(number)}) for number in range(1000)])
    assert statements.seen == [("enqueue_plain", 0)] * 4
    assert {(ref.state, ref.outcome, ref.existing) for ref in refs} == {("queued", "created", False)}
    assert [(await hf.get(refs[n].id)).payload["name"] for n in (0, 999)] == ["0", "999"]
    assert (await hf.get(refs[0])).queue == "mail"


async def test_jobs_with_options_are_recorded_by_enqueue_many(hf: Holdfast) -> None:
    statements = Statements(hf._database)
    client = hf.client.with_store(JobStore(statements))
    await client.enqueue_many([("a",), ("b",)])
    await client.enqueue_many([("a",), ("a", {}, {"queue": "q"})])
    await client.enqueue_many([("a", {}, {"queue": "q", "priority": 1})] * 2)
    await client.enqueue_many([("a",), ("a", {}, {"target": "t"})])
    await client.enqueue("a", delay=1)
    assert statements.seen == [("enqueue_many", 2)] * 4 + [("enqueue_many", 1)]
    await client.enqueue_many([("a", {}, {"tenant": "x"}), ("a", {}, {"tenant": "x"}), ("a", {}, {"tenant": "y"})])
    assert statements.seen[5:] == [("enqueue_plain", 0)] * 2
    assert {job.queue for job in await hf.find(types=["a"], tenant="x")} == {"default"}


async def test_a_plain_job_recorded_again_is_the_same_job(hf: Holdfast) -> None:
    """As when the answer was lost on its way."""
    for count in (1, 3):
        intents = [Intent(job_id, "work", "{}") for job_id in new_job_ids(count)]
        first, again = await hf.client.record(intents), await hf.client.record(intents)
        assert [(a.job_id, a.state, a.outcome) for a in first] == [(i.id, "queued", "created") for i in intents]
        assert [(a.job_id, a.state, a.outcome) for a in again] == [(i.id, "queued", "existing") for i in intents]


async def test_a_batch_keeps_its_order_per_target(hf: Holdfast) -> None:
    """Also where it has several types, whose jobs stand in different streams."""
    kinds = ["a", "b", "c"]
    refs = await hf.enqueue_many(
        [(kinds[number % 3], {"number": number}, {"target": "a target"}) for number in range(30)]
    )
    order: list[int] = []
    for kind in kinds:
        hf.job(kind)(_note(order))
    await hf.run_worker(burst=True)
    assert order == list(range(len(refs)))


def _note(order: list[int]) -> Any:
    async def note(ctx: Any, number: int) -> None:
        order.append(number)

    return note


async def test_nothing_of_a_batch_is_recorded_when_one_job_is_wrong(hf: Holdfast) -> None:
    with pytest.raises(InvalidPayload, match="greet: name: Field required"):
        await hf.enqueue_many([("greet", {"name": "Ada"}), ("greet", {})])
    assert await hf.find() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prioritty": 1}, "unknown option 'prioritty'; did you mean 'priority'?"),
        ({"dely": 1}, "did you mean 'delay'?"),
        ({"zzz": 1}, "unknown option 'zzz'; known are priority, run_at"),
        ({"priority": -1}, "priority must be a whole number from 0 to 1000000000, not -1"),
        ({"priority": "high"}, "priority must be a whole number from 0 to 1000000000, not 'high'"),
        ({"priority": 10**12}, "priority must be a whole number from 0 to 1000000000, not 1000000000000"),
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1 to 2147483647, not 0"),
        ({"delay": "soon"}, "delay must be seconds or a timedelta, from 0 to 3153600000 s, not 'soon'"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at must be a datetime with a time zone"),  # noqa: DTZ001 - the case
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "give run_at or delay, not both"),
        ({"target": ""}, "target must be a non-empty string"),
        ({"hold": "yes"}, "hold must be True or False, not 'yes'"),
        ({"idempotency_key": "with space"}, "idempotency_key must be 1 to 255 visible ASCII characters"),
        ({"idempotency_key": "k" * 256}, "idempotency_key must be 1 to 255 visible ASCII characters"),
        ({"queue": "holdfast"}, 'the queue "holdfast" is reserved'),
        ({"tenant": "t" * 201}, "tenant must have 1 to 200 characters"),
    ],
)
async def test_a_wrong_option_is_refused_with_advice(hf: Holdfast, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        await hf.enqueue("greet", {"name": "Ada"}, **options)
    assert message in str(fault.value)
    assert await hf.find() == []


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("greet", {}, "greet: name: Field required"),
        ("greet", {"name": "Ada", "time": 2}, "greet: time: Extra inputs are not permitted"),
        ("greet", {"name": "Ada", "times": "many"}, "greet: times: Input should be a valid integer"),
        ("greet", {"name": "\x00"}, "contains a NUL character, which PostgreSQL cannot store"),
        ("other", ["a", "list"], "other: the payload must be a mapping, not list"),
        ("other", {"value": object()}, "other: the payload cannot be written as JSON"),
        ("other", {"value": float("nan")}, "other: the payload cannot be written as JSON"),
        ("other", {"value": "\ud800"}, "other: the payload cannot be written as JSON"),
        ("", {}, "a job type must be a non-empty string"),
        ("holdfast.cancel", {}, 'job types beginning with "holdfast." are reserved'),
        ("x" * 201, {}, "a job type must have 1 to 200 characters"),
    ],
)
async def test_a_wrong_payload_is_refused_with_a_reason(hf: Holdfast, kind: str, payload: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        await hf.enqueue(kind, payload)
    assert message in str(fault.value)
    assert await hf.find() == []


async def test_a_batch_of_the_wrong_form_is_refused(hf: Holdfast) -> None:
    wrongs: list[list[tuple[Any, ...]]] = [[(1, {})], [("greet", {}, "options")]]
    for wrong in wrongs:
        with pytest.raises(InvalidInput, match="a job is"):
            await hf.enqueue_many(wrong)


async def test_an_app_that_is_not_open_says_so() -> None:
    with pytest.raises(HoldfastError, match="the app is not open: use `async with hf:`"):
        await Holdfast("postgresql://nowhere/none").enqueue("greet")


async def test_a_tenant_with_too_many_queues_is_told_so_and_what_to_do(hf: Holdfast, conn: asyncpg.Connection) -> None:
    await conn.execute("update settings set value = '2' where name = 'STREAMS_PER_TENANT'")
    for queue in ("a", "b"):
        await hf.enqueue("work", {}, queue=queue)
    with pytest.raises(TooManyQueues, match=r"has 2 .*may have 2 \(STREAMS_PER_TENANT\): use fewer names") as fault:
        await hf.enqueue("work", {}, queue="c")
    assert fault.value.code == "queues-limit"
    with pytest.raises(LimitExceeded):
        await hf.enqueue_many([("work", {}, {"queue": "a"}), ("other", {}, {"queue": "a"})])
    with (
        psycopg.connect(hf.config.database_url or "") as lent,
        pytest.raises(TooManyQueues, match="roll it back"),
    ):
        await hf.enqueue("work", {}, queue="c", conn=lent)
    await hf.enqueue("work", {}, queue="c", tenant="other")
    await hf.enqueue("work", {}, queue="a")
    assert await conn.fetchval("select count(*) from jobs") == 4


async def test_a_closed_type_is_refused_in_every_way_with_who_and_why(hf: Holdfast, conn: asyncpg.Connection) -> None:
    ops = await hf.operations()
    bound = await hf.enqueue("mail", {}, idempotency_key="k")
    assert await ops.close_type("mail", by="ada", reason="the provider is down")
    told = r'^the job type mail takes no new jobs: it was closed by ada at .+ UTC \("the provider is down"\)'
    for call in (
        lambda: hf.enqueue("mail", {}),
        lambda: hf.enqueue("mail", {}, idempotency_key="new"),
        lambda: hf.enqueue_many([("mail", {}), ("mail", {})]),
        lambda: hf.enqueue_many([("other", {}), ("mail", {})]),
    ):
        with pytest.raises(TypeClosed, match=told) as fault:
            await call()
        assert fault.value.code == "type-closed"
    with pytest.raises(TypeClosed, match="roll it back"):
        async with conn.transaction():
            await hf.enqueue("mail", {}, conn=conn)
    assert (await hf.enqueue("mail", {}, idempotency_key="k")).id == bound.id
    assert [job.type for job in await hf.find()] == ["mail"]
    await ops.open_type("mail", by="ada")
    await hf.enqueue("mail", {})
