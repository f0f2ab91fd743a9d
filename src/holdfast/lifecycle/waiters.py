"""Waiters for one resource: a line for each party, and parties take turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["Waiters"]

T = TypeVar("T")


class Waiters(Generic[T]):
    """The first waiter of a party waits for at most one turn of each other party."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[T]]] = {}  # the party whose turn is next is first

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __contains__(self, party: str) -> bool:
        return party in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[asyncio.Future[T]]:
        return (waiter for line in self._lines.values() for waiter in line)

    def join(self, party: str) -> asyncio.Future[T]:
        """Join the line of a party. Returns the future to await."""
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(party, deque()).append(waiter)
        return waiter

    def next(self, may: Callable[[str], bool] = lambda _: True) -> tuple[str, asyncio.Future[T]] | None:
        """Remove and return the next waiter that has not given up, among the parties for which `may` is true."""
        while (party := next(filter(may, self._lines), None)) is not None:
            line = self._lines.pop(party)
            while line:
                waiter = line.popleft()
                if not waiter.done():
                    if line:
                        self._lines[party] = line  # behind all others
                    return party, waiter
        return None
