"""What the bodies of the four calls may have: names, types and bounds, as `docs/protocol.md` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["ERROR", "FIELDS", "ITEM", "LEASE", "faults_of"]

Check = Callable[[Any], str | None]


def _number(low: float, high: float, *, whole: bool = True) -> Check:
    def check(value: Any) -> str | None:
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"must be a {'whole ' * whole}number from {low:g} to {high:g}, not {value!r}"

    return check


def _text(longest: int, *, visible: bool = False) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, str) or not value or len(value) > longest:
            return f"must be a string of 1 to {longest} characters, not {value!r:.60}"
        if visible and not all("!" <= c <= "~" for c in value):
            return f"must be visible ASCII characters, not {value!r:.60}"
        return None

    return check


def _one_of(*known: str) -> Check:
    return lambda value: None if value in known else f"must be one of {', '.join(known)}, not {value!r}"


def _list(most: int, *, empty: bool = False) -> Check:
    return lambda value: (
        None
        if isinstance(value, list) and (0 if empty else 1) <= len(value) <= most
        else f"must be a list of 1 to {most}"
    )


def _any(_value: Any) -> str | None:
    return None


def _storable(value: Any) -> str | None:
    texts = [value]
    while texts:
        one = texts.pop()
        if isinstance(one, str) and ("\x00" in one or any("\ud800" <= c <= "\udfff" for c in one)):
            return "has a NUL character, or half a surrogate pair, which the database cannot store"
        texts += [*one, *one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
    return None


def _either(*kinds: type) -> Check:
    names = " or ".join(kind.__name__ for kind in kinds)
    return lambda value: None if isinstance(value, kinds) else f"must be {names}, not {type(value).__name__}"


LEASE = {"job_id": _text(100), "attempt": _number(1, 2**31 - 1)}
_REPORT: Mapping[str, Check] = {
    **LEASE,
    "seq": _number(1, 2**53),
    "items": _list(10_000, empty=True),
    "collection": _text(255),
    "cursor": _storable,
    "progress": _number(0, 2**53),
    "extend_lease_sec": _number(1, 3600, whole=False),
    "done": _either(bool),
    "done_reason": _one_of("worker_done", "target_reached", "no_more_results"),
    "result": _storable,
    "error": _either(str, dict),
    "log": _either(str),
}
ERROR: Mapping[str, Check] = {
    "kind": _one_of("retryable", "fatal", "hold", "snooze"),
    "message": _either(str),
    "type": _either(str),
    "traceback": _either(str),
    "delay_sec": _number(0, 36_500 * 86_400, whole=False),
    "circuit": _text(200),
}
ITEM: Mapping[str, Check] = {"key": _text(255), "data": _storable}
_WORKER = {"worker_id": _text(100, visible=True)}
_WAIT = {"wait_sec": _number(0, 60, whole=False)}

#: The members of each body.
FIELDS: Mapping[str, Mapping[str, Check]] = {
    "pull": {
        **_WORKER,
        **_WAIT,
        "types": _list(100),
        "request_id": _text(255, visible=True),
        "queues": _list(100),
        "max": _number(1, 100),
        "lease_sec": _number(1, 3600, whole=False),
    },
    "report": {**_WORKER, **_REPORT},
    "extend": {**_WORKER, **_WAIT, "leases": _list(100)},
    "release": {**_WORKER, "leases": _list(100), "reason": _either(str)},
}
_NEEDED = {
    "pull": ("worker_id", "types"),
    "report": ("worker_id", "job_id", "attempt"),
    "extend": ("worker_id", "leases"),
    "release": ("worker_id", "leases"),
}


def faults_of(verb: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs of a JSON pointer and what is wrong there."""
    if verb == "report" and "reports" in body:
        return list(_batch(body))
    found = list(_members(body, FIELDS[verb], _NEEDED[verb], ""))
    if verb == "report":
        found += _report(body, "")
    known = {**LEASE, "lease_sec": _number(1, 3600, whole=False)} if verb == "extend" else LEASE
    for place, lease in enumerate(body.get("leases", ()) if not found else ()):
        found += _members(lease, known, ("job_id", "attempt"), f"/leases/{place}")
    return found


def _batch(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _members(body, {**_WORKER, "reports": _list(100)}, ("worker_id", "reports"), "")
    for place, report in enumerate(body["reports"] if isinstance(body["reports"], list) else ()):
        yield from _members(report, _REPORT, ("job_id", "attempt"), f"/reports/{place}")
        yield from _report(report, f"/reports/{place}")


def _members(body: Any, known: Mapping[str, Check], needed: tuple[str, ...], where: str) -> Iterator[tuple[str, str]]:
    if not isinstance(body, dict):
        yield where, "must be an object"
        return
    for name in needed:
        if name not in body:
            yield f"{where}/{name}", "is missing"
    for name, value in body.items():
        if name not in known:
            yield f"{where}/{name}", "there is no such field"
        elif (value is not None or name in needed) and (fault := known[name](value)) is not None:
            yield f"{where}/{name}", fault


def _report(body: Any, where: str) -> Iterator[tuple[str, str]]:
    if not isinstance(body, dict):
        return
    if body.get("done") and body.get("error"):
        yield f"{where}/error", "done and error exclude each other"
    if not body.get("done") and (body.get("result") is not None or body.get("done_reason") is not None):
        yield f"{where}/done", "is missing: result and done_reason need it"
    if "seq" not in body and any(body.get(name) for name in ("items", "progress", "cursor")):
        yield f"{where}/seq", "is missing: items, progress and cursor need one, so that a repeat is known"
    if isinstance(body.get("error"), dict):
        yield from _members(body["error"], ERROR, ("kind", "message"), f"{where}/error")
    for place, item in enumerate(body["items"] if isinstance(body.get("items"), list) else ()):
        yield from _members(item, ITEM, ("data",), f"{where}/items/{place}")
