"""The pages of the reference that are made from the code, so that they cannot say anything else than it does.

Each function answers Markdown. Public names are found, not listed: a new one has its place on the next build.
"""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import click

import holdfast
from holdfast import errors
from holdfast.cli.root import holdfast as command_line
from holdfast.config import ENTRIES

__all__ = ["pages"]

SOURCE = Path(holdfast.__file__).parent
SQL = SOURCE / "sql"

#: Page, title, and the modules whose public names it shows. What is in none of them comes on the last page.
NAMES = (
    ("app", "The app and its handlers", ("holdfast.app", "holdfast.client")),
    ("context", "The context of a handler", ("holdfast.worker",)),
    ("jobs", "Jobs and what is declared of them", ("holdfast.model", "holdfast.definitions")),
    ("errors", "Errors", ("holdfast.errors",)),
    ("more", "Configuration and other names", ("",)),
)

#: Page, title, and the packages or modules that are shown whole, as far as their `__all__` goes.
MODULES = (
    ("events", "Events", ("holdfast.telemetry.events",)),
    ("integrations", "Integrations", ("holdfast.integrations",)),
    ("remote", "Workers over HTTP", ("holdfast.remote.worker",)),
    ("testing", "Testing", ("holdfast_pytest", "holdfast.testing")),
)

#: What others are made for comes first on its page.
FIRST = ("Holdfast", "Context", "Job")

#: Nobody makes these by hand, so how they are made is not shown.
GIVEN = {"Context", "Handler", "JobRef", "Sync", "SyncHandler"}

#: What integrations share among themselves.
INTERNAL = {"holdfast.integrations.handover"}

FUNCTION = re.compile(
    r"^(?P<comment>(?:--[^\n]*\n)*)create or replace function (?P<name>\w+)(?P<signature>\(.*?)\nlanguage ",
    re.MULTILINE | re.DOTALL,
)
GRANT = re.compile(r"^grant execute on function(.*?)\bto\b(.*?);", re.MULTILINE | re.DOTALL)


def pages() -> Iterator[tuple[str, str]]:
    """(path, text) of every generated page, in the order of the navigation."""
    left = _public_names()
    for page, title, modules in NAMES:
        here = [name for name, home in left.items() if home.startswith(modules)]
        left = {name: home for name, home in left.items() if name not in here}
        introduction = _tree_of_errors() if page == "errors" else ""
        yield f"reference/{page}.md", _page(title, introduction, *map(_name, sorted(here, key=_place)))
    for page, title, roots in MODULES:
        if shown := dict.fromkeys(block for root in roots for block in _modules(root)):
            yield f"reference/{page}.md", _page(title, *shown)
    yield "reference/settings.md", _settings()
    yield "reference/command-line.md", _page("Command line", *_commands(command_line, "holdfast"))
    yield "reference/sql.md", _sql()


def _public_names() -> dict[str, str]:
    """Name → the module that it is imported from. Modules that have a page of their own are left to it."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    homes = {name.asname or name.name: f"{node.module}" for node in imports for name in node.names}
    paged = {root for _, _, roots in MODULES for root in roots}
    return {
        name: homes[name]
        for name in holdfast.__all__
        if name != "__version__" and getattr(getattr(holdfast, name), "__name__", "") not in paged
    }


def _place(name: str) -> tuple[bool, int]:
    """The others stand as they do in the code."""
    found = getattr(holdfast, name)
    return name not in FIRST, inspect.getsourcelines(found)[1] if inspect.isclass(found) else 0


def _name(name: str) -> str:
    found = getattr(holdfast, name)
    options = []
    if name in GIVEN:
        options.append("merge_init_into_class: false")
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        options.append("show_if_no_docstring: true")
    counterparts = _counterparts(found) if inspect.isclass(found) else ""
    return f"{_block(f'holdfast.{name}', *options)}\n\n{counterparts}"


def _counterparts(found: type) -> str:
    """A facade's verbs, which have no body of their own to be described by."""
    owners = {kind.__name__ for kind in holdfast.Holdfast.__mro__ if kind is not object}
    verbs = [
        name
        for name, verb in vars(found).items()
        if found.__name__ not in owners and getattr(verb, "__qualname__", "") in {f"{owner}.{name}" for owner in owners}
    ]
    links = ", ".join(f"[`{verb}`][holdfast.Holdfast.{verb}]" for verb in verbs)
    return f"Counterparts of the app's own verbs, with the same arguments: {links}." if verbs else ""


def _block(name: str, *options: str) -> str:
    lines = [f"::: {name}", *(["    options:"] if options else []), *(f"      {option}" for option in options)]
    return "\n".join(lines)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"


def _tree_of_errors() -> str:
    return (errors.__doc__ or "").replace("\n::\n", "\n")


def _modules(root: str) -> Iterator[str]:
    """Every module of a package that says what is public in it; a package that says so speaks for all in it.

    They are read, not imported: some need a configured framework.
    """
    package = SOURCE.parent / root.replace(".", "/")
    spoken_for: list[Path] = []
    for file in [*package.parent.glob(f"{package.name}.py"), *sorted(package.rglob("*.py"))]:
        names = _public(file)
        path = file.parent if file.name == "__init__.py" else file.with_suffix("")
        module = ".".join(path.relative_to(SOURCE.parent).parts)
        if names and module not in INTERNAL and not any(path.is_relative_to(folder) for folder in spoken_for):
            if file.name == "__init__.py":
                spoken_for.append(path)
            members = f"members: [{', '.join(names)}]"
            yield _block(module, members, "show_root_full_path: true", "inherited_members: false")


def _public(file: Path) -> list[str]:
    """What its `__all__` lists; of a pytest plugin, which has none, the fixtures."""
    body = ast.parse(file.read_text()).body
    for node in body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if any("pytest.fixture" in ast.unparse(d) for d in node.decorator_list)]


def _settings() -> str:
    rows = [
        f"| `{entry.variable}` | {_default(entry.default)} | {entry.description}{' (*engine*)' * entry.engine} |"
        for entry in ENTRIES
    ]
    return _page(
        "Settings",
        "`holdfast config` lists them all with value and origin. An argument wins over the environment, the "
        "environment over the default; for those marked *engine* a row in the table `settings` wins over the "
        "environment.",
        "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows]),
    )


def _default(value: object) -> str:
    return "–" if value is None else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _commands(command: click.Command, path: str) -> Iterator[str]:
    """A section per command, groups before what is in them."""
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    options = [record for param in command.params if (record := param.get_help_record(context))]
    rows = [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in options]
    table = "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""
    heading, said = "#" * min(4, 1 + len(path.split())), inspect.cleandoc(command.help or "")
    yield "\n\n".join(part for part in (f"{heading} {path}", f"```text\n{usage}\n```", said, table) if part)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _commands(inner, f"{path} {name}")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _sql() -> str:
    """A section per file, first those that have something for everybody."""
    roles = _roles()
    sections = []
    for file in sorted((SQL / "functions").glob("*.sql")):
        text = file.read_text()
        functions = [match for match in FUNCTION.finditer(text) if match["name"] in roles]
        if functions:
            header = "".join(itertools.takewhile(lambda line: line.startswith("--"), text.splitlines(keepends=True)))
            said = "" if header == functions[0]["comment"] else _said(header)
            for_workers = all("holdfast_api" not in roles[match["name"]] for match in functions)
            shown = [_function(match, roles[match["name"]]) for match in functions]
            sections.append((for_workers, [f"## {file.stem.capitalize()} {{ #about-{file.stem} }}", said, *shown]))
    return _page(
        "SQL functions",
        "The engine is these functions, in the schema `holdfast`. A login needs a role that is named with the "
        "function; roles begin with the name of the schema. Signatures and results never change: a later release "
        "adds a new name.",
        *(part for _, parts in sorted(sections, key=lambda section: section[0]) for part in parts),
    )


def _function(match: re.Match[str], roles: list[str]) -> str:
    name, said = match["name"], _said(match["comment"])
    signature = f"```sql\n{name}{match['signature']}\n```"
    callers = f"Roles: {', '.join(f'`{role}`' for role in roles)}."
    return "\n\n".join(part for part in (f"### {name} {{ #{name} }}", said, signature, callers) if part)


def _roles() -> dict[str, list[str]]:
    """Which roles may call which function. What nobody may call is the engine's own business."""
    found: dict[str, list[str]] = {}
    for functions, roles in GRANT.findall((SQL / "rights.sql").read_text()):
        for function in re.findall(r"holdfast\.(\w+)", functions):
            found.setdefault(function, []).extend(re.findall(r"holdfast_\w+", roles))
    return found


def _said(comment: str) -> str:
    """A comment's words; who may call is said from the grants."""
    text = "\n".join(line.removeprefix("--").strip() for line in comment.splitlines())
    return re.sub(r"\s*\bRoles: [\w, ]+\.", "", text).strip()
