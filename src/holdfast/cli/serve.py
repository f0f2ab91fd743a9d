"""`holdfast serve`: the HTTP server."""

from __future__ import annotations

import logging
import socket
from contextlib import AbstractAsyncContextManager
from types import ModuleType

import click

from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.numbers import Whole
from holdfast.cli.shutdown import Shutdown, run_until_told
from holdfast.cli.variables import tell_unknown_variables
from holdfast.telemetry.narrator import set_up_logging

__all__ = ["serve", "web"]

_log = logging.getLogger("holdfast.web")


@click.command()
@click.option("--host", help="Address; 127.0.0.1 if not given. Other addresses need keys.")
@click.option("--port", type=Whole(0, 65535), help="Port; 8080 if not given, 0 for a free one.")
@click.option("--no-maintenance", is_flag=True, help="Leave maintenance to other processes.")
@click.option("--descriptor", type=int, hidden=True)
def serve(host: str | None, port: int | None, no_maintenance: bool, descriptor: int | None) -> int:
    """Serve the HTTP API: /jobs, /ops, /metrics, /livez, /readyz, /openapi.json.

    Without keys (`holdfast keys create`) it serves only on loopback addresses.
    """
    tell_unknown_variables()
    server_module = web()
    hf = Holdfast()
    set_up_logging(hf.config.log_format, hf.config.log_level)
    server_module.raise_descriptors()
    if descriptor is not None:
        listener = socket.socket(fileno=descriptor)
    else:
        listener = server_module.listen(host or hf.config.host, hf.config.port if port is None else port)
    beside = hf if no_maintenance else hf.maintaining()
    return run_until_told(lambda shutdown: _serve(hf, beside, server_module, listener, shutdown), hf.config.event_loop)


async def _serve(
    hf: Holdfast,
    beside: AbstractAsyncContextManager[object],
    server_module: ModuleType,
    listener: socket.socket,
    shutdown: Shutdown,
) -> int:
    async with beside:
        await server_module.admit(hf, listener)
        host = listener.getsockname()[0]
        server = server_module.Server(hf, keys_only=not server_module.is_loopback(host))
        shutdown.attach(server.stop)
        _log.info("serves on %s", server_module.address(listener))
        await hf.tell_overruled()
        await server.serve(sockets=[listener])
    return Exit.OK


def web() -> ModuleType:
    """The HTTP server's module, which needs an extra."""
    try:
        from holdfast.web import server
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"the HTTP server is not installed ({missing.name} is missing): pip install 'holdfast[server]'"
        ) from None
    return server
