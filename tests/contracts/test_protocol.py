"""The page about the worker protocol, the conformance test and the server have the same fields and codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from holdfast.remote.conformance.bodies import ERROR, FIELDS, ITEM, LEASE, faults_of
from holdfast.remote.conformance.trials import TRIALS
from holdfast.web.problems import CATALOGUE
from holdfast.web.remote import schemas

PAGE = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
BODIES: dict[str, type[BaseModel]] = {
    "pull": schemas.PullBody,
    "report": schemas.SingleReport,
    "extend": schemas.Extension,
    "release": schemas.Release,
}
ANSWERS: dict[str, list[type[BaseModel]]] = {
    "pull": [schemas.PulledJobs, schemas.JobForWorker, schemas.InterruptedJob],
    "report": [schemas.ReportAnswer],
    "extend": [schemas.LeaseStates, schemas.LeaseState],
    "release": [schemas.ReleasedLeases, schemas.ReleasedLease],
}


def section(verb: str) -> str:
    """What the page says of a call."""
    return PAGE.split(f"\n### `POST /worker/{verb}`\n")[1].split("\n## ")[0].split("\n### `POST")[0]


@pytest.mark.parametrize("verb", BODIES)
def test_the_page_has_every_field_and_no_other(verb: str) -> None:
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", section(verb), re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    declared = set(BODIES[verb].model_fields)
    for answer in ANSWERS[verb]:
        assert set(answer.model_fields) <= set(re.findall(r"`(\w+)`", section(verb))), answer.__name__
        declared |= set(answer.model_fields)
    kinds = {"kind", "retryable", "fatal", "hold", "snooze"} if verb == "report" else set()
    assert declared >= named - kinds, "the page tells of fields that do not exist"
    assert set(BODIES[verb].model_fields) <= named, "docs/protocol.md tells of every field of the body"


@pytest.mark.parametrize("verb", BODIES)
def test_the_conformance_test_knows_the_fields_of_the_server(verb: str) -> None:
    assert set(FIELDS[verb]) == set(BODIES[verb].model_fields)
    assert set(ERROR) == set(schemas.ReportedFailure.model_fields)
    assert set(ITEM) == set(schemas.ReportedItem.model_fields)
    assert set(LEASE) == set(schemas.LeaseRef.model_fields)


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("pull", {"types": []}),
        ("pull", {"types": ["a"], "max": 101}),
        ("pull", {"types": ["a"], "wait_sec": 61}),
        ("pull", {"types": ["a"], "request_id": "with a space"}),
        ("pull", {"types": ["a"], "unknown": 1}),
        ("report", {"done": True, "error": "both"}),
        ("report", {"seq": 0}),
        ("report", {"progress": 1}),
        ("report", {"seq": 1, "items": [{"key": "without data"}]}),
        ("report", {"seq": 1, "cursor": "a\0b"}),
        ("report", {"error": {"kind": "sad", "message": "no such kind"}}),
        ("report", {"result": 1}),
        ("extend", {"leases": []}),
        ("extend", {"leases": [{"job_id": "0197b7c5-0000-7000-8000-000000000000"}]}),
        ("release", {"leases": [{"job_id": "0197b7c5-0000-7000-8000-000000000000", "attempt": 0}]}),
    ],
)
def test_what_the_server_refuses_is_wrong_in_the_conformance_test(verb: str, more: dict[str, object]) -> None:
    own: dict[str, object] = {"worker_id": "w"}
    if verb == "report":
        own |= {"job_id": "0197b7c5-0000-7000-8000-000000000000", "attempt": 1}
    with pytest.raises(ValueError, match="validation error"):
        BODIES[verb].model_validate({**own, **more})
    assert faults_of(verb, {**own, **more})


def test_the_page_has_codes_that_exist() -> None:
    table = PAGE.split("\n## Status codes\n")[1].split("\n## ")[0]
    for row in re.findall(r"^\| ([\d, ]+) \| ([^|]*)\|", table, re.MULTILINE):
        for code in re.findall(r"`([\w-]+)`", row[1]):
            assert str(CATALOGUE[code][0]) in row[0], code
    assert {"lease-lost", "already-reported", "invalid"} <= set(re.findall(r"`([\w-]+)`", table))


def test_the_page_tells_of_every_type_that_trials_use() -> None:
    source = (Path(__file__).parents[2] / "src/holdfast/remote/conformance/trials.py").read_text()
    used = set(re.findall(r'"(conform\.\w+)"', source))
    assert used == set(re.findall(r"^\| `(conform\.\w+)` \|", PAGE, re.MULTILINE))
    assert len({trial.name for trial in TRIALS}) == len(TRIALS)
