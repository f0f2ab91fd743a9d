"""A Django project's jobs under Holdfast's own testing kit."""

from __future__ import annotations

from django.db import transaction

from holdfast import Holdfast
from holdfast.testing.kit import Sandboxes, jobs_of, new_database
from tests.integrations.site.shop import jobs


def test_an_app_bound_to_a_test_database_leaves_the_projects_alone(site: Holdfast, server_url: str) -> None:
    """Within transactions of Django's as well: they are in another database."""
    before = site.config.database_url
    with new_database(server_url) as url:
        sandboxes = Sandboxes(url)
        try:
            with jobs_of(site, sandboxes.of(site)) as bound:
                assert site.config.database_url == bound.database_url == url
                jobs.greet.sync.enqueue("ada")
                with transaction.atomic():
                    jobs.greet.sync.enqueue("bob")
                assert len(site.sync.find()) == 2
                assert [run.result for run in bound.sync.run_due()] == ["hello ada", "hello bob"]
        finally:
            sandboxes.close()
    assert site.config.database_url == before
    assert site.sync.find() == []
