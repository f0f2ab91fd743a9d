"""Two clocks that must fit: how far ahead the engine announces a due job, and how often maintenance looks."""

from __future__ import annotations

import re

from holdfast.maintenance.duties.promotion import Promotion
from holdfast.store.statements import functions


def test_work_without_a_notification_is_found_in_time() -> None:
    announced = re.findall(r"run_at < now\(\) \+ interval '(\d+) seconds'", "\n".join(functions().values()))
    assert announced
    assert min(map(float, announced)) >= Promotion.interval_seconds
