"""What the suite itself needs, and no user does."""
