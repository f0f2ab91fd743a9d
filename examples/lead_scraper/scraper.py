"""The scraper in Python: `python -m holdfast.remote examples.lead_scraper.scraper:worker`. It never sees the database.

Every page is stored together with the cursor of the next one. So whoever takes the job over, in whichever language,
goes on with the page that was not stored yet.
"""

from __future__ import annotations

import os

import httpx

from holdfast import Context, Fatal
from holdfast.remote import RemoteWorker

worker = RemoteWorker(slots=1)


@worker.job("leads.scrape")
async def scrape(ctx: Context, city: str) -> None:
    """Store the dentists of a city: as many as the job wants, or all that there are."""
    cursor = ctx.cursor or 0
    async with httpx.AsyncClient(base_url=os.environ["SITE_URL"]) as site:
        while cursor is not None:
            answer = await site.get("/dentists", params={"city": city, "cursor": cursor})
            if answer.status_code == 404:
                raise Fatal(f"the site does not know {city}")
            page = answer.raise_for_status().json()
            found = [{"key": entry["phone"], "data": entry} for entry in page["entries"]]
            if (await ctx.items(found, cursor=page["next"])).target_reached:
                return
            cursor = page["next"]
