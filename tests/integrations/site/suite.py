"""The project's own tests, as its developers would write them: `manage.py test tests.integrations.site.suite`."""

from __future__ import annotations

import asyncio
from typing import Any

from django.db import connection
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from holdfast.integrations.django import hf
from tests.integrations.site.shop import jobs, tasks
from tests.integrations.site.shop.models import Order


class InOneTransaction(TestCase):  # type: ignore[misc]
    def test_jobs_are_part_of_the_test(self) -> None:
        jobs.confirm.sync.enqueue(customer="ada")
        assert [hf.sync.get(job).payload for job in hf.sync.find()] == [{"customer": "ada"}]

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

    def test_handlers_in_processes_use_the_test_database(self) -> None:
        Order.objects.create(customer="ada")
        job = jobs.compute.sync.enqueue("ada")
        hf.sync.run_worker(burst=True, types=["order.compute"])
        done = hf.sync.get(job)
        assert done.state == "success", done.last_error
        assert done.result["orders"] == 1


class WithoutDatabase(SimpleTestCase):  # type: ignore[misc]
    def test_blocking_calls_are_refused(self) -> None:
        with self.assertRaisesMessage(AssertionError, "not allowed"):
            jobs.confirm.sync.enqueue(customer="ada")

    def test_connections_of_holdfasts_own_are_refused(self) -> None:
        with self.assertRaisesMessage(AssertionError, "not allowed"):
            asyncio.run(hf.open())
        with self.assertRaisesMessage(AssertionError, "not allowed"):
            hf.sync.run_worker(burst=True)


class OpenedBefore(SimpleTestCase):  # type: ignore[misc]
    @classmethod
    def setUpClass(cls) -> None:
        hf.sync.open()
        cls.addClassCleanup(hf.sync.close)
        super().setUpClass()

    def test_connections_that_are_open_already_are_refused(self) -> None:
        with self.assertRaisesMessage(AssertionError, "not allowed"):
            hf.sync.find()
