"""Log lines that cannot be written."""

from __future__ import annotations

import logging
import sys
from typing import Any, NoReturn

from tests.worker.ways.table import PROCESS, Table

__all__ = ["LOGGING"]

LOGGING = Table()
_fine = LOGGING.way(outcome="success")


class _Wordless:
    def __init__(self, fault: BaseException) -> None:
        self.fault = fault

    def __str__(self) -> NoReturn:
        raise self.fault

    __repr__ = __str__


class _Raising(logging.Handler):
    def __init__(self, fault: BaseException) -> None:
        super().__init__()
        self.fault = fault

    def handle(self, record: logging.LogRecord) -> NoReturn:
        raise self.fault


class _Refusing(logging.Filter):
    def filter(self, record: logging.LogRecord) -> NoReturn:
        raise RuntimeError("no line passes")


def _with(handler: logging.Handler, ctx: Any) -> None:
    logger = logging.getLogger("holdfast.job")
    logger.addHandler(handler)
    try:
        ctx.logger.warning("a line")
    finally:
        logger.removeHandler(handler)


@_fine
def wrong_type(ctx: Any) -> None:
    ctx.logger.warning("%d items", "x")


@_fine
def too_few(ctx: Any) -> None:
    ctx.logger.warning("%s and %s", 1)  # noqa: PLE1206


@_fine
def too_many(ctx: Any) -> None:
    ctx.logger.warning("nothing", 1, 2)  # noqa: PLE1205


@_fine
def no_text(ctx: Any) -> None:
    ctx.logger.warning(None)
    ctx.logger.warning(b"\xff")
    ctx.logger.warning({"a": 1}, {"b": 2})


@_fine
def wordless(ctx: Any) -> None:
    ctx.logger.warning("%s", _Wordless(ValueError("no")))
    ctx.logger.warning(_Wordless(ValueError("no")))


@LOGGING.way(says="cannot")
def wordless_exit(ctx: Any) -> None:
    ctx.logger.warning("%s", _Wordless(SystemExit("cannot")))


@_fine
def nul_and_surrogate(ctx: Any) -> None:
    ctx.logger.warning("a\x00b \ud800 \x1b[2J")


@_fine
def huge(ctx: Any) -> None:
    ctx.logger.warning("x" * 10_000_000)


@_fine
def many(ctx: Any) -> None:
    for number in range(500):
        ctx.logger.info("line %s", number)


@_fine
def with_an_error(ctx: Any) -> None:
    try:
        raise SyntaxError("bad", ("f", 1, 3, b"abc"))  # type: ignore[arg-type]
    except SyntaxError:
        ctx.logger.exception("as it happens")


@_fine
def odd_options(ctx: Any) -> None:
    ctx.logger.warning("x", exc_info=7, stack_info="yes")
    ctx.logger.warning("x", extra={"message": 1, "job_id": 2})


@_fine
def a_handler_that_raises(ctx: Any) -> None:
    _with(_Raising(ValueError("the sink is broken")), ctx)


@_fine
def a_filter_that_raises(ctx: Any) -> None:
    handler = logging.NullHandler()
    handler.addFilter(_Refusing())
    _with(handler, ctx)


@_fine
def a_handler_that_logs(ctx: Any) -> None:
    class Again(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            ctx.logger.warning("once more")
            return True

    _with(Again(), ctx)


@_fine
def a_level_of_its_own(ctx: Any) -> None:
    ctx.logger.log(7_000, "x")
    ctx.logger.log(-3, "x")


@LOGGING.way(says="not supported")
def a_level_that_is_none(ctx: Any) -> None:
    ctx.logger.log("loud", "x")


@LOGGING.way(*PROCESS, outcome="success")
def streams_closed(ctx: Any) -> None:
    sys.stdout.close()
    sys.stderr.close()
    ctx.logger.warning("a line")


@_fine
def disabled(ctx: Any) -> None:
    logging.disable(logging.CRITICAL)
    try:
        ctx.logger.warning("a line")
    finally:
        logging.disable(logging.NOTSET)
