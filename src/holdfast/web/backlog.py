"""Refuses submissions while too many jobs of the tenant wait, for keys with such a limit.

1. What waits is counted once a second; what was admitted since is added. So is what was admitted before and may not be
   recorded yet.
2. What only repeats a job by its idempotency or dedup key adds none, and is answered whatever waits: a caller that got
   no answer must be able to ask again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from holdfast.app import Holdfast
from holdfast.client.control import Keyed
from holdfast.model.key import Caller
from holdfast.web.problems import Problem

__all__ = ["Backlog"]

_FRESH_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class _Count:
    """How many jobs of a tenant wait, as far as a limit."""

    at: float = float("-inf")
    jobs: int = 0
    #: Admitted, and perhaps not recorded yet.
    under_way: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Backlog:
    """The jobs that wait, by tenant and limit."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._counts: dict[tuple[str, int], _Count] = {}

    async def admit(
        self, caller: Caller, jobs: int, keyed: Callable[[], Sequence[Keyed]]
    ) -> AbstractContextManager[None]:
        """Admit this many jobs, which are then recorded within the context; a problem if the key may not add them."""
        most = caller.max_waiting
        if most is None:
            return nullcontext()
        count = self._counts.setdefault((caller.tenant, most), _Count())
        async with count.turn:
            if time.monotonic() - count.at > _FRESH_SECONDS:
                at, under_way = time.monotonic(), count.under_way
                count.jobs = await (await self._hf.control()).waiting(caller, most) + under_way
                count.at = at
        if count.jobs + jobs > most:
            jobs -= await (await self._hf.control()).repeats(caller, keyed())
            if jobs and count.jobs + jobs > most:
                raise Problem(
                    429,
                    "waiting-limit",
                    f"This key may add jobs while fewer than {most} wait.",
                    headers={"Retry-After": "5"},
                )
        count.jobs += jobs
        count.under_way += jobs
        return _recording(count, jobs)


@contextmanager
def _recording(count: _Count, jobs: int) -> Iterator[None]:
    try:
        yield
    finally:
        count.under_way -= jobs
