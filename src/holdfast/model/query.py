"""The filter language that API, CLI and dashboard share: text → a tree that the engine turns into a search.

    state:dead type:email.*  -queue:bulk  (target:eu OR tenant:acme)  error:"timed out"  attempt>3  wait>5m
    payload.user.id=42  created<2026-11-01  "any text"

1. terms stand side by side, and all of them must hold; `OR` between them, `-` or `NOT` before one, brackets;
2. `field:value` is equality, `a,b` means any of them, `*` stands for any text, in quotes for itself; numbers, moments
   and durations (30s 5m 2h 1d) are compared by = > < >= <=; a date without a time is that whole day;
3. `acknowledged:true|false` finds dead jobs by their letters; other jobs are neither;
4. `payload.a.b` and `result.a.b` reach into JSON, where numbers are compared exactly; a bare text is looked for in
   payload and error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.names import did_you_mean
from holdfast.model.states import State

__all__ = ["FIELDS", "Tree", "asks_for", "parse_query"]

Tree = Mapping[str, Any]

#: Fields by what they are compared with.
_TEXTS = (
    "id", "state", "reason", "type", "queue", "target", "tenant", "correlation", "error", "fingerprint", "key",
    "dedup", "by", "parent",
)  # fmt: skip
_NUMBERS = ("attempt", "failures", "priority")
_DURATIONS = ("wait", "age", "running")
_MOMENTS = ("created", "updated", "finished", "run_at")
_FLAGS = ("acknowledged",)
FIELDS = (*_TEXTS, *_NUMBERS, *_DURATIONS, *_MOMENTS, *_FLAGS)

_LONGEST, _DEEPEST, _MOST_TERMS = 2000, 20, 50
#: As JSON has them, and exponents as far as stored numbers may have digits.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE](?P<exponent>[+-]?\d+))?", re.ASCII)
_LARGEST_EXPONENT = 4300
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<open>\() | (?P<close>\)) | (?P<or>OR\b) | (?P<not>NOT\b|-(?=[\w("]))
      | (?P<field>[A-Za-z_][\w]*(?:\.[\w\-]+)*)(?P<op>:|>=|<=|=|>(?!=)|<(?!=))(?P<value>"(?:[^"\\]|\\.)*"|[^\s()"]+)
      | (?P<text>"(?:[^"\\]|\\.)*"|[^\s()"]+)
    )""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    at: int
    field: str = ""
    op: str = ""
    value: str = ""


def parse_query(text: str) -> Tree:
    """The tree of a query; InvalidInput, saying where, for what is none. No text at all fits every job."""
    if len(text) > _LONGEST:
        raise InvalidInput(f"a query may have at most {_LONGEST} characters")
    if "\x00" in text:
        raise InvalidInput("a query cannot contain a NUL character")
    tokens = list(_tokens(text))
    if sum(token.kind in ("term", "text") for token in tokens) > _MOST_TERMS:
        raise InvalidInput(f"a query may have at most {_MOST_TERMS} terms")
    if not tokens:
        return {"and": []}
    parser = _Parser(tokens)
    tree = parser.any_of(0)
    if parser.ahead is not None:
        raise InvalidInput(f"at character {parser.ahead.at + 1}: a closing bracket has no opening one")
    return tree


def asks_for(tree: Tree, field: str) -> bool:
    """Whether a query has a term about this field."""
    parts = [*tree.get("and", ()), *tree.get("or", ()), *([tree["not"]] if "not" in tree else [])]
    return tree.get("field") == field or any(asks_for(part, field) for part in parts)


def _tokens(text: str) -> list[_Token]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidInput(f"at character {at + 1}: a quotation mark is not closed")
        start = match.end() - len(match.group().lstrip())
        if match["field"]:
            found.append(_Token("term", start, match["field"], match["op"], match["value"]))
        else:
            kind = next(name for name in ("open", "close", "or", "not", "text") if match[name])
            found.append(_Token(kind, start, value=match[kind]))
        at = match.end()
    return found


class _Parser:
    """any_of := all_of (OR all_of)*;  all_of := one+;  one := (NOT | -) one | ( any_of ) | term."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._next = tokens, 0

    @property
    def ahead(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def any_of(self, depth: int) -> Tree:
        if depth > _DEEPEST:
            raise InvalidInput(f"a query may have at most {_DEEPEST} nested brackets")
        branches = [self._all_of(depth)]
        while self.ahead is not None and self.ahead.kind == "or":
            self._next += 1
            branches.append(self._all_of(depth))
        return branches[0] if len(branches) == 1 else {"or": branches}

    def _all_of(self, depth: int) -> Tree:
        terms = []
        while self.ahead is not None and self.ahead.kind not in ("or", "close"):
            terms.append(self._one(depth))
        if not terms:
            where = self.ahead.at if self.ahead else self._tokens[-1].at
            raise InvalidInput(f"at character {where + 1}: a search term is missing")
        return terms[0] if len(terms) == 1 else {"and": terms}

    def _one(self, depth: int) -> Tree:
        token = self.ahead
        if token is None or token.kind in ("or", "close"):
            raise InvalidInput("a search term is missing after NOT")
        self._next += 1
        if token.kind == "not":
            if depth > _DEEPEST:
                raise InvalidInput(f"a query may have at most {_DEEPEST} nested brackets")
            return {"not": self._one(depth + 1)}
        if token.kind == "open":
            tree = self.any_of(depth + 1)
            if self.ahead is None or self.ahead.kind != "close":
                raise InvalidInput(f"at character {token.at + 1}: a bracket is not closed")
            self._next += 1
            return tree
        if token.kind == "text":
            if re.fullmatch(r"[A-Za-z_][\w.\-]*(?::|[<>]?=|[<>])", token.value):
                raise InvalidInput(f"at character {token.at + 1}: {token.value} needs a value")
            return {"text": _unquoted(token.value)}
        return _term(token)


def _term(token: _Token) -> Tree:
    name, _, path = token.field.partition(".")
    op = "=" if token.op == ":" else token.op
    if name in ("payload", "result") and path:
        try:
            return {"json": name, "path": path.split("."), "op": op, **_json_value(token.value)}
        except ValueError as fault:
            raise InvalidInput(f"at character {token.at + 1}: {fault}") from None
    if path or name not in FIELDS:
        raise InvalidInput(
            f"at character {token.at + 1}: unknown field {token.field!r}; known are {', '.join(FIELDS)}, "
            "payload.… and result.…"
        )
    try:
        if name in _MOMENTS:
            return _moment(name, op, _unquoted(token.value))
        tree: dict[str, Any] = {"field": name, "op": op, "value": _value(name, op, token.value)}
    except ValueError as fault:
        raise InvalidInput(f"at character {token.at + 1}: {token.field} {fault}") from None
    if name in _TEXTS and token.value.startswith('"'):
        tree["exact"] = True
    return tree


def _moment(name: str, op: str, text: str) -> Tree:
    """A comparison with a moment, or with a whole day: after it is from its end on, until it is to its end."""
    try:
        day = datetime.combine(date.fromisoformat(text), time(), UTC)
        following = day + timedelta(days=1)
    except (ValueError, OverflowError):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("must be compared with a time such as 2026-11-16 or 2026-11-16T09:30:00Z") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return {"field": name, "op": op, "value": moment.isoformat()}
    begun: Tree = {"field": name, "op": ">=", "value": day.isoformat()}
    over: Tree = {"field": name, "op": ">=", "value": following.isoformat()}
    match op:
        case ">=":
            return begun
        case ">":
            return over
        case "<":
            return {**begun, "op": "<"}
        case "<=":
            return {**over, "op": "<"}
    return {"and": [begun, {**over, "op": "<"}]}


def _value(name: str, op: str, text: str) -> Any:
    plain = _unquoted(text)
    if name in _NUMBERS:
        if not re.fullmatch(r"-?\d{1,9}", plain):
            raise ValueError("must be compared with a whole number")
        return int(plain)
    if name in _DURATIONS:
        found = re.fullmatch(r"(\d{1,9})([smhdw])", plain)
        if found is None:
            raise ValueError("must be compared with a duration such as 30s, 5m, 2h or 1d")
        return int(found[1]) * _SECONDS[found[2]]
    if name in _FLAGS:
        if op != "=" or plain not in ("true", "false"):
            raise ValueError("is true or false: use a colon")
        return plain == "true"
    if op != "=":
        raise ValueError("is a text: use a colon")
    values = [plain] if text.startswith('"') else [part for part in plain.split(",") if part]
    if not values:
        raise ValueError("needs a value")
    unknown = [value for value in values if name == "state" and value not in {state.value for state in State}]
    if unknown:
        known = [state.value for state in State]
        advice = did_you_mean(unknown[0], known) or f"; there are {', '.join(known)}"
        raise ValueError(f"{unknown[0]!r} does not exist{advice}")
    return values


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _json_value(text: str) -> Tree:
    """`42` is a number, `true` a boolean, anything else a text; a number as text is written "42".

    Numbers stay as they are written: the engine compares them in full, and a float would not.
    """
    if number := _NUMBER.fullmatch(text):
        if abs(int(number["exponent"] or 0)) > _LARGEST_EXPONENT:
            raise ValueError(f"the exponent of a number may be at most {_LARGEST_EXPONENT}; put text in quotes")
        return {"number": text}
    if text in ("true", "false", "null"):
        return {"value": json.loads(text)}
    return {"value": _unquoted(text)}
