"""Reports with broken Unicode: half a surrogate pair, or bytes that are no UTF-8.

Texts for people (`error`, `log`) must not make a report unsendable, so what is broken there is replaced. Anywhere else
it is refused, with its place: an item that was changed would not be what the job has found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from holdfast.web.problems import Problem

__all__ = ["mended"]

_BROKEN = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_FOR_PEOPLE = ("error", "log")


def mended(raw: bytes) -> bytes | None:
    """The body of a report with broken texts for people replaced; None if it is no JSON anyway.

    A problem if something else in it is broken.
    """
    try:
        body = json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    reports = body.get("reports")
    for report in reports if isinstance(reports, list) else [body]:
        if isinstance(report, dict):
            report |= {name: _whole(report[name]) for name in _FOR_PEOPLE if name in report}
    broken = next(_places(body, ""), None)
    if broken is not None:
        detail = "the text has half a surrogate pair, or bytes that are not UTF-8"
        raise Problem(422, "invalid", "The body is not valid.", errors=[{"pointer": broken, "detail": detail}])
    return json.dumps(body, ensure_ascii=False).encode()


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _BROKEN.sub(_REPLACEMENT, value)
    if isinstance(value, dict):
        return {_whole(name): _whole(inner) for name, inner in value.items()}
    return value


def _places(value: Any, where: str) -> Iterator[str]:
    """Where something is broken, as JSON pointers."""
    if isinstance(value, str):
        if _BROKEN.search(value):
            yield where
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _places(inner, f"{where}/{place}")
    elif isinstance(value, dict):
        for name, inner in value.items():
            if _BROKEN.search(name):
                yield where
            yield from _places(inner, f"{where}/{name}")
