"""A result as tables, with what it must show.

`python -m bench.report FILE.json` shows a saved one again: `--markdown` for a page, `--plot` draws it anew too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import plot, venvs
from bench.cells.enqueue import TASKS, THREADS
from bench.cells.states import STATES
from bench.results import Result, Spread
from bench.tables import Table, number
from bench.verdicts import calm_of, verdicts

__all__ = ["render", "show"]

MEASURES = (
    ("enqueue-one", "per_second", "enqueue one at a time, jobs/s"),
    ("enqueue-bulk", "per_second", "enqueue by 1000, jobs/s"),
    *((f"enqueue-tasks-{n}", "per_second", f"enqueue from {n} tasks, jobs/s") for n in TASKS),
    *((f"enqueue-threads-{n}", "per_second", f"enqueue from {n} threads, jobs/s") for n in THREADS),
    ("drain-1x100", "per_second", "drain, 1 process, 100 B, jobs/s"),
    ("drain-2x100", "per_second", "drain, 2 processes, 100 B, jobs/s"),
    ("drain-1x4000", "per_second", "drain, 1 process, 4 kB, jobs/s"),
    ("drain-2x4000", "per_second", "drain, 2 processes, 4 kB, jobs/s"),
    ("latency", "p50_ms", "latency at 100 jobs/s, p50, ms"),
    ("latency", "p95_ms", "latency at 100 jobs/s, p95, ms"),
    ("latency", "p99_ms", "latency at 100 jobs/s, p99, ms"),
    ("enqueue-one", "round_trip_ms", "one commit's round trip, ms"),
    ("api", "cpu_us", "API CPU per accepted job, µs"),
    ("api", "per_second", "accepted over HTTP, 64 connections, jobs/s"),
    ("remote", "per_second", "pull and report over HTTP by 100, 4 workers, jobs/s"),
)
COSTS = (
    ("wal_bytes", "WAL bytes"),
    ("transactions", "transactions"),
    ("statements", "statements"),
    ("server_cpu_us", "server CPU µs"),
    ("worker_cpu_us", "worker CPU µs"),
    ("buffers", "buffers"),
    ("connections", "connections"),
    ("cores_busy", "cores busy"),
)
IDLE = (
    ("worker_cpu_s", "worker CPU s/min"),
    ("server_cpu_s", "server CPU s/min"),
    ("statements_per_minute", "statements/min"),
    ("connections", "connections"),
)
HOLDS = {True: "yes", False: "NO", None: "–"}


def show(result: Result, path: Path) -> None:
    """Print it, and draw the plot beside the JSON."""
    print(render(result, markdown=False))
    print(f"\nAll samples: {path}\n{_plot(path)}")


def _plot(path: Path) -> str:
    try:
        python = venvs.made("plot", plot.REQUIREMENTS)
    except venvs.NotInstalled as error:
        return f"No plot: {error}"
    command = [str(python), "-m", "bench.plot", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"Plot: {', '.join(done.stdout.split())}" if done.returncode == 0 else f"No plot: {done.stderr[-300:]}"


def render(result: Result, *, markdown: bool) -> str:
    """The tables that have something in them."""
    tables = [_about(result), _main(result), *_costs(result), _states(result), _idle(result), _sustained(result)]
    tables += [_verdicts(result), _notes(result)]
    return "\n".join(table.markdown() if markdown else table.text() for table in tables if table.rows)


def _about(result: Result) -> Table:
    table = Table("The run", ["what", "is"], left=2)
    table.rows.append(["date (UTC)", str(result.about["date"])])
    for part in ("machine", "run", "settings"):
        table.rows += [[name, str(value)] for name, value in result.about.get(part, {}).items()]
    if "redis" in result.about:
        table.rows.append(["Redis", result.about["redis"]])
    table.rows += [
        [about["title"], about.get("versions") or f"not measured: {about['missing']}"]
        for about in result.systems.values()
        if about["kind"] != "limit"
    ]
    return table


def _main(result: Result) -> Table:
    remark = "Medians over the rounds, with the least and the greatest; ratios are medians of those within each round."
    table = Table("Holdfast, limits and peers", ["cell", "system", "median", "least", "greatest", "Holdfast ÷ it"])
    table.remark = remark
    for cell, figure, title in MEASURES:
        for name, about in result.systems.items():
            spread = result.spread(cell, name, figure)
            if spread is None:
                failed = next((s.note for s in result.of(cell, name) if s.note), None)
                if failed:
                    table.rows.append([title, about["title"], "see notes", "", "", ""])
                continue
            ratio = result.ratio((cell, "holdfast"), (cell, name), figure)
            table.rows.append([title, about["title"], *_three(spread), "" if ratio is None else f"{ratio:.2f}"])
    return table


def _costs(result: Result) -> list[Table]:
    tables = []
    for cell, figure, title in MEASURES:
        if not cell.startswith(("drain", "remote")) or figure != "per_second":
            continue
        table = Table(f"Per job: {title.removesuffix(', jobs/s')}", ["system", *(t for _, t in COSTS)], left=1)
        for name, about in result.systems.items():
            spreads = [result.spread(cell, name, key) for key, _ in COSTS]
            if any(spreads):
                table.rows.append([about["title"], *(number(s.median) if s else "–" for s in spreads)])
        tables.append(table)
    return tables


def _states(result: Result) -> Table:
    columns = ["system", "state", "undisturbed, jobs/s", "in that state", "ratio", "buffers/claim", "rows/claim"]
    table = Table("Drains in a bad state", columns)
    table.remark = "Buffers and rows are those that claiming one job visits, exactly, after the drain."
    for name, about in result.systems.items():
        for state in ("calm", *STATES):
            beside = calm_of(result, state, name)
            calm = result.spread(beside, name, "per_second")
            disturbed = result.spread(f"state-{state}", name, "per_second")
            ratio = result.ratio((f"state-{state}", name), (beside, name), "per_second")
            if calm is None or disturbed is None or ratio is None:
                continue
            visits = [result.spread(f"state-{state}", name, key) for key in ("claim_buffers", "claim_rows")]
            rates = [_range(calm), _range(disturbed), f"{ratio:.2f}"]
            table.rows.append([about["title"], state, *rates, *(number(v.median) if v else "–" for v in visits)])
    return table


def _idle(result: Result) -> Table:
    table = Table("A worker with nothing to do", ["system", *(title for _, title in IDLE)], left=1)
    for name, about in result.systems.items():
        spreads = [result.spread("idle", name, key) for key, _ in IDLE]
        if any(spreads):
            table.rows.append([about["title"], *(number(s.median) if s else "–" for s in spreads)])
    return table


def _sustained(result: Result) -> Table:
    columns = ["system", "minutes 2–4, jobs/s", "8–10", "ratio", "dead tuples, minute 4", "minute 10"]
    table = Table(
        "Ten minutes of load", [*columns, "tables, MB, minute 4", "minute 10", "indexes, MB", "minute 10"], left=1
    )
    for name, about in result.systems.items():
        figures = next((s.figures for s in result.of("sustained", name) if s.figures), None)
        if figures is None:
            continue
        row = [number(figures[key]) for key in ("early_per_second", "late_per_second", "ratio")]
        row += [number(figures[f"dead_tuples_minute_{n}"]) for n in (4, 10)]
        row += [number(figures[f"{kind}_bytes_minute_{n}"] / 1e6) for kind in ("table", "index") for n in (4, 10)]
        table.rows.append([about["title"], *row])
    return table


def _verdicts(result: Result) -> Table:
    table = Table("What must be shown", ["claim", "found", "target", "holds"], left=4)
    run = result.about.get("run", {})
    if run.get("scale", 1) != 1:
        table.remark = f"SCALE={run['scale']}: this run tried the harness; its figures say nothing."
    elif not run.get("full") or run.get("rounds", 0) < 5:
        table.remark = "Five rounds and full sizes (ROUNDS=5 FULL=1) are needed for a judgement; this run had less."
    table.rows = [[v.claim, v.found, v.target, HOLDS[v.holds]] for v in verdicts(result)]
    return table


def _notes(result: Result) -> Table:
    table = Table("Notes", ["system", "cell", "note"], left=3)
    table.rows = [[result.systems[system]["title"], cell, note] for system, cell, note in result.notes()]
    table.rows += [[a["title"], "all", a["missing"]] for a in result.systems.values() if "missing" in a]
    return table


def _three(spread: Spread) -> list[str]:
    return [number(spread.median), number(spread.low), number(spread.high)]


def _range(spread: Spread) -> str:
    return f"{number(spread.median)} ({number(spread.low)}–{number(spread.high)})"


def main() -> None:
    """Show a saved result."""
    path = Path(sys.argv[1])
    result = Result.load(path)
    print(render(result, markdown="--markdown" in sys.argv))
    if "--plot" in sys.argv:
        print(_plot(path), file=sys.stderr)


if __name__ == "__main__":
    main()
