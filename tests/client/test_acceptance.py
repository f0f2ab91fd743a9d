"""What a server remembers of the shapes that workers publish is bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast
from uuid import uuid4

from holdfast.client.acceptance import Acceptance
from holdfast.definitions.registry import Registry
from holdfast.model.options import Intent
from holdfast.store.jobs import JobStore, Published
from holdfast.telemetry.bus import Bus


class _Deploying:
    """Workers that publish a new shape, of 100 KB, each time that somebody asks."""

    def __init__(self) -> None:
        self.times = 0

    async def accepted_payloads(self, types: Sequence[str], _known: Sequence[str]) -> list[Published]:
        self.times += 1
        fields = {f"field_{n}_{'x' * 60}": {"shape": {"is": "int"}} for n in range(1_000)}
        shape = {"dialect": 1, "shape": {"is": "object", "extra": "ignore", "fields": fields}, "named": {}}
        return [Published(name, "refuse", str(self.times), json.dumps(shape)) for name in types]


async def test_shapes_that_count_no_more_are_forgotten() -> None:
    store = _Deploying()
    acceptance = Acceptance(cast("JobStore", store), Registry(), Bus())
    largest = 0
    for number in range(60):
        await acceptance.answers([Intent(uuid4(), f"type-{number % 3}", "{}")])
        acceptance._rules.clear()  # a second has passed
        largest = max(largest, sum(acceptance._sizes.values()))
    assert store.times == 60
    assert largest <= 4 * 2**20
    assert len(acceptance._judges) == len(acceptance._sizes) < 50
