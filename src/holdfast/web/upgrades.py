"""Connections on which no offer to upgrade to another protocol is taken: the request is answered without it."""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["NeverUpgraded"]


class NeverUpgraded(HttpToolsProtocol):
    """The parser believes that another protocol begins behind the head of such a request, even if there is a body."""

    def feed(self, piece: memoryview) -> int:
        """Pass a piece to the parser; returns how much of it the parser has taken."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as stop:
            if self.offers_upgrade():
                self._decline_upgrade()
            return int(stop.args[0])
        return len(piece)

    def offers_upgrade(self) -> bool:
        """Whether the request under way does."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _decline_upgrade(self) -> None:
        """Have the head read again without the offer, by a parser that has not taken it for the last one."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        fields = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, fields)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(head)
