"""Numbers on the command line, with words that say what is wrong with one."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["Number", "Whole"]


class Whole(click.IntRange):
    """A whole number within bounds. Click says of another text that it is not a valid integer range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """The same for any number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        return super().convert(value, param, ctx)
