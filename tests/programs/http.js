// `serve PORT`: two workers of node's cluster, which give back what is posted. `ask PORT`: many requests at once, some over
// connections that are kept; prints "right".
'use strict';
const cluster = require('cluster');
const crypto = require('crypto');
const http = require('http');
const [what, port] = [process.argv[2], Number(process.argv[3])];

function serve() {
  if (cluster.isPrimary) {
    cluster.fork();
    cluster.fork();
    process.on('SIGTERM', () => cluster.disconnect(() => process.exit(0)));
    return;
  }
  http.createServer((request, response) => request.pipe(response)).listen(port, '127.0.0.1');
}

function ask(agent, size) {
  const body = crypto.randomBytes(size);
  return new Promise((resolve, reject) => {
    const request = http.request({ host: '127.0.0.1', port, method: 'POST', agent }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => (Buffer.concat(parts).equals(body) ? resolve() : reject(new Error('wrong'))));
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function askAll() {
  const kept = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const all = [];
  for (let i = 0; i < 200; i++)
    all.push(ask(i % 2 ? kept : false, [0, 10, 5000, 300000][i % 4]));
  await Promise.all(all);
  kept.destroy();
  console.log('right');
}

if (what === 'serve')
  serve();
else
  askAll();
