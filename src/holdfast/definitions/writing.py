"""Writes payloads so that their types read them again, field by field.

A model may read a field by one name and write it by another (`validation_alias`, `serialization_alias`), or not write
it at all (`exclude`, `exclude_if`). A field with a default would then be lost without a word. So a field is written at
a place where it is read.

A field that its author excludes for good may be a secret, and is never written. One that is read from a path only
(`AliasPath`) has no name to write it by. Such fields are refused where the type is declared, unless they are required:
then every payload without them is refused, and those that come as JSON have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import SchemaSerializer

from holdfast.definitions.core import CORE_DEPTH, PARTS, Core, fields_of, has_default, kind_of, places_of

__all__ = ["LostField", "serializer_of"]

_OBJECTS = frozenset(("model-fields", "typed-dict", "dataclass-args"))


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
        fields = list(fields_of(core))
        taken = {
            _name_in(name, field) for name, field in fields if [_name_in(name, field)] in places_of(name, field, config)
        }
        for key, (name, field) in zip(made if isinstance(made, Mapping) else range(len(made)), fields, strict=True):
            if field.get("init", True) is False or field.get("init_only"):
                continue
            is_optional = not field.get("required", core.get("total", True))
            may_be_left_out = is_optional or has_default(field["schema"], self._definitions)
            made[key] = self._field(name, made[key], config, taken, owner if may_be_left_out else None)
        return made

    def _field(self, name: str, field: Core, config: Core, taken: set[str], owner: str | None) -> Core:
        """The field as it is written. With an owner, losing it is a fault."""
        if field.get("serialization_exclude"):
            if owner is not None:
                raise LostField(f"{owner}.{name} is excluded (exclude=True): its value would not be stored")
            return field
        if "serialization_exclude_if" in field:
            self.has_changed = True
            field = {option: value for option, value in field.items() if option != "serialization_exclude_if"}
        written, places = _name_in(name, field), places_of(name, field, config)
        if [written] in places:
            return field
        names = [str(place[0]) for place in places if len(place) == 1 and place[0] not in taken]
        if names:
            self.has_changed = True
            taken.add(names[0])
            return {**field, "serialization_alias": names[0]}
        if owner is not None:
            raise LostField(f"{owner}.{name} is written as {written!r}, but not read from there: give it one alias")
        return field


def _name_in(name: str, field: Core) -> str:
    """The name by which a field is written."""
    return str(field.get("serialization_alias") or name)
