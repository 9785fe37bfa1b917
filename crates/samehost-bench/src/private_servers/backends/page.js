// The page that every backend serves: N letters at /bytes/N. Arguments: worker processes (0 for none), then ports and paths.
'use strict';
const cluster = require('node:cluster');
const http = require('node:http');

const [workers, ...places] = process.argv.slice(2);
const bodies = new Map();

function page(request, response) {
  const size = Number(request.url.slice('/bytes/'.length));
  let body = bodies.get(size);
  if (body === undefined) {
    body = Buffer.from(Uint8Array.from({ length: size }, (_, at) => 97 + (at % 23)));
    bodies.set(size, body);
  }
  response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': size });
  response.end(body);
}

if (workers > 0 && cluster.isPrimary) {
  for (let at = 0; at < workers; at++) cluster.fork();
  cluster.on('exit', () => process.exit(1));
} else {
  for (const place of places) {
    const server = http.createServer({ keepAliveTimeout: 3600e3, requestTimeout: 0 }, page);
    const address = /^\d+$/.test(place) ? { host: '127.0.0.1', port: Number(place) } : { path: place };
    server.listen({ ...address, backlog: 4096 });
  }
}
