"""An app's lifespan: what sets up, and takes down, the resources of its handlers.

A lifespan takes the app and returns an asynchronous context manager; handlers find what that yields in `ctx.resources`.
Whatever else it is, is refused when the app is made, as far as that can be seen without calling it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from holdfast.bounds import shown
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.app.holdfast import Holdfast

__all__ = ["Lifespan", "entering", "refuse_misfit"]

Lifespan = Callable[["Holdfast"], AbstractAsyncContextManager[Any]]

_SHAPE = "`@asynccontextmanager async def lifespan(hf: Holdfast)`"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def refuse_misfit(lifespan: Any) -> None:
    """Say what is wrong with a lifespan, if anything is."""
    if lifespan is None:
        return
    if not callable(lifespan):
        raise InvalidInput(f"lifespan must be a function of the app, {_SHAPE}, not {shown(lifespan)}")
    name = getattr(lifespan, "__qualname__", type(lifespan).__name__)
    if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        raise InvalidInput(f"lifespan {name} must be decorated with contextlib.asynccontextmanager")
    try:
        signature = inspect.signature(lifespan)
    except (TypeError, ValueError):  # a callable that does not tell
        return
    try:
        signature.bind(None)
    except TypeError:
        taken = _taken(signature)
        raise InvalidInput(f"lifespan takes one argument, the app: {_SHAPE}; {name} takes {taken}") from None


def entering(lifespan: Lifespan, app: Holdfast) -> AbstractAsyncContextManager[Any]:
    """What a worker enters."""
    made: Any = lifespan(app)
    if isinstance(made, AbstractAsyncContextManager):
        return made
    if inspect.iscoroutine(made):
        made.close()
    name = getattr(lifespan, "__qualname__", type(lifespan).__name__)
    raise InvalidInput(
        f"lifespan {name} must return an asynchronous context manager: {_SHAPE}; it returned {shown(made)}"
    )


def _taken(signature: inspect.Signature) -> str:
    """The arguments that a call must have, by number and name; or how many it can have at most."""
    parameters = signature.parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed and (len(needed) > 1 or signature.parameters[needed[0]].kind not in _POSITIONAL):
        return f"{len(needed)} ({', '.join(needed)})"
    return "none"
