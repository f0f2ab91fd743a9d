"""Where a child finds a handler: the module that declares it, and its name there.

A script that was started directly is `__main__` in the worker. In the child it is loaded under another name, so
that the code under `if __name__ == "__main__":` does not run there.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.definitions.job_type import JobType
from holdfast.errors import InvalidInput
from holdfast.lifecycle.importing import importing

__all__ = ["HandlerAddress", "address_of", "check_addresses", "find"]

#: The name of the worker's `__main__` in a child.
_MAIN = "__holdfast_main__"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAddress:
    """The name of a module, its file in case it was not imported by name, and a handler in it.

    A framework that must be set up before such modules can be imported names a function (`module:name`) for this, as
    the attribute `prepared_by` of the handlers that it wraps.
    """

    module: str
    file: str | None
    qualname: str
    job_type: str
    prepared_by: str | None


def check_addresses(job_types: Iterable[JobType]) -> None:
    """Raise InvalidInput unless children can find every handler that runs in one."""
    for job_type in job_types:
        if job_type.executor == "process":
            address_of(job_type)


def address_of(job_type: JobType) -> HandlerAddress:
    """Where a child finds the handler of this type."""
    function = job_type.handler
    module = sys.modules.get(function.__module__)
    spec = getattr(module, "__spec__", None)
    name = function.__module__ if spec is None or spec.name == "__main__" else spec.name
    file = getattr(module, "__file__", None)
    if name == "__main__":
        name = _MAIN
        if file is None or not Path(file).is_file():
            raise InvalidInput(
                f"job type {job_type.name!r}: executor process needs its handler in a module, because another process "
                "must find it; a handler from a notebook, a console or `python -c` cannot be found"
            )
    if module is None or _declared(vars(module), function.__qualname__, job_type.name) is None:
        raise InvalidInput(
            f"job type {job_type.name!r}: executor process looks for what `@hf.job` made of "
            f"{function.__qualname__!r} in the module {function.__module__!r}, and it is not there under any name"
        )
    return HandlerAddress(
        module=name,
        file=None if file is None else str(Path(file).absolute()),
        qualname=function.__qualname__,
        job_type=job_type.name,
        prepared_by=getattr(function, "prepared_by", None),
    )


def find(address: HandlerAddress) -> Any:
    """The handler at that address; its module is imported first."""
    if address.prepared_by is not None and address.module not in sys.modules:
        place, _, name = address.prepared_by.partition(":")
        getattr(importlib.import_module(place), name)()
    with importing():
        module = _module(address)
    handler = _declared(vars(module), address.qualname, address.job_type)
    if handler is None:
        raise InvalidInput(
            f"the module {address.module!r} declares no job type {address.job_type!r} in a process that imports it"
        )
    return handler


def _module(address: HandlerAddress) -> ModuleType:
    if address.module in sys.modules:
        return sys.modules[address.module]
    if address.module != _MAIN:
        try:
            return importlib.import_module(address.module)
        except ModuleNotFoundError as missing:
            unknown = missing.name is not None and f"{address.module}.".startswith(f"{missing.name}.")
            if not unknown or address.file is None:
                raise
    return _loaded(address.module, str(address.file))


def _loaded(name: str, file: str) -> ModuleType:
    """Load a module from its file, under a name of our choice."""
    spec = importlib.util.spec_from_file_location(name, file, loader=SourceFileLoader(name, file))
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{file} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _declared(namespace: Mapping[str, Any], qualname: str, job_type: str) -> Any:
    """The object that declares the job type: under the function's own name, or under any other in the module."""
    first, *rest = qualname.split(".")
    found = namespace.get(first)
    for part in rest:
        found = inspect.getattr_static(found, part, None)
    return next((value for value in (found, *namespace.values()) if _declares(value, job_type)), None)


def _declares(value: Any, job_type: str) -> bool:
    # Statically, because modules may contain proxies and lazy objects that answer to any name.
    declared = inspect.getattr_static(value, "job_type", None)
    return isinstance(declared, JobType) and declared.name == job_type
