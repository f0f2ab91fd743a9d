"""How many jobs may run at once, and start per time: in all, or per value of a field of the payload."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.bounds import BOUNDS, shown
from holdfast.errors import InvalidInput

__all__ = ["Limit", "Rate"]

_UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_UNITS |= {"d": 86_400.0, "day": 86_400.0}
#: The units that a rate is written with, the longest first.
_WRITTEN = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_RATE = re.compile(r"(\d+)\s*/\s*(?:(\d+(?:\.\d+)?)?\s*([a-z]+)|(\d+(?:\.\d+)?))")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` jobs at once. With `key`, the dotted name of a payload field, for each of its values."""

    count: int
    key: str | None = None

    def __post_init__(self) -> None:
        _check("limit", self.count, self.key)

    @classmethod
    def of(cls, value: Limit | int | None) -> Limit | None:
        """What `limit=` may be given as."""
        return value if value is None or isinstance(value, Limit) else cls(value)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` starts within any `per` seconds; as text `10/s`, `100/min`, `5/30s`. With `key` as in `Limit`."""

    count: int
    per: float = 1.0
    key: str | None = None

    def __post_init__(self) -> None:
        _check("rate", self.count, self.key)
        if not BOUNDS["rate"].holds(self.per):
            raise InvalidInput(f"the time of a rate must be from 1 ms to 31 days, not {shown(self.per)} seconds")

    @classmethod
    def of(cls, value: Rate | str | None) -> Rate | None:
        """What `rate=` may be given as."""
        if value is None or isinstance(value, Rate):
            return value
        found = _RATE.fullmatch(value) if isinstance(value, str) else None
        if found is None or (found[4] is None and found[3] not in _UNITS):
            raise InvalidInput(f'a rate looks like "10/s", "100/min", "5/30s" or Rate(5, per=30), not {shown(value)}')
        return cls(int(found[1]), float(found[4]) if found[4] else float(found[2] or 1) * _UNITS[found[3]])

    def __str__(self) -> str:
        """The one way in which it is written; `Rate.of` reads it. The engine writes it alike (`written_rate`)."""
        unit, name = next(((unit, name) for unit, name in _WRITTEN if self.per % unit == 0), (1.0, "s"))
        number = repr(float(self.per) / unit).removesuffix(".0")
        return f"{self.count}/{'' if number == '1' else number}{name}"


def _check(what: str, count: object, key: object) -> None:
    if not BOUNDS["limit"].holds(count):
        raise InvalidInput(f"a {what} must be {BOUNDS['limit']}, not {shown(count)}")
    if key is not None and (not isinstance(key, str) or not 1 <= len(key) <= 200):
        raise InvalidInput(f"the key of a {what} must be the name of a payload field, not {shown(key)}")
