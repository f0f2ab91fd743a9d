"""The version of this release, the single place that says it."""

__version__ = "0.3.0"
