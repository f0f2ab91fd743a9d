"""`/ops/schedules`: list, make, change, pause, resume and run schedules of a key's tenant; with `admin`, of any.

Names belong to tenants: `?tenant=` says whose schedule is meant, if it is not the key's own tenant.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from holdfast.client.schedules import Schedules
from holdfast.model.key import Caller
from holdfast.model.schedule import Schedule
from holdfast.web.auth import secured
from holdfast.web.bodies import read_optional_body, received
from holdfast.web.description import body_of
from holdfast.web.ops.bodies import Note
from holdfast.web.ops.jobs import Limit, tenant_of
from holdfast.web.ops.places import NameCursor, cursor_behind, names_before
from holdfast.web.ops.schedule_shapes import (
    FireDetails,
    NewSchedule,
    NextFires,
    ScheduleChange,
    ScheduleDetails,
    SchedulePage,
    ScheduleRun,
    ScheduleSummary,
)
from holdfast.web.ops.targets import Whose
from holdfast.web.problems import Problem
from holdfast.web.state import AppState

__all__ = ["ops_schedules_router"]

Count = Annotated[int, Query(ge=1, le=1000, description="how many fire times")]
_FIRES = 20


def ops_schedules_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops/schedules", tags=["schedules"])
    _add_reads(router, state)
    _add_changes(router, state)
    _add_decisions(router, state)
    return router


def _add_reads(router: APIRouter, state: AppState) -> None:
    may_operate, extra = Depends(state.auth.requires("operate")), secured("operate")

    @router.get(
        "",
        response_model=SchedulePage,
        summary="Schedules by name, with their next and last fire times, without payloads",
        operation_id="list_schedules",
        openapi_extra=extra,
    )
    async def listed(
        limit: Limit = 50, cursor: NameCursor = None, tenant: Whose = None, caller: Caller = may_operate
    ) -> SchedulePage:
        before = names_before(cursor, 2)
        whose = tenant_of(caller) if tenant is None else _whose(caller, tenant)
        after = None if before is None else (before[0], before[1])
        found = await (await _schedules(state)).list(tenant=whose, after=after, limit=limit)
        last = found[-1] if len(found) == limit else None
        return SchedulePage(
            items=[ScheduleSummary.model_validate(each) for each in found],
            next_cursor=None if last is None else cursor_behind(last.tenant, last.name),
        )

    @router.get(
        "/{name}",
        response_model=ScheduleDetails,
        summary="One schedule, with its payload, its last fire times and their jobs",
        operation_id="show_schedule",
        openapi_extra=extra,
    )
    async def show(request: Request, name: str, tenant: Whose = None, caller: Caller = may_operate) -> Response:
        await state.answers.take(request)
        return await _details(await _schedules(state), name, _whose(caller, tenant))

    @router.get(
        "/{name}/next",
        response_model=NextFires,
        summary="The next fire times of a schedule",
        operation_id="next_fires",
        openapi_extra=extra,
    )
    async def following(name: str, count: Count = 5, tenant: Whose = None, caller: Caller = may_operate) -> NextFires:
        found = await (await _schedules(state)).next(name, tenant=_whose(caller, tenant), count=count)
        return NextFires(items=list(found))


def _add_changes(router: APIRouter, state: AppState) -> None:
    may_operate = Depends(state.auth.requires("operate"))

    @router.post(
        "",
        status_code=201,
        response_model=ScheduleDetails,
        summary="Make a schedule",
        operation_id="create_schedule",
        openapi_extra=secured("operate", requestBody=body_of(NewSchedule)),
    )
    async def create(request: Request, tenant: Whose = None, caller: Caller = may_operate) -> Response:
        schedules, decided = await _schedules(state), _decided(caller, tenant)
        async with received(request, NewSchedule) as asked:
            made = await schedules.create(asked.name, **asked.given(), **decided)
            return await _told(schedules, made, asked.text, 201)

    @router.put(
        "/{name}",
        response_model=ScheduleDetails,
        summary="Change a schedule, or make it; its last fire time stays",
        operation_id="put_schedule",
        openapi_extra=secured("operate", requestBody=body_of(ScheduleChange)),
    )
    async def put(request: Request, name: str, tenant: Whose = None, caller: Caller = may_operate) -> Response:
        schedules, decided = await _schedules(state), _decided(caller, tenant)
        async with received(request, ScheduleChange) as asked:
            made = await schedules.put(name, **asked.given(), **decided)
            return await _told(schedules, made, asked.text)

    @router.delete(
        "/{name}",
        status_code=204,
        summary="Remove a schedule; its jobs stay",
        operation_id="delete_schedule",
        openapi_extra=secured("operate"),
    )
    async def delete(name: str, tenant: Whose = None, caller: Caller = may_operate) -> Response:
        await (await _schedules(state)).delete(name, **_decided(caller, tenant))
        return Response(status_code=204)


def _add_decisions(router: APIRouter, state: AppState) -> None:
    may_operate = Depends(state.auth.requires("operate"))
    extra = secured("operate", requestBody=body_of(Note, required=False))

    @router.post(
        "/{name}/pause",
        response_model=ScheduleDetails,
        summary="Stop a schedule from firing; its recorded jobs run",
        operation_id="pause_schedule",
        openapi_extra=extra,
    )
    async def pause(request: Request, name: str, tenant: Whose = None, caller: Caller = may_operate) -> Response:
        said, schedules, decided = (
            await read_optional_body(request, Note),
            await _schedules(state),
            _decided(caller, tenant),
        )
        await state.answers.take(request)  # before anything is decided
        await schedules.pause(name, note=said.note, **decided)
        return await _details(schedules, name, decided["tenant"])

    @router.post(
        "/{name}/resume",
        response_model=ScheduleDetails,
        summary="Let a schedule fire again, from now on",
        operation_id="resume_schedule",
        openapi_extra=extra,
    )
    async def resume(request: Request, name: str, tenant: Whose = None, caller: Caller = may_operate) -> Response:
        said, schedules, decided = (
            await read_optional_body(request, Note),
            await _schedules(state),
            _decided(caller, tenant),
        )
        await state.answers.take(request)  # before anything is decided
        await schedules.resume(name, note=said.note, **decided)
        return await _details(schedules, name, decided["tenant"])

    @router.post(
        "/{name}/run",
        status_code=202,
        response_model=ScheduleRun,
        summary="Record a job of a schedule now, besides its fire times",
        operation_id="run_schedule",
        openapi_extra=extra,
    )
    async def run(request: Request, name: str, tenant: Whose = None, caller: Caller = may_operate) -> ScheduleRun:
        said = await read_optional_body(request, Note)
        return ScheduleRun(job_id=await (await _schedules(state)).run(name, note=said.note, **_decided(caller, tenant)))


async def _schedules(state: AppState) -> Schedules:
    return (await state.operations()).schedules


async def _details(schedules: Schedules, name: str, tenant: str) -> Response:
    return await _told(schedules, *await schedules.get_text(name, tenant=tenant))


async def _told(schedules: Schedules, schedule: Schedule, payload: str, status: int = 200) -> Response:
    """A schedule, its payload as text: parsed, it would take many times as much memory."""
    fires = await schedules.fires(schedule.name, tenant=schedule.tenant, limit=_FIRES)
    past = ",".join(FireDetails.model_validate(fire).model_dump_json() for fire in fires)
    head = ScheduleSummary.model_validate(schedule).model_dump_json()[:-1]
    return Response(f'{head},"payload":{payload},"fires":[{past}]}}', status, media_type="application/json")


def _whose(caller: Caller, tenant: str | None) -> str:
    """The tenant that is meant; of another one, nobody but an administrator is told anything."""
    whose = caller.tenant if tenant is None else tenant
    if tenant_of(caller) not in (None, whose):
        raise Problem(404, "not-found", "There is no such schedule.")
    return whose


def _decided(caller: Caller, tenant: str | None) -> dict[str, Any]:
    return {"by": caller.name, "tenant": _whose(caller, tenant), "by_key": caller.key_id}
