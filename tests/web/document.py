"""The description of the API, made once for all tests that read it: that takes a third of a second."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.web.description import describe
from holdfast.web.server import create_app

__all__ = ["DOCUMENT"]

DOCUMENT = describe(create_app(Holdfast("postgresql://127.0.0.1:1/nothing")))
