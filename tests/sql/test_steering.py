"""Pauses, limits and weights: who may set them, what is stored and audited, and what operators see."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    claim,
    elect,
    enqueue,
    enqueue_copies,
    enqueue_many,
    execute,
    job_in,
    offences,
    publish,
    request,
    run_one,
    settle,
    state_of,
)

SUBJECTS = [("queue", "mail"), ("type", "mail.send"), ("lane", "fast"), ("tenant", "acme"), ("everything", "")]
STEERING = {
    "pause_subject": "pause_subject('tenant', 'acme', 'me', null, null, 'acme', true)",
    "resume_subject": "resume_subject('tenant', 'acme', 'me', null, null, 'acme')",
    "pause_scope": "pause_scope('queue', 'q', 'me')",
    "resume_scope": "resume_scope('queue', 'q', 'me')",
    "pause_scope_as": "pause_scope_as('tenant', 'acme', 'me', null, null, 'acme', true)",
    "resume_scope_as": "resume_scope_as('tenant', 'acme', 'me', null, null, 'acme')",
    "set_limit": "set_limit('queue', 'q', 1, null, null, 'me')",
    "set_weight": "set_weight('t', 2, 'me')",
    "change_limits": "change_limits('tenant', 't', '{weight}', null, null, null, 2, 'me')",
    "resolve_job": "resolve_job(gen_random_uuid(), 'me')",
    "operator_request": "operator_request('cancel', gen_random_uuid(), 'me')",
    "list_steering": "list_steering()",
    "claims_ended": "claims_ended()",
    "list_controls": "list_controls()",
    "list_queues": "list_queues()",
    "list_types": "list_types()",
    "list_lanes": "list_lanes()",
    "list_tenants": "list_tenants()",
    "drain_state": "drain_state()",
    "drain_progress": "drain_progress()",
    "list_targets": "list_targets()",
    "show_targets": "show_targets('{t}', '{t}')",
    "explain": "explain(gen_random_uuid())",
}


async def rows(conn: asyncpg.Connection, call: str, *arguments: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in await conn.fetch(f"select * from {call}", *arguments)]


async def register(
    conn: asyncpg.Connection,
    worker: str = "w1",
    *types: str,
    lanes: dict[str, int] | None = None,
    queues: list[str] | None = None,
) -> None:
    """A worker that was heard of just now."""
    await conn.execute(
        "select register_worker($1, 'here', 1, '1', $2::text::jsonb, $3::text[], $4::text[])",
        worker, json.dumps(lanes or {"fast": 3, "general": 5}), list(types or ["work"]), queues,
    )  # fmt: skip


async def test_every_steering_function_is_for_operators_alone(connect_as: ConnectAs) -> None:
    operator = await connect_as("operator")
    for call in STEERING.values():
        await operator.fetch(f"select * from {call}")
    for role in ("api", "worker", "client"):
        face = await connect_as(role)
        for call in STEERING.values():
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await face.fetch(f"select * from {call}")


async def test_a_pause_says_who_and_why_until_it_is_resumed(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await connect_as("superuser")
    await listener.add_listener("holdfast.ready", lambda *told: heard.put_nowait(told[-1]))
    for kind, name in SUBJECTS:
        assert await conn.fetchval("select pause_subject($1, $2, 'ada', 'the disk is full')", kind, name)
        assert await asyncio.wait_for(heard.get(), 5) == ""
        assert not await conn.fetchval("select pause_subject($1, $2, 'bob', 'me too')", kind, name)
        (control,) = await rows(conn, "list_steering()")
        told = (control["kind"], control["name"], control["paused_by"], control["paused_note"])
        assert told == (kind, name, "ada", "the disk is full")
        assert not await conn.fetchval("select resume_scope($1, $2, 'eve', only_by => 'acme/')", kind, name)
        assert await conn.fetchval("select resume_subject($1, $2, 'bob')", kind, name)
        assert await asyncio.wait_for(heard.get(), 5) == ""
        assert not await conn.fetchval("select resume_subject($1, $2, 'bob')", kind, name)
        assert await rows(conn, "list_steering()") == []
        resumed, paused = await rows(conn, "list_audit(max_entries => 2)")
        assert (paused["actor"], paused["action"], paused["subject"]) == ("ada", f"{kind}.pause", name or None)
        assert paused["tenant"] == (name if kind == "tenant" else None)
        assert json.loads(paused["detail"]) == {"note": "the disk is full"}
        assert (resumed["actor"], resumed["action"]) == ("bob", f"{kind}.resume")
        assert json.loads(resumed["detail"])["paused_by"] == "ada"
    assert heard.empty()


async def test_a_tenants_own_pause_gives_way_to_the_installations(conn: asyncpg.Connection) -> None:
    async def pause(by: str, tenant: str | None = None) -> bool:
        call = "select pause_subject('tenant', 'acme', $1, null, null, $2, false)"
        return bool(await conn.fetchval(call, by, tenant))

    async def resume(by: str, tenant: str | None = None) -> bool:
        return bool(await conn.fetchval("select resume_subject('tenant', 'acme', $1, null, null, $2)", by, tenant))

    own, others = ("bob", "acme"), ("ada", None)
    for first, second, replaced in ((own, others, True), (others, own, False)):
        assert await pause(*first)
        assert await pause(*second) == replaced
        assert not await pause("eve")
        (control,) = await rows(conn, "list_steering()")
        assert (control["paused_by"], control["paused_tenant"]) == others
        assert not await resume(*own)
        (last, *_) = await rows(conn, "list_audit()")
        assert (last["actor"], json.loads(last["detail"])) == ("ada", {"instead_of": "bob"} if replaced else {})
        assert await resume("ada")
    assert await pause(*own)
    assert not await pause("eve", "acme")
    assert await resume("eve", "acme")
    for call in ("pause_subject('queue', 'acme', 'bob', null, null, 'acme', false)",
                 "pause_subject('tenant', 'other', 'bob', null, null, 'acme', false)",
                 "resume_subject('tenant', 'other', 'bob', null, null, 'acme')"):  # fmt: skip
        with pytest.raises(asyncpg.PostgresError, match="only that tenant"):
            await conn.execute(f"select {call}")


async def test_the_key_and_not_a_name_decides_who_paused(conn: asyncpg.Connection) -> None:
    """Servers of 0.2.0 pass a name that begins with the tenant's. The key says who it was."""
    keys = {}
    for tenant, scope in (("acme", "operate"), ("acme", "admin"), ("other", "operate")):
        keys[tenant, scope] = await conn.fetchval(
            "select id from create_key(gen_random_uuid(), $1, 'acme/ops', 'hf_', sha256(random()::text::bytea),"
            " array[$2], null, null, null, 'ada')",
            tenant, scope,
        )  # fmt: skip
    for who, own in ((None, False), *((who, who == ("acme", "operate")) for who in keys)):
        key = who and keys[who]
        assert await conn.fetchval("select pause_scope('tenant', 'acme', 'acme/ops', null, $1)", key)
        (control,) = await rows(conn, "list_controls()")
        assert control["paused_tenant"] == ("acme" if own else None), who
        resumed = await conn.fetchval("select resume_scope('tenant', 'acme', 'acme/ops', only_by => 'acme/')")
        assert resumed == own
        assert not await conn.fetchval("select resume_scope('tenant', 'acme', 'a', only_by => 'acm')")
        await conn.execute("select resume_scope('tenant', 'acme', 'ada')")


async def test_tenants_do_not_see_what_the_installations_operators_write(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn, "mail", tenant="acme", queue="post")
    looks = {
        "queue": ("post", "list_queues($1, 'post')"),
        "type": ("mail", "list_types($1, 'mail')"),
        "lane": ("general", "list_lanes($1, 'general')"),
        "tenant": ("acme", "list_tenants($1, 'acme')"),
        "everything": ("", "drain_state($1)"),
    }
    for kind, (name, look) in looks.items():
        for by_tenant, public in ((None, False), (None, True), *((("acme", False),) if kind == "tenant" else ())):
            await conn.execute(
                "select pause_subject($1, $2, 'ada', 'unpaid', null, $3, $4)", kind, name, by_tenant, public
            )
            for asking in (None, "acme"):
                named = asking is None or by_tenant == "acme"
                (found,) = await rows(conn, look, asking)
                assert found["paused_at"] is not None
                told = (found["paused_by"], found["paused_note"])
                assert told == ("ada" if named else None, "unpaid" if named or public else None)
                (why,) = await rows(conn, "explain($1, $2)", job, asking)
                assert why["code"] == f"{kind}-paused"
                culprit = json.loads(why["culprit"])
                assert (culprit.get("by"), culprit.get("note")) == told
                assert [word in why["sentence"] for word in ("ada", "unpaid")] == [word is not None for word in told]
            await conn.execute("select resume_subject($1, $2, 'ada')", kind, name)
            (found,) = await rows(conn, look, "acme")
            assert (found["paused_at"], found["paused_by"], found["paused_note"]) == (None, None, None)


async def test_a_resolved_job_is_told_by_its_reason_and_not_by_a_note(conn: asyncpg.Connection) -> None:
    forged = await enqueue(conn)
    await request(conn, "cancel", forged, note="resolved: by me")
    await conn.execute("select execute_requests()")
    held = await job_in(conn, "error", "b")
    lease = await run_one(conn)
    for job in (held, lease.job_id):
        assert await conn.fetchval("select resolve_job($1, 'bob', 'by hand')", job) == "accepted"
    assert await conn.fetchval("select interrupt from leases") == "resolve"
    for call in ("renew('w1', $1, $2)", "interrupted('w1', $1, $2)"):  # workers know cancel and pause
        assert await conn.fetchval(f"select interrupt from {call}", [lease.job_id], [lease.attempt]) == "cancel"
    (shown,) = await rows(conn, "get_jobs($1)", [lease.job_id])
    assert shown["interrupt"] == "cancel"
    await conn.execute("select execute_requests()")
    assert await settle(conn, "stop", [lease], outcomes=["canceled"]) == ["canceled"]
    for job, reason, event, note in (
        (forged, "canceled", "canceled", "resolved: by me"),
        (held, "resolved", "resolved", "by hand"),
        (lease.job_id, "resolved", "resolved", "by hand"),
    ):
        assert await conn.fetchval("select reason from jobs where id = $1", job) == reason
        events = await conn.fetch("select event, note from job_events where job_id = $1 order by id desc", job)
        assert tuple(events[0]) == (event, note)
        (why,) = await rows(conn, "explain($1)", job)
        assert why["sentence"].startswith(f"The job was {reason}")
        assert why["sentence"].endswith(f'("{note}").')
    assert await offences(conn) == []


async def test_limits_and_weights_are_kept_until_they_are_cleared(conn: asyncpg.Connection) -> None:
    for kind in ("queue", "type", "tenant"):
        assert await conn.fetchval("select set_limit($1, 'x', 3, 100, 60, 'ada')", kind)
        assert not await conn.fetchval("select set_limit($1, 'x', 3, 100, 60, 'bob')", kind)
        await conn.execute("select pause_subject($1, 'x', 'ada')", kind)
        assert await conn.fetchval("select set_limit($1, 'x', null, null, null, 'bob')", kind)
        (control,) = await rows(conn, "list_steering()")
        assert (control["limit_count"], control["rate_count"], control["paused_by"]) == (None, None, "ada")
        await conn.execute("select resume_subject($1, 'x', 'ada')", kind)
        assert await rows(conn, "list_steering()") == []
        assert not await conn.fetchval("select set_limit($1, 'x', null, null, null, 'bob')", kind)
    assert await conn.fetchval("select set_weight('acme', 2.5, 'ada')")
    (control,) = await rows(conn, "list_steering()")
    assert (control["kind"], control["name"], control["weight"]) == ("tenant", "acme", 2.5)
    assert await conn.fetchval("select set_weight('acme', null, 'ada')")
    assert await rows(conn, "list_steering()") == []
    actions = [entry["action"] for entry in await rows(conn, "list_audit()")][::-1]
    each = ["limit", "pause", "limit", "resume"]
    expected = [f"{kind}.{verb}" for kind in ("queue", "type", "tenant") for verb in each]
    assert actions == [*expected, "tenant.weight", "tenant.weight"]


async def test_limits_not_named_as_a_change_stay_as_they_are(conn: asyncpg.Connection) -> None:
    async def change(changes: str, *values: float | None) -> tuple[bool, Any]:
        changed = await conn.fetchval(
            "select change_limits('tenant', 'acme', $1::text::text[], $2, $3, $4, $5, 'ada')", changes, *values
        )
        names = ("limit_count", "rate_count", "rate_seconds", "weight")
        return changed, [tuple(row[name] for name in names) for row in await rows(conn, "list_steering()")]

    assert await change("{limit,rate,weight}", None, None, None, None) == (False, [])
    assert await change("{limit}", 3, None, None, None) == (True, [(3, None, None, None)])
    assert await change("{rate}", None, 5, 60, None) == (True, [(3, 5, 60, None)])
    assert await change("{weight}", None, None, None, 2) == (True, [(3, 5, 60, 2)])
    assert await change("{limit,weight}", 3, None, None, 2) == (False, [(3, 5, 60, 2)])
    assert await change("{rate,weight}", None, None, None, 4) == (True, [(3, None, None, 4)])
    assert await change("{limit,rate,weight}", None, 1, 2678400, None) == (True, [(None, 1, 2678400, None)])
    # All of it or nothing.
    with pytest.raises(asyncpg.PostgresError, match="a weight must"):
        await change("{limit,weight}", 9, None, None, 0)
    assert await change("{limit,rate,weight}", None, None, None, None) == (True, [])
    log = await rows(conn, "list_audit()")
    assert [entry["action"] for entry in log][::-1] == [
        "tenant.limit", "tenant.limit", "tenant.weight", "tenant.limit", "tenant.limit", "tenant.limit"]  # fmt: skip
    assert json.loads(log[2]["detail"]) == {"weight": 4}


async def test_invalid_subjects_of_steering_are_refused(conn: asyncpg.Connection) -> None:
    for call, told in {
        "pause_subject('colour', 'red', 'me')": "unknown kind",
        "pause_subject('queue', '', 'me')": "1 to 200",
        "pause_subject('lane', 'slow', 'me')": "known are fast, general",
        "pause_subject('everything', 'x', 'me')": "takes no name",
        "pause_subject('queue', 'holdfast', 'me')": "maintenance",
        "pause_subject('type', 'holdfast.cancel', 'me')": "maintenance",
        "set_limit('lane', 'fast', 1, null, null, 'me')": "unknown kind",
        "set_limit('queue', 'q', -1, null, null, 'me')": "0 to 10000",
        "set_limit('queue', 'q', null, 1, null, 'me')": "a rate must",
        "set_limit('queue', 'q', null, 1, 'NaN', 'me')": "a rate must",
        "set_limit('queue', 'q', null, 1, 2678401, 'me')": "0.001 to 2678400 seconds",
        "set_weight('t', 0, 'me')": "a weight must",
        "change_limits('queue', 'q', '{weight}', null, null, null, 2, 'me')": "unknown kind",
        "change_limits('queue', 'q', '{}', null, null, null, null, 'me')": "what can be changed",
        "change_limits('queue', 'q', '{limit,colour}', 1, null, null, null, 'me')": "what can be changed",
        "change_limits('queue', 'q', '{rate}', 1, null, null, null, 'me')": "must name every value",
        "set_weight('t', 'NaN', 'me')": "a weight must",
    }.items():
        with pytest.raises(asyncpg.PostgresError, match=told) as raised:
            await conn.execute(f"select {call}")
        assert raised.value.sqlstate == "HF002"
    assert await rows(conn, "list_steering()") == []
    assert await rows(conn, "list_audit()") == []


async def test_lists_show_waiting_and_running_jobs_and_steering(conn: asyncpg.Connection) -> None:
    await publish(conn, "mail", lane="fast", queue="post")
    await register(conn, "w1", "mail", "work", lanes={"fast": 2, "general": 4})
    await register(conn, "gone", "mail")
    await conn.execute("update workers set heartbeat_at = now() - interval '1 minute' where id = 'gone'")
    await enqueue_copies(conn, 3, "mail")
    await run_one(conn, "mail")
    await enqueue(conn, tenant="acme")
    await execute(conn, "pause", await enqueue(conn, tenant="acme", target="t"))
    await conn.execute("select pause_subject('queue', 'post', 'ada'), set_limit('tenant', 'acme', 7, 5, 60, 'ada')")

    queues = {row["name"]: row for row in await rows(conn, "list_queues()")}
    assert queues.keys() == {"default", "post"}
    assert (queues["post"]["waiting"], queues["post"]["running"], queues["post"]["paused_by"]) == (3, 1, "ada")
    types = {row["name"]: row for row in await rows(conn, "list_types()")}
    assert (types["mail"]["lane"], types["mail"]["workers"], types["work"]["waiting"]) == ("fast", 1, 1)
    fast, general = await rows(conn, "list_lanes()")
    assert (fast["name"], fast["waiting"], fast["running"]) == ("fast", 3, 1)
    assert (fast["slots"], fast["utilisation"]) == (2, 0.5)
    assert (general["slots"], general["utilisation"]) == (4, 0)
    tenants = {row["name"]: row for row in await rows(conn, "list_tenants()")}
    assert (tenants["acme"]["limit_count"], tenants["acme"]["rate_seconds"]) == (7, 60)
    assert tenants["default"]["running"] == 1

    theirs = await rows(conn, "list_queues('acme')")
    assert [(row["name"], row["waiting"], row["running"]) for row in theirs] == [("default", 1, 0)]
    assert [row["name"] for row in await rows(conn, "list_tenants('acme')")] == ["acme"]
    assert [row["name"] for row in await rows(conn, "list_types('acme')")] == ["work"]
    first = await rows(conn, "list_tenants(max_names => 1)")
    second = await rows(conn, "list_tenants(after => $1)", first[0]["name"])
    assert [row["name"] for row in (*first, *second)] == ["acme", "default"]


async def test_a_used_slot_counts_for_the_lane_that_it_belongs_to(conn: asyncpg.Connection) -> None:
    async def lanes(tenant: str | None = None) -> list[tuple[int, float]]:
        return [(row["slots"], row["utilisation"]) for row in await rows(conn, "list_lanes($1)", tenant)]

    await publish(conn, "mail", lane="fast")
    await register(conn, "w1", "mail", lanes={"fast": 3, "general": 5})
    await enqueue_copies(conn, 12, "mail")
    assert len(await claim(conn, "mail", limit=8)) == 8
    # What does not tell is estimated, and what it has claimed ahead uses no slots.
    assert await lanes() == [(3, 1.0), (5, 1.0)]
    assert len(await claim(conn, "mail", limit=4)) == 4
    assert await lanes() == [(3, 1.0), (5, 1.0)]

    assert await conn.fetchval("""select beat_with_slots('w1', false, '{"fast": 0, "general": 4}')""")
    assert await lanes() == [(3, 0.0), (5, 0.8)]
    assert await rows(conn, "lane_slots()") == [
        {"lane": "fast", "slots": 3, "used": 0}, {"lane": "general", "slots": 5, "used": 4},
    ]  # fmt: skip
    # How busy others are is not for a tenant.
    assert await lanes("acme") == [(3, 0.0), (5, 0.0)]
    assert await conn.fetchval("""select beat_with_slots('unknown', false, '{}')""") is None
    with pytest.raises(asyncpg.PostgresError, match="the slots of lane fast must be") as raised:
        await conn.fetchval("""select beat_with_slots('w1', false, '{"fast": "many"}')""")
    assert raised.value.sqlstate == "HF002"


async def test_counts_end_at_ten_thousand_and_say_so(conn: asyncpg.Connection) -> None:
    for _ in range(4):
        await enqueue_copies(conn, 2500)
    (row,) = await rows(conn, "list_queues()")
    assert (row["waiting"], row["waiting_more"]) == (10_000, False)
    await enqueue(conn)
    (row,) = await rows(conn, "list_queues()")
    assert (row["waiting"], row["waiting_more"]) == (10_000, True)


async def test_targets_show_the_blocking_job_and_the_waiting_ones(conn: asyncpg.Connection) -> None:
    paused = await enqueue(conn, target="a")
    held = await job_in(conn, "error", target="b")
    retrying = await job_in(conn, "retry", target="c")
    running = (await run_one(conn, target="d")).job_id
    lines = {name: [row["job_id"] for row in await enqueue_many(conn, [("work", {}, {"target": name})] * 2)]
             for name in "abcd"}  # fmt: skip
    while await conn.fetchval("select elect()"):
        pass
    await conn.execute("select request('pause', array[$1::uuid], 'ada', 'look at it')", paused)
    await conn.execute("select execute_requests()")
    await enqueue(conn, tenant="other", target="a")
    await elect(conn)

    async def listed(**wishes: Any) -> tuple[list[dict[str, Any]], tuple[str, str] | None]:
        names = ", ".join(f"{name} => ${i}" for i, name in enumerate(wishes, 1))
        (page,) = await rows(conn, f"list_targets({names})", *wishes.values())
        found = await rows(conn, "show_targets($1, $2, $3, 5)", page["tenants"], page["targets"], None)
        assert [(row["tenant"], row["target"]) for row in found] == list(
            zip(page["tenants"], page["targets"], strict=True)
        )
        reached = page["reached_tenant"], page["reached_target"]
        return found, None if reached == (None, None) else reached

    everything, reached = await listed()
    assert reached is None
    assert [(row["tenant"], row["target"], row["state"], row["blocked"], row["job_id"]) for row in everything[:4]] == [
        ("default", "a", "paused", True, paused),
        ("default", "b", "error", True, held),
        ("default", "c", "retry", False, retrying),
        ("default", "d", "running", False, running),
    ]
    assert [row["waiting"] for row in everything] == [2, 2, 2, 2, 0]
    assert [row["line"] for row in everything[:4]] == list(lines.values())
    assert (everything[0]["by"], everything[0]["note"]) == ("ada", "look at it")
    assert (everything[1]["last_error"], everything[3]["worker"]) == ("boom", "w1")
    blocked, _ = await listed(only_blocked=True)
    assert [row["target"] for row in blocked] == ["a", "b"]
    page, reached = await listed(max_targets=3)
    rest, end = await listed(after_tenant=reached[0], after_target=reached[1]) if reached else ([], None)
    assert ([*page, *rest], end) == (everything, None)
    # A page ends where it has looked at enough targets, and the next one goes on there.
    few, reached = await listed(only_blocked=True, max_visited=1)
    assert ([row["target"] for row in few], reached) == (["a"], ("default", "a"))
    assert await listed(only_tenant="default") == (everything[:4], None)
    foreign, _ = await listed(only_tenant="other")
    assert [(row["tenant"], row["target"]) for row in foreign] == [("other", "a")]
    assert await rows(conn, "show_targets('{default,default}', '{a,nothing}', 'other')") == []

    assert await conn.fetchval("select resolve_job($1, 'bob', 'done by hand', 'other')", held) == "not-found"
    assert await conn.fetchval("select resolve_job($1, 'bob', 'done by hand', 'default')", held) == "accepted"
    await conn.execute("select execute_requests()")
    assert await state_of(conn, held) == "canceled"
    (event,) = await conn.fetch("select by, note from job_events where job_id = $1 and event = 'resolved'", held)
    assert tuple(event) == ("bob", "done by hand")
    assert await conn.fetchval("select reason from jobs where id = $1", held) == "resolved"
    (entry, *_) = await rows(conn, "list_audit()")
    assert (entry["action"], entry["subject"], entry["tenant"]) == ("job.resolve", str(held), "default")
    (freed,) = await rows(conn, "show_targets('{default}', '{b}')")
    assert (freed["job_id"], freed["blocked"]) == (lines["b"][0], False)


async def test_a_drain_is_over_when_no_claim_from_before_the_pause_is_under_way(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """Such a claim is waited for; it waits for nobody, and neither do claims that began later."""
    await enqueue_copies(conn, 2, queue="mail")
    await enqueue(conn, queue="other")
    before, after = await connect_as("worker"), await connect_as("worker")

    async def progress() -> tuple[Any, ...]:
        row = await conn.fetchrow("select running, drained from drain_progress('queue', 'mail')")
        return tuple(row or ())

    assert await progress() == (0, False), "it is not paused"
    async with before.transaction():
        assert await before.fetchval("select count(*) from claim('w1', array['work'], 1, array['mail'])") == 1
        await conn.execute("select pause_subject('queue', 'mail', 'ada')")
        assert await progress() == (0, False)
        taken = await after.fetchval("select count(*) from claim('w2', array['work'], 5)")
        assert taken == 1, "that of the other queue"
    assert await progress() == (1, False)
    await conn.execute("select complete('w1', array(select job_id from leases where worker = 'w1'), array[1])")
    async with after.transaction():
        # One that began after the pause, and stays open: it could take no job of the queue.
        await after.fetch("select * from claim('w2', array['work'], 5)")
        held = asyncio.create_task(until_drained(conn))
        await asyncio.wait([held], timeout=5)
        assert not held.done(), "who asks cannot tell it from one that began before"
    assert await held
    assert await progress() == (0, True)
    await conn.execute("select resume_subject('queue', 'mail', 'ada')")
    assert await progress() == (0, False)


async def until_drained(conn: asyncpg.Connection) -> bool:
    while not await conn.fetchval("select drained from drain_progress('queue', 'mail')"):
        await asyncio.sleep(0.01)
    return True
