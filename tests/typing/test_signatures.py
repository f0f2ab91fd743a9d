"""What type checkers see: `make check` reads this file, and an expected error that is missing fails it.

Every `type: ignore` here names an error that must be reported, or it counts as unused. At run time the same
mistakes are refused, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_type

import pytest
from pydantic import BaseModel

from holdfast import (
    Context,
    Handler,
    Holdfast,
    InvalidInput,
    InvalidPayload,
    Job,
    JobRef,
    ListedJob,
    Middleware,
    NewJob,
    SyncContext,
    events,
)

hf = Holdfast("postgresql://nobody@127.0.0.1:1/none")


@hf.job("typing.greet")
async def greet(ctx: Context, name: str, *, times: int = 1) -> str:
    return name * times


@hf.job("typing.resize", executor="thread")
def resize(ctx: Context, path: str) -> int:
    return len(path)


@dataclass
class Resources:
    mailer: str


@asynccontextmanager
async def lifespan(app: Holdfast) -> AsyncIterator[Resources]:
    yield Resources(mailer="smtp")


with_resources = Holdfast("postgresql://nobody@127.0.0.1:1/none", lifespan=lifespan)


@with_resources.job("typing.resources")
async def resourceful(ctx: Context[Resources], name: str) -> str:
    assert_type(ctx.resources, Resources)
    ctx.resources.mailbox  # type: ignore[attr-defined]  # noqa: B018 - a name that it does not have
    return ctx.resources.mailer


@with_resources.job("typing.blocking")
def blocking(ctx: SyncContext[Resources], name: str) -> str:
    assert_type(ctx.resources, Resources)
    return ctx.resources.mailer


class Order(BaseModel):
    number: int


@hf.job("typing.order")
async def order(ctx: Context, payload: Order) -> None:
    return None


@dataclass
class Mail:
    to: str


@hf.job("typing.mail")
async def mail(ctx: Context, payload: Mail) -> None:
    return None


async def signatures() -> None:
    """Never called: only what a type checker makes of it counts."""
    assert_type(await greet.enqueue("Ada", times=2), JobRef)
    assert_type(greet.sync.enqueue("Ada", times=2), JobRef)
    assert_type(await order.enqueue(Order(number=1)), JobRef)
    assert_type(mail.sync.enqueue(Mail(to="a@example.com")), JobRef)
    assert_type(hf.sync.enqueue("typing.greet", {"name": "Ada"}, priority=1), JobRef)
    assert_type(hf.sync.get("id"), Job)
    assert_type(hf.sync.find(types=["typing.greet"], limit=5), list[ListedJob])
    assert_type(greet.options(priority=1, run_at=datetime.now(UTC)).sync.enqueue("Ada"), JobRef)


async def calls(ctx: Context) -> None:
    """A handler is still the function that it was. Without declared resources, anything may be done with them."""
    assert_type(ctx.resources, Any)
    assert_type(resize(ctx, "a.png"), int)
    assert_type(await greet(ctx, "Ada"), str)
    resize(ctx, 5)  # type: ignore[arg-type]


class Quiet(Middleware):
    async def enqueue(self, jobs: list[NewJob], call_next: Any) -> list[JobRef]:
        answers: list[JobRef] = await call_next(jobs)
        return answers


@hf.on(events.AttemptEnded)
def ended(event: events.AttemptEnded) -> None:
    assert_type(event.duration_seconds, float)


def wrong_subscriber() -> None:
    def other(event: events.LeaseLost) -> None:
        return None

    hf.on(events.AttemptEnded)(other)  # type: ignore[arg-type]


async def test_wrong_arguments_are_refused_by_checker_and_at_run_time() -> None:
    wrong = [
        greet.enqueue(nme="Ada"),  # type: ignore[call-arg]
        greet.enqueue("Ada", times="x"),  # type: ignore[arg-type]
        greet.enqueue(),  # type: ignore[call-arg]
        order.enqueue({"number": "x"}),  # type: ignore[arg-type]
        mail.enqueue(Mail(to=5)),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(InvalidPayload):
            await call


def test_unknown_options_are_refused_by_checker_and_at_run_time() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'priority'"):
        greet.options(priorty=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="whole number"):
        greet.options(priority="high")  # type: ignore[arg-type]


def test_a_handler_knows_its_signature() -> None:
    handler: Handler[..., Any] = greet
    assert handler.name == "typing.greet"
