"""The SQL files, by name: named queries for the schema in use, migrations and functions for `migrate`.

Files are written for the schema `holdfast`; in queries the name is replaced by the one in use, migrations
and functions name no schema at all and are applied with a search_path.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["functions", "grants", "kit_queries", "migrations", "queries", "script"]

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_DEFINITION = re.compile(r"((?:^--[^\n]*\n)+)^create or replace (function|view) (\w+)", re.MULTILINE)
#: Beginnings of sentences that mean nothing without the sentence before.
_DEPENDENT = ("The same", "Moves:", "Roles:")
_GRANT = re.compile(r"^grant (?:execute on function|select on)\s+(.*?)\s+to\s+(.*?);", re.MULTILINE | re.DOTALL)


@cache
def queries(schema: str) -> dict[str, str]:
    """Every named query, for one schema."""
    return _named("queries", schema)


@cache
def kit_queries(schema: str) -> dict[str, str]:
    """The named queries of the testing kit, which only its own databases answer."""
    return _named("testing", schema)


def migrations() -> list[tuple[int, str, str]]:
    """(step, name, sql) of every migration, in order."""
    return [(int(name[:4]), name.removesuffix(".sql"), sql) for name, sql in sorted(_read("migrations").items())]


def functions() -> dict[str, str]:
    """Function files by name, in the order they are applied.

    The first sentence above each function or view becomes its comment in the database: it is written once.
    """
    return {name.removesuffix(".sql"): sql + _comments(sql) for name, sql in sorted(_read("functions").items())}


def script(name: str, schema: str) -> str:
    """A single file (`bootstrap`, `roles`, `rights`), for one schema."""
    text = files("holdfast.sql").joinpath(f"{name}.sql").read_text("utf-8")
    return text if schema == "holdfast" else re.sub(r"holdfast(?=[._])|(?<=schema )holdfast\b", schema, text)


def grants(schema: str) -> list[tuple[str, str]]:
    """(name, role) of every function that a role may call, and of every table that it may read, as in `rights`.

    Names in the engine's schema are bare, others have their schema: both have a relation `jobs`.
    """
    found = {
        (name.removeprefix(f"{schema}."), role)
        for names, roles in _GRANT.findall(script("rights", schema))
        for name in re.split(r",\s*", names)
        for role in re.split(r",\s*", roles)
    }
    return sorted(found)


def _comments(sql: str) -> str:
    told = []
    for lines, kind, name in _DEFINITION.findall(sql):
        text = " ".join(line.removeprefix("--").strip() for line in lines.splitlines())
        sentence = re.split(r"(?<=\.)\s", text, maxsplit=1)[0].replace("'", "''")
        if not sentence.startswith(_DEPENDENT):
            told.append(f"('{kind}', '{name}', '{sentence}')")
    template = files("holdfast.sql").joinpath("comments.sql").read_text("utf-8")
    return "\n" + template.replace(":comments", ",\n      ".join(told)) if told else ""


def _named(folder: str, schema: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in _read(folder).values():
        parts = _NAME.split(text)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            sql = "\n".join(lines).strip().rstrip(";")
            found[name] = sql if schema == "holdfast" else sql.replace("holdfast.", f'"{schema}".')
    return found


def _read(folder: str) -> dict[str, str]:
    return {
        entry.name: entry.read_text("utf-8")
        for entry in files("holdfast.sql").joinpath(folder).iterdir()
        if entry.name.endswith(".sql")
    }
