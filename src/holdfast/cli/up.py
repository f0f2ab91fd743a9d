"""`holdfast up`: everything at once: the database, the schema, the HTTP server, a worker, and a demo.

Server and worker are processes of their own, on a leash. Stopping is an order: load → worker → server →
database. The children use the database by themselves, so that the embedded one outlives us until they have
drained, should we be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import click

from holdfast.app import Holdfast
from holdfast.cli.apps import app_option, load_app
from holdfast.cli.board import Board
from holdfast.cli.children import ChildCommand
from holdfast.cli.exits import Exit
from holdfast.cli.numbers import Whole
from holdfast.cli.output import echo
from holdfast.cli.serve import web
from holdfast.cli.shutdown import Shutdown, run_until_told
from holdfast.cli.variables import tell_unknown_variables
from holdfast.store.migrate import migrate
from holdfast.telemetry.narrator import set_up_logging
from holdfast.version import __version__

__all__ = ["hints", "up"]

_DEMO = "holdfast.cli.demo:hf"


@click.command()
@app_option(required=False, description="The app whose jobs to run; a demo with some jobs if not given.")
@click.option("--host", help="Address; 127.0.0.1 if not given. Other addresses need keys.")
@click.option("--port", type=Whole(0, 65535), help="Port; 8080 if not given, 0 for a free one.")
def up(app_name: str | None, host: str | None, port: int | None) -> int:
    """Start everything: the database, the schema, the HTTP server and a worker.

    Without HOLDFAST_DATABASE_URL, this runs its own PostgreSQL in the folder HOLDFAST_HOME (.holdfast).
    Ctrl-C drains; a second Ctrl-C interrupts running jobs.
    """
    tell_unknown_variables()
    hf = load_app(app_name or _DEMO)
    server_module = web()
    listener = server_module.listen(host or hf.config.host, hf.config.port if port is None else port)
    with listener:
        return run_until_told(
            lambda shutdown: _Everything(hf, app_name, listener, server_module.address(listener)).run(shutdown),
            hf.config.event_loop,
        )


class _Everything:
    """The processes of one `up`."""

    def __init__(self, hf: Holdfast, app_name: str | None, listener: socket.socket, url: str) -> None:
        self._hf, self._app_name, self._url = hf, app_name, url
        # A demo on a terminal shows a board, unless the user chose a format of log lines and so wants to see them.
        shows_board = app_name is None and sys.stdout.isatty() and hf.config.origins["log_format"] == "default"
        self._board = Board(hf, url) if shows_board else None
        environment = _environment(hf) | ({"HOLDFAST_LOG_FORMAT": "json"} if shows_board else {})
        hear = self._board.hear if self._board else None
        number = listener.fileno()
        self._server = ChildCommand(
            "server",
            ["serve", "--descriptor", str(number)],
            environment=environment,
            descriptors=[number],
            hear=hear,
            grace_seconds=hf.config.shutdown_grace_period_seconds,
        )
        self._worker = ChildCommand(
            "worker",
            ["worker", "--app", app_name or _DEMO],
            environment=environment,
            hear=hear,
            grace_seconds=hf.config.shutdown_grace_period_seconds,
        )

    async def run(self, shutdown: Shutdown) -> int:
        """Start all, wait until told to stop or a child gives up, stop all."""
        set_up_logging(self._hf.config.log_format, self._hf.config.log_level)
        echo(f"Holdfast {__version__}\n  home      {self._hf.config.home.resolve()}")
        embedded = self._hf.config.database_url is None
        echo(f"  database  {'embedded, in the home folder' if embedded else 'as HOLDFAST_DATABASE_URL says'}")
        await self._hf.use_database()
        await migrate(self._hf.config)
        async with self._hf:
            told = asyncio.Event()
            shutdown.attach(lambda: self._hurry() if told.is_set() else told.set())
            shutdown.at_last += [self._worker.kill, self._server.kill]
            return await self._run_children(told)

    async def _run_children(self, told: asyncio.Event) -> int:
        server = asyncio.create_task(self._server.run())
        worker = asyncio.create_task(self._worker.run())
        extras = [asyncio.create_task(self._say_when_ready())]
        if self._app_name is None:
            # Not before: it makes an app, and a wrong setting is to be told by the command that is run.
            from holdfast.cli.demo import keep_enqueueing

            extras.append(asyncio.create_task(keep_enqueueing(self._hf)))
        waiting = asyncio.create_task(told.wait())
        with self._board.shown() if self._board else contextlib.nullcontext():
            await asyncio.wait({waiting, server, worker}, return_when=asyncio.FIRST_COMPLETED)
            for task in (waiting, *extras):
                task.cancel()
            await asyncio.gather(waiting, *extras, return_exceptions=True)
            if self._board is None:
                echo("draining; press Ctrl-C again to interrupt running jobs")
            else:
                self._board.say("draining; press Ctrl-C again to interrupt running jobs")
            self._worker.drain()
            codes = [await worker]
            self._server.drain()
            codes.append(await server)
        echo("stopped")
        return next((code if code > 0 else Exit.FAILED for code in codes if code), Exit.OK)

    def _hurry(self) -> None:
        self._worker.hurry()
        self._server.hurry()

    async def _say_when_ready(self) -> None:
        while True:
            if await _is_ready(self._url):
                break
            await asyncio.sleep(0.1)
        lines = [f"  server    {self._url}", f"  app       {self._app_name or 'a demo with about 10 jobs a second'}"]
        if self._app_name is None:
            embedded = self._hf.config.origins["database_url"] == "embedded"
            where = "" if embedded else " with the same HOLDFAST_DATABASE_URL"
            lines += [f"Try, in another terminal{where}:", *hints(self._url, _origins(self._hf))]
        lines.append("Ready. Ctrl-C drains and stops.")
        if self._board is None:
            echo("\n".join(lines))
        else:
            self._board.print("\n".join(lines))


def hints(url: str, environment: Mapping[str, str]) -> list[str]:
    """Commands to try. They can be pasted into any shell and need nothing that was set in this one."""
    body = '{"jobType": "demo.email", "payload": {"to": "ada@example.com"}}'
    post = ["curl", "-s", f"{url}/jobs", "-H", "content-type: application/json", "-d", body]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    command = shlex.quote(_command())
    return [
        f"cd {shlex.quote(str(Path.cwd()))}",
        *exports,
        shlex.join(post),
        f"{command} jobs list",
        f"{command} doctor",
    ]


def _origins(hf: Holdfast) -> dict[str, str]:
    """What another shell needs: the home and the schema. The URL is left out, because it may have a password."""
    named = {"home": str(hf.config.home.resolve()), "schema": hf.config.schema}
    return {f"HOLDFAST_{name.upper()}": value for name, value in named.items() if hf.config.origins[name] != "default"}


def _command() -> str:
    """How this program is called from the folder in which it was started."""
    called = Path(sys.argv[0])
    if called.name != "holdfast" or shutil.which("holdfast") == str(called.absolute()):
        return "holdfast"
    return str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)


def _environment(hf: Holdfast) -> dict[str, str]:
    """What the app's code says about its database, for the children, which may not have that code."""
    config = hf.config
    given = {"database_url": config.database_url, "schema": config.schema, "home": config.home.resolve()}
    return {
        f"HOLDFAST_{name.upper()}": str(value)
        for name, value in given.items()
        if value is not None and config.origins[name] == "argument"
    }


async def _is_ready(url: str) -> bool:
    """Whether the server says so. It may be canceled at any moment, which a thread could not."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            with contextlib.closing(writer):
                writer.write(f"GET /readyz HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
    except OSError:
        return False
