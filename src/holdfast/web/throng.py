"""A bounded set of connections: decides which one is closed to make room for another.

It is the connection on which nothing has happened for longest. A busy connection counts like a waiting one: otherwise
clients that never stop sending would push out a client that has just connected. But if an address has more than an
eighth of the limit, the address with the most connections gives up one of its own: a client that opens very many
connections from a few addresses closes only its own.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["Throng"]

T = TypeVar("T")
#: Behind a proxy's address there are many callers, so an address may have some more than others.
_PART = 8


class Throng(Generic[T]):
    """Every operation takes the same time, however many there are."""

    def __init__(self, most: int) -> None:
        self.most = most
        #: All of them, with their addresses, and those of each address; the one that was quiet for longest is first.
        self._addresses: OrderedDict[T, str] = OrderedDict()
        self._members: dict[str, OrderedDict[T, None]] = {}
        self._by_size: dict[int, OrderedDict[str, None]] = {}
        self._largest = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, member: T) -> bool:
        return member in self._addresses

    def put(self, member: T, address: str) -> None:
        """Something has happened on it: it is new, or goes behind the others."""
        members = self._members.setdefault(address, OrderedDict())
        before = len(members)
        members[member] = None
        members.move_to_end(member)
        self._addresses[member] = address
        self._addresses.move_to_end(member)
        self._resize(address, before, len(members))

    def leave(self, member: T) -> bool:
        """Whether it was there."""
        address = self._addresses.pop(member, None)
        if address is None:
            return False
        members = self._members[address]
        del members[member]
        if not members:
            del self._members[address]
        self._resize(address, len(members) + 1, len(members))
        return True

    def first(self) -> T | None:
        """The one that gives way."""
        if self._largest * _PART > self.most:
            address = next(iter(self._by_size[self._largest]))
            return next(iter(self._members[address]))
        return next(iter(self._addresses), None)

    def _resize(self, address: str, before: int, now: int) -> None:
        if before == now:
            return
        if before:
            same = self._by_size[before]
            del same[address]
            if not same:
                del self._by_size[before]
        if now:
            self._by_size.setdefault(now, OrderedDict())[address] = None
        if now > self._largest or self._largest not in self._by_size:
            self._largest = now
