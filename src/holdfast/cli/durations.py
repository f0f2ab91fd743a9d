"""Lengths of time on the command line: `90s`, `15m`, `2h`, `1d`, `1w`, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

__all__ = ["Duration"]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A number, with a unit unless it is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The length."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw]?)", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration (e.g. 90s, 15m, 2h, 1d, or a number of seconds)", param, ctx)
        return timedelta(**{_UNITS[found.group(2) or "s"]: float(found.group(1))})
