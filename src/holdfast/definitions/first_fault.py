"""A pydantic validator for payloads from outside: it accepts the same values, and refuses others at a bounded cost.

pydantic lists every fault, with its path and a copy of the value. A megabyte of `{}` for a list of models with twenty
fields makes six million faults, in gigabytes of memory. Here the cost of a refusal is bounded:

1. A list, dict, set or tuple stops at its first bad item. Only the faults of nested objects can still be many.
2. Each fault of an object repeats the keys that lead to it. An object with many members below very long keys is
   refused without validation.
3. Each missing field copies the object that lacks it, each unknown field is a fault, and a union collects the faults of
   all its choices. `_Estimate` adds up what these would take, and refuses what would take too much.
4. Where a type contains itself by way of a union, each level may try the rest of the value several times, and a few
   hundred bytes would take forever. Such a payload is first validated with a counter, which ends it.
5. Validators of the type's author run before pydantic's own. The estimate takes it that they pass the value on, or
   that they parse a text, as `Json` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import repeat
from typing import Any, AnyStr, Protocol

from pydantic_core import SchemaError, SchemaValidator, ValidationError, from_json, to_json

__all__ = ["FirstFault", "TooCostly", "Validator"]

Core = Mapping[str, Any]

_CONTAINERS = frozenset(
    ("list", "deque", "tuple", "set", "frozenset", "dict", "frozen-dict", "ordered-dict", "counter")
)
_DICTS = frozenset(("dict", "frozen-dict", "ordered-dict", "counter"))
_OBJECTS = frozenset(("model-fields", "typed-dict", "dataclass-args"))
#: Types that never accept an object or a list.
_SCALARS = frozenset(
    ("none", "bool", "int", "float", "decimal", "str", "bytes", "date", "time", "datetime", "timedelta", "uuid",
     "url", "literal", "enum")
)  # fmt: skip
#: These wrap one other schema and pass the value on unchanged.
_AROUND = dict.fromkeys(("model", "dataclass", "nullable", "default", "custom-error", "function-after"), "schema") | {
    "definitions": "schema",
    "json-or-python": "json_schema",
    "lax-or-strict": "lax_schema",
}
#: These parse a text, or may do so.
_PARSING = frozenset(("json", "function-before", "function-wrap"))
#: Where a schema contains other schemas: directly, in a list, or by name. Everything else is data of the type's author.
_PARTS = (
    "schema", "items_schema", "keys_schema", "values_schema", "extras_schema", "extras_keys_schema", "json_schema",
    "python_schema", "lax_schema", "strict_schema", "arguments_schema", "fields", "choices", "steps", "definitions",
)  # fmt: skip
_NESTING = frozenset((dict, list))
_DEPTH = 200
#: A shorter text cannot take much memory, whatever it contains; for a recursive type, every level may copy it.
_SHORT, _SHORT_RECURSIVE = 16 * 1024, 2 * 1024
#: How many bytes of keys the faults of one object may repeat.
_REPEATED = 16 * 2**20
#: How many bytes of memory all faults may take, including copies of values.
_COPIED = 64 * 2**20
#: The memory of a fault besides its copy, and of each value in a copy besides its text.
_FAULT, _VALUE = 1_200, 64
#: How many values the estimate visits: within a recursive type, a union visits them again and again.
_LOOKS = 1_000_000
#: How often parts of a value may be tried before the tries are counted; how often they may be tried, counted, times the
#: levels of the value, because each fault has a path; and how often each part may be in any case.
_UNCOUNTED_TRIES, _TRIES_TIMES_LEVELS, _TRIES_EACH = 100_000, 1_600_000, 20
#: What its author can do about it.
_TOO_MANY_TRIES = "a union within itself would try its choices too many times: give it a discriminator"


class Validator(Protocol):
    """The part of pydantic's validators that is used here."""

    def validate_json(self, data: str, /) -> Any:
        """The value of a text. Raises ValidationError if it does not fit."""

    def validate_python(self, data: Any, /) -> Any:
        """The same for a value."""


class TooCostly(ValueError):
    """The payload does not fit, or validating it would take too much memory."""


class _TooManyTriesError(Exception):
    """Ends a validation: pydantic takes ValueError for a fault, and everything else for an end."""


class FirstFault:
    """Validates JSON texts at a bounded cost."""

    def __init__(self, core_schema: Core, otherwise: Validator | None = None) -> None:
        """Create it. Raises SchemaError if pydantic cannot build such a validator and there is no other one."""
        self._core = core_schema
        self._definitions: dict[str, Core] = {}
        self._is_recursive = False
        self._most_choices = 0
        #: How many times its own size the faults of a value may take, at one level of a recursive type.
        self._weight = self._weigh(core_schema, 0)
        self._validator: Validator
        self._tries: _Tries | None = None
        try:
            # By default nested models would use the validators that they already have.
            self._validator = SchemaValidator(_stopping(core_schema, 0), _use_prebuilt=False)
        except (SchemaError, TypeError, RecursionError):
            if otherwise is None:
                raise
            self._validator = otherwise
        if self._is_recursive and self._most_choices > 1:
            with suppress(SchemaError, TypeError, RecursionError):
                self._tries = _Tries(core_schema, self._most_choices)

    def validate(self, text: str) -> Any:
        """The value; ValidationError or TooCostly if the text does not fit."""
        if self._tries is not None:
            self._tries.count_text(text)
        if len(text) > (_SHORT_RECURSIVE if self._is_recursive else _SHORT) and not _takes_any_object(self._core):
            value = from_json(text)
            _refuse_long_keys(value)
            weight = self._weight * (min(_DEPTH, text.count("{") + text.count("[")) if self._is_recursive else 1)
            if _size(text, ",", "[", "{") * weight > _COPIED:
                with suppress(RecursionError):  # pydantic then refuses it as too deep
                    _Estimate(self._definitions, weight).look(self._core, value, 0)
            del value
        return self._validator.validate_json(text)

    def check(self, value: Any) -> Any:
        """The value of a value in Python. Raises ValidationError or TooCostly if it does not fit."""
        if self._tries is not None:
            self._tries.count(value)
        return self._validator.validate_python(value)

    def _weigh(self, part: Any, depth: int) -> int:
        """How much faults multiply a value: missing fields and unions copy it. Also collects the definitions."""
        if depth > _DEPTH:
            return _COPIED
        if isinstance(part, list | tuple):
            return sum(self._weigh(one, depth + 1) for one in part)
        if not isinstance(part, Mapping):
            return 0
        kind = part.get("type")
        if isinstance(ref := part.get("ref"), str):
            self._definitions[ref] = part
        weight = 0
        if kind in _OBJECTS:
            weight = len(part["fields"]) + _FAULT // _VALUE
        elif kind == "union":
            weight = len(part["choices"])
            self._most_choices = max(self._most_choices, weight)
        elif kind == "definition-ref":
            self._is_recursive = True  # perhaps
        return weight + sum(self._weigh(one, depth + 1) for one in _parts_of(part))


class _Left(threading.local):
    """How many tries are left."""

    tries = 0


class _Tries:
    """Counts how often pydantic tries parts of a value. It validates Python objects, which have no copies.

    Threads count for themselves: pydantic lets others run while it calls the counter.
    """

    def __init__(self, core: Core, choices: int) -> None:
        self._choices, self._left = choices, _Left()
        self._validator = SchemaValidator(_stopping(core, 0, self._counted), _use_prebuilt=False)

    def count_text(self, text: str) -> None:
        """Raises TooCostly if there would be too many tries."""
        if text.count("{") + text.count("[") < _UNCOUNTED_TRIES.bit_length() / self._choices.bit_length():
            return  # it is not deep enough, whatever is in it
        try:
            value = from_json(text)
        except ValueError:
            return  # pydantic refuses it
        self.count(value, copied=True)

    def count(self, value: Any, *, copied: bool = False) -> None:
        """Raises TooCostly if there would be too many tries, each of which may have copied the whole value."""
        parts, depth = _extent(value)
        if parts * self._choices**depth <= _UNCOUNTED_TRIES:
            return
        self._left.tries = most = _TRIES_TIMES_LEVELS // depth + _TRIES_EACH * parts
        try:
            self._validator.validate_python(value)
        except _TooManyTriesError:
            raise TooCostly(_TOO_MANY_TRIES) from None
        except ValidationError as fault:
            if copied and (most - self._left.tries) * _copy_size(value) > _COPIED:
                raise TooCostly(
                    fault.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
                ) from None

    def _counted(self, core: Core) -> Core:
        """The same schema, which counts where it is one that contains itself, and takes for valid what JSON has."""
        ref = core.get("ref")
        if core["type"] == "json-or-python":
            core = core["json_schema"]
        core = {name: part for name, part in core.items() if name not in ("strict", "ref")}
        if ref is None:
            return core
        counter = {"type": "no-info", "function": self._try}
        return {"type": "function-before", "function": counter, "schema": core, "ref": ref}

    def _try(self, value: Any) -> Any:
        self._left.tries -= 1
        if self._left.tries < 0:
            raise _TooManyTriesError
        return value


class _Estimate:
    """The memory that the faults of a value would take. It visits values in pydantic's order, so both stop alike."""

    def __init__(self, definitions: Mapping[str, Core], weight: int) -> None:
        self._definitions, self._weight = definitions, weight
        self._looks, self._spent = _LOOKS, 0
        #: The configuration of the model whose fields are visited next.
        self._config: Core = {}
        #: What was found, by schema and value, and what it costs. The values are kept, so that their ids are.
        self._found: dict[tuple[int, int], tuple[bool, int, Any]] = {}
        self._sizes: dict[int, tuple[int, Any]] = {}

    def look(self, core: Core, value: Any, depth: int) -> bool:
        """Whether the value certainly does not fit. Raises TooCostly if all faults so far would take too much."""
        self._looks -= 1
        if depth > _DEPTH or self._looks < 0 or not _is_large(value):
            return False  # unknown, or of no matter: a scalar is small
        key = id(core), id(value)
        if key in self._found:
            unfit, cost, _ = self._found[key]
            self._spend(cost, "the choices of a union do not fit a large value")
            return unfit
        before = self._spent
        unfit = self._judge(core, value, depth)
        self._found[key] = unfit, self._spent - before, value
        return unfit

    def _judge(self, core: Core, value: Any, depth: int) -> bool:
        core, parsed = self._unwrapped(core, value)
        if parsed is not value:
            _refuse_long_keys(value := parsed)
        if type(value) not in _NESTING:
            return False
        kind = core["type"]
        if kind == "union":
            return self._union(core, value, depth)
        if kind == "tagged-union":
            return self._tagged(core, value, depth)
        is_object = type(value) is dict
        if kind in _SCALARS or (kind in _OBJECTS and not is_object) or (kind in _CONTAINERS and self._odd(kind, value)):
            self._spend(self._size_of(value), f"{kind} is expected in place of a large value")
            return True
        if kind in _OBJECTS:
            return self._object(core, value, depth + 1)
        return self._items(core, value, depth + 1) if kind in _CONTAINERS else False

    def _size_of(self, value: Any) -> int:
        if id(value) not in self._sizes:
            self._sizes[id(value)] = _copy_size(value), value
        return self._sizes[id(value)][0]

    def _unwrapped(self, core: Core, value: Any) -> tuple[Core, Any]:
        """What judges the value, and the value that it judges."""
        for _ in range(_DEPTH):
            kind = core["type"]
            if kind in ("model", "dataclass"):
                self._config = core.get("config") or {}
            if kind in _PARSING:
                if "schema" not in core:
                    break
                core, value = core["schema"], _parsed(value) if isinstance(value, str) else value
            elif kind in _AROUND:
                core = core[_AROUND[kind]]
            elif kind == "definition-ref":
                core = self._definitions[core["schema_ref"]]
            elif kind == "chain":
                core = core["steps"][0]
            else:
                break
        return core, value

    @staticmethod
    def _odd(kind: str, value: Any) -> bool:
        return (kind in _DICTS) != (type(value) is dict)

    def _object(self, core: Core, value: dict[str, Any], depth: int) -> bool:
        lacking, given, is_open = list[str](), list[tuple[str, Core]](), False
        config = {**self._config, **(core.get("config") or {})}
        forbids = (core.get("extra_behavior") or config.get("extra_fields_behavior")) == "forbid"
        for name, field in _fields_of(core):
            places = _places(name, field)
            is_open = is_open or not places
            place = next((one for one in places if one in value), None)
            if place is not None:
                given.append((place, field["schema"]))
            elif places and field.get("required", core.get("total", True)) and not _has_default(field["schema"]):
                lacking.append(name)
        if lacking:
            missing = f"fields are missing in a large object: {', '.join(lacking[:20])}"
            self._spend(len(lacking) * self._size_of(value), missing)
        unknown = len(value) - len(given) if forbids and not is_open else 0
        self._spend(unknown * _FAULT, f"an object has {unknown} unknown fields")
        unfit = bool(lacking) or unknown > 0
        for place, schema in given:
            unfit = self.look(schema, value[place], depth) or unfit
        return unfit

    def _items(self, core: Core, value: Any, depth: int) -> bool:
        inside = list(value.values()) if type(value) is dict else value
        items = core.get("values_schema" if type(value) is dict else "items_schema", {"type": "any"})
        for item, inner in zip(items if isinstance(items, list) else repeat(items), inside, strict=False):
            if not _is_large(inner) or self._size_of(inner) * self._weight <= _COPIED:
                continue
            before = self._spent
            if self.look(item, inner, depth):
                return True
            self._spent = before  # the faults of a union are dropped once a choice fits
        return False

    def _union(self, core: Core, value: Any, depth: int) -> bool:
        unfit = True
        for choice in core["choices"]:
            unfit = self.look(choice[0] if isinstance(choice, tuple) else choice, value, depth) and unfit
        return unfit

    def _tagged(self, core: Core, value: Any, depth: int) -> bool:
        by, choices = core["discriminator"], core["choices"]
        tag = None
        if callable(by):
            with suppress(Exception):  # it is the author's
                tag = by(value)
        elif type(value) is dict:
            paths = [[by]] if isinstance(by, str) else by if isinstance(by[0], list) else [by]
            tag = next((value[path[0]] for path in paths if len(path) == 1 and path[0] in value), None)
        choice = choices.get(tag) if isinstance(tag, str | int) else None
        if isinstance(choice, str | int):
            choice = choices.get(choice)
        return self.look(choice, value, depth) if isinstance(choice, Mapping) else False

    def _spend(self, size: int, why: str) -> None:
        self._spent += size
        if self._spent > _COPIED:
            raise TooCostly(why)


def _is_large(value: Any) -> bool:
    """Whether faults of it may take much memory; a text may be parsed."""
    return type(value) in _NESTING or (type(value) is str and len(value) > _SHORT_RECURSIVE)


def _parsed(text: str) -> Any:
    """What a text says; the text itself if it is no JSON."""
    try:
        return from_json(text)
    except ValueError:
        return text


def _copy_size(value: Any) -> int:
    return _size(to_json(value), b",", b"[", b"{")


def _size(text: AnyStr, *structure: AnyStr) -> int:
    """The approximate memory of a copy of the value. Commas within strings count, too."""
    return len(text) + _VALUE * sum(text.count(sign) for sign in structure)


def _refuse_long_keys(value: Any) -> None:
    left = [(value, 0)] if type(value) in _NESTING else []
    while left:
        value, path = left.pop()
        is_object = type(value) is dict
        if is_object and len(value) * path > _REPEATED:
            raise TooCostly(f"an object with {len(value)} members stands below keys of {path} characters")
        if _NESTING.isdisjoint(map(type, value.values() if is_object else value)):
            continue
        if is_object:
            left.extend([(inner, path + len(key)) for key, inner in value.items() if type(inner) in _NESTING and inner])
        else:
            left.extend([(inner, path) for inner in value if type(inner) in _NESTING and inner])


def _extent(value: Any) -> tuple[int, int]:
    """How many objects and lists it consists of, and how deep they are nested."""
    parts = depth = 0
    level = [value] if type(value) in _NESTING else []
    while level and depth <= _DEPTH:  # a value in Python may contain itself
        parts, depth = parts + len(level), depth + 1
        level = [
            inner for one in level for inner in (one.values() if type(one) is dict else one) if type(inner) in _NESTING
        ]
    return parts, depth


def _takes_any_object(core: Core) -> bool:
    keys, values = (core.get(part, {"type": "any"})["type"] for part in ("keys_schema", "values_schema"))
    return core["type"] == "dict" and keys in ("any", "str") and values == "any"


def _fields_of(core: Core) -> Iterator[tuple[str, Core]]:
    fields = core["fields"]
    yield from fields.items() if isinstance(fields, Mapping) else ((field["name"], field) for field in fields)


def _has_default(core: Core) -> bool:
    while core["type"] != "default":
        if not isinstance(core.get("schema"), Mapping):
            return False
        core = core["schema"]
    return True


def _places(name: str, field: Core) -> list[str]:
    """The keys by which a field may be given; none if it may also be outside of its object."""
    alias = field.get("validation_alias", name)
    paths = [[alias]] if isinstance(alias, str) else alias if isinstance(alias[0], list) else [alias]
    return [name, *(path[0] for path in paths)] if all(len(path) == 1 for path in paths) else []


def _parts_of(part: Core) -> Iterator[Any]:
    if isinstance(part.get("type"), str):
        yield from (value for name, value in part.items() if name in _PARTS)
    else:  # parts by name, one of which may be called `type`
        yield from part.values()


def _stopping(part: Any, depth: int, also: Callable[[Core], Core] = lambda core: core) -> Any:
    if depth > _DEPTH:
        raise RecursionError
    if isinstance(part, list | tuple):  # a tuple is a choice of a union with its label
        return type(part)(_stopping(one, depth + 1, also) for one in part)
    if not isinstance(part, Mapping):
        return part
    if not isinstance(part.get("type"), str):
        return {name: _stopping(one, depth + 1, also) for name, one in part.items()}
    made = {name: _stopping(value, depth + 1, also) if name in _PARTS else value for name, value in part.items()}
    return also({**made, "fail_fast": True} if part["type"] in _CONTAINERS else made)
