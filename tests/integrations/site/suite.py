"""The project's own tests, as its developers would write them: `manage.py test tests.integrations.site.suite`."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test import TestCase, TransactionTestCase

from holdfast.integrations.django import hf
from tests.integrations.site.shop import jobs, tasks
from tests.integrations.site.shop.models import Order


class InOneTransaction(TestCase):  # type: ignore[misc]
    def test_jobs_are_part_of_the_test(self) -> None:
        jobs.confirm.sync.enqueue(customer="ada")
        assert [job.payload for job in hf.sync.find()] == [{"customer": "ada"}]

    def test_and_gone_with_it(self) -> None:
        assert hf.sync.find() == []
        tasks.add.enqueue(1)
        assert len(hf.sync.find()) == 1


class ForGood(TransactionTestCase):  # type: ignore[misc]
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.addClassCleanup(hf.sync.close)

    def test_workers_run_what_was_committed_in_the_test_database(self) -> None:
        assert connection.settings_dict["NAME"].startswith("test_")
        job = jobs.confirm.sync.enqueue(customer="ada")
        task: Any = tasks.add.enqueue(1, 2)
        hf.sync.run_worker(burst=True)
        assert hf.sync.get(job).result == 1
        assert Order.objects.get().customer == "ada"
        task.refresh()
        assert task.return_value == 3
