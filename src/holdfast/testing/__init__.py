"""For tests of apps: what the pytest plugin gives them."""

from holdfast.testing.attempts import JobFailed, Run
from holdfast.testing.jobs import Jobs, SyncJobs

__all__ = ["JobFailed", "Jobs", "Run", "SyncJobs"]
