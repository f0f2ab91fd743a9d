"""Payloads: what a handler's annotations mean."""

from __future__ import annotations

import json
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NotRequired
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, computed_field, model_validator
from pydantic_core import to_json
from typing_extensions import TypedDict

from holdfast import Context, InvalidInput, InvalidPayload
from holdfast.definitions.json_text import encode_plain, encode_value
from holdfast.definitions.payload import Payload

if TYPE_CHECKING:
    from decimal import Decimal


class Mail(BaseModel):
    to: str


@dataclass
class Order:
    number: int


@dataclass
class Priced:
    price: int
    tax: InitVar[int] = 19


class Basket(BaseModel):
    items: list[Priced]


class Aliased(BaseModel, extra="forbid"):
    number: int = Field(alias="orderNumber")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.number


class Linked(TypedDict):
    number: int
    rest: NotRequired[Linked | None]


class Measured(BaseModel):
    value: Any


@dataclass
class Sample:
    other: str | None
    value: float


class Worded(BaseModel, ser_json_inf_nan="strings"):
    value: float


class Login(BaseModel):
    password: SecretStr


class Strange(BaseModel):
    number: int

    @model_validator(mode="before")
    @classmethod
    def look(cls, data: Any) -> Any:
        return data.missing


async def keywords(ctx: Context, a: int, b: str = "x") -> Decimal: ...  # type: ignore[empty-body]
async def model(ctx: Context, mail: Mail) -> None: ...
async def record(ctx: Context, order: Order) -> None: ...
async def plain(ctx: Context, payload: dict[str, Any]) -> None: ...
async def nothing(ctx: Context) -> None: ...
async def unknown(ctx: Context, price: Decimal) -> None: ...


@pytest.mark.parametrize(
    ("handler", "given", "stored", "received"),
    [
        (keywords, {"a": 1}, '{"a":1,"b":"x"}', {"a": 1, "b": "x"}),
        (model, {"to": "ada"}, '{"to":"ada"}', {"mail": Mail(to="ada")}),
        (model, Mail(to="ada"), '{"to":"ada"}', {"mail": Mail(to="ada")}),
        (record, Order(7), '{"number":7}', {"order": Order(7)}),
        (plain, {"any": [1]}, '{"any":[1]}', {"payload": {"any": [1]}}),
        (nothing, {}, "{}", {}),
    ],
)
def test_a_payload_comes_out_as_it_went_in(handler: Any, given: Any, stored: str, received: dict[str, Any]) -> None:
    payload = Payload("t", handler)
    assert payload.encode(given) == stored
    assert payload.call_arguments(stored) == received


@pytest.mark.parametrize("wrong", [{"a": "x"}, {}, {"a": 1, "c": 2}, {"a": 1, "b": "nul\x00"}])
def test_what_does_not_fit_is_refused_when_enqueued(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload, match=r"t: |NUL"):
        Payload("t", keywords).encode(wrong)


def test_a_stored_payload_that_no_longer_fits_says_so() -> None:
    with pytest.raises(InvalidPayload, match="does not fit"):
        Payload("t", keywords).call_arguments('{"b": "x"}')


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(InvalidInput, match="Decimal"):
        Payload("t", unknown)


@pytest.mark.parametrize("annotation", [Priced, Basket, dict[str, Basket | None]])
def test_a_dataclass_that_would_lose_an_argument_is_refused(annotation: Any) -> None:
    async def take(ctx: Context, order: Any) -> None: ...

    take.__annotations__["order"] = annotation
    with pytest.raises(InvalidInput, match=r"'take': Priced\.tax is an InitVar"):
        Payload("take", take)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "within",
    [
        lambda number: number,
        lambda number: [None, {"deep": (number,)}],
        lambda number: Measured(value=number),
        lambda number: Sample(other=None, value=number),
        lambda number: [Measured(value=[Sample(other="NaN", value=number)])],
        lambda number: {UUID(int=1): {number}},
    ],
    ids=range(6),
)
def test_a_number_that_json_does_not_have_is_refused_not_changed(number: float, within: Callable[[float], Any]) -> None:
    async def measured(ctx: Context, value: Any) -> None: ...

    with pytest.raises(InvalidPayload, match=f"the payload of measured contains {number}, and JSON has no such"):
        Payload("measured", measured).encode({"value": within(number)})
    with pytest.raises(InvalidPayload, match=f"the payload of plain contains {number}"):
        Payload("plain", plain).encode({"value": within(number)})
    with pytest.raises(InvalidInput, match=f"the result contains {number}"):
        encode_value(within(number), "the result")


@pytest.mark.parametrize("kind", [float, float | None, list[float] | float, Sample | Measured | float])
def test_a_typed_number_that_json_does_not_have_is_named(kind: Any) -> None:
    async def measured(ctx: Context, value: Any) -> None: ...

    measured.__annotations__["value"] = kind
    with pytest.raises(InvalidPayload, match="contains nan"):
        Payload("measured", measured).encode({"value": math.nan})


def test_nulls_and_words_of_others_stay_what_they_are() -> None:
    async def measured(ctx: Context, value: Any) -> None: ...

    for value in (None, "NaN", "null", [None, 1e308, {"Infinity": None}], {1: None, "None": datetime.now(UTC)}):
        assert encode_value(value, "the result") == to_json(value).decode()
        assert Payload("measured", measured).encode({"value": value}) == to_json({"value": value}).decode()
    assert encode_value([Worded(value=math.nan), None], "the result") == '[{"value":"NaN"},null]'


def test_an_instance_is_checked_down_to_its_fields() -> None:
    with pytest.raises(InvalidPayload, match="number"):
        Payload("record", record).encode(Order(number="many"))  # type: ignore[arg-type]


def test_a_default_that_does_not_fit_is_refused_at_once() -> None:
    async def greet(ctx: Context, name: str = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013 - that is the fault

    with pytest.raises(InvalidPayload, match="name"):
        Payload("greet", greet).encode({})


def test_a_typed_dict_may_contain_itself_as_deep_as_json_may_be() -> None:
    async def take(ctx: Context, value: Linked, number: int = 0) -> None: ...

    value: Any = {"number": 0}
    for number in range(180):
        value = {"number": number, "rest": value}
    payload = Payload("take", take)
    assert payload.call_arguments(payload.encode({"value": value}))["value"] == value


def test_patterns_that_take_long_to_compile_are_refused() -> None:
    async def search(ctx: Context, patterns: list[re.Pattern[str] | int], number: int = 0) -> None: ...

    payload, costly = Payload("search", search), "[\u0100-\uffff]"
    given = {"patterns": [f"{costly}+{n}" for n in range(50)]}
    assert len(payload.call_arguments(json.dumps(given))["patterns"]) == 50
    for patterns in ([costly * 101], [f"{costly}{n}" for n in range(101)], ["a" * 20_001]):
        with pytest.raises(InvalidPayload, match="patterns"):
            payload.call_arguments(json.dumps({"patterns": patterns}))
        with pytest.raises(InvalidPayload, match="patterns"):
            payload.encode({"patterns": patterns})
    assert payload.encode({"patterns": [re.compile("a+"), 1]}) == '{"patterns":["a+",1],"number":0}'


def test_aliases_and_computed_fields_survive() -> None:
    async def take(ctx: Context, payload: Aliased) -> None: ...

    payload = Payload("take", take)
    text = payload.encode({"orderNumber": 2})
    assert payload.call_arguments(text)["payload"].double == 4


def test_a_secret_is_not_stored_as_asterisks() -> None:
    async def log_in(ctx: Context, payload: Login) -> None: ...

    with pytest.raises(InvalidPayload, match="asterisks"):
        Payload("log_in", log_in).encode({"password": "open sesame"})


def test_a_validator_that_breaks_holds_the_job() -> None:
    async def take(ctx: Context, payload: Strange) -> None: ...

    with pytest.raises(InvalidPayload, match="AttributeError"):
        Payload("take", take).call_arguments('{"number": 1}')


class Size(IntEnum):
    LARGE = 3


def standard(payload: Any) -> str:
    return json.dumps(dict(payload), allow_nan=False, ensure_ascii=False, separators=(",", ":"))


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats())))
def test_a_payload_of_an_unknown_type_is_written_as_the_standard_library_does(payload: dict[str, Any]) -> None:
    try:
        expected = standard(payload)
        expected.encode()
    except ValueError:
        expected = "refused"
    try:
        written = encode_plain("work", payload)
    except InvalidPayload as fault:
        written = "refused"
        if "NUL" in str(fault):
            return
    assert written == expected


def test_an_unknown_type_gets_json_and_nothing_else() -> None:
    """Simple payloads have a faster encoder, which does not accept values that are not JSON."""
    for good in (
        MappingProxyType({"a": "é"}),
        OrderedDict(a=1),
        {"a": {"b": [1, None, True]}},
        {"a": Size.LARGE},
        {1: 2, "null": 3},
        {"a": 2**80},
    ):
        assert encode_plain("work", good) == standard(good)
    for wrong in (datetime.now(UTC), b"bytes", {1}, Order(7), Mail(to="ada"), float("inf"), "\ud800"):
        with pytest.raises(InvalidPayload, match="work: the payload cannot be written as JSON"):
            encode_plain("work", {"a": wrong})
    with pytest.raises(InvalidPayload, match="must be a mapping, not Mail"):
        encode_plain("work", Mail(to="ada"))
