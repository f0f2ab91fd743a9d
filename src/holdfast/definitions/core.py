"""What pydantic's core schemas consist of, as far as it matters here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "ANY", "AROUND", "CONTAINERS", "CORE_DEPTH", "DICTS", "NESTING", "OBJECTS", "PARTS", "SCALARS", "Core", "at",
    "choices_of", "fields_of", "find", "has_default", "in_trial_order", "init_only_fields", "kind_of", "parts_of",
    "places_of",
]  # fmt: skip

Core = Mapping[str, Any]

ANY: Core = {"type": "any"}

CONTAINERS = frozenset(("list", "deque", "tuple", "set", "frozenset", "dict", "frozen-dict", "ordered-dict", "counter"))
DICTS = frozenset(("dict", "frozen-dict", "ordered-dict", "counter"))
OBJECTS = frozenset(("model-fields", "typed-dict", "dataclass-args", "named-tuple", "arguments"))
#: Types that never accept an object or a list.
SCALARS = frozenset(
    ("none", "bool", "int", "float", "decimal", "str", "bytes", "date", "time", "datetime", "timedelta", "uuid",
     "url", "literal", "enum")
)  # fmt: skip
#: Those of them that never accept a value of Python that is a list or dict, either.
_SINGLE = SCALARS - {"decimal", "literal", "enum"}
#: Pairs of families of which the first one may be tried before the second.
_PASSING = frozenset((("list", "scalar"), ("dict", "scalar")))
_PASSING_IF_SMART = _PASSING | {("list", "object")}
#: These wrap one other schema and pass the value on unchanged.
AROUND = dict.fromkeys(("model", "dataclass", "nullable", "default", "custom-error", "function-after"), "schema") | {
    "definitions": "schema",
    "json-or-python": "json_schema",
    "lax-or-strict": "lax_schema",
    "call": "arguments_schema",
}
#: Where a schema contains other schemas: directly, in a list, or by name. Everything else is data of the type's author.
PARTS = (
    "schema", "items_schema", "keys_schema", "values_schema", "extras_schema", "extras_keys_schema", "json_schema",
    "python_schema", "lax_schema", "strict_schema", "arguments_schema", "fields", "choices", "steps", "definitions",
)  # fmt: skip
#: The types of JSON's objects and lists.
NESTING = frozenset((dict, list))
CORE_DEPTH = 200


def kind_of(part: Core) -> str | None:
    """The kind of a schema; None for a mapping of parts by name, one of which may be called `type`."""
    kind = part.get("type")
    return kind if isinstance(kind, str) else None


def parts_of(part: Core) -> Iterator[Any]:
    """The schemas within a schema, or the members of a mapping of them."""
    if kind_of(part) is not None:
        yield from (value for name, value in part.items() if name in PARTS)
    else:
        yield from part.values()


def choices_of(core: Core) -> list[Core]:
    """The choices of a union, without their labels."""
    return [choice[0] if isinstance(choice, tuple) else choice for choice in core["choices"]]


def in_trial_order(union: Core, choices: list[Any], definitions: Mapping[str, Core]) -> list[Any]:
    """The choices of a union: lists before objects and scalars, and dicts before scalars.

    No value of JSON fits two of these, so the same choice wins. But no copy of a large value is kept because it is not
    a text. A value in Python may fit a list and an object, of which a smart union prefers the object in any order.
    """
    passing = _PASSING_IF_SMART if union.get("mode", "smart") == "smart" else _PASSING
    ordered: list[Any] = []
    kinds: list[str] = []
    for choice in choices:
        kind = _family(choice[0] if isinstance(choice, tuple) else choice, definitions)
        place = len(ordered)
        while place and (kind, kinds[place - 1]) in passing:
            place -= 1
        ordered.insert(place, choice)
        kinds.insert(place, kind)
    return ordered


def _family(core: Core, definitions: Mapping[str, Core]) -> str:
    """What a choice accepts: lists, dicts, the fields of an object, or scalars; empty if it may accept others."""
    kind = core["type"]
    if kind in CONTAINERS:
        return "dict" if kind in DICTS else "list"
    if kind in _SINGLE:
        return "scalar"
    for _ in range(CORE_DEPTH):
        if core["type"] == "definition-ref":
            core = definitions.get(core["schema_ref"], ANY)
        elif core["type"] in ("model", "function-after") and not core.get("custom_init"):
            core = core["schema"]
        else:
            break
    return "object" if core["type"] == "model-fields" else ""


def fields_of(core: Core) -> Iterator[tuple[str, Core]]:
    """The fields of an object, or the parameters of a call, with their names."""
    if core["type"] == "arguments":
        yield from ((field["name"], field) for field in core["arguments_schema"])
        return
    fields = core["fields"]
    yield from fields.items() if isinstance(fields, Mapping) else ((field["name"], field) for field in fields)


def init_only_fields(core: Any, depth: int = 0, dataclass: str = "") -> Iterator[str]:
    """The fields that a dataclass takes but does not keep (`InitVar`)."""
    if depth > CORE_DEPTH:
        return
    if isinstance(core, list | tuple):
        for one in core:
            yield from init_only_fields(one, depth + 1, dataclass)
    elif isinstance(core, Mapping):
        if kind_of(core) == "dataclass-field" and core.get("init_only"):
            yield f"{dataclass}.{core['name']}"
        dataclass = core["dataclass_name"] if kind_of(core) == "dataclass-args" else dataclass
        for one in parts_of(core):
            yield from init_only_fields(one, depth + 1, dataclass)


def has_default(core: Core, definitions: Mapping[str, Core]) -> bool:
    """Whether a field of this type may be left out."""
    for _ in range(CORE_DEPTH):
        if core["type"] == "default":
            return True
        if core["type"] == "definition-ref":
            core = definitions[core["schema_ref"]]
        elif isinstance(core.get("schema"), Mapping):
            core = core["schema"]
        else:
            return False
    return True


def places_of(name: str, field: Core, config: Core) -> list[list[str | int]]:
    """The places of a field in the payload, in the order in which they are tried."""
    alias = field.get("validation_alias")
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    if alias is None:
        return [[name]]
    if isinstance(alias, str):
        places: list[list[str | int]] = [[alias]]
    else:
        places = [list(path) for path in alias] if isinstance(alias[0], list) else [list(alias)]
    if config.get("validate_by_alias", True) is False:
        places = []
    return [*places, [name]] if by_name or not places else places


def find(name: str, field: Core, value: Core) -> tuple[Sequence[str | int], Any] | None:
    """Where a field stands in an object, and its value; None if it is missing."""
    alias = field.get("validation_alias") or field.get("alias") or name
    paths = [[alias]] if isinstance(alias, str) else alias if isinstance(alias[0], list) else [alias]
    for path in (*paths, [name]):
        found, is_there = at(value, path)
        if is_there:
            return path, found
    return None


def at(value: Any, path: Sequence[str | int]) -> tuple[Any, bool]:
    """The value at a path, and whether there is one."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None, False
    return value, True
