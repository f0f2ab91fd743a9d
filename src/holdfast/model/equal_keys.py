"""Keys that are different in Python and the same in JSON, as 1 and "1" are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["repeated_key", "repeated_key_of"]


class _Repeated(Exception):
    """An object of the text has this key twice."""


def repeated_key(text: str) -> str | None:
    """A key that an object of a JSON text has twice; None if there is none, or if the text cannot be read."""
    try:
        json.loads(text, object_pairs_hook=_object)
    except _Repeated as found:
        return str(found)
    except (ValueError, RecursionError):
        return None
    return None


def repeated_key_of(members: Mapping[Any, Any]) -> str | None:
    """The same for a dict; None if it cannot be written."""
    if all(type(key) is str and not isinstance(value, Mapping | list | tuple) for key, value in members.items()):
        return None
    try:
        return repeated_key(json.dumps(members))
    except (TypeError, ValueError, RecursionError):
        return None


def _object(pairs: list[tuple[str, Any]]) -> None:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(next(name for name in keys if names.count(name) > 1))
