"""For tests of apps: what the pytest plugin gives them. And for Holdfast's own: workers to run, kill and freeze,
histories and their checker.
"""

from holdfast.testing.attempts import JobFailed, Run
from holdfast.testing.jobs import Jobs, SyncJobs

__all__ = ["JobFailed", "Jobs", "Run", "SyncJobs"]
