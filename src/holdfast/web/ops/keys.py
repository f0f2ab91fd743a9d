"""`/ops/keys`, `/ops/audit`: who may use the API, and what was done. For the scope `admin`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from fastapi import APIRouter, Depends, Request

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body
from holdfast.web.control.jobs import job_id_of
from holdfast.web.cursors import cursor_of, id_of, number_of
from holdfast.web.description import body_of
from holdfast.web.ops.jobs import Cursor, Limit
from holdfast.web.ops.schemas import AuditPage, AuditRecord, KeyDetails, KeyMade, KeyPage, NewKey, Rotation
from holdfast.web.state import AppState

__all__ = ["ops_keys_router"]


def ops_keys_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["keys"])
    may_manage, extra = Depends(state.auth.requires("admin")), secured("admin")

    @router.get("/keys", response_model=KeyPage, summary="Keys, oldest first", openapi_extra=extra)
    async def list_keys(limit: Limit = 50, cursor: Cursor = None, _caller: Caller = may_manage) -> KeyPage:
        found = await (await state.operations()).keys.list(after=id_of(cursor), limit=limit + 1)
        page = [KeyDetails.model_validate(key) for key in found[:limit]]
        return KeyPage(items=page, next_cursor=cursor_of(page[-1].id) if len(found) > limit else None)

    @router.post(
        "/keys",
        status_code=201,
        response_model=KeyMade,
        summary="Make a key",
        openapi_extra=secured("admin", requestBody=body_of(NewKey)),
    )
    async def create(request: Request, caller: Caller = may_manage) -> KeyMade:
        new = await read_body(request, NewKey)
        key, secret = await (await state.operations()).keys.create(
            new.name,
            scopes=new.scopes,
            tenant=new.tenant,
            lifetime=None if new.expires_in_seconds is None else timedelta(seconds=new.expires_in_seconds),
            requests_per_second=new.requests_per_second,
            max_waiting=new.max_waiting,
            by=caller.name,
            by_key=caller.key_id,
        )
        return KeyMade(**asdict(key), secret=secret)

    @router.post(
        "/keys/{key_id}/rotate",
        status_code=201,
        response_model=KeyMade,
        summary="Replace a key by a new one",
        openapi_extra=secured("admin", requestBody=body_of(Rotation)),
    )
    async def rotate(request: Request, key_id: str, caller: Caller = may_manage) -> KeyMade:
        wanted, rotation = job_id_of(key_id), await read_body(request, Rotation)
        overlap = timedelta(seconds=rotation.overlap_seconds)
        key, secret = await (await state.operations()).keys.rotate(
            wanted, overlap=overlap, by=caller.name, by_key=caller.key_id
        )
        return KeyMade(**asdict(key), secret=secret)

    @router.post("/keys/{key_id}/revoke", response_model=KeyDetails, summary="End a key", openapi_extra=extra)
    async def revoke(key_id: str, caller: Caller = may_manage) -> KeyDetails:
        key = await (await state.operations()).keys.revoke(job_id_of(key_id), by=caller.name, by_key=caller.key_id)
        return KeyDetails.model_validate(key)

    @router.get("/audit", response_model=AuditPage, summary="The audit log, newest first", openapi_extra=extra)
    async def audit(limit: Limit = 50, cursor: Cursor = None, _caller: Caller = may_manage) -> AuditPage:
        before = number_of(cursor, highest=2**63 - 1)
        found = await (await state.operations()).keys.audit(before=before, limit=limit + 1)
        page = [AuditRecord.model_validate(entry) for entry in found[:limit]]
        return AuditPage(items=page, next_cursor=cursor_of(page[-1].id) if len(found) > limit else None)

    return router
