"""Waiting for a condition, up to a deadline: nothing sleeps for luck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

__all__ = ["WAITED_FOR", "until"]

#: The locks that are waited for in the database of the session: tests share a server, and see each other's locks there.
WAITED_FOR = """(
  select l.*
  from pg_locks l
  join pg_database d on d.oid = l.database
  where d.datname = current_database() and not l.granted) as l"""

#: The longer a wait takes, the less often it asks, since most conditions cost a query: at most a tenth of the time
#: that was waited is lost, and never more than the last of these.
_FIRST_SECONDS, _PART, _MOST_SECONDS = 0.02, 0.1, 0.2


async def until(condition: Callable[[], Any], *, seconds: float = 60.0, what: str = "") -> Any:
    """Wait until the condition (a function, or a coroutine's) answers something true, and return that."""
    began = time.monotonic()
    end = began + seconds
    while True:
        answer = condition()
        value = await answer if isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what or condition}")
        await asyncio.sleep(min(max(_FIRST_SECONDS, _PART * (time.monotonic() - began)), _MOST_SECONDS))
