"""The HTTP server: a listener that drains, over the app with its routes.

Without keys, everybody who can reach the server may use it, so it then serves only on loopback addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import cast

from holdfast.app import Holdfast
from holdfast.errors import ConfigError
from holdfast.web.loopback import is_loopback
from holdfast.web.routes import create_app

try:
    import uvicorn

    from holdfast.web.impatient import Impatient
    from holdfast.web.places import backlog, most_connections, raise_descriptors
    from holdfast.web.wire import Wire
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the HTTP server is not installed ({missing.name} is missing): pip install 'holdfast[server]'",
        name=missing.name,
    ) from None

__all__ = ["Server", "address", "admit", "create_app", "listen", "raise_descriptors"]

_GRACE_SECONDS = 10
#: How many bytes the kernel may buffer for each connection, each way, and how long it keeps unsent ones.
_BUFFER_BYTES, _UNSENT_SECONDS = 64 * 1024, 30
#: How many connections are accepted in a round of the loop: others would wait for a thousand rounds of a thousand who
#: connect at once.
_ACCEPTS = 16
#: For browsers: they must trust an answer's type, and pages of other sites must not load it or show it in a frame.
_HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Content-Security-Policy", "frame-ancestors 'self'"),
]


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, for `admit`; ConfigError, with advice, if the address cannot be used.

    Others than this machine's users cannot connect until it is known that the server may serve them at all.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as fault:
        raise ConfigError(f"the host {host!r} is unknown: {fault}") from None
    family, kind, protocol, _, where = found[0]
    listener = socket.socket(family, kind, protocol)  # asyncio sends without delay only where it knows that this is TCP
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _bound_buffers(listener)
    try:
        listener.bind(where)
        if is_loopback(str(where[0])):
            listener.listen(backlog())
    except OSError as fault:
        listener.close()
        raise _unusable(host, port, fault) from None
    return listener


def _bound_buffers(listener: socket.socket) -> None:
    """Bound the kernel's memory for unread requests and answers; accepted connections inherit these options.

    By default the kernel buffers megabytes per connection in both directions, so that the server believes its answers
    were read. It also keeps unsent data after the server has closed the connection, for as long as the client reports a
    full window.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNSENT_SECONDS * 1000)


async def admit(hf: Holdfast, listener: socket.socket) -> None:
    """Let callers connect; ConfigError, with advice, if other machines could connect and there are no keys."""
    host, port = listener.getsockname()[:2]
    control = await hf.control()
    if not is_loopback(host) and not await control.keyring.any_key():
        raise ConfigError(
            f"the server does not serve on {host}: there are no keys, so anybody who can reach it could use it; "
            "make one with `holdfast keys create`, or bind 127.0.0.1 or ::1"
        )
    try:
        listener.listen(backlog())
    except OSError as fault:
        raise _unusable(host, port, fault) from None


def _unusable(host: str, port: int, fault: OSError) -> ConfigError:
    return ConfigError(
        f"port {port} of {host} cannot be used ({fault.strerror}); choose another: --port or HOLDFAST_PORT"
    )


def address(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves until told to stop. Told again, it does not wait for requests under way.

    With a delay, it first continues as before and only reports on /readyz that it will stop, so that a load balancer
    chooses another server before this one refuses requests.
    """

    def __init__(self, hf: Holdfast, *, keys_only: bool = False) -> None:
        self._app = create_app(hf, keys_only=keys_only)
        self._delay = hf.config.shutdown_delay_seconds
        self._told = False
        Impatient.places.most = most_connections()
        super().__init__(
            uvicorn.Config(
                self._app,
                http=cast("type[asyncio.Protocol]", Wire),  # uvicorn names the other kind, and takes both
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=backlog(),
                headers=_HEADERS,
                lifespan="off",
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvloop accepts one connection per socket and round of the loop, so there are several for each."""
        self.server_state.default_headers = self.config.encoded_headers  # until uvicorn adds the date to them
        copies = [sock.dup() for sock in sockets or () for _ in range(_ACCEPTS - 1)]
        await super().startup([*(sockets or ()), *copies] if sockets else None)

    def stop(self) -> None:
        """After the delay, finish the requests under way. A second call skips both."""
        self._app.state.holdfast.leave()
        if self._told or not self._delay:
            self._drain()
            self.force_exit = self._told
        else:
            asyncio.get_running_loop().call_later(self._delay, self._drain)
        self._told = True

    def _drain(self) -> None:
        self._app.state.holdfast.drain()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The program that runs this server handles signals."""
        yield
