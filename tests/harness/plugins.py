"""How pytest runs the tests of a reader's project.

pytest loads every plugin that is installed. A reader has few of them; ours take two seconds of each start. In a forked
process (`tests/harness/warm.py`) it finds plugins that it cannot rewrite any more, which changes nothing but how their
own assertions fail.
"""

from __future__ import annotations

__all__ = ["FORKED", "WITHOUT_OURS"]

WITHOUT_OURS = ("-p", "no:schemathesis", "-p", "no:hypothesispytest")
FORKED = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
