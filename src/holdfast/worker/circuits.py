"""Circuit breakers in a worker: whether a call may be made now, and what the database is told about how it ended.

1. A call through a closed circuit counts in memory only. The state is what the database said last; a notification
   renews it, a look every second or so does, too, and an answer that is too old is not relied on.
2. A failure sends this worker's totals, and the handler goes on once they are stored: so a service that fails does not
   get many more calls than it takes to open the circuit. Failures at the same time share a statement.
3. While the circuit is not closed, every call asks the database, which lets as many through as there are probes.
4. Without the database, calls go on as by its last answer: nothing could be settled either.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.bounds import BOUNDS
from holdfast.errors import CircuitOpen, HoldfastError, InvalidInput
from holdfast.model.circuit import Circuit, Ending
from holdfast.store.circuits import CircuitAnswer, CircuitStore, Key, Owner
from holdfast.worker.own_attempt import OwnAttempt

__all__ = ["Circuits", "ServiceCall"]

#: For how long an answer of the database is relied on, and never longer than half of what the circuit stays open.
_TRUST_SECONDS = 2.0
_LEAST_TRUST_SECONDS = 0.2
#: How long a call waits for the database.
_PATIENCE_SECONDS = 2.0
#: A circuit that is closed and was not used for so long is looked at no more.
_IDLE_SECONDS = 120.0
_BUCKETS = 12
#: For how long the answer of one statement may overtake that of another. After that, an older generation is the truth:
#: the circuit was made anew, or a standby that lagged behind has taken over.
_OVERTAKEN_SECONDS = 5.0
#: How many circuits one look is about.
_PORTION = 500

_log = logging.getLogger("holdfast")


class ServiceCall:
    """A call of a service that is under way."""

    __slots__ = ("done", "generation", "key", "narrowed", "owner", "probe")

    def __init__(self, key: Key, owner: Owner, generation: int, *, probe: bool) -> None:
        self.key, self.owner, self.generation, self.probe = key, owner, generation, probe
        #: The handler says more exactly, within this call, what the call of the service is.
        self.narrowed = self.done = False


class _Window:
    """Successes and failures of the last seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._width = seconds, seconds / _BUCKETS
        self._buckets: deque[list[float]] = deque()

    def add(self, *, failed: bool) -> None:
        """Count a call."""
        now = time.monotonic()
        if not self._buckets or now - self._buckets[-1][0] > self._width:
            self._buckets.append([now, 0, 0])
            self._forget(now)
        self._buckets[-1][2 if failed else 1] += 1

    def totals(self) -> tuple[int, int]:
        """Successes and failures."""
        self._forget(time.monotonic())
        return int(sum(b[1] for b in self._buckets)), int(sum(b[2] for b in self._buckets))

    def clear(self) -> None:
        """Begin anew."""
        self._buckets.clear()

    def _forget(self, now: float) -> None:
        while self._buckets and now - self._buckets[0][0] > self._seconds:
            self._buckets.popleft()


class _Known:
    """A circuit as this worker knows it."""

    def __init__(self, circuit: Circuit, key: Key, *, declared: bool) -> None:
        self.circuit, self.key, self.declared = circuit, key, declared
        self.window = _Window(float(circuit.policy["window"]))
        opens_for = circuit.policy.get("open_for", BOUNDS["circuit_open"].low)
        self.trust = max(_LEAST_TRUST_SECONDS, min(_TRUST_SECONDS, opens_for / 2))
        self.state, self.generation = "closed", 0
        self.wait_until = self.spread = 0.0
        self.checked_at = self.changed_at = float("-inf")
        self.used_at = time.monotonic()
        #: The database knows it, with its policy.
        self.joined = self.dirty = False
        self.error: str | None = None
        self.fault: str | None = None

    @property
    def stale(self) -> bool:
        """Whether the last answer is too old to be relied on."""
        return time.monotonic() - self.checked_at > self.trust

    def report(self) -> dict[str, Any]:
        """What the database is told."""
        successes, failures = self.window.totals()
        said = {"tenant": self.key[0], "name": self.key[1], "generation": self.generation, "error": self.error}
        said |= {"successes": successes, "failures": failures}
        return said if self.joined else {**said, "policy": self.circuit.policy}

    def learn(self, answer: CircuitAnswer, asked_at: float) -> None:
        """Take over what the database has said; an older answer than the last one is dropped."""
        if asked_at < self.checked_at:
            return
        if answer.generation < self.generation and time.monotonic() - self.changed_at < _OVERTAKEN_SECONDS:
            return
        self.fault = answer.fault
        self.joined = answer.state != "unknown"
        if not self.joined:
            return
        if answer.generation != self.generation:
            if self.generation:
                self.window.clear()
                _log.info("circuit %s is %s", self.key[1], answer.state.replace("_", " "))
            self.generation, self.changed_at = answer.generation, time.monotonic()
        self.state, self.checked_at = answer.state, asked_at
        self.wait_until, self.spread = time.monotonic() + answer.wait_seconds, answer.spread_seconds

    def refusal(self) -> CircuitOpen:
        """What a call that may not be made raises. Jobs are spread, so that they do not all come back at once."""
        wait = max(0.0, self.wait_until - time.monotonic())
        return CircuitOpen(self.key[1], delay=wait + random.random() * self.spread)  # noqa: S311 - no secret


class Circuits:
    """The circuits that a worker's handlers use."""

    name = "circuits"

    def __init__(self, store: CircuitStore, declared: Iterable[Circuit] = ()) -> None:
        self._store = store
        self._known: dict[Key, _Known] = {}
        self._calls: dict[Owner, list[ServiceCall]] = {}
        self._exchanging = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopped = False
        self._ending: set[asyncio.Task[Any]] = set()
        #: Policies as job types declare them; `ctx.circuit("name")` without numbers means the same.
        self._declared = {circuit.name: circuit for circuit in declared}
        for circuit in self._declared.values():
            if not circuit.per_tenant:
                self._know(circuit, ("", circuit.name), declared=True)

    def stop(self) -> None:
        """Stop looking."""
        self._stopped = True
        self._wake.set()

    def heard(self) -> None:
        """Look now: somebody has notified all workers of a change."""
        if self._known:
            self._wake.set()

    def policy(self, name: str) -> Circuit | None:
        """What a job type declares about a circuit."""
        return self._declared.get(name)

    async def run(self) -> None:
        """Look after the circuits in use until stopped."""
        while not self._stopped:
            now = time.monotonic()
            for known in [k for k in self._known.values() if now - k.used_at > _IDLE_SECONDS]:
                if known.state == "closed" and not known.declared:
                    del self._known[known.key]
            if self._known or self._declared:
                everything = list(self._known.values())
                for start in range(0, max(1, len(everything)), _PORTION):
                    async with self._exchanging:
                        await self._exchange(everything[start : start + _PORTION])
            tick = min((k.trust for k in self._known.values()), default=_TRUST_SECONDS) / 2
            idle = not self._known and not self._declared
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if idle else tick):
                    await self._wake.wait()
            self._wake.clear()

    async def enter(self, attempt: OwnAttempt, circuit: Circuit) -> ServiceCall:
        """Begin a call. Raises CircuitOpen if it may not be made now."""
        key = circuit.tenant(attempt.facts.tenant), circuit.name
        owner = attempt.job_id, attempt.attempt
        for outer in self._calls.get(owner, ()):
            if outer.key == key and not outer.done:
                outer.narrowed = True
                return self._begin(ServiceCall(key, owner, outer.generation, probe=outer.probe))
        known = self._known.get(key) or self._know(circuit, key, declared=False)
        known.used_at = time.monotonic()
        if known.stale:
            async with self._exchanging:
                if known.stale:
                    await self._exchange([known])
        if known.fault is not None:
            raise InvalidInput(f"circuit {circuit.name!r}: {known.fault}")
        if known.state == "open" and time.monotonic() < known.wait_until:
            raise known.refusal()
        probe = False
        if known.state != "closed":
            asked_at = time.monotonic()
            answer = await self._patiently(self._store.try_probe(owner, key))
            if answer is not None:
                known.learn(answer, asked_at)
            probe = answer is not None and answer.granted
            if not probe and known.state != "closed":
                raise known.refusal()
        return self._begin(ServiceCall(key, owner, known.generation, probe=probe))

    async def leave(self, call: ServiceCall, ending: Ending, error: str | None = None) -> CircuitOpen | None:
        """End a call. Returns once a failure, or the outcome of a probe, is stored.

        If the call has failed and the circuit is open now, the answer is what the job should wait for instead of
        failing: a probe, and whoever called at the same time as those that opened it, spends no attempt.
        """
        if call.done:
            return None
        self._end(call)
        known = self._known.get(call.key)
        if known is None or call.narrowed:
            return None
        if call.probe:
            asked_at = time.monotonic()
            told = self._store.end_probe(call.owner, call.key, call.generation, ending, error)
            answer = await self._patiently(told)
            if answer is not None:
                known.learn(answer, asked_at)
        elif call.generation == known.generation and known.state == "closed" and ending != "neither":
            known.window.add(failed=ending == "failure")
            if ending == "failure":
                known.error, known.dirty = error, True
                async with self._exchanging:
                    if known.dirty:
                        await self._exchange([k for k in self._known.values() if k.dirty])
        return known.refusal() if ending == "failure" and known.state != "closed" else None

    def ended(self, attempt: OwnAttempt, *, timed_out: bool) -> None:
        """Note that an attempt is over. A call in which its time ran out has failed."""
        for call in list(self._calls.get((attempt.job_id, attempt.attempt), ())):
            if timed_out:
                task = asyncio.ensure_future(self.leave(call, "failure", "the handler's time was over"))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            else:
                self._end(call)

    def _begin(self, call: ServiceCall) -> ServiceCall:
        self._calls.setdefault(call.owner, []).append(call)
        return call

    def _end(self, call: ServiceCall) -> None:
        call.done = True
        calls = self._calls.get(call.owner, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            self._calls.pop(call.owner, None)

    def _know(self, circuit: Circuit, key: Key, *, declared: bool) -> _Known:
        known = self._known[key] = _Known(circuit, key, declared=declared)
        self._wake.set()
        return known

    async def _exchange(self, asked: Sequence[_Known]) -> None:
        """Report and look, for one of us at a time. What the database does not know yet is made at once."""
        for _ in range(2):
            for known in asked:
                known.dirty = False
            asked_at = time.monotonic()
            answers = await self._patiently(self._store.sync([known.report() for known in asked]))
            if answers is None:
                return
            for known in asked:
                if (answer := answers.get(known.key)) is not None:
                    known.error = None
                    known.learn(answer, asked_at)
            if all(known.joined or known.fault for known in asked):
                return

    async def _patiently(self, statement: Any) -> Any:
        """What the database answers; None if it does not, within bounds."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await statement
        except (HoldfastError, TimeoutError) as fault:
            _log.warning("circuit breakers: %s", fault or "the database did not answer in time")
            return None
