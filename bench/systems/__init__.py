"""The systems under test, one module each, all with the interface of `bench.drive.System`.

A module imports its system and nothing of Holdfast (but for Holdfast's own): it runs in that system's own
virtual environment, which holds the system and the standard library only.
"""
