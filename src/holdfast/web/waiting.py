"""How many jobs a key may have waiting, held without a count for each submission."""

from __future__ import annotations

import time

from holdfast.app import Holdfast
from holdfast.model.key import Caller
from holdfast.web.problems import Problem

__all__ = ["Waiting"]


class Waiting:
    """How many jobs wait: a count that is refreshed now and then, plus the jobs admitted since."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._counted: dict[tuple[str, int], tuple[float, int]] = {}

    async def refuse_too_many(self, caller: Caller, jobs: int = 1) -> None:
        """Add `count` jobs; a problem if the key may not add them."""
        most = caller.max_waiting
        if most is None:
            return
        key = (caller.tenant, most)
        at, count = self._counted.get(key, (float("-inf"), 0))
        if time.monotonic() - at > 1:
            at, count = time.monotonic(), await (await self._hf.control()).waiting(caller, most)
        self._counted[key] = at, count
        if count + jobs > most:
            raise Problem(
                429,
                "waiting-limit",
                f"This key may add jobs while fewer than {most} wait.",
                headers={"Retry-After": "5"},
            )
        self._counted[key] = at, count + jobs
