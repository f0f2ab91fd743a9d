"""Names that nobody knows, with the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal

from holdfast.errors import InvalidInput

__all__ = ["Named", "did_you_mean", "nearest", "refuse_unknown"]

#: Kinds whose names may be misspelt without anybody refusing them.
Named = Literal["queue", "type"]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, if there is one."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """The end of a sentence that says that nobody knows a name; empty if no known one is near.

    A `prefix` that all of them have is left out of what is compared.
    """
    near = nearest(name, known)
    return f"; did you mean {prefix}{near}?" if near else ""


def refuse_unknown(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidInput for the first name that is not known."""
    known = list(known)
    for name in names:
        if name not in known:
            near = nearest(name, known)
            advice = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
            raise InvalidInput(f"unknown {what} {name!r}; {advice}")
