"""Types that accept every JSON value and leave it as it is.

::

    J = dict[str, J] | list[J] | str | int | float | bool | None

pydantic would try the choices of such a union for each value, and copy the rest of the text for each choice that does
not fit, at every level. But the outcome is known: the value itself. So its JSON is not validated, as pydantic does for
its own `JsonValue`. Values in Python are validated as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.definitions.core import CORE_DEPTH, Core, choices_of, kind_of, parts_of

__all__ = ["is_limited", "with_any_json"]

_SCALARS = frozenset(("str", "int", "float", "bool", "none"))
#: The options that do not narrow a type.
_BARE = frozenset(("type", "ref", "metadata"))
_OPTIONS = {
    **dict.fromkeys(_SCALARS, _BARE),
    "list": _BARE | {"items_schema", "fail_fast"},
    "dict": _BARE | {"keys_schema", "values_schema", "fail_fast"},
}
#: Options of a model's configuration that narrow the types within it.
_LIMITS = frozenset(("str_min_length", "str_max_length", "str_strip_whitespace", "str_to_lower", "str_to_upper",
                     "allow_inf_nan"))  # fmt: skip


def with_any_json(core: Core, *, judging: bool = False) -> Core:
    """The same schema, in which the JSON of such types is not validated. When judging, values do not matter."""
    definitions = {one["ref"]: one for one in core.get("definitions", ())}
    whole = _AnyJson(definitions, ("smart", "left_to_right") if judging else ("smart",))
    refs = {ref for ref, one in definitions.items() if whole.accepts_all(one)}
    if not refs or is_limited(core) or (_is_chosen(core, refs) and not judging):
        return core
    return {**core, "definitions": [_unchecked(one) if one["ref"] in refs else one for one in core["definitions"]]}


class _AnyJson:
    """Looks for definitions that accept every JSON value."""

    def __init__(self, definitions: Mapping[str, Core], modes: tuple[str, ...]) -> None:
        self._definitions, self._modes = definitions, modes
        #: What is being looked at: a type that contains itself accepts everything unless another part does not.
        self._assumed: set[str] = set()

    def accepts_all(self, core: Core) -> bool:
        """Whether this type does."""
        ref = core.get("ref") or core.get("schema_ref")
        if core["type"] == "any" or ref in self._assumed:
            return True
        if ref is not None:
            self._assumed.add(ref)
        try:
            return self._has_every_kind(list(self._choices(core, 0)))
        finally:
            if ref is not None:
                self._assumed.discard(ref)

    def _has_every_kind(self, choices: list[Core]) -> bool:
        kinds = {str(choice["type"]) for choice in choices}
        return kinds == _OPTIONS.keys() and all(map(self._is_open, choices))

    def _is_open(self, choice: Core) -> bool:
        kind = choice["type"]
        if not choice.keys() <= _OPTIONS[kind]:
            return False
        if kind == "list":
            return self.accepts_all(choice.get("items_schema") or {"type": "any"})
        if kind == "dict":
            keys = choice.get("keys_schema") or {}
            is_text = keys.get("type") == "str" and keys.keys() <= _BARE
            return is_text and self.accepts_all(choice.get("values_schema") or {"type": "any"})
        return True

    def _choices(self, core: Core, depth: int) -> Iterator[Core]:
        """The choices of a union, and of unions within it."""
        kind = core["type"]
        if (
            kind == "union"
            and core.get("mode", "smart") in self._modes
            and not core.get("strict")
            and depth < CORE_DEPTH
        ):
            for choice in choices_of(core):
                yield from self._choices(choice, depth + 1)
        elif kind == "nullable" and depth < CORE_DEPTH:
            yield {"type": "none"}
            yield from self._choices(core["schema"], depth + 1)
        elif kind == "definition-ref" and depth < CORE_DEPTH:
            yield from self._choices(self._definitions[core["schema_ref"]], depth + 1)
        else:
            yield core


def _unchecked(core: Core) -> Core:
    inner = {name: value for name, value in core.items() if name != "ref"}
    return {"type": "json-or-python", "json_schema": {"type": "any"}, "python_schema": inner, "ref": core["ref"]}


def is_limited(part: Any, depth: int = 0) -> bool:
    """Whether the configuration of a model changes what texts and numbers are accepted."""
    if isinstance(part, Mapping) and _LIMITS & (part.get("config") or {}).keys():
        return True
    return depth > CORE_DEPTH or any(is_limited(one, depth + 1) for one in _inside(part))


def _is_chosen(core: Core, refs: set[str]) -> bool:
    """Whether such a type is, or is within, a choice of another union: pydantic prefers exact choices to any JSON."""
    outside = [core["schema"], *(one for one in core["definitions"] if one["ref"] not in refs)]
    return any(_has_chosen(one, 0, is_choice=False) for one in outside)


def _has_chosen(part: Any, depth: int, *, is_choice: bool) -> bool:
    if depth > CORE_DEPTH:
        return True
    if isinstance(part, Mapping) and kind_of(part) is not None:
        if part["type"] == "definition-ref":
            # A definition that is referred to within a union may refer to such a type in turn.
            return is_choice
        is_choice = is_choice or part["type"] in ("union", "tagged-union")
    return any(_has_chosen(one, depth + 1, is_choice=is_choice) for one in _inside(part))


def _inside(part: Any) -> Iterable[Any]:
    if isinstance(part, list | tuple):
        return part
    return parts_of(part) if isinstance(part, Mapping) else ()
