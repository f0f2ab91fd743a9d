"""A demo app: a few typical job types, and a steady load."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any

from holdfast.app import Holdfast
from holdfast.errors import Fatal, HoldfastError
from holdfast.model.retry import RetryPolicy
from holdfast.worker.context import Context

__all__ = ["hf", "keep_enqueueing"]

_JOBS_PER_SECOND = 10.0
_CUSTOMERS = ("acme", "globex", "initech", "umbrella")
_CHOICE = random.Random()  # noqa: S311 - a demo needs no secrets

hf = Holdfast()


@hf.job("demo.email", lane="fast")
async def send_email(_ctx: Context, to: str) -> dict[str, str]:
    """Fast, and never fails."""
    await asyncio.sleep(_CHOICE.uniform(0.01, 0.05))
    return {"sent": to}


@hf.job("demo.report")
def write_report(ctx: Context, month: int) -> dict[str, int]:
    """Slow, in a thread; stops early if it has to."""
    pages = 0
    end = time.monotonic() + _CHOICE.uniform(0.5, 2)
    while time.monotonic() < end and not ctx.canceled:
        time.sleep(0.05)
        pages += 1
    return {"month": month, "pages": pages}


@hf.job("demo.sync", retry=RetryPolicy(max_attempts=5, base=0.5, max=5))
async def sync_account(_ctx: Context, account: int) -> None:
    """Calls an unreliable service, and is retried."""
    await asyncio.sleep(_CHOICE.uniform(0.05, 0.2))
    if _CHOICE.random() < 0.4:
        raise ConnectionError(f"account {account}: the other side hung up")


@hf.job("demo.run")
async def run_for_customer(_ctx: Context, customer: str) -> dict[str, str]:
    """One at a time per customer: enqueued with a target."""
    await asyncio.sleep(_CHOICE.uniform(0.1, 0.4))
    return {"customer": customer}


@hf.job("demo.import")
async def import_file(_ctx: Context, rows: int) -> dict[str, int]:
    """Sometimes a file is broken, and a retry does not help."""
    await asyncio.sleep(0.1)
    if _CHOICE.random() < 0.1:
        raise Fatal("the file is not a spreadsheet")
    return {"rows": rows}


async def keep_enqueueing(app: Holdfast, jobs_per_second: float = _JOBS_PER_SECOND) -> None:
    """Enqueue jobs of all types until canceled, also after outages of the database."""
    while True:
        with contextlib.suppress(HoldfastError):
            await app.enqueue_many([_job() for _ in range(_CHOICE.randint(1, 3))])
        await asyncio.sleep(_CHOICE.expovariate(jobs_per_second / 2))


def _job() -> tuple[str, dict[str, Any], dict[str, Any]]:
    match _CHOICE.choices(("email", "report", "sync", "run", "import"), (10, 1, 4, 3, 2))[0]:
        case "email":
            return "demo.email", {"to": f"user{_CHOICE.randrange(1000)}@example.com"}, {}
        case "report":
            return "demo.report", {"month": _CHOICE.randint(1, 12)}, {"priority": 200}
        case "sync":
            return "demo.sync", {"account": _CHOICE.randrange(100)}, {}
        case "run":
            customer = _CHOICE.choice(_CUSTOMERS)
            return "demo.run", {"customer": customer}, {"target": customer}
        case _:
            return "demo.import", {"rows": _CHOICE.randrange(10_000)}, {}
