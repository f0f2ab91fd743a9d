"""A folder for every peer that comes from npm, made once and kept in `.bench/nodes`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.servers import HOME
from bench.venvs import NotInstalled

__all__ = ["modules_of"]


def modules_of(name: str, requirement: str) -> Path:
    """Where the modules of a peer are; it is installed first."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalled("it needs Node.js and npm")
    folder = HOME / "nodes" / name
    ready = folder / "requirement"
    if not ready.exists() or ready.read_text() != requirement:
        print(f"Installing {requirement} …", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            complaint = (done.stderr.strip().splitlines() or ["npm gave no reason"])[-1]
            raise NotInstalled(f"npm could not install it: {complaint}")
        ready.write_text(requirement)
    return folder / "node_modules"
