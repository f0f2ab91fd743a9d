"""Pause, resume and cancel from outside, while eight processes work and are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast import Conflict, Holdfast
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, judge
from tests.harness.waiting import until

WORKERS = 8 if CHAOS_SECONDS else 4
BATCH = 24
KILLED_PER_ROUND = 0.15 if CHAOS_SECONDS else 0.5
TENANTS = ("red", "green", "blue")
TARGETS = ("a", "b", "c", "d")
MOST_IN_LINE = 250


@pytest.mark.slow
@pytest.mark.timeout(240 + 2 * CHAOS_SECONDS)
async def test_targets_keep_their_order_and_nothing_is_stuck_whatever_is_asked_of_their_jobs(
    new_fleet: NewFleet, hf: Holdfast, conn: asyncpg.Connection, chance: random.Random, deeds: Deeds
) -> None:
    crowd = Crowd(hf, new_fleet(hf.config.database_url, lease_sec_default=3), chance, conn)
    for _ in range(WORKERS):
        crowd.fleet.spawn()
    await crowd.fleet.ready()

    end = time.monotonic() + (CHAOS_SECONDS or 1)
    while time.monotonic() < end or len(crowd.killed) < 2 or not await crowd.has_ended("paused", "canceled"):
        await crowd.enqueue_some()
        for _ in range(6):
            await crowd.ask_something()
        if crowd.chance.random() < KILLED_PER_ROUND:
            crowd.kill_one()
        await until(crowd.few_wait, what="the workers keep up")

    await until(crowd.nothing_is_left, seconds=90, what="all jobs end once those that were paused are resumed")
    await crowd.fleet.drained()
    jobs, attempts = await judge(hf, crowd.fleet.history)
    outcomes = {name: sum(attempt.outcome == name for attempt in attempts) for name in ("paused", "canceled", "lost")}
    deeds.say(f"{len(attempts)} attempts, asked for {crowd.asked}, ended {outcomes}")
    assert len(jobs) == len(crowd.jobs)
    assert all(job.state.terminal for job in jobs)
    assert min(outcomes.values()) > 0
    assert crowd.asked["resume"] > 0


class Crowd:
    """Clients of a fleet that enqueue for few targets, and change their minds."""

    def __init__(self, hf: Holdfast, fleet: Fleet, chance: random.Random, conn: asyncpg.Connection) -> None:
        self.hf, self.fleet, self.chance, self.conn = hf, fleet, chance, conn
        self.jobs: list[UUID] = []
        self.killed: list[int] = []
        self.asked = {"pause": 0, "resume": 0, "cancel": 0}

    async def enqueue_some(self) -> None:
        wishes: list[tuple[str, dict[str, float], dict[str, Any]]] = []
        for _ in range(BATCH):
            kind = self.chance.choice(["work", "work", "threaded"])
            target = self.chance.choice(TARGETS) if self.chance.random() < 0.6 else None
            payload: dict[str, float] = {"seconds": self.chance.choice([0.0, 0.01, 0.05, 0.3])}
            if kind == "work" and self.chance.random() < 0.1:
                payload["failing"] = 1
            options = {
                "target": target,
                "tenant": self.chance.choice(TENANTS),
                "priority": self.chance.choice([5, 100]),
            }
            wishes.append((kind, payload, options))
        for wish, answer in zip(wishes, await self.hf.enqueue_many(wishes), strict=True):
            target = wish[2]["target"]
            # Two tenants' targets of one name are two lines.
            self.fleet.history.enqueued(answer.id, target=target and f"{wish[2]['tenant']}: {target}")
            self.jobs.append(answer.id)

    async def ask_something(self) -> None:
        verb = self.chance.choice(["pause", "pause", "resume", "resume", "cancel"])
        if verb == "resume":
            paused = await self.hf.find(states=["paused"], limit=20)
            if paused:
                await self.resume(self.chance.choice(paused).id)
            return
        recent = self.jobs[-4 * BATCH :]
        running = [job.id for job in await self.hf.find(states=["running"], limit=20)]
        job_id = self.chance.choice(running if running and self.chance.random() < 0.5 else recent)
        if await self._asked({"pause": self.hf.pause, "cancel": self.hf.cancel}[verb], job_id):
            self.asked[verb] += 1

    async def resume(self, job_id: UUID) -> None:
        # Noted first: from this moment on the job may have a fresh budget.
        self.fleet.history.note("resumed", job_id=job_id)
        self.asked["resume"] += await self._asked(self.hf.resume, job_id)

    async def resume_all(self) -> None:
        for job in await self.hf.find(states=["paused", "error"], limit=1000):
            await self.resume(job.id)

    def kill_one(self) -> None:
        working = [process for process in self.fleet.living if process.started]
        if len(working) > 2:
            process = self.chance.choice(working)
            process.kill()
            self.killed.append(process.pid)
            self.fleet.spawn()

    async def few_wait(self) -> bool:
        """Whether more may be enqueued. Lines behind targets grow while their first job is paused."""
        backlog = await self.hf.client.backlog()
        if backlog["waiting"] > MOST_IN_LINE:
            await self.resume_all()
        return bool(backlog["ready"] < 100 and backlog["waiting"] <= MOST_IN_LINE)

    async def has_ended(self, *outcomes: str) -> bool:
        """Whether attempts ended in each of these ways."""
        query = "select count(distinct outcome) from job_attempts where outcome = any($1)"
        return bool(await self.conn.fetchval(query, outcomes) == len(outcomes))

    async def nothing_is_left(self) -> bool:
        await self.resume_all()
        backlog = await self.hf.client.backlog()
        moving = any(backlog[part] for part in ("ready", "running", "due", "waiting"))
        return not moving and not await self.hf.find(states=["paused", "error"], limit=1)

    async def _asked(self, ask: Callable[[UUID], Awaitable[object]], job_id: UUID) -> bool:
        try:
            await ask(job_id)
        except Conflict:
            return False
        return True
