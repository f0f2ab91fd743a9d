"""Maintenance survives the death of its leader."""

from __future__ import annotations

from holdfast import Holdfast
from tests.harness.fleet import Fleet, WorkerProcess, judge
from tests.harness.waiting import until


async def test_another_process_leads_when_the_leader_is_killed(fleet: Fleet, hf: Holdfast) -> None:
    for _ in range(3):
        fleet.spawn()
    await fleet.ready()
    leader = await until(lambda: leader_of(fleet), what="one leads")
    leader.kill()

    jobs = [
        await hf.enqueue("work", delay=0.5),
        await hf.enqueue("work", target="a target"),
        await hf.enqueue("work", {"failing": 1}),
    ]
    for ref in jobs:
        fleet.history.enqueued(ref.id)
        assert (await hf.wait(ref.id, timeout=30)).state == "success"
    assert leader_of(fleet) not in (None, leader)

    await fleet.drained()
    await judge(hf, fleet.history)


async def test_a_leader_that_drains_hands_over_at_once(fleet: Fleet, hf: Holdfast) -> None:
    fleet.spawn()
    leader = await until(lambda: leader_of(fleet), what="one leads")
    follower = fleet.spawn()
    await fleet.ready()
    leader.drain()
    await leader.ended()
    changed = await until(lambda: follower.lines("LeaderChanged"), seconds=4, what="the other leads")
    assert changed[-1]["leading"] is True


def leader_of(fleet: Fleet) -> WorkerProcess | None:
    """The process that leads, as far as the log says."""
    for process in fleet.living:
        changes = process.lines("LeaderChanged")
        if changes and changes[-1]["leading"]:
            return process
    return None
