"""Recognizes the same call under an idempotency key, if an earlier release has written it in another way.

The engine compares payloads as they are stored. Where it finds a conflict and the type is known here, the values decide
that the handler would get (`holdfast.definitions.same_call`). Only conflicts are looked at: nothing else pays for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from holdfast.definitions.registry import Registry
from holdfast.errors import HoldfastError
from holdfast.model.job import Enqueued
from holdfast.model.options import Intent
from holdfast.store.jobs import JobStore

__all__ = ["recognized"]


async def recognized(
    store: JobStore, registry: Registry, intents: Sequence[Intent], answers: list[Enqueued]
) -> list[Enqueued]:
    """The answers, without conflicts of keys whose jobs are the same calls."""
    if not any(answer.outcome == "conflict" for answer in answers):
        return answers
    return [
        answer._replace(outcome="existing")
        if answer.outcome == "conflict" and await _is_same_call(store, registry, intent, answer)
        else answer
        for intent, answer in zip(intents, answers, strict=True)
    ]


async def _is_same_call(store: JobStore, registry: Registry, intent: Intent, answer: Enqueued) -> bool:
    known = registry.get(intent.type)
    if known is None:
        return False
    with suppress(HoldfastError):  # a handler's process cannot look, but its worker has done so
        for job in await store.get([answer.job_id], tenant=intent.tenant):
            return job.type == intent.type and known.payload.is_same(json.dumps(job.payload), intent.payload)
    return False
