"""The setting `HOLDFAST` of a Django project: one dict, checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

from holdfast.model.names import nearest

__all__ = ["KEYS", "Settings", "faults", "read", "unknown_keys"]

#: Every key, with what it means if it is absent.
KEYS: Mapping[str, Any] = {
    "DATABASE": "default",
    "SCHEMA": None,
    "APP": None,
    "MODULES": ("jobs",),
    "MIGRATE": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the project says about Holdfast."""

    #: The alias in DATABASES of the database that holds the jobs.
    database: str
    #: The engine's schema there; None leaves it to `HOLDFAST_SCHEMA` and the default.
    schema: str | None
    #: `module:name` of the project's own app; None for one that is made for it.
    app: str | None
    #: Modules of the installed apps that declare job types.
    modules: tuple[str, ...]
    #: Whether `manage.py migrate` brings the engine's schema up to date, too.
    migrate: bool


def read() -> Settings:
    """The settings; `ImproperlyConfigured` names everything that is wrong with them."""
    if found := faults():
        raise ImproperlyConfigured("; ".join(found))
    given = {**KEYS, **_given()}
    return Settings(
        database=given["DATABASE"],
        schema=given["SCHEMA"],
        app=given["APP"],
        modules=tuple(given["MODULES"]),
        migrate=given["MIGRATE"],
    )


def faults() -> list[str]:
    """Everything that is wrong with the setting, in words."""
    given = _given()
    if not isinstance(given, Mapping):
        return [f"HOLDFAST must be a dict, not {type(given).__name__}"]
    found = unknown_keys("HOLDFAST", given, KEYS)
    merged = {**KEYS, **given}
    databases = django_settings.DATABASES
    if not isinstance(merged["DATABASE"], str) or merged["DATABASE"] not in databases:
        found.append(f"HOLDFAST['DATABASE'] is {merged['DATABASE']!r}, and DATABASES has {', '.join(databases)}")
    if merged["SCHEMA"] is not None and not isinstance(merged["SCHEMA"], str):
        found.append(f"HOLDFAST['SCHEMA'] must be a text, not {merged['SCHEMA']!r}")
    if merged["APP"] is not None and not re.fullmatch(r"[\w.]+:\w+", str(merged["APP"])):
        found.append(f"HOLDFAST['APP'] must look like 'module:name', not {merged['APP']!r}")
    modules = merged["MODULES"]
    if not isinstance(modules, list | tuple) or not all(isinstance(name, str) for name in modules):
        found.append(f"HOLDFAST['MODULES'] must be a list of module names, not {modules!r}")
    if not isinstance(merged["MIGRATE"], bool):
        found.append(f"HOLDFAST['MIGRATE'] must be True or False, not {merged['MIGRATE']!r}")
    return found


def unknown_keys(name: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """A sentence for each key that nobody reads, with the one that was probably meant."""
    found = []
    for key in given:
        if key not in known:
            near = nearest(str(key).upper(), known)
            advice = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
            found.append(f"{name} has the unknown key {key!r}; {advice}")
    return found


def _given() -> Any:
    return getattr(django_settings, "HOLDFAST", {})
