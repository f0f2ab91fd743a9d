"""Shapes: what handlers take, judged elsewhere as they would; and shapes that nobody should trust."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired
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
    Discriminator,
    Field,
    HttpUrl,
    Json,
    PlainValidator,
    SecretStr,
    Tag,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType, TypedDict

from holdfast.definitions.judge import Fault, Judge, judge_of
from holdfast.definitions.payload import Payload
from holdfast.errors import InvalidPayload
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


class Pages(NamedTuple):
    x: int
    y: int | str = 0


class Forest(BaseModel):
    number: int | Forest = 0
    trees: list[Tree | Forest] | dict[str, Forest] = []


class Every(BaseModel):
    op: Literal["every"]
    next: list[Every | Some | Leaf]


class Some(BaseModel):
    op: Literal["some"]
    next: list[Every | Some | Leaf]


class Leaf(BaseModel):
    op: Literal["is"]
    value: int


#: Values that say something about many types at once.
VALUES = [
    None, True, 0, 1, -1, 5, 5.0, 5.5, 1e300, "", "5", " 5 ", "5.0", "five", "true", "red", "1", "two", "none",
    "2030-01-31", "2030-01-31T08:00:00Z", "2030-01-31T08:00:00", "P1D", "http://example.com/a", "ftp://example.com",
    "0191e1a0-0000-7000-8000-000000000000", "a" * 30, [], [1], ["1", 2], [1, 1, 1, 1], ["x"], [[1]], {}, {"x": 1},
    {"x": "1", "y": "2"}, {"x": 1, "made": 3}, {"kind": "cat", "lives": "9"}, {"kind": "dog"}, {"kind": "fish"},
    {"a": 1}, {"b": ["3"]}, {"first": 1}, {"a": 1, "z": 1}, {"number": 1}, {"number": "1"}, {"number": "none"},
    {"day": "2030-01-31"}, {"text": " a "}, {"text": "abc"}, {"depth": "1"}, {"depth": "x"},
    {"number": {"number": "2"}}, {"trees": {"a": {"number": 1}}}, {"trees": [{"value": "1"}, {"number": "x"}]},
    {"op": "every", "next": [{"op": "is", "value": "1"}]}, {"op": "every", "next": [{"op": "no"}]}, {"a": {"day": 1}},
    [{"x": 1, "y": 2}, {"x": "no"}, {"y": []}, {"x": 3, "y": 4}],
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


#: Unions that contain themselves, or types that a shape does not know: a shape accepts more.
UNIONS: list[Any] = [Every | Tree | Forest, dict[str, Forest | Strict], list[Options | Point | Pages]]


def refuse(value: Any) -> Any:
    if value == 5:
        raise ValueError("not five")
    return value


#: Types whose code accepts more than the type alone, or less: there a shape accepts whatever they do.
class Rights(IntFlag):
    READ = 1
    WRITE = 4


class Shade(StrEnum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Shade | None:
        return cls.RED if value == "five" else None


def keep_fitting(value: Any, handler: Any) -> Any:
    """Drop the items that do not fit, by their places in the faults."""
    try:
        return handler(value)
    except ValidationError as fault:
        unfit = {error["loc"][0] for error in fault.errors()}
        return handler([one for place, one in enumerate(value) if place not in unfit])


OWN_CODE: list[Any] = [
    Lenient,
    Rights,
    Shade,
    Annotated[list[Point], WrapValidator(keep_fitting)],
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


@pytest.mark.parametrize("annotation", [*EXACT, *OWN_CODE, *UNIONS])
def test_stopping_at_the_first_fault_accepts_the_same(annotation: Any) -> None:
    plain, stopping = (payload_of(annotation) for _ in range(2))
    assert stopping._validator._stopping is not None
    stopping._validator._short = stopping._validator._faults.characters = -1
    for value in VALUES:
        text = json.dumps({"value": value})
        try:
            fits = plain._adapter.validator.validate_json(text)
        except Exception:  # noqa: BLE001 - types have code of their own
            assert plain.faults(text), text
            assert len(stopping.faults(text)) == 1, text
        else:
            assert plain.faults(text) == stopping.faults(text) == [], text
            assert repr(stopping._validator.validate(text)) == repr(fits), text


class Happened(BaseModel):
    type: Literal["happened"]
    ref: str = ""


class Chained(TypedDict):
    type: str
    schema: NotRequired[Chained]


@pytest.mark.parametrize("annotation", [Happened, Chained, list[Happened | Strict], dict[str, Chained]])
def test_a_field_may_be_called_as_a_part_of_pydantics_schemas_is(annotation: Any) -> None:
    async def handler(ctx: Context, type: str, fields: Any = None) -> None: ...  # noqa: A002 - as callers have it

    handler.__annotations__["fields"] = annotation | None
    payload = Payload("work", handler)
    assert payload.faults('{"type": "a"}') == []
    assert payload.faults('{"type": 1}')
    assert payload.encode({"type": "a"})


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


@pytest.mark.parametrize("part", ["a", "b"])
def test_many_unfit_items_are_one_fault(part: str) -> None:
    """Each of them would take memory: a thousand times as much as the payload."""

    async def handler(ctx: Context, a: list[Cat] = [], b: dict[str, Cat] = {}) -> None: ...  # noqa: B006 - never changed

    payload = Payload("work", handler)
    many: Any = {"a": [{}] * 1000, "b": {str(number): {} for number in range(1000)}}[part]
    text = json.dumps({part: many})
    for faults in (payload.faults(text), judge_for(payload).faults(text)):
        assert {fault.pointer.rpartition("/")[0] for fault in faults} == {f"/{part}/0"}
    with pytest.raises(InvalidPayload, match="does not fit") as refused:
        payload.call_arguments(text)
    assert len(str(refused.value)) < 1000


class Folder(BaseModel):
    size: int = 0
    owner: int = 0
    children: dict[str, Folder] = {}


def test_faults_below_long_keys_are_not_listed() -> None:
    """Each of them would repeat all keys above it."""
    payload = payload_of(Folder)
    deep: Any = {}
    for _ in range(90):
        deep = {"size": "x", "owner": "x", "children": {"k" * 1_000: deep}}
    text = json.dumps({"children": {"a": {"size": 1, "children": {"b": deep}}}})
    for faults in (payload.faults(text), judge_for(payload).faults(text)):
        ((pointer, detail),) = faults
        assert pointer == "/children/a/children/b/size"
        assert detail == "Input should be a valid integer, unable to parse string as an integer"
    with pytest.raises(InvalidPayload, match=r"children.a.children.b.size: Input should be a valid integer"):
        payload.call_arguments(text)


def large(size: int) -> dict[str, Any]:
    return {"kind": "large", "more": ["x"] * size}


class Wide(BaseModel):
    kind: Literal["wide"]
    a: int
    b: int
    c: int
    d: int = 0
    e: Annotated[int, AfterValidator(abs)] = 0


class Narrow(BaseModel):
    kind: str
    more: list[str]


@pytest.mark.parametrize("many", [False, True])
def test_an_object_is_not_copied_for_each_field_that_it_lacks(many: bool) -> None:
    async def handler(ctx: Context, one: Wide | None = None, many: list[Wide] = []) -> None: ...  # noqa: B006 - unchanged

    payload = Payload("work", handler)
    text = json.dumps({"many": [large(400_000)]} if many else {"one": large(400_000)})
    for faults in (payload.faults(text), judge_for(payload).faults(text)):
        assert faults == [Fault("/many/0/kind" if many else "/one/kind", "Input should be 'wide'")]
    small = json.dumps({"one": large(5_000)})
    assert {fault.pointer for fault in payload.faults(small)} == {"/one/a", "/one/b", "/one/c", "/one/kind"}


Zone = Literal[tuple(f"Continent/City_{number:03}" for number in range(600))]  # type: ignore[valid-type]


class Zoned(BaseModel):
    zone: Zone  # type: ignore[valid-type]
    left: Zoned | None = None
    right: Zoned | None = None


@dataclasses.dataclass
class Counted:
    zone: int
    left: Counted | None = None
    right: Counted | None = None


class Typed(TypedDict, total=False):
    zone: Zone  # type: ignore[valid-type]
    left: Typed
    right: Typed


class Varied(BaseModel):
    zone: int | float | bool | datetime | date | Decimal | list[int] | None
    left: Varied | Zone | None = None  # type: ignore[valid-type]
    right: Varied | Zone | None = None  # type: ignore[valid-type]


def _refuse_at_length(value: Any) -> Any:
    raise ValueError("no " * 2_000)


class Checked(BaseModel):
    zone: Annotated[Any, AfterValidator(_refuse_at_length)]
    left: Checked | None = None
    right: Checked | None = None


def _tree(levels: int) -> Any:
    below = {"left": _tree(levels - 1), "right": _tree(levels - 1)} if levels else {}
    return {"zone": "x"} | below


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the memory")
@pytest.mark.parametrize("annotation", [Zoned, Counted, Typed, Varied, Checked])
def test_a_tree_of_wrong_values_takes_little_memory(annotation: Any) -> None:
    """Each of 8,000 wrong values would repeat its path and what is expected: hundreds of megabytes."""
    payload, value = payload_of(annotation), _tree(12)
    text = json.dumps(value)
    assert payload.faults('{"zone": "x"}')
    judge = None if annotation is Checked else judge_for(payload)
    told = list[Fault]()
    for refuse_it in (
        lambda: told.extend(payload.faults(text)),
        lambda: told.extend([] if judge is None else judge.faults(text)),
        lambda: _refused(payload.encode, value),
        lambda: _refused(payload.call_arguments, text),
    ):
        assert _kilobytes_taken(refuse_it) < 40_000
    assert {fault.pointer for fault in told} == {"/zone"}


def _refused(take: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(InvalidPayload, match="zone"):
        take(value)


def _kilobytes_taken(run: Callable[[], Any]) -> int:
    """How much more memory this process had meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the maximum
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


class Chain(BaseModel):
    x: int
    next: Chain | None = None
    data: Any = None


def test_a_recursive_type_copies_its_value_at_few_levels() -> None:
    payload = payload_of(Chain)
    deep = '{"next":' * 140 + '{"data":[' + ",".join(["[]"] * 4_900) + "]}" + "}" * 140
    assert len(deep) < 16 * 1024
    for faults in (payload.faults(deep), judge_for(payload).faults(deep)):
        assert faults == [Fault("/x", "Field required")]


def test_many_unfit_items_are_one_fault_in_python_too() -> None:
    with pytest.raises(InvalidPayload) as refused:
        payload_of(list[Wide]).encode({"value": [{}] * 1000})
    assert str(refused.value).count("Field required") == 4


def test_a_value_that_contains_itself_is_refused() -> None:
    value: Any = {"a": 1}
    value["next"] = value
    with pytest.raises(InvalidPayload, match=r"(?i)recursi"):
        payload_of(Either).encode(value)


class Either(BaseModel):
    a: int
    next: Either | list[Either] | dict[str, Either] | None = None


def _nested(levels: int, innermost: Any, **beside: Any) -> Any:
    for _ in range(levels):
        innermost = {"next": innermost, **beside}
    return innermost


def _rule(levels: int) -> Any:
    rule: Any = {"op": "is", "value": 1}
    for _ in range(levels):
        rule = {"op": "some", "next": [rule]}
    return rule


class Group(BaseModel):
    next: Rule


Rule = TypeAliasType("Rule", "dict[str, Rule] | Group | int")
Keyed = TypeAliasType("Keyed", "dict[str, Keyed] | dict[int, Keyed] | int")
Mapped = TypeAliasType("Mapped", "dict[str, Mapped] | Mapping[str, Mapped] | int")
Named = TypeAliasType("Named", "dict[str, Named] | dict[Literal['next'], Named] | list[Named] | int")
Listed = TypeAliasType("Listed", "list[Listed] | tuple[Listed, ...] | int")


@dataclasses.dataclass
class Pair:
    next: Held


Held = TypeAliasType("Held", "dict[str, Held] | Pair | str")


def _numbered(levels: int) -> Any:
    return {"1": _numbered(levels - 1)} if levels else 1


def _brackets(levels: int) -> Any:
    return [_brackets(levels - 1)] if levels else "5"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Either, _nested(180, {"a": 1}, a=1)),
        (Rule, _nested(40, 1)),
        (Keyed, _numbered(40)),
        (Mapped, _nested(40, 1)),
        (Named, _nested(40, 1)),
        (Held, _nested(40, "x")),
        (Listed, _brackets(40)),
    ],
    ids=["model", "dict first", "keys", "mapping", "literal", "dataclass", "lists"],
)
def test_a_union_within_itself_is_not_tried_forever(annotation: Any, value: Any) -> None:
    """Every level is one choice or another: pydantic tries both, so forty levels are 2^40 tries."""
    began = time.process_time()
    payload = payload_of(annotation)
    value = value if annotation is Either else {"value": value}
    (fault,) = payload.faults(json.dumps(value))
    with pytest.raises(InvalidPayload, match="give it a discriminator"):
        payload.encode(value)
    with pytest.raises(InvalidPayload, match="give it a discriminator"):
        payload.call_arguments(json.dumps(value))
    assert fault.detail == "a union within itself would try its choices too many times: give it a discriminator"
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("annotation", "value", "fault"),
    [
        (Either, _nested(60, {"a": "z"}), Fault("/a", "Field required")),
        (Every, {**_rule(40), "op": "every"}, None),
        (Keyed, _nested(40, 1), None),
        (Every, {**_rule(40), "op": "some"}, Fault("/op", "Input should be 'every'")),
    ],
)
def test_a_choice_ends_at_its_first_fault(annotation: Any, value: Any, fault: Fault | None) -> None:
    """pydantic looks into all other fields of a choice that does not fit, each time: 2^40 tries."""
    payload = payload_of(annotation)
    value = {"value": value} if annotation is Keyed else value
    assert payload.faults(json.dumps(value)) == ([] if fault is None else [fault])
    if fault is None:
        assert json.loads(payload.encode(value)) == value
    else:
        with pytest.raises(InvalidPayload, match=fault.detail):
            payload.encode(value)


def _meanwhile(value: Any) -> Any:
    if MEANWHILE:
        thread = threading.Thread(target=MEANWHILE.pop())
        thread.start()
        thread.join()
    return value


MEANWHILE: list[Callable[[], Any]] = []


class Watched(BaseModel):
    a: Annotated[int, BeforeValidator(_meanwhile)]
    next: Watched | list[Watched] | dict[str, Watched] | None = None


def test_threads_count_tries_for_themselves() -> None:
    """While one is judged that fits, another thread uses up its tries."""
    payload, refused = payload_of(Watched), list[Any]()
    MEANWHILE.append(lambda: refused.extend(payload.faults(json.dumps(_nested(60, {"a": 1}, a=1)))))
    assert payload.faults(json.dumps(_chain(100))) == []
    assert [fault.detail.endswith("discriminator") for fault in refused] == [True]


def _chain(levels: int) -> Any:
    """No level is a dict of others, as its first member shows."""
    value: Any = {"a": 1}
    for _ in range(levels):
        value = {"a": 1, "next": value}
    return value


@pytest.mark.parametrize("levels", [5, 150])
def test_a_union_within_itself_is_judged_by_pydantic_where_it_takes_few_tries(levels: int) -> None:
    payload, value = payload_of(Either), _chain(levels)
    assert payload.faults(json.dumps(value)) == []
    value["next"]["next"]["a"] = "z"
    assert {fault.pointer for fault in payload.faults(json.dumps(value))} >= {"/next/next/a"}


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int = 0


class Shut(Closed):
    b: int = 0


@pytest.mark.parametrize("annotation", [Closed, Closed | Shut | None, dict[str, Closed | Shut]])
def test_only_the_first_unknown_field_is_named(annotation: Any) -> None:
    async def handler(ctx: Context, one: Any, other: int = 0) -> None: ...

    handler.__annotations__["one"] = annotation
    payload = Payload("work", handler)
    many: Any = {f"x{number}": 1 for number in range(16_000)}
    text = json.dumps({"one": {"k": many} if "dict" in str(annotation) else many})
    for faults in (payload.faults(text), judge_for(payload).faults(text)):
        place = "/one/k/x0" if "dict" in str(annotation) else "/one/x0"
        assert faults == [Fault(place, "Extra inputs are not permitted")]


class Prepared(Closed):
    @model_validator(mode="before")
    @classmethod
    def prepare(cls, value: Any) -> Any:
        return value


def _kind_of(value: Any) -> str:
    return "closed" if "x0" in value else "shut"


Tagged = Annotated[Annotated[Closed, Tag("closed")] | Annotated[Shut, Tag("shut")], Discriminator(_kind_of)]


@pytest.mark.parametrize(
    ("annotation", "is_text"),
    [
        (Json[Closed | Shut], True),  # type: ignore[misc]
        (Json[list[Closed]], True),
        (Annotated[Closed, BeforeValidator(json.loads)], True),
        (Annotated[Closed | Shut, WrapValidator(lambda value, inner: inner(json.loads(value)))], True),
        (Prepared, False),
        (Prepared | Shut, False),
        (Tagged, False),
    ],
)
def test_faults_behind_code_and_in_texts_are_not_listed(annotation: Any, is_text: bool) -> None:
    async def handler(ctx: Context, one: Any, other: int = 0) -> None: ...

    handler.__annotations__["one"] = annotation
    payload = Payload("work", handler)
    many: Any = {f"x{number}": 1 for number in range(16_000)}
    many = [many] if "list" in str(annotation) else many
    text = json.dumps({"one": json.dumps(many) if is_text else many})
    ((pointer, _),) = payload.faults(text)
    assert pointer.startswith("/one")


def test_a_text_that_says_nothing_and_one_that_fits_are_judged_by_pydantic() -> None:
    async def handler(ctx: Context, one: Json[dict[str, int] | Closed]) -> None: ...

    payload = Payload("work", handler)
    assert payload.faults(json.dumps({"one": json.dumps({f"x{number}": 1 for number in range(50_000)})})) == []
    (fault,) = payload.faults(json.dumps({"one": "{" * 100_000}))
    assert "Invalid JSON" in fault.detail


def test_each_choice_of_a_union_that_is_not_an_object_copies_one() -> None:
    async def handler(ctx: Context, one: int | str | bool | date | UUID | list[int], other: int = 0) -> None: ...

    payload = Payload("work", handler)
    (fault,) = payload.faults(json.dumps({"one": large(250_000)}))
    assert fault.detail.startswith("too many choices of a union do not fit a large value")


def test_choices_of_a_union_may_lack_fields_of_an_object_that_is_not_too_large() -> None:
    async def handler(ctx: Context, one: Wide | Narrow) -> None: ...

    payload = Payload("work", handler)
    assert payload.faults(json.dumps({"one": large(200_000)})) == []
    assert payload.faults(json.dumps({"one": {"kind": "blob", "more": ["x" * 1_000_000]}})) == []
    assert payload.faults(json.dumps({"one": large(400_000)})) == []


def test_a_handler_that_takes_any_object_takes_long_keys_too() -> None:
    async def handler(ctx: Context, payload: dict[str, Any]) -> None: ...

    value = {"k" * 20_000: {str(number): 1 for number in range(1000)}}
    payload = Payload("work", handler)
    assert payload.faults(json.dumps(value)) == []
    assert payload.call_arguments(json.dumps(value)) == {"payload": value}


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
