"""`python manage.py holdfast ...`: Holdfast's own command line, in the project's database and with its app."""

from __future__ import annotations

import sys
from argparse import REMAINDER
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from holdfast.errors import ConfigError
from holdfast.integrations.django.project import APP, project_app
from holdfast.integrations.handover import hand_over

__all__ = ["Command"]

#: Options that Django itself has read before any command began.
_DJANGOS = ("--settings", "--pythonpath")


class Command(BaseCommand):  # type: ignore[misc]
    """Hands everything over."""

    help = "Holdfast's command line: worker, migrate, enqueue, jobs, …"
    requires_system_checks: list[str] = []  # noqa: RUF012 - as Django declares it

    def run_from_argv(self, argv: list[str]) -> None:
        """Options are Holdfast's, so Django's parser does not see them."""
        try:
            self.handle(arguments=_without_djangos(argv[2:]))
        except CommandError as fault:
            self.stderr.write(f"CommandError: {fault}")
            sys.exit(fault.returncode)

    def add_arguments(self, parser: Any) -> None:
        """For `call_command("holdfast", "worker", "--burst")`."""
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """Run Holdfast's command; like it, exit with its code unless that is 0."""
        try:
            config = project_app().config
        except (ImproperlyConfigured, ConfigError) as fault:
            raise CommandError(str(fault)) from fault
        # What the app has left out must not come back through the environment.
        told = {"HOLDFAST_DIRECT_URL": config.direct_url or ""}
        code = hand_over(arguments, app=APP, config=config, program="manage.py holdfast", environment=told)
        if code:
            sys.exit(code)


def _without_djangos(arguments: list[str]) -> list[str]:
    kept, rest = [], iter(arguments)
    for argument in rest:
        if argument in _DJANGOS:
            next(rest, None)
        elif argument.partition("=")[0] not in _DJANGOS:
            kept.append(argument)
    return kept
