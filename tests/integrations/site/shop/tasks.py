from __future__ import annotations

import asyncio
from typing import Any

from django_tasks import TaskContext, task

from tests.integrations.site.shop.models import Order


class OutOfStock(Exception):
    pass


#: What ran, in order.
ran: list[Any] = []


@task()
def add(a: int, b: int = 0) -> int:
    ran.append((a, b))
    return a + b


@task()
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b + int(await Order.objects.acount())


@task()
def fail(message: str) -> None:
    raise OutOfStock(message)


@task(backend="stubborn")
def stubborn(message: str) -> None:
    ran.append(message)
    raise OutOfStock(message)


@task()
def leave() -> None:
    raise SystemExit("gone")


@task()
def unspeakable() -> Any:
    return object()


@task(takes_context=True)
def introspect(context: TaskContext, greeting: str) -> list[Any]:
    return [greeting, context.attempt, context.task_result.id]


def plain(a: int) -> int:
    ran.append("no task")
    return a
