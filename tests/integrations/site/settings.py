"""A small Django project; its database is the one that SITE_DATABASE_URL names."""

from __future__ import annotations

import json
import os

from tests.integrations.entries import database_entry

DATABASES = {
    "default": database_entry(os.environ.get("SITE_DATABASE_URL", "postgresql:///nowhere")),
    "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
INSTALLED_APPS = ["holdfast.integrations.django", "tests.integrations.site.shop"]
HOLDFAST = json.loads(os.environ.get("SITE_HOLDFAST", "{}"))
SECRET_KEY = "of a test"
USE_TZ = True
TASKS = {
    "default": {"BACKEND": "holdfast.integrations.django.tasks.HoldfastBackend", "QUEUES": ["default", "slow"]},
    "stubborn": {
        "BACKEND": "holdfast.integrations.django.tasks.HoldfastBackend",
        "OPTIONS": {"RETRY_FAILURES": True, "MAX_ATTEMPTS": 2},
    },
}
