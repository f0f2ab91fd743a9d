"""Workers over HTTP: each pulls a batch and reports all of it as done, until nothing is left: `python -m bench.fleet`.

Arguments: KIND HOST PORT WORKERS BATCH [KEY]. Says how long it took, as JSON. Written on bare sockets, so that the
fleet costs little beside what it measures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["main"]

#: Of each kind: the pull's path and body, and those of the report about what it was given.
Calls = tuple[str, Callable[[str, int], Any], str, Callable[[str, list[Any]], Any]]
KINDS: dict[str, Calls] = {
    "holdfast": (
        "/worker/pull",
        lambda worker, batch: {"worker_id": worker, "types": ["bench.noop"], "max": batch},
        "/worker/report",
        lambda worker, jobs: {
            "worker_id": worker,
            "reports": [{"job_id": job["job_id"], "attempt": job["attempt"], "done": True} for job in jobs],
        },
    ),
    "pgboss": (
        "/fetch",
        lambda _worker, batch: {"max": batch},
        "/complete",
        lambda _worker, jobs: {"ids": [job["id"] for job in jobs]},
    ),
}


class Worker:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self._reader, self._writer, self._head = reader, writer, head

    async def call(self, path: str, body: Any) -> Any:
        """The answer to a call."""
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(text)}\r\n\r\n"
        self._writer.write(head.encode() + text)
        told = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in told.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = await self._reader.readexactly(int(length.split(b":")[1]))
        if not told.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer.decode())
        return json.loads(answer)


async def _work(worker: Worker, name: str, calls: Calls, batch: int) -> int:
    pull, asked, report, told = calls
    done = 0
    while jobs := (await worker.call(pull, asked(name, batch)))["jobs"]:
        results = (await worker.call(report, told(name, jobs)))["results"]
        done += sum("problem" not in result for result in results)
    return done


async def _fleet(kind: str, host: str, port: int, *, workers: int, batch: int, key: Sequence[str]) -> tuple[float, int]:
    head = f"Host: {host}\r\nContent-Type: application/json\r\n"
    head += "".join(f"Authorization: Bearer {one}\r\n" for one in key)
    fleet = [Worker(*(await asyncio.open_connection(host, port, limit=2**24)), head) for _ in range(workers)]
    began = time.monotonic()
    done = await asyncio.gather(*(_work(one, f"w{n}", KINDS[kind], batch) for n, one in enumerate(fleet)))
    return time.monotonic() - began, sum(done)


def main() -> None:
    """Do what the command line says."""
    kind, host, port, workers, batch, *key = sys.argv[1:]
    fleet = _fleet(kind, host, int(port), workers=int(workers), batch=int(batch), key=key)
    seconds, count = asyncio.run(fleet)
    print(json.dumps({"seconds": seconds, "count": count}))


if __name__ == "__main__":
    main()
