"""Slots per lane. A lane's slots run only types that are declared for it, general slots run anything."""

from __future__ import annotations

from holdfast.errors import ConfigError
from holdfast.model.lanes import slots_of

__all__ = ["Slots", "parse_lanes"]


def parse_lanes(text: str) -> dict[str, int]:
    """Parse `fast=3,general=5` into slots per lane; a lane that is not named has none."""
    try:
        slots = slots_of(text)
    except ValueError as fault:
        raise ConfigError(f"lanes are {text!r}: {fault}") from None
    if not any(slots.values()):
        raise ConfigError("a worker needs at least one slot")
    return slots


class Slots:
    """How many handlers run per lane, and how many may."""

    def __init__(self, capacity: dict[str, int]) -> None:
        self.capacity = dict(capacity)
        self._used = dict.fromkeys(capacity, 0)

    def free(self, lane: str) -> int:
        """How many more may start in this lane."""
        return self.capacity.get(lane, 0) - self._used.get(lane, 0)

    def take(self, lane: str) -> None:
        """Use a slot."""
        self._used[lane] += 1

    def give_back(self, lane: str) -> None:
        """Free a slot."""
        self._used[lane] -= 1

    @property
    def used_per_lane(self) -> dict[str, int]:
        """How many handlers run in each lane; a copy, for any thread."""
        return dict(self._used)

    @property
    def used(self) -> int:
        """How many handlers run."""
        return sum(self._used.values())

    @property
    def total(self) -> int:
        """How many handlers may run."""
        return sum(self.capacity.values())
