"""Which jobs somebody wants to see. Filters are as long as what they are compared with, at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from uuid import UUID

from holdfast.bounds import shown
from holdfast.errors import InvalidInput
from holdfast.model.names import refuse_unknown
from holdfast.model.pages import checked_limit

__all__ = ["Filters", "checked_filters"]

#: No name or key is longer.
_LONGEST = 255
_MOST_NAMES = 1000


class Filters(TypedDict, total=False):
    """All that are given must fit; `before` is the last id of the page before, `limit` the length of a page."""

    states: Sequence[str] | None
    types: Sequence[str] | None
    queues: Sequence[str] | None
    tenant: str | None
    target: str | None
    correlation_id: str | None
    before: UUID | None
    limit: int


def checked_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Filters as they are sent; InvalidInput for what no list can have."""
    refuse_unknown("filter", filters, Filters.__annotations__)
    asked: dict[str, Any] = {"limit": 50, **filters}
    for name in ("states", "types", "queues"):
        names = asked.get(name)
        if names is None:
            continue
        if isinstance(names, str) or len(names) > _MOST_NAMES:
            raise InvalidInput(f"{name} must be a list of at most {_MOST_NAMES} names")
        asked[name] = [_name(name, each) for each in names]
    for name in ("tenant", "target", "correlation_id"):
        if asked.get(name) is not None:
            _name(name, asked[name])
    if asked.get("before") is not None and not isinstance(asked["before"], UUID):
        try:
            asked["before"] = UUID(asked["before"])
        except (ValueError, TypeError, AttributeError):
            raise InvalidInput(f"before must be the id of a job, not {shown(asked['before'])}") from None
    checked_limit(asked["limit"])
    return asked


def _name(what: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise InvalidInput(f"{what} must be text of at most {_LONGEST} characters, not {shown(value)}")
    return value
