//! `samehost verify`: the transport that is really in use, and the exit status when it is not the expected one.

use std::path::PathBuf;

use samehost_testing::free_port;
use samehost_testing::mariadb::{self, MariaDb};
use samehost_testing::postgres::{self, Cluster};
use serde_json::Value;

use crate::scan::{Held, connection_of, host_port};
use crate::support::{Home, wait_for};

fn verify(home: &Home, arguments: &[&str]) -> (i32, Value) {
    let ended = home.run(&[&["verify", "--json"], arguments].concat());
    (ended.status, serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr)))
}

#[test]
fn endpoints_are_proved_and_expectations_held() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    for (endpoint, transport, other) in [(&server.unix, "unix", "tcp"), (&server.tcp, "tcp", "unix")] {
        let (status, found) = verify(&home, &[endpoint, "--expect", transport]);
        assert_eq!((status, found["transport"].as_str()), (0, Some(transport)), "{found:#}");
        let by: Vec<&str> =
            found["proofs"].as_array().unwrap().iter().filter_map(|one| one["by"].as_str()).collect();
        assert_eq!(by, ["kernel", "socket pair", "peer"], "{found:#}");
        let (status, found) = verify(&home, &[endpoint, "--expect", other]);
        assert_eq!((status, found["as_expected"].as_bool()), (1, Some(false)));
    }
    let shown = home.run(&["verify", &server.tcp, "--expect", "unix"]);
    assert_eq!(shown.status, 1);
    assert!(shown.stdout.contains("uses TCP, but unix was expected"), "{}", shown.stdout);
}

/// A Redis at a port and at a socket.
fn redis(home: &Home) -> (Held, u16, PathBuf) {
    let (port, socket) = (free_port(), home.path("redis.sock"));
    (Held::redis(home, port, &socket, &[]), port, socket)
}

#[test]
fn redis_says_what_it_sees() {
    let home = Home::new();
    let (_redis, port, socket) = redis(&home);
    for (url, transport) in
        [(format!("redis+unix://{}", socket.display()), "unix"), (format!("redis://127.0.0.1:{port}"), "tcp")]
    {
        let (status, found) = verify(&home, &[&url, "--expect", transport]);
        assert_eq!(status, 0, "{found:#}");
        let server = found["proofs"].as_array().unwrap().iter().find(|one| one["by"] == "server").unwrap();
        assert_eq!(server["transport"].as_str(), Some(transport), "{found:#}");
        let peer = found["proofs"].as_array().unwrap().iter().find(|one| one["by"] == "peer").unwrap();
        assert!(peer["says"].as_str().unwrap().contains("redis-server"), "{found:#}");
    }
}

#[test]
fn what_people_call_an_endpoint_is_found() {
    let home = Home::new();
    let (_redis, port, socket) = redis(&home);
    for (text, transport) in [(format!("127.0.0.1:{port}"), "tcp"), (socket.display().to_string(), "unix")] {
        let (status, found) = verify(&home, &[&text, "--expect", transport]);
        assert_eq!((status, found["transport"].as_str()), (0, Some(transport)), "{text}: {found:#}");
    }
    // Other tests may have a Redis as well.
    for name in ["redis", "redis-server"] {
        let shown = home.run(&["verify", name]);
        assert_eq!(shown.status, 0, "{}", shown.both());
        for endpoint in [format!("tcp:127.0.0.1:{port} uses TCP"), format!("unix:{} uses", socket.display())]
        {
            assert!(shown.stdout.contains(&endpoint), "{endpoint}: {}", shown.stdout);
        }
        // It is about all the clients, and about none of ours.
        let expected = home.run(&["verify", name, "--expect", "unix"]);
        assert!(
            [0, 1, 5].contains(&expected.status) && expected.stdout.contains("client"),
            "{}",
            expected.both()
        );
    }
    let none = home.run(&["verify", "no-such-service"]);
    assert!(none.status == 2 && none.stderr.contains("is not a process number"), "{}", none.both());
    let none = home.run(&["verify", "/nonexistent/shop"]);
    assert!(none.status == 2 && none.stderr.contains("No such file or directory"), "{}", none.both());
}

#[test]
fn redis_tells_who_may_ask_and_refuses_who_may_not() {
    let home = Home::new();
    let socket = home.path("guarded.sock");
    let socket = socket.to_str().unwrap();
    // A server of before 6.2 has no CLIENT INFO; the second user may not ask for it.
    let users =
        ["--requirepass", "hunter2", "--user", "old", "on", ">hunter3", "~*", "+@all", "-client|info"];
    let _redis = Held::redis(&home, 0, std::path::Path::new(socket), &users);
    for (url, words) in [
        (format!("redis+unix://:hunter2@{socket}?db=3"), "CLIENT INFO: addr="),
        (format!("redis+unix://old:hunter3@{socket}"), "CLIENT LIST: addr="),
    ] {
        let (status, found) = verify(&home, &[&url, "--expect", "unix"]);
        let proof = server_proof(&found);
        assert_eq!((status, proof["transport"].as_str()), (0, Some("unix")), "{found:#}");
        assert!(proof["says"].as_str().unwrap().contains(words), "{found:#}");
        assert!(!found.to_string().contains("hunter"), "{found:#}");
    }
    for (url, code) in
        [(format!("redis+unix://{socket}"), "NOAUTH"), (format!("redis+unix://:wrong@{socket}"), "WRONGPASS")]
    {
        let (status, found) = verify(&home, &[&url, "--expect", "unix"]);
        let says = server_proof(&found)["says"].as_str().unwrap();
        assert!(status == 1 && says.contains(code) && says.contains("refused"), "{found:#}");
    }
    // An endpoint is no login.
    let (status, found) = verify(&home, &[socket, "--expect", "unix"]);
    assert_eq!((status, found["login"]["outcome"].as_str()), (0, Some("connected")), "{found:#}");
}

#[test]
fn memcached_says_what_it_sees() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let user = mariadb::own_name();
    let _memcached = Held::start("memcached", &["-l", "127.0.0.1", "-p", &port.to_string(), "-u", &user]);
    wait_for("memcached", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let (status, found) = verify(&home, &[&format!("memcached://127.0.0.1:{port}"), "--expect", "tcp"]);
    let proof = server_proof(&found);
    assert_eq!((status, proof["transport"].as_str()), (0, Some("tcp")), "{found:#}");
    assert!(proof["says"].as_str().unwrap().starts_with("memcached 1."), "{found:#}");
}

/// What the server says.
fn server_proof(found: &Value) -> &Value {
    let proofs = found["proofs"].as_array().unwrap();
    proofs.iter().find(|one| one["by"] == "server").unwrap_or_else(|| panic!("{found:#}"))
}

#[test]
fn mariadb_says_what_it_sees() {
    let home = Home::new();
    let server = MariaDb::start(&["--performance-schema=ON"]);
    let login = |user: &str| format!("{user}:{}", mariadb::SECRET_IN_URL);
    for (url, transport, words) in [
        (server.unix(&login("by_native")), "unix", "by_native@localhost from localhost"),
        (server.tcp(&login("by_native")), "tcp", "by_native@127.0.0.1 from 127.0.0.1:"),
        (server.unix(&login("by_ed25519")), "unix", "no TLS, CONNECTION_TYPE Socket"),
        (server.tcp(&login("by_ed25519")), "tcp", "no TLS, CONNECTION_TYPE TCP/IP"),
        // May not read performance_schema: the process list tells.
        (server.unix("by_nothing"), "unix", "account by_nothing@localhost, no TLS"),
        (server.tcp("by_nothing"), "tcp", "account by_nothing@127.0.0.1, no TLS"),
    ] {
        let (status, found) = verify(&home, &[&url, "--expect", transport]);
        assert_eq!(status, 0, "{found:#}");
        let by: Vec<&str> =
            found["proofs"].as_array().unwrap().iter().filter_map(|one| one["by"].as_str()).collect();
        assert_eq!(by, ["kernel", "socket pair", "peer", "server"], "{found:#}");
        let proof = server_proof(&found);
        assert_eq!(proof["transport"].as_str(), Some(transport), "{found:#}");
        let says = proof["says"].as_str().unwrap();
        assert!(says.contains("MariaDB") && says.contains(words), "{words}: {says}");
        assert!(!found.to_string().contains("hunter2"), "{found:#}");
        let other = if transport == "unix" { "tcp" } else { "unix" };
        assert_eq!(verify(&home, &[&url, "--expect", other]).0, 1);
    }
    // The kernel's word on the transport stands, and a login that was refused is no success.
    let (status, found) = verify(&home, &[&server.unix("by_native:hunter2"), "--expect", "unix"]);
    assert_eq!((status, found["login"]["outcome"].as_str()), (1, Some("refused")), "{found:#}");
    let says = server_proof(&found)["says"].as_str().unwrap();
    assert!(says.contains("refused the login of `by_native`") && says.contains("1045"), "{says}");
    assert!(server_proof(&found)["transport"].is_null() && !found.to_string().contains("hunter2"));
    assert!(found["notes"].to_string().contains("two accounts"), "{found:#}");
    // Without a user: the one that runs this, whom the server asks the kernel about. And MYSQL_PWD.
    let url = format!("mysql://localhost/shop?socket={}", server.socket());
    let (_, found) = verify(&home, &[&url]);
    let own = format!("USER() {}@localhost", mariadb::own_name());
    assert!(server_proof(&found)["says"].as_str().unwrap().contains(&own), "{found:#}");
    let mut command = home.command(&["verify", "--json", &server.unix("by_native")]);
    let given = crate::support::Ended::of(&command.env("MYSQL_PWD", mariadb::SECRET).output().unwrap());
    assert!(given.stdout.contains("account by_native@localhost"), "{}", given.stdout);
}

#[test]
fn postgres_says_what_it_sees() {
    let home = Home::new();
    let server = Cluster::start(20);
    let login = |user: &str| format!("{user}:{}", postgres::SECRET);
    for (url, transport, words) in [
        (server.unix(&login("by_scram")), "unix", "user by_scram, Unix socket, no TLS"),
        (server.tcp(&login("by_scram")), "tcp", "from 127.0.0.1:"),
        (server.unix(&login("by_md5")), "unix", "user by_md5, Unix socket, no TLS"),
        (server.tcp("by_trust"), "tcp", "user by_trust, 127.0.0.1:"),
    ] {
        let (status, found) = verify(&home, &[&url, "--expect", transport]);
        assert_eq!(status, 0, "{found:#}");
        let proof = server_proof(&found);
        assert_eq!(proof["transport"].as_str(), Some(transport), "{found:#}");
        assert!(proof["says"].as_str().unwrap().contains(words), "{words}: {proof}");
        assert!(!found.to_string().contains(postgres::SECRET), "{found:#}");
    }
    for (url, words) in [
        (server.unix("by_scram:hunter2"), "SQLSTATE 28P01"),
        (server.tcp("nobody_here"), "SQLSTATE 28000"),
        (server.unix("by_scram"), "it requires a password"),
    ] {
        let (status, found) = verify(&home, &[&url]);
        let says = server_proof(&found)["says"].as_str().unwrap();
        assert!(status == 1 && says.contains("refused") && says.contains(words), "{words}: {found:#}");
        assert!(server_proof(&found)["transport"].is_null(), "{found:#}");
    }
    // As libpq does: the password from the environment.
    let mut command = home.command(&["verify", "--json", &server.unix("by_scram")]);
    let given = crate::support::Ended::of(&command.env("PGPASSWORD", postgres::SECRET).output().unwrap());
    assert!(given.stdout.contains("user by_scram, Unix socket"), "{}", given.stdout);
}

#[test]
fn a_process_is_judged_by_what_it_holds() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let [host, port] = host_port(&server.tcp);
    let over_tcp = Held::start("nc", &[host, port]);
    let over_unix = Held::start("nc", &["-U", home.path("echo.sock").to_str().unwrap()]);
    for (client, transport, expected) in [(&over_tcp, "tcp", 1), (&over_unix, "unix", 0)] {
        connection_of(&home, client.pid());
        let (status, found) = verify(&home, &[&client.pid().to_string(), "--expect", "unix"]);
        assert_eq!((status, found["transport"].as_str()), (expected, Some(transport)), "{found:#}");
        assert_eq!(found["connections"][0]["role"], "client");
        assert_eq!(found["connections"][0]["service"], "samehost serve");
    }
    assert_eq!(home.run(&["verify", "4194305"]).status, 3);
}

#[test]
fn localhost_is_explained_and_wrong_targets_refused() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let [_, port] = host_port(&server.tcp);
    let shown = home.run(&["verify", &format!("postgres://u:hunter2@localhost:{port}/db")]);
    assert_eq!(shown.status, 1, "it is no PostgreSQL: {}", shown.both());
    assert!(shown.stdout.contains("`localhost` means TCP"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("hunter2"), "{}", shown.stdout);
    let wrong = home.run(&["verify", "nothing"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("not a process number, endpoint or URL"), "{}", wrong.stderr);
    let dead = home.run(&["verify", "unix:/nowhere/x.sock"]);
    assert_eq!(dead.status, 3);
    assert!(dead.stderr.contains("/nowhere"), "{}", dead.stderr);
}

#[test]
fn how_names_the_path_found_here_and_translates_urls() {
    let home = Home::new();
    let socket = home.path("redis.sock");
    let _redis = Held::redis(&home, 0, &socket, &[]);
    let found = home.run(&["how", "redis", "--client", "python", "--json"]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(
        (found["schema"].as_str(), found["path_from"].as_str()),
        (Some("samehost.how/1"), Some("found here"))
    );
    assert_eq!(found["clients"][0]["client"], "redis-py");
    let elsewhere = home.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let here = |arguments: &[&str]| {
        samehost_testing::Ended::of(&home.command(arguments).current_dir(&elsewhere).output().unwrap())
    };
    let shown = here(&["how", "--url", "mysql://bob:hunter2@127.0.0.1:3307/shop"]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("DB_HOST") && shown.stdout.contains("3307"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("hunter2"));
    // All in a line each, or those of the languages that a directory is written in.
    let brief = here(&["how", "mysql"]).stdout;
    assert!(brief.contains("  Laravel, php  DB_SOCKET=") && brief.contains("--client LANGUAGE"), "{brief}");
    assert!(!brief.contains("`localhost` means TCP"), "{brief}");
    let project = home.path("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("go.mod"), "module shop\n").unwrap();
    let of_project = home.command(&["how", "mysql"]).current_dir(&project).output().unwrap();
    let of_project = String::from_utf8(of_project.stdout).unwrap();
    assert!(of_project.contains("go-sql-driver, go") && of_project.contains("(go)"), "{of_project}");
    assert!(of_project.contains("    tcp    ") && !of_project.contains("Laravel"), "{of_project}");
    // A client that knows no path is told what gives it one; nobody else is.
    let shown = |language: &str| home.run(&["how", "nginx", "--client", language]).stdout;
    assert!(shown("java").contains("it cannot by itself; under `samehost run` it can"), "{}", shown("java"));
    assert!(!shown("python").contains("samehost run"), "{}", shown("python"));
    for arguments in [&["how", "cobol"][..], &["how", "mysql", "--client", "cobol"], &["how", "qdrant"]] {
        assert_eq!(home.run(arguments).status, 2, "{arguments:?}");
    }
}

#[test]
fn how_says_which_of_several_servers_it_is_about() {
    let home = Home::new();
    let (one, other) = (home.path("one.sock"), home.path("other.sock"));
    let ports = [free_port(), free_port()];
    let _one = Held::redis(&home, ports[0], &one, &[]);
    let _other = Held::redis(&home, ports[1], &other, &[]);
    let asked = |arguments: &[&str]| -> Value {
        let ended = home.run(&[arguments, &["--json"]].concat());
        assert_eq!(ended.status, 0, "{arguments:?}: {}", ended.stderr);
        serde_json::from_str(&ended.stdout).unwrap()
    };
    // Without an address the port is that of the server with the socket, and the others are named: each has other data.
    let any = asked(&["how", "redis", "--client", "redis-cli"]);
    let (path, tcp) = (any["path"].as_str().unwrap(), any["clients"][0]["tcp"].as_str().unwrap());
    for (socket, port) in [(&one, ports[0]), (&other, ports[1])] {
        let is_chosen = path == socket.to_str().unwrap();
        assert_eq!(is_chosen, tcp == format!("redis-cli -h 127.0.0.1 -p {port}"), "{any}");
        let is_named = any["others"].to_string().contains(&format!("tcp:127.0.0.1:{port}"));
        assert_eq!(is_named, !is_chosen, "{any}");
    }
    // An address says which, without a word for its service; what it names besides is kept.
    let place = format!("unix://{}?db=3", other.display());
    for (url, number) in [(format!("127.0.0.1:{}", ports[1]), ""), (place, " -n 3")] {
        let found = asked(&["how", "--url", &url, "--client", "redis-cli"]);
        let words = format!("redis-cli -s {}{number}", other.display());
        assert_eq!(found["clients"][0]["socket"], words, "{url}");
        assert_eq!(found["others"].as_array().unwrap().len(), 0, "{url}");
    }
    let celerys = format!("redis+socket://{}?virtual_host=5", other.display());
    let found = asked(&["how", "--url", &celerys, "--client", "ioredis"]);
    assert_eq!(found["clients"][0]["socket"], format!("new Redis({{ path: '{}', db: 5 }})", other.display()));
    // A server that took the other's path has other data.
    let _thief = Held::redis(&home, free_port(), &other, &[]);
    let found =
        asked(&["how", "--url", &format!("redis://127.0.0.1:{}/3", ports[1]), "--client", "redis-cli"]);
    assert_eq!(found["path_from"], "unsafe");
    assert_ne!(found["path"].as_str(), other.to_str(), "{found}");
    // Another machine's server has other data than any socket here.
    for host in ["192.0.2.4", "cache.example"] {
        let found = asked(&["how", "--url", &format!("redis://{host}:6379/3"), "--client", "ioredis"]);
        assert_eq!(found["path_from"], "elsewhere", "{host}");
    }
}

#[test]
fn how_reads_what_drivers_take_in_place_of_a_url() {
    let home = Home::new();
    let socket = home.path("redis.sock");
    let port = free_port();
    let _redis = Held::redis(&home, port, &socket, &[]);
    let (pg, path) = (free_port(), socket.display());
    let words = |url: &str, client: &str| {
        let ended = home.run(&["how", "--url", url, "--client", client, "--json"]);
        let found: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.both()));
        let one = &found["clients"][0];
        (one["socket"].as_str().unwrap().to_owned(), one["tcp"].as_str().unwrap().to_owned())
    };
    // The server at the address says what it is, where the text does not.
    for (url, client, expected) in [
        (
            format!("127.0.0.1:{port},defaultDatabase=5"),
            "stackexchange",
            format!("Connect(\"!{path},defaultDatabase=5\")"),
        ),
        (
            format!("{{ host: '127.0.0.1', port: {port}, db: 5 }}"),
            "ioredis",
            format!("{{ path: '{path}', db: 5 }}"),
        ),
        (format!("redis.Redis(host='127.0.0.1', port={port}, db=5)"), "redis-py", format!("'{path}', db=5)")),
        (format!("tcp://127.0.0.1:{port}?database=5"), "predis", format!("'{path}', 'database' => 5")),
        (format!("Server=127.0.0.1;Port={port}"), "redis-cli", format!("redis-cli -s {path}")),
    ] {
        assert!(words(&url, client).0.contains(&expected), "{url}: {:?}", words(&url, client));
    }
    // Database, user and port are kept in the words of the client.
    for (url, client, expected) in [
        (
            format!("host=127.0.0.1 port={pg} dbname=shop user=fern"),
            "pgx",
            format!("fern@127.0.0.1:{pg}/shop"),
        ),
        (
            format!("Host=127.0.0.1;Port={pg};Database=shop;Username=fern"),
            "npgsql",
            format!("Port={pg};Username=fern;Database=shop"),
        ),
        (
            format!("jdbc:postgresql://127.0.0.1:{pg}/shop?user=fern"),
            "pgjdbc",
            format!("127.0.0.1:{pg}/shop?user=fern"),
        ),
        (
            "fern:pw@tcp(127.0.0.1:3306)/shop".into(),
            "go-sql-driver",
            "fern:password@tcp(127.0.0.1:3306)/shop".into(),
        ),
        (
            "Server=127.0.0.1;Port=3306;Database=shop;Uid=fern;Pwd=pw".into(),
            "dotnet",
            "Port=3306;User ID=fern;Database=shop".into(),
        ),
        ("mysql:host=127.0.0.1;dbname=shop".into(), "pdo", "port=3306;dbname=shop".into()),
    ] {
        assert!(words(&url, client).1.contains(&expected), "{url}: {:?}", words(&url, client));
    }
    // What was read, and what not, in one sentence; and no password.
    for (url, expected) in [
        ("localhost:11211,localhost:11212", "ask for each: localhost:11211"),
        ("redis://a,b/1", "each of several servers has a socket of its own"),
        ("Server=127.0.0.1,1433;Uid=sa;Pwd=hunter2", "tcp:127.0.0.1:1433 says no service"),
        ("odd://sa:hunter2@127.0.0.1/x", "`odd://` is not the scheme of a known server"),
    ] {
        let ended = home.run(&["how", "--url", url]);
        let said = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(ended.status == 2 && said.contains(expected) && !said.contains("hunter2"), "{url}: {said}");
    }
}

#[test]
fn how_knows_languages_and_applications_by_what_people_type() {
    let home = Home::new();
    for (name, words) in [
        ("TypeScript", ", node"),
        ("nextcloud", "'dbindex'"),
        ("Gitea", "HOST = /"),
        ("immich", "REDIS_SOCKET=/"),
        ("perl", "DBI->connect("),
        ("PostgreSQL", "PostgreSQL over a Unix socket"),
        ("vllm", "--uds /"),
        ("envoy", "pipe"),
        ("keycloak", "samehost run"),
        ("jellyfin", "JELLYFIN_kestrel__socketPath=/"),
        ("miniflux", "LISTEN_ADDR"),
        ("httpd", "proxy:unix:/"),
        ("traefik", "reaches"),
    ] {
        let url = if name == "nextcloud" { &["--url", "redis://127.0.0.1:1/4"][..] } else { &[] };
        let ended = home.run(&[&["how", name][..], url].concat());
        assert!(ended.status == 0 && ended.stdout.contains(words), "{name}: {}", ended.both());
    }
    for name in ["gin", "ent", "prometheus", "ollama"] {
        assert_eq!(home.run(&["how", name]).status, 2, "{name}");
    }
    for (name, can) in [("qdrant", true), ("sqlite", false)] {
        let ended = home.run(&["how", name]);
        assert!(ended.status == 2 && ended.stderr.contains("--listen") == can, "{}", ended.both());
    }
}

/// Files of PHP applications, shortened, as their installers write them; the corpus `php-application` has where they come from. The port is
/// `PORT`, the account `by_native`.
const APPLICATIONS: &[(&str, &str)] = &[
    (
        "sites/default/settings.php",
        "<?php
$databases = [];
$settings['hash_salt'] = 'abc';
$databases['default']['default'] = array (
  'database' => 'shop',
  'username' => 'by_native',
  'password' => 'SECRET',
  'prefix' => '',
  'host' => '127.0.0.1',
  'port' => 'PORT',
  'driver' => 'mysql',
  'namespace' => 'Drupal\\\\mysql\\\\Driver\\\\Database\\\\mysql',
);
",
    ),
    (
        "config/config.php",
        "<?php
$CONFIG = array (
  'datadirectory' => '/var/www/nextcloud/data',
  'dbtype' => 'mysql',
  'dbname' => 'shop',
  'dbhost' => '127.0.0.1:PORT',
  'dbport' => '',
  'dbuser' => 'by_native',
  'dbpassword' => 'SECRET',
  'installed' => true,
);
",
    ),
    (
        "app/etc/env.php",
        "<?php
return [
    'db' => [
        'table_prefix' => '',
        'connection' => [
            'default' => [
                'host' => '127.0.0.1:PORT',
                'dbname' => 'shop',
                'username' => 'by_native',
                'password' => 'SECRET',
                'model' => 'mysql4',
                'active' => '1'
            ]
        ]
    ],
    'MAGE_MODE' => 'production'
];
",
    ),
    (
        "configuration.php",
        "<?php
class JConfig {
	public $dbtype = 'mysqli';
	public $host = '127.0.0.1:PORT';
	public $user = 'by_native';
	public $password = 'SECRET';
	public $db = 'shop';
	public $session_handler = 'database';
}
",
    ),
    (
        "config.php",
        "<?php
unset($CFG);
global $CFG;
$CFG = new stdClass();
$CFG->dbtype    = 'mariadb';
$CFG->dblibrary = 'native';
$CFG->dbhost    = '127.0.0.1';
$CFG->dbname    = 'shop';
$CFG->dbuser    = 'by_native';
$CFG->dbpass    = 'SECRET';
$CFG->dboptions = array (
  'dbport' => 'PORT',
  'dbsocket' => '',
);
require_once(__DIR__ . '/lib/setup.php');
",
    ),
    (
        "config.inc.php",
        "<?php
$i = 0;
$i++;
$cfg['Servers'][$i]['auth_type'] = 'config';
$cfg['Servers'][$i]['host'] = '127.0.0.1';
$cfg['Servers'][$i]['port'] = 'PORT';
$cfg['Servers'][$i]['user'] = 'by_native';
$cfg['Servers'][$i]['password'] = 'SECRET';
",
    ),
];

#[test]
fn files_of_php_applications_lead_to_their_server_with_their_account() {
    let server = MariaDb::start(&[]);
    // As PHP has it between single quotes.
    let secret = mariadb::SECRET.replace('\\', "\\\\").replace('\'', "\\'");
    for (name, text) in APPLICATIONS {
        let home = Home::new();
        let file = home.path(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text.replace("PORT", &server.port.to_string()).replace("SECRET", &secret))
            .unwrap();
        let file = file.to_str().unwrap();
        // No process of the application runs here.
        let (status, found) = verify(&home, &[file, "--expect", "tcp"]);
        assert_eq!((status, found["transport"].as_str()), (5, Some("tcp")), "{name}: {found:#}");
        let says = server_proof(&found)["says"].as_str().unwrap();
        assert!(says.contains("by_native@127.0.0.1"), "{name}: {says}");
        assert!(!found.to_string().contains("hunter2"), "{name}");
        assert_eq!(verify(&home, &[file, "--expect", "unix"]).0, 1, "{name}");
    }
}
