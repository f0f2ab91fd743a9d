"""Lengths of time as people write them: `90s`, `15m`, `2h`, `1d`, `1w`, or a number of seconds."""

from __future__ import annotations

import re

__all__ = ["seconds_of"]

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw]?)")


def seconds_of(text: str) -> float:
    """The length in seconds; ValueError with a sentence if the text is not one."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise ValueError("is not a duration (e.g. 90s, 15m, 2h, 1d, or a number of seconds)")
    return float(found[1]) * _UNITS[found[2]]
