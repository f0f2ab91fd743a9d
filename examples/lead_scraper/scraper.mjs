// The scraper in Node.js: `node examples/workers/worker.mjs examples/lead_scraper/scraper.mjs`.
// It does what scraper.py does, and each of them goes on where the other one stopped.

import { Failure } from '../workers/worker.mjs';

export default {
  'leads.scrape': async (job, ctx) => {
    for (let cursor = job.cursor ?? 0; cursor !== null; ) {
      const query = new URLSearchParams({ city: job.payload.city, cursor });
      const answer = await fetch(`${process.env.SITE_URL}/dentists?${query}`, { signal: ctx.signal });
      if (answer.status === 404) throw new Failure(`the site does not know ${job.payload.city}`, { kind: 'fatal' });
      if (!answer.ok) throw new Error(`the site answers ${answer.status}`);
      const { entries, next } = await answer.json();
      await ctx.items(entries.map((entry) => ({ key: entry.phone, data: entry })), { cursor: next });
      cursor = next;
    }
  },
};
