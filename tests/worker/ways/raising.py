"""Errors that do harm when they are raised, or when somebody asks what they are."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast import Fatal, Retry, Snooze
from tests.worker.ways.table import ASYNC, EVERYWHERE, IN_THE_WORKER, THREAD, Table

__all__ = ["ERRORS", "FEW", "RAISING"]


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

    replace = encode = __len__ = __getitem__ = __add__ = __radd__ = __format__ = __str__ = _refuse


class _Group(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> NoReturn:
        raise RuntimeError("no parts")


class _Nameless(type):
    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise SystemExit(7)


class _Odd(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        return "x" * 1_000_000 + "\x00\ud800"


class _WithoutName(Exception, metaclass=_Nameless):
    pass


class _WithOddName(Exception, metaclass=_Odd):
    pass


class _Disguised(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("who knows")


class _Own(BaseException):
    pass


class _Mutable(Exception):
    """Says that it is a signal of ours, and is none."""

    delay_seconds = "soon"


class _Untraceable(Exception):
    @property
    def __traceback__(self) -> NoReturn:  # type: ignore[override]
        raise SystemExit(5)


class _Causeless(Exception):
    @property
    def __cause__(self) -> NoReturn:  # type: ignore[override]
        raise KeyboardInterrupt


class _FatalWithoutText(Fatal):
    def __str__(self) -> NoReturn:
        raise SystemExit(6)


class _Nowhere:
    def __dir__(self) -> NoReturn:
        raise SystemExit(8)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(name=name, obj=self)


def _caused(by: BaseException) -> Exception:
    error = ValueError("caused")
    error.__cause__ = by
    return error


def _noted(notes: Any) -> Exception:
    error = ValueError("noted")
    error.__notes__ = notes
    return error


def _deep() -> Exception:
    error = ValueError("the first of many")
    for number in range(3000):
        following = ValueError(f"number {number}")
        following.__context__ = error
        error = following
    return error


def _cycle() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def _nested() -> Exception:
    group: Exception = ValueError("innermost")
    for number in range(200):
        group = ExceptionGroup(f"level {number}", [group])
    return group


def _raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - it is raised by the handler
        return error
    raise AssertionError("nothing was raised")


def _endless() -> Any:
    return _endless()


#: What makes each error anew. All of them but the last few can be raised anywhere, by middleware and subscribers, too.
ERRORS: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: ValueError("plain"),
    "own": lambda: _Own("of its own kind"),
    "syntax": lambda: SyntaxError("bad", ("f", 1, 3, b"abc")),  # type: ignore[arg-type]
    "syntax-lines": lambda: SyntaxError("bad", ("f", "1", "3", 4)),  # type: ignore[arg-type]
    "group": lambda: _Group("a group", [ValueError("inside")]),
    "base-group": lambda: BaseExceptionGroup("a group", [SystemExit(1), KeyboardInterrupt()]),
    "wide-group": lambda: ExceptionGroup("a group", [ValueError(str(n)) for n in range(10_000)]),
    "nested-group": _nested,
    "says-error": lambda: _Says(ValueError("no text")),
    "says-canceled": lambda: _Says(asyncio.CancelledError()),
    "says-exit": lambda: _Says(SystemExit(3)),
    "says-interrupt": lambda: _Says(KeyboardInterrupt()),
    "says-generator-exit": lambda: _Says(GeneratorExit()),
    "says-recursion": lambda: _Says(RecursionError()),
    "says-number": lambda: _Says(7),
    "says-none": lambda: _Says(None),
    "says-bytes": lambda: _Says(b"\xff"),
    "says-nothing": lambda: _Says(""),
    "says-text": lambda: _Says(_Text("peculiar")),
    "says-nul": lambda: _Says("a\x00b \ud800"),
    "says-escapes": lambda: _Says("\x1b]0;title\x07\x1b[2J\r\n"),
    "says-itself": lambda: ValueError(_Says(_Says("inner"))),
    "large": lambda: _Says("x" * 20_000_000),
    "many-arguments": lambda: ValueError(*range(100_000)),
    "nameless": lambda: _WithoutName("who"),
    "odd-name": lambda: _WithOddName("who"),
    "disguised": lambda: _Disguised("in disguise"),
    "untraceable": lambda: _Untraceable("where"),
    "causeless": lambda: _Causeless("why"),
    "caused": lambda: _caused(_Says(SystemExit(4))),
    "cycle": _cycle,
    "deep": _deep,
    "recursion": lambda: _raised(_endless),
    "notes-number": lambda: _noted(7),
    "notes-odd": lambda: _noted([_Says(SystemExit(2)), b"x", None]),
    "notes-many": lambda: _noted(["note"] * 100_000),
    "attribute": lambda: _raised(lambda: _Nowhere().missing),
    "unicode": lambda: _raised("\ud800".encode),
    "os-error": lambda: OSError(2, _Says("odd"), b"\xff\xfe"),
    "key": lambda: KeyError(_Says(SystemExit(1))),
    "import": lambda: ImportError(name=_Says(SystemExit(1))),  # type: ignore[arg-type]
    "mutable": lambda: _Mutable("neither"),
    "memory": MemoryError,
    "exit": lambda: SystemExit("enough"),
    "exit-code": lambda: SystemExit(0),
    "exit-odd": lambda: SystemExit(_Says(KeyboardInterrupt())),
    "generator-exit": GeneratorExit,
    "canceled": lambda: asyncio.CancelledError("by itself"),
    "future-canceled": concurrent.futures.CancelledError,
    "stop": lambda: StopIteration("no more"),
    "stop-async": lambda: StopAsyncIteration("no more"),
    "interrupt": KeyboardInterrupt,
    "timeout": lambda: TimeoutError("the other side did not answer"),
    "fatal-without-text": _FatalWithoutText,
}
#: One of each kind, for middleware and subscribers.
FEW = (
    *("plain", "own", "syntax", "group", "base-group", "says-canceled", "says-exit", "says-interrupt", "says-text"),
    *("says-nul", "nameless", "disguised", "untraceable", "cycle", "exit", "generator-exit", "canceled", "stop"),
    *("stop-async", "interrupt", "memory", "fatal-without-text"),
)
#: What some of them must be told with; of the others anything that helps.
_SAYS = {
    "plain": "plain",
    "own": "of its own kind",
    "syntax": "bad",
    "says-exit": "cannot say what it is",
    "disguised": "in disguise",
    "untraceable": "where",
    "causeless": "why",
    "caused": "caused",
    "exit": "enough",
    "cycle": "first",
    "timeout": "did not answer",
}
RAISING = Table()


def _declare(name: str, make: Callable[[], BaseException]) -> None:
    def act(ctx: Any) -> NoReturn:
        raise make()

    RAISING.way(*EVERYWHERE, name=name, says=_SAYS.get(name, ""))(act)


for _name, _make in ERRORS.items():
    _declare(_name, _make)


@RAISING.way()
def in_finally(ctx: Any) -> None:
    try:
        raise ValueError("first")
    finally:
        raise SystemExit("second")


@RAISING.way(outcome="failed")
def retry_once(ctx: Any) -> None:
    raise Retry("again", delay=0.0)


@RAISING.way(outcome="success")
def snooze_once_in_a_group(ctx: Any) -> None:
    if ctx.attempt == 1:
        raise _Group("a group", [BaseExceptionGroup("another", [Snooze(0.0)])])  # type: ignore[list-item]


@RAISING.way(says="two things")
def snooze_beside_another(ctx: Any) -> None:
    raise ExceptionGroup("two things", [Snooze(0.0), ValueError("a fault")])


@RAISING.way(*ASYNC, outcome="success")
async def snooze_once_in_a_task_group(ctx: Any) -> None:
    async def work() -> None:
        if ctx.attempt == 1:
            raise Snooze(0.0)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())


@RAISING.way(says="enough")
def fatal_in_a_group(ctx: Any) -> None:
    raise ExceptionGroup("a group", [Fatal("enough")])


@RAISING.way(outcome="success")
def snooze_once(ctx: Any) -> None:
    if ctx.attempt == 1:
        raise Snooze(0.0)


@RAISING.way(*THREAD, outcome="failed", says="StopIteration")
def leaks_a_stop(ctx: Any) -> Any:
    return next(iter(()))


@RAISING.way(*IN_THE_WORKER)
def same_instance(ctx: Any) -> NoReturn:
    raise _SHARED


_SHARED = ValueError("one for all, with an ever longer traceback")
