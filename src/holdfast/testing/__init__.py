"""For tests of Holdfast and of apps on it: workers to run, kill and freeze, histories and their checker."""
