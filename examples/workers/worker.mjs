// A remote worker for Holdfast in Node.js (18 or newer), without dependencies: see docs/protocol.md.
//
//   HOLDFAST_URL=http://localhost:8080 HOLDFAST_KEY=hf_… node worker.mjs handlers.mjs
//
// handlers.mjs exports as its default an object of job types and handlers: {'email.send': async (job, ctx) => …}.
// `job` is what the pull answered (payload, attempt, cursor, …). A handler returns the job's result, or throws:
// `throw new Failure('no such address', {kind: 'fatal'})`. `ctx.items([{key, data}], {cursor})` and
// `ctx.progress(count, {cursor})` report, and throw once the job is over or another worker's. `ctx.signal` is aborted
// when the handler should stop: pass it to fetch and timers. Handlers must not block the event loop for long.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const AGAIN = [408, 429, 500, 502, 503, 504], WAIT_SEC = 20, TRY_SEC = 10, PATIENCE_MS = 120_000;
const named = ({ job_id, attempt }) => ({ job_id, attempt });
export class Failure extends Error { // with {kind: retryable|fatal|hold|snooze, delay_sec, circuit}
  constructor(message, more) { Object.assign(super(message), more); }
}

export class Worker {
  constructor(handlers, { url = process.env.HOLDFAST_URL, key = process.env.HOLDFAST_KEY, slots = 4 } = {}) {
    if (!url) throw Object.assign(new Error('HOLDFAST_URL is not set'), { status: 0 });
    Object.assign(this, { handlers, key, slots, url: url.replace(/\/$/, ''), types: Object.keys(handlers) });
    this.id = `${hostname().replace(/[^!-~]/g, '')}-${process.pid}-${randomUUID().slice(0, 8)}`;
    [this.draining, this.running, this.stops] = [new AbortController(), new Map(), new Set()];
  }

  // One call, repeated until the server has answered it. Every call of the protocol may be repeated.
  async call(verb, body, { signal, stop, wait = 0 } = {}) {
    const headers = { 'Content-Type': 'application/json', ...(this.key && { Authorization: `Bearer ${this.key}` }) };
    const request = { method: 'POST', headers, body: JSON.stringify({ worker_id: this.id, ...body }) };
    for (let pause = 200, end = Date.now() + PATIENCE_MS; ; pause = Math.min(pause * 2, 5000)) {
      const once = new AbortController(), give_up = () => once.abort();
      const timer = setTimeout(give_up, (TRY_SEC + wait) * 1000); signal?.addEventListener('abort', give_up);
      let told = 0;
      try {
        const answer = await fetch(`${this.url}/worker/${verb}`, { ...request, signal: once.signal });
        if (answer.ok) return await answer.json();
        const { detail = `HTTP ${answer.status}` } = await answer.json().catch(() => ({}));
        if (!AGAIN.includes(answer.status)) throw Object.assign(new Error(detail), { status: answer.status });
        told = 1000 * (Number(answer.headers.get('retry-after')) || 0);
      } catch (error) {
        if (error.status === 409) stop?.abort('over'); // the job has ended, or is another worker's
        if (error.status || signal?.aborted) throw error;
        if (pause === 200) console.error(`${this.url} cannot be reached: ${error.cause?.message || error.message}`);
      } finally {
        clearTimeout(timer); signal?.removeEventListener('abort', give_up);
      }
      const rest = Math.max(told, pause * (0.5 + Math.random() / 2));
      if (Date.now() + rest > end) throw new Error(`${this.url} does not answer`);
      await sleep(rest, undefined, { signal });
    }
  }

  // Pull and run jobs until told to drain; then wait for those that run.
  async run() {
    console.error(`worker ${this.id} pulls ${this.types.join(', ')} from ${this.url}`);
    while (!this.draining.signal.aborted) {
      if (this.running.size >= this.slots) await Promise.race(this.running.values());
      else await this.pull({ types: this.types, max: this.slots - this.running.size, request_id: randomUUID() });
    }
    await Promise.all(this.running.values());
  }

  async pull(asked) {
    const began = Date.now(), { signal } = this.draining;
    try {
      const told = await this.call('pull', { ...asked, wait_sec: WAIT_SEC }, { signal, wait: WAIT_SEC });
      for (const job of told.jobs) this.running.set(job, this.work(job).finally(() => this.running.delete(job)));
      if (told.directive === 'drain') this.draining.abort();
      else if (!told.jobs.length && Date.now() - began < 1000) await sleep(1000, undefined, { signal });
    } catch (error) {
      if (error.status) throw error; // a wrong key, or a fault of ours
      if (!signal.aborted) return void console.error(error.message);
      // Jobs may be on the way. The same request gets them, too, and they are handed back.
      const { jobs } = await this.call('pull', { ...asked, max: 1 }).catch(() => ({ jobs: [] }));
      if (jobs.length) await this.call('release', { leases: jobs.map(named), reason: 'the worker drained' });
    }
  }

  // Run one job, and tell how it ended.
  async work(job) {
    const stop = new AbortController(), log = []; // aborted with cancel, pause, drain, or over
    this.stops.add(stop);
    let seq = 0, turn = Promise.resolve(), last;
    const send = async (body) => {
      if (stop.signal.reason === 'over') throw new Error('the job is over');
      this.heed(await this.call('report', { ...named(job), seq: ++seq, ...body }, { stop }), stop);
    };
    const report = (body) => (turn = turn.catch(() => {}).then(() => send(body))); // one after the other
    const items = (items, { cursor, collection } = {}) => report({ items, cursor, collection });
    const progress = (progress, { cursor } = {}) => report({ progress, cursor });
    const ctx = { signal: stop.signal, items, progress, log: (line) => log.push(line) > 50 && log.shift() };
    const listening = this.listen(job, stop);
    try {
      last = { done: true, result: await this.handlers[job.type](job, ctx) };
    } catch ({ kind, delay_sec, circuit, message, name: type, stack: traceback }) {
      last = { error: { kind: kind ?? 'retryable', delay_sec, circuit, message: `${message}`, type, traceback } };
    }
    const why = stop.signal.reason, reason = `told to ${why}`;
    try {
      if (why && why !== 'over' && last.error) await this.call('release', { leases: [named(job)], reason });
      else if (why !== 'over') await this.call('report', { ...named(job), ...last, log: log.join('\n') }, { stop });
      else console.error(`${job.type} ${job.job_id} had ended, or is another worker's: its outcome is dropped`);
    } catch (error) {
      console.error(`${job.type} ${job.job_id}: its outcome is dropped: ${error.message}`);
    }
    listening.abort(); this.stops.delete(stop);
  }

  // Keep a job's lease, and hear what becomes of it. Once the handler was told to stop, nothing is waited for.
  listen(job, stop) {
    const ended = new AbortController(), { signal } = ended; // when the job has been settled
    const wait = Math.max(1, Math.min(WAIT_SEC, Math.floor(job.lease_remaining_ms / 3000)));
    (async () => {
      while (stop.signal.reason !== 'over') {
        const asked = { leases: [named(job)], wait_sec: stop.signal.aborted ? 0 : wait }, began = Date.now();
        const { leases: [lease], directive } = await this.call('extend', asked, { signal, wait });
        this.heed(lease, stop, directive);
        if (Date.now() - began < 1000 * wait) await sleep(1000 * wait, undefined, { signal });
      }
    })().catch((error) => signal.aborted || console.error(error.message));
    return ended;
  }

  heed({ owned, directive }, stop, own = directive) {
    if (!owned || ['cancel', 'pause'].includes(directive)) stop.abort(owned ? directive : 'over');
    if (own === 'drain') this.draining.abort();
  }

  // The first call drains, the second one interrupts handlers, the third one ends the process.
  stop() {
    if (this.hurried) process.exit(143);
    if ((this.hurried = this.draining.signal.aborted)) for (const stop of this.stops) stop.abort('drain');
    this.draining.abort();
  }
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  import(resolve(process.argv[2])).then(({ default: handlers }) => {
    const worker = new Worker(handlers);
    for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => worker.stop());
    return worker.run();
  }).catch((error) => (console.error(error.status >= 0 ? error.message : error), process.exit(2)));
}
