"""Posts jobs over so many connections, each waiting for its answer before the next: `python -m bench.load`.

Arguments: HOST PORT CONNECTIONS COUNT BYTES [KEY]. Says how long it took, as JSON. Written on bare sockets, so that the
load costs little beside what it measures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from bench.tally import stamped

__all__ = ["main"]


async def _connection(host: str, port: int, requests: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while requests:
        writer.write(requests.pop())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 202"):
            raise SystemExit(head.decode() + (await reader.read(2000)).decode())
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
    writer.close()
    await writer.wait_closed()


def _request(host: str, size: int, key: str | None) -> bytes:
    body = json.dumps({"jobType": "bench.noop", "payload": {"text": stamped(size)}}).encode()
    lines = ["POST /jobs HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _load(host: str, port: int, connections: int, requests: list[bytes]) -> float:
    began = time.monotonic()
    await asyncio.gather(*(_connection(host, port, requests) for _ in range(connections)))
    return time.monotonic() - began


def main() -> None:
    """Do what the command line says."""
    host, port, connections, count, size, *key = sys.argv[1:]
    requests = [_request(host, int(size), key[0] if key else None) for _ in range(int(count))]
    seconds = asyncio.run(_load(host, int(port), int(connections), requests))
    print(json.dumps({"seconds": seconds, "count": int(count)}))


if __name__ == "__main__":
    main()
