"""What the HTTP API shows of a value has all fields of that value: one that is added is not forgotten there."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast.model import bulk, circuit, failure, job, key, letter, progress, schedule, setting, subject, worker
from holdfast.web.control import schemas as control
from holdfast.web.ops import (
    bulk_shapes,
    circuits,
    failures,
    letter_shapes,
    lineage,
    schedule_shapes,
    schemas,
    settings,
    steering,
    workers,
)

#: Each shape, the value that it shows, and what only one of the two has, with the reason.
SHAPES: tuple[tuple[type[BaseModel], type[Any], dict[str, str]], ...] = (
    (schemas.JobSummary, job.ListedJob, {"status": "what clients see of the state"}),
    (schemas.JobDetails, job.Job, {"status": "what clients see of the state"}),
    (lineage.FamilyMember, job.ListedJob, {"status": "as above", "depth": "its place in the tree"}),
    (schemas.AttemptDetails, job.Attempt, {}),
    (schemas.EventDetails, job.JobEvent, {}),
    (schemas.KeyDetails, key.Key, {}),
    (schemas.AuditRecord, key.AuditEntry, {}),
    (control.JobItem, progress.Item, {"id": "the cursor says where an item stands"}),
    (letter_shapes.LetterSummary, letter.DeadLetter, {}),
    (failures.FailureDetails, failure.FailureGroup, {}),
    (bulk_shapes.BulkDetails, bulk.Bulk, {"q": "as it is called in addresses", "query": "it is `q` here"}),
    (circuits.CircuitDetails, circuit.CircuitState, {}),
    (schedule_shapes.ScheduleSummary, schedule.Schedule,
     dict.fromkeys(("id", "anchor", "reckoned_from"), "only the leader needs it")
     | {"payload": "lists are without payloads"}),
    (schedule_shapes.ScheduleDetails, schedule.Schedule,
     dict.fromkeys(("id", "anchor", "reckoned_from"), "only the leader needs it")
     | {"fires": "what became of its last fire times"}),
    (schedule_shapes.FireDetails, schedule.Fire, {}),
    (settings.SettingDetails, setting.Setting, {}),
    (steering.TargetDetails, subject.Target, {}),
    (steering.ExplanationDetails, subject.Explanation, {}),
    (workers.WorkerDetails, worker.ListedWorker, {}),
    (workers.WorkerJobDetails, worker.WorkerJob, {}),
    (workers.QuietDetails, worker.Quiet, {}),
)  # fmt: skip


@pytest.mark.parametrize(("shape", "value", "apart"), SHAPES, ids=[shape.__name__ for shape, _, _ in SHAPES])
def test_a_shape_has_every_field_of_what_it_shows(
    shape: type[BaseModel], value: type[Any], apart: dict[str, str]
) -> None:
    known = {field.name for field in fields(value)} if is_dataclass(value) else set(value._fields)
    assert known ^ set(shape.model_fields) == set(apart)
