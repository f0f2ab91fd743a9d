"""How a worker's child process imports the module of a handler.

1. Side effects are refused. A script that enqueues or runs a worker when it is imported would do so in every child as
   well, and each of those would start more of them.
2. It finds the variables with which the worker's process began. Modules that take a secret out of the environment, to
   keep it from programs that they start, must find it in every process. Afterwards it is gone there, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from holdfast.errors import Fatal

__all__ = ["forget_variable", "importing", "refuse_while_importing", "variables_for_a_while", "variables_taken"]

_state = {"importing": False}
#: The environment as of the import of Holdfast: in most processes, before any module of the app has changed it.
_variables = dict(os.environ)


def forget_variable(name: str) -> None:
    """Leave a variable out of `variables_taken`: it concerned only the start of this process."""
    _variables.pop(name, None)


def variables_taken() -> dict[str, str]:
    """The variables that this process had, and that have been taken out of its environment since."""
    return {name: value for name, value in _variables.items() if name not in os.environ}


@contextmanager
def variables_for_a_while(variables: Mapping[str, str]) -> Iterator[None]:
    """Add these variables for the length of a block. What the block makes of them remains."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in added.items():
            if os.environ.get(name) == value:
                with suppress(KeyError):
                    del os.environ[name]


@contextmanager
def importing() -> Iterator[None]:
    """Mark the block in which a child imports a handler's module."""
    _state["importing"] = True
    try:
        yield
    finally:
        _state["importing"] = False


def refuse_while_importing() -> None:
    """Raise Fatal, because no retry would help, if the module of a handler does more than define it."""
    if _state["importing"]:
        raise Fatal(
            'the module of a handler with executor="process" uses the app while a worker\'s child imports it; '
            'put what the script does under `if __name__ == "__main__":`'
        )
