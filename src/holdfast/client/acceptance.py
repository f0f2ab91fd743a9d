"""Refuses payloads that no handler would take, for those who cannot know the handlers: HTTP and the command line.

A payload is judged by what workers have published (`holdfast.definitions.shape`): it is good if one live worker takes
it. Where the handler itself is known in this process, and is the one that was published, it judges by itself.

1. What was published is remembered for a second. Nothing is refused by what is remembered: then it is asked for anew,
   so that a worker that has just started counts.
2. Whoever asks while a question is under way shares the next one.
3. An idempotency key that has a job is answered with it, whatever the payload is.
4. While the database does not answer, nothing is judged, and nobody waits for it here for long. Nor is anything judged
   that would take too long: handlers judge again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.definitions.collecting import no_collection
from holdfast.definitions.judge import Fault, judge_of
from holdfast.definitions.registry import Registry
from holdfast.errors import HoldfastError, InvalidPayload
from holdfast.lifecycle.shared import start_shared
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.jobs import JobStore
from holdfast.store.sharing import patience_seconds, spend_patience
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import PayloadMisfit

__all__ = ["Acceptance"]

_REMEMBER_SECONDS, _PATIENCE_SECONDS = 1.0, 2.0
#: How many types, and shapes, are remembered; how many types one statement asks for.
_REMEMBERED, _AT_ONCE = 1_000, 50
#: How many characters the remembered shapes may have together: as a judge, one takes ten times as much memory.
_SHAPES = 4 * 2**20
#: A payload is large from here on: everybody else waits while it is judged, so that takes half of the time at most.
_LARGE = 64 * 1024
#: How many characters are judged for one payload, by all shapes together.
_WORK = 4 * 2**20
#: How many faults are told in a sentence.
_TOLD = 5


class _Judge(Protocol):
    @property
    def weight(self) -> int: ...

    def faults(self, text: str) -> list[Fault]: ...


class _Rules(NamedTuple):
    """How payloads of a type are judged."""

    mode: str
    digests: tuple[str, ...]
    until: float


class Acceptance:
    """What is taken, as one process knows it."""

    def __init__(self, store: JobStore, registry: Registry, bus: Bus) -> None:
        self._store, self._registry, self._bus = store, registry, bus
        self._rules: dict[str, _Rules] = {}
        #: None takes everything: what was published is not a shape.
        self._judges: dict[tuple[str, str], _Judge | None] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._asked: dict[str, asyncio.Future[_Rules]] = {}
        self._task: asyncio.Task[None] | None = None

    async def answers(self, intents: Sequence[Intent]) -> dict[int, Enqueued]:
        """Raise InvalidPayload for a payload that nobody takes; by position, what is answered by a key."""
        answered = {}
        for position, intent in enumerate(intents):
            faults, mode = await self._faults(intent)
            if not faults:
                continue
            if "idempotency_key" in intent.options and (found := await self._store.answered_key(intent)) is not None:
                answered[position] = found
                continue
            told = f"{intent.type}: {'; '.join(f'{_dotted(place)}: {why}' for place, why in faults[:_TOLD])}"
            if mode == "refuse":
                raise InvalidPayload(told, faults=faults, position=position)
            self._bus.emit(PayloadMisfit(type=intent.type, tenant=intent.tenant, fault=told))
        return answered

    async def _faults(self, intent: Intent) -> tuple[list[Fault], str]:
        rules = self._rules.get(intent.type)
        try:
            if rules is not None and time.monotonic() < rules.until and not await self._judged(intent, rules):
                return [], rules.mode
            rules = await self._ask(intent.type)
        except TimeoutError:
            return [], "off"
        return await self._judged(intent, rules), rules.mode

    async def _judged(self, intent: Intent, rules: _Rules) -> list[Fault]:
        judges = self._judges_of(intent.type, rules)
        size = len(intent.payload)
        if None in judges or size * sum(judge.weight for judge in judges if judge is not None) > _WORK:
            return []
        if size <= _LARGE:
            return _first_faults(judges, intent.payload)
        began = time.monotonic()
        try:
            with no_collection():
                return _first_faults(judges, intent.payload)
        finally:
            await asyncio.sleep(time.monotonic() - began)

    def _judges_of(self, job_type: str, rules: _Rules) -> list[_Judge | None]:
        if rules.mode == "off":
            return []
        if rules.digests:
            return [self._judges.get((job_type, digest)) for digest in rules.digests]
        known = self._registry.get(job_type)
        return [] if known is None else [known.payload]

    async def _ask(self, job_type: str) -> _Rules:
        """What the database says now; TimeoutError if it takes too long."""
        answer = self._asked.get(job_type)
        if answer is None:
            answer = self._asked[job_type] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = start_shared(self._ask_all(), name="acceptance")
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(_PATIENCE_SECONDS, patience_seconds.get() / 2)):
                return await asyncio.shield(answer)
        finally:
            spend_patience(time.monotonic() - began)

    async def _ask_all(self) -> None:
        """Ask for all that somebody waits for. What is asked meanwhile is asked next: it must not be older."""
        batch: dict[str, asyncio.Future[_Rules]] = {}
        try:
            while self._asked:
                batch = {job_type: self._asked.pop(job_type) for job_type in list(self._asked)[:_AT_ONCE]}
                found = await self._look(list(batch))
                for job_type, answer in batch.items():
                    if not answer.done():
                        answer.set_result(found[job_type])
        except Exception as fault:  # noqa: BLE001 - a fault of ours belongs to those who wait for the answer
            for answer in (*batch.values(), *self._asked.values()):
                if not answer.done():
                    answer.set_exception(fault)
        finally:
            self._task = None
            for answer in (*batch.values(), *self._asked.values()):
                answer.cancel()
            self._asked.clear()

    async def _look(self, types: list[str]) -> dict[str, _Rules]:
        until = time.monotonic() + _REMEMBER_SECONDS
        known = [digest for job_type, digest in self._judges if job_type in types]
        try:
            published = await self._store.accepted_payloads(types, known)
        except HoldfastError:
            published = []
        many = len(self._rules) + len(types) > _REMEMBERED or len(self._judges) > _REMEMBERED
        if many or sum(self._sizes.values()) > _SHAPES // 2:
            self._rules.clear()
            counting = {(one.type, one.digest) for one in published}
            self._judges = {key: judge for key, judge in self._judges.items() if key in counting}
            self._sizes = {key: size for key, size in self._sizes.items() if key in counting}
        modes = {one.type: one.mode for one in published}
        digests: dict[str, list[str]] = {job_type: [] for job_type in types}
        for job_type, _, digest, shape in published:
            if digest is not None:
                digests[job_type].append(digest)
                if shape is not None:
                    size = len(shape) if sum(self._sizes.values()) + len(shape) <= _SHAPES else 0
                    self._sizes[job_type, digest] = size
                    self._judges[job_type, digest] = self._judge(job_type, shape) if size else None
        for job_type in types:
            self._rules[job_type] = _Rules(modes.get(job_type, "off"), tuple(digests[job_type]), until)
        return {job_type: self._rules[job_type] for job_type in types}

    def _judge(self, job_type: str, shape: str) -> _Judge | None:
        known = self._registry.get(job_type)
        if known is not None and known.payload.shape() == json.loads(shape):
            return known.payload  # it also has the code that no shape can say
        return judge_of(shape)


def _first_faults(judges: Sequence[_Judge | None], text: str) -> list[Fault]:
    """What the newest handler finds wrong, if no other takes the payload."""
    first: list[Fault] = []
    for judge in judges:
        faults = [] if judge is None else judge.faults(text)
        if not faults:
            return []
        first = first or faults
    return first


def _dotted(pointer: str) -> str:
    return pointer[1:].replace("/", ".").replace("~1", "/").replace("~0", "~") or "payload"
