"""The HTTP service: three routes of its own, and all of Holdfast's. `uvicorn examples.targets.service:service`.

Callers have keys of Holdfast (`holdfast keys create`), for its routes and for ours; the key says whose targets and runs
they see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from examples.targets.app import hf, run
from examples.targets.targets import Target, Targets, opened
from holdfast import Holdfast, ListedJob, State
from holdfast.integrations.fastapi import CurrentHoldfast, lifespan, mount_control_plane


class NewRun(BaseModel):
    """How many calls a run is to make."""

    calls: Annotated[int, Field(ge=1, le=10_000)] = 3


class Run(BaseModel):
    """A run as its tenant sees it; the message says why it holds back the others, if it does."""

    id: UUID
    status: str
    message: str | None = None


class TargetWithRuns(Target):
    """A target and its last runs, the oldest first."""

    runs: list[Run]


@asynccontextmanager
async def resources(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """The table, for our routes; and maintenance, so that requests are carried out while no worker runs."""
    async with hf.maintaining(), opened(hf.config.database_url) as targets:
        yield {"targets": targets}


async def caller_tenant(
    app: CurrentHoldfast, key: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]
) -> str:
    """Whose key it is."""
    caller = await (await app.control()).keyring.caller(key.credentials)
    if caller is None:
        raise HTTPException(401, "The key is unknown, revoked or expired.")
    if not (caller.may("submit") and caller.may("read")):
        raise HTTPException(403, "This needs a key with the scopes `submit` and `read`.")
    return caller.tenant


def known_targets(request: Request) -> Targets:
    """The open table."""
    targets: Targets = request.state.targets
    return targets


Tenant = Annotated[str, Depends(caller_tenant)]
Known = Annotated[Targets, Depends(known_targets)]

service = FastAPI(title="Targets", lifespan=lifespan(hf, resources))


@service.put("/targets/{name}", status_code=204)
async def put_target(name: str, target: Target, tenant: Tenant, targets: Known) -> None:
    """Make a target, or give it new tokens or another pace."""
    await targets.put(tenant, name, target)


@service.get("/targets/{name}")
async def get_target(name: str, tenant: Tenant, targets: Known, app: CurrentHoldfast) -> TargetWithRuns:
    """A target and how its runs stand."""
    await _existing(targets, tenant, name)
    jobs = await app.find(tenant=tenant, target=name, types=[run.name], limit=20)
    # Read afterwards: what a run has paid is gone from the tokens beside it.
    target = await _existing(targets, tenant, name)
    runs = [Run(id=job.id, status=job.status, message=await _message(app, job)) for job in reversed(jobs)]
    return TargetWithRuns(**target.model_dump(), runs=runs)


@service.post("/targets/{name}/runs", status_code=202)
async def start_run(name: str, wanted: NewRun, tenant: Tenant, targets: Known) -> Run:
    """Record a run. It begins when those before it are over."""
    await _existing(targets, tenant, name)
    job = await run.options(tenant=tenant, target=name).enqueue(target=name, calls=wanted.calls)
    return Run(id=job.id, status=job.status)


async def _existing(targets: Targets, tenant: str, name: str) -> Target:
    target = await targets.get(tenant, name)
    if target is None:
        raise HTTPException(404, f"There is no target {name}.")
    return target


async def _message(app: Holdfast, job: ListedJob) -> str | None:
    if job.state is State.PAUSED:
        return (await app.history(job))[-1].note
    return job.last_error if job.state is State.ERROR else None


mount_control_plane(service, "", hf)  # the last one: it answers for every path that is not ours
