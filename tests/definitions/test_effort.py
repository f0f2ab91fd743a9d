"""Judging how much work a payload would be takes little work itself."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypeAliasType

from holdfast.definitions.first_fault import FirstFault, Unfit


def _brackets(levels: int) -> Any:
    return [_brackets(levels - 1)] if levels else 5


class Both(BaseModel):
    kind: str = "a"
    inner: list[Tree] = []


class Other(BaseModel):
    name: str = "a"
    inner: list[Tree] = []


Tree = TypeAliasType("Tree", "Both | Other | list[Tree] | tuple[Tree, ...] | str | int | None")


@pytest.mark.parametrize(
    ("value", "is_accepted"),
    [
        ([[]] * 190_000, True),
        ([[number] for number in range(90_000)], True),
        ([[[[[[[[number]]]]]]] for number in range(40_000)], True),
        ([{"inner": [{"inner": [{"inner": [number]}]}]} for number in range(20_000)], None),
        ([{str(number): [{}]} for number in range(50_000)], None),
        (_brackets(150), True),
    ],
    ids=["empty", "numbers", "deep", "objects", "names", "chain"],
)
def test_the_estimate_of_the_effort_itself_takes_little_time(value: Any, is_accepted: bool | None) -> None:
    validator, text = FirstFault(TypeAdapter(Tree).core_schema), json.dumps(value)
    validator.validate("[]")
    began = time.process_time()
    with suppress(Unfit):
        validator._bound_text(text)
    assert time.process_time() - began < 0.8  # 0.2 s on a quiet machine; one look at each took 3 s and more
    if is_accepted:
        validator.validate(text)
