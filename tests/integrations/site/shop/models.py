from __future__ import annotations

from django.db import models


class Order(models.Model):  # type: ignore[misc]
    customer = models.CharField(max_length=100)
