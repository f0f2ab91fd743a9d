"""Finds values that every type judges alike, so that the effort of validating them is estimated once.

Empty lists and objects are alike, and so are short ones with the same names and kinds of values. A text or number
counts as itself only if a type asks for it by value (`Literal`, the tag of a union). Without this, a megabyte of `[]`
would be estimated 350,000 times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.definitions.core import CORE_DEPTH, DICTS, NESTING, OBJECTS, Core, fields_of, kind_of, parts_of

__all__ = ["SHORT_TEXT", "Alike", "Words"]

#: A shorter text is not parsed: it cannot contain much.
SHORT_TEXT = 40
#: Values with at most this many members are compared; lists with at least this many items are searched for equal ones.
_MEMBERS, _MANY = 32, 32
#: Longer ones count as different: they take more memory.
_DIGITS = re.compile("[0-9]{1,20}")
_EMPTY: tuple[Any, ...] = ([], {})
#: How many times the whole value may be written to find equal items.
_TIMES = 4


class Words(NamedTuple):
    """What a type asks for by value. None: anything may matter."""

    names: frozenset[str] | None
    values: frozenset[Any] | None

    @classmethod
    def of(cls, core: Core) -> Words:
        """The words of a type."""
        found = _Found()
        found.collect(core, 0)
        values = None if found.is_open else frozenset(found.values)
        return cls(None if found.has_other_keys else frozenset(found.names), values)


class _Found:
    def __init__(self) -> None:
        self.names: set[str] = set()
        self.values: set[Any] = set()
        self.is_open = self.has_other_keys = False

    def collect(self, part: Any, depth: int) -> None:
        if isinstance(part, list | tuple):
            for one in part:
                self.collect(one, depth + 1)
        elif isinstance(part, Mapping):
            kind = kind_of(part)
            if depth > CORE_DEPTH:
                self.is_open = True
                return
            if kind == "literal":
                self.values |= set(part["expected"])
            elif kind == "tagged-union":
                self.is_open = self.is_open or callable(part["discriminator"])
                self.values |= set(part["choices"])
                self._name(part["discriminator"])
            elif kind in OBJECTS:
                for name, field in fields_of(part):
                    self._name(name)
                    self._name(field.get("validation_alias") or field.get("alias"))
            elif kind in DICTS and part.get("keys_schema", {}).get("type", "str") != "str":
                self.has_other_keys = True
            for one in parts_of(part):
                self.collect(one, depth + 1)

    def _name(self, name: Any) -> None:
        if isinstance(name, str):
            self.names.add(name)
        elif isinstance(name, list):
            for one in name:
                self._name(one)


class Alike:
    """The values of one payload."""

    def __init__(self, words: Words, size: int) -> None:
        self._words = words
        self._left = _TIMES * size
        asked = (*(words.names or ()), *(words.values or ()))
        self._asks_for_digits = words.names is None or any(_DIGITS.search(str(one)) for one in asked)
        self._marks: dict[int, Any] = {}
        #: A number below zero for each kind of short value.
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._items: dict[int, list[tuple[Any, int]]] = {}

    def mark_of_scalar(self, value: Any) -> Any:
        """What stands for a value without parts."""
        values = self._words.values
        return type(value), value if values is None or value in values else None

    def mark(self, value: Any) -> Any:
        """What stands for a value; its identity unless it is short, and so are all values within it."""
        if not value:
            return "[]" if type(value) is list else "{}"
        found = self._marks.get(id(value))
        if found is None:
            found = self._marks[id(value)] = self._new_mark(value)
        return found

    def items(self, value: Any) -> list[tuple[Any, int]]:
        """The items of a list or dict, and how many there are of each: the first one, then the others in any order."""
        inside = list(value.values()) if type(value) is dict else value
        if len(inside) < _MANY or self._words.values is None:
            return [(one, 1) for one in inside]
        if id(value) not in self._items:
            self._items[id(value)] = [(inside[0], 1), *self._different(inside)]
        return self._items[id(value)]

    def _different(self, inside: list[Any]) -> list[tuple[Any, int]]:
        kinds = Counter(map(type, inside))
        values = self._words.values or frozenset()
        found: dict[Any, tuple[Any, int]] = {}
        texts = {one for one in inside if type(one) is str} if str in kinds else set()
        for one in texts:
            found[one if one in values or len(one) > SHORT_TEXT else str] = one, kinds[str]
        others = [one for one in inside if type(one) is not str and type(one) not in NESTING]
        for one in set(others):
            found[type(one), one if one in values else None] = one, kinds[type(one)]
        nested = [one for one in inside if type(one) in NESTING]
        full = list(filter(None, nested))
        for empty in _EMPTY:
            if times := sum(1 for one in nested if not one and type(one) is type(empty)):
                found[repr(empty), None] = empty, times
        return [*found.values(), *self._grouped(full)]

    def _grouped(self, nested: list[Any]) -> list[tuple[Any, int]]:
        """Values that are equal, apart from numbers nobody asks for, as long as writing them does not take long."""
        if len(nested) < _MANY or self._left <= 0:
            return [(one, 1) for one in nested]
        texts = list(map(repr, nested))
        self._left -= sum(map(len, texts))
        if not self._asks_for_digits:
            texts = _DIGITS.sub("0", "\n".join(texts)).split("\n")  # there is no line break within a repr
        times = Counter(texts)
        return [(one, times[text]) for text, one in dict(zip(texts, nested, strict=True)).items()]

    def _new_mark(self, value: Any) -> Any:
        values, names = self._words
        if values is None or len(value) > _MEMBERS:
            return id(value)
        members = value if type(value) is list else value.values()
        made: list[Any] = [type(value)]
        for one in members:
            kind = type(one)
            if kind in NESTING:
                inner = self.mark(one)
                if type(inner) is int and inner > 0:
                    return id(value)
                made.append(inner)
            elif kind is str and len(one) > SHORT_TEXT:
                return id(value)
            else:
                made.append((kind, one) if one in values else kind)
        if type(value) is dict:
            made += value if names is None else [name if name in names else None for name in value]
        return self._numbers.setdefault(tuple(made), -1 - len(self._numbers))
