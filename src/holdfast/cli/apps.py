"""Finds the app that `--app MODULE:NAME` names."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.model.names import nearest

__all__ = ["app_option", "load_app"]


def app_option(*, required: bool, description: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the option `--app MODULE:NAME`."""
    return click.option("--app", "app_name", metavar="MODULE:NAME", required=required, help=description)


def load_app(name: str) -> Holdfast:
    """Import the module, with the working folder on the path, and take the app from it."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise click.UsageError(f"--app must look like MODULE:NAME, such as tasks:hf, not {name!r}")
    folder = os.getcwd()  # noqa: PTH109 - sys.path holds texts
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import(module_name)
    found = getattr(module, attribute, None)
    if isinstance(found, Holdfast):
        return found
    apps = [key for key, value in vars(module).items() if isinstance(value, Holdfast)]
    advice = f"; it has {', '.join(f'{module_name}:{app}' for app in apps)}" if apps else ""
    if found is not None:
        raise click.UsageError(f"{name} is a {type(found).__name__}, not a Holdfast app{advice}")
    near = nearest(attribute, vars(module))
    raise click.UsageError(
        f"the module {module_name!r} has no {attribute!r}{advice or (f'; did you mean {near!r}?' if near else '')}"
    )


def _import(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except HoldfastError:
        raise
    except ModuleNotFoundError as missing:
        if missing.name is not None and (module_name == missing.name or module_name.startswith(f"{missing.name}.")):
            raise click.UsageError(
                f"no module {missing.name!r} in {os.getcwd()} or among the installed modules"  # noqa: PTH109
            ) from None
        raise click.UsageError(f"the module {module_name!r} needs {missing.name!r}, which is not installed") from None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise click.UsageError(
            f"the module {module_name!r} cannot be imported: {type(error).__name__}: {error} "
            f"({place.filename}, line {place.lineno})"
        ) from error
