"""JSON texts of Python values. A value that JSON cannot carry is refused, not changed.

1. JSON has no infinity and no NaN. pydantic writes null instead.
2. Keys are texts: 1 and "1" are the same key, and only one of the two values would arrive. None, infinity and NaN
   would all arrive as "None". pydantic replaces half a surrogate pair in a key.
3. PostgreSQL cannot store a NUL character, and Python does not read very long numbers.

Each of these leaves a mark in the text that is cheap to look for. Only a text with this mark is examined.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from pydantic_core import PydanticSerializationError, SchemaSerializer, from_json, to_json

from holdfast.bounds import shown
from holdfast.errors import InvalidInput, InvalidPayload, ResultTooLarge
from holdfast.model.equal_keys import repeated_key
from holdfast.model.foreign import message_of, name_of

__all__ = [
    "JsonText", "encode_plain", "encode_result", "encode_value", "may_have_lost_keys", "refuse_lost_keys",
    "refuse_lost_numbers", "refuse_repeated_keys", "storable", "unwritable",
]  # fmt: skip

#: JSON writes NUL as \u0000, which PostgreSQL's jsonb cannot hold.
_NUL = "\\u0000"
#: A NUL itself, and not an escaped backslash that is followed by these letters.
_NUL_ITSELF = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
#: How pydantic writes a number that was too large to be read.
_INFINITY = "Infinity"
#: How pydantic writes half a surrogate pair in a key; how it writes None and NaN there, and how Python writes None.
_REPLACEMENT, _NONE, _NULL = "\ufffd", '"None":', '"null":'
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATES, _HALF_A_PAIR = "surrogates not allowed", "JSON cannot carry half a surrogate pair"
#: PostgreSQL stores longer whole numbers, but Python does not read them.
_DIGITS = 4300
_DECIMAL = "0123456789"

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
        return storable(str(payload), f"the payload of {job_type}")
    if type(payload) is not dict:
        if not isinstance(payload, Mapping):
            raise InvalidPayload(f"{job_type}: the payload must be a mapping, not {type(payload).__name__}")
        payload = dict(payload)
    try:
        if _is_simple(payload):
            text = to_json(payload).decode()
        else:
            text = _write(payload)
            refuse_repeated_keys(text.encode(), f"the payload of {job_type}")
            if _NULL in text:
                refuse_lost_keys(payload, f"the payload of {job_type}")
    except (TypeError, ValueError, RecursionError) as fault:
        raise InvalidPayload(f"{job_type}: the payload cannot be written as JSON: {unwritable(fault)}") from None
    return storable(text, f"the payload of {job_type}")


def _is_simple(members: dict[Any, Any]) -> bool:
    return _SIMPLE.issuperset(map(type, members.values())) and _TEXT.issuperset(map(type, members))


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
        written = to_json(value, inf_nan_mode="null")
        text = written.decode()
        if type(value) not in _SIMPLE and not (type(value) is dict and _is_simple(value)):
            refuse_repeated_keys(written, what)
        if "null" in text:
            refuse_lost_numbers(_ANY.to_python(value, by_alias=True, warnings="none"), text, what)
        if may_have_lost_keys(text):
            refuse_lost_keys(_ANY.to_python(value, by_alias=True, warnings="none"), what)
        return storable(text, what)
    except InvalidInput:
        raise
    except (PydanticSerializationError, UnicodeError, RecursionError) as fault:
        raise InvalidInput(f"{what} cannot be written as JSON: {unwritable(fault)}") from None
    except (Exception, SystemExit, GeneratorExit) as fault:  # noqa: BLE001 - values may have code of their own
        said = f"{name_of(fault)}: {message_of(fault)}"
        raise InvalidInput(f"{what} cannot be written as JSON: {said}") from None


def refuse_lost_numbers(value: Any, text: str, what: str) -> None:
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


def refuse_repeated_keys(written: bytes, what: str) -> None:
    """Raise InvalidPayload if two keys of a dict are the same in JSON, as 1 and "1" are: one would be lost."""
    with suppress(ValueError):  # too deep, or a long number: this is refused elsewhere
        if to_json(from_json(written)) == written:
            return
    if (key := repeated_key(written.decode())) is not None:
        raise InvalidPayload(
            f"{what} has two keys that are both {shown(key)} in JSON, as 1 and '1' are: one of them would be lost"
        )


def may_have_lost_keys(text: str) -> bool:
    """Whether a key was perhaps written as another one."""
    return _NONE in text or _REPLACEMENT in text


def refuse_lost_keys(value: Any, what: str) -> None:
    """Raise InvalidPayload if there is a key that JSON cannot carry: None, infinity, NaN, or not valid Unicode."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            for key in one:
                if isinstance(key, str) and _SURROGATE.search(key):
                    raise InvalidPayload(f"{what} has the key {shown(key)}: {_HALF_A_PAIR}")
                if key is None or (isinstance(key, float | Decimal) and not math.isfinite(key)):
                    raise InvalidPayload(f"{what} has the key {key}, which would become a text: keys of JSON are texts")
            left.extend(one.values())
        elif isinstance(one, _LISTS):
            left.extend(one)


def unwritable(fault: BaseException) -> str:
    """Why a value cannot be written as JSON."""
    if isinstance(fault, UnicodeEncodeError) or _SURROGATES in str(fault):
        return f"a text in it is not valid Unicode, because {_HALF_A_PAIR}"
    return str(fault)


def storable(text: str, what: str) -> str:
    """The text, if PostgreSQL can store it and Python can read it again; InvalidPayload otherwise."""
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
