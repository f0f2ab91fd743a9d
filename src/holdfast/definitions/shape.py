"""Describes which payloads a handler accepts, so that other processes can judge a payload as the handler would.

A JSON schema cannot express this: pydantic coerces ("5" is an int), and its JSON schema does not say so. So workers
publish the core schema of pydantic's own validator, as far as it is plain data; `holdfast.definitions.judge` builds a
validator from it.

1. A shape accepts everything that its handler accepts. Parts that it cannot express (the handler's own code, a type
   that is not known here) accept anything; only the handler knows better.
2. Two processes with the same code write the same shape.
3. A shape that would be too large is not written: then everything is accepted.

::

    {"dialect": 1, "shape": NODE, "named": {"1": NODE}}   NODE = {"is": "int", "ge": 0}, {"is": "named", "name": "1"}, …
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from holdfast.definitions.core import places_of

__all__ = ["ANYTHING", "DIALECT", "LIMIT", "describe"]

DIALECT = 1
#: The maximal number of characters of a shape; the engine refuses more.
LIMIT = 65_536
_NODES, _DEPTH = 3_000, 40

Node = dict[str, Any]
Config = Mapping[str, Any]

ANYTHING: Node = {"is": "any"}

_RANGE = ("ge", "gt", "le", "lt", "multiple_of")
_LENGTHS = ("min_length", "max_length")
#: Types without parts, and their options that decide whether a value is accepted. Limits of moments ("in the past") are
#: left out: they are checked when the job runs.
_SCALARS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "bool": ("strict",),
    "int": ("strict", *_RANGE),
    "float": ("strict", "allow_inf_nan", *_RANGE),
    "decimal": ("strict", "allow_inf_nan", "max_digits", "decimal_places", *_RANGE),
    "str": (
        "strict", *_LENGTHS, "pattern", "strip_whitespace", "to_lower", "to_upper", "coerce_numbers_to_str",
    ),
    "bytes": ("strict",),
    "date": ("strict",),
    "time": ("strict", "tz_constraint", "microseconds_precision"),
    "datetime": ("strict", "tz_constraint", "microseconds_precision"),
    "timedelta": ("strict", "microseconds_precision"),
    "uuid": ("strict", "version"),
    "url": ("strict", "max_length", "allowed_schemes", "host_required"),
}  # fmt: skip
#: Options of a type that a model's configuration can set instead.
_CONFIGURED: Mapping[tuple[str, str], str] = {
    ("str", "min_length"): "str_min_length",
    ("str", "max_length"): "str_max_length",
    ("str", "strip_whitespace"): "str_strip_whitespace",
    ("str", "to_lower"): "str_to_lower",
    ("str", "to_upper"): "str_to_upper",
    ("str", "coerce_numbers_to_str"): "coerce_numbers_to_str",
    ("float", "allow_inf_nan"): "allow_inf_nan",
    ("decimal", "allow_inf_nan"): "allow_inf_nan",
}
_COLLECTIONS = ("list", "set", "frozenset")
#: What a judge can make a set of, whatever it contains.
_HASHABLE = frozenset((*_SCALARS, "literal", "enum"))
#: Wrap another schema, which alone decides what is accepted, or accept less than it does.
_TRANSPARENT = ("function-after", "custom-error", "default")
#: Schemas that may contain a default.
_AROUND = (*_TRANSPARENT, "function-before", "function-wrap", "nullable")


class _TooLarge(Exception):
    """The shape is too large."""


def describe(core_schema: Any) -> Node | None:
    """The shape of the values that a pydantic schema accepts; None if it accepts everything or is too large."""
    try:
        describer = _Describer(core_schema)
        root = describer.node(core_schema, {}, 0)
        shape = {"dialect": DIALECT, "shape": root, "named": describer.named}
        return None if root == ANYTHING or len(json.dumps(shape)) > LIMIT else shape
    except Exception:  # noqa: BLE001 - foreign types, and later releases of pydantic, may bring anything
        return None


class _Describer:
    """Walks through one schema."""

    def __init__(self, core_schema: Mapping[str, Any]) -> None:
        self.named: dict[str, Node] = {}
        self._names: dict[str, str] = {}
        self._definitions: dict[str, Mapping[str, Any]] = {}
        self._nodes = 0
        self._special: Mapping[str, Callable[[Mapping[str, Any], Config, int], Node]] = {
            "definitions": self._of_definitions,
            "definition-ref": self._reference,
            "model": self._model,
            "dataclass": self._dataclass,
            "model-fields": self._fields,
            "typed-dict": self._fields,
            "dataclass-args": self._fields,
            "nullable": self._nullable,
            "union": self._union,
            "tagged-union": self._tagged,
            "tuple": self._tuple,
            "dict": self._dict,
            "literal": self._literal,
            "enum": self._enum,
            "function-wrap": self._wrapped,
            "lax-or-strict": self._lax_or_strict,
        }
        self._define(core_schema)

    def node(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        """The shape of one part."""
        self._nodes += 1
        if self._nodes > _NODES or depth > _DEPTH:
            raise _TooLarge
        kind = schema["type"]
        if kind in self._special:
            return self._special[kind](schema, config, depth + 1)
        if kind in _SCALARS:
            return _scalar(kind, schema, config)
        if kind in _COLLECTIONS:
            return self._collection(schema, config, depth)
        if kind in _TRANSPARENT:
            if schema.get("on_error", "raise") != "raise":
                return ANYTHING
            return self.node(schema["schema"], config, depth + 1)
        if kind == "json-or-python":
            return self.node(schema["json_schema"], config, depth + 1)
        if kind == "chain":
            return self.node(schema["steps"][0], config, depth + 1)
        return ANYTHING

    def _part(self, schema: Mapping[str, Any], name: str, config: Config, depth: int) -> Node:
        return self.node(schema[name], config, depth) if schema.get(name) is not None else ANYTHING

    def _define(self, schema: Mapping[str, Any]) -> None:
        for definition in schema.get("definitions", ()):
            self._definitions[definition["ref"]] = definition

    def _of_definitions(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        self._define(schema)
        return self.node(schema["schema"], config, depth)

    def _reference(self, schema: Mapping[str, Any], _config: Config, depth: int) -> Node:
        """Refer by a number: pydantic's own names contain memory addresses."""
        ref = schema["schema_ref"]
        if ref not in self._names:
            name = self._names[ref] = str(len(self._names) + 1)
            self.named[name] = self.node(self._definitions[ref], {}, depth)
        return {"is": "named", "name": self._names[ref]}

    def _model(self, schema: Mapping[str, Any], _config: Config, depth: int) -> Node:
        if schema.get("custom_init"):
            return ANYTHING
        return self.node(schema["schema"], schema.get("config") or {}, depth)

    def _dataclass(self, schema: Mapping[str, Any], _config: Config, depth: int) -> Node:
        return self.node(schema["schema"], schema.get("config") or {}, depth)

    def _fields(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        config = {**config, **(schema.get("config") or {})}
        given = schema["fields"]
        fields = given.items() if isinstance(given, Mapping) else ((field["name"], field) for field in given)
        extra = schema.get("extra_behavior") or config.get("extra_fields_behavior") or "ignore"
        node: Node = {"is": "object", "extra": extra, "fields": {}}
        for name, field in fields:
            if field.get("init", True) is False:
                node["fields"][name] = {"shape": ANYTHING}
                continue
            node["fields"][name] = {"shape": self.node(field["schema"], config, depth)}
            required = field.get("required", schema.get("total", True))
            if required and not self._has_default(field["schema"], 0):
                node["fields"][name]["required"] = True
            if (places := places_of(name, field, config)) != [[name]]:
                node["fields"][name]["at"] = places
        if extra == "allow" and schema.get("extras_schema") is not None:
            node["extras"] = self.node(schema["extras_schema"], config, depth)
        return node

    def _has_default(self, schema: Mapping[str, Any], depth: int) -> bool:
        """Whether a field may be left out. If that is hard to tell, it may."""
        if depth > _DEPTH:
            return True
        kind = schema["type"]
        if kind == "default":
            return True
        inner: Iterable[Mapping[str, Any]] = ()
        if kind in _AROUND:
            inner = (schema["schema"],)
        elif kind == "definition-ref":
            inner = (self._definitions[schema["schema_ref"]],)
        elif kind == "chain":
            inner = schema["steps"]
        elif kind in ("json-or-python", "lax-or-strict"):
            inner = (value for name, value in schema.items() if name.endswith("_schema"))
        return any(self._has_default(part, depth + 1) for part in inner)

    def _nullable(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        inner = self.node(schema["schema"], config, depth)
        return ANYTHING if inner == ANYTHING else {"is": "nullable", "of": inner}

    def _union(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        choices = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
        nodes = [self.node(choice, config, depth) for choice in choices]
        return ANYTHING if ANYTHING in nodes else {"is": "union", "of": nodes}

    def _tagged(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        by, choices = schema["discriminator"], schema["choices"]
        if callable(by) or not all(type(tag) is str for tag in choices):
            return self._union({"choices": list(choices.values())}, config, depth)
        return {"is": "tagged", "by": by, "of": {tag: self.node(choices[tag], config, depth) for tag in choices}}

    def _tuple(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        node: Node = {"is": "tuple", "of": [self.node(item, config, depth) for item in schema["items_schema"]]}
        return node | _options(schema, config, "tuple", ("strict", "variadic_item_index", *_LENGTHS))

    def _collection(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        kind, items = schema["type"], self._part(schema, "items_schema", config, depth + 1)
        if kind != "list" and items["is"] not in _HASHABLE:
            # Judges make dicts of objects, of which there are no sets. Without one, equal items count several times.
            return {"is": "list", "of": items, **_options(schema, config, kind, ("strict", "min_length"))}
        return {"is": kind, "of": items, **_options(schema, config, kind, ("strict", *_LENGTHS))}

    def _dict(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        return {
            "is": "dict",
            "keys": self._part(schema, "keys_schema", config, depth),
            "of": self._part(schema, "values_schema", config, depth),
            **_options(schema, config, "dict", ("strict", *_LENGTHS)),
        }

    def _literal(self, schema: Mapping[str, Any], _config: Config, _depth: int) -> Node:
        expected = list(schema["expected"])
        if not all(value is None or type(value) in (str, int, bool) for value in expected):
            return ANYTHING
        return {"is": "literal", "of": expected}

    def _enum(self, schema: Mapping[str, Any], config: Config, _depth: int) -> Node:
        values = [member.value for member in schema["members"] if isinstance(member, enum.Enum)]
        if _has_other_values(schema["cls"]) or not all(type(value) in (str, int, float) for value in values):
            return ANYTHING
        return {"is": "enum", "of": values, **_options(schema, config, "enum", ("strict", "sub_type"))}

    def _wrapped(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        """Foreign code may accept anything. pydantic's own wrapper for network addresses only converts them."""
        ours = getattr(schema["function"]["function"], "__module__", None) == "pydantic.networks"
        return self.node(schema["schema"], config, depth) if ours else ANYTHING

    def _lax_or_strict(self, schema: Mapping[str, Any], config: Config, depth: int) -> Node:
        strict = schema.get("strict", config.get("strict", False))
        return self.node(schema["strict_schema" if strict else "lax_schema"], config, depth)


def _scalar(kind: str, schema: Mapping[str, Any], config: Config) -> Node:
    options = _options(schema, config, kind, _SCALARS[kind])
    engine = schema.get("regex_engine") or config.get("regex_engine") or "rust-regex"
    if engine != "rust-regex":
        options.pop("pattern", None)
    if kind in ("date", "datetime") and config.get("val_temporal_unit", "infer") != "infer":
        return ANYTHING
    return {"is": kind, **options}


def _options(schema: Mapping[str, Any], config: Config, kind: str, names: Iterable[str]) -> Node:
    """The options that are given and plain data; leaving one out accepts more."""
    found = {}
    for name in names:
        value = schema.get(name)
        if value is None:
            value = config.get("strict" if name == "strict" else _CONFIGURED.get((kind, name), ""))
        if isinstance(value, Decimal):
            value = str(value)
        if _is_plain(value):
            found[name] = value
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(type(part) is str for part in value)
    return type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))


def _has_other_values(cls: type[enum.Enum]) -> bool:
    """Whether code decides about values that no member has: flags are combined, and `_missing_` may find a member."""
    return getattr(cls._missing_, "__func__", None) is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]
