from __future__ import annotations

import os
from typing import Any

from django.db import connection, transaction

from holdfast import Context, RetryPolicy, SyncContext
from holdfast.integrations.django import hf
from tests.integrations.site.shop import reports
from tests.integrations.site.shop.models import Order

__all__ = ["reports"]

#: Which database sessions ran handlers.
sessions: list[int] = []


@hf.job("order.confirm")
def confirm(ctx: Context, customer: str) -> int:
    Order.objects.create(customer=customer)
    return int(Order.objects.count())


@hf.job("order.follow")
def follow(ctx: Context, customer: str, *, fail: bool = False) -> None:
    with transaction.atomic():
        Order.objects.create(customer=customer)
        confirm.sync.enqueue(customer=customer)
        if fail:
            raise ValueError("the whole order fails")


@hf.job("order.session")
def session(ctx: Context, *, end_it: bool = False) -> None:
    """Note the session, and end it as a restart of the server would."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        sessions.append(cursor.fetchone()[0])
        if end_it:
            cursor.execute("select pg_terminate_backend(pg_backend_pid())")


@hf.job("order.post", retry=RetryPolicy(base=0.01, max_attempts=2))
def post(ctx: SyncContext, customer: str, *, autocommit: bool = True) -> None:
    """Writes in the transaction that ends its job."""
    transaction.set_autocommit(autocommit)
    try:
        with ctx.transaction(connection):
            Order.objects.create(customer=customer)
            follow.sync.enqueue(customer=customer)
            if ctx.attempt == 1:
                raise ValueError("the first attempt fails")
    finally:
        transaction.set_autocommit(True)


@hf.job("order.compute", executor="process")
def compute(ctx: Context, customer: str) -> dict[str, Any]:
    return {"orders": Order.objects.filter(customer=customer).count(), "pid": os.getpid()}


@hf.job("order.greet")
async def greet(ctx: Context, customer: str) -> str:
    return f"hello {customer}"
