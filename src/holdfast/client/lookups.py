"""Questions to the database that are asked together: one statement for all that wait.

The first question goes at once. Those that come while it is under way go together in the next statement, so a thousand
questions cost little more than one, and nobody waits for longer than two statements take.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar, cast

from holdfast.lifecycle.shared import start_shared

__all__ = ["LookUps"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: How many statements are under way at once, and how many questions are in each.
_AT_ONCE, _MOST = 2, 500


class LookUps(Generic[K, V]):
    """Answers from `find`, which gets several questions."""

    def __init__(self, find: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._find = find
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._asked: dict[K, asyncio.Future[V]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, question: K) -> V:
        """The answer; those who ask the same meanwhile share it."""
        answer = self._asked.get(question) or self._waiting.get(question)
        if answer is None:
            answer = self._waiting[question] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(_look_at)
            if len(self._tasks) < _AT_ONCE:
                task = start_shared(self._ask_all(), name="look-ups")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(answer)

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                await self._ask_some(
                    {one: self._waiting.pop(one) for one in list(itertools.islice(self._waiting, _MOST))}
                )
        finally:  # at once: whoever asks before the callback is called needs a new task
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _ask_some(self, batch: dict[K, asyncio.Future[V]]) -> None:
        self._asked.update(batch)
        try:
            found = await self._find(list(batch))
            for question, answer in batch.items():
                answer.set_result(found[question])
        except Exception as fault:  # noqa: BLE001 - it belongs to those who wait for the answer
            for answer in batch.values():
                if not answer.done():
                    answer.set_exception(fault)
        finally:
            for question, answer in batch.items():
                del self._asked[question]
                answer.cancel()


def _look_at(answer: asyncio.Future[V]) -> None:
    """Whoever asked may be gone before the database fails."""
    if not answer.cancelled():
        answer.exception()
