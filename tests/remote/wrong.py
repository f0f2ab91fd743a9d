"""A worker over HTTP that does everything right, or one thing wrong: `python -m tests.remote.wrong MODE`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from uuid import uuid4

TYPES = ["conform.echo", "conform.items", "conform.slow", "conform.fail"]
AGAIN = (429, 500, 502, 503)


class Ended(Exception):
    """The job is over for this worker."""


class Stopped(Exception):
    """The job is to stop."""


class Worker:
    def __init__(self, mode: str) -> None:
        self.mode, self.draining = mode, False
        self.own = {"worker_id": f"wrong-{os.getpid()}"}

    def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call, repeated until it is answered. Raises Ended for a conflict, ValueError for what is not valid."""
        text = json.dumps({**self.own, **body})
        if self.mode == "broken-json" and "error" in body:
            text = text.partition(', "error"')[0] + ', "error": "' + body["error"] + '"}'
        while True:
            request = urllib.request.Request(f"{os.environ['HOLDFAST_URL']}/worker/{verb}", text.encode())
            request.add_header("Content-Type", "application/json")
            request.add_header("Authorization", f"Bearer {os.environ['HOLDFAST_KEY']}")
            pause = 0.1
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.loads(answer.read())  # type: ignore[no-any-return]
            except urllib.error.HTTPError as error:
                if error.code == 409 and self.mode == "ignores-409":
                    return {"owned": True, "directive": "continue"}
                if error.code == 409:
                    raise Ended from None
                if error.code not in AGAIN and not (error.code == 422 and self.mode == "repeats-refused"):
                    raise ValueError(error.read()) from None
                pause = 0.1 if self.mode == "hurries" else float(error.headers.get("Retry-After", 0.1))
            except (OSError, HTTPException):
                if self.mode == "loses-reports" and verb == "report":
                    return {"owned": True, "directive": "continue"}
                if self.mode == "new-request-id" and verb == "pull":
                    return {"jobs": [], "directive": "continue"}
            time.sleep(pause)

    def run(self) -> None:
        while not self.draining:
            wait = {} if self.mode == "spins" else {"wait_sec": 1}
            answer = self.call("pull", {"types": TYPES, "request_id": uuid4().hex, **wait})
            self.heed(answer)
            for job in answer["jobs"]:
                self.work(job)

    def heed(self, answer: dict[str, Any]) -> None:
        if answer["directive"] == "drain" and self.mode != "ignores-drain":
            self.draining = True

    def work(self, job: dict[str, Any]) -> None:
        named = {"job_id": job["job_id"], "attempt": job["attempt"]}
        try:
            self.call("report", {**named, **self.outcome(job, named)})
        except Stopped as stopped:
            self.call("release", {"leases": [named], "reason": str(stopped)})
        except ValueError as refused:
            self.call("report", {**named, "error": str(refused)})
        except Ended:
            pass

    def outcome(self, job: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
        payload = job["payload"]
        match job["type"]:
            case "conform.echo":
                return {"done": True, "result": payload}
            case "conform.fail":
                error = payload["message"] if self.mode == "broken-json" else payload
                return {"error": error}
            case "conform.slow":
                self.sleep(payload["seconds"], job, named)
            case "conform.items":
                self.collect(payload["count"], payload["page"], job, named)
        return {"done": True}

    def collect(self, count: int, page: int, job: dict[str, Any], named: dict[str, Any]) -> None:
        begin = 0 if self.mode == "starts-over" else job["cursor"] or 0
        for number, start in enumerate(range(begin, count, page), 1):
            end = min(start + page, count)
            items = [{"key": f"item-{n}", "data": {"n": n}} for n in range(start, end)]
            seq = {"out-of-order": 100 - number, "reuses-seq": 1}.get(self.mode, number)
            told = self.call("report", {**named, "seq": seq, "items": items, "cursor": end})
            if not told["owned"] and self.mode != "goes-on":
                raise Ended

    def outlive(self, named: dict[str, Any]) -> None:
        """Keep the lease in a process of its own, whatever becomes of this one."""
        if os.fork() == 0:
            while True:
                self.call("extend", {"leases": [named]})
                time.sleep(0.5)

    def sleep(self, seconds: float, job: dict[str, Any], named: dict[str, Any]) -> None:
        end = time.monotonic() + seconds
        wait = 1 if job["lease_sec"] < 4 else 2
        if self.mode == "outlives":
            self.outlive(named)
        while (left := end - time.monotonic()) > 0:
            if self.mode == "never-extends":
                time.sleep(left)
                return
            answer = self.call("extend", {"leases": [named], "wait_sec": min(wait, left)})
            self.heed(answer)
            (lease,) = answer["leases"]
            if not lease["owned"]:
                raise Ended
            if lease["directive"] in ("cancel", "pause") and self.mode != "ignores-cancel":
                raise Stopped(lease["directive"])
            if answer["directive"] == "drain" or lease["directive"] != "continue":
                time.sleep(min(0.5, left))


def main() -> None:
    worker = Worker(sys.argv[1])

    def told(*_: object) -> None:
        worker.draining = True

    if worker.mode != "dies":
        signal.signal(signal.SIGTERM, told)
    # In a thread: a signal must not interrupt what is being sent.
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
