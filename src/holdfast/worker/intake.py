"""Claims jobs for free slots: by notification, when a slot falls free, and by polling behind both.

Which part of the ready jobs a claim looks at:
1. normally only what lies behind the last claims (see holdfast.model.hints);
2. every second what lies behind those of some seconds ago, for transactions that committed late;
3. everything, every second as long as that is cheap, and never more often than a twentieth of the time.
Where recent handlers were very short, jobs are claimed ahead: as many as the slots get through while a claim
is under way, so that they need not idle for a round trip. What is not started within a second is handed back.
All that a worker holds, running, claimed ahead or not yet settled, is at most its slots and `AHEAD` batches:
that is what a crash can make run again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from holdfast.errors import DatabaseUnavailable
from holdfast.lifecycle.service import Service
from holdfast.model.hints import Hints, Ranges
from holdfast.model.job import Stream
from holdfast.store.leases import LeaseStore
from holdfast.telemetry.bus import Bus
from holdfast.worker.held import Held, HeldAttempts
from holdfast.worker.slots import Slots

__all__ = ["AHEAD", "Intake"]

View = Literal["new", "recent", "everything"]

#: How many batches a worker may hold beyond its slots.
AHEAD = 20
#: Handlers shorter than this on average are worth claiming ahead for, as many as end within that time.
_SHORT_HANDLER = 0.02
_AHEAD_SECONDS = 0.01
_STALE_AFTER = 1.0
_RECENT_EVERY = 1.0
_STREAMS_EVERY = 2.0
#: After a notification, look again after these seconds: others may have committed just behind it.
_LINGER = (0.005, 0.025, 0.1, 0.4)
#: A claim that met this many ranks may have ended early.
_ROUNDS_OF_A_CLAIM = 16
#: With more streams than this, ordinary claims look only at those that had something lately.
_ALL_STREAMS_UP_TO = 64


class Intake(Service):
    """Fills slots."""

    name = "intake"

    def __init__(
        self,
        store: LeaseStore,
        held: HeldAttempts,
        slots: Slots,
        bus: Bus,
        *,
        types: Sequence[str],
        fast_types: Sequence[str],
        queues: Sequence[str] | None,
        tenants: Sequence[str] | None,
        batch_size: int,
        poll_interval: float,
        start: Callable[[Held], None],
        hand_back: Callable[[Held], None],
        held_already: Callable[[Held, Held], None],
        idle: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(bus)
        self._store, self._held, self._slots = store, held, slots
        self._types, self._fast_types, self._queues, self._tenants = types, set(fast_types), queues, tenants
        self._batch_size, self._poll_interval = batch_size, poll_interval
        self._start, self._hand_back, self._idle = start, hand_back, idle
        self._most = slots.total + AHEAD * batch_size
        self._held_already = held_already
        self._hints = Hints()
        self._streams: dict[int, Stream] = {}
        self._unknown: set[int] = set()
        self._foreign: set[int] = set()
        self._active: dict[int, float] = {}
        self._streams_at = self._recent_at = self._everything_at = float("-inf")
        self._everything_pause = 1.0
        self._linger: list[float] = []
        self._ahead: dict[str, deque[tuple[float, Held]]] = {lane: deque() for lane in slots.capacity}
        self._mean_seconds = 1.0
        self._unanswered: list[float] = []
        self._full = False

    def heard(self, payload: str) -> None:
        """A notification: some streams have something, or (no payload) any. Streams of others are ignored."""
        named = {int(part) for part in payload.split(",") if part.isdigit()} - self._foreign
        if payload and not named:
            return
        if not payload or named - self._streams.keys():
            self._streams_at = float("-inf")
            self._unknown |= named
        now = time.monotonic()
        for stream in named:
            self._active[stream] = now
        self._linger = list(_LINGER)
        self.wake()

    def ended(self, held: Held) -> None:
        """A slot fell free: start what was claimed ahead, or look for more."""
        self._slots.give_back(held.lane)
        self._mean_seconds += (held.duration - self._mean_seconds) * 0.05
        ahead = self._ahead[held.lane]
        if ahead and not self.stopping.is_set():
            self._begin(ahead.popleft()[1])
        if len(ahead) <= self._wanted_ahead(held.lane) // 2:
            self.wake()

    def settled(self) -> None:
        """Some of what was held is settled: there may be room again."""
        if self._full:
            self._full = False
            self.wake()

    def give_up(self) -> None:
        """Hand back all that was claimed ahead."""
        for ahead in self._ahead.values():
            while ahead:
                self._hand_back(ahead.popleft()[1])

    async def round(self) -> float:
        """One look for work; how long to wait before the next."""
        self._drop_stale()
        now = time.monotonic()
        if self._unanswered and now >= self._unanswered[0]:
            await self._store.release_unknown([h.claim.job_id for h in self._held.all()])
            del self._unanswered[0]
        if now - self._streams_at >= _STREAMS_EVERY:
            # What is heard of while this reads may be newer than the answer: it is judged by the next one.
            self._streams_at, unknown, self._unknown = now, self._unknown, set()
            self._streams = await self._store.streams(self._types, self._queues, self._tenants)
            self._foreign |= unknown - self._streams.keys()
        if not self._streams:
            return await self._nothing()

        view = self._view(now)
        claimed = wanted_in_all = 0
        for lane, wanted, streams in self._wishes():
            if wanted > 0 and streams:
                claimed += await self._claim(lane, wanted, streams, view)
                wanted_in_all += wanted
        if wanted_in_all:
            self._looked(view, now)
        if claimed and claimed >= min(wanted_in_all, _ROUNDS_OF_A_CLAIM):
            return 0.0
        if claimed:
            return self._linger.pop(0) if self._linger else self._poll_interval
        return await self._nothing() if wanted_in_all else self._poll_interval

    async def _nothing(self) -> float:
        if self._idle is not None:
            if not len(self._held) and not await self._store.work_left(list(self._streams)):
                self._idle()
                return 0.0
            return min(0.05, self._poll_interval)
        if self._linger:
            return self._linger.pop(0)
        return self._poll_interval

    def _wishes(self) -> Iterator[tuple[str, int, list[int]]]:
        """(lane, how many, from which streams); fast slots are filled first, and only with fast types."""
        fast = [s.id for s in self._streams.values() if s.type in self._fast_types]
        for lane, streams in (("fast", fast), ("general", list(self._streams))):
            if self._slots.capacity.get(lane, 0) > 0:
                yield lane, self._wanted(lane), streams

    def _wanted(self, lane: str) -> int:
        ahead, waiting = self._wanted_ahead(lane), len(self._ahead[lane])
        wanted = self._slots.free(lane) + ahead - waiting
        if waiting and wanted < ahead // 2:
            return 0  # a larger claim, in a moment, costs less than two
        room = self._most - len(self._held)
        self._full = room < wanted
        return min(wanted, room)

    def _wanted_ahead(self, lane: str) -> int:
        """How many jobs more than its slots a lane is to have."""
        if self._mean_seconds >= _SHORT_HANDLER:
            return 0
        soon = self._slots.capacity[lane] * _AHEAD_SECONDS / max(self._mean_seconds, 1e-6)
        return min(AHEAD * self._batch_size, int(soon))

    async def _claim(self, lane: str, wanted: int, streams: list[int], view: View) -> int:
        asked_at = time.monotonic()
        try:
            claims = await self._store.claim(self._ranges(streams, view, asked_at), self._streams, wanted, None)
        except DatabaseUnavailable:
            # The claim may have been granted, now or in a moment: ask what came of it, and once more later.
            self._unanswered = [0.0, time.monotonic() + 5.0]
            raise
        self._hints.learn(claims)
        for claim in claims:
            self._active[claim.stream.id] = asked_at
            held = Held(claim, lane, asked_at)
            earlier = self._held.get(claim.job_id)
            # An attempt that has ended may only wait for the answer to its settlement.
            if earlier is not None and not earlier.ended:
                self._held_already(earlier, held)
                continue
            self._held.add(held)
            if self.stopping.is_set():
                self._hand_back(held)
            elif self._slots.free(lane) > 0:
                self._begin(held)
            else:
                self._ahead[lane].append((asked_at, held))
        return len(claims)

    def _view(self, now: float) -> View:
        """How far back to look this time."""
        if now - self._everything_at >= self._everything_pause:
            return "everything"
        return "recent" if now - self._recent_at >= _RECENT_EVERY else "new"

    def _looked(self, view: View, began: float) -> None:
        """A look back counts only once it was made: while no slot is free, it stays due."""
        if view == "new":
            return
        self._hints.mark()
        self._recent_at = began
        if view == "everything":
            self._everything_at = began
            self._everything_pause = min(60.0, max(1.0, 20 * (time.monotonic() - began)))

    def _ranges(self, streams: list[int], view: View, now: float) -> Ranges:
        if view == "everything":
            return Hints.everything(streams)
        if view == "recent":
            return self._hints.recent(streams)
        if len(streams) > _ALL_STREAMS_UP_TO:
            streams = [s for s in streams if now - self._active.get(s, -60.0) < 5.0] or streams
        return self._hints.ranges(streams)

    def _begin(self, held: Held) -> None:
        self._slots.take(held.lane)
        self._start(held)

    def _drop_stale(self) -> None:
        oldest = time.monotonic() - _STALE_AFTER
        for ahead in self._ahead.values():
            while ahead and ahead[0][0] < oldest:
                self._hand_back(ahead.popleft()[1])
