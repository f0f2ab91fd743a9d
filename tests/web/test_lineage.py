"""`/ops/correlations/{id}` and `/ops/jobs/{id}/tree`: whole families, page by page, within the caller's tenant."""

from __future__ import annotations

import httpx

from holdfast import Holdfast
from tests.web.conftest import KeyMaker


async def test_a_user_action_is_traced_across_its_jobs(hf: Holdfast, client: httpx.AsyncClient) -> None:
    order = await hf.enqueue("order", {}, correlation_id="shop/7 ü")
    mail = await hf.enqueue("mail", {}, parent=order.id)
    url = "/ops/correlations/shop%2F7%20%C3%BC"
    found = (await client.get(url)).json()
    assert [job["id"] for job in found["items"]] == [str(order.id), str(mail.id)]
    assert found["next_cursor"] is None
    first = (await client.get(url, params={"limit": 1})).json()
    rest = (await client.get(url, params={"limit": 1, "cursor": first["next_cursor"]})).json()
    assert [page["items"][0]["id"] for page in (first, rest)] == [str(order.id), str(mail.id)]
    assert (await client.get("/ops/correlations/unknown")).json() == {"items": [], "next_cursor": None}


async def test_a_tree_names_each_jobs_depth(hf: Holdfast, client: httpx.AsyncClient) -> None:
    order = await hf.enqueue("order", {})
    mail = await hf.enqueue("mail", {}, parent=order.id)
    receipt = await hf.enqueue("receipt", {}, parent=mail.id)
    tree = (await client.get(f"/ops/jobs/{mail.id}/tree")).json()
    assert [(job["id"], job["depth"]) for job in tree["items"]] == [
        (str(order.id), -1), (str(mail.id), 0), (str(receipt.id), 1),
    ]  # fmt: skip
    assert tree["complete"]
    assert not (await client.get(f"/ops/jobs/{order.id}/tree", params={"limit": 2})).json()["complete"]


async def test_families_of_other_tenants_are_unknown(hf: Holdfast, client: httpx.AsyncClient, key: KeyMaker) -> None:
    order = await hf.enqueue("order", {}, tenant="acme", correlation_id="x")
    theirs, others = await key("operate", tenant="acme"), await key("operate", tenant="zeta")
    assert (await client.get(f"/ops/jobs/{order.id}/tree", headers=others)).status_code == 404
    assert (await client.get("/ops/correlations/x", headers=others)).json()["items"] == []
    assert (await client.get(f"/ops/jobs/{order.id}/tree", headers=theirs)).status_code == 200
    assert len((await client.get("/ops/correlations/x", headers=theirs)).json()["items"]) == 1
