"""Cursors of pages in order of names, or of times and names: an opaque text that contains the last place."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated

from fastapi import Query

from holdfast.web.problems import Problem

__all__ = ["NameCursor", "cursor_behind", "invalid_cursor", "moment_place", "names_before"]

#: Two names of 255 characters each, as JSON and in base64.
NameCursor = Annotated[str | None, Query(max_length=5000, description="`next_cursor` of the previous page")]


def cursor_behind(*names: str) -> str:
    """The cursor after these names."""
    return base64.urlsafe_b64encode(json.dumps(names).encode()).rstrip(b"=").decode()


def names_before(cursor: str | None, count: int) -> list[str] | None:
    """The names in a cursor."""
    if cursor is None:
        return None
    try:
        names = json.loads(base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        names = None
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise invalid_cursor()
    return names


def moment_place(cursor: str | None, count: int) -> tuple[datetime, list[str]] | None:
    """The time in a cursor, and the names behind it."""
    parts = names_before(cursor, 1 + count)
    if parts is None:
        return None
    try:
        moment = datetime.fromisoformat(parts[0])
    except ValueError:
        raise invalid_cursor() from None
    if moment.tzinfo is None:
        raise invalid_cursor()
    return moment, parts[1:]


def invalid_cursor() -> Problem:
    """What is wrong with a cursor that this page did not make."""
    return Problem(422, "invalid", "The cursor is not valid here.")
