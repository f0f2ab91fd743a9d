"""Each process imports a part of the tests' modules first, and no fault of theirs is hidden by it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.shares import import_share


def test_the_parts_are_all_modules_and_faults_stay_to_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = {
        "test_good": "",
        "test_bad": "1 / 0",
        "test_warned": "import warnings\nwarnings.warn('old', DeprecationWarning)",
        "test_skipped": "import pytest\npytest.skip('not here', allow_module_level=True)",
        "test_other": "",
    }
    folder = tmp_path / "shares_of_tests"
    folder.mkdir()
    for name, body in bodies.items():
        (folder / f"{name}.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    for number in range(2):
        import_share(tmp_path, ["shares_of_tests", "shares_of_tests/test_bad.py::test_it"], number, 2)
    found = {name.partition(".")[2] for name in sys.modules if name.startswith("shares_of_tests.")}
    assert found == {"test_good", "test_other"}, "the others are imported anew, and tell what is the matter"
    for name in [name for name in sys.modules if name.startswith("shares_of_tests")]:
        monkeypatch.delitem(sys.modules, name)
