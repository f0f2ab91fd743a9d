"""Every rule stands in one place: the forms in which it was repeated do not come back."""

from __future__ import annotations

import re

import asyncpg
import pytest

from holdfast.store.statements import functions, migrations, queries

#: What a rule looks like where it is written out, how often each file may do so, and what all others say instead.
RULES: dict[str, tuple[str, dict[str, int], str]] = {
    "limits in force": (
        r"coalesce\([\w.]*(limit|rate)_(count|seconds), ", {"limits": 3}, "limits_of, limits_in_force"),
    "a limit per key": (r"(limit|rate)_key is (not )?null", {"limits": 6}, "limits_of, limits_in_force"),
    "a type has limits": (r"\bt\.(limit|rate)_count is not null", {"limits": 2}, "limited_types"),
    "names of gates": (r"gate, 'rate|'(rate of |queue:|tenant:|type:|key:)", {"limits": 2}, "gate_of, is_rate"),
    "what a job is steered by": (
        r"[\s(]\('queue', [\w.]*queue\)|\['everything', 'tenant'", {"limits": 2}, "limitable_by, pausable_by"),
    "a free permit": (
        r"exists \(select from leases l where l\.job_id = \w+\.job_id and l\.attempt = \w+\.attempt\)",
        {"permits": 1}, "permit_state"),
    "parked entries": (
        # A view calls no function of the engine: those run with the reader's rights.
        r"(?<![\w')\]] )-\w+\.(stream|id)\b|stream < 0|\babs\(", {"parking": 2, "queue_health": 1},
        "parked_stream, is_parked, stream_of, entry_streams"),
    "ranks of a priority": (r"2 \* priority|\b0, ready_rank\(", {"basics": 2}, "ready_rank, ready_ranks"),
    "the entry of a job": (r"ready_ranks\(", {"basics": 1, "ready": 1, "strays": 1}, "ready_entry, take_entry"),
    "the place of a head": (r"coalesce\(\s*\(select h\.seq", {"ready": 1}, "ready_seq"),
    "outcomes that cost an attempt": (r"'failed', 'timeout', 'lost'", {"basics": 1}, "costs_attempt"),
    # The guard and `verify` judge all others, and say it by themselves.
    "a job has ended": (
        r"'success', 'dead', 'canceled'(?!\])", {"basics": 1, "guard": 1, "verify": 4}, "has_ended"),
    "a request": (r"starts_with\([\w.]+, 'holdfast\.'\)", {"basics": 1}, "is_request"),
    "a valid key": (r"coalesce\([\w.]*expires_at > now\(\)", {"keys": 1}, "is_valid_key"),
    "who decided": (r"\bby is null then", {"letters": 1}, "check_signed"),
    "attempts allowed": (r"coalesce\(\s*job\.max_attempts", {}, "attempts_allowed"),
}  # fmt: skip


def written() -> dict[str, str]:
    """Function files and named queries without their comments."""
    texts = functions() | {f"query {name}": text for name, text in queries("holdfast").items()}
    return {name: re.sub(r"--[^\n]*", "", text) for name, text in texts.items()}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_written_in_one_place(rule: str) -> None:
    form, home, instead = RULES[rule]
    found = {name: sum(1 for _ in re.finditer(form, text)) for name, text in written().items()}
    assert {name: times for name, times in found.items() if times} == home, f"use {instead}"


@pytest.mark.parametrize(
    "name", ["limits_by", "limits_of", "limits_in_force", "limited_types", "limitable_by", "pausable_by", "gates_of",
             "key_gates", "gate_of", "is_rate", "permit_state", "ready_entry", "parked_stream", "is_parked",
             "stream_of", "entry_streams", "ready_rank", "ready_ranks", "costs_attempt",
             "has_ended", "is_request", "is_valid_key"],
)  # fmt: skip
async def test_a_rule_that_hot_functions_ask_for_is_inlined(conn: asyncpg.Connection, name: str) -> None:
    """The planner inlines what has no settings, is not volatile and does not run with its owner's rights."""
    row = await conn.fetchrow(
        "select proconfig, provolatile, prosecdef, proisstrict from pg_proc "
        "where pronamespace = 'holdfast'::regnamespace and proname = $1",
        name,
    )
    assert row is not None
    assert row["proconfig"] is None
    assert row["provolatile"] in (b"i", b"s")
    assert not row["prosecdef"]
    assert not row["proisstrict"]


async def test_functions_are_those_of_the_files_and_each_is_in_one_of_them(conn: asyncpg.Connection) -> None:
    """One that moved to another file, or was dropped from all, must not be left behind in a database."""
    defined = re.findall(r"^create or replace function (\w+)", "\n".join(functions().values()), re.MULTILINE)
    rows = await conn.fetch("select proname::text from pg_proc where pronamespace = 'holdfast'::regnamespace")
    own_clock = {"now", "clock_timestamp"}
    assert sorted({row["proname"] for row in rows} - own_clock) == sorted(set(defined))
    assert [name for name in set(defined) if defined.count(name) > 1] == []
    dropped = {
        name
        for _, _, text in migrations()
        for name in re.findall(r"^drop function if exists (\w+)", text, re.MULTILINE)
    }
    assert {"scope_figures", "held_outside"} <= dropped - set(defined)
