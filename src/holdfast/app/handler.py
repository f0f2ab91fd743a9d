"""What `@hf.job` makes of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from holdfast.client.job_ref import JobRef
from holdfast.definitions.job_type import JobType
from holdfast.model.options import Options, engine_options
from holdfast.worker.context import Context

if TYPE_CHECKING:
    from holdfast.app.holdfast import Holdfast

__all__ = ["Handler", "SyncHandler"]

P = ParamSpec("P")
R = TypeVar("R")


class Handler(Generic[P, R]):
    """A declared job type. It can be called like the function, and enqueued with the function's arguments."""

    def __init__(
        self,
        app: Holdfast,
        job_type: JobType,
        function: Callable[..., R],
        options: Options | None = None,
        conn: Any = None,
    ) -> None:
        self._app, self._options, self._conn = app, options or Options(), conn
        self.job_type = job_type
        self._function = function
        self.__doc__, self.__name__ = function.__doc__, job_type.name
        self.__module__, self.__qualname__ = function.__module__, function.__qualname__
        self.__wrapped__ = function

    @property
    def name(self) -> str:
        """The job type's name."""
        return self.job_type.name

    @property
    def app(self) -> Holdfast:
        """The app on which it is declared."""
        return self._app

    @property
    def sync(self) -> SyncHandler[P]:
        """The same for synchronous code: `enqueue` blocks."""
        return SyncHandler(self._app, self.job_type, self._options, self._conn)

    def options(self, *, conn: Any = None, **options: Unpack[Options]) -> Handler[P, R]:
        """The same handler with options for its next enqueue; `conn` as in `Holdfast.enqueue`."""
        engine_options(options)
        merged: Options = {**self._options, **options}
        return Handler(self._app, self.job_type, self._function, merged, self._conn if conn is None else conn)

    async def enqueue(self, *arguments: P.args, **keywords: P.kwargs) -> JobRef:
        """Record a job of this type, with the handler's own arguments."""
        payload = self.job_type.payload.bind(arguments, keywords)
        return await self._app.enqueue(self.job_type.name, payload, conn=self._conn, **self._options)

    def __call__(self, context: Context, *arguments: P.args, **keywords: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(context, *arguments, **keywords)

    def __repr__(self) -> str:
        return f"<Handler {self.name!r}>"


class SyncHandler(Generic[P]):
    """A handler for synchronous code, which enqueues it with a blocking call."""

    def __init__(self, app: Holdfast, job_type: JobType, options: Options, conn: Any) -> None:
        self._app, self.job_type, self._options, self._conn = app, job_type, options, conn

    def enqueue(self, *arguments: P.args, **keywords: P.kwargs) -> JobRef:
        """Record a job of this type, with the handler's own arguments, and wait until it is recorded."""
        payload = self.job_type.payload.bind(arguments, keywords)
        return self._app.sync.enqueue(self.job_type.name, payload, conn=self._conn, **self._options)
