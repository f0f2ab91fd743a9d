"""A remote worker without any library: `python -m tests.faults.scraping URL WORKER_ID`.

It repeats every call until it is answered, under the same request id and with the same number, and stops working on a
job as soon as it has lost it. Each job has pages; a report has the items of a page and where to go on.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import uuid
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

LEASE, PER_PAGE, SLOW_SECONDS = 2, 3, 0.02


class Api:
    """The server, or what is in its place at the moment."""

    def __init__(self, url: str, worker_id: str) -> None:
        self._address, self._worker_id = urlsplit(url), worker_id
        self._connection: http.client.HTTPConnection | None = None

    def call(self, verb: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """The answer, however often it takes."""
        text = json.dumps({"worker_id": self._worker_id} | body)
        while True:
            with suppress(OSError, http.client.HTTPException, ValueError):
                status, answer = self._once(verb, text)
                if status < 500 and status != 429:
                    return status, answer
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            time.sleep(0.05)

    def _once(self, verb: str, text: str) -> tuple[int, dict[str, Any]]:
        if self._connection is None:
            host, port = self._address.hostname or "", self._address.port
            self._connection = http.client.HTTPConnection(host, port, timeout=10)
        self._connection.request("POST", f"/worker/{verb}", text, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())


def scrape(api: Api, job: dict[str, Any]) -> None:
    """Go on where the last attempt stopped."""
    about = {"job_id": job["job_id"], "attempt": job["attempt"]}
    pages = job["payload"]["pages"]
    for seq, page in enumerate(range(job["cursor"] or 0, pages), 1):
        # The last item of a page is the first of the next one.
        keys = [f"{job['job_id']}/{page * (PER_PAGE - 1) + n}" for n in range(PER_PAGE)]
        time.sleep(SLOW_SECONDS)
        status, answer = api.call(
            "report", **about, seq=seq, items=[{"key": key, "data": page} for key in keys], cursor=page + 1
        )
        if status == http.HTTPStatus.CONFLICT:
            return
        assert status == http.HTTPStatus.OK, answer
    status, answer = api.call("report", **about, done=True, result=job["attempt"])
    assert status in (http.HTTPStatus.OK, http.HTTPStatus.CONFLICT), answer


def main(url: str, worker_id: str) -> None:
    """Work for ever."""
    api = Api(url, worker_id)
    while True:
        _, pulled = api.call("pull", types=["scrape"], max=2, lease_sec=LEASE, wait_sec=2, request_id=uuid.uuid4().hex)
        for job in pulled["jobs"]:
            scrape(api, job)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
