// What Node's own reader of .env files and its URL parser make of a .env file: one fact a line. PostgreSQL's URLs are
// asked of pg-connection-string, where it is given.
const [names, parser] = process.argv.slice(2);
const pg = parser ? (await import(parser)).default : null;
for (const name of names.split(',').filter(Boolean)) {
  const value = process.env[name];
  if (!/^(mysql|postgres(ql)?):\/\//.test(value)) {
    console.log(`${name}=${JSON.stringify(value)}`);
    continue;
  }
  const url = new URL(value);
  const tcp = (host, port) => `tcp:${host}:${port}`;
  let place;
  if (value.startsWith('mysql')) {
    const socket = url.searchParams.get('socket');
    place = socket ? `unix:${socket}` : tcp(url.hostname, url.port || 3306);
  } else {
    const { host, port } = pg.parse(value);
    place = host.startsWith('/') ? `unix:${host}/.s.PGSQL.${port || 5432}` : tcp(host, port || 5432);
  }
  url.searchParams.delete('socket');
  url.searchParams.delete('host');
  console.log(`${name} endpoint=${place}`);
  console.log(`${name} ${url.protocol} ${url.username} ${url.password} ${url.pathname} ${url.searchParams}`);
}
