"""A worker: wires the parts, starts them, drains them, and stops them in order.

Start: resources → registration → settlement → leases → intake → maintenance.
Drain: maintenance → intake, and hand back jobs that were claimed ahead → running handlers, which are interrupted when
the grace period is over → settlement → leases → registration → resources. Leases are renewed to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.client.client import Client
from holdfast.config import Config
from holdfast.definitions.registry import Registry
from holdfast.errors import DatabaseUnavailable
from holdfast.lifecycle.service import Service
from holdfast.model.lanes import LANES
from holdfast.model.outcome import Outcome
from holdfast.store.circuits import CircuitStore
from holdfast.store.database import Database
from holdfast.store.leases import LeaseStore, Settlement
from holdfast.store.reports import ReportStore
from holdfast.store.transactions import Transactions
from holdfast.store.workers import WorkerStore
from holdfast.telemetry.aside import Aside
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import WorkerChanged
from holdfast.telemetry.narrator import narrate
from holdfast.worker.attempts import Attempts
from holdfast.worker.blockage import Blockage
from holdfast.worker.circuits import Circuits
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.copies import alone_in_its_loop
from holdfast.worker.deadlines import Timeouts, time_over
from holdfast.worker.drain import CLEAN_UP_SECONDS, Drain, drain_pauses
from holdfast.worker.elsewhere import Elsewhere
from holdfast.worker.enlistment import Enlistment, chosen, new_worker_id
from holdfast.worker.execution import Execution
from holdfast.worker.intake import Intake
from holdfast.worker.kept import Kept
from holdfast.worker.leases import LeaseKeeper
from holdfast.worker.lifespan import StoppedEarly, inside
from holdfast.worker.lifespan_watch import LifespanWatch
from holdfast.worker.lookout import Lookout
from holdfast.worker.middleware import Middleware
from holdfast.worker.owners import owned_by_worker
from holdfast.worker.payloads import Payloads
from holdfast.worker.processes.addresses import check_addresses
from holdfast.worker.runners import Runners
from holdfast.worker.schedules import DeclareSchedules
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.settlement import SettlementService
from holdfast.worker.silence import Blocker, Silence
from holdfast.worker.slots import Slots
from holdfast.worker.starts import Starts
from holdfast.worker.surrender import Surrender
from holdfast.worker.vitals import Figures, VitalSigns

__all__ = ["Worker"]

#: How long the end of a drain waits for a database that does not answer: for the last claim, for outcomes once the
#: grace period is over, and for each statement of the goodbye. Leases of unsettled attempts will lapse.
_LAST_CLAIM_SECONDS = 3.0
_LAST_OUTCOMES_SECONDS = 5.0
_GOODBYE_SECONDS = 1.0
_STUCK_AFTER_SECONDS = 30.0
#: How long observers of a replacement may take.
_TELL_SECONDS = 1.0


class Worker:
    """Runs the jobs of an app's types until it is told to drain."""

    def __init__(
        self,
        config: Config,
        database: Database,
        client: Client,
        registry: Registry,
        bus: Bus,
        *,
        slots: dict[str, int],
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        batch_size: int | None = None,
        poll_interval: float | None = None,
        burst: bool = False,
        services: Sequence[Service] = (),
        on_duty: Callable[[str], None] = lambda _payload: None,
        stuck_after_seconds: float | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.id = new_worker_id()
        self._config, self._database, self._client, self._bus = config, database, client, bus
        self._types = chosen(registry, types)
        check_addresses(self._types.values())
        self._queues, self._tenants = queues, tenants
        self._lifespan = lifespan
        self._slots = Slots(slots)
        self._lanes = {t.lane for t in self._types.values()}
        self._enlistment = Enlistment(
            WorkerStore(database), self.id, self._types, slots=self._slots.capacity, queues=queues, tenants=tenants
        )
        self._batch_size = batch_size or config.batch_size
        self._poll_interval = poll_interval or config.poll_interval
        self._burst = burst
        self._services, self._on_duty = list(services), on_duty
        if registry.schedules:
            self._services.insert(0, DeclareSchedules(database, self.id, registry, bus))
        self._stuck_after = _STUCK_AFTER_SECONDS if stuck_after_seconds is None else stuck_after_seconds
        self._middleware = middleware
        self._claimed = ClaimedAttempts()
        self._settings = WorkerSettings(config)
        self._timeouts = Timeouts(self._types, self._settings, self._claimed)
        self._time_over = partial(time_over, self._timeouts, self._stuck_after)
        self._store = LeaseStore(database, self.id)
        self._has_beaten = False
        self._drain = Drain(self._settings, self._slots, self._claimed)
        #: Attempts that cannot be ended, with their outcomes, for the process that replaces this one.
        self.stuck: list[Settlement] = []
        #: How often each job was in a blocked event loop while the blocker was unknown (see `surrender`).
        self.suspects: dict[UUID, int] = {}
        #: It drains because a handler was stuck, even if that handler has ended since; nobody asked it to stop.
        self.to_be_replaced = False
        #: Replaces this process by one that settles the stuck attempts. Callable in any thread; None in a user's
        #: program.
        self.replace: Callable[[], object] | None = None
        #: Ends this process, or replaces it if something is stuck. Callable in any thread; None in a user's program.
        self.abandon: Callable[[], object] | None = None
        #: Ends this process as failed if it cannot be replaced. Callable in any thread; None in a user's program.
        self.fail: Callable[[Exception], object] | None = None
        #: Called when a drain begins, with the length of its grace period in seconds.
        self.tell_grace: Callable[[float], object] | None = None
        #: Called every second, in the lease keeper's thread, with how this worker is.
        self.on_pulse: Callable[[VitalSigns], object] | None = None
        #: Whether somebody asked the process to stop. Callable in any thread, even while the event loop is blocked.
        self.told_to_stop: Callable[[], bool] = lambda: False
        #: This worker has its process for itself: nobody but a handler cancels `run` while jobs run.
        self.is_alone = False

    def drain(self) -> None:
        """Stop claiming and let running jobs finish; called again, interrupt them now."""
        self._drain.ask()

    @property
    def events(self) -> Bus:
        """What happens in this process."""
        return self._bus

    def attend(self, service: Service) -> None:
        """Run a service beside the work, until the drain; call this before `run`."""
        self._services.append(service)

    def observe_statements(self, observer: Callable[[str, float, str | None], None]) -> None:
        """Call `observer` for each statement that claims or settles, with its name, duration and error code."""
        self._database.observe = observer

    async def queue_depths(self) -> list[tuple[str, int]]:
        """How many jobs of each type wait for a worker, in the whole installation."""
        return await WorkerStore(self._database).queue_depths()

    def figures(self) -> Figures:
        """How this worker is now; any thread may ask."""
        running = Counter(claimed.type for claimed in self._claimed.all() if claimed.running)
        return Figures(
            dict(running), dict(self._slots.capacity), self._slots.used_per_lane, *self._settlement.delayed()
        )

    async def run(self) -> None:
        """Work until drained, or in a burst until nothing is left."""
        with contextlib.suppress(StoppedEarly):
            await self._run()

    async def _run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(alone_in_its_loop())
            watch = LifespanWatch(lambda: self._drain.over_at(self.told_to_stop), self._leave_lifespan)
            if self.abandon is not None:
                stack.enter_context(watch)
            resources = await stack.enter_async_context(inside(self._lifespan, self._drain.begun, self._drain.hurried))
            await self._enlistment.enter()
            transactions = Transactions(self._config, self.id, size=self._slots.total)
            stack.push_async_callback(transactions.close)
            transactions.result_limit = self._result_limit
            reports = ReportStore(self._config, self.id)
            stack.push_async_callback(reports.close)
            declared = [t.circuit for t in self._types.values() if t.circuit is not None]
            self._circuits = Circuits(CircuitStore(self._database, self.id), declared)
            silence = Silence()
            self._execution = Execution(
                self._config,
                self.id,
                self._client,
                resources,
                threads=self._slots.total,
                pauses_drained=self._pauses_drained,
                stuck_after_seconds=self._stuck_after,
                on_stuck=self._on_stuck,
                transactions=transactions,
                send=reports.report,
                middleware=self._middleware,
                result_limit=self._result_limit,
                starts=Starts(self._store, self._bus),
                payloads=Payloads(self._store, self._bus),
                elsewhere=Elsewhere(self._store, stand_back=self._stand_back),
                circuits=self._circuits,
                silence=silence,
            )
            aside = self._aside = Aside(self._bus)
            self._blockage = Blockage(
                self.id,
                self._claimed,
                aside,
                time_over=self._time_over,
                stuck_after_seconds=self._stuck_after,
                drain_over=lambda: self._drain.over_at(self.told_to_stop),
                give_up=self._give_loop_up,
                silence=silence,
            )
            self._keeper = LeaseKeeper(
                self._config,
                self.id,
                self._claimed,
                self._slots,
                aside,
                blockage=self._blockage,
                on_wake=self._on_wake,
                on_lost=self._on_lost,
                on_unknown=lambda: self._spawn(self._enlistment.enter()),
                on_settings=self._learn,
                on_quiet=self._on_quiet,
                on_stopped=self._on_stopped,
                on_pulse=self._pulse,
            )
            self._attempts = Attempts(
                self.id,
                self._bus,
                self._claimed,
                self._execution,
                types=self._types,
                timeouts=self._timeouts,
                on_ended=self._on_ended,
                on_struck=self._on_struck,
                settle=self._settle,
            )
            self._runners = Runners(self._attempts.run)
            self._intake = self._new_intake()
            self._settlement = SettlementService(
                self._store,
                self._claimed,
                self._bus,
                self.id,
                on_settled=self._intake.settled,
                on_refused=self._keeper.look,
            )
            self._lookout = Lookout(
                self._claimed,
                self._keeper,
                self._blockage,
                on_stuck=self._on_stuck,
                on_adrift=self._on_adrift,
                on_keeper_lost=self._on_keeper_lost,
            )
            self._surrender = Surrender(
                self._config,
                self.id,
                self._claimed,
                execution=self._execution,
                settlement=self._settlement,
                keeper=self._keeper,
                aside=aside,
                types=self._types,
                timeouts=self._timeouts,
                time_over=self._time_over,
                suspects=self.suspects,
            )
            # Observers are foreign code; `watch` guards them while the lease keeper's thread does not watch the loop.
            self._tell("started", f"{len(self._types)} job types, {self._slots.capacity}")
            if idle := [lane for lane in self._slots.capacity if lane not in LANES and lane not in self._lanes]:
                self._tell("has slots for lanes that none of its job types is in", ", ".join(idle))
            watch.rests = True
            try:
                with owned_by_worker():
                    await self._work()
            finally:
                watch.rests = False
                self._tell("stopped")

    def _leave_lifespan(self) -> None:
        """In the watching thread: the app or an observer blocks the event loop, and the worker must stop."""
        narrate(WorkerChanged(worker=self.id, change="is blocked by its app's lifespan or observers and ends"))
        if self.abandon is not None:
            self.abandon()

    def _result_limit(self) -> int:
        return self._settings.result_limit

    def _on_wake(self, topic: str, payload: str) -> None:
        if topic == "duty":
            self._on_duty(payload)
        else:
            self._intake.heard(payload)
            if not payload:
                self._circuits.heard()

    async def _work(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keeper.start()
        kept = self._kept = Kept(partial(self._tell, "goes on although something canceled its own tasks"))
        settlement = kept.start("settlement", self._settlement.run)
        intake = kept.start("intake", self._intake.run)
        beginnings = kept.start("beginnings", self._intake.beginnings.run)
        services = [kept.start(s.name, s.run) for s in self._services]
        watch = kept.start("lookout", self._lookout.run)
        circuits = kept.start(self._circuits.name, self._circuits.run)
        drained = kept.start("drain", self._drain.begun.wait)
        try:
            ends = {drained, intake, settlement, beginnings, *services}
            await self._surely(lambda: asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED))
            await self._shut_down(intake, services)
        finally:
            try:
                for claimed in self._claimed.all():
                    claimed.stop("drain")  # handlers in threads go on when this is canceled, and must know
                if not self.stuck and any(claimed.running for claimed in self._claimed.all()):
                    with contextlib.suppress(asyncio.CancelledError):  # canceled again: at once
                        await self._part()
            finally:
                kept.over = True  # whatever happened: nothing else could end these tasks
            watch.cancel()
            self._settlement.stop()
            for service in (*self._services, self._intake, self._intake.beginnings):
                service.stop()
            self._keeper.stop()
            self._execution.shutdown()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_GOODBYE_SECONDS)
            # Nobody needs work that is still under way, and its connection would be waited for.
            under_way = [drained, watch, circuits, intake, settlement, beginnings, *services, *self._tasks]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await self._enlistment.leave()
        for task in (intake, settlement, beginnings, *services):
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    async def _shut_down(self, intake: asyncio.Task[None], services: list[asyncio.Task[None]]) -> None:
        self._tell("drains", f"{self._slots.used} running")
        self._keeper.draining = True
        self._keeper.look()
        for service in self._services:
            service.stop()
        self._intake.stop()
        grace, grace_end = self._drain.begin()
        if self.tell_grace is not None:
            self.tell_grace(grace)
        last_claim = min(CLEAN_UP_SECONDS, max(_LAST_CLAIM_SECONDS, grace))
        await self._surely(lambda: asyncio.wait({intake, *services}, timeout=last_claim))
        self._intake.give_up()
        await self._surely(lambda: self._drain.idle(grace_end, or_hurry=True))
        for claimed in self._claimed.all():
            claimed.stop("drain")
        cleaned_up = time.monotonic() + CLEAN_UP_SECONDS
        await self._surely(lambda: self._drain.idle(cleaned_up, or_hurry=False))
        self.stuck = [
            Settlement(
                h.job_id, h.attempt, self._execution.verdicts.given_up(h, self._timeouts.of(h)), h.running_ms, None
            )
            for h in self._claimed.all()
            if h.running
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(_LAST_OUTCOMES_SECONDS, grace_end - time.monotonic())):
                await self._settlement.empty.wait()
        if self.stuck:
            # The process that replaces this one settles them; until then, their leases must last.
            with contextlib.suppress(DatabaseUnavailable):
                await self._store.renew(self.stuck, seconds=_GOODBYE_SECONDS)

    async def _surely(self, wait: Callable[[], Awaitable[Any]]) -> None:
        """Wait for something; also past a cancellation, if only a handler can have caused it."""
        await (self._kept.going_on("worker", wait) if self.is_alone else wait())

    def _pulse(self) -> None:
        if self.on_pulse is not None:
            longest = self._time_over(None)
            self.on_pulse(
                VitalSigns(os.getpid(), time.monotonic(), self._blockage.answered_at, longest, self._unready())
            )

    def _unready(self) -> str:
        if self._drain.begun.is_set():
            return "draining"
        if self._keeper.draining:
            return "quiet: somebody told it to claim no more"
        if not self._keeper.connected:
            return "the database cannot be reached"
        return "" if self._has_beaten else "starting"

    async def _part(self) -> None:
        """When this is canceled: handlers that see that they must stop may end, and are settled, if that is quick."""
        self._intake.stop()
        await self._drain.idle(time.monotonic() + _GOODBYE_SECONDS, or_hurry=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._settlement.empty.wait()

    def _stand_back(self, stream: int, seconds: float) -> None:
        self._intake.stand_back(stream, seconds)

    def _new_intake(self) -> Intake:
        return Intake(
            self._store,
            self._claimed,
            self._slots,
            self._bus,
            types=list(self._types),
            lane_of={t.name: t.lane for t in self._types.values()},
            queues=self._queues,
            tenants=self._tenants,
            batch_size=self._batch_size,
            poll_interval=self._poll_interval,
            prepare=self._prepare,
            start=self._runners.start,
            keep=self._keeper.expect,
            hand_back=self._attempts.hand_back,
            claimed_already=self._attempts.claimed_again,
            idle=self.drain if self._burst else None,
        )

    async def _prepare(self) -> None:
        """Before the first claim: publish the job types, and learn the settings, which the first attempts follow."""
        await self._enlistment.publish()
        settings = await self._store.settings()
        if not self._has_beaten:
            self._settings.learn(settings)

    def _learn(self, settings: dict[str, str]) -> None:
        """With a heartbeat: the settings of the database have changed."""
        self._has_beaten = True
        if changed := self._settings.learn(settings):
            self._tell("follows settings", ", ".join(f"{name}={value}" for name, value in changed.items()))

    def _on_quiet(self) -> None:
        """Somebody told this worker to claim no more. It stays, until it is told to stop; a burst is over."""
        self._tell("is quiet and claims no more", f"{self._slots.used} running")
        self._keeper.draining = True
        self._keeper.look()
        if self._burst:
            self.drain()
        else:
            self._intake.quiet()

    def _on_stopped(self, told: str | None) -> None:
        """Somebody stopped claims everywhere, or let them go on: else the log of an idle worker would not say why."""
        self._tell("claims nothing" if told else "claims again", told or "")

    def _on_lost(self, claimed: Claimed) -> None:
        self._attempts.lost(claimed)

    def _on_struck(self, claimed: Claimed) -> None:
        self._runners.keep_apart(claimed)

    def _settle(self, claimed: Claimed, outcome: Outcome) -> None:
        self._settlement.add(claimed, outcome)

    def _on_ended(self, claimed: Claimed) -> None:
        self._intake.ended(claimed)
        self._drain.handler_ended()

    def _on_stuck(self, claimed: Claimed) -> None:
        self._tell("has a stuck handler and is to be replaced", _name(claimed))
        self.to_be_replaced = True
        self._drain.begun.set()

    async def _give_loop_up(self, blocker: Blocker, drained: bool) -> None:
        """In the lease keeper's thread: give up an event loop that has been blocked for too long."""
        if self.replace is None:
            await self._surrender.hand_back(blocker, drained=drained)
            return
        who = "" if blocker.attempt is None else _name(blocker.attempt)
        self._tell_aside("has a blocked event loop and is replaced", who)
        await self._keeper.prolong()
        self._aside.wait(_TELL_SECONDS)
        self._surrender.suspect(blocker)
        self.stuck = [settlement for _, settlement in self._surrender.outcomes(blocker, drained=drained)]
        self.suspects = self._surrender.suspects
        try:
            self.replace()
        except Exception as fault:  # noqa: BLE001 - whatever it was, only the end of the process is left
            # The loop is blocked and the process cannot be replaced: nobody would hear a signal, or end the leases.
            self.replace = None
            try:
                await self._surrender.hand_back(blocker, drained=drained)
                self._aside.wait(_TELL_SECONDS)
            finally:
                if self.fail is not None:
                    self.fail(fault)

    def _on_adrift(self, claimed: Claimed, outcome: Outcome) -> None:
        self._tell("found an attempt without a handler", _name(claimed))
        self._settle(claimed, outcome)

    def _on_keeper_lost(self) -> None:
        self._tell("lost its lease keeper and drains")
        self._drain.begun.set()

    def _pauses_drained(self, claimed: Claimed) -> bool:
        on_failure = self._types[claimed.type].on_failure
        return drain_pauses(self._settings.drain_policy, target=claimed.claim.target, on_failure=on_failure)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell_aside(self, change: str, detail: str) -> None:
        """Emit an event from the lease keeper's thread."""
        self._aside.emit(WorkerChanged(worker=self.id, change=change, detail=detail))

    def _tell(self, change: str, detail: str = "") -> None:
        self._bus.emit(WorkerChanged(worker=self.id, change=change, detail=detail))


def _name(claimed: Claimed) -> str:
    return f"{claimed.type} {claimed.job_id}"
