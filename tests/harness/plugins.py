"""Which plugins of this environment the tests of a reader's project do without.

pytest loads every plugin that is installed. A reader has few of them; ours take two seconds of each start.
"""

from __future__ import annotations

__all__ = ["WITHOUT_OURS"]

WITHOUT_OURS = ("-p", "no:schemathesis", "-p", "no:hypothesispytest")
