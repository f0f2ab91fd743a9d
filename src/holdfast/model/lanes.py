"""The lanes, and how slots per lane are written: `fast=3,general=5,reports=2`.

`fast` and `general` always exist; any other name is a custom lane.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from holdfast.model.names import did_you_mean

__all__ = ["LANES", "lane_fault", "pairs_of", "slots_of"]

LANES = ("fast", "general")
V = TypeVar("V", int, float)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


def lane_fault(lane: object) -> str | None:
    """What is wrong with the name of a lane, in words. Typing errors are found by their likeness."""
    if not isinstance(lane, str) or not _NAME.fullmatch(lane):
        return "a lane is named by 1 to 40 letters, digits, dots, hyphens and underscores"
    if lane not in LANES and (hint := did_you_mean(lane, LANES)):
        return f"there is no lane {lane!r}, and names this similar to a known lane are refused{hint}"
    return None


def slots_of(text: str) -> dict[str, int]:
    """Slots per lane, `fast` and `general` among them; ValueError says what is wrong."""
    return dict.fromkeys(LANES, 0) | pairs_of(text, "fast=3,general=5", _slots)


def pairs_of(text: str, example: str, read: Callable[[str], V | None]) -> dict[str, V]:
    """What is written as `lane=value,…`; `read` answers None for what is not a value."""
    found: dict[str, V] = {}
    for part in text.split(","):
        lane, _, written = (word.strip() for word in part.partition("="))
        value = read(written)
        if _NAME.fullmatch(lane) and (fault := lane_fault(lane)):
            raise ValueError(f"must look like {example}: {fault}")
        if lane_fault(lane) or value is None:
            raise ValueError(f"must look like {example}")
        if lane in found:
            raise ValueError(f"must name each lane once: {lane}")
        found[lane] = value
    return found


def _slots(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
