"""One Django project for the whole process, whose database is each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.apps import apps
from django.db import connection, connections

from tests.integrations.entries import database_entry

SETTINGS = "tests.integrations.site.settings"

if not apps.ready:
    # For this process only: those that other tests start are to find an environment without Django.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", SETTINGS)
        django.setup()


@pytest.fixture
def site(database_url: str) -> Iterator[Any]:
    """The project's app, in a fresh database with the project's tables."""
    from holdfast.integrations.django import hf
    from tests.integrations.site.shop.models import Order

    use(database_url)
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    yield hf
    hf.sync.close()
    connections.close_all()


def use(url: str, alias: str = "default") -> None:
    """Let Django's connections of this process lead there."""
    connections[alias].close()
    connections[alias].settings_dict.update(database_entry(url))
