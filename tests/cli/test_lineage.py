"""`holdfast correlation` and `holdfast jobs tree`."""

from __future__ import annotations

import json

from holdfast import Holdfast
from tests.cli.conftest import Cli


async def test_jobs_of_a_correlation_are_listed_oldest_first(cli: Cli, hf: Holdfast) -> None:
    jobs = [await hf.enqueue("add", {}, correlation_id="order 7") for _ in range(3)]
    found = json.loads((await cli("correlation", "order 7", "-o", "json")).stdout)
    assert [job["id"] for job in found] == [str(job.id) for job in jobs]
    assert len((await cli("correlation", "order 7", "--limit", 2, "-o", "ndjson")).stdout.splitlines()) == 2
    assert "no job has the correlation id nothing" in (await cli("correlation", "nothing", code=3)).stderr


async def test_a_tree_is_indented_and_marks_the_job_that_was_asked_for(cli: Cli, hf: Holdfast) -> None:
    order = await hf.enqueue("order", {})
    mail = await hf.enqueue("mail", {}, parent=order.id)
    receipt = await hf.enqueue("receipt", {}, parent=mail.id)
    lines = (await cli("jobs", "tree", mail.id)).stdout.splitlines()
    assert lines == [f"{order.id}  order  queued", f"  {mail.id}  mail  queued <", f"    {receipt.id}  receipt  queued"]
    cut = await cli("jobs", "tree", order.id, "--limit", 2)
    assert "and more: these are the first 2" in cut.stderr
    depths = [job["depth"] for job in json.loads((await cli("jobs", "tree", mail.id, "-o", "json")).stdout)]
    assert depths == [-1, 0, 1]
