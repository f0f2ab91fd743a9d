"""The filter language: what it understands, and what it says about what it does not."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.model.query import parse_query


def field(name: str, value: Any, op: str = "=") -> dict[str, Any]:
    return {"field": name, "op": op, "value": value}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", {"and": []}),
        ("   ", {"and": []}),
        ("state:dead", field("state", ["dead"])),
        ("state:dead,error", field("state", ["dead", "error"])),
        ("type:email.*", field("type", ["email.*"])),
        ("reason:drained", field("reason", ["drained"])),
        ("acknowledged:true", field("acknowledged", True)),
        ("-acknowledged=false", {"not": field("acknowledged", False)}),
        ('error:"timed out"', field("error", ["timed out"]) | {"exact": True}),
        (r'error:"a \"b\""', field("error", ['a "b"']) | {"exact": True}),
        ("attempt>3", field("attempt", 3, ">")),
        ("wait>=5m", field("wait", 300, ">=")),
        ("age<2d", field("age", 172800, "<")),
        ("running>1h", field("running", 3600, ">")),
        ("created<2026-11-01", field("created", "2026-11-01T00:00:00+00:00", "<")),
        ("created>=2026-11-01", field("created", "2026-11-01T00:00:00+00:00", ">=")),
        ("created>2026-11-01", field("created", "2026-11-02T00:00:00+00:00", ">=")),
        ("created<=2026-12-31", field("created", "2027-01-01T00:00:00+00:00", "<")),
        (
            "created:2026-11-01",
            {
                "and": [
                    field("created", "2026-11-01T00:00:00+00:00", ">="),
                    field("created", "2026-11-02T00:00:00+00:00", "<"),
                ]
            },
        ),
        ("created>2026-11-01T00:00:00", field("created", "2026-11-01T00:00:00+00:00", ">")),
        ("created>2026-11-01T09:30:00+02:00", field("created", "2026-11-01T09:30:00+02:00", ">")),
        ("created<9999-12-31", field("created", "9999-12-31T00:00:00+00:00", "<")),
        ("payload.user.id=42", {"json": "payload", "path": ["user", "id"], "op": "=", "number": "42"}),
        ("payload.a:true", {"json": "payload", "path": ["a"], "op": "=", "value": True}),
        ('payload.a="42"', {"json": "payload", "path": ["a"], "op": "=", "value": "42"}),
        ("result.a-b>1.5", {"json": "result", "path": ["a-b"], "op": ">", "number": "1.5"}),
        ("payload.a=1e-3", {"json": "payload", "path": ["a"], "op": "=", "number": "1e-3"}),
        ("payload.a=" + "7" * 40, {"json": "payload", "path": ["a"], "op": "=", "number": "7" * 40}),
        ("payload.a=007", {"json": "payload", "path": ["a"], "op": "=", "value": "007"}),
        ("-state:success", {"not": field("state", ["success"])}),
        ("NOT state:success", {"not": field("state", ["success"])}),
        ("a b", {"and": [{"text": "a"}, {"text": "b"}]}),
        ('"a b"', {"text": "a b"}),
        ("a OR b c", {"or": [{"text": "a"}, {"and": [{"text": "b"}, {"text": "c"}]}]}),
        ("(a OR b) c", {"and": [{"or": [{"text": "a"}, {"text": "b"}]}, {"text": "c"}]}),
        ("-(a OR b)", {"not": {"or": [{"text": "a"}, {"text": "b"}]}}),
        ("order-42", {"text": "order-42"}),
        ("ORDER", {"text": "ORDER"}),
    ],
)
def test_what_is_understood(text: str, tree: dict[str, Any]) -> None:
    assert parse_query(text) == tree


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("colour:red", "unknown field 'colour'; known are id, state"),
        ("state:ded", "state 'ded' does not exist; did you mean dead?"),
        ("state:xyz", "state 'xyz' does not exist; there are created"),
        ("state>dead", "use a colon"),
        ("attempt>many", "whole number"),
        ("wait>5", "such as 30s, 5m"),
        ("created<yesterday", "such as 2026-11-16"),
        ("state:", "needs a value"),
        ("attempt>", "needs a value"),
        ("payload.a>=", "needs a value"),
        ("acknowledged:maybe", "true or false"),
        ("acknowledged>true", "true or false"),
        ("(a", "a bracket is not closed"),
        ("a)", "a closing bracket has no opening one"),
        ("()", "a search term is missing"),
        ("a OR", "a search term is missing"),
        ("OR a", "a search term is missing"),
        ("NOT", "missing after NOT"),
        ('"a', "quotation mark"),
        ("x" * 2001, "2000 characters"),
        ("a " * 51, "50 terms"),
        ("(" * 30 + "a" + ")" * 30, "20 nested brackets"),
        ("NOT " * 30 + "a", "20 nested brackets"),
        ("a\x00b", "NUL"),
        ("payload.commit=12e45678", "put text in quotes"),
    ],
)
def test_what_is_not_understood_is_explained(text: str, advice: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_query(text)
    assert advice in str(raised.value)


@given(st.text(alphabet='ab:()"-<>=. ORNT\\*,\t', max_size=60))
def test_anything_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert parse_query(text)
