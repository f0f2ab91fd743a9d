"""Runs Holdfast's own command line for a framework's: with its app, and in its database.

What the framework knows is told to the command through the environment, because commands may start processes of
their own; while it runs, the process's arguments are those of the command, because such processes repeat them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from holdfast.config import ENTRIES, Config

__all__ = ["hand_over"]

#: Commands that need an app.
_WITH_APP = ("worker", "up")


def hand_over(
    arguments: Sequence[str], *, app: str, config: Config, program: str, environment: Mapping[str, str] | None = None
) -> int:
    """Run `holdfast ARGUMENTS`; its exit code."""
    from holdfast.cli.root import holdfast

    told = {**_environment(config), **(environment or {})}
    given = _with_app(list(arguments), app)
    with _told(told, [program, *given]):
        try:
            holdfast.main(args=given, prog_name=program)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)


def _with_app(arguments: list[str], app: str) -> list[str]:
    named = any(argument == "--app" or argument.startswith("--app=") for argument in arguments)
    if not arguments or arguments[0] not in _WITH_APP or named or "--help" in arguments or "-h" in arguments:
        return arguments
    return [arguments[0], "--app", app, *arguments[1:]]


def _environment(config: Config) -> dict[str, str]:
    """Everything that does not come from the environment or is the default anyway."""
    return {
        entry.variable: str(getattr(config, entry.name))
        for entry in ENTRIES
        if config.origins[entry.name] == "argument" and getattr(config, entry.name) is not None
    }


@contextmanager
def _told(environment: Mapping[str, str], arguments: list[str]) -> Iterator[None]:
    """For the length of a block, another environment and other arguments."""
    # Processes that the command starts find modules where this one does.
    path = os.pathsep.join(dict.fromkeys([*filter(None, sys.path[:1]), *_given_path()]))
    changed = {**environment, "PYTHONPATH": path}
    before = {name: os.environ.get(name) for name in changed}
    arguments_before = sys.argv
    os.environ.update(changed)
    sys.argv = arguments
    try:
        yield
    finally:
        sys.argv = arguments_before
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _given_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
