"""`/problems/{code}`: what a problem means and what to do, on the page that its `type` names."""

from __future__ import annotations

import html
from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from holdfast.web.problems import CATALOGUE, Problem

__all__ = ["pages_router"]

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{code}</title>
<h1>{code}</h1>
<p>{status} {phrase}</p>
<p>{text}</p>
</html>
"""


def pages_router() -> APIRouter:
    """One page per code."""
    router = APIRouter(tags=["problems"])

    @router.get("/problems/{code}", summary="What a problem means", response_class=HTMLResponse)
    async def problem(code: str) -> HTMLResponse:
        if code not in CATALOGUE:
            raise Problem(404, "not-found", "There is no such problem.")
        status, text = CATALOGUE[code]
        page = _PAGE.format(code=code, status=status, phrase=HTTPStatus(status).phrase, text=html.escape(text))
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'none'"})

    return router
