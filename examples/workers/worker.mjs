// A remote worker for Holdfast in Node.js (18 or newer), without dependencies. See docs/protocol.md.
//
//   HOLDFAST_URL=http://localhost:8080 HOLDFAST_KEY=hf_… node worker.mjs handlers.mjs
//
// handlers.mjs exports, as its default, an object of job types and their handlers: {'email.send': async (job, ctx) => …}.
// `job` is what the pull answered (payload, attempt, cursor, …). What a handler returns is the job's result, what it
// throws fails the job: `throw new Failure('no such address', {kind: 'fatal'})`. `ctx.items([{key, data}], {cursor})`
// and `ctx.progress(count, {cursor})` report; they throw once the job has ended, or is another worker's. `ctx.signal`
// is aborted when the handler should stop: pass it to fetch and timers.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const AGAIN = [408, 429, 500, 502, 503, 504];
const WAIT_SEC = 20;

export class Failure extends Error {
  constructor(message, { kind = 'retryable', delay_sec, circuit } = {}) {
    super(message);
    Object.assign(this, { kind, delay_sec, circuit });
  }
}

class Refused extends Error {} // the server has answered, and will not answer anything else
class Stopped extends Error {} // the job has ended, or is another worker's

export class Worker {
  constructor(handlers, { url = process.env.HOLDFAST_URL, key = process.env.HOLDFAST_KEY, slots = 4, patience = 120 } = {}) {
    Object.assign(this, { handlers, key, slots, patience, url: url.replace(/\/$/, ''), running: new Map() });
    this.id = `${hostname().replace(/[^!-~]/g, '')}-${process.pid}-${randomUUID().slice(0, 8)}`;
    this.draining = new AbortController();
  }

  // One call, repeated until the server has answered it. Every call of the protocol may be repeated.
  async call(verb, body, { signal, wait = 0 } = {}) {
    const end = Date.now() + this.patience * 1000;
    for (let pause = 200; ; pause = Math.min(pause * 2, 5000)) {
      let told = 0;
      try {
        const timeout = AbortSignal.timeout((10 + wait) * 1000);
        const answer = await fetch(`${this.url}/worker/${verb}`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', ...(this.key && { Authorization: `Bearer ${this.key}` }) },
          body: JSON.stringify({ worker_id: this.id, ...body }),
          signal: signal ? anyOf(signal, timeout) : timeout,
        });
        if (answer.ok) return await answer.json();
        const problem = await answer.json().catch(() => ({}));
        if (!AGAIN.includes(answer.status)) throw Object.assign(new Refused(problem.detail ?? `HTTP ${answer.status}`), { problem, status: answer.status });
        told = 1000 * (Number(answer.headers.get('retry-after')) || 0);
      } catch (error) {
        if (error instanceof Refused || signal?.aborted) throw error;
      }
      const rest = Math.max(told, pause * (0.5 + Math.random() / 2));
      if (Date.now() + rest > end) throw new Error(`${this.url} does not answer`);
      await sleep(rest, undefined, { signal });
    }
  }

  // Pull and run jobs until told to drain; then wait for those that run.
  async run() {
    while (!this.draining.signal.aborted) {
      if (this.running.size >= this.slots) await Promise.race(this.running.values());
      else await this.pull({ types: Object.keys(this.handlers), max: this.slots - this.running.size, request_id: randomUUID() });
    }
    await Promise.all(this.running.values());
  }

  async pull(asked) {
    try {
      const { jobs, directive } = await this.call('pull', { ...asked, wait_sec: WAIT_SEC }, { signal: this.draining.signal, wait: WAIT_SEC });
      for (const job of jobs) this.running.set(job, this.work(job).finally(() => this.running.delete(job)));
      if (directive === 'drain') this.draining.abort();
    } catch (error) {
      if (error instanceof Refused) throw error; // a wrong key, or a fault of ours
      if (!this.draining.signal.aborted) return void console.error(error.message);
      // Its jobs may be on the way. The same request gets them, too, and they are handed back.
      const { jobs } = await this.call('pull', { ...asked, max: 1 }).catch(() => ({ jobs: [] }));
      if (jobs.length) await this.call('release', { leases: jobs.map(named), reason: 'the worker drained' });
    }
  }

  // Run one job, and tell how it ended.
  async work(job) {
    const stop = new AbortController(); // aborted with 'cancel', 'pause', 'drain', 'lost' or 'over'
    const interrupt = () => stop.abort('drain');
    this.hurry?.signal.addEventListener('abort', interrupt);
    const log = [];
    let seq = 0, turn = Promise.resolve(), last;
    const report = (body) => (turn = turn.catch(() => {}).then(async () => {
      if (['lost', 'over'].includes(stop.signal.reason)) throw new Stopped(stop.signal.reason);
      const told = await this.call('report', { ...named(job), seq: ++seq, ...body }).catch((error) => {
        if (error.status === 409) stop.abort('lost');
        throw error;
      });
      if (!told.owned) stop.abort('over');
      else if (['cancel', 'pause'].includes(told.directive)) stop.abort(told.directive);
      if (told.directive === 'drain') this.draining.abort();
      if (!told.owned) throw new Stopped('the job has ended');
      return told;
    }));
    const ctx = {
      signal: stop.signal,
      items: (items, { cursor, collection } = {}) => report({ items, cursor, collection }),
      progress: (progress, { cursor } = {}) => report({ progress, cursor }),
      log: (line) => log.push(line) > 50 && log.shift(),
    };
    const listening = this.listen(job, stop);
    try {
      const result = await this.handlers[job.type](job, ctx);
      last = { done: true, result };
    } catch (error) {
      const { kind = 'retryable', delay_sec, circuit } = error instanceof Failure ? error : {};
      last = { error: { kind, delay_sec, circuit, message: `${error.message ?? error}`, type: error.name, traceback: error.stack } };
    }
    const why = stop.signal.reason;
    try {
      if (last.error && ['cancel', 'pause', 'drain'].includes(why)) await this.call('release', { leases: [named(job)], reason: `told to ${why}` });
      else if (!['lost', 'over'].includes(why)) await this.call('report', { ...named(job), ...last, log: log.join('\n') || undefined });
      if (why === 'lost') console.error(`${job.type} ${job.job_id}: the lease was lost, the outcome is dropped`);
    } catch (error) {
      console.error(`${job.type} ${job.job_id}: its outcome is dropped: ${error.message}`);
    }
    listening.abort();
    this.hurry?.signal.removeEventListener('abort', interrupt);
  }

  // Keep a job's lease, and hear what becomes of it.
  listen(job, stop) {
    const ended = new AbortController();
    const wait = Math.max(1, Math.floor(Math.min(job.lease_remaining_ms / 3000, WAIT_SEC)));
    (async () => {
      while (!ended.signal.aborted && !['lost', 'over'].includes(stop.signal.reason)) {
        const asked = { leases: [named(job)], wait_sec: stop.signal.aborted ? 0 : wait };
        const { leases: [lease], directive } = await this.call('extend', asked, { signal: ended.signal, wait });
        if (!lease.owned) stop.abort('lost');
        else if (['cancel', 'pause'].includes(lease.directive)) stop.abort(lease.directive);
        if (directive === 'drain') this.draining.abort();
        if (stop.signal.aborted || directive === 'drain') await sleep(wait * 1000, undefined, { signal: ended.signal });
      }
    })().catch((error) => ended.signal.aborted || console.error(error.message));
    return ended;
  }

  // The first call drains, the second one interrupts handlers, the third ends the process.
  stop() {
    if (this.hurry?.signal.aborted) process.exit(143);
    if (this.draining.signal.aborted) this.hurry.abort();
    this.draining.abort();
  }
}

const named = ({ job_id, attempt }) => ({ job_id, attempt });

function anyOf(...signals) { // AbortSignal.any is newer than Node 18
  const either = new AbortController();
  for (const signal of signals) {
    if (signal.aborted) either.abort();
    signal.addEventListener('abort', () => either.abort(), { once: true });
  }
  return either.signal;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const worker = new Worker((await import(pathToFileURL(resolve(process.argv[2])).href)).default);
  worker.hurry = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => worker.stop());
  await worker.run();
}
