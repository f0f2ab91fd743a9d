"""Judges payloads by a shape that a worker has published (`holdfast.definitions.shape`), as its handler would.

A shape comes from elsewhere, and may be broken or hostile. It is never trusted:

1. Only known values of a shape become part of a validator, one by one. A shape that is not understood accepts
   everything.
2. Judging takes time in proportion to the payload, times a `weight` that is known beforehand. If several choices of
   nested unions look into the same part, their numbers multiply. So the product is limited, and within a recursion it
   must be one.
3. Patterns are Rust's, which take linear time, and must be short, so that they take little memory. A list or dict stops
   at its first fault (`holdfast.definitions.first_fault`).
4. Nothing is fetched, imported or called: a shape is data.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import SchemaError, from_json

from holdfast.definitions.any_json import with_any_json
from holdfast.definitions.first_fault import FirstFault, Unfit
from holdfast.definitions.shape import DIALECT, LIMIT

__all__ = ["Fault", "Judge", "faults_found", "judge_of"]

#: How many times a part of a payload may be looked at, by the choices of nested unions.
_WIDEST = 16
_NODES, _DEPTH, _VALUES = 5_000, 60, 1_000
#: The limit for all patterns of a shape together, in characters, each counted as often as it is repeated.
_PATTERNS = 1_000
#: Nobody reads more faults, and even listing very many of them would take long.
_TOLD, _COUNTED = 20, 1_000
#: How pydantic begins what a validator says.
_VALUE_ERROR = "Value error, "

Core = dict[str, Any]
_ANY: Core = {"type": "any"}

_WHOLE = ("min_length", "max_length", "max_digits", "decimal_places", "variadic_item_index", "version")
_FLAGS = (
    "strict", "allow_inf_nan", "strip_whitespace", "to_lower", "to_upper", "coerce_numbers_to_str", "host_required",
)  # fmt: skip
_NUMBERS = ("ge", "gt", "le", "lt", "multiple_of")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "microseconds_precision": ("truncate", "error"),
    "sub_type": ("str", "int", "float"),
}
_SCALARS = ("none", "bool", "int", "float", "decimal", "str", "bytes", "date", "time", "datetime", "timedelta", "uuid")
#: What a part of a payload must be for a choice to look into it.
_DESCENDS = {"object": "object", "dict": "object", "tagged": "object"} | dict.fromkeys(
    ("list", "set", "frozenset", "tuple"), "array"
)


class Fault(NamedTuple):
    """A fault of a payload: its place, as a JSON pointer, and the reason. The value itself is not repeated."""

    pointer: str
    detail: str

    @classmethod
    def of(cls, unfit: Unfit) -> Fault:
        """The fault at which validation stopped."""
        return cls("".join(map(_escaped, unfit.place)), str(unfit).removeprefix(_VALUE_ERROR))


class Judge:
    """A shape, compiled to a validator."""

    def __init__(self, validator: FirstFault, weight: int) -> None:
        self._validator, self.weight = validator, weight

    def faults(self, text: str) -> list[Fault]:
        """The faults of a payload; empty if it is accepted."""
        try:
            return faults_found(self._validator, text)
        except Exception:  # noqa: BLE001 - what cannot be judged is left to the handler
            return []


def faults_found(validator: FirstFault, text: str) -> list[Fault]:
    """The faults of a payload; empty if it is valid. What the code of a type raises is raised here, too."""
    try:
        validator.validate(text)
    except ValidationError as fault:
        return _faults_of(fault, text)
    except Unfit as fault:
        return [Fault.of(fault)]
    return []


def judge_of(text: str) -> Judge | None:
    """The judge of a shape; None if it accepts everything, or is not a valid shape."""
    try:
        shape = json.loads(text) if len(text) <= 2 * LIMIT else None
        if not isinstance(shape, dict) or shape.get("dialect") != DIALECT:
            return None
        builder = _Builder(shape.get("named"))
        core = with_any_json(builder.schema(shape.get("shape")), judging=True)
        return Judge(FirstFault(core), builder.widest)
    except (_Broken, SchemaError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


def _faults_of(error: ValidationError, text: str) -> list[Fault]:
    """The first faults that pydantic found, with their places as JSON pointers into the payload."""
    if error.error_count() > _COUNTED:
        return [Fault("", f"{error.error_count()} values do not fit")]
    payload = from_json(text)
    told: dict[Fault, None] = {}
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        told[Fault(_pointer(one["loc"], payload, one["type"]), one["msg"].removeprefix(_VALUE_ERROR))] = None
    return list(told)[:_TOLD]


def _pointer(place: Sequence[str | int], payload: Any, kind: str) -> str:
    """A place without the names of choices and types that pydantic inserts."""
    parts = []
    value = payload
    for number, part in enumerate(place):
        if _has(value, part):
            value = value[part]
        elif kind != "missing" or number < len(place) - 1:
            continue
        parts.append(_escaped(part))
    return "".join(parts)


def _escaped(part: str | int) -> str:
    return "/" + str(part).replace("~", "~0").replace("/", "~1")


def _has(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value)


class _Broken(Exception):
    """The shape is invalid, or would take too much memory or time."""


class _Builder:
    """Builds a pydantic schema from a shape."""

    def __init__(self, named: Any) -> None:
        self._named: Mapping[str, Any] = named if isinstance(named, dict) else {}
        self._nodes = 0
        self._patterns = 0
        self.widest = 1
        self._recursive = {name for name in self._named if name in set(self._reached(name))}
        self._built: dict[str, Core | None] = {}
        self._makers: Mapping[str, Callable[[Core, _Place], Core]] = {
            "object": self._object,
            "nullable": lambda node, place: {"type": "nullable", "schema": self._core(node["of"], place)},
            "union": self._union,
            "tagged": self._tagged,
            "tuple": self._tuple,
            "dict": self._dict,
            "literal": self._literal,
            "enum": self._enum,
            "url": self._url,
            "named": self._reference,
        } | dict.fromkeys(("list", "set", "frozenset"), self._collection)

    def schema(self, root: Any) -> Core:
        """The schema of the whole shape."""
        core = self._core(root, _Place(1, 0, None, consumed=False))
        definitions = [{**body, "ref": name} for name, body in self._built.items() if body is not None]
        return {"type": "definitions", "schema": core, "definitions": definitions} if definitions else core

    def _core(self, node: Any, place: _Place) -> Core:
        self._nodes += 1
        if self._nodes > _NODES or place.depth > _DEPTH or not isinstance(node, dict):
            raise _Broken
        kind = str(node.get("is"))
        if kind in self._makers:
            return self._makers[kind](node, place.deeper())
        if kind in _SCALARS:
            return {"type": kind, **self._options(node, decimals=kind == "decimal")}
        return _ANY  # a kind of a newer release

    def _object(self, node: Core, place: _Place) -> Core:
        extra, fields = node.get("extra", "ignore"), node["fields"]
        if extra not in ("ignore", "forbid", "allow") or not isinstance(fields, dict):
            raise _Broken
        inner = place.inside()
        made, places = {}, []
        for name, field in fields.items():
            at = field.get("at", [[name]])
            if not at or not all(path and all(type(part) in (str, int) for part in path) for path in at):
                raise _Broken
            places += [tuple(path) for path in at]
            made[name] = {
                "type": "typed-dict-field",
                "schema": self._core(field["shape"], inner),
                "required": field.get("required") is True,
                "validation_alias": at,
            }
        if _overlap(places):
            return _ANY  # two fields of the same part would look into it twice
        core: Core = {"type": "typed-dict", "fields": made, "extra_behavior": extra}
        if "extras" in node:
            core["extras_schema"] = self._core(node["extras"], inner)
        return core

    def _collection(self, node: Core, place: _Place) -> Core:
        items = self._core(node["of"], place.inside())
        return {"type": node["is"], "items_schema": items, **self._options(node)}

    def _tuple(self, node: Core, place: _Place) -> Core:
        items = [self._core(item, place.inside()) for item in node["of"]]
        options = self._options(node)
        if not 0 <= options.get("variadic_item_index", 0) <= max(0, len(items) - 1):
            raise _Broken
        return {"type": "tuple", "items_schema": items, **options}

    def _dict(self, node: Core, place: _Place) -> Core:
        inner = place.inside()
        keys, values = self._core(node["keys"], inner), self._core(node["of"], inner)
        return {"type": "dict", "keys_schema": keys, "values_schema": values, **self._options(node)}

    def _union(self, node: Core, place: _Place) -> Core:
        choices = node["of"]
        if not isinstance(choices, list) or not choices:
            raise _Broken
        ways = [way for choice in choices for way in self._descents(choice)]
        width = max(1, ways.count("object"), ways.count("array"))
        if place.width * width > _WIDEST or (width > 1 and place.within is not None):
            return _ANY
        wider = place.wider(width)
        self.widest = max(self.widest, wider.width)
        made = [self._core(choice, wider) for choice in choices]
        return _ANY if _ANY in made else {"type": "union", "mode": "left_to_right", "choices": made}

    def _tagged(self, node: Core, place: _Place) -> Core:
        by, choices = node["by"], node["of"]
        paths = [[by]] if isinstance(by, str) else by if isinstance(by[0], list) else [by]
        if not all(path and all(type(part) in (str, int) for part in path) for path in paths):
            raise _Broken
        made = {str(tag): self._core(choice, place) for tag, choice in choices.items()}
        return {"type": "tagged-union", "discriminator": by, "choices": made}

    def _literal(self, node: Core, _place: _Place) -> Core:
        return {"type": "literal", "expected": _values(node, (str, int, bool, type(None)))}

    def _enum(self, node: Core, _place: _Place) -> Core:
        values, options = _values(node, (str, int, float)), self._options(node)
        kind = {"str": str, "int": int, "float": float}.get(options.get("sub_type", ""))
        if kind is not None and not all(type(value) is kind for value in values):
            raise _Broken
        names = {f"value_{number}": value for number, value in enumerate(values)}
        made: Any = enum.Enum("Value", names, type=kind)  # type: ignore[misc]  # its members are data
        return {"type": "enum", "cls": made, "members": list(made), **options}

    def _url(self, node: Core, _place: _Place) -> Core:
        """A URL is parsed only if it is short."""
        options = self._options(node)
        if options.get("max_length", LIMIT) > 8192:
            return {"type": "str"}
        schemes = node.get("allowed_schemes")
        if schemes is not None and not all(type(scheme) is str for scheme in schemes):
            raise _Broken
        return {"type": "url", **options, **({"allowed_schemes": schemes} if schemes else {})}

    def _reference(self, node: Core, place: _Place) -> Core:
        """Inline a named part that does not contain itself: otherwise its width would be unknown."""
        name = node["name"]
        if name not in self._recursive:
            return self._core(self._named[name], place)
        if place.within is not None and not place.consumed:
            raise _Broken  # it would refer to itself without end
        if name not in self._built:
            self._built[name] = None
            self._built[name] = self._core(self._named[name], _Place(1, place.depth, name, consumed=False))
        return {"type": "definition-ref", "schema_ref": name}

    def _descents(self, node: Any, depth: int = 0) -> Iterator[str]:
        """The kinds of parts that a choice looks into."""
        kind = node.get("is")
        if depth > _DEPTH:
            raise _Broken
        if kind in _DESCENDS:
            yield _DESCENDS[kind]
        elif kind == "nullable":
            yield from self._descents(node["of"], depth + 1)
        elif kind == "named":
            yield from self._descents(self._named[node["name"]], depth + 1)
        elif kind == "union":
            inner = [way for choice in node["of"] for way in self._descents(choice, depth + 1)]
            yield from inner

    def _reached(self, name: str) -> Iterator[str]:
        """All named parts to which a named part refers, directly or indirectly."""
        seen: set[str] = set()
        left: list[Any] = [self._named[name]]
        while left:
            part = left.pop()
            if isinstance(part, dict):
                other = str(part.get("name"))
                if part.get("is") == "named" and other in self._named and other not in seen:
                    seen.add(other)
                    yield other
                    left.append(self._named[other])
                left.extend(part.values())
            elif isinstance(part, list):
                left.extend(part)

    def _options(self, node: Core, *, decimals: bool = False) -> Core:
        options: Core = {}
        for name, value in node.items():
            if (
                (name in _FLAGS and type(value) is bool)
                or (name in _WHOLE and type(value) is int and 0 <= value <= 2**31)
                or (name in _WORDS and value in _WORDS[name])
                or (name == "tz_constraint" and (value in ("aware", "naive") or type(value) is int))
            ):
                options[name] = value
            elif name in _NUMBERS and type(value) in (int, float, str) and (decimals or type(value) is not str):
                options[name] = Decimal(str(value)) if decimals else value
            elif name == "pattern" and type(value) is str and self._is_cheap(value):
                options[name] = value
        return options

    def _is_cheap(self, pattern: str) -> bool:
        """Whether a pattern takes little memory: a repetition costs its content, each time."""
        cost = len(pattern)
        for low, high in re.findall(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}", pattern[:_PATTERNS]):
            cost *= max(1, int((high or low)[:9]))
        self._patterns += cost
        return self._patterns <= _PATTERNS


class _Place(NamedTuple):
    """Where a part is: how often it is looked at, how deep, in which recursion, and whether in a container."""

    width: int
    depth: int
    within: str | None
    consumed: bool

    def deeper(self) -> _Place:
        return self._replace(depth=self.depth + 1)

    def inside(self) -> _Place:
        return self._replace(consumed=True)

    def wider(self, times: int) -> _Place:
        return self._replace(width=self.width * times)


def _values(node: Core, kinds: tuple[type, ...]) -> list[Any]:
    values = node["of"]
    if not isinstance(values, list) or not 0 < len(values) <= _VALUES or not all(type(one) in kinds for one in values):
        raise _Broken
    return values


def _overlap(places: list[tuple[str | int, ...]]) -> bool:
    """Whether one of the places equals another, or lies within it."""
    ordered = sorted(places, key=lambda place: [str(part) for part in place])
    return any(second[: len(first)] == first for first, second in pairwise(ordered))
