"""Whether two payloads are the same call for a handler, though they are written differently.

An idempotency key belongs to a payload as it was stored. A later release may write the same call in another way: an
argument has been added, with a default, or a set comes in another order. Then the values decide that the handler gets.
What differs in any way that JSON can show, such as `1` and `true`, is not the same. Nor is what cannot be compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["is_same"]


def is_same(one: Any, other: Any) -> bool:
    """Whether a handler could not tell these values apart."""
    if type(one) is not type(other):
        return False
    match one:
        case Mapping():
            # jsonb does not keep the order of keys.
            keys = {(type(key), key) for key in one}
            return keys == {(type(key), key) for key in other} and all(is_same(one[key], other[key]) for key in one)
        case list() | tuple():
            return len(one) == len(other) and all(map(is_same, one, other))
        case set() | frozenset():
            return {(type(part), repr(part), part) for part in one} == {
                (type(part), repr(part), part) for part in other
            }
        case BaseModel():
            return is_same(vars(one), vars(other)) and is_same(one.model_extra, other.model_extra)
        case _ if dataclasses.is_dataclass(one):
            names = [field.name for field in dataclasses.fields(one)]
            return all(is_same(getattr(one, name), getattr(other, name)) for name in names)
        case _:
            return bool(one == other) and repr(one) == repr(other)
