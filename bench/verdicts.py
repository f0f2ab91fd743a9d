"""What the benchmark must show, figure by figure: the target, what was found, and whether it holds.

Ratios are medians over the rounds of what two systems did within the same round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.cells.states import STATES
from bench.options import CONCURRENCY
from bench.results import Result
from bench.tables import number
from holdfast.config import Config
from holdfast.worker.intake import AHEAD

__all__ = ["Verdict", "calm_of", "verdicts"]

_US = "holdfast"
_DRAIN = "drain-1x100"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One claim; `holds` is unknown where it was not measured."""

    claim: str
    found: str
    target: str
    holds: bool | None


def verdicts(result: Result) -> list[Verdict]:
    """All of them, in the order in which they were asked for."""
    return [*_drains(result), *_enqueues(result), *_latency(result), *_states(result), *_idle(result), *_api(result)]


def calm_of(result: Result, state: str, system: str) -> str:
    """The cell with the undisturbed drain beside a state."""
    own = f"state-calm-{state}"
    return own if result.spread(own, system, "per_second") else "state-calm"


def _drains(result: Result) -> Iterator[Verdict]:
    for name, about in result.systems.items():
        if about["kind"] == "python" and about["store"] == "postgres":
            yield _at_least(result, _DRAIN, name, 2.0 if name.startswith("pgqueuer") else 1.5)
        elif about["kind"] == "rust" or (about["kind"] == "python" and about["store"] == "redis"):
            yield _at_least(result, _DRAIN, name, 1.0)
    yield _at_least(result, _DRAIN, "loop", 0.7)
    yield _at_least(result, _DRAIN, "pgbench", 0.5)
    yield _at_least(result, _DRAIN, "pgbench-batch", 0.5)
    for size in (100, 4000):
        busy = result.spread(f"drain-2x{size}", _US, "cores_busy")
        ratio = result.ratio((f"drain-2x{size}", _US), (f"drain-1x{size}", _US), "per_second")
        cores = int(result.about["machine"]["cores"])
        at_limit = busy is not None and busy.median >= 0.85 * cores
        told = f"; {busy.median:.2f} of {cores} cores busy" if busy else ""
        yield Verdict(
            claim=f"two worker processes ÷ one, {size} bytes",
            found=_told(ratio) + told,
            target="≥ 1.20, or the cores are the limit",
            holds=None if ratio is None else ratio >= 1.2 or at_limit,
        )
    again = result.spread("kill", _US, "again")
    bound = CONCURRENCY + AHEAD * Config.load(environment={}).batch_size
    yield Verdict(
        claim="jobs run twice after kill -9 in mid-drain, at worst",
        found=_told(again.high if again else None),
        target=f"≤ {bound} (slots + prefetch)",
        holds=None if again is None else again.high <= bound,
    )


def _enqueues(result: Result) -> Iterator[Verdict]:
    if "pgqueuer" in result.systems:
        yield _at_least(result, "enqueue-bulk", "pgqueuer", 1.5)
    yield _at_least(result, "enqueue-one", "insert", 0.8)
    yield _at_least(result, "enqueue-tasks-50", "insert", 2.0)
    steady = result.ratio(("enqueue-tasks-200", _US), ("enqueue-tasks-50", _US), "per_second")
    yield Verdict(
        claim="enqueue from 200 tasks ÷ from 50",
        found=_told(steady),
        target="≥ 0.90",
        holds=None if steady is None else steady >= 0.9,
    )
    if "celery" in result.systems:
        yield _at_least(result, "enqueue-threads-50", "celery", 4.0)
    peer = _fastest_peer(result, "enqueue-one")
    ours = result.spread("enqueue-one", _US, "per_second")
    theirs = result.spread("enqueue-one", peer, "per_second") if peer else None
    if peer and ours and theirs:
        yield Verdict(
            claim=f"enqueue one: not slower than {result.systems[peer]['title']} beyond the spread",
            found=_told(ours.median / theirs.median),
            target=f"medians {ours.median:,.0f} and {theirs.median:,.0f}; ranges overlap or ours is faster",
            holds=ours.high >= theirs.low,
        )


def _latency(result: Result) -> Iterator[Verdict]:
    p50, loop = result.spread("latency", _US, "p50_ms"), result.spread("enqueue-one", "insert", "round_trip_ms")
    for ratio, pace in (
        (result.ratio(("latency", _US), ("latency", "insert"), "p50_ms"), "at the same pace"),
        (p50.median / loop.median if p50 and loop else None, "in a loop without rest"),
    ):
        yield Verdict(
            claim=f"latency p50 ÷ one commit's round trip, {pace}",
            found=_told(ratio),
            target="≤ 4.00",
            holds=None if ratio is None else ratio <= 4,
        )
    for name, about in result.systems.items():
        if about["kind"] not in ("python", "rust") or about["store"] != "postgres":
            continue
        for figure in ("p50_ms", "p95_ms", "p99_ms"):
            ratio = result.ratio(("latency", _US), ("latency", name), figure)
            yield Verdict(
                claim=f"latency {figure.removesuffix('_ms')} ÷ {about['title']}'s",
                found=_told(ratio),
                target="< 1.00",
                holds=None if ratio is None else ratio < 1,
            )


def _states(result: Result) -> Iterator[Verdict]:
    for state in STATES:
        ratio = result.ratio((f"state-{state}", _US), (calm_of(result, state, _US), _US), "per_second")
        target = 0.9 if state in ("pinned", "readers") else 0.95
        yield Verdict(
            claim=f"drain in state `{state}` ÷ undisturbed",
            found=_told(ratio),
            target=f"≥ {target:.2f}",
            holds=None if ratio is None else ratio >= target,
        )
    sustained = result.spread("sustained", _US, "ratio")
    ratio = sustained.median if sustained else None
    yield Verdict(
        claim="sustained: minutes 8–10 ÷ 2–4",
        found=_told(ratio),
        target="≥ 0.95",
        holds=None if ratio is None else ratio >= 0.95,
    )


def _idle(result: Result) -> Iterator[Verdict]:
    for figure, claim, most in (
        ("worker_cpu_s", "idle worker, CPU seconds per minute", 0.3),
        ("server_cpu_s", "server of an idle worker, CPU seconds per minute", 0.2),
        ("connections", "connections of a worker process", 3),
    ):
        spread = result.spread("idle", _US, figure)
        yield Verdict(
            claim=claim,
            found=_told(spread.median if spread else None),
            target=f"≤ {most}",
            holds=None if spread is None else spread.median <= most,
        )


def _api(result: Result) -> Iterator[Verdict]:
    ratio = result.ratio(("api", _US), ("api", "fastapi"), "cpu_us")
    yield Verdict(
        claim="API CPU per accepted job ÷ a bare FastAPI handler's",
        found=_told(ratio),
        target="≤ 2.00",
        holds=None if ratio is None else ratio <= 2,
    )


def _at_least(result: Result, cell: str, other: str, least: float) -> Verdict:
    ratio = result.ratio((cell, _US), (cell, other), "per_second")
    return Verdict(
        claim=f"{cell} ÷ {result.systems[other]['title']}",
        found=_told(ratio),
        target=f"≥ {least:.2f}",
        holds=None if ratio is None else ratio >= least,
    )


def _fastest_peer(result: Result, cell: str) -> str | None:
    peers = [n for n, about in result.systems.items() if about.get("store") == "postgres" and about["kind"] != "ours"]
    rates = {n: spread.median for n in peers if (spread := result.spread(cell, n, "per_second"))}
    return max(rates, key=lambda n: rates[n]) if rates else None


def _told(value: float | None) -> str:
    return "not measured" if value is None else number(value)
