"""The plot of a result: drains of all systems and limits, and latencies; SVG and PNG beside the JSON.

matplotlib has an environment of its own, like the peers, in which this module runs: `python -m bench.plot FILE.json`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.results import Result

__all__ = ["REQUIREMENTS", "draw"]

REQUIREMENTS = ("matplotlib>=3.9,<4",)

_COLOURS = {"ours": "#0b6e4f", "limit": "#b8b8b8", "python": "#6a8caf", "rust": "#c06c3e"}


def draw(result: Result, path: Path) -> list[Path]:
    """Draw it; the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (rates, waits) = pyplot.subplots(1, 2, figsize=(13, 6), gridspec_kw={"width_ratios": [3, 2]})
    _rates(rates, result)
    _waits(waits, result)
    figure.suptitle(
        f"{result.about['machine']['cpu']}, {result.about['machine']['cores']} cores, {result.about['date']}"
    )
    figure.tight_layout()
    files = [path.with_suffix(suffix) for suffix in (".svg", ".png")]
    for file in files:
        figure.savefig(file, dpi=150)
    pyplot.close(figure)
    return files


def _rates(axes: Any, result: Result) -> None:
    found = [(n, s) for n in result.systems if (s := result.spread("drain-1x100", n, "per_second"))]
    found.sort(key=lambda pair: pair[1].median)
    names = [result.systems[name]["title"] for name, _ in found]
    medians = [spread.median for _, spread in found]
    spans = [[s.median - s.low for _, s in found], [s.high - s.median for _, s in found]]
    colours = [_COLOURS[result.systems[name]["kind"]] for name, _ in found]
    axes.barh(names, medians, xerr=spans, color=colours, ecolor="#404040", capsize=3)
    axes.set_title("Drain of no-op jobs, one worker process, jobs/s (median, range)")
    axes.spines[["top", "right"]].set_visible(False)


def _waits(axes: Any, result: Result) -> None:
    names = [name for name in result.systems if result.spread("latency", name, "p50_ms")]
    for offset, (figure, shade) in enumerate((("p50_ms", 1.0), ("p95_ms", 0.7), ("p99_ms", 0.4))):
        places = [place + (1 - offset) * 0.27 for place in range(len(names))]
        values = [s.median if (s := result.spread("latency", name, figure)) else 0.0 for name in names]
        colours = [_COLOURS[result.systems[name]["kind"]] for name in names]
        axes.barh(places, values, height=0.25, color=colours, alpha=shade, label=figure.removesuffix("_ms"))
    axes.set_yticks(range(len(names)), [result.systems[name]["title"] for name in names])
    if names:
        axes.set_xscale("log")
        axes.set_xlim(left=0.5)
    axes.legend(loc="lower right")
    axes.set_title("Enqueue to handler start at 100 jobs/s, ms")
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    result_file = Path(sys.argv[1])
    print(*draw(Result.load(result_file), result_file), sep="\n")
