"""`/openapi.json`: the routes as FastAPI describes them, with the bodies that routes read by themselves, the headers
of answers, and every problem that each route may answer. A client made from it is complete."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from holdfast.web.problems import CATALOGUE

__all__ = ["also_described", "body_of", "describe"]

_REF = "#/components/schemas/"
#: The bodies that routes read themselves, by name.
_BODIES: dict[str, type[BaseModel]] = {}

_PROBLEM = {
    "type": "object",
    "description": "An RFC 9457 problem; `type` names the page that explains it.",
    "required": ["type", "title", "status", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": sorted(CATALOGUE)},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
}
_HEADERS = {
    name: {"description": text, "schema": {"type": kind}}
    for name, kind, text in (
        ("Allow", "string", "the methods that the route supports"),
        ("Location", "string", "the address of the job"),
        ("Preference-Applied", "string", "`wait=N`, if the caller asked to wait and the server could wait"),
        ("Retry-After", "integer", "after how many seconds to ask again"),
        ("WWW-Authenticate", "string", "`Bearer`"),
    )
}
#: The headers that come with answers of a status, whatever the route.
_WITH_STATUS = {401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After", 503: "Retry-After"}
#: The ids of what may be in a state that forbids a change.
_WITH_STATE = ("job_id", "bulk_id")
_KEY = {"type": "http", "scheme": "bearer", "description": "A key, as `holdfast keys create` makes it."}


def describe(app: FastAPI) -> dict[str, Any]:
    """The description, made once."""
    if app.openapi_schema is not None and "x-holdfast" in app.openapi_schema:
        return app.openapi_schema
    document = app.openapi()
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _, read = models_json_schema([(model, "validation") for model in _BODIES.values()], ref_template=f"{_REF}{{model}}")
    schemas.update(read["$defs"])
    schemas["Problem"] = _PROBLEM
    schemas["Refused"] = {
        "type": "object",
        "title": "Refused",
        "description": "A part of the batch that was not recorded.",
        "required": ["problem"],
        "properties": {"problem": {"$ref": f"{_REF}Problem"}},
    }
    components["securitySchemes"] = {"key": _KEY}
    for path in document["paths"].values():
        for method, operation in path.items():
            _add_problems(method, operation)
            _add_headers(operation)
            _name_ids(operation)
    document["x-holdfast"] = True
    return document


def _add_problems(method: str, operation: dict[str, Any]) -> None:
    statuses = {405, 500} | ({503} if operation.get("x-scope") or "health" in operation.get("tags", ()) else set())
    if operation.get("x-scope"):
        statuses |= {401, 403, 429}
    if any(parameter["in"] == "path" for parameter in operation.get("parameters", ())):
        statuses |= {404}
    if "requestBody" in operation:
        statuses |= {400, 408, 413, 415, 422}
    if operation.get("x-scope") in ("submit", "work") or "requests" in operation.get("tags", ()):
        statuses |= {409}
    with_state = any(parameter["name"] in _WITH_STATE for parameter in operation.get("parameters", ()))
    if method != "get" and (with_state or "schedules" in operation.get("tags", ())):
        statuses |= {409}
    responses = operation["responses"]
    refuses_names = operation.pop("x-refuses-names", False)
    if refuses_names or any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
        statuses |= {422}
    elif "422" in responses and "requestBody" not in operation:
        del responses["422"]
    for status in statuses:
        responses[str(status)] = {
            "description": ", ".join(code for code, (own, _) in CATALOGUE.items() if own == status),
            "content": {"application/problem+json": {"schema": {"$ref": f"{_REF}Problem"}}},
        }


def _add_headers(operation: dict[str, Any]) -> None:
    waits = any(parameter["name"] == "Prefer" for parameter in operation.get("parameters", ()))
    for status, response in operation["responses"].items():
        names = {_WITH_STATUS[int(status)]} if int(status) in _WITH_STATUS else set(response.pop("x-headers", ()))
        if waits and int(status) < 300:
            names |= {"Preference-Applied"}
        if names:
            response["headers"] = {name: _HEADERS[name] for name in sorted(names)}


def _name_ids(operation: dict[str, Any]) -> None:
    """The routes accept any text as an id, and answer an invalid one like an unknown one; clients send ids."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and parameter["name"] in ("job_id", "key_id", "bulk_id"):
            parameter["schema"]["format"] = "uuid"


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """The description of a body that its route reads itself."""
    _BODIES[model.__name__] = model
    return {"required": required, "content": {"application/json": {"schema": {"$ref": f"{_REF}{model.__name__}"}}}}


def also_described(*models: type[BaseModel]) -> None:
    """Describe shapes that others name without containing them."""
    for model in models:
        _BODIES[model.__name__] = model
