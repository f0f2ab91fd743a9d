"""Items and cursors that handlers report, as JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.definitions.json_text import encode_value
from holdfast.errors import InvalidInput

__all__ = ["encode_cursor", "encode_items"]

#: The maximal size of one statement.
_REPORT_CHARACTERS = 32 * 2**20


def encode_items(items: Iterable[Mapping[str, Any]]) -> str:
    """Items as the engine accepts them: each `{"key": ..., "data": ...}`, or without a key."""
    encoded, size = [], 0
    for item in items:
        encoded.append(_encoded(item))
        size += len(encoded[-1])
        if size > _REPORT_CHARACTERS:
            raise InvalidInput(
                f"the items of a report may have at most {_REPORT_CHARACTERS} characters; send several reports"
            )
    return f"[{','.join(encoded)}]"


def encode_cursor(cursor: Any) -> str | None:
    """A cursor as JSON text; None leaves the stored one as it is."""
    return None if cursor is None else encode_value(cursor, "the cursor")


def _encoded(item: Mapping[str, Any]) -> str:
    if not isinstance(item, Mapping) or "data" not in item or not item.keys() <= {"key", "data"}:
        raise InvalidInput('an item is {"key": "...", "data": ...}, or {"data": ...}, which is identified by its data')
    key = item.get("key")
    if key is not None and not isinstance(key, str):
        raise InvalidInput(f"the key of an item must be a string, not {type(key).__name__}")
    data = encode_value(item["data"], "the data of an item")
    return f'{{"data":{data}}}' if key is None else f'{{"key":{json.dumps(key)},"data":{data}}}'
