"""Results that cannot be stored, or that do something when they are written."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections import UserDict, deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, model_serializer

from tests.worker.ways.table import EVERYWHERE, Table

__all__ = ["RETURNING"]


class _Model(BaseModel):
    how: str

    @model_serializer
    def write(self) -> Any:
        match self.how:
            case "raises":
                raise ValueError("not for you")
            case "exits":
                raise SystemExit(3)
            case "interrupts":
                raise KeyboardInterrupt
            case "recurses":
                return self.write()
            case "itself":
                return self
            case _:
                return object()


class _Dict(dict[Any, Any]):
    def items(self) -> NoReturn:
        raise RuntimeError("no items")

    __iter__ = keys = values = items


class _Text(str):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")

    encode = __str__  # type: ignore[assignment]


class _Number(int):
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no digits")

    __str__ = __repr__


@dataclasses.dataclass
class _Data:
    value: Any

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise RuntimeError("no value")
        return object.__getattribute__(self, name)


class _Colour(enum.Enum):
    RED = object()


async def _never() -> None: ...


def _cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _coroutine() -> Any:
    work = _never()
    work.close()  # or it would warn, at a moment of its own choice
    return work


def _failing() -> Any:
    yield 1
    raise ValueError("half-way")


def _exiting() -> Any:
    yield 1
    raise SystemExit(2)


def _endless() -> Any:
    while True:
        yield "x" * 1000


#: What is refused, for good: no retry would help.
_REFUSED: dict[str, Callable[[], Any]] = {
    "object": object,
    "function": lambda: _never,
    "class": lambda: dict,
    "module": lambda: math,
    "coroutine": _coroutine,
    "cyclic": _cyclic,
    "cyclic-dict": lambda: (d := {}, d.update(d=d))[0],  # type: ignore[var-annotated]
    "deep": lambda: _deep(100_000),
    "nul": lambda: "a\x00b",
    "nul-key": lambda: {"\x00": 1},
    "surrogate": lambda: "\ud800",
    "surrogate-key": lambda: {"\ud800": 1},
    "bytes": lambda: b"\xff\xfe",
    "bytearray": lambda: bytearray(b"\xff"),
    "long-number": lambda: 10**5000,
    "large": lambda: "x" * 5_000_000,
    "large-list": lambda: [1e300] * 300_000,
    "large-escapes": lambda: "\x01" * 1_000_000,
    "model-raises": lambda: _Model(how="raises"),
    "model-exits": lambda: _Model(how="exits"),
    "model-interrupts": lambda: _Model(how="interrupts"),
    "model-recurses": lambda: _Model(how="recurses"),
    "model-itself": lambda: _Model(how="itself"),
    "model-object": lambda: _Model(how="object"),
    "enum-object": lambda: _Colour.RED,
    "exception": lambda: ValueError("returned, not raised"),
    "generator": lambda: (n for n in range(3)),
    "generator-fails": _failing,
    "generator-exits": _exiting,
    "generator-endless": _endless,
    "map": lambda: map(str, [1]),
    "count": itertools.count,
    "complex": lambda: [object(), {"a": object()}],
    "key-object": lambda: {object(): 1},
    "memory": lambda: memoryview(b"x"),
    "user-dict": lambda: UserDict(a=1),
    "not-implemented": lambda: NotImplemented,
    "ellipsis": lambda: ...,
    "nan": lambda: math.nan,
    "infinity": lambda: [-0.0, {"a": (math.inf,)}],
}
#: What is stored, if in another form.
_STORED: dict[str, Callable[[], Any]] = {
    "set": lambda: {1},
    "deque": lambda: deque([1]),
    "text-subclass": lambda: _Text("peculiar"),
    "number-subclass": lambda: _Number(7),
    "path": lambda: Path("a/b"),
    "duration": lambda: timedelta(days=-999_999_999),
    "key-number": lambda: {1: 2, 1.5: 4},
    "empty-keys": lambda: {"": {"": {"": ""}}},
    "bool": lambda: False,
}
RETURNING = Table()


def _declare(name: str, make: Callable[[], Any], outcome: str, says: str) -> None:
    RETURNING.way(*EVERYWHERE, name=name, outcome=outcome, says=says)(lambda ctx: make())


for _name, _make in _REFUSED.items():
    _declare(_name, _make, "failed", "the result")
for _name, _make in _STORED.items():
    _declare(_name, _make, "success", "")


@RETURNING.way(says="the result")
def set_and_not_returned(ctx: Any) -> None:
    ctx.result = object()


@RETURNING.way(outcome="success")
def odd_dict(ctx: Any) -> Any:
    return _Dict(a=1)


@RETURNING.way(says="no value")
def odd_data(ctx: Any) -> Any:
    return _Data(1)
