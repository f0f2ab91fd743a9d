"""Bounds what compiling the patterns of a payload takes (fields of type `re.Pattern`).

Python's `re` takes up to 5 ms for each set of characters (`[…]`), and 12 µs for any other character. 420 KB of sets
took 150 s. All patterns of one payload share a budget.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.definitions.core import CORE_DEPTH, PARTS, Core, kind_of
from holdfast.definitions.first_fault import FirstFault, Validator

__all__ = ["validator_of"]

#: How many sets, and how many characters, the patterns of a payload may have.
_SETS, _CHARACTERS = 100, 20_000
_COMPILING = frozenset(("pattern_either_validator", "pattern_str_validator", "pattern_bytes_validator"))


class _Left(threading.local):
    """What is left for the validation that this thread runs."""

    sets, characters = _SETS, _CHARACTERS


class _OfPatterns(FirstFault):
    """A validator for a type with patterns."""

    def __init__(self, core: Core, otherwise: Validator, left: _Left) -> None:
        super().__init__(core, otherwise)
        self._left = left

    def validate(self, text: str) -> Any:
        """The value of a text."""
        self._left.sets, self._left.characters = _SETS, _CHARACTERS
        return super().validate(text)

    def check(self, value: Any) -> Any:
        """The same for a value in Python."""
        self._left.sets, self._left.characters = _SETS, _CHARACTERS
        return super().check(value)


def validator_of(core: Core, otherwise: Validator) -> FirstFault:
    """The validator of a type, which compiles patterns within bounds."""
    left = _Left()
    bounded = _bounded(core, left, 0)
    return FirstFault(core, otherwise) if bounded is core else _OfPatterns(bounded, otherwise, left)


def _bounded(part: Any, left: _Left, depth: int) -> Any:
    """The same part, in which patterns count; the part itself if it has none."""
    if depth > CORE_DEPTH:
        return part
    if isinstance(part, list | tuple):
        made = type(part)(_bounded(one, left, depth + 1) for one in part)
        return part if all(new is old for new, old in zip(made, part, strict=True)) else made
    if not isinstance(part, Mapping):
        return part
    kind = kind_of(part)
    if kind == "function-plain" and _compiles(part["function"]["function"]):
        function = _counting(part["function"]["function"], left)
        return {**part, "function": {**part["function"], "function": function}}
    parts = {name: one for name, one in part.items() if kind is None or name in PARTS}
    changed = {name: new for name, one in parts.items() if (new := _bounded(one, left, depth + 1)) is not one}
    return {**part, **changed} if changed else part


def _compiles(function: Any) -> bool:
    module = str(getattr(function, "__module__", ""))
    return module.startswith("pydantic.") and getattr(function, "__name__", "") in _COMPILING


def _counting(function: Callable[[Any], Any], left: _Left) -> Callable[[Any], Any]:
    def compiled(value: Any) -> Any:
        if isinstance(value, str | bytes):
            left.characters -= len(value)
            left.sets -= value.count("[") if isinstance(value, str) else value.count(b"[")
            if left.characters < 0 or left.sets < 0:
                raise ValueError(
                    f"patterns may have {_SETS} sets of characters ([…]) and {_CHARACTERS:,} characters in all"
                )
        return function(value)

    return compiled
