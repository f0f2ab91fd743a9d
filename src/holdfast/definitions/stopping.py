"""Changes a pydantic schema so that validation stops at its first fault, without a call into Python until then.

pydantic collects the faults of all fields, each with its path, its message and a copy of the value. Here every field is
within a `default` schema with `on_error="default"`, whose default factory raises `Stop`. pydantic-core calls the
factory only for a fault or a missing value. It drops the faults that it has, and lets an exception that is not a
ValueError end the validation. Values that fit are the same as before: the added schemas only pass them on.

A fault ends the whole validation only where nothing can make up for it:

1. Choices of a union. A `custom-error` schema around each of them turns the end into the choice's only fault.
2. Functions around a validator (`WrapValidator`), which may catch a ValidationError and look at all its faults. What is
   within them is not changed; if a type that is referred to there ends the validation, they get a ValidationError.
3. Other exceptions of the author's code would be lost within a union. They are noted, and raised at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, cast

from pydantic_core import PydanticCustomError, PydanticOmit, PydanticUseDefault, SchemaValidator, ValidationError

from holdfast.definitions.core import (
    CONTAINERS,
    CORE_DEPTH,
    OBJECTS,
    PARTS,
    Core,
    has_default,
    in_trial_order,
    kind_of,
    parts_of,
)

__all__ = ["UNFIT", "Stop", "Stopped", "StoppingValidator", "Validation", "failing_fast"]

#: The type and the message of the only fault of a choice, or of a validator within a function.
UNFIT, _MESSAGE = "unfit", "does not fit"
#: Accepts every value, and does not count as a conversion.
_OBJECT: Core = {"type": "is-instance", "cls": object}


class Stop(Exception):
    """Ends a validation: pydantic takes a ValueError for a fault, and everything else for an end."""


class Stopped(NamedTuple):
    """A field whose value did not fit, or that was missing: the identity of its schema, which is 0 for the payload."""

    field: int
    name: str


class Validation:
    """What happened during one validation."""

    __slots__ = ("deferred", "error", "fits", "foreign", "stops", "value")

    def __init__(self) -> None:
        self.fits, self.value = False, None
        #: The faults that are not those of a field, if there are no others.
        self.error: ValidationError | None = None
        #: The fields whose values did not fit, from the inside out. Those within choices of unions come first.
        self.stops: list[Stopped] = []
        #: The first exception of the author's code that is not a fault.
        self.foreign: Exception | None = None
        #: Whether the author's code asked pydantic for a default, or to omit the value.
        self.deferred = False


class _Current(threading.local):
    run: Validation | None = None


class StoppingValidator:
    """A validator that accepts the same values as the schema does, and raises Stop or ValidationError for others."""

    def __init__(
        self, core: Core, definitions: Mapping[str, Core], *, config: Core | None = None, is_open: bool = False
    ) -> None:
        """Create it. Raises SchemaError, TypeError or RecursionError if pydantic cannot build it.

        `config`: that of the model around it. An open one raises ValidationError for faults that no field has.
        """
        self._definitions = definitions
        self._current = _Current()
        made = self._stopping(core, 0)
        inner = made["schema"] if made["type"] == "definitions" else made
        shared = made["definitions"] if made["type"] == "definitions" else ()
        inner = inner if is_open else _stopper(inner, partial(self._stop, Stopped(0, "")))
        whole = {"type": "definitions", "schema": inner, "definitions": shared} if shared else inner
        # By default nested models would use the validators that they already have.
        self._validator = SchemaValidator(whole, cast("Any", config), _use_prebuilt=False)

    def run(self, validate: Callable[[SchemaValidator], Any]) -> Validation:
        """Validate once. Raises only what is not a fault."""
        before, run = self._current.run, Validation()
        self._current.run = run  # for this thread only
        try:
            run.value = validate(self._validator)
            run.fits = True
        except ValidationError as error:
            run.error = error
        except Stop:
            pass
        finally:
            self._current.run = before
        return run

    def _stopping(self, part: Any, depth: int) -> Any:
        if depth > CORE_DEPTH:
            raise RecursionError
        if isinstance(part, list | tuple):  # a tuple is a choice of a union with its label
            return type(part)(self._stopping(one, depth + 1) for one in part)
        if not isinstance(part, Mapping):
            return part
        kind = part.get("type")
        if not isinstance(kind, str):
            return {name: self._stopping(one, depth + 1) for name, one in part.items()}
        if _is_wrapping(part):
            watched = self._watching_inner(part["function"]["function"])
            return {**part, "function": {**part["function"], "function": watched}}
        made = {name: self._stopping(one, depth + 1) if name in PARTS else one for name, one in part.items()}
        if kind in CONTAINERS:
            made["fail_fast"] = True
        elif kind in OBJECTS:
            self._stop_in_fields(part, made)
        elif kind == "union":
            ordered = in_trial_order(part, made["choices"], self._definitions)
            made["choices"] = [self._as_choice(choice) for choice in ordered]
        elif kind.startswith("function-") and not _is_of_pydantic(part["function"]["function"]):
            made["function"] = {**part["function"], "function": self._watching(part["function"]["function"])}
        return made

    def _stop_in_fields(self, core: Core, made: dict[str, Any]) -> None:
        """Stop at the first field that does not fit, or that is missing."""
        where = "arguments_schema" if core["type"] == "arguments" else "fields"
        given, copied = core[where], made[where]
        for place in given if isinstance(given, Mapping) else range(len(given)):
            field = copied[place] = dict(copied[place])
            is_optional = not field.get("required", core.get("total", True))
            if field.get("init", True) is False:
                continue
            if given[place]["schema"]["type"] == "default" or not has_default(
                given[place]["schema"], self._definitions
            ):
                name = given[place].get("name", place)
                stop = partial(self._stop, Stopped(id(given[place]), str(name)))
                field["schema"] = self._in_default(field["schema"], stop)
                if core["type"] == "typed-dict" and field["schema"]["type"] == "default":
                    if is_optional and given[place]["schema"]["type"] != "default":
                        field["schema"] = self._shield(field["schema"])
                    field["required"] = False
        for extras in ("extras_schema", "extras_keys_schema"):
            if made.get(extras) is not None:
                made[extras] = _stopper(made[extras], partial(self._stop, Stopped(id(core), "*")))

    def _in_default(self, core: Core, stop: Callable[[], NoReturn]) -> Core:
        if core["type"] != "default":
            return _stopper(core, stop)
        if core.get("on_error", "raise") != "raise":
            return core
        return {**core, "schema": self._in_default(core["schema"], stop)}

    @staticmethod
    def _shield(core: Core) -> Core:
        """The same schema, but without a default: pydantic must not ask for one where the field is missing."""
        return {"type": "chain", "steps": [core, _OBJECT]}

    @staticmethod
    def _as_choice(choice: Any) -> Any:
        core, *label = choice if isinstance(choice, tuple) else (choice,)
        if not _may_stop(core, 0):
            return choice
        bounded = {
            "type": "custom-error",
            "schema": core,
            "custom_error_type": UNFIT,
            "custom_error_message": _MESSAGE,
        }
        return (bounded, *label) if label else bounded

    def _stop(self, field: Stopped) -> NoReturn:
        if self._current.run is not None:
            self._current.run.stops.append(field)
        raise Stop

    def _watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except (ValueError, AssertionError, Stop):
                raise
            except (PydanticOmit, PydanticUseDefault):
                if self._current.run is not None:
                    self._current.run.deferred = True
                raise
            except Exception as fault:
                if self._current.run is not None and self._current.run.foreign is None:
                    self._current.run.foreign = fault
                raise

        return watched

    def _watching_inner(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(value: Any, handler: Callable[..., Any], *info: Any) -> Any:
            def inner(*arguments: Any) -> Any:
                try:
                    return handler(*arguments)
                except Stop:
                    unfit: Any = {"type": PydanticCustomError(UNFIT, _MESSAGE), "input": None}
                    raise ValidationError.from_exception_data("payload", [unfit]) from None

            return function(value, inner, *info)

        return self._watching(watched)


def failing_fast(part: Any, depth: int = 0) -> Any:
    """The same schema, in which lists, dicts, sets and tuples stop at their first bad item. Fields do not."""
    if depth > CORE_DEPTH:
        raise RecursionError
    if isinstance(part, list | tuple):
        return type(part)(failing_fast(one, depth + 1) for one in part)
    if not isinstance(part, Mapping):
        return part
    if kind_of(part) is None:
        return {name: failing_fast(one, depth + 1) for name, one in part.items()}
    if _is_wrapping(part):
        return part
    made = {name: failing_fast(one, depth + 1) if name in PARTS else one for name, one in part.items()}
    return {**made, "fail_fast": True} if part["type"] in CONTAINERS else made


def _stopper(core: Core, stop: Callable[[], NoReturn]) -> dict[str, Any]:
    return {"type": "default", "schema": core, "on_error": "default", "default_factory": stop}


def _may_stop(core: Any, depth: int) -> bool:
    """Whether an object is within it."""
    if isinstance(core, list | tuple):
        return any(_may_stop(one, depth + 1) for one in core)
    if not isinstance(core, Mapping):
        return False
    if depth > CORE_DEPTH or kind_of(core) in OBJECTS or kind_of(core) == "definition-ref":
        return True
    return any(_may_stop(one, depth + 1) for one in parts_of(core))


def _is_wrapping(core: Core) -> bool:
    """Whether it is a function of the author's around a validator: it may look at all faults."""
    return core.get("type") == "function-wrap" and not _is_of_pydantic(core["function"]["function"])


def _is_of_pydantic(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "pydantic"
