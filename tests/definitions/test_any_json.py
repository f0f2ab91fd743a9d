"""Types that accept every JSON value: what they cost, and that they return what pydantic would."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypeAliasType

from holdfast import Context, InvalidPayload
from holdfast.definitions.any_json import with_any_json
from holdfast.definitions.judge import judge_of
from holdfast.definitions.payload import Payload

First = TypeAliasType("First", "dict[str, First] | list[First] | str | int | float | bool | None")
Last = TypeAliasType("Last", "None | bool | int | float | str | list[Last] | dict[str, Last]")  # noqa: RUF036 - the order matters
Scalar = TypeAliasType("Scalar", str | int | float | bool | None)
Split = TypeAliasType("Split", "Scalar | list[Split] | dict[str, Split]")
NoFloat = TypeAliasType("NoFloat", "dict[str, NoFloat] | list[NoFloat] | str | int | None")
Whole = TypeAliasType("Whole", "dict[str, Whole] | list[Whole] | str | float | bool | None")


class Named(BaseModel):
    name: str


class Choice(BaseModel):
    value: Named | First


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=12,
)


def payload_of(annotation: Any) -> Payload:
    async def take(ctx: Context, value: Any, number: int = 0) -> None: ...

    take.__annotations__["value"] = annotation
    return Payload("take", take)


PAYLOADS = {annotation: payload_of(annotation) for annotation in (First, Last, Split)}


@pytest.mark.parametrize("annotation", [First, Last, Split])
@given(value=VALUES)
def test_every_json_value_arrives_as_pydantic_would_read_it(annotation: Any, value: Any) -> None:
    text = json.dumps({"value": value})
    (arrived,) = (PAYLOADS[annotation].call_arguments(text)["value"],)
    assert repr(arrived) == repr(TypeAdapter(annotation).validate_json(json.dumps(value)))


@pytest.mark.parametrize("annotation", [First, Last, Split])
def test_a_megabyte_of_any_json_is_accepted(annotation: Any) -> None:
    value: Any = [1] * 200_000
    for level in range(20):
        value = {"k": value} if level % 2 else [value]
    text = json.dumps({"value": value}, separators=(",", ":"))
    payload = PAYLOADS[annotation]
    assert payload.call_arguments(text)["value"] == value
    judge = judge_of(json.dumps(payload.shape()))
    assert judge is None or judge.faults(text) == []


def test_values_in_python_are_still_checked() -> None:
    with pytest.raises(InvalidPayload, match="value"):
        PAYLOADS[First].encode({"value": {"inner": [object()]}})


def test_copies_of_a_value_are_counted_while_they_are_kept() -> None:
    value: Any = [1] * 20_000
    for _ in range(8):
        value = {"k": value}
    assert payload_of(NoFloat).call_arguments(json.dumps({"value": value}))["value"] == value


@pytest.mark.parametrize("annotation", [NoFloat, Whole, Choice])
def test_a_type_that_decides_something_is_validated(annotation: Any) -> None:
    core = TypeAdapter(annotation).core_schema
    assert with_any_json(core) is core
