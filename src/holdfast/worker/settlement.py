"""Sends outcomes to the database in batches: all that arrived while the last batch was under way.

1. No finished work is lost: while the database is away, outcomes wait here and their leases are kept. Waiting outcomes
   still count as claimed, and intake claims only a bounded number.
2. A batch is bounded by count and by bytes; a heavy outcome is sent alone, in turns with light ones. A batch that the
   database refuses, for any reason, is sent again in parts, down to single outcomes, so that only outcomes that cannot
   be recorded wait.
3. If a single outcome is refused because of its content, a failure is recorded instead, which says why. One that meets
   a lock, a time limit or a lack of memory is sent again with growing pauses for as long as its lease lasts.
4. A statement that takes long does not delay others: they are sent beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from holdfast.errors import HoldfastError
from holdfast.lifecycle.service import NO_MEMORY, Service
from holdfast.model.outcome import COSTS_ATTEMPT, Outcome
from holdfast.store.leases import Refusal, Settlement
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import AttemptEnded, LeaseLost, SettlementDelayed
from holdfast.worker.claimed import Claimed, ClaimedAttempts, whole_ms

__all__ = ["SettlementService"]

#: The size of a batch: far less than PostgreSQL accepts (1 GB), because each outcome waits for the others.
_BATCH = 500
_CHARACTERS = 4 * 2**20
#: The number of parts in which a refused batch is sent again.
_PARTS = 8
#: After a temporary refusal, outcomes wait, so that leases can be renewed meanwhile; each time twice as long.
_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 30.0
#: An outcome this heavy is sent alone. After this many refusals, it may be too much for the server: it is recorded
#: without its result.
_HEAVY_CHARACTERS = 2**16
_HEAVY_TRIES = 7
#: After this many refusals, an event reports the delay.
_TOLD_TRIES = 3
#: A statement that takes longer than this is not waited for, and this many more may be under way.
_SLOW_SECONDS = 1.0
_HELPERS = 2

_Entry = tuple[Claimed, Outcome]


@dataclass(slots=True, order=True)
class _Batch:
    """Outcomes that are sent together, not before `due`."""

    due: float
    entries: list[_Entry] = field(compare=False)
    tries: int = field(compare=False, default=0)
    since: float = field(compare=False, default_factory=time.monotonic)


class SettlementStore(Protocol):
    """Where outcomes are recorded."""

    async def settle(self, batch: Sequence[Settlement], /) -> list[str]:
        """Record how attempts ended. Returns each state, or `lease-lost`. Raises Refusal if nothing was recorded."""
        ...


class SettlementService(Service):
    """Settles outcomes in the order they came, in batches."""

    name = "settlement"

    def __init__(
        self,
        store: SettlementStore,
        claimed: ClaimedAttempts,
        bus: Bus,
        worker: str,
        *,
        on_settled: Callable[[], None] = lambda: None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(bus)
        self._store, self._claimed, self._worker = store, claimed, worker
        self._on_settled, self._on_refused = on_settled, on_refused
        self._waiting: list[_Entry] = []
        #: Since when the first of them waits.
        self._waiting_since = 0.0
        self._again: list[_Batch] = []
        self._most = _BATCH
        self._turn = False
        #: Batches under way, how many of them take long, and the tasks that send others beside them.
        self._under_way: dict[int, _Batch] = {}
        self._slow = 0
        self._helpers: set[asyncio.Task[None]] = set()
        self.empty = asyncio.Event()
        self.empty.set()

    def add(self, claimed: Claimed, outcome: Outcome) -> None:
        """Add an ended attempt; one that its own transaction completed is settled already."""
        if claimed.completed:
            claimed.settling = True
            self._settled(claimed, outcome, "success")
            return
        if outcome.result is not None and len(outcome.result) > _HEAVY_CHARACTERS:
            # It takes turns with the light ones, which need not wait for it.
            heapq.heappush(self._again, _Batch(time.monotonic(), [(claimed, outcome)]))
        else:
            if not self._waiting:
                self._waiting_since = time.monotonic()
            self._waiting.append((claimed, outcome))
        claimed.settling = True  # not before: if there was no memory for this, the lookout finds the attempt
        self.empty.clear()
        self.wake()
        if self._slow:
            self._help()

    def unsettled(self) -> dict[UUID, Settlement]:
        """Ended attempts that may be unsettled, by job. Called in another thread while the loop is blocked."""
        batches = [*self._under_way.values(), *self._again]
        entries = [*self._waiting, *(entry for batch in batches for entry in batch.entries)]
        return {claimed.job_id: _settlement(claimed, outcome) for claimed, outcome in entries}

    def delayed(self) -> tuple[int, float]:
        """How many outcomes wait to be recorded, and for how many seconds the oldest has. Any thread may ask."""
        batches = [*self._under_way.values(), *self._again]
        oldest = [batch.since for batch in batches]
        if waiting := len(self._waiting):
            oldest.append(self._waiting_since)
        since = min(oldest, default=None)
        lag = 0.0 if since is None else max(0.0, time.monotonic() - since)
        return waiting + sum(len(batch.entries) for batch in batches), lag

    async def run(self) -> None:
        """Do rounds until `stop`; statements that are under way then are given up."""
        try:
            await super().run()
        finally:
            for helper in self._helpers:
                helper.cancel()

    async def round(self) -> float:
        """Settle all waiting outcomes."""
        await self._send_all()
        if not self._again:
            return 3600
        return max(0.0, self._again[0].due - time.monotonic())

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while (batch := self._next()) is not None:
            self._under_way[id(batch)] = batch
            slow = _Slow(self)
            timer = loop.call_later(_SLOW_SECONDS, slow.begin)
            try:
                await self._send(batch)
            finally:
                timer.cancel()
                slow.end()
                del self._under_way[id(batch)]
            self._on_settled()
        if not self._waiting and not self._again and not self._under_way:
            self.empty.set()

    def _next(self) -> _Batch | None:
        """The next batch: new outcomes, and refused ones whose pause is over, in turn."""
        now = time.monotonic()
        if self._again and self._again[0].due <= now and (self._turn or not self._waiting):
            self._turn = False
            return heapq.heappop(self._again)
        self._turn = True
        if not self._waiting:
            return None
        count = self._fitting()
        entries = self._waiting[:count]
        del self._waiting[:count]
        since, self._waiting_since = self._waiting_since, now
        return _Batch(now, entries, since=since)

    def _fitting(self) -> int:
        """How many of the waiting outcomes fit into a batch."""
        weight = 0
        for count, (claimed, outcome) in enumerate(self._waiting[: self._most]):
            if outcome.result is None and outcome.kind == "success" and claimed.log is None:
                continue
            weight += outcome.weight + (0 if claimed.log is None else sum(map(len, claimed.log)))
            if weight > _CHARACTERS and count:
                return count
        return min(self._most, len(self._waiting))

    async def _send(self, batch: _Batch) -> None:
        try:
            states = await self._store.settle([_settlement(claimed, outcome) for claimed, outcome in batch.entries])
        except Refusal as fault:
            self._refused(batch, fault)
            return
        except MemoryError:
            self._refused(batch, Refusal(NO_MEMORY, lasting=False))
            return
        except HoldfastError:
            # Perhaps the database is away, or it cut the connection because of the content.
            batch.tries += 1
            self._put_back(batch, pause=0.0)
            raise
        except asyncio.CancelledError:
            self._put_back(batch, pause=0.0)
            raise
        if len(batch.entries) >= self._most:
            self._most = min(_BATCH, self._most + 1 + self._most // 8)
        told = self._bus.hears(AttemptEnded)
        for (claimed, outcome), state in zip(batch.entries, states, strict=True):
            if state == "success" and not told:
                self._claimed.remove(claimed)
            else:
                self._settled(claimed, outcome, state)

    def _refused(self, batch: _Batch, fault: Refusal) -> None:
        """Send a refused batch again in parts; a single outcome later, or as a failure."""
        if not fault.lasting:
            self._most = max(1, min(self._most, len(batch.entries) // 2))
            self._on_refused()
        if len(batch.entries) > 1:
            self._put_back(batch, pause=0.0 if fault.lasting else _PAUSE_SECONDS, parts=_PARTS)
            return
        ((claimed, outcome),) = batch.entries
        batch.tries += 1
        too_heavy = batch.tries >= _HEAVY_TRIES and outcome.weight > _HEAVY_CHARACTERS
        if not fault.lasting and not too_heavy:
            if batch.tries >= _TOLD_TRIES:
                self._tell_delay(claimed, fault, time.monotonic() - batch.since)
            self._put_back(batch, pause=min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * 2**batch.tries))
        elif outcome.error_type == "SettlementRefused":
            self._lost(claimed)
        else:
            batch.entries = [(claimed, Outcome.refused(str(fault)))]
            self._put_back(batch, pause=0.0)

    def _put_back(self, batch: _Batch, *, pause: float, parts: int = 1) -> None:
        """Send a batch again later, in parts if `parts` says so or if it was not answered several times."""
        entries = batch.entries
        if parts == 1 and len(entries) > 1 and batch.tries >= 3:
            parts = _PARTS
        size = -(-len(entries) // parts)
        tries = batch.tries if len(entries) == 1 or parts == 1 else 0
        due = time.monotonic() + pause
        for start in range(0, len(entries), size):
            heapq.heappush(self._again, _Batch(due, entries[start : start + size], tries, batch.since))

    def _help(self) -> None:
        """If all statements under way take long, send the rest beside them."""
        if (self._waiting or self._again) and self._slow >= len(self._under_way) and len(self._helpers) < _HELPERS:
            helper = asyncio.create_task(self._helped(), name="settlement helper")
            self._helpers.add(helper)
            helper.add_done_callback(self._helpers.discard)

    async def _helped(self) -> None:
        with contextlib.suppress(HoldfastError, MemoryError):  # the next round will see the fault itself
            await self._send_all()
        self.wake()

    def became_slow(self) -> None:
        """Note that a statement takes long."""
        self._slow += 1
        self._help()

    def ended_slow(self) -> None:
        """Note that a slow statement has ended."""
        self._slow -= 1

    def _settled(self, claimed: Claimed, outcome: Outcome, state: str) -> None:
        if state != "success" and (state == "lease-lost" or outcome.kind == "success"):
            # The settlement did not count, perhaps because the attempt was handed back (holdfast.worker.surrender).
            self._lost(claimed)
            return
        self._claimed.remove(claimed)
        claim = claimed.claim
        if outcome.kind == "canceled" and state != "canceled":
            outcome = Outcome.failed_by_operator()  # of a verdict, workers are only told to cancel
        self._bus.emit(
            AttemptEnded(
                job_id=claim.job_id,
                type=claim.stream.type,
                tenant=claim.stream.tenant,
                queue=claim.stream.queue,
                attempt=claim.attempt,
                outcome=outcome.kind,
                state=state,
                failures=claim.failures + (outcome.kind in COSTS_ATTEMPT),
                duration_seconds=claimed.duration,
                queue_seconds=(claim.claimed_at - claim.ready_at).total_seconds(),
                correlation_id=claim.correlation_id,
                worker=self._worker,
                error_type=outcome.error_type,
                error=outcome.message if outcome.error_type else None,
            )
        )

    def _lost(self, claimed: Claimed) -> None:
        self._claimed.remove(claimed)
        self._bus.emit(
            LeaseLost(
                job_id=claimed.claim.job_id,
                type=claimed.claim.stream.type,
                attempt=claimed.claim.attempt,
                worker=self._worker,
            )
        )

    def _tell_delay(self, claimed: Claimed, fault: Refusal, seconds: float) -> None:
        self._bus.emit(
            SettlementDelayed(
                job_id=claimed.claim.job_id,
                type=claimed.claim.stream.type,
                attempt=claimed.claim.attempt,
                worker=self._worker,
                fault=str(fault),
                seconds=seconds,
            )
        )


class _Slow:
    """Whether one statement takes long."""

    __slots__ = ("_service", "_slow")

    def __init__(self, service: SettlementService) -> None:
        self._service, self._slow = service, False

    def begin(self) -> None:
        self._slow = True
        self._service.became_slow()

    def end(self) -> None:
        if self._slow:
            self._service.ended_slow()


def _settlement(claimed: Claimed, outcome: Outcome) -> Settlement:
    claim = claimed.claim
    return Settlement(claim.job_id, claim.attempt, outcome, whole_ms(claimed.duration), claimed.excerpt)
