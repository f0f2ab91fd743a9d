"""The tests, whose processes may write compiled files from their first import on.

Hundreds of processes import the same modules: without compiled files each compiles them anew, for longer than the rest
of its start takes. pytest even rewrites the assertions of hypothesis, which conftest.py imports: hence it is said here,
before conftest.py. An environment that forbids compiled files is overruled, here and for all children.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
