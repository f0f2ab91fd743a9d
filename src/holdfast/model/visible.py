"""Text that others wrote, made harmless for a terminal: what would move the cursor or turn the writing is spelt out."""

from __future__ import annotations

import re

__all__ = ["is_printable", "visible", "visible_json"]

#: Control characters but tab and line feed, and those that end a line or turn the direction of writing.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SPACES = re.compile("[\t\n]")


def is_printable(name: str) -> bool:
    """Whether a name can be shown as it is: the engine takes no others (`sql/functions/names.sql`)."""
    return not _UNPRINTABLE.search(name) and not _SPACES.search(name)


def visible(text: str, *, lines: bool = True) -> str:
    r"""The text with `\x1b` for an escape, and so on; without `lines`, on one line."""
    text = _UNPRINTABLE.sub(_spelt, text)
    return text if lines else _SPACES.sub(_spelt, text)


def visible_json(text: str) -> str:
    """JSON that says the same, without such characters."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelt(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
