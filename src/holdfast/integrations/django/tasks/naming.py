"""Tasks by name. A name comes from the database, so it is never trusted to say what is imported.

Only modules of the installed apps and of the project itself are imported (and those that the backend's option
MODULES adds), and what is found there must be a task. Nothing is called on the way.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.conf import settings

from holdfast.errors import HoldfastError
from holdfast.integrations.django.tasks.framework import Task

__all__ = ["NotATask", "UnknownTask", "find_again", "find_task", "name_of"]


class UnknownTask(HoldfastError):
    """There is no such task here; another version of the project may have it."""

    code = "unknown-task"


class NotATask(HoldfastError):
    """The name leads to something that is not a task, or that may not be imported."""

    code = "not-a-task"


def name_of(task: Any) -> str:
    """`module:name` of a task."""
    return f"{task.func.__module__}:{task.func.__qualname__}"


def find_task(name: str, extra_modules: Iterable[str] = ()) -> Any:
    """The task of that name."""
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None:
        _refuse_strange(name, extra_modules)
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as missing:
            raise UnknownTask(f"there is no module {missing.name!r}, which the task {name!r} needs") from missing
    found: Any = module
    for part in path.split("."):
        # Statically, so that nothing runs because of a name.
        found = inspect.getattr_static(found, part, None)
    if found is None:
        raise UnknownTask(f"there is no task {name!r} here")
    if isinstance(found, staticmethod):
        found = found.__func__
    if not isinstance(found, Task):
        raise NotATask(f"{name!r} is not a task but a {type(found).__name__}")
    return found


def find_again(name: str, extra_modules: Iterable[str] = ()) -> Any:
    """The task of that name, as a worker would find it that has not imported its module for another reason."""
    _refuse_strange(name, extra_modules)
    return find_task(name, extra_modules)


def _refuse_strange(name: str, extra_modules: Iterable[str]) -> None:
    module = name.partition(":")[0]
    if not any(_is_within(module, package) for package in (*_packages(), *extra_modules)):
        raise NotATask(f"{name!r} is not in a module of an installed app, so it is not imported")


def _packages() -> list[str]:
    project = getattr(settings, "SETTINGS_MODULE", None) or ""
    return [*(config.name for config in apps.get_app_configs()), *filter(None, [project.partition(".")[0]])]


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
