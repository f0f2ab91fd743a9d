"""Finds what a handler would not get as it was given, by comparing a payload with what is read from its text again.

JSON does not carry all that Python has: the flags of a pattern, the seconds of a time zone's offset, the fields that a
subclass adds, a field that a dataclass does not take. Each would be lost without a word.

Values that are equal have arrived. Others are compared part by part, and only those of the same class: pydantic
converts what a caller has put into a model unchecked. Where the author's code reads or writes values, it decides what
they become, and only lost fields and patterns count.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from holdfast.bounds import shown
from holdfast.definitions.core import CORE_DEPTH, kind_of, parts_of

__all__ = ["Arriving", "Lost"]

#: Values of these kinds may be lost.
_LOSSY = frozenset(("model", "dataclass", "datetime", "time", "timedelta", "bytes", "function-plain"))
_SCALARS = (str, int, float, bytes, Decimal, UUID, date, timedelta)
_LISTS = (list, tuple)


class Lost(NamedTuple):
    """The place of a value that would not arrive, and what would become of it."""

    place: tuple[str | int, ...]
    why: str


class Arriving:
    """What may be lost of the values of one type."""

    def __init__(self, core: Any, *, own: bool) -> None:
        """`own`: the outermost model is not the author's."""
        kinds = _Kinds()
        is_model = kind_of(core) == "model"
        kinds.collect(core["schema"] if is_model else core, 0)
        self.may_lose = kinds.is_lossy or (is_model and not own)
        #: Nothing is lost of payloads of these classes: of a model without lossy fields, only a subclass has others.
        self.whole: frozenset[type] = frozenset((dict, core["cls"])) if is_model and not kinds.is_lossy else frozenset()
        self._is_plain = not kinds.has_code
        self._looks_closer = kinds.has_closed_fields

    def lost(self, given: Any, read: Any) -> Lost | None:
        """The first value that would be lost."""
        try:
            if not self._looks_closer and given == read:
                return None
        except Exception:  # noqa: BLE001 - values may have code of their own
            return None
        return next(self._losses(given, read, ()), None)

    def _losses(self, given: Any, read: Any, place: tuple[str | int, ...]) -> Iterator[Lost]:
        if len(place) > CORE_DEPTH:
            return
        if isinstance(given, dict) and isinstance(read, dict):
            yield from self._of_members(given, read, place)
        elif isinstance(given, _LISTS) and isinstance(read, _LISTS):
            for number, (one, other) in enumerate(zip(given, read, strict=False)):
                yield from self._losses(one, other, (*place, number))
        elif (fields := _fields(given)) is not None and (others := _fields(read)) is not None:
            for name in fields.keys() - others.keys():
                told = f"the field {name} of {type(given).__name__} would be lost: it is read as {type(read).__name__}"
                yield Lost(place, told)
            yield from self._of_members(fields, others, place)
        elif type(given) is type(read) and (given is not read) and not self._has_arrived(given, read):
            yield Lost(place, f"{shown(given)} would arrive as {shown(read)}")

    def _of_members(
        self, given: Mapping[Any, Any], read: Mapping[Any, Any], place: tuple[str | int, ...]
    ) -> Iterator[Lost]:
        for name, one in given.items():
            if name in read:
                yield from self._losses(one, read[name], (*place, name if isinstance(name, str | int) else str(name)))

    def _has_arrived(self, given: Any, read: Any) -> bool:
        if isinstance(given, re.Pattern):
            return bool(given == read)
        if not self._is_plain:
            return True
        if isinstance(given, datetime):
            return _moment(given) == _moment(read)
        if isinstance(given, time):
            same = given.replace(tzinfo=None) == read.replace(tzinfo=None)
            return bool(same and given.utcoffset() == read.utcoffset())
        if isinstance(given, float | Decimal) and math.isnan(given):
            return math.isnan(read)
        return not isinstance(given, _SCALARS) or bool(given == read)


class _Kinds:
    """What a type consists of."""

    def __init__(self) -> None:
        self.is_lossy = self.has_code = self.has_closed_fields = False

    def collect(self, part: Any, depth: int) -> None:
        if depth > CORE_DEPTH:
            return
        if isinstance(part, list | tuple):
            for one in part:
                self.collect(one, depth + 1)
        elif isinstance(part, Mapping):
            kind = kind_of(part) or ""
            self.is_lossy = self.is_lossy or kind in _LOSSY
            self.has_closed_fields = self.has_closed_fields or (kind == "dataclass-field" and part.get("init") is False)
            functions = [part.get("function"), part.get("serialization")]
            self.has_code = self.has_code or any(map(_is_foreign, functions))
            for one in parts_of(part):
                self.collect(one, depth + 1)


def _is_foreign(function: Any) -> bool:
    """Whether it is code of the author's: pydantic's own reads what it wrote."""
    inner = function.get("function") if isinstance(function, Mapping) else None
    inner = inner.get("function") if isinstance(inner, Mapping) else inner
    return inner is not None and str(getattr(inner, "__module__", "")).partition(".")[0] not in ("pydantic", "operator")


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a model or dataclass."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    return None


def _moment(value: datetime) -> tuple[datetime, bool]:
    """Moments are not compared by Python's rules: one in an hour that a clock repeats equals no other."""
    offset = value.utcoffset()
    return value.replace(tzinfo=None, fold=0) - (offset or timedelta()), offset is None
