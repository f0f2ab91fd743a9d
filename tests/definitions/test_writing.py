"""Fields with several aliases, and excluded ones: what is given arrives, or the type is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from holdfast import Context, InvalidInput, InvalidPayload
from holdfast.definitions.payload import Payload


class TwoAliases(BaseModel):
    amount: int = Field(0, validation_alias="in", serialization_alias="out")


class Swapped(BaseModel):
    first: int = Field(0, validation_alias="b", serialization_alias="a")
    second: int = Field(0, validation_alias="a", serialization_alias="b")


class Several(BaseModel):
    name: str = Field("none", validation_alias=AliasChoices(AliasPath("x", 0), "fullName", "full_name"))
    by_name: int = Field(0, validation_alias="n", serialization_alias="m")
    model_config = ConfigDict(populate_by_name=True)


class Sparse(BaseModel):
    note: str | None = Field("default", exclude_if=lambda value: value is None)


class Branch(BaseModel):
    size: int = Field(1, validation_alias="len")
    inner: list[Branch] = []


@dataclass
class Held:
    count: Annotated[int, Field(validation_alias="c", serialization_alias="d")] = 0


class Typed(TypedDict):
    count: NotRequired[Annotated[int, Field(validation_alias="c", serialization_alias="d")]]


class Hidden(BaseModel):
    shown: int = 0
    hidden: int = Field(0, exclude=True)


class Nowhere(BaseModel):
    value: int = Field(0, validation_alias=AliasPath("values", 0))


class OnlyFromOutside(BaseModel):
    value: int = Field(validation_alias=AliasPath("values", 0))
    secret: str = Field(exclude=True)


def payload_of(annotation: Any) -> Payload:
    async def take(ctx: Context, value: Any, number: int = 0) -> None: ...

    take.__annotations__["value"] = annotation
    return Payload("take", take)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (TwoAliases, TwoAliases(**{"in": 5})),
        (list[TwoAliases | int], [TwoAliases(**{"in": 5}), 7]),
        (Several, Several(full_name="Ada", by_name=3)),
        (Sparse, Sparse(note=None)),
        (Branch, Branch(len=3, inner=[Branch(len=4)])),
        (Held, Held(count=4)),
        (Swapped, Swapped(a=1, b=2)),
    ],
    ids=range(7),
)
def test_a_field_is_written_where_it_is_read(annotation: Any, value: Any) -> None:
    payload = payload_of(annotation)
    assert payload.call_arguments(payload.encode({"value": value}))["value"] == value


def test_a_typed_dict_keeps_what_it_was_given() -> None:
    payload = payload_of(Typed)
    assert payload.call_arguments(payload.encode({"value": {"c": 4}}))["value"] == {"count": 4}


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        (Hidden, r"Hidden\.hidden is excluded \(exclude=True\)"),
        (dict[str, list[Hidden]], r"Hidden\.hidden is excluded"),
        (Nowhere, r"Nowhere\.value is written as 'value', but not read from there"),
    ],
)
def test_a_type_that_would_lose_a_field_is_refused_where_it_is_declared(annotation: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"'take': {told}.*the handler would get its default"):
        payload_of(annotation)


def test_required_fields_that_only_json_can_have_are_refused_when_enqueued() -> None:
    payload = payload_of(OnlyFromOutside)
    assert not payload.faults('{"value": {"values": [1], "secret": "x"}}')
    with pytest.raises(InvalidPayload, match="Field required"):
        payload.encode({"value": OnlyFromOutside(values=[1], secret="x")})


class Money(BaseModel):
    net: int = Field(validation_alias=AliasChoices("amount", "net"))
    amount: int = Field(validation_alias=AliasChoices("gross", "amount"))


class Article(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    name: str = Field(validation_alias="title")
    title: str = Field(default="none", validation_alias="headline")


@pydantic_dataclass
class Renamed:
    name: str = Field(validation_alias=AliasChoices("title", "name"))
    title: str = Field(validation_alias=AliasChoices("headline", "title"))


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (Money, {"amount": 100, "gross": 119}),
        (Article, {"title": "N", "headline": "T"}),
        (Renamed, {"title": "N", "headline": "T"}),
    ],
)
def test_a_field_does_not_get_the_value_of_another_with_its_old_name(kind: Any, written: Any) -> None:
    given = TypeAdapter(kind).validate_python(written)
    payload = payload_of(kind)
    assert payload.call_arguments(payload.encode({"value": given}))["value"] == given


def test_fields_that_are_read_by_the_same_names_are_refused() -> None:
    class Same(BaseModel):
        a: int = Field(validation_alias=AliasChoices("x"))
        b: int = Field(validation_alias=AliasChoices("x"))

    with pytest.raises(InvalidInput, match=r"a and b are read by the same names"):
        payload_of(Same)
