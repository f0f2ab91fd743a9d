"""Bounds the effort of validating a value by a type with unions, before it is validated.

A union tries its choices one after the other, and keeps a copy of the value for each choice that does not fit. Where a
type contains itself by way of a union, each level may try the rest of the value several times: a few hundred bytes
would take forever. `Effort` adds up what pydantic would do at most, without doing it. It assumes that every choice is
tried, and that an object or list is looked into up to its first certain fault, where validation stops
(`holdfast.definitions.stopping`). Each pair of type and value is looked at once, so this takes time in proportion to
the value.

Copies are kept while later choices are tried, so what a choice takes is added to the copies of those before it.

Counting the tries of a validation does not work: a function within a schema gets Python values instead of JSON, and
pydantic judges those otherwise. The keys of a dict in Python are exact, and end a union that JSON would go on with.

Validators of the type's author run before pydantic's own. It is assumed that they pass the value on, or that they parse
a text, as `Json` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice, repeat
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from holdfast.definitions.core import (
    AROUND,
    CONTAINERS,
    CORE_DEPTH,
    DICTS,
    NESTING,
    OBJECTS,
    SCALARS,
    Core,
    choices_of,
    fields_of,
    find,
    has_default,
    in_trial_order,
)

__all__ = ["COPIED", "VALUE", "Effort", "TooMuchEffort", "chosen", "copy_size", "text_size", "ways"]

#: How many bytes of memory copies of values may take.
COPIED = 64 * 2**20
#: The unit of time: a value is validated in 0.1 µs. Copying takes a quarter of it for the same number of bytes.
VALUE, _COPYING = 64, 4
#: The memory of a copy besides its text, measured: of each value, and what a list or object, a quote and a key add.
_ITEM, _CONTAINER, _QUOTE, _KEY = 32, 40, 14, 32
#: What a try of a union takes besides, and what all tries may take, plus how many times the whole value.
_TRY, _WORK, _TIMES = 512, 192 * 2**20, 20
#: A shorter text is not parsed: it cannot contain much.
_SHORT_TEXT = 40
_PLAIN = frozenset((str, int, float, bool, type(None)))
#: These parse a text, or may do so.
_PARSING = frozenset(("json", "function-before", "function-wrap"))
#: What a value must be for a type to look into it.
_OBJECT, _LIST = "object", "list"

_TOO_MANY_TRIES = "a union within itself would try its choices too many times: give it a discriminator"
_TOO_MANY_COPIES = "too many choices of a union do not fit a large value: give it a discriminator"


class TooMuchEffort(ValueError):
    """Validating the value could take too long, or too much memory."""


class _Seen(NamedTuple):
    """What is known about a type and a value."""

    unfit: bool  # certainly
    work: int
    copies: int


_NOTHING, _UNFIT = _Seen(False, VALUE, 0), _Seen(True, VALUE, 0)


class Effort:
    """The effort of one validation."""

    def __init__(self, definitions: Mapping[str, Core], size: int, *, copied: bool, small: int = 0) -> None:
        """`size`: of the whole value, in bytes. `copied`: faults copy values, as those of JSON texts do.

        Values of up to `small` bytes need no look.
        """
        self._definitions, self._copied, self._small = definitions, copied, small
        self._sizes: dict[int, int] = {}
        self._larges: dict[int, list[Any]] = {}
        self._seen: dict[tuple[int, int], _Seen] = {}
        #: Keeps values that are parsed here, so that their ids are unique.
        self._parsed: list[Any] = []
        self._most = _WORK + _TIMES * size

    def look(self, core: Core, value: Any, depth: int = 0) -> _Seen:
        """Raises TooMuchEffort."""
        if depth > CORE_DEPTH:
            return _NOTHING  # pydantic refuses it as too deep
        core, value, is_certain = self._unwrapped(core, value)
        kind = core["type"]
        if type(value) not in NESTING:
            return _UNFIT if is_certain and _is_unfit_scalar(core, value) else _NOTHING
        key = id(core), id(value)
        if key in self._seen:
            return self._seen[key]
        if self._small and self._size(value) <= self._small:
            return _NOTHING
        if kind in SCALARS or (kind in CONTAINERS and (kind in DICTS) != (type(value) is dict)):
            return _Seen(is_certain, VALUE, 0)
        if kind in OBJECTS and type(value) is list and kind not in ("arguments", "named-tuple"):
            return _Seen(is_certain, VALUE, 0)
        unfit, work, copies = self._tries(core, value, depth) if kind == "union" else self._parts(core, value, depth)
        if copies > COPIED:
            raise TooMuchEffort(_TOO_MANY_COPIES)
        if work > self._most:
            raise TooMuchEffort(_TOO_MANY_TRIES)
        found = self._seen[key] = _Seen(unfit and is_certain, work, copies)
        return found

    def _tries(self, core: Core, value: Any, depth: int) -> _Seen:
        """All choices of a union."""
        size = self._size(value)
        work, copies, kept, unfit = VALUE + _TRY, 0, 0, True
        for choice in in_trial_order(choices_of(core)):
            seen = self.look(choice, value, depth)
            work += seen.work + size // _COPYING
            copies = max(copies, kept + seen.copies)
            kept += size
            unfit = unfit and seen.unfit
        return _Seen(unfit, work, max(copies, kept))

    def _parts(self, core: Core, value: Any, depth: int) -> _Seen:
        """An object or list, up to its first certain fault."""
        work, copies = VALUE, 0
        for inner, part in self._inside(core, value):
            seen = _UNFIT if inner is None else self.look(inner, part, depth + 1)
            work, copies = work + seen.work, max(copies, seen.copies)
            if seen.unfit:
                return _Seen(True, work, copies)
        return _Seen(False, work, copies)

    def _inside(self, core: Core, value: Any) -> Iterable[tuple[Core | None, Any]]:
        """What is looked at next, in pydantic's order; None is certainly unfit."""
        kind = core["type"]
        if kind == "tagged-union":
            choice = chosen(core, value)
            return () if choice is None else ((choice, value),)
        if kind in OBJECTS:
            return self._members(core, value)
        if kind in CONTAINERS:
            items = core.get("values_schema" if type(value) is dict else "items_schema") or {"type": "any"}
            inside = value.values() if type(value) is dict else value
            if isinstance(items, list):
                return zip(items, inside, strict=False)
            if type(value) is dict and any(_is_unfit_key(core.get("keys_schema"), key) for key in islice(value, 1)):
                return ((None, None),)
            return zip(repeat(items), self._large(value, inside) if self._small else inside, strict=False)
        return ()

    def _members(self, core: Core, value: Any) -> Iterable[tuple[Core | None, Any]]:
        if type(value) is list:
            yield from zip((field["schema"] for _, field in fields_of(core)), value, strict=False)
            return
        known = set()
        for name, field in fields_of(core):
            found = find(name, field, value)
            if found is not None:
                known.add(found[0][0])
                yield field["schema"], found[1]
            elif field.get("required", core.get("total", True)) and not has_default(field["schema"], self._definitions):
                yield None, None
        extras = core.get("extras_schema")
        if extras is not None:
            yield from ((extras, inner) for key, inner in value.items() if key not in known)

    def _unwrapped(self, core: Core, value: Any) -> tuple[Core, Any, bool]:
        """What judges the value, the value that it judges, and whether its judgement counts."""
        is_certain = True
        for _ in range(CORE_DEPTH):
            kind = core["type"]
            if kind in _PARSING:
                if "schema" not in core:
                    break
                is_certain = False
                core = core["schema"]
                if type(value) is str and len(value) > _SHORT_TEXT:
                    with suppress(ValueError):
                        value = from_json(value)
                        self._parsed.append(value)
            elif kind in AROUND:
                if kind in ("json-or-python", "call") or core.get("custom_init") or "on_error" in core:
                    is_certain = False
                elif kind == "nullable" and value is None:
                    return {"type": "any"}, value, False
                core = core[AROUND[kind]]
            elif kind == "definition-ref":
                core = self._definitions[core["schema_ref"]]
            elif kind == "chain":
                core = core["steps"][0]
            else:
                break
        return core, value, is_certain

    def _large(self, value: Any, inside: Iterable[Any]) -> list[Any]:
        """The items of a list or dict that need a look."""
        if id(value) not in self._larges:
            self._larges[id(value)] = (
                [one for one in inside if type(one) in NESTING or type(one) is str if self._size(one) > self._small]
                if self._size(value) > self._small
                else []
            )
        return self._larges[id(value)]

    def _size(self, value: Any) -> int:
        if not self._copied:
            return VALUE
        if id(value) not in self._sizes:
            self._sizes[id(value)] = copy_size(value)
        return self._sizes[id(value)]


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


def copy_size(value: Any) -> int:
    """The approximate memory of a copy of a JSON value."""
    return text_size(to_json(value).decode())


def text_size(text: str) -> int:
    """The same for a JSON text. Commas and the like within strings count, too."""
    containers = text.count("[") + text.count("{")
    values = text.count(",") + containers
    return len(text) + _ITEM * values + _CONTAINER * containers + _QUOTE * text.count('"') + _KEY * text.count(":")


def chosen(core: Core, value: Any) -> Core | None:
    """The choice of a union with a discriminator; None if it is unknown."""
    by, choices, tag = core["discriminator"], core["choices"], None
    if callable(by):
        with suppress(Exception):  # it is the author's
            tag = by(value)
    elif type(value) is dict:
        found = find("", {"validation_alias": by}, value)
        tag = None if found is None else found[1]
    choice = choices.get(tag) if isinstance(tag, str | int) else None
    if isinstance(choice, str | int):
        choice = choices.get(choice)
    return choice if isinstance(choice, Mapping) else None


def _is_unfit_key(core: Core | None, key: Any) -> bool:
    """Whether a key certainly does not fit. Values are not looked into then."""
    if core is None or type(key) is not str:
        return False
    return _is_unfit_scalar(core, key) or (core["type"] == "int" and not any(map(str.isdigit, key)))


def _is_unfit_scalar(core: Core, value: Any) -> bool:
    if type(value) not in _PLAIN:
        return False
    if core["type"] == "literal":
        expected = core["expected"]
        return all(type(one) in _PLAIN for one in expected) and value not in expected
    return core["type"] in OBJECTS or core["type"] in CONTAINERS
