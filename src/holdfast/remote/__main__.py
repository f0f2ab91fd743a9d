"""`python -m holdfast.remote MODULE:NAME`: run a worker that a module declares, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.remote.worker import RemoteWorker
from holdfast.telemetry.narrator import set_up_logging


def main() -> None:
    """Find the worker and run it."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.remote", description="Run a worker over HTTP.")
    parser.add_argument("worker", metavar="MODULE:NAME", help="where the RemoteWorker is, such as tasks:worker")
    parser.add_argument("--burst", action="store_true", help="exit when there are no jobs left")
    asked = parser.parse_args()
    module, _, name = asked.worker.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds texts
    config = Config.load()
    set_up_logging(config.log_format, config.log_level)
    try:
        found = getattr(importlib.import_module(module), name or "worker", None)
    except KeyError as missing:
        if missing.args not in {("HOLDFAST_URL",), ("HOLDFAST_KEY",)}:
            raise
        parser.exit(2, f"error: {missing.args[0]} is not set\n")
    if not isinstance(found, RemoteWorker):
        parser.error(f"{asked.worker} is not a RemoteWorker")
    try:
        found.run_forever(burst=asked.burst)
    except HoldfastError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
