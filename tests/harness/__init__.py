"""What the suite itself needs, and no user does: workers to run, kill and freeze, histories and their checker."""
