"""The command `holdfast` itself: its nouns, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from holdfast.cli import (
    config,
    db,
    doctor,
    drain,
    enqueue,
    jobs,
    keys,
    migrate,
    scopes,
    serve,
    targets,
    up,
    verify,
    worker,
)
from holdfast.cli.failures import Exit, report
from holdfast.version import __version__

__all__ = ["holdfast"]


class _Root(click.Group):
    """A group whose errors are one line and an exit code, whoever raises them."""

    def main(self, *arguments: Any, **extra: Any) -> NoReturn:
        """Run and exit."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*arguments, **extra)
            sys.stdout.flush()
        except (KeyboardInterrupt, click.Abort):
            click.echo("aborted", err=True)
            code = Exit.INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output has had enough; do not stumble again when the interpreter flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.FAILED
        except Exception as error:  # noqa: BLE001 - whatever a command raises ends here, in one line
            code = report(error)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="holdfast")
def holdfast() -> None:
    """Durable background jobs on PostgreSQL.

    Without HOLDFAST_DATABASE_URL, a PostgreSQL of its own runs in the folder HOLDFAST_HOME (.holdfast).
    `holdfast up` starts everything; `holdfast config` lists every setting.
    """


for command in (
    up.up,
    serve.serve,
    worker.worker,
    migrate.migrate,
    db.db,
    enqueue.enqueue,
    jobs.jobs,
    targets.targets,
    scopes.queues,
    scopes.types,
    scopes.lanes,
    scopes.tenants,
    drain.drain,
    keys.keys,
    config.config,
    doctor.doctor,
    verify.verify,
):
    holdfast.add_command(command)
