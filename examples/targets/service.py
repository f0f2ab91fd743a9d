"""The HTTP service: three routes of its own, and all of Holdfast's. `uvicorn examples.targets.service:service`.

Callers have keys of Holdfast (`holdfast keys create`), for its routes and for ours; the key says whose targets and runs
they see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from examples.targets.app import hf, run
from examples.targets.targets import Target, Targets, opened
from holdfast.integrations.fastapi import CurrentHoldfast, lifespan, mount_control_plane
from holdfast.model.key import Caller


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


async def key_holder(
    app: CurrentHoldfast, key: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]
) -> Caller:
    """Whose key it is."""
    caller = await (await app.control()).keyring.caller(key.credentials)
    if caller is None:
        raise HTTPException(401, "The key is unknown, revoked or expired.")
    if not (caller.may("submit") and caller.may("read")):
        raise HTTPException(403, "This needs a key with the scopes `submit` and `read`.")
    return caller


def known_targets(request: Request) -> Targets:
    """The open table."""
    targets: Targets = request.state.targets
    return targets


KeyHolder = Annotated[Caller, Depends(key_holder)]
Known = Annotated[Targets, Depends(known_targets)]

service = FastAPI(title="Targets", lifespan=lifespan(hf, resources))


@service.put("/targets/{name}", status_code=204)
async def put_target(name: str, target: Target, caller: KeyHolder, targets: Known) -> None:
    """Make a target, or give it new tokens or another pace."""
    await targets.put(caller.tenant, name, target)


@service.get("/targets/{name}")
async def get_target(name: str, caller: KeyHolder, targets: Known, app: CurrentHoldfast) -> TargetWithRuns:
    """A target and how its runs stand, with no more than a tenant may know: what operators note is not for it."""
    await _existing(targets, caller.tenant, name)
    control = await app.control()
    found = await app.find(tenant=caller.tenant, target=name, types=[run.name], limit=20)
    jobs = await asyncio.gather(*[control.job(caller, job.id) for job in reversed(found)])
    # Read afterwards: what a run has paid is gone from the tokens beside it.
    target = await _existing(targets, caller.tenant, name)
    runs = [Run(id=job.id, status=job.status, message=job.message) for job in jobs]
    return TargetWithRuns(**target.model_dump(), runs=runs)


@service.post("/targets/{name}/runs", status_code=202)
async def start_run(name: str, wanted: NewRun, caller: KeyHolder, targets: Known) -> Run:
    """Record a run. It begins when those before it are over."""
    await _existing(targets, caller.tenant, name)
    job = await run.options(tenant=caller.tenant, target=name).enqueue(target=name, calls=wanted.calls)
    return Run(id=job.id, status=job.status)


async def _existing(targets: Targets, tenant: str, name: str) -> Target:
    target = await targets.get(tenant, name)
    if target is None:
        raise HTTPException(404, f"There is no target {name}.")
    return target


mount_control_plane(service, "", hf)  # the last one: it answers for every path that is not ours
