"""Outcomes go to the database in batches, as many as came up while the last batch was under way.

1. Nothing that finished is lost: while the database is away, outcomes wait here and their leases are kept. What waits
   here is still held, and intake holds only so much.
2. A batch is bounded by count and by bytes; a heavy outcome is sent alone, in turns with light ones. A batch that the
   database refuses, for whatever reason, is sent again in parts, down to single outcomes, so that only what cannot be
   recorded waits.
3. An outcome that is refused alone for what it contains is recorded as a failure, which says why. One that meets a
   lock, a time limit or a lack of memory is sent again with growing pauses for as long as its lease lasts.
4. A statement that takes long holds up nobody: others are sent beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from holdfast.errors import HoldfastError
from holdfast.lifecycle.service import NO_MEMORY, Service
from holdfast.model.outcome import Outcome
from holdfast.store.leases import LeaseStore, Refusal, Settlement
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import AttemptEnded, LeaseLost, SettlementDelayed
from holdfast.worker.held import Held, HeldAttempts, whole_ms

__all__ = ["SettlementService"]

#: How much is sent at once: far less than PostgreSQL takes (1 GB), because every byte of it waits for the others.
_BATCH = 500
_CHARACTERS = 4 * 2**20
#: A refused batch is sent again in so many parts.
_PARTS = 8
#: What is refused for the moment pauses, so that leases can be renewed meanwhile; each time twice as long.
_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 30.0
#: An outcome this heavy is sent alone. If it is refused so often, it may be too much for the server: it is recorded
#: without its result.
_HEAVY_CHARACTERS = 2**16
_HEAVY_TRIES = 7
#: From this many refusals on, people are told.
_TOLD_TRIES = 3
#: A statement that takes longer than this is not waited for, and this many more may be under way.
_SLOW_SECONDS = 1.0
_HELPERS = 2

_Entry = tuple[Held, Outcome]


@dataclass(slots=True, order=True)
class _Batch:
    """Outcomes to be sent together, not before `due`."""

    due: float
    entries: list[_Entry] = field(compare=False)
    tries: int = field(compare=False, default=0)
    since: float = field(compare=False, default_factory=time.monotonic)


class SettlementService(Service):
    """Settles outcomes in the order they came, in batches."""

    name = "settlement"

    def __init__(
        self,
        store: LeaseStore,
        held: HeldAttempts,
        bus: Bus,
        worker: str,
        *,
        on_settled: Callable[[], None] = lambda: None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(bus)
        self._store, self._held, self._worker = store, held, worker
        self._on_settled, self._on_refused = on_settled, on_refused
        self._waiting: list[_Entry] = []
        self._again: list[_Batch] = []
        self._most = _BATCH
        self._turn = False
        #: Batches under way, how many of them take long, and the tasks that send others beside them.
        self._under_way: dict[int, _Batch] = {}
        self._slow = 0
        self._helpers: set[asyncio.Task[None]] = set()
        self.empty = asyncio.Event()
        self.empty.set()

    def add(self, held: Held, outcome: Outcome) -> None:
        """An attempt has ended; one whose own transaction completed it is settled already."""
        if held.completed:
            held.settling = True
            self._settled(held, outcome, "success")
            return
        if outcome.result is not None and len(outcome.result) > _HEAVY_CHARACTERS:
            # It takes turns with the light ones, which need not wait for it.
            heapq.heappush(self._again, _Batch(time.monotonic(), [(held, outcome)]))
        else:
            self._waiting.append((held, outcome))
        held.settling = True  # not before: where there was no memory for this, somebody else finds the attempt
        self.empty.clear()
        self.wake()
        if self._slow:
            self._help()

    def unsettled(self) -> dict[UUID, Settlement]:
        """What has ended and is not known to be settled, by job. Called in another thread while the loop is blocked."""
        batches = [*self._under_way.values(), *self._again]
        entries = [*self._waiting, *(entry for batch in batches for entry in batch.entries)]
        return {held.job_id: _settlement(held, outcome) for held, outcome in entries}

    async def run(self) -> None:
        """Rounds until `stop`; what is under way then is given up."""
        try:
            await super().run()
        finally:
            for helper in self._helpers:
                helper.cancel()

    async def round(self) -> float:
        """Settle what waits."""
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
        """What to send now: new outcomes, and refused ones whose pause is over, in turn."""
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
        return _Batch(now, entries)

    def _fitting(self) -> int:
        """How many of those that wait fit into a batch."""
        weight = 0
        for count, (held, outcome) in enumerate(self._waiting[: self._most]):
            if outcome.result is None and outcome.kind == "success" and held.log is None:
                continue
            weight += outcome.weight + (0 if held.log is None else sum(map(len, held.log)))
            if weight > _CHARACTERS and count:
                return count
        return min(self._most, len(self._waiting))

    async def _send(self, batch: _Batch) -> None:
        try:
            states = await self._store.settle([_settlement(held, outcome) for held, outcome in batch.entries])
        except Refusal as fault:
            self._refused(batch, fault)
            return
        except MemoryError:
            self._refused(batch, Refusal(NO_MEMORY, lasting=False))
            return
        except HoldfastError:
            # Perhaps the database is away, or the connection was cut because of what was sent.
            batch.tries += 1
            self._put_back(batch, pause=0.0)
            raise
        except asyncio.CancelledError:
            self._put_back(batch, pause=0.0)
            raise
        if len(batch.entries) >= self._most:
            self._most = min(_BATCH, self._most + 1 + self._most // 8)
        told = self._bus.hears(AttemptEnded)
        for (held, outcome), state in zip(batch.entries, states, strict=True):
            if state == "success" and not told:
                self._held.remove(held)
            else:
                self._settled(held, outcome, state)

    def _refused(self, batch: _Batch, fault: Refusal) -> None:
        """Send it again in parts; or alone, later, or as a failure."""
        if not fault.lasting:
            self._most = max(1, min(self._most, len(batch.entries) // 2))
            self._on_refused()
        if len(batch.entries) > 1:
            self._put_back(batch, pause=0.0 if fault.lasting else _PAUSE_SECONDS, parts=_PARTS)
            return
        ((held, outcome),) = batch.entries
        batch.tries += 1
        too_heavy = batch.tries >= _HEAVY_TRIES and outcome.weight > _HEAVY_CHARACTERS
        if not fault.lasting and not too_heavy:
            if batch.tries >= _TOLD_TRIES:
                self._tell_delay(held, fault, time.monotonic() - batch.since)
            self._put_back(batch, pause=min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * 2**batch.tries))
        elif outcome.error_type == "SettlementRefused":
            self._lost(held)
        else:
            batch.entries = [(held, Outcome.refused(str(fault)))]
            self._put_back(batch, pause=0.0)

    def _put_back(self, batch: _Batch, *, pause: float, parts: int = 1) -> None:
        """Have it sent again, in parts; also one that was never answered, several times."""
        entries = batch.entries
        if parts == 1 and len(entries) > 1 and batch.tries >= 3:
            parts = _PARTS
        size = -(-len(entries) // parts)
        tries = batch.tries if len(entries) == 1 or parts == 1 else 0
        due = time.monotonic() + pause
        for start in range(0, len(entries), size):
            heapq.heappush(self._again, _Batch(due, entries[start : start + size], tries, batch.since))

    def _help(self) -> None:
        """If all that is under way takes long, send the rest beside it."""
        if (self._waiting or self._again) and self._slow >= len(self._under_way) and len(self._helpers) < _HELPERS:
            helper = asyncio.create_task(self._helped(), name="settlement helper")
            self._helpers.add(helper)
            helper.add_done_callback(self._helpers.discard)

    async def _helped(self) -> None:
        with contextlib.suppress(HoldfastError, MemoryError):  # the next round finds out for itself
            await self._send_all()
        self.wake()

    def became_slow(self) -> None:
        """A statement takes long."""
        self._slow += 1
        self._help()

    def ended_slow(self) -> None:
        """It has ended."""
        self._slow -= 1

    def _settled(self, held: Held, outcome: Outcome, state: str) -> None:
        if state != "success" and (state == "lease-lost" or outcome.kind == "success"):
            # It did not count, perhaps because the attempt was handed back before (holdfast.worker.surrender).
            self._lost(held)
            return
        self._held.remove(held)
        claim = held.claim
        self._bus.emit(
            AttemptEnded(
                job_id=claim.job_id,
                type=claim.stream.type,
                tenant=claim.stream.tenant,
                queue=claim.stream.queue,
                attempt=claim.attempt,
                outcome=outcome.kind,
                state=state,
                failures=claim.failures + (1 if outcome.kind in ("failed", "timeout") else 0),
                duration_seconds=held.duration,
                queue_seconds=(claim.claimed_at - claim.ready_at).total_seconds(),
                correlation_id=claim.correlation_id,
                worker=self._worker,
                error_type=outcome.error_type,
                error=outcome.message if outcome.error_type else None,
            )
        )

    def _lost(self, held: Held) -> None:
        self._held.remove(held)
        self._bus.emit(
            LeaseLost(
                job_id=held.claim.job_id,
                type=held.claim.stream.type,
                attempt=held.claim.attempt,
                worker=self._worker,
            )
        )

    def _tell_delay(self, held: Held, fault: Refusal, seconds: float) -> None:
        self._bus.emit(
            SettlementDelayed(
                job_id=held.claim.job_id,
                type=held.claim.stream.type,
                attempt=held.claim.attempt,
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


def _settlement(held: Held, outcome: Outcome) -> Settlement:
    return held.claim.job_id, held.claim.attempt, outcome, whole_ms(held.duration), held.excerpt
