"""The site: a directory of dentists, page by page, by cursor. `python -m examples.lead_scraper.site 8001`.

Each page has ten entries and the cursor of the next one. It takes its time, and its first three entries are the last
ones of the page before, as on sites whose lists grow while they are read.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["CITIES", "page_of", "pages"]

#: How many dentists each city has.
CITIES = {"berlin": 500, "lyon": 73, "porto": 150}
_NEW, _AGAIN = 7, 3
_SECONDS_PER_PAGE = 0.1


def page_of(city: str, cursor: int) -> dict[str, Any]:
    """The page at a cursor, which counts pages here; that is the site's own affair."""
    last = min((cursor + 1) * _NEW, CITIES[city])
    first = max(cursor * _NEW - _AGAIN, 0)
    entries = [
        {"phone": f"+{list(CITIES).index(city) + 1}{number:07}", "name": f"Dr. {number} of {city.title()}"}
        for number in range(first, last)
    ]
    return {"entries": entries, "next": cursor + 1 if last < CITIES[city] else None}


def pages(city: str) -> Iterator[dict[str, Any]]:
    """All of them."""
    cursor: int | None = 0
    while cursor is not None:
        yield (page := page_of(city, cursor))
        cursor = page["next"]


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """`/dentists?city=berlin&cursor=3`."""
        query = parse_qs(urlsplit(self.path).query)
        time.sleep(_SECONDS_PER_PAGE)
        city = query.get("city", [""])[0]
        body = json.dumps(page_of(city, int(query.get("cursor", ["0"])[0])) if city in CITIES else {}).encode()
        self.send_response(200 if city in CITIES else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
        """Nothing: each page is a line in the job's own log, if anywhere."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Site).serve_forever()
