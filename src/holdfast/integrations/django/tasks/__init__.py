"""Holdfast as a backend of Django's Tasks framework::

    TASKS = {"default": {"BACKEND": "holdfast.integrations.django.tasks.HoldfastBackend"}}

1. `backend` is what the framework talks to: enqueue a task, look up a result.
2. `running` is the one job type that all tasks are: it runs them in a worker.
3. `naming` finds a task by the name that a job carries, and nothing but a task.
4. `results` tells of a job in the framework's words.
"""

from holdfast.integrations.django.tasks.backend import HoldfastBackend

__all__ = ["HoldfastBackend"]
