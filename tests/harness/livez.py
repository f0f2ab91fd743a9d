"""How long a server took at most to say that it lives, asked again and again by a process that does nothing else."""

from __future__ import annotations

import socket
import sys
import time

from tests.harness.beside import Beside, answer

__all__ = ["Livez"]

_EVERY_SECONDS = 0.01


class Livez(Beside):
    """Asks from its creation on, over a new connection each time."""

    def __init__(self, port: int) -> None:
        super().__init__(__name__, str(port))

    @property
    def slowest(self) -> float:
        """The longest time that an answer took so far, in seconds."""
        return self.ask()


class _Watch:
    def __init__(self, port: int) -> None:
        self._port, self._slowest = port, 0.0

    def look(self) -> None:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", self._port), timeout=30) as line:
            line.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            said = line.recv(4096)
        if not said.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"it said {said[:100]!r}")
        self._slowest = max(self._slowest, time.monotonic() - began)

    def tell(self) -> float:
        return self._slowest


if __name__ == "__main__":
    watch = _Watch(int(sys.argv[1]))
    answer(_EVERY_SECONDS, watch.look, watch.tell)
