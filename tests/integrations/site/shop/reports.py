"""Imports models before the app: only where Django was set up beforehand does that work."""

from __future__ import annotations

from tests.integrations.site.shop.models import Order  # isort: split

from holdfast import Context
from holdfast.integrations.django import hf


@hf.job("order.report", executor="process")
def report(ctx: Context) -> int:
    return int(Order.objects.count())
