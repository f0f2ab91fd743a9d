"""Finds the place and the reason of the first fault of a value that does not fit, once validation has stopped there.

Validation notes the fields in which it stopped (`holdfast.definitions.stopping`), but not the items of lists and dicts.
So the value is followed along these fields, and where there are items, they are validated one by one. Only the part
that does not fit is then validated by itself, for pydantic's own words about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from pydantic_core import ErrorDetails, SchemaError, SchemaValidator, ValidationError, to_json

from holdfast.definitions.core import (
    AROUND,
    CONTAINERS,
    CORE_DEPTH,
    NESTING,
    OBJECTS,
    Core,
    at,
    choices_of,
    fields_of,
    find,
)
from holdfast.definitions.effort import chosen
from holdfast.definitions.stopping import UNFIT, Stopped, StoppingValidator, Validation, failing_fast

__all__ = ["first_fault"]

Place = tuple[str | int, ...]

_WORDS, _CHARACTERS, _NAMES = "does not fit", 500, 20
#: How many choices of unions are looked into.
_CHOICES = 30


def first_fault(
    core: Core, definitions: Mapping[str, Core], value: Any, stops: Sequence[Stopped], *, is_json: bool
) -> tuple[Place, str]:
    """The place and the reason. `stops`: the fields in which validation stopped, from the inside out."""
    return _Search(definitions, is_json=is_json).follow(core, value, list(stops))


class _Search:
    def __init__(self, definitions: Mapping[str, Core], *, is_json: bool) -> None:
        self._definitions, self._is_json = definitions, is_json
        self._choices = _CHOICES
        #: The configuration of the model that was looked at last.
        self._config: Core = {}
        #: The configuration of the model around the part that is looked at.
        self._around: Core = {}

    def follow(self, core: Core, value: Any, stops: list[Stopped]) -> tuple[Place, str]:
        place: list[str | int] = []
        if stops and stops[-1].field == 0:
            stops.pop()  # the whole payload
        for _ in range(2 * CORE_DEPTH):
            judge = self._unwrapped(core, value)
            if judge["type"] in OBJECTS and type(value) is dict:
                if stops and stops[-1].field == id(judge):  # a member that is not a field
                    stops.pop()
                    item = self._first_unfit((judge["extras_schema"], *one) for one in _others(judge, value))
                    if item is None:
                        break
                    core, key, value = item
                    place.append(key)
                    continue
                field = _next_field(judge, stops)
                if field is None:
                    break
                found = find(*field, value)
                if found is None:
                    return (*place, field[0]), "Field required"
                self._around = self._config
                core, value = field[1]["schema"], found[1]
                place += found[0]
            elif judge["type"] in CONTAINERS and type(value) in NESTING:
                item = self._unfit_item(judge, value, is_inside=bool(stops))
                if item is None:
                    break
                core, key, value = item
                place.append(key)
            else:
                if judge["type"] == "union" and (found_within := self._within_union(judge, value)) is not None:
                    return (*place, *found_within[0]), found_within[1]
                break
        if (unknown := self._unknown(core, value)) is not None:
            return (*place, unknown), "Extra inputs are not permitted"
        inner, why = self._said(core, value)
        return (*place, *inner), why

    def _within_union(self, core: Core, value: Any) -> tuple[Place, str] | None:
        """The fault of the choice that fits best: whose fault is the deepest."""
        found = list[tuple[Place, str]]()
        for choice in choices_of(core) if type(value) in NESTING else ():
            self._choices -= 1
            validator = self._validator(choice) if self._choices >= 0 else None
            if validator is not None:
                found.append(self.follow(choice, value, self._run(validator, value).stops))
        return max(found, key=lambda one: len(one[0]), default=None)

    def _unwrapped(self, core: Core, value: Any) -> Core:
        """What judges the value, unless the author's code has changed it."""
        self._config = {}
        for _ in range(CORE_DEPTH):
            kind = core["type"]
            self._config = core.get("config") or self._config
            if kind == "definition-ref":
                core = self._definitions[core["schema_ref"]]
            elif kind == "json-or-python":
                core = core["json_schema" if self._is_json else "python_schema"]
            elif kind == "tagged-union" and (choice := chosen(core, value)) is not None:
                core = choice
            elif kind in AROUND or (kind in ("function-before", "function-wrap") and "schema" in core):
                core = core[AROUND.get(kind, "schema")]
            else:
                break
        return core

    def _unfit_item(self, core: Core, value: Any, *, is_inside: bool) -> tuple[Core, str | int, Any] | None:
        items = core.get("values_schema" if type(value) is dict else "items_schema")
        last = len(items) - 1 if isinstance(items, list) else 0
        if isinstance(items, list) and len(value) > len(items) and core.get("variadic_item_index") is None:
            return None  # its length is the fault
        members = value.items() if type(value) is dict else enumerate(value)
        if is_inside and len(value) == 1 and isinstance(items, Mapping):
            ((key, inner),) = members
            return items, key, inner
        return self._first_unfit(
            (items[min(number, last)] if isinstance(items, list) else items, key, inner)
            for number, (key, inner) in enumerate(members)
        )

    def _first_unfit(self, items: Iterable[tuple[Any, Any, Any]]) -> tuple[Core, str | int, Any] | None:
        validators: dict[int, StoppingValidator | None] = {}
        for schema, key, value in items:
            if not isinstance(schema, Mapping) or not isinstance(key, str | int):
                return None
            if id(schema) not in validators:
                validators[id(schema)] = self._validator(schema)
            validator = validators[id(schema)]
            if validator is not None and not self._run(validator, value).fits:
                return schema, key, value
        return None

    def _run(self, validator: StoppingValidator, value: Any) -> Validation:
        return validator.run(lambda inner: self._validate(inner, value))

    def _validate(self, validator: SchemaValidator, value: Any) -> Any:
        return validator.validate_json(to_json(value)) if self._is_json else validator.validate_python(value)

    def _validator(self, core: Core, *, is_open: bool = False) -> StoppingValidator | None:
        try:
            return StoppingValidator(self._whole(core), self._definitions, config=self._around, is_open=is_open)
        except (SchemaError, TypeError, RecursionError, KeyError):
            return None

    def _first_listed(self, core: Core, value: Any) -> ErrorDetails | None:
        with suppress(SchemaError, TypeError, RecursionError):
            validator = SchemaValidator(failing_fast(self._whole(core)), cast("Any", self._around), _use_prebuilt=False)
            try:
                self._validate(validator, value)
            except ValidationError as error:
                return _first_of(error)
        return None

    def _whole(self, core: Core) -> Core:
        if core["type"] == "definitions" or not self._definitions:
            return core
        return {"type": "definitions", "schema": core, "definitions": list(self._definitions.values())}

    def _unknown(self, core: Core, value: Any) -> str | None:
        """The first member of an object that must not be there."""
        core = self._unwrapped(core, value)
        if core["type"] not in OBJECTS or type(value) is not dict:
            return None
        config = {**self._config, **(core.get("config") or {})}
        if (core.get("extra_behavior") or config.get("extra_fields_behavior")) != "forbid":
            return None
        return next((name for name, _ in _others(core, value) if isinstance(name, str)), None)

    def _said(self, core: Core, value: Any) -> tuple[Place, str]:
        """What pydantic says about a value that does not fit by itself."""
        if type(value) in NESTING or (type(value) is str and len(value) > _CHARACTERS):
            validator = self._validator(core, is_open=True)
            if validator is None:
                return (), _WORDS
            run = self._run(validator, value)
            first = None if run.error is None else _first_of(run.error)
            names = ".".join(stop.name for stop in reversed(run.stops[-_NAMES:]))
            words = f"{_WORDS}: {names}" if names else _WORDS
        else:  # it has few faults
            first, words = self._first_listed(core, value), _WORDS
        if first is None or first["type"] == UNFIT:
            return (), words
        place: list[str | int] = []
        for part in first["loc"]:
            inside, is_there = at(value, [part])
            if is_there:
                value = inside
                place.append(part)
        said = first["msg"]
        return tuple(place), said if len(said) <= _CHARACTERS else said[:_CHARACTERS] + "…"


def _first_of(error: ValidationError) -> ErrorDetails:
    return error.errors(include_url=False, include_context=False, include_input=False)[0]


def _next_field(core: Core, stops: list[Stopped]) -> tuple[str, Core] | None:
    for name, field in fields_of(core):
        if stops and id(field) == stops[-1].field:
            stops.pop()
            return name, field
    return None


def _others(core: Core, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The members of an object that are not fields."""
    places = [find(name, field, value) for name, field in fields_of(core)]
    known = {place[0][0] for place in places if place is not None}
    return ((name, inner) for name, inner in value.items() if name not in known)
