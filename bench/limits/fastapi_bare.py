"""A bare FastAPI handler that parses the same body and records nothing: `python -m bench.limits.fastapi_bare PORT`."""

from __future__ import annotations

import sys
from typing import Any
from uuid import uuid4

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["app"]

app = FastAPI()


class Body(BaseModel):
    """The same body, with as much checking as the framework does by itself."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)
    job_type: str
    payload: dict[str, Any] = {}
    idempotency_key: str | None = None


class Answer(BaseModel):
    """The same answer."""

    model_config = ConfigDict(alias_generator=to_camel)
    job_id: str
    status: str


@app.get("/readyz")
async def ready() -> dict[str, str]:
    """Up."""
    return {"status": "ok"}


@app.post("/jobs", status_code=202)
async def submit(body: Body) -> Answer:  # noqa: ARG001 - it does nothing
    """Parse and answer."""
    return Answer.model_validate({"jobId": str(uuid4()), "status": "PENDING"})


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="warning")
