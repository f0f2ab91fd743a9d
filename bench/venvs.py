"""A virtual environment for every peer, and one for the plot, made once and kept in `.bench/venvs`."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from bench.field import Contestant
from bench.servers import HOME

__all__ = ["NotInstalled", "made", "python_of", "versions"]


class NotInstalled(Exception):
    """A peer that cannot be had here, and why."""


def python_of(contestant: Contestant, elsewhere: str | None = None) -> Path:
    """The interpreter that has the system; a peer is installed first. `elsewhere` has environments ready for use."""
    if not contestant.requirements:
        return Path(sys.executable)
    if elsewhere is not None:
        python = Path(elsewhere) / contestant.name / "bin" / "python"
        if not python.exists():
            raise NotInstalled(f"no environment in {elsewhere}")
        return python
    return made(contestant.name, contestant.requirements)


def made(name: str, requirements: tuple[str, ...]) -> Path:
    """The interpreter of an environment with these packages."""
    folder = HOME / "venvs" / name
    python, ready = folder / "bin" / "python", folder / "requirements"
    wanted = "\n".join(requirements)
    if not ready.exists() or ready.read_text() != wanted:
        print(f"Installing {', '.join(requirements)} …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            complaint = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            raise NotInstalled(f"pip could not install it: {complaint}")
        ready.write_text(wanted)
    return python


def versions(python: Path, contestant: Contestant) -> str:
    """What is installed there of what the system was asked for, as `name version`."""
    names = [part.split("==")[0].split("[")[0] for part in contestant.requirements] or ["holdfast", "asyncpg"]
    code = "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    done = subprocess.run([str(python), "-c", code, *names], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
