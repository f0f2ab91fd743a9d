"""Every problem is documented where readers look, and every code that is raised is in the catalogue."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.web.problems import CATALOGUE

ROOT = Path(__file__).parents[2]


def test_the_reference_lists_every_problem() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\d{3}) \| (.*) \|$", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)
    assert {code: (int(status), text) for code, status, text in rows} == CATALOGUE


def test_every_problem_that_is_raised_is_known() -> None:
    raised: set[tuple[str, int]] = set()
    for source in [*(ROOT / "src/holdfast/web").rglob("*.py"), ROOT / "src/holdfast/integrations/starlette.py"]:
        for status, code in re.findall(r'Problem\(\s*(\d{3}),\s*"([\w-]+)"', source.read_text()):
            raised.add((code, int(status)))
    assert raised
    assert {(code, CATALOGUE[code][0]) for code, _ in raised} == raised
