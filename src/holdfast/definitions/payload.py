"""Payloads, typed by a handler's annotations: checked when enqueued and again when run.

A handler takes `ctx` and then either one payload (a pydantic model, a dataclass, a TypedDict or a plain
dict) or keyword arguments. Both become one pydantic validator; in the database a payload is a JSON object.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic_core import PydanticSerializationError, from_json

from holdfast.definitions.arriving import Arriving
from holdfast.definitions.core import init_only_fields
from holdfast.definitions.first_fault import FirstFault, Unfit
from holdfast.definitions.json_text import (
    JsonText,
    may_have_lost_keys,
    refuse_lost_keys,
    refuse_lost_numbers,
    refuse_repeated_keys,
    storable,
    unwritable,
)
from holdfast.definitions.judge import Fault, faults_found
from holdfast.definitions.keys import may_repeat_keys
from holdfast.definitions.paths import fields_instead
from holdfast.definitions.patterns import validator_of
from holdfast.definitions.same_call import is_same
from holdfast.definitions.shape import describe
from holdfast.definitions.writing import LostField, serializer_of
from holdfast.errors import InvalidInput, InvalidPayload
from holdfast.model.foreign import message_of, name_of

__all__ = ["Payload"]

#: How pydantic writes a SecretStr.
_MASKED = '"**********"'

#: Types whose values JSON represents exactly. A float is not one of them: JSON has no infinity.
_PLAIN = (str, int, bool)
_NO_FLOATS = (*_PLAIN, str | None, int | None, bool | None)


class Payload:
    """How the payload of one handler is checked, written and read."""

    #: How often a part of a payload is looked at: see holdfast.definitions.judge.
    weight = 1

    def __init__(self, job_type: str, handler: Callable[..., Any]) -> None:
        self._job_type, self._what = job_type, f"the payload of {job_type}"
        parameters = list(inspect.signature(handler).parameters.values())[1:]
        hints = _hints(job_type, handler, [p.name for p in parameters])
        self._names: list[str] | None = None
        self._single: str | None = None
        # pydantic accepts instances of models and dataclasses without checking their fields. Only a payload that was
        # written and read again will certainly be accepted by the handler, too.
        self._reread = not all(hints.get(p.name) in _PLAIN and p.default is p.empty for p in parameters)
        self._may_have_floats = not all(hints.get(p.name) in _NO_FLOATS for p in parameters)
        if len(parameters) == 1 and _is_whole(hints.get(parameters[0].name), parameters[0].name):
            self._single = parameters[0].name
            annotation = hints.get(self._single, dict[str, Any])
            self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        else:
            self._names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
            open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
            fields: dict[str, Any] = {
                p.name: (hints.get(p.name, Any), ... if p.default is p.empty else p.default)
                for p in parameters
                if p.name in self._names
            }
            model = create_model(
                f"{job_type} payload",
                __config__=ConfigDict(
                    extra="allow" if open_ended else "forbid", arbitrary_types_allowed=True, protected_namespaces=()
                ),
                **fields,
            )
            self._adapter = TypeAdapter(model)
        try:
            self._serializer = serializer_of(self._adapter.core_schema, self._adapter.serializer)
        except LostField as fault:
            raise InvalidInput(f"job type {job_type!r}: {fault}") from None
        self._may_repeat_keys = may_repeat_keys(self._adapter.core_schema, own=self._names is not None)
        self._arriving = Arriving(self._adapter.core_schema, own=self._names is not None)
        self._may_lose = self._arriving.may_lose
        if (lost := next(init_only_fields(self._adapter.core_schema), None)) is not None:
            raise InvalidInput(
                f"job type {job_type!r}: {lost} is an InitVar, which a dataclass does not keep; it would be lost: "
                "make it a field, or compute what depends on it before the job is enqueued"
            )

    def schema(self) -> dict[str, Any] | None:
        """The payload's JSON schema, for information; None if a type has none."""
        try:
            return self._adapter.json_schema()
        except Exception:  # noqa: BLE001 - foreign types may fail in any way, and a schema is a courtesy
            return None

    def shape(self) -> dict[str, Any] | None:
        """The shape by which others judge payloads; None if it cannot be described: then everything is accepted."""
        return describe(self._adapter.core_schema)

    def faults(self, text: str) -> list[Fault]:
        """The faults of a payload from outside; empty if the handler accepts it."""
        try:
            return faults_found(self._validator, text)
        except Exception as fault:  # noqa: BLE001 - types may have code of their own
            return [Fault("", f"{name_of(fault)}: {message_of(fault)}")]

    def refuse_missing(self, what: str, path: str) -> None:
        """Raise InvalidInput if, by its type, no payload can have a field of this (dotted) name."""
        known = fields_instead(self.schema() or {}, path)
        if known is not None:
            raise InvalidInput(
                f"job type {self._job_type!r}: the key of its {what} is not a field of the payload: "
                f"{path!r}; {'it has ' + ', '.join(known) if known else 'it has none'}"
            )

    def encode(self, value: Any) -> str:
        """Check a payload (or the keyword arguments as a mapping) and write it as JSON text."""
        try:
            checked = self._validator.check(from_json(value) if type(value) is JsonText else value)
            written = self._serializer.to_json(checked, by_alias=True, round_trip=True, warnings="none")
            text = written.decode()
            if self._may_repeat_keys:
                refuse_repeated_keys(written, self._what)
            if self._may_have_floats and "null" in text:
                refuse_lost_numbers(self._left(checked), text, self._what)
            if may_have_lost_keys(text):
                refuse_lost_keys(self._left(checked), self._what)
            if self._reread:
                read = self._validator.validate(text)
                if self._may_lose and type(value) not in self._arriving.whole:
                    self._refuse_lost(checked, read)
        except (ValidationError, Unfit) as fault:
            raise InvalidPayload(f"{self._job_type}: {_readable(fault)}") from None
        except (PydanticSerializationError, UnicodeEncodeError) as fault:
            raise InvalidPayload(
                f"{self._job_type}: the payload cannot be written as JSON: {unwritable(fault)}"
            ) from None
        if _MASKED in text:
            raise InvalidPayload(
                f"{self._job_type}: a secret would be stored as asterisks; use str, or give the field a serializer"
            )
        if not text.startswith("{"):
            raise InvalidPayload(f"{self._job_type}: the payload must be an object, not {text[:40]}")
        return storable(text, self._what)

    def _refuse_lost(self, given: Any, read: Any) -> None:
        if (lost := self._arriving.lost(given, read)) is not None:
            raise Unfit(lost.why, lost.place)

    def _left(self, checked: Any) -> Any:
        """What is written, as Python values."""
        return self._serializer.to_python(checked, by_alias=True, round_trip=True, warnings="none")

    def is_same(self, stored: str, given: str) -> bool:
        """Whether two payloads are the same call of the handler, as it is declared now."""
        try:
            return is_same(self._validator.validate(stored), self._validator.validate(given))
        except Exception:  # noqa: BLE001 - types may have code of their own
            return False

    def bind(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """The arguments of `handler.enqueue(...)` as one payload."""
        if self._single is not None:
            if len(arguments) == 1 and not keywords:
                return arguments[0]
            if not arguments and set(keywords) == {self._single}:
                return keywords[self._single]
            if not arguments:
                return dict(keywords)
            raise InvalidPayload(f"{self._job_type} takes one payload")
        names = self._names or []
        if len(arguments) > len(names):
            raise InvalidPayload(f"{self._job_type} takes at most {len(names)} arguments, got {len(arguments)}")
        return {**dict(zip(names, arguments, strict=False)), **keywords}

    def call_arguments(self, text: str) -> dict[str, Any]:
        """Read a stored payload and convert it to the handler's keyword arguments."""
        try:
            value = self._validator.validate(text)
        except (ValidationError, Unfit) as fault:
            raise InvalidPayload(
                f"the stored payload does not fit the handler of {self._job_type}: {_readable(fault)}"
            ) from None
        except Exception as fault:
            raise InvalidPayload(
                f"the stored payload cannot be read by the handler of {self._job_type}: {type(fault).__name__}: {fault}"
            ) from fault
        if self._single is not None:
            return {self._single: value}
        arguments = {name: getattr(value, name) for name in self._names or []}
        return arguments | value.model_extra if value.model_extra else arguments

    @cached_property
    def _validator(self) -> FirstFault:
        """The validator for payloads from outside."""
        return validator_of(self._adapter.core_schema, self._adapter.validator)


def _hints(job_type: str, handler: Callable[..., Any], names: list[str]) -> dict[str, Any]:
    """The annotations of the payload's parameters. Others may be resolvable only for type checkers."""
    function = inspect.unwrap(handler)
    annotations = {n: h for n, h in getattr(function, "__annotations__", {}).items() if n in names}
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations),
            globalns=getattr(function, "__globals__", {}),
            include_extras=True,
        )
    except NameError as fault:
        raise InvalidInput(f"job type {job_type!r}: the annotation {fault.name!r} cannot be resolved") from None


def _is_whole(annotation: Any, name: str) -> bool:
    """Whether a single parameter is the whole payload."""
    if annotation is None or annotation is inspect.Parameter.empty or annotation is Any:
        return name == "payload"
    kind = get_origin(annotation) or annotation
    return bool(
        is_typeddict(kind)
        or dataclasses.is_dataclass(kind)
        or (isinstance(kind, type) and (issubclass(kind, BaseModel | dict) or kind is Mapping))
    )


def _readable(fault: ValidationError | Unfit) -> str:
    """One line for people: the place and the fault."""
    if isinstance(fault, Unfit):
        return f"{_dotted(fault.place)}: {fault}"
    found = fault.errors(include_url=False, include_context=False, include_input=False)[:5]
    return "; ".join(f"{_dotted(one['loc'])}: {one['msg']}" for one in found)


def _dotted(place: Sequence[str | int]) -> str:
    return ".".join(map(str, place)) or "payload"
