"""Cron expressions: when they fire in a time zone, and what they say in words.

`cronsim` reads the expressions (five fields, or six with seconds first; names, lists, ranges, steps, `L`, `LW`, `#`)
and finds the matching times of a clock on the wall. What becomes of these where that clock is moved is decided here:

1. If the hour field leaves out any hour, the expression means times of day. A time that does not exist fires once, at
   the first moment after the gap. A time that exists twice fires once, the first time.
2. If it allows every hour (`*/15 * * * *`), the expression means a rhythm. It fires whenever the clock shows a matching
   time: in the repeated hour again, and not for times that are left out, so that the rhythm goes on.

Several times of day in one gap fire together, as one fire time: at the first moment after it.
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType

from cronsim import CronSim, CronSimError

from holdfast.bounds import shown
from holdfast.errors import InvalidInput

__all__ = ["Cron", "zone_of"]

NICKNAMES = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)
_LONGEST = 200
_SECOND = timedelta(seconds=1)
#: No zone changes its clock twice within this time.
_STRIDE = timedelta(hours=12)
_HOURS_OF_DAY = 24


class Cron:
    """One expression in one zone. Raises InvalidInput, with what is wrong, if it cannot be read or never fires."""

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        if not isinstance(expression, str) or not expression.strip():
            raise InvalidInput(f'cron must be an expression such as "0 2 * * *", not {shown(expression)}')
        self.expression, self.zone = expression, zone_of(zone)
        written = expression.strip()
        if written.startswith("@"):
            written = NICKNAMES.get(written.lower(), "")
            if not written:
                raise InvalidInput(f"cron {shown(expression)}: there are {', '.join(NICKNAMES)}")
        fields = written.split()
        if len(fields) not in (5, 6) or len(written) > _LONGEST:
            raise InvalidInput(
                f"cron {shown(expression)}: there must be five fields (minute, hour, day of month, month, day of week),"
                f" or six with seconds first, in at most {_LONGEST} characters"
            )
        self._shown = " ".join(fields)
        # With six fields, the library leaves times alone, whatever the zone does.
        self._fields = " ".join(fields if len(fields) == 6 else ["0", *fields])
        try:
            plan = CronSim(self._fields, datetime(2000, 1, 1))  # noqa: DTZ001 - the clock on the wall
            self._is_rhythm = len(plan.hours) == _HOURS_OF_DAY
            next(plan)
        except (CronSimError, ValueError, IndexError, OverflowError) as fault:
            raise InvalidInput(f"cron {shown(expression)}: {_told(fault)}") from None
        except StopIteration:
            raise InvalidInput(f"cron {shown(expression)} never fires: no such day exists") from None

    def following(self, after: datetime) -> datetime | None:
        """The first fire time after a moment, in UTC; None if there is none before the year 9999."""
        try:
            return self._next_of_rhythm(after) if self._is_rhythm else self._next_time_of_day(after)
        except (StopIteration, OverflowError, ValueError):
            return None

    def words(self) -> str:
        """When it fires, in words."""
        try:
            said = CronSim(self._shown, datetime(2000, 1, 1)).explain()  # noqa: DTZ001 - only its words are used
        except (CronSimError, ValueError, IndexError, KeyError):
            said = self._shown
        return said if self.zone.key == "UTC" else f"{said} ({self.zone.key})"

    def _next_of_rhythm(self, after: datetime) -> datetime:
        # The library may step over a change of the clock: so what is before and behind one is looked at separately.
        begin, wall = after, after.astimezone(self.zone).replace(tzinfo=None, fold=0)
        while True:
            offset = _offset(begin, self.zone)
            found = next(CronSim(self._fields, wall)).replace(tzinfo=UTC) - offset
            change = _first_change(begin, found, self.zone)
            if change is None:
                return found
            begin = change
            wall = (change + _offset(change, self.zone) - _SECOND).replace(tzinfo=None)

    def _next_time_of_day(self, after: datetime) -> datetime:
        # What the clock on the wall shows later is either later, or was shown before it was set back, and fired then.
        plan = CronSim(self._fields, after.astimezone(self.zone).replace(tzinfo=None, fold=0))
        while True:
            found = _moment(next(plan), self.zone)
            if found > after:
                return found


#: What a host has besides zones: its own, and the one that stands for none.
_OF_THE_HOST = frozenset({"localtime", "posixrules", "Factory"})
#: Zones that some hosts have once more, the latter with leap seconds: 27 s beside everybody else.
_VARIANTS = ("posix/", "right/")


@lru_cache(maxsize=1024)
def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """The zone with that name; InvalidInput if there is none, or if each host means something else by it."""
    try:
        if name in _OF_THE_HOST or name.startswith(_VARIANTS):
            raise ValueError
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError, AttributeError):
        raise InvalidInput(f'tz must be the name of a time zone such as "Europe/Berlin", not {shown(name)}') from None


def _moment(wall: datetime, zone: zoneinfo.ZoneInfo) -> datetime:
    """The moment when the clock on the wall shows this time for the first time, or has just skipped it."""
    local = wall.replace(tzinfo=zone, fold=0)
    found = local.astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return found
    # In a gap: read with the offset before it, the moment is after the gap; with the one after it, before the gap.
    return _change_between(local.replace(fold=1).astimezone(UTC), found, zone)


def _offset(moment: datetime, zone: zoneinfo.ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _first_change(low: datetime, high: datetime, zone: zoneinfo.ZoneInfo) -> datetime | None:
    """The first moment after `low`, up to `high`, from which on another offset holds."""
    while low < high:
        following = min(low + _STRIDE, high)
        if _offset(following, zone) != _offset(low, zone):
            return _change_between(low, following, zone)
        low = following
    return None


def _change_between(low: datetime, high: datetime, zone: zoneinfo.ZoneInfo) -> datetime:
    """The first moment with the offset of `high`, to the second; `low` has another one."""
    offset, first, last = _offset(high, zone), int(low.timestamp()), int(high.timestamp())
    while last - first > 1:
        middle = (first + last) // 2
        if _offset(datetime.fromtimestamp(middle, UTC), zone) == offset:
            last = middle
        else:
            first = middle
    return datetime.fromtimestamp(last, UTC)


def _told(fault: Exception) -> str:
    said = str(fault)
    return said[:1].lower() + said[1:] if isinstance(fault, CronSimError) and said else "it cannot be read"
