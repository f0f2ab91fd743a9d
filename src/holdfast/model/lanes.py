"""The lanes, and how slots per lane are written: `fast=3,general=5`."""

from __future__ import annotations

import re

__all__ = ["LANES", "slots_of"]

LANES = ("fast", "general")


def slots_of(text: str) -> dict[str, int]:
    """Slots per lane; a lane that is not named has none. ValueError says what is wrong."""
    slots = dict.fromkeys(LANES, 0)
    for part in text.split(","):
        lane, _, number = (word.strip() for word in part.partition("="))
        if re.fullmatch(r"\w+", lane) and lane not in LANES:
            raise ValueError(f"must look like fast=3,general=5: there is no lane {lane!r}")
        if lane not in LANES or not re.fullmatch(r"[0-9]{1,9}", number):
            raise ValueError("must look like fast=3,general=5")
        slots[lane] = int(number)
    return slots
