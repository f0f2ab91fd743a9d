"""Holdfast in a Django project.

Put `"holdfast.integrations.django"` into INSTALLED_APPS and declare job types in `jobs.py` of any app::

    from holdfast.integrations.django import hf

    @hf.job("invoice.send")
    def send_invoice(ctx, invoice_id: int): ...

`send_invoice.sync.enqueue(invoice_id=1)` inside `transaction.atomic()` is recorded if and only if that
transaction commits. `python manage.py holdfast worker` runs the jobs.
"""

from __future__ import annotations

from typing import Any

from holdfast.integrations.django.app import DjangoHoldfast

__all__ = ["DjangoHoldfast"]

#: The project's app: the one that `HOLDFAST["APP"]` names, or else one made on first use.
hf: DjangoHoldfast


def __getattr__(name: str) -> Any:
    """`hf` needs Django's settings, so it is made when somebody asks for it."""
    if name != "hf":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.integrations.django.project import project_app

    return project_app()
