"""A line for each tenant whose requests wait for a statement, so that the flood of one does not delay the others.

1. Tenants take turns: a batch takes one request from each tenant in line, then a second one from each, and so on.
2. A tenant whose requests are under way waits until that statement has ended. Meanwhile the requests of others are
   sent in another statement.
3. The lines are bounded, in requests and in bytes. A single tenant may fill half of the room; once all of it
   is taken, only a tenant that has less than its share may add to its line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["Lines"]

#: How much may wait in all.
_ROOM, _ROOM_BYTES = 10_000, 16 * 1024 * 1024
#: How much one statement records.
_BATCH, _BATCH_BYTES = 256, 4 * 1024 * 1024


class _Bearer(Protocol):
    """A request: whose it is, and how many bytes it has."""

    @property
    def tenant(self) -> str: ...

    @property
    def size(self) -> int: ...


Bearer = TypeVar("Bearer", bound=_Bearer)


class _Line(Generic[Bearer]):
    """The line of one tenant."""

    def __init__(self) -> None:
        self.bearers: deque[Bearer] = deque()
        self.size = 0

    def add(self, bearer: Bearer) -> None:
        self.bearers.append(bearer)
        self.size += bearer.size

    def take(self) -> Bearer:
        bearer = self.bearers.popleft()
        self.size -= bearer.size
        return bearer


class Lines(Generic[Bearer]):
    """The lines of all tenants."""

    def __init__(self, *, batch: int = _BATCH) -> None:
        """`batch` is how many one statement takes."""
        self._most = batch
        self._lines: dict[str, _Line[Bearer]] = {}  # the tenant whose turn is next is first
        self._count = self._size = 0

    def have_room_for(self, bearers: Sequence[Bearer]) -> bool:
        """Whether these requests, all of one tenant, may join."""
        tenant = bearers[0].tenant
        line = self._lines.get(tenant) or _Line()
        shares = len(self._lines) + (tenant not in self._lines)
        count, size = len(bearers), sum(bearer.size for bearer in bearers)
        return _fits(count, len(line.bearers), self._count, _ROOM, shares) and _fits(
            size, line.size, self._size, _ROOM_BYTES, shares
        )

    def add(self, bearer: Bearer) -> None:
        """Join the line of the request's tenant."""
        self._lines.setdefault(bearer.tenant, _Line()).add(bearer)
        self._count += 1
        self._size += bearer.size

    def next_batch(self, busy: Collection[str]) -> list[Bearer]:
        """The next batch, from tenants that are not busy."""
        waiting = deque(tenant for tenant in self._lines if tenant not in busy)
        batch: list[Bearer] = []
        size = 0
        while waiting and len(batch) < self._most and size < _BATCH_BYTES:
            tenant = waiting.popleft()
            line = self._lines.pop(tenant)
            bearer = line.take()
            batch.append(bearer)
            size += bearer.size
            if line.bearers:
                self._lines[tenant] = line
                waiting.append(tenant)
        self._count -= len(batch)
        self._size -= size
        return batch


def _fits(more: int, own: int, total: int, room: int, shares: int) -> bool:
    own += more
    return own <= room // 2 and (total + more <= room or own <= room // shares)
