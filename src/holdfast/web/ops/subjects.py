"""`/ops/queues`, `/ops/types`, `/ops/lanes`, `/ops/tenants`, `/ops/drain`: look, pause, resume, limit, close, open.

A key sees what concerns its tenant's jobs, one with the scope `admin` everything. What is decided for all needs
`admin`; a tenant's operators may pause their own tenant, and resume what one of them paused. They are told that others
paused something, and why if the reason is public, but not who did.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request

from holdfast.client.operations import Operations
from holdfast.model.key import Caller
from holdfast.model.subject import Kind, LimitChanges
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body, read_optional_body
from holdfast.web.control.requests import reason_of
from holdfast.web.control.schemas import Reason
from holdfast.web.description import body_of
from holdfast.web.ops.jobs import Limit, tenant_of
from holdfast.web.ops.places import NameCursor, cursor_behind, names_before
from holdfast.web.ops.steering import (
    DrainState,
    LaneDetails,
    LanePage,
    Limits,
    PauseReason,
    QueueDetails,
    QueuePage,
    TenantDetails,
    TenantLimits,
    TenantPage,
    TypeDetails,
    TypePage,
    shown,
)
from holdfast.web.problems import Problem
from holdfast.web.state import AppState

__all__ = ["ops_subjects_router"]

#: The models of one answer, and of a page.
_SHAPES: dict[Kind, tuple[Any, Any]] = {
    "queue": (QueueDetails, QueuePage),
    "type": (TypeDetails, TypePage),
    "lane": (LaneDetails, LanePage),
    "tenant": (TenantDetails, TenantPage),
}


def ops_subjects_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["steering"])
    for kind in _SHAPES:
        _add_list(router, state, kind)
        for verb in ("pause", "resume"):
            _add_switch(router, state, kind, verb)
        _add_drain_of(router, state, kind)
        if kind != "lane":
            _add_limits(router, state, kind)
    for verb in ("close", "open"):
        _add_closing(router, state, verb)
    _add_drain(router, state)
    return router


def _add_list(router: APIRouter, state: AppState, kind: Kind) -> None:
    may_operate = Depends(state.auth.requires("operate"))

    async def listed(limit: Limit = 50, cursor: NameCursor = None, caller: Caller = may_operate) -> Any:
        before = names_before(cursor, 1)
        after = None if before is None else before[0]
        found = await _found(await state.operations(), kind, tenant_of(caller), after, limit + 1)
        following = cursor_behind(found[limit - 1].name) if len(found) > limit else None
        return {"items": [shown(subject) for subject in found[:limit]], "next_cursor": following}

    router.add_api_route(
        f"/{kind}s",
        listed,
        methods=["GET"],
        response_model=_SHAPES[kind][1],
        summary=f"{kind.capitalize()}s by name: waiting and running jobs, pauses and limits",
        operation_id=f"list_{kind}s",
        openapi_extra=secured("operate"),
    )


def _add_switch(router: APIRouter, state: AppState, kind: Kind, verb: str) -> None:
    scope = "operate" if kind == "tenant" else "admin"
    let_in = Depends(state.auth.requires(scope))

    async def switch(request: Request, name: str, caller: Caller = let_in) -> Any:
        tenant = _steering_tenant(caller, name)
        ops = await state.operations()
        by = _by(caller, tenant)
        if verb == "pause":
            why = await read_optional_body(request, PauseReason)
            await ops.pause(
                kind, name, by=by, reason=why.reason, by_key=caller.key_id, tenant=tenant, public=why.public
            )
        else:
            reason = await reason_of(request)
            if not await ops.resume(kind, name, by=by, reason=reason, by_key=caller.key_id, tenant=tenant):
                await _refuse_if_paused_by_others(ops, kind, name, tenant)
        return shown(await ops.subject(kind, name, tenant=tenant))

    router.add_api_route(
        f"/{kind}s/{{name:path}}/{verb}",
        switch,
        methods=["POST"],
        response_model=_SHAPES[kind][0],
        summary=f"{'Stop claims' if verb == 'pause' else 'Let claims go on'} of a {kind}",
        operation_id=f"{verb}_{kind}",
        openapi_extra=secured(scope, requestBody=body_of(PauseReason if verb == "pause" else Reason, required=False)),
    )


def _add_drain_of(router: APIRouter, state: AppState, kind: Kind) -> None:
    scope = "operate" if kind == "tenant" else "admin"
    let_in, may_look = (Depends(state.auth.requires(needed)) for needed in (scope, "operate"))
    path = f"/{kind}s/{{name:path}}/drain"

    async def drain(request: Request, name: str, caller: Caller = let_in) -> DrainState:
        tenant, why = _steering_tenant(caller, name), await read_optional_body(request, PauseReason)
        ops = await state.operations()
        return DrainState.of(
            await ops.drain(
                kind,
                name,
                by=_by(caller, tenant),
                reason=why.reason,
                by_key=caller.key_id,
                tenant=tenant,
                public=why.public,
            )
        )

    async def draining(name: str, caller: Caller = may_look) -> DrainState:
        tenant = _steering_tenant(caller, name) if kind == "tenant" else tenant_of(caller)
        return DrainState.of(await (await state.operations()).draining(kind, name, tenant=tenant))

    router.add_api_route(
        path,
        drain,
        methods=["POST"],
        response_model=DrainState,
        summary=f"Stop claims of a {kind}, and see what still runs",
        operation_id=f"drain_{kind}",
        openapi_extra=secured(scope, requestBody=body_of(PauseReason, required=False)),
    )
    router.add_api_route(
        path,
        draining,
        methods=["GET"],
        response_model=DrainState,
        summary=f"Whether anything of a {kind} still runs after its claims were stopped",
        operation_id=f"{kind}_drain",
        openapi_extra=secured("operate") | {"x-refuses-names": True},
    )


def _steering_tenant(caller: Caller, name: str) -> str | None:
    """The tenant whose own operator this is; None for one of the installation."""
    tenant = tenant_of(caller)
    if tenant is not None and name != tenant:
        raise Problem(403, "scope", "Steering another tenant needs a key with the scope `admin`.")
    return tenant


def _by(caller: Caller, tenant: str | None) -> str:
    return caller.name if tenant is None else f"{tenant}/{caller.name}"


def _add_closing(router: APIRouter, state: AppState, verb: str) -> None:
    may_manage = Depends(state.auth.requires("admin"))

    async def close(request: Request, name: str, caller: Caller = may_manage) -> Any:
        reason, ops = await reason_of(request), await state.operations()
        change = ops.close_type if verb == "close" else ops.open_type
        await change(name, by=caller.name, reason=reason, by_key=caller.key_id)
        return shown(await ops.subject("type", name))

    router.add_api_route(
        f"/types/{{name:path}}/{verb}",
        close,
        methods=["POST"],
        response_model=TypeDetails,
        summary=f"Take {'no new jobs of a type' if verb == 'close' else 'new jobs of a type again'}",
        operation_id=f"{verb}_type",
        openapi_extra=secured("admin", requestBody=body_of(Reason, required=False)),
    )


async def _refuse_if_paused_by_others(ops: Operations, kind: Kind, name: str, tenant: str | None) -> None:
    """Refuse a tenant's operator who wants to resume what one of the installation has paused."""
    paused = [d for d in await ops.decisions() if (d.kind, d.name) == (kind, name) and d.paused_at is not None]
    if tenant is not None and any(decision.paused_tenant != tenant for decision in paused):
        raise Problem(403, "scope", "An operator of the installation paused this; resuming it needs the scope `admin`.")


def _add_limits(router: APIRouter, state: AppState, kind: Kind) -> None:
    may_manage = Depends(state.auth.requires("admin"))
    model: type[Limits] = TenantLimits if kind == "tenant" else Limits

    async def limit(request: Request, name: str, caller: Caller = may_manage) -> Any:
        wanted = await read_body(request, model)
        ops = await state.operations()
        changes: LimitChanges = {"limit": wanted.limit, "rate": wanted.rate}
        if isinstance(wanted, TenantLimits):
            changes["weight"] = wanted.weight
        await ops.change_limits(kind, name, changes, by=caller.name, by_key=caller.key_id)
        return shown(await ops.subject(kind, name))

    router.add_api_route(
        f"/{kind}s/{{name:path}}/limits",
        limit,
        methods=["PUT"],
        response_model=_SHAPES[kind][0],
        summary=f"Set the limits of a {kind}; a limit that is left out is cleared",
        operation_id=f"limit_{kind}",
        openapi_extra=secured("admin", requestBody=body_of(model, required=True)),
    )


def _add_drain(router: APIRouter, state: AppState) -> None:
    may_operate, may_manage = (Depends(state.auth.requires(scope)) for scope in ("operate", "admin"))
    extra = secured("admin", requestBody=body_of(Reason, required=False))
    pausing = secured("admin", requestBody=body_of(PauseReason, required=False))

    @router.get(
        "/drain", response_model=DrainState, summary="Whether claims are stopped", openapi_extra=secured("operate")
    )
    async def draining(caller: Caller = may_operate) -> DrainState:
        return DrainState.of(await (await state.operations()).draining(tenant=tenant_of(caller)))

    @router.post("/drain", response_model=DrainState, summary="Stop claims everywhere", openapi_extra=pausing)
    async def drain(request: Request, caller: Caller = may_manage) -> DrainState:
        why, ops = await read_optional_body(request, PauseReason), await state.operations()
        drained = await ops.drain(by=caller.name, reason=why.reason, by_key=caller.key_id, public=why.public)
        return DrainState.of(drained)

    @router.post("/resume", response_model=DrainState, summary="Resume claims everywhere", openapi_extra=extra)
    async def resume(request: Request, caller: Caller = may_manage) -> DrainState:
        reason, ops = await reason_of(request), await state.operations()
        await ops.resume("everything", by=caller.name, reason=reason, by_key=caller.key_id)
        return DrainState.of(await ops.draining())


async def _found(ops: Operations, kind: Kind, tenant: str | None, after: str | None, limit: int) -> list[Any]:
    if kind == "lane":
        return [lane for lane in await ops.lanes(tenant=tenant) if after is None or lane.name > after][:limit]
    ask: dict[Kind, Any] = {"queue": ops.queues, "type": ops.types, "tenant": ops.tenants}
    found: list[Any] = await ask[kind](tenant=tenant, after=after, limit=limit)
    return found
