"""A Flask application made by a factory, with a table of its own."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, current_app, jsonify, request
from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker

from holdfast import Context
from holdfast.integrations.flask import FlaskHoldfast

hf = FlaskHoldfast()
session = scoped_session(sessionmaker())
#: What the application took down, in order.
torn_down: list[str] = []


@hf.job("confirm")
def confirm(ctx: Context, number: int) -> str:
    session.execute(text("update orders set confirmed = true where number = :n"), {"n": number})
    session.commit()
    return f"{current_app.config['GREETING']} {number}"


@hf.job("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"{current_app.config['GREETING']} {name}"


@hf.job("square", executor="process")
def square(ctx: Context, number: int) -> dict[str, Any]:
    return {"greeting": current_app.config["GREETING"], "square": number**2}


def create_app() -> Flask:
    url = os.environ["SHOP_DATABASE_URL"]
    app = Flask(__name__)
    app.config.update(HOLDFAST_DATABASE_URL=url, GREETING="hello", HOLDFAST_POLL_INTERVAL=0.1)
    hf.init_app(app)
    session.configure(bind=create_engine(url.replace("postgresql://", "postgresql+psycopg://")))

    @app.teardown_appcontext  # type: ignore[untyped-decorator]
    def close(error: BaseException | None) -> None:
        session.remove()
        torn_down.append("session")

    @app.post("/orders/<int:number>")  # type: ignore[untyped-decorator]
    def place(number: int) -> Any:
        ref = confirm.options(conn=session).sync.enqueue(number)
        session.execute(text("insert into orders (number) values (:n)"), {"n": number})
        if request.args.get("fail"):
            raise ValueError("no order today")
        session.commit()
        return jsonify(job=str(ref.id)), 202

    @app.post("/greet/<name>")  # type: ignore[untyped-decorator]
    def greeting(name: str) -> Any:
        return jsonify(job=str(greet.sync.enqueue(name).id)), 202

    return app
