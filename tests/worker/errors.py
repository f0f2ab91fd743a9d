"""Errors that do harm when somebody asks what they are, raised by handlers of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast import Context, Holdfast, RetryPolicy, SyncContext

__all__ = ["ONCE", "WAYS", "hf"]


class _Says(Exception):
    """An error whose text is whatever raising or returning comes to."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what

    def __str__(self) -> str:
        if isinstance(self.what, BaseException):
            raise self.what
        return self.what  # type: ignore[no-any-return]

    __repr__ = __str__


class _Text(str):
    """A text with methods of its own."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("not with me")

    replace = encode = __len__ = __getitem__ = __add__ = __radd__ = __format__ = _refuse


class _Group(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> NoReturn:
        raise RuntimeError("no parts")


class _Nameless(type):
    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise SystemExit(7)


class _WithoutName(Exception, metaclass=_Nameless):
    pass


class _Disguised(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("who knows")


def _caused(by: BaseException) -> Exception:
    error = ValueError("caused")
    error.__cause__ = by
    return error


def _deep() -> Exception:
    error = ValueError("the first of many")
    for number in range(3000):
        following = ValueError(f"number {number}")
        following.__context__ = error
        error = following
    return error


WAYS: dict[str, Callable[[], BaseException]] = {
    "syntax": lambda: SyntaxError("bad", ("f", 1, 3, b"abc")),  # type: ignore[arg-type]
    "group": lambda: _Group("a group", [ValueError("inside")]),
    "raises": lambda: _Says(ValueError("no text")),
    "cancelled": lambda: _Says(asyncio.CancelledError()),
    "exits": lambda: _Says(SystemExit(3)),
    "interrupts": lambda: _Says(KeyboardInterrupt()),
    "generator": lambda: _Says(GeneratorExit()),
    "number": lambda: _Says(7),
    "bytes": lambda: _Says(b"\xff"),
    "text": lambda: _Says(_Text("peculiar")),
    "nul": lambda: _Says("a\x00b \ud800"),
    "large": lambda: _Says("x" * 20_000_000),
    "nameless": lambda: _WithoutName("who"),
    "disguised": lambda: _Disguised("who"),
    "caused": lambda: _caused(_Says(SystemExit(4))),
    "deep": _deep,
    "exit": lambda: SystemExit("enough"),
    "generator-exit": GeneratorExit,
    "cancel": lambda: asyncio.CancelledError("by itself"),
    "stop": lambda: StopIteration("no more"),
}

ONCE = RetryPolicy(max_attempts=1)
hf = Holdfast()


@hf.job("async", retry=ONCE)
async def in_the_loop(ctx: Context, way: str) -> None:
    raise WAYS[way]()


@hf.job("thread", retry=ONCE)
def in_a_thread(ctx: SyncContext, way: str) -> None:
    raise WAYS[way]()


@hf.job("process", retry=ONCE, executor="process")
def in_a_process(ctx: SyncContext, way: str) -> None:
    raise WAYS[way]()
