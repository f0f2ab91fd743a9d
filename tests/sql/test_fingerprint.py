"""What makes two failures one: numbers, ids and quoted text do not count, and no message is dear to read."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.meter import TRIES

#: Words of error messages, apostrophes included, without quotes of their own.
WORDS = st.lists(
    st.sampled_from([
        "could not connect to", "don't", "isn't", "the users' file", "José's", "l'été", "failed:", "(reason)", "=",
        "at line", "<object>", "\n", "facade", "code", "…", "rock'n'roll", "worker-", "id=", "user_",
    ]),
    min_size=1,
    max_size=6,
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(min_value=0).map(hex),
    st.integers(min_value=1000).map("{:,}".format),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.ip_addresses(v=4),
).map(str)
IDS = st.one_of(
    st.uuids(),
    st.uuids().map(lambda one: one.hex),
    st.text("0123456789abcdef", min_size=8, max_size=40),
    st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=25, max_size=25).map(lambda text: f"0{text}"),
).map(str)
#: Nothing that closes the quotes: neither they nor a backslash; an apostrophe inside a word may stand there.
INSIDE = st.text(st.characters(exclude_characters="\x00\"'`\\", exclude_categories=["Cs"]), max_size=30)
QUOTED = st.one_of(
    INSIDE.map('"{}"'.format),
    INSIDE.map("'{}'".format),
    INSIDE.map("`{}`".format),
    INSIDE.map("\"it's {} o'clock\"".format),
    INSIDE.map("'say \"{}\" isn't'".format),
    INSIDE.map(lambda text: json.dumps(f'a "{text}" b', ensure_ascii=False)),
)
KINDS = (NUMBERS, IDS, QUOTED)


@st.composite
def alike(draw: Any) -> tuple[str, str]:
    """Two messages that differ in numbers, ids and quoted text alone."""
    one: list[str] = []
    other: list[str] = []
    for word in draw(WORDS):
        kind = draw(st.sampled_from(KINDS))
        for message in (one, other):
            message += [word, draw(kind)]
    return " ".join(one), " ".join(other)


async def prints(conn: asyncpg.Connection, *messages: str | None, job_type: str = "work") -> list[str]:
    rows = await conn.fetch(
        "select fingerprint_of($1, 'Fault', m) from unnest($2::text[]) with ordinality as t (m, n) order by n",
        job_type,
        messages,
    )
    return [row[0] for row in rows]


async def normal(conn: asyncpg.Connection, message: str) -> str:
    return str(await conn.fetchval("select normalized_message($1)", message))


@given(pair=alike())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_numbers_ids_and_quoted_text_do_not_count(conn: asyncpg.Connection, pair: tuple[str, str]) -> None:
    one, other = await prints(conn, *pair)
    assert one == other, [await normal(conn, message) for message in pair]


@given(message=st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=3000))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_types_and_error_types_count_whatever_the_message(conn: asyncpg.Connection, message: str) -> None:
    found = [
        await conn.fetchval("select fingerprint_of($1, $2, $3)", *arguments)
        for arguments in (
            ("a", "Fault", message),
            ("b", "Fault", message),
            ("a", "Other", message),
            ("a", None, message),
        )
    ]
    assert len(set(found)) == 4
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in found)
    assert len(await normal(conn, message)) <= 500


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("don't touch the users' 42 files", "don't touch the users' ? files"),
        ("no 'key' in \"the dict\", it isn't there", "no ? in ?, it isn't there"),
        ("could not reach 10.0.0.1:5432 after 1.5 s", "could not reach ? after ? s"),
        ("No such customer: cus_9s6XKzkNRiz8i3", "No such customer: cus_?"),
        ("missing ids [1, 2, 3]", "missing ids [?]"),
        ("expected '\"' at line 5", "expected ? at line ?"),
        ('value "abc was cut', "value ?"),
        ("job 0193-dead", "job ?"),
        ("deadbeef is no facade", "? is no facade"),
        ("a 5\" pipe, 6' long", "a ?\" pipe, ?' long"),
    ],
)
async def test_messages_stay_readable(conn: asyncpg.Connection, message: str, shown: str) -> None:
    assert await normal(conn, message) == shown


async def test_what_the_words_say_counts(conn: asyncpg.Connection) -> None:
    found = await prints(conn, "disk full", "disk gone", "no such user", "no such user 'a' in 'b'", None, "")
    assert len(set(found)) == 5
    assert found[-1] == found[-2]


async def test_an_end_that_differs_after_five_hundred_characters_does_not_count(conn: asyncpg.Connection) -> None:
    beginning = "all is lost " * 50
    one, other = await prints(conn, beginning + "here", beginning + "there")
    assert one == other
    long = [f"row '{letter * 5000}' is bad" for letter in "ab"]  # longer than what is looked at
    assert len(set(await prints(conn, *long))) == 1


HOSTILE = (
    " 'a1", '"', " '", "1", '"\\', "'a", "a", "abcdef", "abcdefab-abcd-", "1,", " '1\"2`3", "1-a", "a-1", " '\\",
    "? ", "?" + " " * 50, "a.", "1. ", "'1\\", "-", "é'", "`1 ", "' 1", ' "1', "abcdef-z ", "\\", "+-", "\n",
)  # fmt: skip


async def test_no_message_is_dear_to_read(conn: asyncpg.Connection) -> None:
    """In time that is proportional to the length: a quadratic pattern takes seconds for ten thousand characters."""
    statement = "select length(normalized_message($1)), fingerprint_of('work', 'Fault', $1)"
    await conn.fetch(statement, "warm")
    for unit in HOSTILE:
        message = (unit * 10_000)[:10_000]
        for _ in range(TRIES):
            (plan,) = json.loads(await conn.fetchval(f"explain (analyze, format json) {statement}", message))
            if plan["Execution Time"] < 50:  # milliseconds; usually below two
                break
        else:
            raise AssertionError(f"{unit!r} took {plan['Execution Time']} ms")


async def test_fingerprints_do_not_change_between_releases(conn: asyncpg.Connection) -> None:
    """They are stored, and people write them down."""
    assert await prints(conn, "don't touch user 42 of 'eu'", job_type="email.send") == ["893d2f1eb8bc3ed9"]
