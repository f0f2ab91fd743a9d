"""What the shapes of the operators' side are made of: how bodies are read and answers are written."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from holdfast.web.control.schemas import Words

__all__ = ["Asked", "Note", "Shown"]


class Shown(BaseModel):
    """A part of an answer, made from a value of the model."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class Asked(BaseModel):
    """A body, in which nothing may be unknown or of another kind."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Note(Asked):
    """Why, for other operators."""

    note: Words | None = None
