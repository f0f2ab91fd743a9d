"""A setting of the installation, which can be changed while everything runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

__all__ = ["Setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting with the value in force. Its origin `environment` is that of the process that asked."""

    name: str
    value: str
    origin: Literal["database", "environment", "default"]
    default_value: str
    description: str
    updated_at: datetime | None
    updated_by: str | None
