"""What a handler would not get as it was given is refused when it is enqueued."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, ConfigDict, field_serializer

from holdfast import Context, InvalidPayload
from holdfast.definitions.judge import judge_of
from holdfast.definitions.payload import Payload


class Animal(BaseModel):
    name: str


class Dog(Animal):
    tricks: list[str] = []


class Puppy(Animal):
    pass


class Blob(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")
    content: bytes


class Rounded(BaseModel):
    amount: float

    @field_serializer("amount")
    def _rounded(self, amount: float) -> float:
        return round(amount, 2)


class Point(BaseModel):
    model_config = ConfigDict(frozen=True)
    x: int


@dataclass
class Event:
    id: int
    status: str = field(init=False, default="new", compare=False)


PAID = Event(1)
PAID.status = "paid"
BERLIN = ZoneInfo("Europe/Berlin")


def payload_of(annotation: Any) -> Payload:
    async def take(ctx: Context, value: Any, number: int = 0) -> None: ...

    take.__annotations__["value"] = annotation
    return Payload("take", take)


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (re.Pattern, re.compile("a", re.IGNORECASE), "would arrive as"),
        (Event, PAID, r"value.status: 'paid' would arrive as 'new'"),
        (datetime, datetime(1880, 1, 1, tzinfo=BERLIN), "would arrive as"),
        (list[Animal], [Dog(name="Rex", tricks=["sit"])], r"value.0: the field tricks of Dog would be lost"),
        (Blob, Blob(content=b"hi"), r"b'hi' would arrive as b'aGk='"),
    ],
    ids=["pattern", "init", "offset", "subclass", "bytes"],
)
def test_what_would_be_lost_is_refused(annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(InvalidPayload, match=why):
        payload_of(annotation).encode({"value": value})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (re.Pattern, re.compile("a")),
        (Event, Event(1)),
        (datetime, datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)),
        (datetime, datetime(2025, 1, 1, tzinfo=UTC)),
        (Animal, Puppy(name="Rex")),
        (Rounded, Rounded(amount=1.234)),
        (set[Point], {Point(x=1), Point(x=2)}),
    ],
    ids=["pattern", "init", "repeated hour", "utc", "subclass", "own serializer", "set"],
)
def test_what_arrives_is_accepted(annotation: Any, value: Any) -> None:
    payload_of(annotation).encode({"value": value})


def test_a_subclass_is_refused_as_the_whole_payload() -> None:
    async def take(ctx: Context, animal: Animal) -> None: ...

    payload = Payload("take", take)
    assert payload.encode(Animal(name="Rex")) == payload.encode({"name": "Rex"}) == '{"name":"Rex"}'
    with pytest.raises(InvalidPayload, match="the field tricks of Dog would be lost"):
        payload.encode(Dog(name="Rex"))


def test_a_set_of_objects_is_accepted_from_outside() -> None:
    judge = judge_of(json.dumps(payload_of(set[Point]).shape()))
    assert judge is not None
    assert judge.faults('{"value": [{"x": 1}, {"x": 1}]}') == []
    assert judge.faults('{"value": [{"x": "no"}]}') != []
