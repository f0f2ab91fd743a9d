"""The command `holdfast`, and `python -m holdfast`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        from holdfast.cli.root import holdfast
    except ModuleNotFoundError as missing:
        if missing.name not in ("click", "rich"):
            raise
        sys.stderr.write("error: the command line is not installed: pip install 'holdfast[cli]'\n")
        sys.exit(1)
    holdfast.main(prog_name="holdfast")


if __name__ == "__main__":
    main()
