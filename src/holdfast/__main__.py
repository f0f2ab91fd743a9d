"""The command `holdfast`, and `python -m holdfast`."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say how to install it."""
    _fill_gaps()
    try:
        from holdfast.cli.root import holdfast
    except ModuleNotFoundError as missing:
        if missing.name not in ("click", "rich"):
            raise
        sys.stderr.write("error: the command line is not installed: pip install 'holdfast[cli]'\n")
        sys.exit(1)
    holdfast.main(prog_name="holdfast")


def _fill_gaps() -> None:
    """Who starts us without standard output or error wants to hear nothing, and no socket may take their place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - kept to the end


if __name__ == "__main__":
    main()
