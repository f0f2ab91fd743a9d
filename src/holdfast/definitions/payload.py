"""Payloads, typed by a handler's annotations: checked when enqueued and again when run.

A handler takes `ctx` and then either one payload (a pydantic model, a dataclass, a TypedDict or a plain
dict) or keyword arguments. Both become one pydantic validator; in the database a payload is a JSON object.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import SimpleNamespace
from typing import Any, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic_core import PydanticSerializationError, SchemaSerializer, from_json, to_json

from holdfast.definitions.core import has_other_keys, init_only_fields
from holdfast.definitions.first_fault import FirstFault, Unfit
from holdfast.definitions.judge import Fault, faults_of
from holdfast.definitions.shape import describe
from holdfast.errors import InvalidInput, InvalidPayload, ResultTooLarge
from holdfast.model.foreign import message_of, name_of

__all__ = ["JsonText", "Payload", "encode_plain", "encode_result", "encode_value"]

#: JSON writes NUL as \u0000, which PostgreSQL's jsonb cannot hold.
_NUL = "\\u0000"
#: A NUL itself, and not an escaped backslash that is followed by these letters.
_NUL_ITSELF = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
#: How pydantic writes a number that was too large to be read.
_INFINITY = "Infinity"
#: PostgreSQL stores longer whole numbers, but Python does not read them.
_DIGITS = 4300
_DECIMAL = "0123456789"

#: How pydantic writes a SecretStr.
_MASKED = '"**********"'

#: Types whose values JSON represents exactly. A float is not one of them: JSON has no infinity.
_PLAIN = (str, int, bool)
_NO_FLOATS = (*_PLAIN, str | None, int | None, bool | None)

#: Types that become lists.
_LISTS = (list, tuple, set, frozenset, deque)

#: Values that every JSON encoder writes in the same way; for all others the standard library decides what is JSON.
_SIMPLE, _TEXT = frozenset((str, int, bool, type(None))), frozenset((str,))

#: Converts values of any type as `to_json` does, but leaves numbers as they are. A TypeAdapter would cost each process
#: that imports this module 20 ms.
_ANY = SchemaSerializer({"type": "any"})
#: Fails if there is an infinite number, NaN, or an unusual value: much faster than searching for it in Python.
_try = json.JSONEncoder(allow_nan=False, default=lambda value: list(value) if isinstance(value, _LISTS) else 0).encode
_write = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


class Payload:
    """How the payload of one handler is checked, written and read."""

    #: How often a part of a payload is looked at: see holdfast.definitions.judge.
    weight = 1

    def __init__(self, job_type: str, handler: Callable[..., Any]) -> None:
        self._job_type = job_type
        parameters = list(inspect.signature(handler).parameters.values())[1:]
        hints = _hints(job_type, handler, [p.name for p in parameters])
        self._names: list[str] | None = None
        self._single: str | None = None
        # pydantic accepts instances of models and dataclasses without checking their fields. Only a payload that was
        # written and read again will certainly be accepted by the handler, too.
        self._reread = not all(hints.get(p.name) in _PLAIN and p.default is p.empty for p in parameters)
        self._may_have_floats = not all(hints.get(p.name) in _NO_FLOATS for p in parameters)
        if len(parameters) == 1 and _is_whole(hints.get(parameters[0].name), parameters[0].name):
            self._single = parameters[0].name
            annotation = hints.get(self._single, dict[str, Any])
            self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        else:
            self._names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
            open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
            fields: dict[str, Any] = {
                p.name: (hints.get(p.name, Any), ... if p.default is p.empty else p.default)
                for p in parameters
                if p.name in self._names
            }
            model = create_model(
                f"{job_type} payload",
                __config__=ConfigDict(
                    extra="allow" if open_ended else "forbid", arbitrary_types_allowed=True, protected_namespaces=()
                ),
                **fields,
            )
            self._adapter = TypeAdapter(model)
        self._may_have_other_keys = has_other_keys(self._adapter.core_schema)
        if (lost := next(init_only_fields(self._adapter.core_schema), None)) is not None:
            raise InvalidInput(
                f"job type {job_type!r}: {lost} is an InitVar, which a dataclass does not keep; it would be lost: "
                "make it a field, or compute what depends on it before the job is enqueued"
            )

    def schema(self) -> dict[str, Any] | None:
        """The payload's JSON schema, for information; None if a type has none."""
        try:
            return self._adapter.json_schema()
        except Exception:  # noqa: BLE001 - foreign types may fail in any way, and a schema is a courtesy
            return None

    def shape(self) -> dict[str, Any] | None:
        """The shape by which others judge payloads; None if it cannot be described: then everything is accepted."""
        return describe(self._adapter.core_schema)

    def faults(self, text: str) -> list[Fault]:
        """The faults of a payload from outside; empty if the handler accepts it."""
        try:
            self._validator.validate(text)
        except ValidationError as fault:
            return faults_of(fault, text)
        except Unfit as fault:
            return [Fault.of(fault)]
        except Exception as fault:  # noqa: BLE001 - types may have code of their own
            return [Fault("", f"{name_of(fault)}: {message_of(fault)}")]
        return []

    def refuse_missing(self, what: str, path: str) -> None:
        """Raise InvalidInput if, by its type, no payload can have a field of this (dotted) name."""
        schema = self.schema() or {}
        nodes = [schema]
        for part in path.split("."):
            fields = [_fields(inner) for node in nodes for inner in _alternatives(node, schema)]
            if not fields or None in fields:
                return
            known = sorted({name for some in fields for name in some or ()})
            nodes = [some[part] for some in fields if some and part in some]
            if not nodes:
                raise InvalidInput(
                    f"job type {self._job_type!r}: the key of its {what} is not a field of the payload: "
                    f"{path!r}; {'it has ' + ', '.join(known) if known else 'it has none'}"
                )

    def encode(self, value: Any) -> str:
        """Check a payload (or the keyword arguments as a mapping) and write it as JSON text."""
        try:
            checked = self._validator.check(from_json(value) if type(value) is JsonText else value)
            text = self._adapter.dump_json(checked, by_alias=True, round_trip=True, warnings="none").decode()
            if self._may_have_floats and "null" in text:
                left = self._adapter.dump_python(checked, by_alias=True, round_trip=True, warnings="none")
                _refuse_lost_numbers(left, text, f"the payload of {self._job_type}")
            if self._may_have_other_keys:
                _refuse_equal_keys(
                    self._adapter.dump_python(checked, by_alias=True, round_trip=True, warnings="none"),
                    to_json,
                    f"the payload of {self._job_type}",
                )
            if self._reread:
                self._validator.validate(text)
        except (ValidationError, Unfit) as fault:
            raise InvalidPayload(f"{self._job_type}: {_readable(fault)}") from None
        except (PydanticSerializationError, UnicodeEncodeError) as fault:
            raise InvalidPayload(f"{self._job_type}: the payload cannot be written as JSON: {fault}") from None
        if _MASKED in text:
            raise InvalidPayload(
                f"{self._job_type}: a secret would be stored as asterisks; use str, or give the field a serializer"
            )
        if not text.startswith("{"):
            raise InvalidPayload(f"{self._job_type}: the payload must be an object, not {text[:40]}")
        return _storable(text, f"the payload of {self._job_type}")

    def bind(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """The arguments of `handler.enqueue(...)` as one payload."""
        if self._single is not None:
            if len(arguments) == 1 and not keywords:
                return arguments[0]
            if not arguments and set(keywords) == {self._single}:
                return keywords[self._single]
            if not arguments:
                return dict(keywords)
            raise InvalidPayload(f"{self._job_type} takes one payload")
        names = self._names or []
        if len(arguments) > len(names):
            raise InvalidPayload(f"{self._job_type} takes at most {len(names)} arguments, got {len(arguments)}")
        return {**dict(zip(names, arguments, strict=False)), **keywords}

    def call_arguments(self, text: str) -> dict[str, Any]:
        """Read a stored payload and convert it to the handler's keyword arguments."""
        try:
            value = self._validator.validate(text)
        except (ValidationError, Unfit) as fault:
            raise InvalidPayload(
                f"the stored payload does not fit the handler of {self._job_type}: {_readable(fault)}"
            ) from None
        except Exception as fault:
            raise InvalidPayload(
                f"the stored payload cannot be read by the handler of {self._job_type}: {type(fault).__name__}: {fault}"
            ) from fault
        if self._single is not None:
            return {self._single: value}
        arguments = {name: getattr(value, name) for name in self._names or []}
        return arguments | value.model_extra if value.model_extra else arguments

    @cached_property
    def _validator(self) -> FirstFault:
        """The validator for payloads from outside."""
        return FirstFault(self._adapter.core_schema, self._adapter.validator)


class JsonText(str):
    """A payload as JSON text: an object that was already parsed and written again."""

    __slots__ = ()

    @classmethod
    def of(cls, payload: dict[str, Any]) -> JsonText:
        """The text of a parsed payload. As Python values it would take many times as much memory.

        Raises ValueError for a number that was too large to be read: it became infinite, which JSON cannot represent.
        """
        text = cls(to_json(payload).decode())
        if _INFINITY in text and _has_infinity(text):
            where = next(_infinities(payload, ""))
            raise ValueError(f"the number at {where} of the payload is too large: numbers are doubles, up to 1.8e308")
        return text


def _has_infinity(text: str) -> bool:
    try:
        from_json(text, allow_inf_nan=False)  # a string may contain that word
    except ValueError:
        return True
    return False


def _infinities(value: Any, where: str) -> Iterator[str]:
    """The places of infinite numbers, as JSON pointers."""
    if isinstance(value, float) and math.isinf(value):
        yield where
    elif isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _infinities(inner, f"{where}/{name}")


def encode_plain(job_type: str, payload: Any) -> str:
    """The payload of a type that this process does not know, as JSON text."""
    if type(payload) is JsonText:
        return _storable(str(payload), f"the payload of {job_type}")
    if type(payload) is not dict:
        if not isinstance(payload, Mapping):
            raise InvalidPayload(f"{job_type}: the payload must be a mapping, not {type(payload).__name__}")
        payload = dict(payload)
    try:
        if _SIMPLE.issuperset(map(type, payload.values())) and _TEXT.issuperset(map(type, payload)):
            text = to_json(payload).decode()
        else:
            text = _write(payload)
            text.encode()
            _refuse_equal_keys(payload, _write, f"the payload of {job_type}")
    except (TypeError, ValueError, RecursionError) as fault:
        raise InvalidPayload(f"{job_type}: the payload cannot be written as JSON: {fault}") from None
    return _storable(text, f"the payload of {job_type}")


def encode_result(value: Any, job_type: str, most_bytes: int) -> str | None:
    """A handler's return value as JSON text. The engine measures it again, as it is stored."""
    if value is None:
        return None
    text = encode_value(value, "the result")
    if 4 * len(text) > most_bytes and (size := len(text.encode())) > most_bytes:
        raise ResultTooLarge.of(job_type, size, most_bytes)
    return text


def encode_value(value: Any, what: str) -> str:
    """A value that a handler wants to store, as JSON text."""
    try:
        if isinstance(value, Iterator):
            # It would run while it is written, perhaps without end, as in handlers that are generators by mistake.
            raise InvalidInput(f"{what} cannot be written as JSON: an iterator ({name_of(value)}); return a list")
        text = to_json(value, inf_nan_mode="null").decode()
        if "null" in text:
            _refuse_lost_numbers(_ANY.to_python(value, by_alias=True, warnings="none"), text, what)
        return _storable(text, what)
    except InvalidInput:
        raise
    except (PydanticSerializationError, UnicodeError, RecursionError) as fault:
        raise InvalidInput(f"{what} cannot be written as JSON: {fault}") from None
    except (Exception, SystemExit, GeneratorExit) as fault:  # noqa: BLE001 - values may have code of their own
        said = f"{name_of(fault)}: {message_of(fault)}"
        raise InvalidInput(f"{what} cannot be written as JSON: {said}") from None


def _refuse_lost_numbers(value: Any, text: str, what: str) -> None:
    """Raise InvalidPayload if a number that JSON does not have was written as null.

    Models have their own settings for these numbers, null by default. So all of them are written as null, and only a
    text with a null has to be checked.
    """
    with suppress(TypeError, ValueError, RecursionError):
        _try(value)
        return
    left = [(value, from_json(text))]
    while left:
        value, written = left.pop()
        if isinstance(value, float):
            if written is None and not math.isfinite(value):
                raise InvalidPayload(f"{what} contains {value}, and JSON has no such number")
        elif isinstance(value, dict) and isinstance(written, dict):
            left.extend(zip(value.values(), written.values(), strict=False))
        elif isinstance(value, _LISTS) and isinstance(written, list):
            left.extend(zip(value, written, strict=False))


def _refuse_equal_keys(value: Any, write: Callable[[Any], str | bytes], what: str) -> None:
    """Raise InvalidPayload if two keys of a dict are the same in JSON, as 1 and "1" are: one would be lost."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            is_plain = _TEXT.issuperset(map(type, value))
            if not is_plain and len(from_json(write(dict.fromkeys(value)))) < len(value):
                raise InvalidPayload(f"{what} has two keys that are the same in JSON, such as 1 and '1'")
            left.extend(value.values())
        elif isinstance(value, _LISTS):
            left.extend(value)


def _storable(text: str, what: str) -> str:
    if _NUL in text and _NUL_ITSELF.search(text):
        raise InvalidPayload(f"{what} contains a NUL character, which PostgreSQL cannot store")
    if len(text) > _DIGITS and _has_long_number(text):
        raise InvalidPayload(f"{what} contains a number of more than {_DIGITS} digits, which could not be read back")
    return text


def _has_long_number(text: str) -> bool:
    if not _has_many_digits(text):
        return False
    try:
        json.loads(text)  # a string may contain that many digits
    except ValueError:
        return True
    return False


def _has_many_digits(text: str) -> bool:
    """Whether the text has more digits in a row than a number may have: then one of them is at a place checked here."""
    for place in range(_DIGITS, len(text), _DIGITS + 1):
        if text[place] in _DECIMAL:
            before, behind = text[max(0, place - _DIGITS) : place], text[place : place + _DIGITS + 1]
            if len(before) - len(before.rstrip(_DECIMAL)) + len(behind) - len(behind.lstrip(_DECIMAL)) > _DIGITS:
                return True
    return False


def _hints(job_type: str, handler: Callable[..., Any], names: list[str]) -> dict[str, Any]:
    """The annotations of the payload's parameters. Others may be resolvable only for type checkers."""
    function = inspect.unwrap(handler)
    annotations = {n: h for n, h in getattr(function, "__annotations__", {}).items() if n in names}
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations),
            globalns=getattr(function, "__globals__", {}),
            include_extras=True,
        )
    except NameError as fault:
        raise InvalidInput(f"job type {job_type!r}: the annotation {fault.name!r} cannot be resolved") from None


def _is_whole(annotation: Any, name: str) -> bool:
    """Whether a single parameter is the whole payload."""
    if annotation is None or annotation is inspect.Parameter.empty or annotation is Any:
        return name == "payload"
    kind = get_origin(annotation) or annotation
    return bool(
        is_typeddict(kind)
        or dataclasses.is_dataclass(kind)
        or (isinstance(kind, type) and (issubclass(kind, BaseModel | dict) or kind is Mapping))
    )


def _alternatives(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives that a part of a JSON schema allows, except null."""
    if "$ref" in node:
        return _alternatives(schema.get("$defs", {}).get(node["$ref"].rpartition("/")[2], {}), schema)
    parts = node.get("anyOf") or node.get("oneOf")
    if parts:
        return [inner for part in parts for inner in _alternatives(part, schema)]
    return [] if node.get("type") == "null" else [node]


def _fields(node: dict[str, Any]) -> dict[str, Any] | None:
    """The fields that a value may have; None if it may have others. Unknown fields are refused or dropped."""
    if node.get("type") in ("string", "integer", "number", "boolean"):
        return {}
    is_closed = "properties" in node and node.get("additionalProperties", False) is False
    return node["properties"] if is_closed else None


def _readable(fault: ValidationError | Unfit) -> str:
    """One line for people: the place and the fault."""
    if isinstance(fault, Unfit):
        return f"{_dotted(fault.place)}: {fault}"
    found = fault.errors(include_url=False, include_context=False, include_input=False)[:5]
    return "; ".join(f"{_dotted(one['loc'])}: {one['msg']}" for one in found)


def _dotted(place: Sequence[str | int]) -> str:
    return ".".join(map(str, place)) or "payload"
