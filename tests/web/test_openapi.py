"""The description is complete: a client that is made from it knows every shape, header and id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.model.key import SCOPES
from tests.web.document import DOCUMENT

SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    (method, path): operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}


def everything(part: Any) -> Iterator[dict[str, Any]]:
    """All objects of the document."""
    if isinstance(part, dict):
        yield part
        for value in part.values():
            yield from everything(value)
    elif isinstance(part, list):
        for value in part:
            yield from everything(value)


def test_every_shape_that_is_named_is_described() -> None:
    named = {part["$ref"] for part in everything(DOCUMENT) if isinstance(part.get("$ref"), str)}
    assert named == {f"#/components/schemas/{name}" for name in SCHEMAS}
    assert not any(key in part for part in everything(DOCUMENT) for key in ("$defs", "x-headers"))


def test_batches_are_typed() -> None:
    assert SCHEMAS["Batch"]["properties"]["jobs"]["items"] == {"$ref": "#/components/schemas/Submission"}
    assert SCHEMAS["BatchAnswer"]["properties"]["results"]["items"]["anyOf"] == [
        {"$ref": "#/components/schemas/Accepted"},
        {"$ref": "#/components/schemas/Refused"},
    ]


def test_ids_are_uuids() -> None:
    ids = [
        parameter["schema"].get("format")
        for operation in OPERATIONS.values()
        for parameter in operation.get("parameters", ())
        if parameter["name"].endswith("_id")
    ]
    assert len(ids) > 10
    assert set(ids) == {"uuid"}
    assert SCHEMAS["Accepted"]["properties"]["jobId"]["format"] == "uuid"


def test_what_changes_a_job_may_conflict_with_its_state() -> None:
    changes = {
        path: operation["responses"]
        for (method, path), operation in OPERATIONS.items()
        if method != "get" and ("{job_id}" in path or "{bulk_id}" in path)
    }
    letter = "/ops/dead-letters/{job_id}"
    assert {f"{letter}/requeue", f"{letter}/ack", "/ops/bulk/{bulk_id}/stop"} <= set(changes)
    assert not [path for path, responses in changes.items() if "409" not in responses]


def test_a_key_may_have_every_scope() -> None:
    scopes = SCHEMAS["NewKey"]["properties"]["scopes"]
    assert scopes["items"]["enum"] == list(SCOPES)
    assert scopes["maxItems"] == len(SCOPES)


def test_headers_are_described() -> None:
    def headers(method: str, path: str, status: int) -> set[str]:
        return set(OPERATIONS[method, path]["responses"][str(status)].get("headers", ()))

    assert headers("post", "/jobs", 202) == headers("post", "/jobs", 200) == {"Location", "Preference-Applied"}
    assert headers("get", "/jobs/{job_id}/result", 202) == {"Retry-After", "Preference-Applied"}
    assert headers("get", "/jobs/{job_id}", 200) == {"Preference-Applied"}
    for operation in OPERATIONS.values():
        for status, header in (("401", "WWW-Authenticate"), ("429", "Retry-After"), ("503", "Retry-After")):
            assert header in operation["responses"].get(status, {"headers": header})["headers"]


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(names) == len(set(names))
    assert {"jobs_submit", "jobs_submit_batch", "ops_search", "keys_create", "cancel"} <= set(names)


def test_only_letters_are_described_as_letters() -> None:
    def body(path: str) -> str:
        content = OPERATIONS["post", path]["requestBody"]["content"]["application/json"]
        return str(content["schema"]["$ref"]).rpartition("/")[2]

    assert body("/ops/dead-letters/{job_id}/ack") == "LetterNote"
    assert "letter" not in SCHEMAS[body("/ops/bulk/{bulk_id}/stop")]["description"]
