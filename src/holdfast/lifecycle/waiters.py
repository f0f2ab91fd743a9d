"""Waiters for one resource: a line for each party, and parties take turns; so do the members of a party."""

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
        #: The party whose turn is next is first, and so is its member.
        self._lines: dict[str, dict[str, deque[asyncio.Future[T]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __contains__(self, party: str) -> bool:
        return party in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[asyncio.Future[T]]:
        return (waiter for members in self._lines.values() for line in members.values() for waiter in line)

    def join(self, party: str, member: str = "") -> asyncio.Future[T]:
        """Join the line of a party, and of one of its members. Returns the future to await."""
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(party, {}).setdefault(member, deque()).append(waiter)
        return waiter

    def next(self, may: Callable[[str], bool] = lambda _: True) -> tuple[str, asyncio.Future[T]] | None:
        """Remove and return the next waiter that has not given up, among the parties for which `may` is true."""
        while (party := next(filter(may, self._lines), None)) is not None:
            members = self._lines.pop(party)
            waiter = _next_of(members)
            if members:
                self._lines[party] = members  # behind all others
            if waiter is not None:
                return party, waiter
        return None


def _next_of(members: dict[str, deque[asyncio.Future[T]]]) -> asyncio.Future[T] | None:
    while members:
        member = next(iter(members))
        line = members.pop(member)
        while line:
            waiter = line.popleft()
            if not waiter.done():
                if line:
                    members[member] = line
                return waiter
    return None
