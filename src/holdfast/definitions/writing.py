"""Writes payloads so that their types read them again, field by field.

A model may read a field by one name and write it by another (`validation_alias`, `serialization_alias`), or not write
it at all (`exclude`, `exclude_if`). A field with a default would then be lost without a word. So a field is written at
a place where it is read, and that no other field has if it is read earlier: with `AliasChoices("amount", "net")` for
one field and the name `amount` for another, the first would get the value of the second.

A field that its author excludes for good may be a secret, and is never written. One that is read from a path only
(`AliasPath`) has no name to write it by. Such fields are refused where the type is declared, unless they are required:
then every payload without them is refused, and those that come as JSON have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

from pydantic_core import SchemaSerializer

from holdfast.definitions.core import CORE_DEPTH, PARTS, Core, fields_of, has_default, kind_of, places_of

__all__ = ["LostField", "serializer_of"]

_OBJECTS = frozenset(("model-fields", "typed-dict", "dataclass-args"))
#: How many names are tried before a type is refused.
_TRIES = 20_000


class LostField(ValueError):
    """A field would not be written, and the handler would get its default."""


def serializer_of(core: Core, otherwise: SchemaSerializer) -> SchemaSerializer:
    """What writes values of this type: `otherwise` if it writes all fields as they are read. Raises LostField."""
    writing = _Writing(core)
    made = writing.part(core, {}, "", 0)
    # By default nested models would use the serializers that they already have.
    return SchemaSerializer(made, _use_prebuilt=False) if writing.has_changed else otherwise


class _Writing:
    """Changes one schema."""

    def __init__(self, core: Core) -> None:
        self._definitions: Mapping[str, Core] = {one["ref"]: one for one in core.get("definitions", ())}
        self.has_changed = False

    def part(self, part: Any, config: Core, owner: str, depth: int) -> Any:
        """The same part, in which fields are written as they are read."""
        if depth > CORE_DEPTH:
            return part
        if isinstance(part, list | tuple):
            return type(part)(self.part(one, config, owner, depth + 1) for one in part)
        if not isinstance(part, Mapping):
            return part
        kind = kind_of(part)
        if kind is None:
            return {name: self.part(one, config, owner, depth + 1) for name, one in part.items()}
        if kind in ("model", "dataclass"):
            config, owner = part.get("config") or {}, part["cls"].__name__
        elif kind == "typed-dict":
            config, owner = {**config, **(part.get("config") or {})}, part.get("cls_name") or owner
        made = {name: self.part(one, config, owner, depth + 1) if name in PARTS else one for name, one in part.items()}
        if kind in _OBJECTS:
            made["fields"] = self._fields(part, made["fields"], config, owner)
        return made

    def _fields(self, core: Core, made: Any, config: Core, owner: str) -> Any:
        keys = list(made if isinstance(made, Mapping) else range(len(made)))
        written: list[_Written] = []
        for key, (name, field) in zip(keys, fields_of(core), strict=True):
            if field.get("init_only"):
                continue
            made[key] = self._with_options(field, made[key])
            is_optional = not field.get("required", core.get("total", True))
            one = _Written.of(key, name, field, places_of(name, field, config))
            if (is_optional or has_default(field["schema"], self._definitions)) and field.get("init", True):
                _refuse_lost(one, field, owner)
            if not made[key].get("serialization_exclude"):
                written.append(one)
        for one, place in zip(written, _apart(written, owner), strict=True):
            if place != one.usual:
                self.has_changed = True
                made[one.key] = {**made[one.key], "serialization_alias": place}
        return made

    def _with_options(self, field: Core, made: Core) -> Core:
        """The field, written whatever its value is, unless a dataclass does not take it.

        A value that the dataclass would not set by itself is refused later (`holdfast.definitions.arriving`).
        """
        if field.get("init", True) is False:
            self.has_changed = True
            return {**made, "serialization_exclude": True}
        if "serialization_exclude_if" in field:
            self.has_changed = True
            return {option: one for option, one in made.items() if option != "serialization_exclude_if"}
        return made


def _refuse_lost(written: _Written, field: Core, owner: str) -> None:
    name = f"{owner}.{written.name}"
    if field.get("serialization_exclude"):
        told = f"{name} is excluded (exclude=True): its value would not be stored"
    elif not written.places:
        told = f"{name} is written as {written.usual!r}, but not read from there: give it one alias"
    else:
        return
    raise LostField(f"{told}; the handler would get its default")


class _Written(NamedTuple):
    """A field that is written: its usual name, and by which names it is read."""

    key: str | int
    name: str
    usual: str
    #: The names by which it can be written, the best one first, each with the names that are read before it.
    places: dict[str, frozenset[str]]

    @classmethod
    def of(cls, key: str | int, name: str, field: Core, places: list[list[str | int]]) -> _Written:
        usual, before, found = _name_in(name, field), set[str](), dict[str, frozenset[str]]()
        for place in places:
            if len(place) == 1:
                found.setdefault(str(place[0]), frozenset(before))
            before.add(str(place[0]))
        best = {usual: found[usual]} if usual in found else {}
        return cls(key, name, usual, {**best, **found})

    @property
    def choices(self) -> Mapping[str, frozenset[str]]:
        """The same; the usual name of a required field that has none: its payload is refused when it is read again."""
        return self.places or {self.usual: frozenset()}


def _apart(fields: list[_Written], owner: str) -> list[str]:
    """A name for each field, such that no field is read from the name of another one. Raises LostField."""
    found: list[str] = []
    tries = [iter(fields[0].choices)] if fields else []
    for _ in range(_TRIES):
        if len(found) == len(fields):
            return found
        place = next((one for one in tries[-1] if _is_free(fields, found, one)), None)
        if place is not None:
            found.append(place)
            if len(found) < len(fields):
                tries.append(iter(fields[len(found)].choices))
        elif found:
            tries.pop()
            found.pop()
        else:
            break
    both = next(
        (f"{one.name} and {other.name}" for one, other in combinations(fields, 2) if one.choices.keys() & _read(other)),
        "its fields",
    )
    raise LostField(f"{owner}: {both} are read by the same names, so one would get the value of the other")


def _is_free(fields: list[_Written], found: list[str], place: str) -> bool:
    before = fields[len(found)].choices[place]
    return not any(
        other == place or other in before or place in field.choices[other]
        for field, other in zip(fields, found, strict=False)
    )


def _read(field: _Written) -> set[str]:
    return set(field.choices).union(*field.choices.values())


def _name_in(name: str, field: Core) -> str:
    """The name by which a field is written."""
    return str(field.get("serialization_alias") or name)
