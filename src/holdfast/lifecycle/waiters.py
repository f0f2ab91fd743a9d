"""Waiters for one resource: a line for each party, and parties take turns; so do the members of a party."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ["Waiters"]

T = TypeVar("T")
#: How many who come again have a turn for each who comes first: enough that whoever was begun with gets done.
_AGAIN = 3


class Waiters(Generic[T]):
    """The first waiter of a party waits for at most one turn of each other party."""

    def __init__(self) -> None:
        #: The party whose turn is next is first.
        self._parties: OrderedDict[str, _Party[T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._parties)

    def __contains__(self, party: str) -> bool:
        return party in self._parties

    def __len__(self) -> int:
        return len(self._parties)

    def __iter__(self) -> Iterator[asyncio.Future[T]]:
        return (waiter for party in self._parties.values() for waiter in party)

    def join(self, party: str, member: str = "", *, again: bool = False) -> asyncio.Future[T]:
        """Join the line of a party's member, for the first time or `again`. Returns the future to await."""
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._parties.setdefault(party, _Party()).join(waiter, member, again=again)
        return waiter

    def leave(self, waiter: asyncio.Future[T], party: str, member: str = "") -> None:
        """Leave the line before one's turn."""
        lines = self._parties.get(party)
        if lines is not None:
            lines.leave(waiter, member)
            if not lines:
                del self._parties[party]

    def next(self, may: Callable[[str], bool] = lambda _: True) -> tuple[str, asyncio.Future[T]] | None:
        """Remove and return the next waiter that has not given up, among the parties for which `may` is true."""
        while (party := next(filter(may, self._parties), None)) is not None:
            lines = self._parties[party]
            waiter = lines.next()
            if lines:
                self._parties.move_to_end(party)
            else:
                del self._parties[party]
            if waiter is not None:
                return party, waiter
        return None


class _Party(Generic[T]):
    """The waiters of a party: of those who come again, three have a turn for each one who comes first."""

    def __init__(self) -> None:
        self._first, self._again = _Members[T](), _Members[T]()
        self._in_a_row = 0

    def __bool__(self) -> bool:
        return bool(self._first or self._again)

    def __iter__(self) -> Iterator[asyncio.Future[T]]:
        yield from self._again
        yield from self._first

    def join(self, waiter: asyncio.Future[T], member: str, *, again: bool) -> None:
        (self._again if again else self._first).join(waiter, member)

    def leave(self, waiter: asyncio.Future[T], member: str) -> None:
        for members in (self._first, self._again):
            members.leave(waiter, member)

    def next(self) -> asyncio.Future[T] | None:
        """The next one that has not given up."""
        if self._in_a_row < _AGAIN and (waiter := self._again.next()) is not None:
            self._in_a_row += 1
            return waiter
        self._in_a_row = 0
        return self._first.next() or self._again.next()


class _Members(Generic[T]):
    """A line for each member; the one whose turn is next is first."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, OrderedDict[asyncio.Future[T], None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[asyncio.Future[T]]:
        return (waiter for line in self._lines.values() for waiter in line)

    def join(self, waiter: asyncio.Future[T], member: str) -> None:
        self._lines.setdefault(member, OrderedDict())[waiter] = None

    def leave(self, waiter: asyncio.Future[T], member: str) -> None:
        line = self._lines.get(member)
        if line is not None:
            line.pop(waiter, None)
            if not line:
                del self._lines[member]

    def next(self) -> asyncio.Future[T] | None:
        while self._lines:
            member, line = next(iter(self._lines.items()))
            waiter, _ = line.popitem(last=False)
            if not line:
                del self._lines[member]
            if not waiter.done():
                if line:
                    self._lines.move_to_end(member)
                return waiter
        return None
