"""What the unions of a type do, as far as it follows from the type alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from holdfast.definitions.alike import Words
from holdfast.definitions.any_json import is_limited
from holdfast.definitions.core import (
    AROUND,
    CONTAINERS,
    CORE_DEPTH,
    DICTS,
    OBJECTS,
    Core,
    choices_of,
    fields_of,
    in_trial_order,
)

__all__ = ["Choosing", "ways"]

#: What a value must be for a type to look into it.
_OBJECT, _LIST = "object", "list"
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
#: Deeper values are refused if they are too varied to be looked at.
_LEVELS = 60


class Choosing:
    """The unions of one type."""

    def __init__(self, core: Core, definitions: Mapping[str, Core], unions: list[Core], objects: list[Core]) -> None:
        self.definitions = definitions
        self.words = Words.of(core)
        self.is_limited = is_limited(core)
        self.choices = max((len(choices_of(union)) for union in unions), default=0)
        self._fields = max((sum(1 for _ in fields_of(one)) for one in objects), default=0)
        found = [ways(union, definitions) for union in unions]
        self._wide = {way: max((one.count(way) for one in found), default=1) or 1 for way in (_OBJECT, _LIST)}
        self._ordered: dict[int, list[Any]] = {}

    def trial_order(self, union: Core) -> list[Any]:
        """The choices of a union in the order in which they are tried."""
        if id(union) not in self._ordered:
            self._ordered[id(union)] = in_trial_order(union, choices_of(union), self.definitions)
        return self._ordered[id(union)]

    def most_tries(self, value: Any) -> float:
        """How many values are validated at most, by the size and the depth of this one."""
        try:
            text = _TEXT.sub(b"0", to_json(value, fallback=lambda _: None))
        except (ValueError, RecursionError):
            return math.inf
        objects = text.count(b"{")
        tries: float = self.choices * (text.count(b",") + text.count(b"[") + objects * (1 + self._fields // 2))
        left = text.translate(None, _NO_BRACKETS)
        for _ in range(_LEVELS):
            if not left:
                return tries
            tries *= max(
                self._wide[_OBJECT] if b"{}" in left else 1,
                self._wide[_LIST] if b"[]" in left else 1,
            )
            left = _without_innermost(left)
        return math.inf


def _without_innermost(brackets: bytes) -> bytes:
    return brackets.replace(b"[]", b" ").replace(b"{}", b" ").replace(b" ", b"")


def ways(core: Core, definitions: Mapping[str, Core], depth: int = 0) -> list[str]:
    """What a type looks into, once for each of its choices that does."""
    kind = core["type"]
    if depth > CORE_DEPTH:
        return [_OBJECT, _LIST]
    if kind in OBJECTS or kind in DICTS:
        return [_OBJECT, _LIST] if kind in ("arguments", "named-tuple") else [_OBJECT]
    if kind in CONTAINERS:
        return [_LIST]
    if kind == "definition-ref":
        return ways(definitions[core["schema_ref"]], definitions, depth + 1)
    if kind == "tagged-union":
        return [_OBJECT]
    if kind == "union":
        return [way for choice in choices_of(core) for way in ways(choice, definitions, depth + 1)]
    inner = core["steps"][0] if kind == "chain" else core.get(AROUND.get(kind, "schema"))
    return ways(inner, definitions, depth + 1) if isinstance(inner, Mapping) else []
