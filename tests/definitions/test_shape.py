"""Shapes: what handlers take, judged elsewhere as they would; and shapes that nobody should trust."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    PlainValidator,
    SecretStr,
    WrapValidator,
    field_validator,
)
from typing_extensions import TypedDict

from holdfast.definitions.judge import Fault, Judge, judge_of
from holdfast.definitions.payload import Payload
from holdfast.worker.context import Context


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Mixed(Enum):
    ONE, TWO = 1, "two"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    number: int = 0
    day: date | None = None


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="forbid")
    first: int = Field(validation_alias=AliasChoices("a", AliasPath("b", 0)))


class Trimmed(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, str_min_length=2)
    text: str = "  "


class Tree(BaseModel):
    value: int
    children: list[Tree] = []
    parent: Tree | None = None


class Lenient(BaseModel):
    number: int = 1

    @field_validator("number", mode="wrap")
    @classmethod
    def _any(cls, value: Any, handler: Callable[[Any], int]) -> int:
        return 0 if value == "none" else handler(value)


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0
    made: int = dataclasses.field(init=False, default=1)


class Options(TypedDict, total=False):
    depth: int


#: Values that say something about many types at once.
VALUES = [
    None, True, 0, 1, -1, 5, 5.0, 5.5, 1e300, "", "5", " 5 ", "5.0", "five", "true", "red", "1", "two", "none",
    "2030-01-31", "2030-01-31T08:00:00Z", "2030-01-31T08:00:00", "P1D", "http://example.com/a", "ftp://example.com",
    "0191e1a0-0000-7000-8000-000000000000", "a" * 30, [], [1], ["1", 2], [1, 1, 1, 1], ["x"], [[1]], {}, {"x": 1},
    {"x": "1", "y": "2"}, {"x": 1, "made": 3}, {"kind": "cat", "lives": "9"}, {"kind": "dog"}, {"kind": "fish"},
    {"a": 1}, {"b": ["3"]}, {"first": 1}, {"a": 1, "z": 1}, {"number": 1}, {"number": "1"}, {"number": "none"},
    {"day": "2030-01-31"}, {"text": " a "}, {"text": "abc"}, {"depth": "1"}, {"depth": "x"},
    {"value": 1}, {"value": 1, "children": [{"value": "2"}]}, {"value": 1, "children": [{"value": 2, "parent": {}}]},
]  # fmt: skip

#: Types without code of their own: their shapes judge exactly as they do.
EXACT: list[Any] = [
    bool, int, float, str, bytes, date, datetime, timedelta, Decimal, UUID, HttpUrl, AwareDatetime, SecretStr, Path,
    Colour, Level, Mixed, Literal["red", 1, None], int | None, int | str, list[int] | dict[str, int], Cat | Dog | int,
    list[int], set[int], tuple[int, str], tuple[int, ...], Sequence[int], dict[str, int], dict[int, str],
    Mapping[str, int], Strict, Aliased, Trimmed, Tree, Point, Options, Any,
    Annotated[int, Field(gt=0, lt=5)], Annotated[Decimal, Field(ge=Decimal("1.5"))], Annotated[int, Field(strict=True)],
    Annotated[str, Field(pattern="^[a-z]+$", max_length=10)], Annotated[list[int], Field(min_length=1, max_length=2)],
    Annotated[Cat | Dog, Field(discriminator="kind")],
]  # fmt: skip


def refuse(value: Any) -> Any:
    if value == 5:
        raise ValueError("not five")
    return value


#: Types whose code accepts more than the type alone, or less: there a shape accepts whatever they do.
OWN_CODE: list[Any] = [
    Lenient,
    Annotated[int, AfterValidator(refuse)],
    Annotated[int, BeforeValidator(lambda value: 0 if value == "five" else value)],
    Annotated[int, PlainValidator(lambda value: value)],
    Annotated[int, WrapValidator(lambda value, handler: 0 if value is None else handler(value))],
]


def payload_of(annotation: Any) -> Payload:
    async def handler(ctx: Context, value: Any) -> None: ...

    handler.__annotations__["value"] = annotation
    return Payload("work", handler)


def judge_for(payload: Payload) -> Judge:
    judge = judge_of(json.dumps(payload.shape()))
    assert judge is not None
    return judge


@pytest.mark.parametrize("annotation", EXACT)
def test_a_shape_judges_as_the_handler_does(annotation: Any) -> None:
    payload = payload_of(annotation)
    judge = judge_for(payload)
    for value in [*VALUES, *({"value": value} for value in VALUES)]:
        text = json.dumps(value)
        assert bool(judge.faults(text)) == bool(payload.faults(text)), text


@pytest.mark.parametrize("annotation", OWN_CODE)
def test_a_shape_accepts_whatever_code_of_its_own_accepts(annotation: Any) -> None:
    payload = payload_of(annotation)
    judge = judge_for(payload)
    accepted = [text for value in VALUES if not payload.faults(text := json.dumps({"value": value}))]
    assert accepted
    assert [text for text in accepted if judge.faults(text)] == []


def test_faults_have_json_pointers() -> None:
    async def handler(
        ctx: Context, lines: list[Annotated[Cat | Dog, Field(discriminator="kind")]], by: dict[str, int | list[int]]
    ) -> None: ...

    text = json.dumps({"lines": [{"kind": "cat"}], "by": {"a/b~c": "x"}, "more": 1})
    told = [tuple(fault) for fault in judge_for(Payload("work", handler)).faults(text)]
    assert told == [
        ("/lines/0/lives", "Field required"),
        ("/by/a~1b~0c", "Input should be a valid integer, unable to parse string as an integer"),
        ("/by/a~1b~0c", "Input should be a valid array"),
        ("/more", "Extra inputs are not permitted"),
    ]


def test_very_many_faults_are_counted_only() -> None:
    async def handler(ctx: Context, a: int = 0) -> None: ...

    text = json.dumps({f"x{number}": 1 for number in range(2000)})
    assert judge_for(Payload("work", handler)).faults(text) == [Fault("", "2000 values do not fit")]


def test_the_same_code_has_the_same_shape() -> None:
    def made() -> Any:
        class Node(BaseModel):
            next: Node | None = None
            other: Cat | None = None
            again: Cat | None = None

        return payload_of(Node).shape()

    assert made() == made()


def named(node: Any, **parts: Any) -> str:
    return json.dumps({"dialect": 1, "shape": node, "named": parts})


SELF = {"is": "named", "name": "a"}
FIELDS = {"x": {"shape": SELF}, "y": {"shape": {"is": "int"}}}


@pytest.mark.parametrize(
    "shape",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"dialect": 2, "shape": {"is": "int"}}',
        named("int"),
        named({"is": "no such type"}),
        named({"is": "list"}),
        named({"is": "object", "fields": []}),
        named({"is": "object", "fields": {"a": {"shape": {"is": "int"}, "at": [[]]}}}),
        named({"is": "union", "of": []}),
        named({"is": "named", "name": "missing"}),
        named({"is": "enum", "of": [[]]}),
        named({"is": "enum", "of": ["a"], "sub_type": "int"}),
        named({"is": "function", "function": "os.system"}),
        named(SELF, a=SELF),
        named(SELF, a={"is": "nullable", "of": {"is": "named", "name": "b"}}, b={"is": "nullable", "of": SELF}),
        json.dumps({"dialect": 1, "shape": 0}).replace("0", '{"is":"nullable","of":' * 500 + "0" + "}" * 500),
        "[" * 100_000,
        named({"is": "tuple", "of": [], "variadic_item_index": 7}),
    ],
    ids=lambda shape: shape[:60],
)
def test_a_broken_shape_accepts_everything(shape: str) -> None:
    judge = judge_of(shape)
    assert judge is None or judge.faults('{"a": "x"}') == []


@pytest.mark.parametrize(
    "shape",
    [
        # Each choice would look into what lies below, so that every level doubled the time.
        named(SELF, a={"is": "union", "of": [{"is": "object", "fields": FIELDS}, {"is": "object", "fields": FIELDS}]}),
        named(SELF, a={"is": "object", "fields": {"x": {"shape": SELF}, "z": {"shape": SELF, "at": [["x"]]}}}),
        named(SELF, a={"is": "dict", "keys": {"is": "str"}, "of": {"is": "union", "of": [SELF, SELF]}}),
        # Rust's patterns take linear time, but can take much memory.
        named({"is": "object", "fields": {"y": {"shape": {"is": "str", "pattern": r"(\w{999}){999}"}}}}),
        named({"is": "object", "fields": {"y": {"shape": {"is": "str", "pattern": "(a*)*b"}}}}),
    ],
)
def test_a_hostile_shape_takes_no_longer_than_the_payload_is_long(shape: str) -> None:
    deep = '{"x":' * 150 + json.dumps({"y": "a" * 50_000}) + "}" * 150
    began = time.process_time()
    judge = judge_of(shape)
    assert judge is not None
    judge.faults(deep)
    judge.faults(json.dumps({"y": "a" * 50_000}))
    assert time.process_time() - began < 2


def test_choices_within_choices_are_weighed_beforehand() -> None:
    inner: Any = {"is": "object", "fields": {}}
    for _ in range(10):
        inner = {"is": "object", "fields": {"x": {"shape": {"is": "union", "of": [inner, inner]}}}}
    judge = judge_of(named(inner))
    assert judge is not None
    assert judge.weight == 16
