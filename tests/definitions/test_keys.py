"""Keys of payloads and results: what JSON cannot tell apart is refused, not lost."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from holdfast import Context, InvalidInput, InvalidPayload
from holdfast.definitions.items import encode_cursor, encode_items
from holdfast.definitions.json_text import encode_plain, encode_result
from holdfast.definitions.keys import may_repeat_keys
from holdfast.definitions.payload import Payload


class Sign(Enum):
    TEXT = "1"
    NUMBER = 1


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Tagged(BaseModel):
    tags: dict[str, int] = {}


@dataclass
class Noted:
    note: Any = None
    counts: dict[str, int] = field(default_factory=dict)


class Extended(TypedDict):
    name: str
    more: Any


LOST: dict[Any, str] = {1: "one", "1": "text"}
LOST_NUMBER: dict[Any, int] = {1: 1, "1": 2}
BROKEN = {chr(half): half for half in (0xD800, 0xDFFF)}


def payload_of(annotation: Any) -> Payload:
    async def take(ctx: Context, value: Any, number: int = 0) -> None: ...

    take.__annotations__["value"] = annotation
    return Payload("take", take)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, LOST),
        (object, [LOST]),
        (dict[str, Any], {"inner": LOST}),
        (dict[Any, Any], LOST),
        (dict[int | str, str], LOST),
        (list[dict[Any, Any]], [LOST]),
        (dict[Sign, int], {Sign.TEXT: 1, Sign.NUMBER: 2}),
        (Open, Open(member=LOST)),
        (Noted, Noted(note=LOST)),
        (list[Noted], [Noted(counts=LOST_NUMBER)]),
        (Tagged, Tagged.model_construct(tags=LOST_NUMBER)),
        (Extended, {"name": "x", "more": {True: 1, "true": 2}}),
        (Any, {None: 1, "None": 2}),
        (Any, {2.5: 1, "2.5": 2}),
        (Any, {b"a": 1, "a": 2}),
    ],
    ids=range(15),
)
def test_keys_that_are_the_same_in_json_are_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"the payload of take has two keys that are both '(1|true|None|2.5|a)'"):
        payload_of(annotation).encode({"value": value})


def test_a_key_is_refused_wherever_json_is_made() -> None:
    for lost in (LOST, [{"deep": LOST}], Noted(note=LOST), {Sign.TEXT: 1, Sign.NUMBER: 2}):
        with pytest.raises(InvalidInput, match="the result has two keys that are both '1'"):
            encode_result(lost, "take", 2**20)
        with pytest.raises(InvalidInput, match="the cursor has two keys"):
            encode_cursor(lost)
        with pytest.raises(InvalidInput, match="the data of an item has two keys"):
            encode_items([{"data": lost}])
    with pytest.raises(InvalidPayload, match="two keys that are both '1'"):
        encode_plain("work", {"value": LOST})
    with pytest.raises(InvalidPayload, match="two keys that are both '1'"):
        Payload("open", _open).encode({"more": LOST})
    assert encode_plain("work", {"value": {1: "one", "2": "text"}}) == '{"value":{"1":"one","2":"text"}}'


async def _open(ctx: Context, **value: Any) -> None: ...


@pytest.mark.parametrize("annotation", [dict[str, int], Any, Tagged])
@pytest.mark.parametrize("broken", [BROKEN, {"\ud800": 1}])
def test_half_a_surrogate_pair_is_refused_not_replaced(annotation: Any, broken: Any) -> None:
    given = {"tags": broken} if annotation is Tagged else broken
    with pytest.raises(InvalidPayload, match=r"surrogate pair|both"):
        payload_of(annotation).encode({"value": given})
    with pytest.raises(InvalidInput, match=r"surrogate pair|both"):
        encode_result(Tagged(tags=broken), "take", 2**20)
    with pytest.raises(InvalidPayload, match="surrogate pair"):
        encode_plain("work", {"value": broken})
    with pytest.raises(InvalidPayload, match="not valid Unicode, because JSON cannot carry half a surrogate pair"):
        payload_of(str).encode({"value": "\udfff"})
    assert payload_of(dict[str, int]).encode({"value": {"\ufffd": 1}}) == '{"value":{"\ufffd":1},"number":0}'


@pytest.mark.parametrize("key", [None, math.inf, -math.inf, math.nan])
def test_a_key_that_would_become_the_text_none_is_refused(key: Any) -> None:
    lost = {"inner": [{0.5: 1, key: 2}]}
    for annotation in (Any, dict[str, Any], Noted):
        with pytest.raises(InvalidPayload, match=rf"the payload of take has the key {key}, which"):
            payload_of(annotation).encode({"value": Noted(note=lost) if annotation is Noted else lost})
    for encode in (encode_cursor, lambda value: encode_result(value, "take", 2**20)):
        with pytest.raises(InvalidInput, match=f"has the key {key}, which"):
            encode(lost)
    with pytest.raises(InvalidPayload, match=r"has the key None|not JSON compliant"):
        encode_plain("work", lost)
    assert payload_of(dict[float, int]).encode({"value": {math.inf: 1}}) == '{"value":{"inf":1},"number":0}'


@pytest.mark.parametrize("annotation", [int, dict[str, int], list[str | None], Extended, dict[str, list[float]]])
def test_types_whose_keys_are_checked_texts_cost_no_examination(annotation: Any) -> None:
    core = TypeAdapter(annotation if annotation is not Extended else list[dict[str, str]]).core_schema
    assert not may_repeat_keys(core)


KEYS = st.sampled_from(
    [1, "1", True, "true", None, "None", 1.5, "1.5", Sign.TEXT, Sign.NUMBER, b"x", "x", "\ud800", "\ufffd"]
)
VALUES = st.recursive(
    st.integers() | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.builds(Noted, note=inner)
        | st.builds(Open, member=inner)
    ),
    max_leaves=8,
)
ANYTHING, EXTENDED = payload_of(Any), payload_of(Extended)


@given(value=VALUES)
def test_whatever_is_given_arrives_with_all_its_members_or_is_refused(value: Any) -> None:
    for payload, given_value in ((ANYTHING, value), (EXTENDED, {"name": "x", "more": value})):
        with suppress(InvalidPayload):
            arrived = payload.call_arguments(payload.encode({"value": given_value}))["value"]
            assert _members(arrived) == _members(given_value)


def _members(value: Any) -> int:
    if isinstance(value, Open):
        return _members(value.model_extra)
    if isinstance(value, Noted):
        return _members({"note": value.note, "counts": value.counts})
    if isinstance(value, dict):
        return 1 + sum(1 + _members(inner) for inner in value.values())
    return 1 + sum(map(_members, value)) if isinstance(value, list) else 1
