"""Heads of requests, counted as they arrive: the parser itself stores headers of any size.

1. The request target and the header fields may have 64 KiB together, and at most 256 fields. More is answered with 431,
   and the connection ends. The same limit applies to empty lines, chunk extensions and trailers.
2. Of the fields, those that no route reads are dropped as they arrive (see holdfast.web.fields). Trailers are dropped,
   too: a field that follows the body never counts as a header.
3. All connections together have 32 MiB for headers that take more than 8 KiB of memory, until their requests are
   answered; half of that is for callers with a known key only. If there is no room, such a request is answered with
   503; smaller ones are always accepted. Of a request that was answered, nothing is kept, however long its connection
   stays.
4. Two fields with a host, or with a key, are refused; so is any transfer coding but `chunked`.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from holdfast.web.fields import is_read
from holdfast.web.problems import Problem
from holdfast.web.upgrades import NeverUpgraded

__all__ = [
    "CROWDED",
    "EXCESS",
    "FIELD_LIMIT",
    "FIELD_MEMORY",
    "HEAD_LIMIT",
    "SLICE",
    "Heads",
    "end_of_head",
    "path_memory",
]

HEAD_LIMIT = 64 * 1024
FIELD_LIMIT = 256
SLICE = 8 * 1024
#: How much all connections of the process may store in heads that are larger than a slice: those that strangers send,
#: and all of them.
_STRANGERS_LIMIT, _HEADS_LIMIT = 16 * 1024 * 1024, 32 * 1024 * 1024

#: What a field takes beside its name and value: colon, space, end of line; and how much memory it takes.
_FIELD_BYTES, FIELD_MEMORY = 4, 160
#: What is kept of a path beside the bytes of the address: its text, and parts of it as parameters of the route. A text
#: in which one character was written with `%` may take four bytes for each of its characters.
_PATH_COPIES, _WIDE = 3, 4
#: Proxies and servers that each choose another one of two would be led astray.
_ONCE = frozenset({b"host", b"authorization"})
#: A longer list of expectations is not looked at.
_CONTINUE, _EXPECT_BYTES = b"100-continue", 64

#: A header section ends with an empty line. Those before a request do not count, so they do not make slices short.
_EMPTY_LINE = b"\r\n\r\n"
_HEAD_END = re.compile(rb"[^\r\n]\r\n\r\n")
#: Of heads that are no larger, each connection may send this many bytes per time without waiting for a turn.
_SMALL, _SMALL_LINES, _SMALL_EVERY_SECONDS = 2 * 1024, 32, 1.0

EXCESS = Problem(
    431,
    "headers-too-large",
    f"Headers may have {HEAD_LIMIT} bytes with the address, and {FIELD_LIMIT} fields; so may trailers.",
)


CROWDED = Problem(503, "unavailable", "Too many large headers are being sent at once.")


class _Stop(Exception):
    """Ends the parsing."""


class Heads(NeverUpgraded):
    """One connection's heads."""

    _heads = 0  # of all connections

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head, self.url = True, b""
        self._bytes = self._fields = 0  # of the header section under way, or of the trailers
        self._unheard = 0  # bytes of the whole slices since the parser last reported something
        self._heard = False
        self._kept = 0  # memory of the head under way, as far as it is kept once it is complete
        self._charged = 0  # of `_heads`, for the head under way
        self._chunked, self._left = False, 0  # how the body is sent, and how much of it, if that was announced, is left
        self._problem: Problem | None = None
        self._waiting = b""  # what was read, and not parsed yet
        self._shows_key: bool | None = None  # whether a known key is in what waits; None if nobody has looked
        self._small_left, self._small_at = _SMALL, float("-inf")

    def on_message_begin(self) -> None:
        """A request begins."""
        self._heard, self._in_head = True, True
        self._bytes = self._fields = self._unheard = self._kept = 0
        self._chunked, self._left = False, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        self._count(len(url))
        self._kept += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole field: a header or a trailer."""
        self._fields += 1
        self._count(max(self._unheard, len(name) + len(value) + _FIELD_BYTES))
        name = name.lower()
        if self._in_head and is_read(name):
            self._check(name, value)
            self._kept += len(name) + len(value) + FIELD_MEMORY
            super().on_header(name, value)

    def stop(self, problem: Problem) -> NoReturn:
        """While something is parsed: answer with this, and parse no more."""
        self._problem = problem
        raise _Stop  # the parser stops, and `send_400_response` is called

    def is_small(self) -> bool:
        """Whether the next head is small, or what is here of it, and no more than this connection may send of those."""
        begin = self._waiting[: _SMALL + 1]
        size = end_of_head(begin) or len(begin)
        if size > _SMALL or begin.count(b"\n", 0, size) > _SMALL_LINES:
            return False
        now = self.loop.time()
        if now - self._small_at > _SMALL_EVERY_SECONDS:
            self._small_left, self._small_at = _SMALL, now
        self._small_left -= size
        return self._small_left >= 0

    def comes_from_caller(self) -> bool:
        """Whether the head under way, or what waits of it, is likely to be a known caller's."""
        if self._shows_key is None:
            self._shows_key = self.shows_known_key(self._waiting)
        return self._shows_key or self.is_callers()

    def is_callers(self) -> bool:
        """Whether a known caller has used the connection."""
        raise NotImplementedError

    def shows_known_key(self, head: bytes) -> bool:
        """Whether a known key is in the head under way, or in a part of it that was not parsed yet."""
        raise NotImplementedError

    def _check(self, name: bytes, value: bytes) -> None:
        if name in _ONCE and any(name == other for other, _ in self.headers):
            self.stop(Problem(400, "bad-request", f"A request may have one {name.decode()} field."))
        if name == b"transfer-encoding":
            if self._chunked or value.strip().lower() != b"chunked":
                self.stop(Problem(400, "bad-request", "The only transfer coding that is understood is chunked."))
            self._chunked = True
        if name == b"content-length":
            self._left = int(value)
        if name == b"expect" and len(value) <= _EXPECT_BYTES:
            self.expect_100_continue |= _CONTINUE in map(bytes.strip, value.lower().split(b","))

    def _make_room(self, size: int) -> bool:
        """Room for the head under way; whether there is any."""
        if size > max(SLICE, self._charged):
            heads = Heads._heads + size - self._charged
            if heads > _HEADS_LIMIT or (heads > _STRANGERS_LIMIT and not self.comes_from_caller()):
                return False
            self._charge(size)
        return True

    def _charge(self, size: int) -> None:
        Heads._heads += size - self._charged
        self._charged = size

    def _count(self, size: int) -> None:
        self._heard, self._unheard = True, 0
        self._bytes += size
        if self._bytes > HEAD_LIMIT or self._fields > FIELD_LIMIT:
            self.stop(EXCESS)


def path_memory(url: bytes) -> int:
    """How much memory the path of a request target takes once it is read."""
    path, _, _ = url.partition(b"?")
    return _PATH_COPIES * len(path) * (_WIDE if b"%" in path else 1)


def end_of_head(piece: bytes) -> int | None:
    """Where the first header section in a piece ends. The pattern alone takes 30 times as long: it tries every byte."""
    at = piece.find(_EMPTY_LINE)
    found = None if at < 0 else _HEAD_END.search(piece, max(at - 1, 0))
    return None if found is None else found.end()
