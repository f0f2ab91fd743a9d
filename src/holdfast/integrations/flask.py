"""Holdfast in a Flask application::

    hf = FlaskHoldfast()

    @hf.job("invoice.send")
    def send_invoice(ctx, invoice_id: int): ...

    def create_app():
        app = Flask(__name__)
        app.config["HOLDFAST_DATABASE_URL"] = ...
        hf.init_app(app)
        return app

1. Every setting of Holdfast may stand in `app.config` under the name of its environment variable, and wins over
   it. One that nobody knows is refused.
2. Views enqueue with `send_invoice.sync.enqueue(...)`; with `conn=db.session` the job is part of that transaction.
3. Handlers run in the application's context, so that `current_app` and extensions work as in a view.
4. `flask holdfast ...` is Holdfast's own command line.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo, with_appcontext
from werkzeug.local import LocalProxy

from holdfast.app import Handler, Holdfast
from holdfast.config import ENTRIES, Config
from holdfast.errors import ConfigError, HoldfastError
from holdfast.integrations.handover import hand_over
from holdfast.model.names import nearest
from holdfast.worker.middleware import Middleware

__all__ = ["FlaskHoldfast", "current_holdfast"]

#: Where `--app` finds the extension of the application that FLASK_APP names.
APP = "holdfast.integrations.flask:hf"

#: Whoever has set the extension's configuration so decides where jobs go: the testing kit for the length of a test,
#: and the worker for a process that runs handlers on its behalf.
_BOUND = frozenset({"testing", "order"})

Lifespan = Callable[[Holdfast], AbstractAsyncContextManager[Any]]


class FlaskHoldfast(Holdfast):
    """The extension. It belongs to one database; applications that use the same one may share it.

    Handlers run in the context of the application that was initialised last.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        super().__init__(lifespan=lifespan, middleware=middleware)
        self._flask: Flask | None = None
        self._place: tuple[Any, ...] | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Take the settings from `app.config`, and give the application the command `flask holdfast`."""
        config = _config(app)
        if _BOUND.isdisjoint(self.config.origins.values()):
            self._settle(config)
        self._flask = app
        app.extensions["holdfast"] = self
        app.cli.add_command(_command, "holdfast")

    @property
    def flask(self) -> Flask:
        """The application; in a process that has none yet, the one that FLASK_APP names."""
        if self._flask is None:
            _load()
        if self._flask is None:
            raise ConfigError("the extension has no application: call `hf.init_app(app)`")
        return self._flask

    if not TYPE_CHECKING:  # for type checkers it is the method of Holdfast, with its options

        def job(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], Handler[..., Any]]:
            """Declare a job type, as `Holdfast.job` does."""
            declare = super().job(name, **options)
            # Whoever calls the handler like a function has a context already.
            return lambda function: Handler(self, declare(self._in_context(function)).job_type, function)

    def _settle(self, config: Config) -> None:
        """Take an application's settings, unless that would lead somebody's jobs elsewhere."""
        place = _place(config)
        if self._place not in (None, place):
            raise ConfigError(
                "another application has initialized this extension with a different database or schema, and its jobs "
                "would be recorded in this one's: make one extension object per database "
                "(tests that use the fixture `jobs` need no database of their own)"
            )
        if self._users:
            # A worker that was started without the application loads it with the first job.
            if place != _place(self.config):
                raise HoldfastError("the extension is open in another database: call `hf.init_app(app)` before")
        else:
            self.sync.close()
            self.config = config
            self._disconnected()
        self._place = place

    def _in_context(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*arguments: Any, **keywords: Any) -> Any:
                with self.flask.app_context():
                    return await function(*arguments, **keywords)
        else:

            @functools.wraps(function)
            def call(*arguments: Any, **keywords: Any) -> Any:
                with self.flask.app_context():
                    return function(*arguments, **keywords)

        return call


def _place(config: Config) -> tuple[Any, ...]:
    """Where jobs are recorded; an embedded server is known by its folder, for its URL comes and goes."""
    embedded = config.database_url is None or config.origins["database_url"] == "embedded"
    return (config.home.absolute() if embedded else config.database_url, config.schema)


def _current() -> FlaskHoldfast:
    found = current_app.extensions.get("holdfast")
    if found is None:
        raise ConfigError("this application has no Holdfast: call `hf.init_app(app)`")
    return cast("FlaskHoldfast", found)


#: The extension of the application at hand.
current_holdfast = cast("FlaskHoldfast", LocalProxy(_current))


def __getattr__(name: str) -> Any:
    """`hf`, for `--app`: the extension of the application at hand, or of the one that FLASK_APP names."""
    if name != "hf":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if has_app_context():
        return _current()
    with _load().app_context():
        return _current()


def _load() -> Flask:
    """The application that FLASK_APP names."""
    return ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()


def _config(app: Flask) -> Config:
    known = {entry.variable: entry.name for entry in ENTRIES}
    given = {name: value for name, value in app.config.items() if name.startswith("HOLDFAST_")}
    for name in given.keys() - known.keys():
        near = nearest(name, known)
        raise ConfigError(f"unknown setting {name!r}{f'; did you mean {near!r}?' if near else ''}")
    return Config.load(**{known[name]: value for name, value in given.items()})


@click.command(
    "holdfast",
    help="Holdfast's command line: worker, migrate, enqueue, jobs, …",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@with_appcontext
def _command(context: click.Context, arguments: tuple[str, ...]) -> None:
    info = context.ensure_object(ScriptInfo)
    path = info.app_import_path or os.environ.get("FLASK_APP")
    environment = {} if path is None else {"FLASK_APP": _absolute(path)}
    config = _current().config
    context.exit(hand_over(arguments, app=APP, config=config, program="flask holdfast", environment=environment))


def _absolute(path: str) -> str:
    """Processes that a command starts may be elsewhere; a file keeps its place, a module its name."""
    file, colon, rest = path.partition(":")
    return f"{Path(file).absolute()}{colon}{rest}" if file.endswith(".py") or "/" in file else path
