"""A program that enqueues and changes its mind, of either release: `python -m tests.faults.rolling_clients`.

It uses the database and the HTTP servers that the file `servers` in the history's folder lists, of whichever release.
It ends at SIGTERM. What was refused unexpectedly is a line with the event `refused` in its output. Only what both
releases have is used here.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

import holdfast
from holdfast import Client, Conflict, Holdfast, HoldfastError, WaitTimeout
from tests.harness.history import History

KEYS, TARGETS, CUSTOMERS = 400, 5, ("ada", "grace", "mary")
MOST_READY, MOST_IN_LINE = 60, 120

#: What is enqueued, and how often beside the others.
KINDS = {
    "work": 8,
    "threaded": 3,
    "quick": 4,
    "doomed": 1,
    "stubborn": 1,
    "sleepy": 1,
    "family": 1,
    "steps": 2,
    "ledger": 4,
    "few": 2,
    "keyed": 3,
    "rated": 1,
    "ground": 0.2,
}


class Producer:
    """One program's clients: over the database, over HTTP, and over a transaction of its own."""

    def __init__(self, hf: Holdfast, conn: asyncpg.Connection, history: History) -> None:
        self.hf, self.conn, self.history = hf, conn, history
        self.chance = random.Random(f"{os.environ.get('ROLLING_SEED')} {os.getpid()}")
        self.jobs: list[UUID] = []
        self.done: Counter[str] = Counter()
        self.clients: dict[str, Client] = {}

    async def step(self) -> None:
        """Do one thing."""
        act: Callable[[], Awaitable[None]] = self.chance.choices(
            [self.one, self.many, self.in_a_transaction, self.by_sql, self.over_http, self.held, self.ask, self.look],
            [6, 3, 2, 1, 5, 1, 6, 3],
        )[0]
        try:
            await act()
            self.done[act.__name__] += 1
        except (Conflict, WaitTimeout):
            pass
        except (HoldfastError, asyncpg.PostgresError) as error:
            say("refused", act=act.__name__, kind=type(error).__name__, text=str(error), at=time.time())

    async def one(self) -> None:
        kind, payload, options = self.wish()
        self.known((await self.hf.enqueue(kind, payload, **options)).id, options)

    async def many(self) -> None:
        wishes = [self.wish() for _ in range(self.chance.randint(2, 12))]
        for wish, ref in zip(wishes, await self.hf.enqueue_many(wishes), strict=True):
            self.known(ref.id, wish[2])

    async def in_a_transaction(self) -> None:
        """Recorded if and only if the caller's transaction commits."""
        kind, payload, options = self.wish()
        for name in ("idempotency_key", "dedup_key"):  # the job may be somebody else's
            options.pop(name, None)
        transaction = self.conn.transaction()
        await transaction.start()
        try:
            ref = await self.hf.enqueue(kind, payload, conn=self.conn, **options)
            await asyncio.sleep(self.chance.choice([0, 0, 0.05]))
        except BaseException:
            await transaction.rollback()
            raise
        if self.chance.random() < 0.3:
            await transaction.rollback()
            say("rolled back", job_id=ref.id)
            return
        await transaction.commit()
        self.known(ref.id, options)

    async def by_sql(self) -> None:
        """As programs in other languages do."""
        self.known(await self.conn.fetchval("select job_id from holdfast.enqueue('work', queue => 'sql')"), {})

    async def over_http(self) -> None:
        client = await self.client()
        if client is None:
            return
        if self.chance.random() < 0.3:
            wishes = [self.wish() for _ in range(self.chance.randint(2, 8))]
            for wish, answer in zip(wishes, await client.submit_many(wishes), strict=True):
                if isinstance(answer, HoldfastError):
                    raise answer
                self.known(answer.id, wish[2])
            return
        kind, payload, options = self.wish()
        job = await client.submit(kind, payload, **options)
        self.known(job.id, options)
        if self.chance.random() < 0.3:
            await client.wait(job.id, timeout=1)

    async def held(self) -> None:
        """Recorded, and released, deleted or left to others."""
        end = self.chance.choice(["release", "release", "delete", "leave"])
        ref = await self.hf.enqueue("erased" if end == "delete" else "work", {}, hold=True)
        self.history.enqueued(ref.id)
        client = await self.client() if self.chance.random() < 0.5 else None
        if end != "leave":
            await getattr(client or self.hf, end)(ref.id)

    async def ask(self) -> None:
        """Cancel, pause, resume, release, retry: something recent, or whatever stands so."""
        verb = self.chance.choice(
            ["cancel", "cancel", "pause", "pause", "resume", "resume", "resume", "retry", "release"]
        )
        state = {"resume": self.chance.choice(["paused", "error"]), "release": "created"}.get(verb, "running")
        # Those that wait are for the test itself. Of those that somebody erases, no result would be left to compare.
        listed = await self.hf.find(states=[state], limit=20)
        found = [job.id for job in listed if job.type not in ("wait", "erased")]
        if verb in ("cancel", "pause", "retry") and (not found or self.chance.random() < 0.5):
            found = self.jobs[-60:]
        if not found:
            return
        job_id = self.chance.choice(found)
        if verb in ("resume", "retry"):
            # Noted first: from this moment on the job may have a fresh budget.
            self.history.note("resumed", job_id=job_id)
        client = await self.client() if self.chance.random() < 0.4 else None
        if verb == "retry":
            self.history.enqueued(await self.hf.retry(job_id))
        elif client is not None:
            await getattr(client, verb)(job_id)
        else:
            await getattr(self.hf, verb)(job_id)
        self.done[verb] += 1

    async def look(self) -> None:
        if not self.jobs:
            return
        job = await self.hf.get(self.chance.choice(self.jobs[-200:]))
        self.history.seen(job.id, job.state.value)
        await self.hf.attempts(job.id)
        await self.hf.find(limit=5)

    def wish(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """A job: its type, payload and options."""
        kind = self.chance.choices(list(KINDS), list(KINDS.values()))[0]
        chance = self.chance.random()
        if chance < 0.1:
            # Whoever else asks with this key asks for the same.
            number = self.chance.randrange(KEYS)
            return "work", {"seconds": 0.01}, {"idempotency_key": f"key-{number}-{int(time.time()) // 60}"}
        payload: dict[str, Any] = {}
        if kind in ("work", "threaded", "few", "keyed", "steps"):
            payload["seconds"] = self.chance.choice([0.0, 0.01, 0.05, 0.2])
        if kind == "work" and self.chance.random() < 0.15:
            payload["failing"] = self.chance.choice([1, 2])
        if kind == "ledger":
            payload |= {"before": self.chance.choice([0, 0.05]), "inside": self.chance.choice([0, 0.05])}
        if kind == "keyed":
            payload["customer"] = self.chance.choice(CUSTOMERS)
        options: dict[str, Any] = {}
        if chance < 0.35:
            options["target"] = f"target {self.chance.randrange(TARGETS)}"
        elif chance < 0.45:
            options["delay"] = self.chance.random() * 2
        elif chance < 0.5:
            options["dedup_key"] = f"one {self.chance.randrange(3)}"
        elif chance < 0.6:
            options["queue"] = self.chance.choice(["narrow-old", "narrow-new", "lull"])
        if self.chance.random() < 0.2:
            options["priority"] = self.chance.choice([5, 500])
        return kind, payload, options

    def known(self, job_id: UUID, options: dict[str, Any]) -> None:
        """It was acknowledged."""
        self.history.enqueued(job_id, key=options.get("idempotency_key"), target=options.get("target"))
        self.jobs.append(job_id)

    async def client(self) -> Client | None:
        """A client of one of the servers, of either release."""
        path = self.history.folder / "servers"
        urls = path.read_text().split() if path.exists() else []
        if not urls:
            return None
        url = self.chance.choice(urls)
        if url not in self.clients:
            self.clients[url] = Client(url)
        return self.clients[url]

    async def keep_pace(self) -> None:
        """No more than the workers can do. Lines behind targets grow while their first job is paused."""
        while not stopping.is_set():
            backlog = await self.hf.client.backlog()
            if backlog["ready"] < MOST_READY and backlog["waiting"] < MOST_IN_LINE:
                return
            if backlog["waiting"] >= MOST_IN_LINE:
                for job in await self.hf.find(states=["paused", "error"], limit=50):
                    self.history.note("resumed", job_id=job.id)
                    try:
                        await self.hf.resume(job.id)
                    except Conflict:
                        continue
            await asyncio.sleep(0.1)


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}, default=str), flush=True)


async def _main() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    history = History(Path(os.environ["HISTORY_FOLDER"]))
    conn = await asyncpg.connect(os.environ["HOLDFAST_DATABASE_URL"])
    async with Holdfast() as hf:
        producer = Producer(hf, conn, history)
        say("release", sources=holdfast.__file__)
        say("worker started")
        while not stopping.is_set():
            for _ in range(10):
                await producer.step()
                await asyncio.sleep(0.01)
            try:
                await producer.keep_pace()
            except HoldfastError as error:
                say("refused", act="keep_pace", kind=type(error).__name__, text=str(error), at=time.time())
        for client in producer.clients.values():
            await client.close()
        say("done", **producer.done)
    await conn.close()


stopping = asyncio.Event()

if __name__ == "__main__":
    asyncio.run(_main())
