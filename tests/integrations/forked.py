"""A Flask application that has already enqueued when gunicorn forks it."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, jsonify

from holdfast import Context
from holdfast.integrations.flask import FlaskHoldfast

app = Flask(__name__)
hf = FlaskHoldfast(app)


@hf.job("note")
async def note(ctx: Context, number: int) -> None: ...


@app.post("/notes/<int:number>")  # type: ignore[untyped-decorator]
def take(number: int) -> Any:
    return jsonify(job=str(note.sync.enqueue(number).id), pid=os.getpid()), 202


hf.sync.enqueue("note", {"number": -1})
