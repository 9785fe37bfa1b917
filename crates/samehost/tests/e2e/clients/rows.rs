//! How each row of `samehost how` that is called tested is run: code with `WORDS`, which the words of the row replace, and `{USER}` and
//! `{DATABASE}`. It connects, asks something, and says `ready`; connections to databases stay.

use super::fronts::Front;

/// How a client is run.
pub(super) enum Run {
    Php(&'static str),
    Python(&'static str),
    Ruby(&'static str),
    /// The body of an asynchronous function.
    Node(&'static str),
    /// The body of `main` behind its includes, with the flags of the compiler.
    C(&'static str, &'static [&'static str]),
    /// Statements.
    Go(&'static str),
    /// Statements.
    Java(&'static str),
    /// Statements of an asynchronous function.
    Rust(&'static str),
    /// A line of the shell.
    Shell(&'static str),
    /// A web server with the words in its configuration; it is asked for a page.
    Front(Front),
}

/// A row of the table with its way to run.
pub(super) struct Row {
    pub(super) service: &'static str,
    pub(super) language: &'static str,
    pub(super) client: &'static str,
    pub(super) run: Run,
    /// The code for TCP, where it is another.
    pub(super) tcp: Option<&'static str>,
    /// The server that it is held against.
    pub(super) server: &'static str,
}

impl Row {
    const fn tcp(mut self, code: &'static str) -> Self {
        self.tcp = Some(code);
        self
    }

    const fn server(mut self, server: &'static str) -> Self {
        self.server = server;
        self
    }
}

const fn row(service: &'static str, language: &'static str, client: &'static str, run: Run) -> Row {
    Row { service, language, client, run, tcp: None, server: service }
}

const PHP_SQL: Run = Run::Php("$c = WORDS $c->query('select 1');");
const GO_SQL: Run = Run::Go("c, err := WORDS; if err == nil { err = c.Ping() }; ready(err)");
const JDBC: &str = "var c = DriverManager.getConnection(\"WORDS\", \"{USER}\", \"\"); c.createStatement().executeQuery(\"select 1\");";
const HIKARI: Run = Run::Java(
    "var config = new HikariConfig(); config.setUsername(\"{USER}\"); config.setMaximumPoolSize(1); WORDS new HikariDataSource(config).getConnection().createStatement().executeQuery(\"select 1\");",
);
const SPRING_SQL: Run = Run::Java(
    "spring(\"\"\"\nspring.datasource.username={USER}\nspring.datasource.hikari.maximum-pool-size=1\nWORDS\"\"\").getBean(javax.sql.DataSource.class).getConnection().createStatement().executeQuery(\"select 1\");",
);
const GORM: Run = Run::Go("c, err := WORDS; if err == nil { err = c.Exec(\"select 1\").Error }; ready(err)");
const TYPEORM: Run = Run::Node(
    "const { DataSource } = require('typeorm'); const c = WORDS; await c.initialize(); await c.query('select 1');",
);
/// Its words take names of database, user and password.
const SEQUELIZE: Run = Run::Node(
    "const { Sequelize } = require('sequelize'); const database = '{DATABASE}', user = '{USER}', password = ''; const c = WORDS; await c.query('select 1');",
);
/// What every WordPress has around the line.
const WORDPRESS: &str = "define('SHORTINIT', true); define('DB_NAME', 'mysql'); define('DB_USER', 'root'); define('DB_PASSWORD', ''); define('DB_CHARSET', 'utf8'); $table_prefix = 'wp_'; define('ABSPATH', '/usr/share/wordpress/'); $_SERVER['HTTP_HOST'] = 'localhost'; WORDS require ABSPATH . 'wp-settings.php'; if ($wpdb->get_var('select 1') !== '1') { exit(1); }";
/// The connection in `config/database.php` of a new Laravel.
const LARAVEL: &str = "require '/usr/share/php/Dotenv/autoload.php'; require '/usr/share/php/Illuminate/Database/autoload.php'; $env = Dotenv\\Dotenv::parse('WORDS'); $c = new Illuminate\\Database\\Capsule\\Manager; $c->addConnection(['driver' => 'mysql', 'host' => $env['DB_HOST'] ?? '127.0.0.1', 'port' => $env['DB_PORT'] ?? '3306', 'database' => 'mysql', 'username' => 'root', 'password' => '', 'unix_socket' => $env['DB_SOCKET'] ?? '', 'charset' => 'utf8mb4', 'collation' => 'utf8mb4_unicode_ci']); $c->getConnection()->select('select 1');";
const SYMFONY: &str = "require '/usr/share/php/Symfony/Component/Dotenv/autoload.php'; require '/usr/share/php/Doctrine/DBAL/autoload.php'; $env = (new Symfony\\Component\\Dotenv\\Dotenv())->parse('WORDS'); $c = Doctrine\\DBAL\\DriverManager::getConnection(['url' => $env['DATABASE_URL'], 'driver' => 'pdo_mysql']); $c->executeStatement('execute immediate concat(\"select \", quote(@@character_set_client))');";
const DJANGO_MYSQL: &str = "import django\nfrom django.conf import settings\nsettings.configure(DATABASES={'default': {'ENGINE': 'django.db.backends.mysql', 'NAME': 'mysql', 'USER': 'root', WORDS}})\ndjango.setup()\nfrom django.db import connection\nconnection.cursor().execute('select 1')";
const DJANGO_POSTGRES: &str = "import django\nfrom django.conf import settings\nsettings.configure(DATABASES={'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'postgres', 'USER': 'postgres', WORDS}})\ndjango.setup()\nfrom django.db import connection\nconnection.cursor().execute('select 1')";
const RAILS_MYSQL: Run = Run::Ruby(
    "require 'active_record'; require 'yaml'; ActiveRecord::Base.establish_connection(YAML.load(\"adapter: mysql2\\nusername: root\\ndatabase: mysql\\n\" + 'WORDS')); ActiveRecord::Base.connection.execute('select 1')",
);
const RAILS_POSTGRES: Run = Run::Ruby(
    "require 'active_record'; require 'yaml'; ActiveRecord::Base.establish_connection(YAML.load(\"adapter: postgresql\\nusername: postgres\\ndatabase: postgres\\n\" + 'WORDS')); ActiveRecord::Base.connection.execute('select 1')",
);
const SQLALCHEMY: Run = Run::Python("from sqlalchemy import create_engine\nc = WORDS.connect()");
const LIBCURL: Run = Run::C(
    "#include <curl/curl.h>\n#include <stdio.h>\nint main(void) { CURL *curl = curl_easy_init(); curl_easy_setopt(curl, CURLOPT_URL, \"http://localhost/\"); WORDS if (curl_easy_perform(curl)) return 1; puts(\"\\nready\"); fflush(stdout); return getchar(); }",
    &["-lcurl"],
);
const HYPER: &str = "use hyper_util::rt::TokioIo; use tokio::net::{TcpStream, UnixStream}; async fn ask() -> Result<(), Box<dyn std::error::Error>> { let (mut sender, connection) = WORDS.await?; tokio::spawn(connection); let request = hyper::Request::get(\"/\").header(\"host\", \"localhost\").body(http_body_util::Empty::<hyper::body::Bytes>::new())?; sender.send_request(request).await?; Ok(()) } ask().await.unwrap(); ready();";
/// Where `/dev/log` is the test's own.
const SYSLOG: &str = "cat > client.php <<'END'
<?php WORDS; echo \"ready\\n\"; fgets(STDIN);
END
mkdir dev
exec unshare --mount sh -c 'mount -t tmpfs none dev
for node in null zero random urandom; do touch dev/$node; mount --bind /dev/$node dev/$node; done
ln -s \"$SOCKET\" dev/log
mount --rbind dev /dev
exec php client.php'";
/// Both words ask for a page by themselves.
const GUZZLE: Run =
    Run::Php("require '/usr/share/php/GuzzleHttp/autoload.php'; $client = new GuzzleHttp\\Client(); WORDS");

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("mysql", "php", "mysqli", PHP_SQL),
    row("mysql", "php", "PDO MySQL", PHP_SQL),
    row("mysql", "php", "WordPress", Run::Php(WORDPRESS)),
    row("mysql", "php", "Laravel", Run::Php(LARAVEL)),
    row("mysql", "php", "Symfony", Run::Php(SYMFONY)),
    row("mysql", "php", "php.ini default", Run::Shell("echo 'WORDS' > words.ini; export PHP_INI_SCAN_DIR=:$PWD; exec php -r '$a = new mysqli(\"localhost\", \"root\", \"\"); $b = new PDO(\"mysql:host=localhost\", \"root\", \"\"); echo \"ready\\n\"; fgets(STDIN);'")),
    row("mysql", "python", "mysqlclient", Run::Python("import MySQLdb\nc = WORDS")),
    row("mysql", "python", "PyMySQL", Run::Python("import pymysql\nc = WORDS")),
    row("mysql", "python", "SQLAlchemy MySQL", SQLALCHEMY),
    row("mysql", "python", "Django MySQL", Run::Python(DJANGO_MYSQL)),
    row("mysql", "ruby", "mysql2", Run::Ruby("require 'mysql2'; c = WORDS")),
    row("mysql", "ruby", "Rails MySQL", RAILS_MYSQL),
    row("mysql", "node", "mysql2", Run::Node("const mysql = require('mysql2/promise'); const c = await WORDS;")),
    row("mysql", "node", "mariadb", Run::Node("const mariadb = require('mariadb'); const c = await WORDS;")),
    row("mysql", "node", "TypeORM MySQL", TYPEORM),
    row("mysql", "node", "Sequelize MySQL", SEQUELIZE),
    row("mysql", "node", "Drizzle MySQL", Run::Node("const { drizzle } = require('drizzle-orm/mysql2'); const c = WORDS; await c.execute('select 1');")),
    row("mysql", "go", "go-sql-driver", GO_SQL),
    row("mysql", "go", "GORM MySQL", GORM),
    row("mysql", "java", "Connector/J", Run::Java(JDBC)),
    row("mysql", "java", "MariaDB Connector/J", Run::Java(JDBC)),
    row("mysql", "java", "HikariCP MySQL", HIKARI),
    row("mysql", "java", "Spring Boot MySQL", SPRING_SQL),
    row("mysql", "c", "libmysqlclient", Run::C("#include <mysql.h>\n#include <stdio.h>\nint main(void) { MYSQL *mysql = mysql_init(NULL); const char *user = \"root\", *password = \"\", *db = \"mysql\"; MYSQL *c = WORDS if (!c) return 1; puts(\"ready\"); fflush(stdout); return getchar(); }", &["-I/usr/include/mariadb", "-lmariadb"])),
    row("mysql", "rust", "mysql", Run::Rust("use mysql::{OptsBuilder, prelude::*}; let mut c = mysql::Conn::new(WORDS.user(Some(\"root\"))).unwrap(); c.query_drop(\"select 1\").unwrap(); ready();")),
    row("mysql", "rust", "mysql_async", Run::Rust("use mysql_async::{OptsBuilder, prelude::*}; let mut c = mysql_async::Conn::new(WORDS.user(Some(\"root\"))).await.unwrap(); c.query_drop(\"select 1\").await.unwrap(); ready();")),
    row("mysql", "rust", "sqlx MySQL", Run::Rust("use sqlx::{Connection, mysql::*}; let mut c = MySqlConnection::connect_with(&WORDS.username(\"root\")).await.unwrap(); c.ping().await.unwrap(); ready();"))
        .tcp("use sqlx::mysql::*; let c = WORDS.await.unwrap(); let _held = c.acquire().await.unwrap(); ready();"),
    row("mysql", "tools", "mysql", Run::Shell("echo ready; exec WORDS -u root")),
    row("postgres", "php", "PDO PostgreSQL", PHP_SQL),
    row("postgres", "python", "psycopg", Run::Python("import psycopg\nc = WORDS")),
    row("postgres", "python", "asyncpg", Run::Python("import asyncio, asyncpg, sys\nasync def main():\n    c = await WORDS\n    print('ready', flush=True)\n    sys.stdin.readline()\nasyncio.run(main())")),
    row("postgres", "python", "SQLAlchemy PostgreSQL", SQLALCHEMY),
    row("postgres", "python", "Django PostgreSQL", Run::Python(DJANGO_POSTGRES)),
    row("postgres", "ruby", "pg", Run::Ruby("require 'pg'; c = WORDS")),
    row("postgres", "ruby", "Rails PostgreSQL", RAILS_POSTGRES),
    row("postgres", "node", "pg", Run::Node("const { Client } = require('pg'); const c = WORDS; await c.connect();")),
    row("postgres", "node", "postgres", Run::Node("const postgres = require('postgres'); const c = WORDS; await c`select 1`;")),
    row("postgres", "node", "TypeORM PostgreSQL", TYPEORM),
    row("postgres", "node", "Sequelize PostgreSQL", SEQUELIZE),
    row("postgres", "node", "Drizzle PostgreSQL", Run::Node("const { drizzle } = require('drizzle-orm/node-postgres'); const c = WORDS; await c.execute('select 1');")),
    row("postgres", "go", "GORM PostgreSQL", GORM),
    row("postgres", "go", "pgx", Run::Go("c, err := WORDS; if err == nil { err = c.Ping(ctx) }; ready(err)")),
    row("postgres", "go", "lib/pq", GO_SQL),
    row("postgres", "c", "libpq", Run::C("#include <libpq-fe.h>\n#include <stdio.h>\nint main(void) { PGconn *c = WORDS if (PQstatus(c)) return 1; puts(\"ready\"); fflush(stdout); return getchar(); }", &["-I/usr/include/postgresql", "-lpq"])),
    row("postgres", "java", "pgjdbc", Run::Java(JDBC)),
    row("postgres", "java", "HikariCP PostgreSQL", HIKARI),
    row("postgres", "java", "Spring Boot PostgreSQL", SPRING_SQL),
    row("postgres", "rust", "tokio-postgres", Run::Rust("use tokio_postgres::NoTls; let (c, connection) = WORDS.await.unwrap(); tokio::spawn(connection); c.simple_query(\"select 1\").await.unwrap(); ready();")),
    row("postgres", "rust", "sqlx PostgreSQL", Run::Rust("use sqlx::{Connection, postgres::*}; let mut c = PgConnection::connect_with(&WORDS).await.unwrap(); c.ping().await.unwrap(); ready();"))
        .tcp("use sqlx::postgres::*; let c = WORDS.await.unwrap(); let _held = c.acquire().await.unwrap(); ready();"),
    row("postgres", "tools", "psql", Run::Shell("echo ready; exec WORDS")),
    row("redis", "php", "phpredis", Run::Php("$redis = new Redis(); WORDS $redis->ping();")),
    row("redis", "php", "Predis", Run::Php("require '/usr/share/php/Predis/autoload.php'; $c = WORDS $c->ping();")),
    row("redis", "python", "redis-py", Run::Python("import redis\nc = WORDS\nc.ping()")),
    row("redis", "python", "Celery", Run::Python("from celery import Celery\nc = WORDS\nbroker = c.connection_for_write()\nbroker.ensure_connection(max_retries=1)\nc.backend.client.ping()")),
    row("redis", "ruby", "Sidekiq", Run::Ruby("require 'sidekiq'; WORDS; Sidekiq.redis { |c| c.ping }")),
    row("redis", "ruby", "redis-rb", Run::Ruby("require 'redis'; c = WORDS; c.ping")),
    row("redis", "node", "ioredis", Run::Node("const Redis = require('ioredis'); const c = WORDS; await c.ping();")),
    row("redis", "node", "node-redis", Run::Node("const { createClient } = require('redis'); const c = WORDS; await c.connect();")),
    row("redis", "node", "BullMQ", Run::Node("const { Queue } = require('bullmq'); const c = WORDS; await c.getJobCounts();")),
    row("redis", "go", "go-redis", Run::Go("c := WORDS; ready(c.Ping(ctx).Err())")),
    row("redis", "java", "Jedis", Run::Java("var c = WORDS; c.ping();")),
    row("redis", "java", "Lettuce", Run::Java("var c = WORDS.connect(); c.sync().ping();")),
    row("redis", "java", "Spring Boot Redis", Run::Java("var c = WORDS; c.afterPropertiesSet(); c.start(); c.getConnection().ping();"))
        .tcp("spring(\"\"\"\nWORDS\"\"\").getBean(RedisConnectionFactory.class).getConnection().ping();"),
    row("redis", "c", "hiredis", Run::C("#include <hiredis/hiredis.h>\n#include <stdio.h>\nint main(void) { redisContext *c = WORDS if (!c || c->err) return 1; redisCommand(c, \"PING\"); puts(\"ready\"); fflush(stdout); return getchar(); }", &["-lhiredis"])),
    row("redis", "rust", "redis", Run::Rust("let mut c = WORDS.unwrap().get_connection().unwrap(); let _: String = redis::cmd(\"PING\").query(&mut c).unwrap(); ready();")),
    row("redis", "tools", "redis-cli", Run::Shell("echo ready; exec WORDS")),
    row("memcached", "php", "php-memcached", Run::Php("$memcached = new Memcached(); WORDS $memcached->get('x');")),
    row("memcached", "python", "pymemcache", Run::Python("import pymemcache.client.base\nc = WORDS\nc.get('x')")),
    row("memcached", "ruby", "Dalli", Run::Ruby("require 'dalli'; c = WORDS; c.get('x')")),
    row("memcached", "go", "gomemcache", Run::Go("c := WORDS; if _, err := c.Get(\"x\"); err == memcache.ErrCacheMiss { ready(nil) } else { ready(err) }")),
    row("memcached", "c", "libmemcached", Run::C("#include <libmemcached/memcached.h>\n#include <stdio.h>\n#include <string.h>\n#define memcached(text, length) memcached(text, strlen(text))\nint main(void) { memcached_st *c = WORDS memcached_return_t found; if (!c) return 1; if (memcached_set(c, \"x\", 1, \"y\", 1, 0, 0)) return 2; puts(\"ready\"); fflush(stdout); return getchar(); }", &["-lmemcached"])),
    row("memcached", "tools", "nc", Run::Shell("echo ready; exec WORDS")),
    row("nginx", "php", "curl", Run::Php("$curl = curl_init('http://localhost/'); WORDS if (!curl_exec($curl)) { exit(1); } echo \"\\n\";")),
    row("nginx", "php", "Guzzle", GUZZLE),
    row("nginx", "python", "requests-unixsocket", Run::Python("import requests, requests_unixsocket\nWORDS.raise_for_status()")),
    row("nginx", "python", "httpx", Run::Python("import httpx\nWORDS.get('http://localhost/').raise_for_status()"))
        .tcp("import httpx\nWORDS.raise_for_status()"),
    row("nginx", "python", "aiohttp", Run::Python("import aiohttp, asyncio\nasync def main():\n    async with aiohttp.ClientSession(connector=WORDS) as session:\n        await session.get('http://localhost/')\nasyncio.run(main())"))
        .tcp("import aiohttp, asyncio\nasync def main():\n    async with aiohttp.ClientSession() as session:\n        await WORDS\nasyncio.run(main())"),
    row("nginx", "ruby", "Excon", Run::Ruby("require 'excon'; WORDS")),
    row("nginx", "node", "http", Run::Node("const http = require('http'); await new Promise((good, bad) => WORDS.on('response', good).on('error', bad));")),
    row("nginx", "node", "axios", Run::Node("const axios = require('axios'); await WORDS;")),
    row("nginx", "node", "undici", Run::Node("const { Agent, fetch } = require('undici'); await (await WORDS).text();")),
    row("nginx", "go", "net/http", Run::Go("c := WORDS; _, err := c.Get(\"http://localhost/\"); ready(err)")).tcp("_, err := WORDS; ready(err)"),
    row("nginx", "java", "java.net.http", Run::Java("WORDS;")),
    row("nginx", "java", "Netty", Run::Java("var group = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory()); var bootstrap = new Bootstrap().group(group).handler(new ChannelInboundHandlerAdapter()); var c = WORDS.sync().channel(); c.writeAndFlush(Unpooled.copiedBuffer(\"GET / HTTP/1.0\\r\\n\\r\\n\", CharsetUtil.US_ASCII)).sync(); c.closeFuture().sync();")),
    row("nginx", "c", "libcurl", LIBCURL),
    row("nginx", "rust", "reqwest", Run::Rust("WORDS.unwrap().get(\"http://localhost/\").send().await.unwrap(); ready();")).tcp("WORDS.await.unwrap(); ready();"),
    row("nginx", "rust", "hyper", Run::Rust(HYPER)),
    row("dogstatsd", "tools", "nc", Run::Shell("WORDS; echo ready; cat")),
    row("dogstatsd", "go", "datadog-go", Run::Go("c, err := WORDS; if err == nil { err = c.Incr(\"requests\", nil, 1) }; if err == nil { err = c.Flush() }; ready(err)")),
    row("dogstatsd", "python", "datadog", Run::Python("import datadog\nWORDS\ndatadog.statsd.increment('requests')\ndatadog.statsd.flush()")),
    row("dogstatsd", "python", "statsd", Run::Python("import statsd\nc = WORDS\nc.incr('requests')")).server("statsd"),
    row("dogstatsd", "tools", "Datadog's libraries, by environment", Run::Shell("export WORDS; exec /usr/bin/python3 -c \"import datadog; datadog.initialize(); datadog.statsd.increment('requests'); datadog.statsd.flush(); print('ready', flush=True); input()\"")),
    row("dogstatsd", "node", "hot-shots", Run::Node("const { StatsD } = require('hot-shots'); const c = WORDS; await new Promise((good, bad) => c.increment('requests', error => error ? bad(error) : good()));")),
    row("dogstatsd", "java", "java-dogstatsd-client", Run::Java("var c = WORDS; c.incrementCounter(\"requests\");")),
    row("rsyslog", "php", "syslog()", Run::Shell(SYSLOG)),
    row("rsyslog", "python", "SysLogHandler", Run::Python("import logging, logging.handlers\nlogging.getLogger().addHandler(WORDS)\nlogging.error('a message')")),
    row("rsyslog", "tools", "logger", Run::Shell("WORDS && echo ready && cat")),
    row("nginx", "tools", "curl", Run::Shell("WORDS && echo && echo ready && cat")),
    row("nginx", "tools", "nginx", Run::Front(Front::Nginx)),
    row("nginx", "tools", "HAProxy", Run::Front(Front::Haproxy)),
    row("nginx", "tools", "Apache", Run::Front(Front::Apache)),
    row("nginx", "tools", "Caddy", Run::Front(Front::Caddy)),
    row("php-fpm", "tools", "nginx", Run::Front(Front::Nginx)),
    row("php-fpm", "tools", "Apache", Run::Front(Front::Apache)),
    row("php-fpm", "tools", "Caddy", Run::Front(Front::Caddy)),
    row("grpc", "python", "grpcio", Run::Python("import grpc\nc = WORDS\nc.unary_unary('/echo.Echo/Say')(b'', timeout=20)")),
    row("grpc", "ruby", "grpc", Run::Ruby("require 'grpc'; c = WORDS; c.request_response('/echo.Echo/Say', '', ->(x) { x }, ->(x) { x })")),
    row("grpc", "node", "@grpc/grpc-js", Run::Node("const grpc = require('@grpc/grpc-js'); const c = WORDS; await new Promise((good, bad) => c.makeUnaryRequest('/echo.Echo/Say', x => x, x => x, Buffer.from(''), error => error ? bad(error) : good()));")),
    row("grpc", "go", "grpc-go", Run::Go("c, err := WORDS; if err == nil { err = c.Invoke(ctx, \"/echo.Echo/Say\", &emptypb.Empty{}, &emptypb.Empty{}) }; ready(err)")),
    row("grpc", "java", "grpc-java", Run::Java("var c = WORDS; ClientCalls.blockingUnaryCall(c, SAY, CallOptions.DEFAULT, new byte[0]);")),
    row("grpc", "rust", "tonic", Run::Rust("use tonic::transport::Endpoint; let channel = WORDS.await.unwrap(); let mut c = tonic::client::Grpc::new(channel); c.ready().await.unwrap(); let path = tonic::codegen::http::uri::PathAndQuery::from_static(\"/echo.Echo/Say\"); let _: tonic::Response<()> = c.unary(tonic::Request::new(()), path, tonic_prost::ProstCodec::default()).await.unwrap(); ready();")),
    row("grpc", "tools", "nginx", Run::Front(Front::NginxGrpc)),
];
