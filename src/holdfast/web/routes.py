"""The HTTP app with its routes, for the server that runs it or the application that mounts it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from pydantic_core import to_json

from holdfast.app import Holdfast
from holdfast.lifecycle.service import Outage
from holdfast.model.key import SCOPES
from holdfast.version import __version__
from holdfast.web.access import Access
from holdfast.web.answers import AnswersMiddleware
from holdfast.web.auth import Auth, Guarded
from holdfast.web.control.events import events_router
from holdfast.web.control.items import items_router
from holdfast.web.control.jobs import jobs_router
from holdfast.web.control.requests import requests_router
from holdfast.web.description import describe
from holdfast.web.direct import answer_directly
from holdfast.web.figures import metrics_router
from holdfast.web.health import Probes, health_router
from holdfast.web.metrics import Metrics
from holdfast.web.ops.bulk import ops_bulk_router
from holdfast.web.ops.by_hand import ops_by_hand_router
from holdfast.web.ops.circuits import ops_circuits_router
from holdfast.web.ops.failures import ops_failures_router
from holdfast.web.ops.jobs import ops_jobs_router
from holdfast.web.ops.keys import ops_keys_router
from holdfast.web.ops.letters import ops_letters_router
from holdfast.web.ops.lineage import ops_lineage_router
from holdfast.web.ops.requests import ops_requests_router
from holdfast.web.ops.schedules import ops_schedules_router
from holdfast.web.ops.settings import ops_settings_router
from holdfast.web.ops.subjects import ops_subjects_router
from holdfast.web.ops.targets import ops_targets_router
from holdfast.web.ops.workers import ops_workers_router
from holdfast.web.pages import pages_router
from holdfast.web.problems import Problem, install_problems
from holdfast.web.queries import QueriesMiddleware
from holdfast.web.remote.leases import leases_router
from holdfast.web.remote.pulls import pulls_router
from holdfast.web.remote.reports import reports_router
from holdfast.web.remote.scrapers import ScraperKeys, scrapers_router
from holdfast.web.serving import CURRENT, Serving
from holdfast.web.state import AppState
from holdfast.web.steps import StepsMiddleware

__all__ = ["create_app"]

Guard = Callable[..., Awaitable[bool | None] | bool | None]


def create_app(
    hf: Holdfast, *, guard: Guard | None = None, scopes: Sequence[str] = SCOPES, keys_only: bool = False
) -> FastAPI:
    """All routes over one app, which is open while they are used.

    Callers need keys, once there are any, or (`keys_only`) always. With a guard they need none: it is a dependency of
    every route that raises for those who may not pass, or returns anything but None and True; `scopes` are theirs.
    """
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        openapi_url=None,  # FastAPI's own route would not ask the guard
        redirect_slashes=False,  # to an address made from `Host`, which callers choose, and before any key is asked for
        dependencies=[] if guard is None else [Depends(_asking(guard))],
    )
    outage = Outage("server", hf.events)
    install_problems(app, outage)
    metrics = Metrics()

    def queried(statement: str, seconds: float, error_code: str | None) -> None:
        metrics.queried(statement, seconds, error_code)
        if error_code is None:
            outage.over()

    hf.observe_control(queried)
    guarded = None if guard is None else Guarded(_name_of(guard), frozenset(scopes))
    auth = Auth(hf, guarded=guarded, keys_only=keys_only)
    state = app.state.holdfast = AppState(hf, auth, metrics, outage)
    app.add_middleware(Serving, state=state)
    routers = _routers()
    if guard is None:
        health, jobs, *_ = routers
        for router in routers:
            app.router.routes.extend(router.routes)
        app.add_middleware(Probes, router=health, readiness=state.readiness)
        answer_directly(app, jobs, "submit")
    else:  # a dependency of every route, and those are the framework's
        for router in routers:
            app.include_router(router)
    if hf.config.pull_job_types:
        app.include_router(scrapers_router(state))
    if hf.config.trusted_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=hf.config.trusted_origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "Prefer", "traceparent"],
            expose_headers=["Location", "Preference-Applied", "Retry-After", "X-Request-Id"],
        )
    app.add_middleware(QueriesMiddleware)
    app.add_middleware(AnswersMiddleware, answers=state.answers)
    app.add_middleware(Access, metrics=metrics, bus=hf.events)
    app.add_middleware(StepsMiddleware, steps=auth.steps, tenant_of=None if guarded else auth.tenant_of)
    if hf.config.pull_job_types and hf.config.pull_job_key_header:
        app.add_middleware(ScraperKeys, header=hf.config.pull_job_key_header)

    @lru_cache(maxsize=8)
    def description(below: str) -> bytes:
        """Written once: every caller who does not read it would keep a copy."""
        return to_json({**describe(app), "servers": [{"url": below}]} if below else describe(app))

    @app.get("/openapi.json", include_in_schema=False)
    async def described(request: Request) -> Response:
        return Response(description(str(request.scope.get("root_path", ""))), media_type="application/json")

    return app


@cache
def _routers() -> Sequence[APIRouter]:
    """The routes of all apps: they are made once, which takes longer than all else that an app is made of."""
    state = CURRENT
    routers = (
        health_router(state),
        jobs_router(state),
        events_router(state),
        items_router(state),
        requests_router(state),
        pulls_router(state),
        reports_router(state),
        leases_router(state),
        ops_jobs_router(state),
        ops_lineage_router(state),
        ops_failures_router(state),
        ops_keys_router(state),
        ops_subjects_router(state),
        ops_targets_router(state),
        ops_requests_router(state),
        ops_letters_router(state),
        ops_by_hand_router(state),
        ops_bulk_router(state),
        ops_settings_router(state),
        ops_circuits_router(state),
        ops_schedules_router(state),
        ops_workers_router(state),
        metrics_router(state),
        pages_router(),
    )
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute):
                route.unique_id = route.operation_id or _operation_id(route)
                if route.response_field is not None:  # its title is in the description
                    route.response_field.name = f"Response_{route.unique_id}"
    return routers


def _operation_id(route: APIRoute) -> str:
    """What a generated client calls it: `jobs_submit`, `keys_create`."""
    return "_".join([*map(str, route.tags), route.name])


def _name_of(guard: Guard) -> str:
    return str(getattr(guard, "__name__", type(guard).__name__))


def _asking(guard: Guard) -> Callable[..., Awaitable[None]]:
    async def ask(verdict: Any) -> None:
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is not None and verdict is not True:
            raise Problem(403, "forbidden")

    # FastAPI reads from here what to inject; in the signature it would be looked up among the module's names.
    ask.__annotations__["verdict"] = Annotated[Any, Depends(guard)]
    return ask
