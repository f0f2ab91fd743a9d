"""Asks for something about each of several jobs, and asks the person before what cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.failures import Exit, report
from holdfast.cli.operator import operator
from holdfast.cli.output import echo
from holdfast.errors import DatabaseUnavailable, HoldfastError

__all__ = ["Ask", "ask_for_each", "confirm", "counted", "yes_option"]

#: Answers the job that runs then, if it is another one.
Ask = Callable[..., Awaitable[UUID | None]]

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm(fact: str, question: str) -> None:
    """Ask the person, or refuse where nobody can be asked."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{fact}: add --yes")
    click.confirm(question, abort=True)


def counted(count: int) -> str:
    """This many jobs, in words."""
    return f"{count} job{'s' if count > 1 else ''}"


async def ask_for_each(hf: Holdfast, ask: Ask, name: str, job_ids: Sequence[UUID]) -> int:
    """Ask for all, whatever becomes of the others; the first failure is the exit code."""
    code = Exit.OK
    by = operator()
    for job_id in job_ids:
        try:
            answer = await ask(hf, job_id, by=by)
        except DatabaseUnavailable:
            raise
        except HoldfastError as error:
            code = max(code, report(error))
        else:
            new = answer is not None and answer != job_id
            echo(f"{job_id}  {f'runs again as {answer}' if new else f'{name} asked for'}")
    return code
