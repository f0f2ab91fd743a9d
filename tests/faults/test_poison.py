"""A handler that takes its process along."""

from __future__ import annotations

from holdfast import Holdfast
from tests.harness.fleet import Fleet, judge
from tests.harness.waiting import until


async def test_a_job_that_kills_its_process_dies_after_its_budget_and_blocks_nothing(
    fleet: Fleet, hf: Holdfast
) -> None:
    poison = await hf.enqueue("suicide", target="a target")
    behind = await hf.enqueue("work", target="a target")
    others = await hf.enqueue_many([("work", {"seconds": 0.01})] * 100)
    for ref in (poison, behind):
        fleet.history.enqueued(ref.id, target="a target")
    for ref in others:
        fleet.history.enqueued(ref.id)
    fleet.spawn()
    fleet.spawn()

    async def all_ended() -> bool:
        while len(fleet.living) < 2:
            fleet.spawn()
        backlog = await hf.client.backlog()
        return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))

    await until(all_ended, seconds=90, what="all jobs end")
    await fleet.drained()
    await judge(hf, fleet.history)

    dead = await hf.get(poison.id)
    assert (dead.state, dead.attempt, dead.failures) == ("dead", 2, 2)
    assert [attempt.outcome for attempt in await hf.attempts(poison.id)] == ["lost", "lost"]
    assert dead.last_error == "the worker stopped renewing its lease"
    assert (await hf.get(behind.id)).state == "success"
    assert {(await hf.get(ref.id)).state for ref in others} == {"success"}
