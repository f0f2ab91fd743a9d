"""How commands ask: the operators' side of the app, for each of several jobs, and the person at the keyboard.

1. `asked` opens the app for one question to the operators' side.
2. `decide_each` and `ask_for_each` go through jobs one by one, whatever becomes of the others.
3. `confirm` asks the person before what cannot be undone, or refuses where nobody can be asked.
4. Options that several of these commands have stand here, too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.durations import Duration
from holdfast.cli.exits import Exit, report
from holdfast.cli.names import tell_if_unknown
from holdfast.cli.numbers import Whole
from holdfast.cli.operator import operator
from holdfast.cli.output import echo
from holdfast.client.operations import Operations
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.subject import Kind

__all__ = [
    "Ask",
    "Decide",
    "ask_for_each",
    "asked",
    "confirm",
    "counted",
    "decide_each",
    "reason_option",
    "requeue_options",
    "yes_option",
]

R = TypeVar("R")
Command = Callable[..., Any]
#: Answers the job that runs then, if it is another one.
Ask = Callable[..., Awaitable[UUID | None]]
#: Answers what became of the job, in words.
Decide = Callable[[UUID], Awaitable[str]]

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", help="Reason; stored in the job's history and in the audit log.")


def requeue_options(command: Command) -> Command:
    """Give a command what new jobs may have other than the dead ones."""
    command = click.option("--delay", type=Duration(), metavar="15m", help="Run them after this time.")(command)
    command = click.option("--queue", help="Another queue for the new jobs.")(command)
    return click.option("--priority", type=Whole(0), help="Another priority for the new jobs.")(command)


def confirm(fact: str, question: str, advice: str = "add --yes") -> None:
    """Ask the person; where nobody can be asked, refuse with the fact and how to agree beforehand."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{fact}: {advice}")
    if not click.confirm(question):
        echo("nothing was done", err=True)
        sys.exit(Exit.FAILED)


def counted(count: int) -> str:
    """This many jobs, in words."""
    return f"{count} job{'s' if count != 1 else ''}"


def asked(question: Callable[[Operations], Awaitable[R]], about: tuple[Kind, str] | None = None) -> R:
    """The answer to a question to the operators' side; `about` is a name that may be misspelt."""

    async def ask() -> R:
        async with Holdfast() as hf:
            answer = await question(await hf.operations())
            if about is not None and (about[0] == "queue" or about[0] == "type"):
                await tell_if_unknown(hf, about[0], about[1])
            return answer

    return asyncio.run(ask())


def ask_for_each(ask: Ask, name: str, job_ids: Sequence[UUID]) -> int:
    """Ask for something about each job. Answers the exit code, as `decide_each` does."""
    by = operator()

    async def ask_all(ops: Operations) -> int:
        async def decide(job_id: UUID) -> str:
            answer = await ask(ops, job_id, by=by)
            return f"{name} asked for" if answer is None or answer == job_id else f"runs again as {answer}"

        return await decide_each(decide, job_ids)

    return asked(ask_all)


async def decide_each(decide: Decide, job_ids: Sequence[UUID]) -> int:
    """Decide on all, whatever becomes of the others. If some fail, the highest of their codes is the exit code."""
    code = Exit.OK
    for job_id in job_ids:
        try:
            told = await decide(job_id)
        except DatabaseUnavailable:
            raise
        except HoldfastError as error:
            code = max(code, report(error))
        else:
            echo(f"{job_id}  {told}")
    return code
