"""The HTTP server: a listener that drains, over the app with its routes.

No keys exist yet, so whoever reaches the server may use it: it binds loopback addresses only.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator

from holdfast.app import Holdfast
from holdfast.errors import ConfigError
from holdfast.web.routes import create_app

try:
    import uvicorn
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the HTTP server is not installed ({missing.name} is missing): pip install 'holdfast[server]'",
        name=missing.name,
    ) from None

__all__ = ["Server", "address", "create_app", "listen"]

_GRACE_SECONDS = 10
_BACKLOG = 1024


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on a loopback address; ConfigError, with advice, for anything else."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as fault:
        raise ConfigError(f"the host {host!r} is unknown: {fault}") from None
    family, _, _, _, where = found[0]
    if not all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found):
        raise ConfigError(
            f"the server does not bind {host}: it has no keys yet, so anybody who reaches it could use it; "
            "bind 127.0.0.1 or ::1"
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
    except OSError as fault:
        listener.close()
        raise ConfigError(
            f"port {port} of {host} cannot be used ({fault.strerror}); choose another: --port or HOLDFAST_PORT"
        ) from None
    listener.listen(_BACKLOG)
    return listener


def address(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves until told to stop; told again, it does not wait for requests under way."""

    def __init__(self, hf: Holdfast) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(hf),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )

    def stop(self) -> None:
        """Finish the requests under way; called again, do not."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for whoever runs this server."""
        yield
