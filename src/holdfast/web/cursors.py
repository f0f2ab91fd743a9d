"""Cursors: where a page ended, as an opaque text that callers send back.

It holds nothing but the position of the last thing that the caller was shown, or of one that is theirs: ids, numbers
and times of other tenants never come here. So there is nothing to hide in it, and a caller who makes one up gets a
page of their own data.
"""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

from holdfast.web.problems import Problem

__all__ = ["cursor_of", "id_of", "number_of"]

_HIGHEST = 2**31 - 1


def cursor_of(position: UUID | int | None) -> str | None:
    """The cursor after this."""
    return None if position is None else base64.urlsafe_b64encode(str(position).encode()).rstrip(b"=").decode()


def id_of(cursor: str | None) -> UUID | None:
    """The id in a cursor."""
    if cursor is None:
        return None
    try:
        return UUID(_text(cursor))
    except ValueError:
        raise _unknown() from None


def number_of(cursor: str | None, *, highest: int = _HIGHEST) -> int | None:
    """The number in a cursor."""
    if cursor is None:
        return None
    text = _text(cursor)
    if not (text.isascii() and text.isdigit() and int(text) <= highest):
        raise _unknown()
    return int(text)


def _text(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise _unknown() from None


def _unknown() -> Problem:
    return Problem(422, "invalid", "The cursor is not valid here.")
