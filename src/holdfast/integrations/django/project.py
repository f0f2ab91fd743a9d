"""The app of a Django project, also for processes that Django did not start.

`holdfast worker --app holdfast.integrations.django:hf` needs DJANGO_SETTINGS_MODULE and nothing else: asking for
the app sets Django up where nobody has done so yet.
"""

from __future__ import annotations

import importlib

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from holdfast.app import Holdfast
from holdfast.integrations.django.app import DjangoHoldfast
from holdfast.integrations.django.settings import read

__all__ = ["APP", "app_named", "project_app", "set_up"]

#: Where `--app` finds it.
APP = "holdfast.integrations.django:hf"

_made: list[DjangoHoldfast] = []


def set_up() -> None:
    """Set Django up, unless somebody has, or is just doing so."""
    if not (apps.ready or apps.loading):
        django.setup()


def project_app() -> DjangoHoldfast:
    """The app that `HOLDFAST["APP"]` names, or else the one that all of the project shares."""
    set_up()
    name = read().app
    if name is None:
        if not _made:
            _made.append(DjangoHoldfast())
        return _made[0]
    return app_named(name, "HOLDFAST['APP']")


def app_named(name: str, setting: str) -> DjangoHoldfast:
    """The app that a setting names as `module:name`."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        raise ImproperlyConfigured(f"{setting} is {name!r}, and there is no module {missing.name!r}") from missing
    if not isinstance(found, DjangoHoldfast):
        what = "a Holdfast app that knows nothing of Django" if isinstance(found, Holdfast) else f"{found!r}"
        raise ImproperlyConfigured(f"{setting} is {name!r}, and that is not a DjangoHoldfast but {what}")
    return found
