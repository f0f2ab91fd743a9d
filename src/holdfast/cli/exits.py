"""Errors as exit codes: one code per kind of error, and one line on standard error.

0 ok · 1 failed · 2 usage · 3 not found · 4 conflict · 5 database unreachable. A traceback is shown only
with `HOLDFAST_LOG_LEVEL=DEBUG`.
"""

from __future__ import annotations

import os
import sys
import traceback
from enum import IntEnum

import click

from holdfast.cli.output import echo
from holdfast.errors import (
    ConfigError,
    Conflict,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    LimitExceeded,
    NotFound,
    SchemaError,
)
from holdfast.store.embedded_error import EmbeddedError

__all__ = ["Exit", "exit_code", "report"]


class Exit(IntEnum):
    """Exit codes."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


_CODES: tuple[tuple[type[HoldfastError], Exit], ...] = (
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (LimitExceeded, Exit.CONFLICT),
    (DatabaseUnavailable, Exit.UNREACHABLE),
    (EmbeddedError, Exit.UNREACHABLE),
    (InvalidInput, Exit.USAGE),
    (ConfigError, Exit.USAGE),
)

_ADVICE: tuple[tuple[type[HoldfastError], str], ...] = (
    (DatabaseUnavailable, "check HOLDFAST_DATABASE_URL, or run `holdfast doctor`"),
    (SchemaError, "`holdfast doctor` tells what is wrong"),
)


def exit_code(error: BaseException) -> Exit:
    """The exit code that an error stands for."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


def report(error: Exception) -> Exit:
    """Print the error on standard error; returns the exit code."""
    if os.environ.get("HOLDFAST_LOG_LEVEL") == "DEBUG":
        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        if isinstance(error, click.UsageError) and error.ctx is not None:
            echo(error.ctx.get_usage(), err=True)
        _say(error.format_message())
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED
    if isinstance(error, HoldfastError):
        advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), None)
        _say(_advised(str(error), advice) if advice and "`holdfast " not in str(error) else str(error))
        return exit_code(error)
    _say(f"unexpected {type(error).__name__}: {error}; HOLDFAST_LOG_LEVEL=DEBUG shows where")
    return Exit.FAILED


def _advised(message: str, advice: str) -> str:
    return f"{message} {advice[0].upper()}{advice[1:]}." if message.endswith("?") else f"{message}; {advice}"


def _say(message: str) -> None:
    click.echo(click.style("error:", fg="red") if sys.stderr.isatty() else "error:", err=True, nl=False)
    echo(f" {message}", err=True)
