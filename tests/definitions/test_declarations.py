"""A declaration that cannot be meant is refused at once, with what to do."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import pytest

from holdfast import Context, Holdfast, InvalidInput, SyncContext

hf = Holdfast("postgresql://nobody@127.0.0.1:1/none")


class HasJob(Protocol):
    job_id: Any


async def named(ctx: Context) -> None: ...
async def blocking(ctx: SyncContext) -> None: ...
async def unannotated(ctx) -> None: ...  # type: ignore[no-untyped-def]
async def anything(ctx: Any) -> None: ...
async def described(ctx: HasJob) -> None: ...
async def forgotten(to: str) -> None: ...


@pytest.mark.parametrize("function", [named, blocking, unannotated, anything, described])
def test_contexts_are_taken_however_they_are_annotated(function: Any) -> None:
    hf.job(f"declared.{function.__name__}")(function)


def test_a_forgotten_context_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the first parameter is the context, but 'to' is a str"):
        hf.job("forgotten")(forgotten)  # type: ignore[type-var]


class Callable:
    def __call__(self, ctx: Context) -> None: ...


def generator(ctx: Context) -> Any:
    yield 1


async def async_generator(ctx: Context) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("handler", "fault"),
    [
        (functools.partial(anything), "a handler must be a function, not functools.partial"),
        (Callable(), "a handler must be a function, not <"),
        (Callable, "a handler must be a function, not <class"),
        (7, "a handler must be a function, not 7"),
        (generator, "must not be a generator function"),
        (async_generator, "must not be a generator function"),
    ],
)
def test_what_is_not_a_function_that_returns_is_refused(handler: Any, fault: str) -> None:
    with pytest.raises(InvalidInput, match=fault):
        hf.job("unfit")(handler)


def test_forgotten_parentheses_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a job type needs a name"):
        hf.job(named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"retry": 5}, r"RetryPolicy\(max_attempts=5\)"),
        ({"timeout": "5"}, "timeout must be a number of seconds"),
        ({"timeout": 0}, "timeout must be a number of seconds"),
        ({"lease": True}, "lease must be a number of seconds"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidInput, match=fault):
        hf.job("wrong", **options)(named)


def test_two_handlers_of_one_type_are_named_with_file_and_line() -> None:
    hf.job("declared.twice")(named)
    with pytest.raises(InvalidInput) as fault:
        hf.job("declared.twice")(anything)
    first, second = (f"{f.__name__} ({__file__}:{f.__code__.co_firstlineno})" for f in (named, anything))
    assert str(fault.value) == f"job type 'declared.twice' is declared twice: {first} and {second}"
