"""Operators of one tenant, of whom one pauses it in the moment in which the other has resumed it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.client.steering import Steering
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem

TENANT = "/ops/tenants/acme"


@pytest.mark.parametrize("was_paused", [True, False])
async def test_nobody_is_told_that_the_installation_paused_what_a_colleague_did(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch, was_paused: bool
) -> None:
    acme, resume = await key("operate", tenant="acme"), Steering.resume

    async def resume_and_be_too_late(ops: Steering, *names: Any, **details: Any) -> bool:
        changed = await resume(ops, *names, **details)
        await ops.pause("tenant", "acme", by="a colleague", tenant="acme")
        return changed

    monkeypatch.setattr(Steering, "resume", resume_and_be_too_late)
    if was_paused:
        await client.post(f"{TENANT}/pause", headers=acme)
    assert (await client.post(f"{TENANT}/resume", headers=acme)).status_code == 200
    await (await hf.operations()).pause("tenant", "acme", by="the installation")
    is_problem(await client.post(f"{TENANT}/resume", headers=acme), 403, "scope")
