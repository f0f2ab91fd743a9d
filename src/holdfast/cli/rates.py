"""Rates on the command line: `10/s`, `100/min`, `5/30s`."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from holdfast.errors import InvalidInput
from holdfast.model.limits import Rate

__all__ = ["RateType", "RequestRate"]


class RateType(click.ParamType):  # type: ignore[type-arg]
    """A number per time, as in `rate="100/min"`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        """The rate."""
        try:
            rate = Rate.of(value)
        except InvalidInput as fault:
            self.fail(str(fault), param, ctx)
        assert rate is not None  # noqa: S101 - what is not given is not converted
        return rate


class RequestRate(RateType):
    """The same for requests, as a number per second, which may also be given directly."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # type: ignore[override]
        """How many per second."""
        with contextlib.suppress(ValueError):
            return click.FloatRange(min=0, min_open=True).convert(float(value), param, ctx)
        rate = super().convert(value, param, ctx)
        return rate.count / rate.per
