"""Messages between a worker and a child: a JSON object, with the length of its text in front.

The worker sends `run`, which has a number, the order, as well as `answer` and `leave`. A child sends `ready`; then,
each with the number of its order, `begin`, `began`, `log`, `record`, `report`, `ending` and `completed` (about the
handler's own transaction), and at the end of every order one of `returned`, `raised` and `misfit`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

__all__ = ["Frame", "packed", "read", "receive"]

Frame = dict[str, Any]

_LENGTH_BYTES = 8
#: More than any frame has. A handler that writes to random descriptors could announce more.
_MOST_BYTES = 2**30


def packed(frame: Frame) -> bytes:
    """A frame as bytes."""
    text = json.dumps(frame, separators=(",", ":")).encode()
    return len(text).to_bytes(_LENGTH_BYTES) + text


async def read(reader: asyncio.StreamReader) -> Frame:
    """The next frame. Raises IncompleteReadError when the other side has gone."""
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
    if length > _MOST_BYTES:
        raise ValueError(f"a frame of {length} bytes")
    return _frame(await reader.readexactly(length))


def receive(sock: socket.socket) -> Frame | None:
    """The next frame, or None when the other side has gone. Blocks this thread."""
    length = _exactly(sock, _LENGTH_BYTES)
    text = None if length is None else _exactly(sock, int.from_bytes(length))
    return None if text is None else _frame(text)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        part = sock.recv(min(size - len(received), 1 << 20))
        if not part:
            return None
        received += part
    return bytes(received)


def _frame(text: bytes) -> Frame:
    frame = json.loads(text)
    if not isinstance(frame, dict) or "kind" not in frame:
        raise ValueError(f"not a frame: {text[:80]!r}")
    return frame
