"""`/ops/settings`: settings of the installation, changed while everything runs. For the scope `admin`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import PlainValidator, WithJsonSchema

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body, read_optional_body
from holdfast.web.control.schemas import Words, without_nul
from holdfast.web.description import body_of
from holdfast.web.ops.bodies import Asked, Note, Shown
from holdfast.web.ops.jobs import Limit
from holdfast.web.ops.places import NameCursor, cursor_behind, names_before
from holdfast.web.state import AppState

__all__ = ["ops_settings_router"]


class SettingDetails(Shown):
    """A setting. The value of origin `environment` is that of the server that answers."""

    name: str
    value: str
    origin: str
    default_value: str
    description: str
    updated_at: datetime | None
    updated_by: str | None


class SettingPage(Shown):
    """Settings by name."""

    items: list[SettingDetails]
    next_cursor: str | None


def _read(value: Any) -> str | float:
    """A value as callers may send it. Pydantic's own union would name its members in the pointer of a fault."""
    if isinstance(value, str) and 1 <= len(value) <= _LONGEST:
        return without_nul(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"must be a number, or a text of 1 to {_LONGEST} characters")
    return value


_LONGEST = 1000
_VALUE = {
    "anyOf": [{"type": "string", "minLength": 1, "maxLength": _LONGEST}, {"type": "number"}],
    "title": "Value",
}


class NewValue(Asked):
    """A value as in the environment, and why."""

    value: Annotated[Any, PlainValidator(_read), WithJsonSchema(_VALUE)]
    note: Words | None = None


def ops_settings_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["settings"])
    may_manage = Depends(state.auth.requires("admin"))

    @router.get(
        "/settings",
        response_model=SettingPage,
        summary="Settings by name, with the value in force and its origin",
        openapi_extra=secured("admin"),
    )
    async def list_settings(limit: Limit = 50, cursor: NameCursor = None, _caller: Caller = may_manage) -> SettingPage:
        before = names_before(cursor, 1)
        found = [s for s in await (await state.operations()).settings.list() if before is None or s.name > before[0]]
        page = [SettingDetails.model_validate(setting) for setting in found[:limit]]
        return SettingPage(items=page, next_cursor=cursor_behind(page[-1].name) if len(found) > limit else None)

    @router.put(
        "/settings/{name}",
        response_model=SettingDetails,
        summary="Set a setting for all processes",
        operation_id="set_setting",
        openapi_extra=secured("admin", requestBody=body_of(NewValue)),
    )
    async def change(request: Request, name: str, caller: Caller = may_manage) -> SettingDetails:
        new = await read_body(request, NewValue)
        settings = (await state.operations()).settings
        changed = await settings.set(name, new.value, by=caller.name, note=new.note, by_key=caller.key_id)
        return SettingDetails.model_validate(changed)

    @router.delete(
        "/settings/{name}",
        response_model=SettingDetails,
        summary="Return a setting to environment and default",
        operation_id="reset_setting",
        openapi_extra=secured("admin", requestBody=body_of(Note, required=False)),
    )
    async def reset(request: Request, name: str, caller: Caller = may_manage) -> SettingDetails:
        why = await read_optional_body(request, Note)
        settings = (await state.operations()).settings
        changed = await settings.reset(name, by=caller.name, note=why.note, by_key=caller.key_id)
        return SettingDetails.model_validate(changed)

    return router
