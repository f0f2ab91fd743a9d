"""The context of handlers that run in a remote worker: the same as in a worker at the database, as far as HTTP goes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, NoReturn, Unpack, cast

from holdfast.client.job_ref import JobRef
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.model.circuit import Circuit, Policy
from holdfast.model.job import Enqueued
from holdfast.model.options import Options
from holdfast.model.states import State, Status
from holdfast.remote.client import HttpClient
from holdfast.worker.context import LOST, Context, SyncContext

__all__ = ["RemoteContext", "RemoteSyncContext"]

_DIRECT = "ctx.{} needs the database, and this worker reaches the server over HTTP only"


class RemoteContext(Context[Any]):
    """The handler's view of its own attempt, in a remote worker.

    Only `transaction` and `circuit` are missing: they need the database. To report that a circuit is open, raise
    `CircuitOpen`. `tenant` is empty, because it is the key's, and `failures` counts every attempt before this one.
    """

    #: Set by the worker: what records children.
    http: HttpClient

    async def enqueue(
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child: same correlation id, this job as parent. The key needs the scope `submit` for it."""
        return await _child(self, job_type, payload, conn, options)

    def transaction(self, conn: Any = None) -> AbstractAsyncContextManager[Any]:  # noqa: ARG002 - the signature
        """Not in a remote worker."""
        _refuse("transaction")

    def circuit(self, circuit: Circuit | str, **policy: Unpack[Policy]) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        """Not in a remote worker."""
        _refuse("circuit")


class RemoteSyncContext(SyncContext[Any]):
    """The same for a plain `def` handler: its methods block."""

    http: HttpClient

    def enqueue(  # type: ignore[override]
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record a child, and wait until it is recorded."""
        return self._wait(_child(self, job_type, payload, conn, options))

    def transaction(self, conn: Any = None) -> AbstractContextManager[Any]:  # type: ignore[override]  # noqa: ARG002
        """Not in a remote worker."""
        _refuse("transaction")

    def circuit(  # type: ignore[override]
        self,
        circuit: Circuit | str,  # noqa: ARG002 - the signature
        **policy: Unpack[Policy],  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Not in a remote worker."""
        _refuse("circuit")


async def _child(
    ctx: RemoteContext | RemoteSyncContext, job_type: str, payload: Any, conn: Any, options: Options
) -> JobRef:
    ctx._refuse_ended()
    if conn is not None:
        _refuse("enqueue(conn=…)")
    if ctx._claimed.lost:
        raise LeaseLost(LOST)
    given = {"parent": ctx.job_id, "correlation_id": ctx.correlation_id, **cast("dict[str, Any]", options)}
    job = await ctx.http.submit(job_type, payload, **given)
    state = State.QUEUED if job.status == Status.PENDING else State.RUNNING
    return JobRef(job_type, Enqueued(job.id, state, "created"))


def _refuse(what: str) -> NoReturn:
    raise HoldfastError(_DIRECT.format(what))
