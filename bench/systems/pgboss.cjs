// pg-boss behind a bare HTTP handler: node pgboss.cjs PORT COUNT BYTES, with NODE_PATH and BENCH_URL.
// It records so many jobs, and then answers POST /fetch {max} and POST /complete {ids}. The handler is ours: pg-boss
// has none that npm offers. It does no more than pass the calls on, without keys, checks or fences.

const { createServer } = require('node:http');
const { randomBytes } = require('node:crypto');
const PgBoss = require('pg-boss');

const [port, count, bytes] = process.argv.slice(2).map(Number);

(async () => {
  const boss = new PgBoss({ connectionString: process.env.BENCH_URL, max: 8 });
  boss.on('error', (error) => console.error(error.message));
  await boss.start();
  await boss.createQueue('bench');
  for (let left = count; left > 0; left -= 1000) {
    const text = () => randomBytes(Math.ceil(bytes / 2)).toString('hex').slice(0, bytes);
    await boss.insert(Array.from({ length: Math.min(left, 1000) }, () => ({ name: 'bench', data: { text: text() } })));
  }
  const verbs = {
    '/fetch': async ({ max }) => ({ jobs: (await boss.fetch('bench', { batchSize: max })) ?? [] }),
    '/complete': async ({ ids }) => { await boss.complete('bench', ids); return { results: ids }; },
  };
  createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const answer = request.url === '/readyz' ? {} : await verbs[request.url](JSON.parse(body));
    const text = JSON.stringify(answer);
    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }).end(text);
  }).listen(port, '127.0.0.1');
})();
