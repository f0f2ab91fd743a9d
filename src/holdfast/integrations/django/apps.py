"""The Django app: checks the settings, finds the job types, and migrates with the project."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules, import_string

from holdfast.integrations.django.checks import check_settings
from holdfast.integrations.django.settings import read

__all__ = ["HoldfastConfig"]


class HoldfastConfig(AppConfig):  # type: ignore[misc]
    """`"holdfast.integrations.django"` in INSTALLED_APPS."""

    name = "holdfast.integrations.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Import what declares job types. What is wrong with the settings is for Django's system checks to say."""
        checks.register(check_settings)
        if check_settings():
            return
        post_migrate.connect(_migrate, sender=self, dispatch_uid="holdfast")
        _declare_tasks()
        autodiscover_modules(*read().modules)


def _declare_tasks() -> None:
    """Where a backend of Django's Tasks is Holdfast's, workers run tasks."""
    from django.conf import settings as django_settings

    configured = getattr(django_settings, "TASKS", None) or {}
    if any(_is_ours(entry.get("BACKEND")) for entry in configured.values()):
        from holdfast.integrations.django.project import project_app
        from holdfast.integrations.django.tasks.running import declare

        declare(project_app())


def _is_ours(path: Any) -> bool:
    """Whether a backend is Holdfast's, or made from it. One that cannot be imported is for the framework to report."""
    try:
        backend = import_string(path)
    except (ImportError, AttributeError):
        return False
    from holdfast.integrations.django.tasks.backend import HoldfastBackend

    return isinstance(backend, type) and issubclass(backend, HoldfastBackend)


def _migrate(*, using: str, verbosity: int = 1, **_: Any) -> None:
    """After `manage.py migrate`, and when Django makes a test database: the engine's schema, in the same database."""
    settings = read()
    if not settings.migrate or using != settings.database:
        return
    from holdfast.integrations.django.project import project_app
    from holdfast.lifecycle.portal import Portal
    from holdfast.store.migrate import migrate

    portal = Portal("holdfast-migrate")
    try:
        plan = portal.run(migrate(project_app().config))
    finally:
        portal.stop()
    if verbosity and not plan.current:
        print(f"  Migrated the schema {project_app().config.schema!r} of Holdfast")  # noqa: T201 - as Django's migrate does
