"""Django's system checks of what concerns Holdfast."""

from __future__ import annotations

from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from holdfast.errors import ConfigError
from holdfast.integrations.django.settings import faults, read

__all__ = ["check_settings"]


def check_settings(**_: Any) -> list[Any]:
    """The setting HOLDFAST, and the database that it names."""
    found = [checks.Error(fault, id="holdfast.E001") for fault in faults()]
    if found:
        return found
    alias = read().database
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        found.append(
            checks.Error(
                f"Holdfast needs PostgreSQL, and the database {alias!r} is {vendor}",
                hint="Name another one of DATABASES: HOLDFAST = {'DATABASE': ...}",
                id="holdfast.E002",
            )
        )
        return found
    from holdfast.integrations.django.project import project_app

    try:
        project_app()
    except (ImproperlyConfigured, ConfigError) as fault:
        found.append(checks.Error(str(fault), id="holdfast.E004"))
    return found
