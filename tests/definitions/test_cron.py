"""Cron expressions in zones whose clocks are moved, compared with a walk over every minute around each change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.definitions.cron import NICKNAMES, Cron
from holdfast.errors import InvalidInput

#: At 02:00, in the south, by half an hour, at midnight, never, and with Ramadan.
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe", "America/Havana", "Asia/Kolkata",
    "Africa/Casablanca", "America/Santiago", "Asia/Beirut", "UTC",
)  # fmt: skip
MINUTE = timedelta(minutes=1)
YEAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)


def fires(expression: str, zone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    cron, moment = Cron(expression, zone), start - timedelta(seconds=1)
    while (found := cron.following(moment)) is not None and found < end:
        assert found > moment
        yield found
        moment = found


@lru_cache(maxsize=16)
def changes(zone: str) -> list[tuple[datetime, datetime]]:
    """From a day before each change of the clock in the year to a day after it; or two days, if there is none."""
    place, (moment, end) = ZoneInfo(zone), YEAR
    found = []
    while moment < end:
        following = moment + timedelta(hours=6)
        if moment.astimezone(place).utcoffset() != following.astimezone(place).utcoffset():
            found.append((moment - timedelta(days=1), moment + timedelta(days=1)))
        moment = following
    return found or [(YEAR[0], YEAR[0] + timedelta(days=2))]


def walls(zone: str, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Every minute, with what the clock on the wall shows."""
    while start < end:
        yield start, start.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        start += MINUTE


def matches(wall: datetime, minutes: set[int], hours: set[int]) -> bool:
    return wall.minute in minutes and wall.hour in hours


def times_of_day(zone: str, start: datetime, end: datetime, minutes: set[int], hours: set[int]) -> Iterator[datetime]:
    """The rule, minute by minute: a time that was shown before does not count; one that was left out counts when the
    clock shows a time after it.
    """
    latest = start.astimezone(ZoneInfo(zone)).replace(tzinfo=None) - MINUTE
    for moment, wall in walls(zone, start, end):
        skipped = (latest + MINUTE * n for n in range(1, (wall - latest) // MINUTE + 1))
        if any(matches(each, minutes, hours) for each in skipped):
            yield moment
        latest = max(latest, wall)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("expression", "minutes", "hours"),
    [
        ("30 2 * * *", {30}, {2}),
        ("0 30 2 * * *", {30}, {2}),
        ("15,45 1-3 * * *", {15, 45}, {1, 2, 3}),
        ("*/20 0,2 * * *", {0, 20, 40}, {0, 2}),
        ("0 */2 * * *", {0}, set(range(0, 24, 2))),
        ("0 0 * * *", {0}, {0}),
    ],
)
def test_times_of_day_fire_once_each(zone: str, expression: str, minutes: set[int], hours: set[int]) -> None:
    for span in changes(zone):
        assert list(fires(expression, zone, *span)) == list(times_of_day(zone, *span, minutes, hours))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("expression", "minutes"), [("*/15 * * * *", {0, 15, 30, 45}), ("40 * * * *", {40}), ("0 40 0-23 * * *", {40})]
)
def test_a_rhythm_goes_on_whenever_the_clock_shows_a_matching_time(
    zone: str, expression: str, minutes: set[int]
) -> None:
    for span in changes(zone):
        expected = [moment for moment, wall in walls(zone, *span) if wall.minute in minutes]
        assert list(fires(expression, zone, *span)) == expected


@pytest.mark.parametrize(
    ("zone", "expression", "day", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-29", ["03:00+02:00"]),
        ("Europe/Berlin", "*/15 2 * * *", "2026-03-29", ["03:00+02:00"]),
        ("Europe/Berlin", "0 2,3 * * *", "2026-03-29", ["03:00+02:00"]),
        ("Europe/Berlin", "30 2 * * *", "2026-10-25", ["02:30+02:00"]),
        ("Europe/Berlin", "20,40 2 * * *", "2026-10-25", ["02:20+02:00", "02:40+02:00"]),
        ("Europe/Berlin", "0 30 2 * * *", "2026-10-25", ["02:30+02:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", ["02:30+11:00"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-05", ["01:45+11:00"]),
        ("America/Havana", "@daily", "2026-03-08", ["01:00-04:00"]),
        ("Europe/Berlin", "30 */24 * * *", "2026-03-29", ["00:30+01:00"]),
        ("Europe/Berlin", "45 * * * *", "2026-03-29", ["00:45+01:00", "01:45+01:00", "03:45+02:00", "04:45+02:00"]),
    ],
)
def test_the_days_on_which_clocks_are_moved(zone: str, expression: str, day: str, expected: list[str]) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    found = [each.astimezone(ZoneInfo(zone)) for each in fires(expression, zone, start, start + timedelta(hours=20))]
    assert [each.isoformat()[11:16] + each.isoformat()[19:] for each in found][: len(expected)] == expected
    if "45 *" not in expression:
        assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("0 0 L * *", "2026-02-28 00:00"), ("0 0 LW 5 *", "2026-05-29 00:00"), ("0 0 * * 5L", "2026-02-27 00:00"),
        ("0 0 * * MON#2", "2026-02-09 00:00"), ("0 9 * JAN,MAR fri", "2026-03-06 09:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("*/10 * * * * *", "2026-02-02 12:00:10"), ("59 59 23 31 12 *", "2026-12-31 23:59:59"),
        ("@yearly", "2027-01-01 00:00"),
        ("@Monthly", "2026-03-01 00:00"), ("@weekly", "2026-02-08 00:00"), ("@hourly", "2026-02-02 13:00"),
        ("  0  0 1 * *  ", "2026-03-01 00:00"),
    ],
)  # fmt: skip
def test_expressions_mean_what_they_say(expression: str, following: str) -> None:
    found = Cron(expression).following(datetime(2026, 2, 2, 12, tzinfo=UTC))
    assert found == datetime.fromisoformat(following).replace(tzinfo=UTC)


@pytest.mark.parametrize("expression", [*NICKNAMES, "0 2 * * *", "0 0 LW * *", "*/5 * * * * *", "0 0 * * MON#1"])
def test_every_expression_has_words(expression: str) -> None:
    assert Cron(expression).words()
    assert Cron(expression, "Asia/Tokyo").words().endswith("(Asia/Tokyo)")


@pytest.mark.parametrize(
    "expression",
    ["", " ", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "0 0 31 2 *", "0 0 0 * *", "a * * * *", "@never",
     "*/0 * * * *", "5-1 * * * *", "0 0 ? * *", "* * * * 1#6", "x" * 300, "0 0 30 2 *", "1,, * * * *"],
)  # fmt: skip
def test_what_cannot_be_read_or_never_fires_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match="cron"):
        Cron(expression)


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Berlin",
        "../../etc/passwd",
        "Europe/Berlin\0",
        "/etc/localtime",
        "UTC+1",
        None,
        "localtime",
        "Factory",
        "posixrules",
        "right/Europe/Berlin",
        "posix/Europe/Berlin",
    ],
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        Cron("0 0 * * *", zone)


@given(
    st.lists(st.sampled_from([*"0123456789*/,-L#W ?@A\x00é", "MON", "JAN", "* "]), max_size=30).map("".join),
    st.sampled_from(ZONES),
)
def test_no_text_does_anything_but_fire_or_be_refused(text: str, zone: str) -> None:
    try:
        cron = Cron(text, zone)
    except InvalidInput:
        return
    moment = datetime(2026, 3, 28, tzinfo=UTC)
    assert (cron.following(moment) or datetime.max.replace(tzinfo=UTC)) > moment
    assert cron.words()


def test_a_rhythm_of_one_day_goes_on_in_its_repeated_last_hour() -> None:
    """In Beirut the clock is set back at midnight: the last hour of that day comes twice."""
    day = changes("Asia/Beirut")[-1]
    last = (day[0] + timedelta(days=1)).astimezone(ZoneInfo("Asia/Beirut")).date()
    expression = f"*/30 * {last.day} {last.month} *"
    expected = [
        moment for moment, wall in walls("Asia/Beirut", *day)
        if wall.minute in (0, 30) and (wall.day, wall.month) == (last.day, last.month)
    ]  # fmt: skip
    assert list(fires(expression, "Asia/Beirut", *day)) == expected
    assert len(expected) > 45
