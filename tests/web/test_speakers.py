"""Work that all tenants share speaks for none of them: it does not stand in the line of the tenant that began it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from holdfast.client.acceptance import Acceptance
from holdfast.client.keyring import _NOBODY, Keyring
from holdfast.client.watch import Watcher
from holdfast.definitions.registry import Registry
from holdfast.errors import InvalidInput
from holdfast.model.key import Caller, new_secret
from holdfast.model.options import Intent
from holdfast.model.provenance import speaker
from holdfast.model.states import State
from holdfast.store.groups import Groups
from holdfast.store.submissions import Submissions
from holdfast.store.tenancy import PublicJob
from holdfast.telemetry.bus import Bus
from holdfast.web.health import Readiness
from holdfast.web.steps import Steps, StepsMiddleware


class Database:
    """Hears in whose name it is asked."""

    inside_transaction = False

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.callers: dict[Any, Caller | None] = {}
        now = datetime.now(UTC)
        self.job = PublicJob(
            id=uuid4(), tenant="t", type="x", state=State.RUNNING, target=None, created_at=now, updated_at=now
        )

    def _hear(self) -> None:
        self.heard.append(speaker.get())

    async def rows(self, *_: Any) -> Any:
        self._hear()
        raise InvalidInput("nothing is recorded here")

    async def jobs(self, _: Any) -> list[PublicJob]:
        self._hear()
        return [replace(self.job, state=State.SUCCESS)]

    async def accepted_payloads(self, *_: Any) -> Sequence[Any]:
        self._hear()
        return []

    async def find(self, proof: Any) -> tuple[bool, Caller | None, float | None]:
        self._hear()
        return True, None if proof == _NOBODY else Caller(tenant="acme", name="a", scopes=frozenset()), None

    async def find_all(self, proofs: Sequence[Any]) -> dict[Any, tuple[bool, Caller | None, float | None]]:
        self._hear()
        caller = Caller(tenant="acme", name="a", scopes=frozenset())
        return dict.fromkeys(proofs, (True, caller, None))

    async def check(self) -> None:
        self._hear()

    async def probe(self) -> None:
        self._hear()

    async def control(self) -> Database:
        return self


@pytest.fixture(autouse=True)
def _acme_speaks() -> None:
    speaker.set("acme")


async def test_the_look_at_all_jobs_that_are_waited_for() -> None:
    database = Database()
    await Watcher(cast("Any", database)).changed(database.job, 5)
    assert database.heard == [""]


async def test_the_question_for_published_shapes() -> None:
    database = Database()
    await Acceptance(cast("Any", database), Registry(), Bus()).answers([Intent(uuid4(), "x", "{}")])
    assert database.heard == [""]


async def test_recording_what_several_tenants_send() -> None:
    database = Database()
    await Submissions(cast("Any", database)).enqueue_each([Intent(uuid4(), "x", "{}", tenant="acme")])
    groups = Groups(cast("Any", database))
    groups.open()
    groups._crowded = True
    with pytest.raises(InvalidInput):
        await groups.enqueue_one(Intent(uuid4(), "x", "{}", tenant="acme"))
    assert set(database.heard) == {""}


async def test_the_look_whether_jobs_can_be_recorded() -> None:
    database = Database()
    await Readiness(cast("Any", SimpleNamespace(leaving=False, hf=database, control=database.control))).require()
    assert database.heard == ["", ""]


async def test_unknown_keys_have_nobodys_line_and_a_tenant_asks_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    database, secret = Database(), new_secret()
    keyring = Keyring(cast("Any", database))
    monkeypatch.setattr(keyring, "_touch", lambda *_: None)
    for _ in range(2):
        await keyring.any_key()
        await keyring.caller(secret)
        for known in (*keyring._good.items(),):
            keyring._good[known[0]] = known[1]._replace(until=0.0)  # a second has passed
    assert database.heard == ["", "", "", "acme"]


async def test_a_stranger_whose_request_follows_a_tenants_on_one_connection() -> None:
    heard: list[str] = []

    async def app(*_: Any) -> None:
        heard.append(speaker.get())

    steps = Steps()
    steps._tenants[b"Bearer one"] = "beta"
    for key in (b"", b"Bearer one"):
        scope = {"type": "http", "path": "/jobs", "query_string": b"", "headers": [(b"authorization", key)]}
        call = StepsMiddleware(cast("Any", app), steps)(scope, cast("Any", None), cast("Any", None))
        await asyncio.get_running_loop().create_task(cast("Any", call))
    assert heard == ["", "beta"]
