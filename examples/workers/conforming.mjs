// The handlers that `holdfast conform` tries: holdfast conform -- node worker.mjs conforming.mjs

import { setTimeout as sleep } from 'node:timers/promises';
import { Failure } from './worker.mjs';

export default {
  'conform.echo': async (job) => job.payload,

  'conform.items': async (job, ctx) => {
    const { count, page } = job.payload;
    for (let start = job.cursor ?? 0; start < count; start += page) {
      const end = Math.min(start + page, count);
      const found = [];
      for (let n = start; n < end; n++) found.push({ key: `item-${n}`, data: { n } });
      await ctx.items(found, { cursor: end });
    }
  },

  'conform.slow': (job, ctx) => sleep(job.payload.seconds * 1000, null, { signal: ctx.signal }),

  'conform.fail': async (job) => {
    throw new Failure(job.payload.message, { kind: job.payload.kind });
  },
};
