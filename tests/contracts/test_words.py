"""The pages that explain words, states, metrics and deployment say what the code does."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from click import Context
from prometheus_client import Counter, Gauge, Histogram

from holdfast.cli.exits import Exit
from holdfast.cli.root import holdfast
from holdfast.config import Config
from holdfast.model.key import SCOPES
from holdfast.model.states import INITIAL, TERMINAL, TRANSITIONS, State
from holdfast.telemetry.shared_metrics import SharedMetrics
from holdfast.telemetry.worker_metrics import WorkerMetrics
from holdfast.web.metrics import Metrics

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs/glossary.md").read_text()
REFERENCE = (ROOT / "docs/reference.md").read_text()
STATES = (ROOT / "docs/states.md").read_text()
SCHEMA = (ROOT / "src/holdfast/sql/schema.dump.sql").read_text()

MOVES = {(state.value, goal.value) for state, goals in TRANSITIONS.items() for goal in goals}
ENTRANCES = {("[*]", state.value) for state in INITIAL}
EXITS = {(state.value, "[*]") for state in TERMINAL}


def values_of(title: str) -> list[str]:
    """The first column of a section's table."""
    section = GLOSSARY.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def outcomes() -> set[str]:
    """The outcomes that the database accepts."""
    constraint = re.search(r"CONSTRAINT job_attempts_outcome_check .*", SCHEMA)
    assert constraint is not None
    return set(re.findall(r"'(\w+)'::text", constraint[0]))


def test_the_glossary_has_every_state_outcome_and_scope() -> None:
    assert values_of("States") == [state.value for state in State]
    assert sorted(values_of("Outcomes of an attempt")) == sorted(outcomes())
    assert values_of("Scopes of an API key") == list(SCOPES)


def test_the_glossary_is_in_order_and_has_each_word_once() -> None:
    words = [word.lower() for word in re.findall(r"^- \*\*([^*]+)\*\*: ", GLOSSARY, re.MULTILINE)]
    assert words == sorted(set(words))
    assert len(words) == GLOSSARY.count("\n- ")


def test_the_drawn_state_machine_has_every_move_once_and_no_other() -> None:
    arrows = re.findall(r"^ +(\S+) --> ([^\s:]+)", STATES, re.MULTILINE)
    assert sorted(arrows) == sorted(MOVES | ENTRANCES | EXITS)


def test_the_table_of_moves_has_every_move_once_and_no_other() -> None:
    rows = re.findall(r"^\| (\(new\)|`\w+`) \| `(\w+)` \|", STATES, re.MULTILINE)
    moves = [(state.strip("`").replace("(new)", "[*]"), goal) for state, goal in rows]
    assert sorted(moves) == sorted(MOVES | ENTRANCES)


def _metrics(source: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Type and labels of each metric in a table of the reference."""
    section = re.split(r"\n#{2,3} ", REFERENCE.split(f"\n### {source}\n")[1])[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?)\| \S.* \|$", section, re.MULTILINE)
    shown = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(shown) == len(rows)
    return shown


def test_the_table_of_a_workers_metrics_has_them_all(tmp_path: Path) -> None:
    shared = SharedMetrics(tmp_path, 1)
    WorkerMetrics(shared, "w")
    shared.close()
    assert _metrics("Of a worker") == {name: (kind, labels) for name, kind, labels in shared.declared}


def test_the_table_of_metrics_is_that_of_the_registry() -> None:
    registered = {
        f"{next(iter(kept.describe())).name}{'_total' * isinstance(kept, Counter)}": (
            type(kept).__name__.lower(),
            kept._labelnames,  # the only place that has them before anything was counted
        )
        for kept in Metrics().registry._collector_to_names
        if isinstance(kept, Counter | Gauge | Histogram)
    }
    assert _metrics("Of the HTTP server") == registered


def test_the_units_start_commands_that_exist_and_outlast_a_drain() -> None:
    page = (ROOT / "docs/how-to/deploy.md").read_text()
    units = [text for text in re.findall(r"^```ini\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "ExecStart" in text]
    for text in units:
        unit = ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(text)
        _, name, *arguments = unit["Service"]["ExecStart"].split()
        command = holdfast.get_command(Context(holdfast), name)
        assert command is not None
        command.make_context(name, list(arguments))
        assert int(unit["Service"]["RestartPreventExitStatus"]) == Exit.USAGE
        if name == "worker":
            assert int(unit["Service"]["TimeoutStopSec"]) >= Config.load({}).shutdown_grace_period_seconds + 45
    assert len(units) == 2
