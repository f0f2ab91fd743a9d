"""Who is measured: the systems, what each needs installed, and where it keeps its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FIELD", "HOLDFAST", "LIMITS", "Contestant", "chosen", "wants_pgboss"]

Store = Literal["postgres", "redis"]
Kind = Literal["ours", "python", "rust"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One system; its module in `bench.systems` has its name. `kind` tells what its core is written in.

    `only` is the one kind of cell in which it takes part, where it is a variant of another system.
    """

    name: str
    title: str
    store: Store
    kind: Kind
    requirements: tuple[str, ...] = ()
    only: str = ""


HOLDFAST = Contestant(name="holdfast", title="Holdfast", store="postgres", kind="ours")

_UVLOOP = "uvloop==0.23.0"
_PSYCOPG = "psycopg[binary]==3.3.8"
_REDIS = "redis[hiredis]==8.1.0"
_PGQUEUER = ("pgqueuer==1.6.0", "asyncpg==0.32.0", _PSYCOPG, _UVLOOP)
#: Variants, and the one kind of cell in which they differ from the system itself.
_ONLY = {"pgqueuer_1000": "drain"}
_PEERS = (
    ("pgqueuer", "PgQueuer", "postgres", "python", _PGQUEUER),
    ("pgqueuer_1000", "PgQueuer, batches of 1000", "postgres", "python", _PGQUEUER),
    ("awa", "awa", "postgres", "rust", ("awa-pg==0.6.9", _UVLOOP)),
    ("procrastinate", "Procrastinate", "postgres", "python", ("procrastinate==3.10.0", _PSYCOPG)),
    ("chancy", "Chancy", "postgres", "python", ("chancy==0.26.0", _PSYCOPG)),
    ("saq", "SAQ (PostgreSQL)", "postgres", "python", ("saq[postgres]==0.26.4", _PSYCOPG, _UVLOOP)),
    (
        *("taskiq", "Taskiq (PostgreSQL)", "postgres", "python"),
        ("taskiq==0.13.0", "taskiq-postgres==0.9.1", "asyncpg==0.32.0", _UVLOOP),
    ),
    (
        *("saq_redis", "SAQ (Redis)", "redis", "python"),
        ("saq[redis,hiredis]==0.26.4", "redis==7.4.1", "typing_extensions==4.16.0", _UVLOOP),
    ),
    ("celery", "Celery (Redis, acks_late)", "redis", "python", ("celery==5.7.0", "packaging==26.3", _REDIS)),
    ("dramatiq", "Dramatiq (Redis)", "redis", "python", ("dramatiq==2.2.1", _REDIS)),
    ("arq", "arq (Redis)", "redis", "python", ("arq==0.28.0", "redis[hiredis]==5.3.1")),
    ("rq", "RQ (Redis)", "redis", "python", ("rq==2.12.0", _REDIS)),
)
FIELD: tuple[Contestant, ...] = tuple(
    Contestant(
        name=name,
        title=title,
        store=store,  # type: ignore[arg-type]
        kind=kind,  # type: ignore[arg-type]
        requirements=requirements,
        only=_ONLY.get(name, ""),
    )
    for name, title, store, kind, requirements in _PEERS
)

_OVER_HTTP = "pgboss"

LIMITS = {
    "loop": "bare loop, same functions",
    "pgbench": "pgbench, one at a time",
    "pgbench-batch": "pgbench, batches",
    "insert": "bare INSERT",
    "fastapi": "bare FastAPI handler",
    "direct": "Holdfast, Python worker",
    "pgboss": "pg-boss behind a bare HTTP handler",
    "copy": "bare COPY",
}


def chosen(wish: str) -> tuple[Contestant, ...]:
    """The peers that PEERS names."""
    if wish in ("", "none"):
        return ()
    known = {peer.name: peer for peer in FIELD}
    names = list(known) if wish == "all" else [name.strip() for name in wish.split(",") if name.strip()]
    unknown = [name for name in names if name not in known and name != _OVER_HTTP]
    if unknown:
        raise SystemExit(
            f"PEERS: unknown {', '.join(unknown)}; known are {', '.join(known)}, {_OVER_HTTP}, all and none"
        )
    return tuple(known[name] for name in names if name in known)


def wants_pgboss(wish: str) -> bool:
    """Whether PEERS names the peer that takes part in the cell `remote` only."""
    return wish == "all" or _OVER_HTTP in wish.split(",")
