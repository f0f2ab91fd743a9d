"""Lengths of time on the command line: `90s`, `15m`, `2h`, `1d`, `1w`, or a number of seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from holdfast.model.durations import seconds_of

__all__ = ["Duration"]


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A number, with a unit unless it is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The length."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(seconds=seconds_of(str(value)))
        except ValueError as fault:
            self.fail(f"{value!r} {fault}", param, ctx)
