"""Whether a dict within values of a type may have keys that are the same in JSON, as 1 and "1" are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.definitions.core import CORE_DEPTH, DICTS, SCALARS, kind_of, parts_of

__all__ = ["may_repeat_keys"]

#: Kinds that only pass on what their parts are.
_OF_PARTS = frozenset(
    ("list", "tuple", "set", "frozenset", "deque", "nullable", "default", "union", "tagged-union", "definitions",
     "json-or-python", "lax-or-strict", "custom-error", "model-fields", "model-field", "typed-dict", "typed-dict-field",
     "dataclass-args", "dataclass-field", "definition-ref")
)  # fmt: skip
#: Instances of these are accepted as they are, and their dicts may have been filled with anything since.
_OPEN = frozenset(("model", "dataclass", "function-after"))
#: Serializers that write a text.
_TEXTS = frozenset(("to-string", "format"))


def may_repeat_keys(core: Any, *, own: bool = False) -> bool:
    """Whether the JSON of such a value has to be examined. `own`: it is a model of ours, made of checked arguments."""
    if kind_of(core) == "definitions":
        # Definitions may be used within a model.
        return may_repeat_keys(core["schema"], own=own) or _may(core["definitions"], 0, True)
    return _may(core["schema"] if own and not _allows_extras(core) else core, 0, False)


def _may(core: Any, depth: int, is_open: bool) -> bool:
    if isinstance(core, list | tuple):
        return any(_may(one, depth + 1, is_open) for one in core)
    if depth > CORE_DEPTH:
        return True
    if not isinstance(core, Mapping):
        return False
    kind = kind_of(core)
    if kind is not None:
        writer = core.get("serialization")
        if writer is not None:
            return writer["type"] not in _TEXTS
        if kind in SCALARS:
            return False
        if kind in DICTS:
            if is_open or core.get("keys_schema", {}).get("type") != "str":
                return True
        elif kind in _OPEN:
            is_open = True
        elif kind not in _OF_PARTS:
            return True
        if _allows_extras(core):
            return True
    return any(_may(one, depth + 1, is_open) for one in parts_of(core))


def _allows_extras(core: Any) -> bool:
    behavior = core.get("extra_behavior"), (core.get("config") or {}).get("extra_fields_behavior")
    return "allow" in behavior
