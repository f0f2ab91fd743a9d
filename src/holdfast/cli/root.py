"""The command `holdfast` itself: its nouns, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from holdfast.cli.exits import Exit, report
from holdfast.cli.output import echo
from holdfast.model.provenance import provenance
from holdfast.version import __version__

__all__ = ["holdfast"]

#: Every command, and the module that has it. A module is imported when its command is asked for: a worker does not
#: wait for what prints tables.
_MODULES = {
    "init": "init",
    "up": "up",
    "serve": "serve",
    "worker": "worker",
    "migrate": "migrate",
    "db": "db",
    "enqueue": "enqueue",
    "jobs": "jobs",
    "dead": "dead",
    "failures": "failures",
    "bulk": "bulk",
    "circuits": "circuits",
    "schedules": "schedules",
    "targets": "targets",
    "queues": "subjects",
    "types": "subjects",
    "lanes": "subjects",
    "tenants": "subjects",
    "drain": "drain",
    "keys": "keys",
    "audit": "audit",
    "cleanup": "cleanup",
    "settings": "settings",
    "workers": "workers",
    "correlation": "lineage",
    "config": "config",
    "conform": "conform",
    "doctor": "doctor",
    "verify": "verify",
}


class _Root(click.Group):
    """A group that turns every error into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """One command, imported now. For a name that does not exist, click looks for similar ones among `commands`."""
        for name in [cmd_name] if cmd_name in _MODULES else _MODULES:
            self.commands[name] = getattr(import_module(f"holdfast.cli.{_MODULES[name]}"), name)
        return self.commands.get(cmd_name)

    def main(self, *arguments: Any, **extra: Any) -> NoReturn:
        """Run and exit."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*arguments, **extra)
            sys.stdout.flush()
        except (KeyboardInterrupt, click.Abort):
            echo("aborted", err=True)
            code = Exit.INTERRUPTED
        except BrokenPipeError:
            # The reader of our output has closed it; do not fail again when the interpreter flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.FAILED
        except Exception as error:  # noqa: BLE001 - whatever a command raises ends here, in one line
            code = report(error)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="holdfast")
def holdfast() -> None:
    """Durable background jobs on PostgreSQL.

    Without HOLDFAST_DATABASE_URL, Holdfast runs its own PostgreSQL in the folder HOLDFAST_HOME (.holdfast).
    `holdfast up` starts everything; `holdfast config` lists every setting.
    """
    provenance.set((socket.gethostname(), None))
