"""Those who wait for one and the same thing: a line for each party, and parties take turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["Waiters"]

T = TypeVar("T")


class Waiters(Generic[T]):
    """Who has nobody of their own party before them waits for one turn of each other party at most."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[T]]] = {}  # the party whose turn is next comes first

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __contains__(self, party: str) -> bool:
        return party in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[asyncio.Future[T]]:
        return (waiter for line in self._lines.values() for waiter in line)

    def join(self, party: str) -> asyncio.Future[T]:
        """What to await."""
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(party, deque()).append(waiter)
        return waiter

    def next(self, may: Callable[[str], bool] = lambda _: True) -> tuple[str, asyncio.Future[T]] | None:
        """Whose turn it is, among the parties that may and those who have not given up; they are in line no more."""
        while (party := next(filter(may, self._lines), None)) is not None:
            line = self._lines.pop(party)
            while line:
                waiter = line.popleft()
                if not waiter.done():
                    if line:
                        self._lines[party] = line  # behind all others
                    return party, waiter
        return None
