"""Finds out from a payload's JSON schema whether it may have a field."""

from __future__ import annotations

from typing import Any

__all__ = ["fields_instead"]


def fields_instead(schema: dict[str, Any], path: str) -> list[str] | None:
    """The fields that there are where a (dotted) path ends, if no payload can have that path; None if one may."""
    nodes = [schema]
    for part in path.split("."):
        fields = [_fields(inner) for node in nodes for inner in _alternatives(node, schema)]
        if not fields or None in fields:
            return None
        nodes = [some[part] for some in fields if some and part in some]
        if not nodes:
            return sorted({name for some in fields for name in some or ()})
    return None


def _alternatives(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives that a part of a JSON schema allows, except null."""
    if "$ref" in node:
        return _alternatives(schema.get("$defs", {}).get(node["$ref"].rpartition("/")[2], {}), schema)
    parts = node.get("anyOf") or node.get("oneOf")
    if parts:
        return [inner for part in parts for inner in _alternatives(part, schema)]
    return [] if node.get("type") == "null" else [node]


def _fields(node: dict[str, Any]) -> dict[str, Any] | None:
    """The fields that a value may have; None if it may have others. Unknown fields are refused or dropped."""
    if node.get("type") in ("string", "integer", "number", "boolean"):
        return {}
    is_closed = "properties" in node and node.get("additionalProperties", False) is False
    return node["properties"] if is_closed else None
