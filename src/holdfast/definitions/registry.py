"""The job types and schedules of an app, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any

from holdfast.definitions.job_type import JobType
from holdfast.errors import InvalidInput

__all__ = ["Registry"]


class Registry:
    """Job types and schedules by name; each name can be declared only once."""

    def __init__(self) -> None:
        self._types: dict[str, JobType] = {}
        self._schedules: dict[tuple[str, str], dict[str, Any]] = {}

    def add(self, job_type: JobType) -> None:
        """Add a type."""
        known = self._types.get(job_type.name)
        if known is not None and known.handler.__qualname__ != job_type.handler.__qualname__:
            both = f"{_place(known.handler)} and {_place(job_type.handler)}"
            raise InvalidInput(f"job type {job_type.name!r} is declared twice: {both}")
        self._types[job_type.name] = job_type

    @property
    def schedules(self) -> Collection[dict[str, Any]]:
        """The definitions of all schedules (see `holdfast.definitions.schedule`)."""
        return self._schedules.values()

    def add_schedule(self, definition: dict[str, Any]) -> None:
        """Add a schedule; a tenant has each name once."""
        key = definition["tenant"], definition["name"]
        if self._schedules.setdefault(key, definition) != definition:
            raise InvalidInput(f"schedule {definition['name']!r} is declared twice, and differently")

    def get(self, name: str) -> JobType | None:
        """The type with that name, if this process knows it."""
        return self._types.get(name)

    def __iter__(self) -> Iterator[JobType]:
        return iter(self._types.values())

    def __len__(self) -> int:
        return len(self._types)


def _place(handler: Callable[..., Any]) -> str:
    """The name of a handler, with the file and line of its code."""
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return f"{handler.__qualname__}{f' ({code.co_filename}:{code.co_firstlineno})' if code else ''}"
