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

from holdfast.definitions.alike import SHORT_TEXT, Alike
from holdfast.definitions.choosing import Choosing
from holdfast.definitions.core import (
    ANY,
    AROUND,
    CONTAINERS,
    CORE_DEPTH,
    DICTS,
    NESTING,
    OBJECTS,
    SCALARS,
    Core,
    fields_of,
    find,
    has_default,
)

__all__ = ["COPIED", "VALUE", "Effort", "TooMuchEffort", "chosen", "text_size"]

#: How many bytes of memory copies of values may take.
COPIED = 64 * 2**20
#: The unit of time: a value is validated in 0.1 µs. Copying takes a quarter of it for the same number of bytes.
VALUE, _COPYING = 64, 4
#: The memory of a copy besides its text, measured: of each value, and what a list or object, a quote and a key add.
_ITEM, _CONTAINER, _QUOTE, _KEY = 32, 40, 14, 32
#: What a try of a union takes besides, and what all tries may take, plus how many times the whole value.
_TRY, _WORK, _TIMES = 512, 288 * 2**20, 20
#: What an object takes besides its members, measured with pydantic 2.12.
_MADE = 384
#: What the estimate itself may take: a look at something new, and all looks together, about 0.2 s; and how many times
#: the whole value is written to measure its parts.
_NEW, _STEPS, _WRITTEN = 8, 250_000, 12
_PLAIN = frozenset((str, int, float, bool, type(None)))
#: These parse a text, or may do so.
_PARSING = frozenset(("json", "function-before", "function-wrap"))
#: Wrap a schema, and accept all that it accepts, unless an option narrows it.
_OPEN = frozenset(("definitions", "nullable", "default", "model"))
_NARROWING = frozenset(("custom_init", "post_init", "root_model", "validate_default", "on_error"))
#: Options of types that accept all values of their kind.
_BARE = frozenset(
    ("type", "ref", "metadata", "serialization", "items_schema", "keys_schema", "values_schema", "fields", "model_name",
     "computed_fields")
)  # fmt: skip
_KINDS = {"str": str, "int": int, "float": float, "bool": bool, "none": type(None)}

_TOO_MANY_TRIES = "a union within itself would try its choices too many times: give it a discriminator"
_TOO_MANY_COPIES = "too many choices of a union do not fit a large value: give it a discriminator"


class TooMuchEffort(ValueError):
    """Validating the value could take too long, or too much memory."""


class _OutOfSteps(Exception):
    """Looking at all of the value would itself take too long."""


class _Seen(NamedTuple):
    """What is known about a type and a value."""

    unfit: bool  # certainly
    work: int
    copies: int
    fits: bool = False  # certainly
    exact: bool = False  # a smart union tries no other choice then


_NOTHING, _UNFIT = _Seen(False, VALUE, 0), _Seen(True, VALUE, 0)
_FITS, _EXACT = _Seen(False, VALUE, 0, True), _Seen(False, VALUE, 0, True, True)


class Effort:
    """The effort of one validation."""

    def __init__(self, type_: Choosing, size: int, *, copied: bool, small: int = 0) -> None:
        """`size`: of the whole value, in bytes. `copied`: faults copy values, as those of JSON texts do.

        Values of up to `small` bytes need no look.
        """
        self._type, self._definitions, self._copied, self._small = type_, type_.definitions, copied, small
        self._alike = Alike(type_.words, size)
        self._sizes: dict[int, int] = {}
        self._larges: dict[int, list[Any]] = {}
        self._seen: dict[tuple[int, Any], _Seen] = {}
        #: Keeps values that are parsed here, so that their ids are unique.
        self._parsed: list[Any] = []
        self._most = _WORK + _TIMES * size
        self._whole = size
        self._steps = _STEPS
        self._left_to_write = _WRITTEN * size

    def bound(self, core: Core, value: Any) -> None:
        """Raises TooMuchEffort."""
        try:
            self._look(core, value, 0)
        except (_OutOfSteps, RecursionError):
            if self._type.most_tries(value) * VALUE > self._most:
                raise TooMuchEffort(_TOO_MANY_TRIES) from None
            if self._copied and self._whole * self._type.choices > COPIED:
                raise TooMuchEffort(_TOO_MANY_COPIES) from None

    def _look(self, core: Core, value: Any, depth: int) -> _Seen:
        if depth > CORE_DEPTH:
            return _NOTHING  # pydantic refuses it as too deep
        if type(value) not in NESTING and not (type(value) is str and len(value) > SHORT_TEXT):
            return self._look_at_scalar(core, value)
        key = id(core), self._alike.mark(value)
        found = self._seen.get(key)
        self._steps -= 1 if found is not None else _NEW
        if self._steps < 0:
            raise _OutOfSteps
        if found is not None:
            return found
        core, value, is_certain, is_open = self._unwrapped(core, value)
        if (known := self._without_parts(core, value, is_certain=is_certain)) is not None:
            return known
        kind = core["type"]
        # There are no further functions in between: they would halve the depth that Python allows.
        seen = self._tries(core, value, depth) if kind == "union" else self._parts(core, value, depth)
        if seen.copies > COPIED:
            raise TooMuchEffort(_TOO_MANY_COPIES)
        if seen.work > self._most:
            raise TooMuchEffort(_TOO_MANY_TRIES)
        fits = seen.fits and is_open and (kind == "union" or self._fits(core, value))
        exact = fits and seen.exact and kind in ("union", "list")
        found = self._seen[key] = _Seen(seen.unfit and is_certain, seen.work, seen.copies, fits, exact)
        return found

    def _without_parts(self, core: Core, value: Any, *, is_certain: bool) -> _Seen | None:
        """What is known without a look into the value."""
        kind = core["type"]
        if type(value) not in NESTING:
            return _UNFIT if is_certain and _is_unfit_scalar(core, value) else _NOTHING
        if self._small and self._size(value) <= self._small:
            return _NOTHING
        if kind in SCALARS or (kind in CONTAINERS and (kind in DICTS) != (type(value) is dict)):
            return _Seen(is_certain, VALUE, 0)
        if kind in OBJECTS and type(value) is list and kind not in ("arguments", "named-tuple"):
            return _Seen(is_certain, VALUE, 0)
        return None

    def _look_at_scalar(self, core: Core, value: Any, depth: int = 0) -> _Seen:
        """By kind, unless it is one of the words that a type asks for."""
        key = id(core), self._alike.mark_of_scalar(value)
        found = self._seen.get(key)
        if found is None:
            judge, value, is_certain, is_open = self._unwrapped(core, value)
            if judge["type"] == "union" and depth < CORE_DEPTH:
                tried = [self._look_at_scalar(one, value, depth + 1) for one in self._type.trial_order(judge)]
                fits, exact = any(one.fits for one in tried), any(one.exact for one in tried)
                unfit = is_certain and all(one.unfit for one in tried)
                found = _Seen(unfit, VALUE * len(tried), 0, is_open and fits, is_open and exact)
            elif is_certain and _is_unfit_scalar(judge, value):
                found = _UNFIT
            elif is_open and self._fits(judge, value):
                found = _FITS if judge["type"] == "any" and value is not None else _EXACT
            else:
                found = _NOTHING
            self._seen[key] = found
            self._steps -= _NEW
        return found

    def _tries(self, core: Core, value: Any, depth: int) -> _Seen:
        """All choices of a union. Once one fits, the faults of others are not kept."""
        size = self._size(value)
        work, copies, kept, unfit, fits, exact = VALUE + _TRY, 0, 0, True, False, False
        for choice in self._type.trial_order(core):
            seen = self._look(choice, value, depth)
            work += seen.work + size // _COPYING
            copies = max(copies, kept + max(seen.copies, size if fits else 0))
            fits = fits or seen.fits
            kept += 0 if fits else size
            unfit = unfit and seen.unfit
            if seen.exact:
                exact = True
                break
        return _Seen(unfit, work, max(copies, kept), fits, exact)

    def _parts(self, core: Core, value: Any, depth: int) -> _Seen:
        """An object or list, up to its first certain fault."""
        work, copies, fits, exact = VALUE + (_MADE if core["type"] in OBJECTS else 0), 0, True, True
        for inner, part, times in self._inside(core, value):
            seen = _UNFIT if inner is None else self._look(inner, part, depth + 1)
            work, copies = work + times * seen.work, max(copies, seen.copies)
            fits, exact = fits and seen.fits, exact and seen.exact
            if seen.unfit:
                return _Seen(True, work, copies)
        return _Seen(False, work, copies, fits, exact)

    def _inside(self, core: Core, value: Any) -> Iterable[tuple[Core | None, Any, int]]:
        """What is looked at next, in pydantic's order, and how often; None is certainly unfit."""
        kind = core["type"]
        if kind == "tagged-union":
            choice = chosen(core, value)
            return () if choice is None else ((choice, value, 1),)
        if kind in OBJECTS:
            return self._members(core, value)
        if kind in CONTAINERS:
            items = core.get("values_schema" if type(value) is dict else "items_schema") or ANY
            if isinstance(items, list):
                return zip(items, value, repeat(1), strict=False)
            if type(value) is dict and any(_is_unfit_key(core.get("keys_schema"), key) for key in islice(value, 1)):
                return ((None, None, 1),)
            inside = self._alike.items(value)
            if self._small:
                large = self._large(value, inside)
                return zip(repeat(items), large, repeat(1), strict=False)
            return ((items, one, times) for one, times in inside)
        return ()

    def _members(self, core: Core, value: Any) -> Iterable[tuple[Core | None, Any, int]]:
        if type(value) is list:
            yield from zip((field["schema"] for _, field in fields_of(core)), value, repeat(1), strict=False)
            return
        known = set()
        left_out = 0
        for name, field in fields_of(core):
            found = find(name, field, value)
            if found is not None:
                known.add(found[0][0])
                yield field["schema"], found[1], 1
            elif field.get("required", core.get("total", True)) and not has_default(field["schema"], self._definitions):
                yield None, None, 1
            else:
                left_out += 1
        if left_out:
            yield ANY, None, left_out // 2  # a default takes half the time of a value
        extras = core.get("extras_schema")
        if extras is not None:
            yield from ((extras, inner, 1) for key, inner in value.items() if key not in known)

    def _unwrapped(self, core: Core, value: Any) -> tuple[Core, Any, bool, bool]:
        """What judges the value, the value that it judges, and whether its judgement counts: against it, and for it."""
        is_certain = is_open = True
        for _ in range(CORE_DEPTH):
            kind = core["type"]
            if kind in _PARSING:
                if "schema" not in core:
                    break
                is_certain = is_open = False
                core = core["schema"]
                if type(value) is str and len(value) > SHORT_TEXT:
                    with suppress(ValueError):
                        value = from_json(value)
                        self._parsed.append(value)
            elif kind in AROUND:
                if kind in ("json-or-python", "call") or core.get("custom_init") or "on_error" in core:
                    is_certain = False
                elif kind == "nullable" and value is None:
                    return ANY, value, False, is_open
                is_open = is_open and kind in _OPEN and not _narrows(core)
                core = core[AROUND[kind]]
            elif kind == "definition-ref":
                core = self._definitions[core["schema_ref"]]
            elif kind == "chain":
                core = core["steps"][0]
                is_open = False
            else:
                break
        return core, value, is_certain, is_open

    def _fits(self, core: Core, value: Any) -> bool:
        """Whether a value whose parts fit certainly fits, too."""
        kind = core["type"]
        if kind == "any":
            return True
        if self._type.is_limited or not core.keys() <= _BARE:
            return False
        if kind == "dict":
            keys = core.get("keys_schema", {})
            return bool(keys.get("type") == "str" and keys.keys() <= _BARE)
        return kind in ("list", "model-fields") or _KINDS.get(kind) is type(value)

    def _large(self, value: Any, inside: Iterable[tuple[Any, int]]) -> list[Any]:
        """The items of a list or dict that need a look."""
        if id(value) not in self._larges:
            self._larges[id(value)] = (
                [one for one, _ in inside if type(one) in NESTING or type(one) is str if self._size(one) > self._small]
                if self._size(value) > self._small
                else []
            )
        return self._larges[id(value)]

    def _size(self, value: Any) -> int:
        if not self._copied:
            return VALUE
        if id(value) not in self._sizes:
            text = to_json(value).decode()
            self._left_to_write -= len(text)
            if self._left_to_write < 0:
                raise _OutOfSteps
            self._sizes[id(value)] = text_size(text)
        return self._sizes[id(value)]


def text_size(text: str) -> int:
    """The approximate memory of a copy of a JSON text's value. Commas and the like within strings count, too."""
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


def _narrows(core: Core) -> bool:
    """Whether a wrapper may refuse what its inner schema accepts."""
    config = core.get("config") or {}
    is_closed = config.get("extra_fields_behavior") == "forbid" or config.get("validate_default")
    return bool(is_closed) or any(core.get(option) for option in _NARROWING)


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
