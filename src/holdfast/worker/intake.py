"""Claims jobs for free slots: on notifications, when a slot becomes free, and by polling as a fallback.

Which part of the ready jobs a claim looks at (see holdfast.model.hints):
1. under load, while claims come back full, only entries after those of the last claim;
2. otherwise entries after those of a tenth of a second ago: jobs enqueued at once may commit out of order;
3. every second, entries after those of a second ago, for transactions that committed late;
4. everything, every second as long as that is cheap, and never for more than a twentieth of the time. If the recent
   handlers of a lane were very short, and still end, jobs are claimed ahead: as many as its slots finish while a claim
   is under way, so that they do not idle for a round trip. Jobs that are not started within a second are handed back,
   and no jobs are claimed ahead there until handlers have been short again. All jobs that a worker has, running,
   claimed ahead or not yet settled, are at most its slots plus `AHEAD` batches, of which each lane has its share: that
   is how many jobs a crash can make run again. Jobs of limited streams are not claimed ahead, because they would use
   permits that others need (except for one job, if the jobs claimed ahead take every slot at once). If a limit is per
   key, a stream is looked at from its beginning every time, because jobs that waited for a permit come back to their
   old place. The claim shares slots between the tenants whose streams it looks at (see sql/functions/shares.sql). With
   very many streams, it looks at those that had ready jobs at the last look at everything, and at those that were
   announced or served since.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal

from holdfast.errors import DatabaseUnavailable
from holdfast.lifecycle.elapsed import elapsed
from holdfast.lifecycle.service import Service
from holdfast.model.hints import Hints, Ranges
from holdfast.store.leases import LeaseStore
from holdfast.telemetry.bus import Bus
from holdfast.worker.beginnings import Beginnings
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.offer import Offer
from holdfast.worker.slots import Slots

__all__ = ["AHEAD", "Intake"]

View = Literal["new", "lately", "recent", "everything"]

#: How many batches a worker may have beyond its slots.
AHEAD = 40
#: Jobs are claimed ahead if handlers are shorter than this on average: as many as end within the time below.
_SHORT_HANDLER = 0.02
_AHEAD_SECONDS = 0.01
_UNKNOWN_SECONDS = 1.0
#: After this long without a free slot, a lane's mean handler time is unknown.
_BUSY_SECONDS = 0.05
_STALE_AFTER = 1.0
_LATELY_EVERY = 0.1
_RECENT_EVERY = 1.0
_STREAMS_EVERY = 4.0
#: After a notification, look again after these seconds: other transactions, which sent none because of it, may have
#: committed later. A job that is committed within half a second waits for at most a tenth of a second.
_LINGER = (0.005, 0.025, 0.07, 0.1, 0.1, 0.1, 0.1)
#: A claim that met this many ranks may have ended early.
_ROUNDS_OF_A_CLAIM = 16
#: How often to look for free permits, and for how long after jobs were found.
_LIMITED_EVERY = 0.1
_LIMITED_SECONDS = 5.0
#: With more streams than this, ordinary claims look only at those that may have jobs.
_ALL_STREAMS_UP_TO = 64
#: For how long a stream that was announced or served may have jobs.
_ACTIVE_SECONDS = 5.0
#: For how long other workers go first when a job comes back that was left to them, and how long before its return.
_STAND_BACK_SECONDS, _STAND_BACK_BEFORE = 0.5, 0.05
#: Streams come and go: when there are more streams of other workers than this, all of them are forgotten.
_FOREIGN_KEPT = 100_000


class Intake(Service):
    """Fills slots."""

    name = "intake"

    def __init__(
        self,
        store: LeaseStore,
        claimed: ClaimedAttempts,
        slots: Slots,
        bus: Bus,
        *,
        types: Sequence[str],
        lane_of: Mapping[str, str],
        queues: Sequence[str] | None,
        tenants: Sequence[str] | None,
        batch_size: int,
        poll_interval: float,
        prepare: Callable[[], Awaitable[None]],
        start: Callable[[Claimed], None],
        keep: Callable[[float], None],
        hand_back: Callable[[Claimed], None],
        claimed_already: Callable[[Claimed, Claimed], None],
        idle: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(bus)
        self._store, self._claimed, self._slots = store, claimed, slots
        self._types, self._queues, self._tenants = types, queues, tenants
        self._offer = Offer(slots.capacity, lane_of)
        self._batch_size, self._poll_interval = batch_size, poll_interval
        self._start, self._keep, self._hand_back, self._idle = start, keep, hand_back, idle
        self._prepare, self._prepared = prepare, False
        #: How many jobs of each lane may be claimed beyond its slots.
        self._share = {lane: AHEAD * batch_size * n // max(1, slots.total) for lane, n in slots.capacity.items()}
        self._claimed_already = claimed_already
        #: Which of the jobs claimed ahead may begin.
        self.beginnings = Beginnings(store, bus, slots.capacity.items(), on_cleared=self._fill)
        self._hints = Hints()
        self._unknown: set[int] = set()
        self._foreign: set[int] = set()
        self._active: dict[int, float] = {}
        self._stocked: frozenset[int] = frozenset()
        self._limited_at = float("-inf")
        #: The periods in which other workers go first, by stream.
        self._standing_back: dict[int, tuple[float, float]] = {}
        self._streams_at = self._lately_at = self._recent_at = self._everything_at = float("-inf")
        self._loaded = False
        self._everything_pause = 1.0
        self._linger: list[float] = []
        self._ahead: dict[str, deque[tuple[float, Claimed]]] = {lane: deque() for lane in slots.capacity}
        self._mean_seconds = dict.fromkeys(slots.capacity, _UNKNOWN_SECONDS)
        self._ended_at = dict.fromkeys(slots.capacity, float("-inf"))
        self._unanswered: list[float] = []
        self._full = False
        self._quiet = False

    def heard(self, payload: str) -> None:
        """Handle a notification: the named streams have jobs; without payload, any may. Foreign ones are ignored."""
        named = {int(part) for part in payload.split(",") if part.isdigit()} - self._foreign
        if payload and not named:
            return
        if not payload or named - self._offer.streams.keys():
            self._streams_at = float("-inf")
            self._unknown |= named
        now = time.monotonic()
        for stream in named:
            self._active[stream] = now
            if stream in self._offer.streams and self._offer.streams[stream].limited:
                self._limited_at = now
        self._linger = list(_LINGER)
        self.wake()

    def stand_back(self, stream: int, seconds: float) -> None:
        """Let other workers go first when a job of this stream, which was left to them, comes back after `seconds`.

        Otherwise the fastest worker would claim it again every time. A worker stands back at most half of the time.
        """
        begin, end = self._standing_back.get(stream, (float("inf"), float("-inf")))
        begins = time.monotonic() + seconds
        if begins < begin or begins > end + _STAND_BACK_SECONDS:
            self._standing_back[stream] = begins - _STAND_BACK_BEFORE, begins + _STAND_BACK_SECONDS

    def ended(self, claimed: Claimed) -> None:
        """Use a slot that became free: start a job that was claimed ahead, or look for more."""
        lane = claimed.lane
        self._slots.give_back(lane)
        self._mean_seconds[lane] += (claimed.waited + claimed.duration - self._mean_seconds[lane]) * 0.05
        self._ended_at[lane] = time.monotonic()
        ahead = self._ahead[lane]
        if ahead:
            self._fill(lane)
        # This runs for every job: the exact number is computed only where it can matter.
        if len(ahead) <= self._share[lane] // 2 and not self.woken and len(ahead) <= self._wanted_ahead(lane) // 2:
            self.wake()

    def settled(self) -> None:
        """Note that some attempts are settled: there may be room again."""
        if self._full or self._offer.limited:
            self._full = False
            self.wake()

    def give_up(self) -> None:
        """Hand back all jobs that were claimed ahead."""
        for ahead in self._ahead.values():
            while ahead:
                self._hand_back(ahead.popleft()[1])

    def quiet(self) -> None:
        """Claim no more, and hand back what was claimed ahead."""
        self._quiet = True
        self.give_up()

    async def round(self) -> float:
        """Look for work once. Returns how long to wait before the next look."""
        self._drop_stale()
        return min(await self._look(), self._until_stale())

    async def _look(self) -> float:
        if not self._prepared:
            await self._prepare()
            self._prepared = True
        now = time.monotonic()
        if self._unanswered and now >= self._unanswered[0]:
            # No claim is under way: an earlier claim is known here, or its answer never arrived.
            mark = await self._store.claim_mark()
            await self._store.hand_back_unheard([h.claim.job_id for h in self._claimed.all()], mark)
            del self._unanswered[0]
        if now - self._streams_at >= _STREAMS_EVERY:
            # Streams announced while this reads may be newer than the answer: the next answer decides about them.
            self._streams_at, unknown, self._unknown = now, self._unknown, set()
            self._offer.renew(await self._store.streams(self._types, self._queues, self._tenants, self._offer.used))
            self._foreign = (self._foreign | unknown) - self._offer.streams.keys()
            if len(self._foreign) > _FOREIGN_KEPT:
                self._foreign = set()
            self._active = {stream: at for stream, at in self._active.items() if now - at < _ACTIVE_SECONDS}
            self._hints.keep(self._offer.streams)
            self._hints.forget(stream.id for stream in self._offer.streams.values() if stream.keyed)
        if not self._offer.streams:
            return await self._nothing()

        view = self._view(now)
        count = wanted_in_all = 0
        self._full = False
        for lane, wanted, offered in self._wishes():
            streams = self._left_to_us(offered, now) if self._standing_back else offered
            if wanted > 0 and streams:
                if view == "everything" and not wanted_in_all and len(self._offer.streams) > _ALL_STREAMS_UP_TO:
                    self._stocked = frozenset(await self._store.ready_streams(list(self._offer.streams)))
                count += await self._claim(lane, wanted, streams, view)
                wanted_in_all += wanted
        if wanted_in_all:
            self._looked(view, now)
            self._loaded = count >= wanted_in_all
        if count and count >= min(wanted_in_all, _ROUNDS_OF_A_CLAIM):
            return 0.0
        if count:
            return self._pause()
        return await self._nothing() if wanted_in_all else self._poll_interval

    def _left_to_us(self, streams: list[int], now: float) -> list[int]:
        """The streams in which other workers do not go first at the moment."""
        over = [stream for stream, (_, end) in self._standing_back.items() if end + _STAND_BACK_SECONDS < now]
        for stream in over:
            del self._standing_back[stream]
        back = {stream for stream, (begin, end) in self._standing_back.items() if begin <= now < end}
        return [stream for stream in streams if stream not in back]

    async def _nothing(self) -> float:
        if self._idle is not None:
            if not len(self._claimed) and not await self._store.work_left(list(self._offer.streams)):
                self._idle()
                return 0.0
            return min(0.05, self._poll_interval)
        return self._pause()

    def _pause(self) -> float:
        if self._linger:
            return self._linger.pop(0)
        if time.monotonic() - self._limited_at < _LIMITED_SECONDS:
            return min(_LIMITED_EVERY, self._poll_interval)
        return self._poll_interval

    def _wishes(self) -> Iterator[tuple[str, int, list[int]]]:
        """(lane, how many, from which streams); general slots, which take any, are filled last."""
        for lane in sorted(self._slots.capacity, key="general".__eq__):
            if self._slots.capacity[lane] > 0:
                if self._offer.has_limits(lane):
                    ahead = self._ahead[lane]
                    one_more = not (ahead and ahead[0][1].claim.stream.limited)
                    yield lane, min(self._wanted(lane), max(one_more, self._slots.free(lane))), self._offer.every(lane)
                yield lane, self._wanted(lane), self._offer.unlimited(lane)

    def _wanted(self, lane: str) -> int:
        if self._quiet:
            return 0
        ahead, waiting = self._wanted_ahead(lane), len(self._ahead[lane])
        wanted = self._slots.free(lane) + ahead - waiting
        if waiting and wanted < ahead // 2:
            return 0  # one larger claim, in a moment, costs less than two
        room = self._slots.capacity[lane] + self._share[lane] - self._claimed.in_lane(lane)
        self._full |= room < wanted
        return min(wanted, room)

    def _wanted_ahead(self, lane: str) -> int:
        """How many jobs a lane should have beyond its slots."""
        mean = self._mean_seconds[lane]
        if mean >= _SHORT_HANDLER:
            return 0
        if self._slots.free(lane) <= 0 and time.monotonic() - self._ended_at[lane] > _BUSY_SECONDS:
            return 0
        return min(self._share[lane], int(self._slots.capacity[lane] * _AHEAD_SECONDS / max(mean, 1e-6)))

    async def _claim(self, lane: str, wanted: int, streams: list[int], view: View) -> int:
        asked_at, lease_begins = time.monotonic(), elapsed()
        next_number = self.beginnings.next_number(lane)
        at_once = self.beginnings.at_once(
            lane, self._mean_seconds[lane], free=self._slots.free(lane), waiting=len(self._ahead[lane])
        )
        try:
            claims = await self._store.claim(
                self._ranges(streams, view, asked_at),
                self._offer.streams,
                wanted,
                None,
                at_once=at_once,
                next_number=next_number,
                records=True,
            )
        except (DatabaseUnavailable, asyncio.CancelledError):
            # The claim may have been granted, or may be in a moment: ask for its jobs now, and once more later.
            self._unanswered = [0.0, time.monotonic() + 5.0]
            raise
        self._hints.learn(claim for claim in claims if not claim.stream.keyed)
        for stream in {claim.stream.id: claim.stream for claim in claims}.values():
            self._active[stream.id] = asked_at
            self._offer.used.add(stream.id)
            if stream.limited:
                self._limited_at = asked_at
        for claim in claims:
            claimed = Claimed(claim, lane, lease_begins)
            earlier = self._claimed.get(claim.job_id)
            # An attempt that has ended may only be waiting for the answer to its settlement.
            if earlier is not None and not earlier.ended:
                self._claimed_already(earlier, claimed)
                continue
            self._claimed.add(claimed)
            if self.stopping.is_set() or self._quiet:
                self._hand_back(claimed)
            elif claim.number is None and not self._ahead[lane] and self._slots.free(lane) > 0:
                self._begin(claimed)
            elif claim.stream.limited:
                self._ahead[lane].appendleft((asked_at, claimed))
            else:
                self._ahead[lane].append((asked_at, claimed))
        if claims:
            self._keep(min(claim.lease_seconds for claim in claims))
        numbers = [claim.number for claim in claims if claim.number is not None]
        if numbers:
            self.beginnings.claimed(lane, numbers[0], numbers[-1])
        self._fill(lane)
        return len(claims)

    def _view(self, now: float) -> View:
        """How far back to look this time."""
        if now - self._everything_at >= self._everything_pause:
            return "everything"
        if now - self._recent_at >= _RECENT_EVERY:
            return "recent"
        return "new" if self._loaded else "lately"

    def _looked(self, view: View, began: float) -> None:
        """Note that a look was made. While no slot is free, none is made, and it stays due."""
        if began - self._lately_at >= _LATELY_EVERY:
            self._hints.mark("lately")
            self._lately_at = began
        if view in ("new", "lately"):
            return
        self._hints.mark("recent")
        self._recent_at = began
        if view == "everything":
            self._everything_at = began
            self._everything_pause = min(60.0, max(1.0, 20 * (time.monotonic() - began)))

    def _ranges(self, streams: list[int], view: View, now: float) -> Ranges:
        if view == "everything":
            return Hints.everything(streams)
        if view == "recent":
            return self._hints.since("recent", streams, last_will_do=True)  # none is made within a second of another
        if len(streams) > _ALL_STREAMS_UP_TO:
            since = now - _ACTIVE_SECONDS
            streams = [s for s in streams if s in self._stocked or self._active.get(s, since) > since] or streams
        return self._hints.ranges(streams) if view == "new" else self._hints.since("lately", streams)

    def _fill(self, lane: str) -> None:
        """Start jobs that were claimed ahead, as far as slots are free and they may begin."""
        ahead, free = self._ahead[lane], self._slots.free(lane)
        while free > 0 and ahead and not self.stopping.is_set():
            number = ahead[0][1].claim.number
            if number is not None and not self.beginnings.may_begin(lane, number):
                return
            self._begin(ahead.popleft()[1])
            free -= 1

    def _begin(self, claimed: Claimed) -> None:
        self._slots.take(claimed.lane)
        self._start(claimed)

    def _drop_stale(self) -> None:
        oldest = time.monotonic() - _STALE_AFTER
        for lane, ahead in self._ahead.items():
            if ahead and ahead[0][0] < oldest:
                # Handlers are slower than they were.
                self._mean_seconds[lane] = _UNKNOWN_SECONDS
            while ahead and ahead[0][0] < oldest:
                self._hand_back(ahead.popleft()[1])

    def _until_stale(self) -> float:
        """How long until a job that was claimed ahead must be handed back."""
        oldest = min((ahead[0][0] for ahead in self._ahead.values() if ahead), default=float("inf"))
        return max(0.0, oldest + _STALE_AFTER - time.monotonic())
