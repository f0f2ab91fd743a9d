"""The operation and table of a named statement: the labels of the metrics of database queries."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Labels", "labels_of"]


class Labels(NamedTuple):
    """The labels of `db_query_duration_seconds`."""

    operation: str
    table: str


_OTHER = Labels("select", "other")
_LABELS = {
    "submit": Labels("insert", "jobs"),
    "visible_jobs": Labels("select", "jobs"),
    "tenant_items": Labels("select", "job_items"),
    "job_result": Labels("select", "jobs"),
    "tenant_request": Labels("insert", "jobs"),
    "waiting_jobs": Labels("select", "ready"),
    "find_key": Labels("select", "api_keys"),
    "find_keys": Labels("select", "api_keys"),
    "find_events_token": Labels("select", "api_keys"),
    "find_events_tokens": Labels("select", "api_keys"),
    "issue_events_token": Labels("select", "api_keys"),
    "touch_keys": Labels("update", "api_keys"),
    "search_jobs": Labels("select", "jobs"),
    "summaries": Labels("select", "jobs"),
    "attempts_page": Labels("select", "job_attempts"),
    "events_page": Labels("select", "job_events"),
    "keys_after": Labels("select", "api_keys"),
    "get_jobs": Labels("select", "jobs"),
}


def labels_of(statement: str) -> Labels:
    """The labels of a statement; statements that no dashboard shows share one."""
    return _LABELS.get(statement, _OTHER)
