//! The table of `samehost how`, held against real servers: each client connects in exactly the words of its row, and
//! `samehost verify` says of its process what happened. A client whose language or library is not installed is named.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use samehost_testing::free_port;

use crate::scan::{Held, is_root};
use crate::support::{Home, not_tested, wait_for};

/// How a client is run with the words of its row, `WORDS`.
enum Run {
    /// PHP code.
    Php(&'static str),
    /// Python code.
    Python(&'static str),
    /// Ruby code.
    Ruby(&'static str),
    /// The body of an asynchronous function in Node; the module must be there.
    Node(&'static str, &'static str),
    /// C code, with the flags of the compiler.
    C(&'static str, &'static [&'static str]),
    /// A Go program, with its module.
    Go(&'static str, &'static str),
    /// A Java program's statements, with what it needs from Maven's registry.
    Java(&'static [&'static str], &'static str),
    /// A Rust program; what it needs is in [`CRATES`].
    Rust(&'static str),
    /// The words are a command line.
    Shell,
}

/// A row of the table with its way to run; what `how` calls tested must be here, and the other way round.
struct Row {
    service: &'static str,
    language: &'static str,
    client: &'static str,
    run: Run,
}

/// What the Rust clients need from the registry, with the fewest features.
const CRATES: &str = r#"
mysql = { version = "26", default-features = false, features = ["minimal-rust"] }
tokio-postgres = { version = "0.7", default-features = false, features = ["runtime"] }
tokio = { version = "1", default-features = false, features = ["rt"] }
redis = { version = "0.32", default-features = false }
"#;

/// Java's way to a Unix socket: its classes, and their native half.
const JUNIXSOCKET: [&str; 2] = [
    "com.kohlschutter.junixsocket:junixsocket-common:2.10.1",
    "com.kohlschutter.junixsocket:junixsocket-native-common:2.10.1",
];

const fn row(service: &'static str, language: &'static str, client: &'static str, run: Run) -> Row {
    Row { service, language, client, run }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("mysql", "php", "mysqli", Run::Php("$c = WORDS $c->query('select 1');")),
    row("mysql", "php", "PDO MySQL", Run::Php("$c = WORDS $c->query('select 1');")),
    row("mysql", "python", "mysqlclient", Run::Python("import MySQLdb\nc = WORDS")),
    row("mysql", "python", "PyMySQL", Run::Python("import pymysql\nc = WORDS")),
    row("mysql", "ruby", "mysql2", Run::Ruby("require 'mysql2'; c = WORDS")),
    row("mysql", "node", "mysql2", Run::Node("mysql2", "const mysql = require('mysql2/promise'); const c = await WORDS;")),
    row("mysql", "go", "go-sql-driver", Run::Go("github.com/go-sql-driver/mysql@v1.8.1", "import (\"database/sql\"; \"fmt\"; _ \"github.com/go-sql-driver/mysql\")\nfunc main() { c, err := WORDS; if err == nil { err = c.Ping() }; if err != nil { panic(err) }; fmt.Println(\"ready\"); select {} }")),
    row("mysql", "java", "Connector/J", Run::Java(&["com.mysql:mysql-connector-j:8.0.33", "com.kohlschutter.junixsocket:junixsocket-mysql:2.10.1", JUNIXSOCKET[0], JUNIXSOCKET[1]], "var c = java.sql.DriverManager.getConnection(\"WORDS\", \"root\", \"\"); c.createStatement().executeQuery(\"select 1\");")),
    row("mysql", "java", "MariaDB Connector/J", Run::Java(&["org.mariadb.jdbc:mariadb-java-client:3.3.3", "net.java.dev.jna:jna:5.14.0", "net.java.dev.jna:jna-platform:5.14.0"], "var c = java.sql.DriverManager.getConnection(\"WORDS\", \"root\", \"\"); c.createStatement().executeQuery(\"select 1\");")),
    row("mysql", "rust", "mysql", Run::Rust("use mysql::*; use mysql::prelude::*;\nfn main() { let mut c = Conn::new(WORDS.user(Some(\"root\"))).unwrap(); c.query_drop(\"select 1\").unwrap(); ready(); }")),
    row("mysql", "tools", "mysql", Run::Shell),
    row("postgres", "php", "PDO PostgreSQL", Run::Php("$c = WORDS $c->query('select 1');")),
    row("postgres", "python", "psycopg", Run::Python("import psycopg2 as psycopg\nc = WORDS")),
    row("postgres", "ruby", "pg", Run::Ruby("require 'pg'; c = WORDS")),
    row("postgres", "node", "pg", Run::Node("pg", "const { Client } = require('pg'); const c = WORDS; await c.connect();")),
    row("postgres", "go", "lib/pq", Run::Go("github.com/lib/pq@v1.10.9", "import (\"database/sql\"; \"fmt\"; _ \"github.com/lib/pq\")\nfunc main() { c, err := WORDS; if err == nil { err = c.Ping() }; if err != nil { panic(err) }; fmt.Println(\"ready\"); select {} }")),
    row("postgres", "c", "libpq", Run::C("#include <libpq-fe.h>\n#include <stdio.h>\nint main(void) { PGconn *c = WORDS if (PQstatus(c)) return 1; puts(\"ready\"); fflush(stdout); return getchar(); }", &["-I/usr/include/postgresql", "-lpq"])),
    row("postgres", "java", "pgjdbc", Run::Java(&["org.postgresql:postgresql:42.7.3", JUNIXSOCKET[0], JUNIXSOCKET[1]], "var c = java.sql.DriverManager.getConnection(\"WORDS\", \"postgres\", \"\"); c.createStatement().executeQuery(\"select 1\");")),
    row("postgres", "rust", "tokio-postgres", Run::Rust("use tokio_postgres::NoTls;\nfn main() { tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async { let (c, connection) = WORDS.await.unwrap(); tokio::spawn(connection); c.simple_query(\"select 1\").await.unwrap(); ready(); }) }")),
    row("postgres", "tools", "psql", Run::Shell),
    row("redis", "php", "phpredis", Run::Php("$redis = new Redis(); WORDS $redis->ping();")),
    row("redis", "python", "redis-py", Run::Python("import redis\nc = WORDS\nc.ping()")),
    row("redis", "ruby", "redis-rb", Run::Ruby("require 'redis'; c = WORDS; c.ping")),
    row("redis", "node", "ioredis", Run::Node("ioredis", "const Redis = require('ioredis'); const c = WORDS; await c.ping();")),
    row("redis", "node", "node-redis", Run::Node("redis", "const { createClient } = require('redis'); const c = WORDS; await c.connect();")),
    row("redis", "go", "go-redis", Run::Go("github.com/redis/go-redis/v9@v9.5.1", "import (\"context\"; \"fmt\"; \"github.com/redis/go-redis/v9\")\nfunc main() { c := WORDS; if err := c.Ping(context.Background()).Err(); err != nil { panic(err) }; fmt.Println(\"ready\"); select {} }")),
    row("redis", "c", "hiredis", Run::C("#include <hiredis/hiredis.h>\n#include <stdio.h>\nint main(void) { redisContext *c = WORDS if (!c || c->err) return 1; redisCommand(c, \"PING\"); puts(\"ready\"); fflush(stdout); return getchar(); }", &["-lhiredis"])),
    row("redis", "rust", "redis", Run::Rust("fn main() { let mut c = WORDS.unwrap().get_connection().unwrap(); let _: String = redis::cmd(\"PING\").query(&mut c).unwrap(); ready(); }")),
    row("redis", "tools", "redis-cli", Run::Shell),
    row("memcached", "php", "php-memcached", Run::Php("$memcached = new Memcached(); WORDS $memcached->get('x');")),
    row("memcached", "python", "pymemcache", Run::Python("import pymemcache.client.base\nc = WORDS\nc.get('x')")),
    row("memcached", "tools", "nc", Run::Shell),
];

/// The servers that the clients meet.
pub(crate) struct Servers {
    home: Home,
    _held: Vec<Held>,
    /// The command that runs another in the servers' network namespace; empty for the own one.
    enter: String,
}

/// Where a service is: socket for the words, and port.
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    pub(crate) port: u16,
}

impl Servers {
    pub(crate) fn new() -> Self {
        Servers::entered(String::new())
    }

    /// Servers in the network namespace of a process.
    pub(crate) fn inside(pid: u32) -> Self {
        Servers::entered(format!("nsenter -t {pid} -n "))
    }

    fn entered(enter: String) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let home = Home::new();
        // PostgreSQL refuses to run as root: its user must pass through.
        fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o711)).unwrap();
        Servers { home, _held: Vec::new(), enter }
    }

    pub(crate) fn start(&mut self, service: &str) -> Place {
        let port = free_port();
        let folder = self.home.path(service);
        fs::create_dir(&folder).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let data = text(&folder.join("data"));
        let (socket, command) = match service {
            "mysql" => {
                let socket = folder.join("mysqld.sock");
                run(&format!(
                    "mariadb-install-db --no-defaults --user=root --auth-root-authentication-method=normal --skip-test-db --datadir={data}"
                ));
                let server = format!(
                    "exec mysqld --no-defaults --user=root --skip-grant-tables --datadir={data} --socket={} --bind-address=127.0.0.1 --port={port}",
                    text(&socket)
                );
                (socket, server)
            }
            "postgres" => {
                let bin = "$(ls -d /usr/lib/postgresql/*/bin | tail -1)";
                run(&format!("chown postgres {}", text(&folder)));
                run(&format!("setpriv --reuid postgres --clear-groups {bin}/initdb -A trust -D {data}"));
                let server = format!(
                    "exec setpriv --reuid postgres --clear-groups {bin}/postgres -D {data} -c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={}",
                    text(&folder)
                );
                (folder.join(format!(".s.PGSQL.{port}")), server)
            }
            "redis" => {
                let socket = folder.join("redis.sock");
                let server = format!(
                    "exec redis-server --port {port} --save '' --dir {} --unixsocket {}",
                    text(&folder),
                    text(&socket)
                );
                (socket, server)
            }
            _ => {
                let socket = folder.join("memcached.sock");
                self._held.push(Held::start("memcached", &["-u", "root", "-s", socket.to_str().unwrap()]));
                (socket, format!("exec memcached -u root -l 127.0.0.1 -p {port}"))
            }
        };
        let command = command.replacen("exec ", &format!("exec {}", self.enter), 1);
        self._held.push(Held::start("sh", &["-c", &command]));
        wait_for(service, || std::os::unix::net::UnixStream::connect(&socket).ok());
        let probe = format!("{}nc -z 127.0.0.1 {port}", self.enter);
        wait_for(service, || {
            Command::new("sh").args(["-c", &probe]).status().unwrap().success().then_some(())
        });
        Place { socket, port }
    }
}

fn run(script: &str) {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The words of a row as code that runs: the names that a reader fills in are filled in.
fn filled(words: &str, service: &str) -> String {
    let (user, database) = if service == "mysql" { ("root", "mysql") } else { ("postgres", "postgres") };
    words
        .replace("user=..., db=...", &format!("user='{user}', db='{database}'"))
        .replace("username: ..., database: ...", &format!("username: '{user}', database: '{database}'"))
        .replace("dbname: ..., user: ...", &format!("dbname: '{database}', user: '{user}'"))
        .replace("user, database }", &format!("user: '{user}', database: '{database}' }}"))
        .replace("user:password@", &format!("{user}@"))
        .replace(")/db\"", &format!(")/{database}\""))
        .replace("USER", user)
        .replace("dbname=DB", &format!("dbname={database}"))
        .replace("-d DB", &format!("-d {database}"))
        // lib/pq asks for TLS over TCP, which our server has not.
        .replace("dbname=postgres\")", "dbname=postgres sslmode=disable\")")
}

/// Starts a client; none when its language or library is not installed here.
fn start(home: &Home, row: &Row, words: &str, number: usize) -> Option<Child> {
    let words = filled(words, row.service);
    let folder =
        home.path(&format!("client-{}-{}-{number}", row.service, row.client.replace(['/', ' '], "-")));
    fs::create_dir_all(&folder).unwrap();
    let mut command = match &row.run {
        Run::Php(code) => {
            let variables = if row.service == "mysql" {
                "'root'; $database = 'mysql'"
            } else {
                "'postgres'; $database = ''"
            };
            let code = code.replace("WORDS", &words);
            let mut command = Command::new("php");
            command.args([
                "-r",
                &format!("$user = {variables}; $password = ''; {code} echo \"ready\\n\"; fgets(STDIN);"),
            ]);
            command
        }
        Run::Python(code) => {
            let code = code.replace("WORDS", &words);
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-c", &format!("{code}\nprint('ready', flush=True)\ninput()")]);
            command
        }
        Run::Ruby(code) => {
            let code = code.replace("WORDS", &words);
            let mut command = Command::new("ruby");
            command.args(["-e", &format!("{code}; puts 'ready'; $stdout.flush; gets")]);
            command
        }
        Run::Node(module, code) => {
            let modules = modules(home, module)?;
            let code = code.replace("WORDS", &words);
            let mut command = Command::new("node");
            command.env("NODE_PATH", modules);
            command.args(["-e", &format!("(async () => {{ {code} console.log('ready'); }})().catch(error => {{ console.error(error); process.exit(1); }})")]);
            command
        }
        Run::C(code, flags) => {
            let source = folder.join("client.c");
            fs::write(&source, code.replace("WORDS", &words)).unwrap();
            let program = folder.join("client");
            let compiled =
                Command::new("cc").arg(&source).arg("-o").arg(&program).args(*flags).output().ok()?;
            compiled.status.success().then(|| Command::new(program))?
        }
        Run::Go(module, code) => {
            fs::write(folder.join("main.go"), format!("package main\n{}", code.replace("WORDS", &words)))
                .unwrap();
            let script = format!(
                "cd {} && go mod init client && go get {module} && go build -o client .",
                folder.display()
            );
            let built = Command::new("sh").args(["-c", &script]).output().ok()?;
            built.status.success().then(|| Command::new(folder.join("client")))?
        }
        Run::Java(artifacts, code) => {
            let path = jars(artifacts)?;
            let (database, code) = (if row.service == "mysql" { "/mysql" } else { "/postgres" }, *code);
            let words = words.replace("/db", database);
            let source = folder.join("Client.java");
            fs::write(
                &source,
                format!(
                    "class Client {{ public static void main(String[] a) throws Exception {{ {} System.out.println(\"ready\"); System.in.read(); }} }}",
                    code.replace("WORDS", &words)
                ),
            )
            .unwrap();
            let mut command = Command::new("java");
            command.arg("-cp").arg(path).arg(source);
            command
        }
        Run::Rust(code) => Command::new(built(&folder, &code.replace("WORDS", &words))?),
        Run::Shell => {
            let user = if row.client == "mysql" { " -u root" } else { "" };
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo ready; exec {words}{user}")]);
            command
        }
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()
}

/// What is fetched from registries once, for all later tests.
fn kept(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The class path of these artifacts, from Maven's registry; none when it is not reached.
fn jars(artifacts: &[&str]) -> Option<String> {
    let folder = kept("jars");
    for artifact in artifacts {
        let mut parts = artifact.split(':').skip(1);
        let file = folder.join(format!("{}-{}.jar", parts.next()?, parts.next()?));
        if !file.exists() {
            let mut copy = Command::new("mvn");
            copy.args(["-q", "dependency:copy", &format!("-Dartifact={artifact}")]);
            let output = copy.arg(format!("-DoutputDirectory={}", folder.display())).output().ok()?;
            output.status.success().then_some(())?;
        }
    }
    Some(format!("{}/*", folder.display()))
}

/// A Rust client, built where the crates that it needs are built once; none when they cannot be.
fn built(folder: &Path, code: &str) -> Option<PathBuf> {
    let project = kept("rust");
    fs::create_dir_all(project.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"client\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[profile.dev]\ndebug = false\n[workspace]\n[dependencies]{CRATES}"
    );
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    let ready = "fn ready() { println!(\"ready\"); let _ = std::io::stdin().read_line(&mut String::new()); }";
    fs::write(project.join("src/main.rs"), format!("{code}\n{ready}\n")).unwrap();
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--manifest-path"]).arg(project.join("Cargo.toml"));
    let output = build.env("CARGO_TARGET_DIR", project.join("target")).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Words that do not compile are a wrong row; a registry that is not reached is none of its fault.
    assert!(!said.contains("could not compile `client`"), "{code}\n{said}");
    output.status.success().then_some(())?;
    let program = folder.join("client");
    fs::copy(project.join("target/debug/client"), &program).ok()?;
    Some(program)
}

/// A folder of Node modules with this one in it, from the registry.
fn modules(home: &Home, module: &str) -> Option<PathBuf> {
    let folder = home.path("node");
    fs::create_dir_all(&folder).unwrap();
    let script = format!("cd {} && npm install --silent --no-audit --no-fund {module}", folder.display());
    let installed = Command::new("sh").args(["-c", &script]).output().ok()?;
    installed.status.success().then(|| folder.join("node_modules"))
}

/// The transport that a client really uses; the reason when it did not connect.
fn transport(home: &Home, child: &mut Child, place: &Place) -> Result<String, String> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let result = if line.trim() == "ready" {
        let pid = child.id();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let ended = home.run(&["verify", &pid.to_string(), "--json"]);
            let found: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
            let to_us = found["connections"].as_array().is_some_and(|all| {
                all.iter().any(|one| {
                    let address = one["service_address"].as_str().unwrap_or_default();
                    Path::new(address) == place.socket || address.ends_with(&format!(":{}", place.port))
                })
            });
            match found["transport"].as_str() {
                Some(transport) if to_us => break Ok(transport.to_owned()),
                _ if std::time::Instant::now() > deadline => break Err(format!("no connection: {found}")),
                _ => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        }
    } else {
        Err(String::new())
    };
    let _ = child.kill();
    let mut said = String::new();
    let _ = std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said);
    let _ = child.wait();
    result.map_err(|reason| format!("{reason} {said}"))
}

/// Whether a failure says that the library is not installed.
fn is_missing(said: &str) -> bool {
    [
        "ModuleNotFoundError",
        "cannot load such file",
        "not found",
        "Class \"",
        "could not find driver",
        "undefined function",
    ]
    .iter()
    .any(|words| said.contains(words))
}

#[test]
fn every_tested_row_does_what_it_says() {
    if !is_root() {
        not_tested("without root: the clients of `how`, whose servers are started as other users");
        return;
    }
    let mut servers = Servers::new();
    let mut tested = 0;
    let mut missing = Vec::new();
    let mut wrong = Vec::new();
    for service in ["mysql", "postgres", "redis", "memcached"] {
        let place = servers.start(service);
        let home = Home::new();
        let url = |target: String| match service {
            "mysql" => format!("mysql://root@{target}"),
            "postgres" => format!("postgres://postgres@{target}"),
            _ => format!("{service}://{target}"),
        };
        let target = url(format!("127.0.0.1:{}", place.port));
        let answer = home.run(&["how", service, "--url", &target, "--json"]);
        assert_eq!(answer.status, 0, "{}", answer.stderr);
        let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
        let usual = answer["path"].as_str().unwrap().to_owned();
        let here = |words: &str| {
            // The path may be that of another server that a test runs: ours is named in its place.
            let folder = |path: &str| path.rsplit_once('/').unwrap().0.to_owned();
            let socket = place.socket.to_str().unwrap();
            words.replace(&usual, socket).replace(&folder(&usual), &folder(socket))
        };
        for row in ROWS.iter().filter(|row| row.service == service) {
            let words = answer["clients"]
                .as_array()
                .unwrap()
                .iter()
                .find(|one| one["client"] == row.client && one["language"] == row.language);
            let words = words.unwrap_or_else(|| panic!("{} is no row of {service}", row.client));
            assert_eq!(words["tested"], true, "{} is tested here: say so in its row", row.client);
            let localhost = words["tcp"].as_str().unwrap().replace("127.0.0.1", "localhost");
            let cases = [
                ("unix", here(words["socket"].as_str().unwrap())),
                ("tcp", words["tcp"].as_str().unwrap().to_owned()),
                // Those that take the default socket do not find our server by it; the others reach its port.
                (if words["localhost"] == "tcp" { "tcp" } else { "not tcp" }, localhost),
            ];
            for (number, (expected, text)) in cases.iter().enumerate() {
                // The command says --protocol=tcp, the crate prefer_socket(false): either overrides what `localhost` means.
                if row.client == "mysql" && number == 2 {
                    continue;
                }
                let what = format!("{} {} `{text}`", row.language, row.client);
                let Some(mut child) = start(&home, row, text, number) else {
                    missing.push(what);
                    break;
                };
                match (transport(&home, &mut child, &place), *expected) {
                    (Ok(found), "not tcp") if found == "tcp" => wrong.push(format!("{what}: tcp")),
                    (Ok(_), "not tcp") => {}
                    (Err(_), "not tcp") => {}
                    (Ok(found), expected) if found == expected => {}
                    (Ok(found), expected) => wrong.push(format!("{what}: {found}, not {expected}")),
                    (Err(said), _) if is_missing(&said) => {
                        missing.push(what);
                        break;
                    }
                    (Err(said), _) => wrong.push(format!("{what}: {said}")),
                }
                tested += u32::from(number == 0);
            }
        }
    }
    if !missing.is_empty() {
        not_tested(&format!("clients that are not installed here: {missing:#?}"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(tested >= 3, "only {tested} clients");
}

#[test]
fn every_row_called_tested_is_tested() {
    let home = Home::new();
    for service in ["mysql", "postgres", "redis", "memcached", "php-fpm", "nginx"] {
        let answer = home.run(&["how", service, "--json"]);
        let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
        for words in answer["clients"].as_array().unwrap() {
            let is_here = ROWS.iter().any(|row| {
                row.service == service && words["client"] == row.client && words["language"] == row.language
            });
            assert_eq!(words["tested"].as_bool(), Some(is_here), "{service}: {words}");
        }
    }
}
