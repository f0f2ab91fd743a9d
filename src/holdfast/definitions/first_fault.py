"""A pydantic validator for payloads from outside: it accepts the same values, and refuses others at a bounded cost.

pydantic lists every fault, with its path, its message and a copy of the value. A megabyte of `{}` for a list of models
with twenty fields makes six million faults, in gigabytes of memory. Here there are two validators:

1. One lists all faults, except those of further items of a list or dict. It is used where this cannot take much memory,
   whatever the payload contains (`_Faults`): for short texts, and for types with few fields.
2. The other one stops at the first fault (`holdfast.definitions.stopping`). This fault is then located, and is the only
   one that is named (`holdfast.definitions.fault_place`).

What a union may take is bounded before either of them is used (`holdfast.definitions.effort`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol

from pydantic_core import SchemaError, SchemaValidator, from_json, to_json

from holdfast.definitions.any_json import with_any_json
from holdfast.definitions.choosing import Choosing, ways
from holdfast.definitions.collecting import no_collection
from holdfast.definitions.core import CORE_DEPTH, NESTING, OBJECTS, Core, choices_of, fields_of, kind_of, parts_of
from holdfast.definitions.effort import COPIED, VALUE, Effort, TooMuchEffort, text_size
from holdfast.definitions.fault_place import first_fault
from holdfast.definitions.stopping import StoppingValidator, failing_fast

__all__ = ["FirstFault", "Unfit", "Validator"]

#: How many bytes of memory a list of faults may take.
_LISTED = 32 * 2**20
#: The memory of a fault besides its message, its path and its copy; of a message of the author's code; and how often a
#: message and each character of the payload are copied.
_FAULT, _MESSAGE, _MESSAGES, _COPIES = 1_200, 2_000, 3, 25
#: In a longer text, unknown fields alone would take much memory.
_UNKNOWN = 64 * 1024
#: The least number of characters of an object in a JSON text, with its key.
_OBJECT_CHARACTERS = 6


class Validator(Protocol):
    """The part of pydantic's validators that is used here."""

    def validate_json(self, data: str, /) -> Any:
        """The value of a text. Raises ValidationError if it does not fit."""

    def validate_python(self, data: Any, /) -> Any:
        """The same for a value."""


class Unfit(ValueError):
    """The payload does not fit, at this place, or validating it would cost too much."""

    def __init__(self, why: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(why)
        self.place = place


class FirstFault:
    """Validates JSON texts and values at a bounded cost."""

    def __init__(self, core_schema: Core, otherwise: Validator | None = None) -> None:
        """Create it. Raises SchemaError if pydantic cannot build such a validator and there is no other one."""
        self._core = with_any_json(core_schema)
        self._faults = _Faults(self._core)
        self._listing: Validator
        #: Texts of at most this many characters have few faults, whatever they contain.
        self._short = self._faults.characters
        try:
            # By default nested models would use the validators that they already have.
            self._listing = SchemaValidator(failing_fast(self._core), _use_prebuilt=False)
        except (SchemaError, TypeError, RecursionError):
            if otherwise is None:
                raise
            self._listing = otherwise
        if self._faults.is_explosive:
            self._short = 0

    def validate(self, text: str) -> Any:
        """The value; ValidationError or Unfit if the text does not fit."""
        if len(text) <= self._short or self._are_few(text) or self._stopping is None:
            return self._listing.validate_json(text)
        self._bound_text(text)
        return self._until_first_fault(self._stopping, lambda validator: validator.validate_json(text), text=text)

    def check(self, value: Any) -> Any:
        """The value of a value in Python. Raises ValidationError or Unfit if it does not fit."""
        if self._faults.are_few or self._stopping is None:
            return self._listing.validate_python(value)
        if self._faults.is_explosive:
            parts, depth = _extent(value)
            if depth > CORE_DEPTH:
                raise Unfit("it is nested too deep, or contains itself (recursion)")
            if parts * self._faults.choices**depth > COPIED // VALUE:
                with no_collection():
                    self._bound(Effort(self._choosing, parts * VALUE, copied=False), value)
        return self._until_first_fault(self._stopping, lambda validator: validator.validate_python(value), value=value)

    def _bound_text(self, text: str) -> None:
        faults = self._faults
        levels = min(CORE_DEPTH, text.count("{") + text.count("["))
        size = text_size(text)
        if faults.choices and size * faults.choices * (levels if faults.is_recursive else 1) > COPIED:
            small = 0 if faults.is_explosive else COPIED // (faults.choices * levels)
        elif not faults.is_explosive or levels * math.log2(faults.choices) <= math.log2(COPIED // VALUE):
            return
        else:
            small = 0
        with no_collection():
            try:
                value = from_json(text)
            except ValueError:
                return  # pydantic refuses it
            self._bound(Effort(self._choosing, size, copied=True, small=small), value)

    def _bound(self, effort: Effort, value: Any) -> None:
        try:
            effort.bound(self._core, value)
        except TooMuchEffort as fault:
            raise Unfit(str(fault)) from None
        except RecursionError:
            raise Unfit("it is nested too deep") from None

    def _until_first_fault(
        self,
        stopping: StoppingValidator,
        validate: Callable[[Validator], Any],
        *,
        text: str | None = None,
        value: Any = None,
    ) -> Any:
        run = stopping.run(validate)
        if run.foreign is not None:
            raise run.foreign
        if run.fits and not run.deferred:
            return run.value
        if run.deferred or (text is None and self._is_short(value)):
            return validate(self._listing)
        if text is not None:
            try:
                value = from_json(text)
            except ValueError:
                return validate(self._listing)  # it is not JSON
        place, why = first_fault(self._core, self._faults.definitions, value, run.stops, is_json=text is not None)
        raise Unfit(why, place)

    def _is_short(self, value: Any) -> bool:
        """Whether a value in Python is so small that all of its faults can be listed."""
        if type(value) not in NESTING:
            return False
        try:
            text = to_json(value, fallback=lambda _: None).decode()
        except (ValueError, RecursionError):
            return False
        return self._are_few(text)

    def _are_few(self, text: str) -> bool:
        return len(text) <= self._faults.characters and not self._faults.may_be_many(text)

    @cached_property
    def _choosing(self) -> Choosing:
        """What its unions do."""
        return Choosing(self._core, self._faults.definitions, self._faults.unions, self._faults.objects)

    @cached_property
    def _stopping(self) -> StoppingValidator | None:
        """The validator that stops at the first fault; None if pydantic cannot build it."""
        try:
            return StoppingValidator(self._core, self._faults.definitions)
        except (SchemaError, TypeError, RecursionError, KeyError):
            return None


class _Faults:
    """How many faults a value may have that does not fit a type, and how much memory they may take."""

    def __init__(self, core: Core) -> None:
        self.definitions: dict[str, Core] = {}
        self.is_recursive = False
        self._message = 0
        self.choices = 0
        self.unions: list[Core] = []
        self.objects: list[Core] = []
        #: How many faults each definition has; None while this is being counted.
        self._counted: dict[str, int | None] = {}
        most = self._count(core, 0)
        #: Whether the number of tries may be exponential: several choices may look into the same value.
        self.is_explosive = self.is_recursive and any(self._is_forked(union) for union in self.unions)
        each = _FAULT + _MESSAGES * self._message
        #: Whether no value in Python has faults that take much memory. They do not copy values.
        self.are_few = not self.is_recursive and most * each <= _LISTED
        #: Texts of at most this many characters cannot have faults that take much memory.
        self.characters = _longest(most, each, is_recursive=self.is_recursive)
        self._levels = int(math.log(max(1, _LISTED // (most * each)), max(2, self.choices)))

    def may_be_many(self, text: str) -> bool:
        """Whether there may be many faults because choices of unions are tried again and again."""
        return self.is_explosive and text.count("{") + text.count("[") > self._levels

    def _is_forked(self, union: Core) -> bool:
        looking = [way for one in choices_of(union) if _refers(one) for way in ways(one, self.definitions)]
        return any(looking.count(way) > 1 for way in set(looking))

    def _count(self, part: Any, depth: int) -> int:
        """The maximal number of faults. Also collects the definitions."""
        if depth > CORE_DEPTH:
            return _LISTED
        if isinstance(part, list | tuple):
            return sum(self._count(one, depth + 1) for one in part)
        if not isinstance(part, Mapping):
            return 0
        kind = kind_of(part)
        if kind == "definitions":
            self.definitions |= {definition["ref"]: definition for definition in part["definitions"]}
            return self._count(part["schema"], depth + 1)
        if kind == "definition-ref":
            return self._count_definition(part["schema_ref"], depth + 1)
        inner = sum(self._count(one, depth + 1) for one in parts_of(part))
        if kind is None:
            return inner
        self._message = max(self._message, _message_size(kind, part))
        if kind in OBJECTS:
            self.objects.append(part)
            return inner + sum(1 for _ in fields_of(part)) + 1
        if kind == "union":
            self.unions.append(part)
            self.choices = max(self.choices, len(choices_of(part)))
        return max(1, inner)

    def _count_definition(self, ref: str, depth: int) -> int:
        if ref not in self._counted:
            self._counted[ref] = None
            self._counted[ref] = self._count(self.definitions[ref], depth)
        count = self._counted[ref]
        self.is_recursive = self.is_recursive or count is None
        return count or 1


def _refers(part: Any, depth: int = 0) -> bool:
    """Whether a type refers to another one, which may contain it."""
    if isinstance(part, list | tuple):
        return any(_refers(one, depth + 1) for one in part)
    if not isinstance(part, Mapping):
        return False
    if depth > CORE_DEPTH or kind_of(part) == "definition-ref":
        return True
    return any(_refers(one, depth + 1) for one in parts_of(part))


def _longest(most: int, each: int, *, is_recursive: bool) -> int:
    """The length of a text whose faults take as much memory as they may: their number times what each of them takes."""
    if not is_recursive:
        return min(_UNKNOWN, max(0, (_LISTED // most - each) // _COPIES))
    square, linear = most * _COPIES / _OBJECT_CHARACTERS, most * each / _OBJECT_CHARACTERS
    return int((math.sqrt(linear**2 + 4 * square * _LISTED) - linear) / (2 * square))


def _message_size(kind: str, core: Core) -> int:
    """The characters of the longest message about a value that does not fit, besides what pydantic always says."""
    if kind == "literal":
        return sum(len(repr(one)) + 2 for one in core["expected"])
    if kind == "enum":
        return sum(len(repr(getattr(one, "value", one))) + 2 for one in core["members"])
    if kind == "tagged-union":
        return sum(len(repr(one)) + 2 for one in core["choices"])
    if kind.startswith("function-"):
        return _MESSAGE
    return len(str(core.get("pattern") or "")) + len(
        str(core.get("cls_name") or (core.get("config") or {}).get("title"))
    )


def _extent(value: Any) -> tuple[int, int]:
    """How many objects and lists it consists of, and how deep they are nested."""
    parts = depth = 0
    level = [value] if type(value) in NESTING else []
    while level and depth <= CORE_DEPTH:  # a value in Python may contain itself
        parts, depth = parts + len(level), depth + 1
        level = [
            inner for one in level for inner in (one.values() if type(one) is dict else one) if type(inner) in NESTING
        ]
    return parts, depth
