"""`/openapi.json`: the routes as FastAPI describes them, with every problem that each of them may answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from holdfast.web.problems import CATALOGUE

__all__ = ["describe"]

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
    schemas["Problem"] = _PROBLEM
    components["securitySchemes"] = {"key": _KEY}
    for path in document["paths"].values():
        for operation in path.values():
            _add_problems(operation)
    document["x-holdfast"] = True
    return document


def _add_problems(operation: dict[str, Any]) -> None:
    statuses = {405, 500} | ({503} if operation.get("x-scope") or "health" in operation.get("tags", ()) else set())
    if operation.get("x-scope"):
        statuses |= {401, 403, 429}
    if any(parameter["in"] == "path" for parameter in operation.get("parameters", ())):
        statuses |= {404}
    if "requestBody" in operation:
        statuses |= {400, 408, 413, 415, 422}
    if "requests" in operation.get("tags", ()):
        statuses |= {409}
    responses = operation["responses"]
    if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
        statuses |= {422}
    elif "422" in responses and "requestBody" not in operation:
        del responses["422"]
    for status in statuses:
        responses[str(status)] = {
            "description": ", ".join(code for code, (own, _) in CATALOGUE.items() if own == status),
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
