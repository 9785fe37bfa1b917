//! What is claimed of a configuration that leads to a server that refuses, lies or says nothing, and of a service whose clients
//! connect over two transports: no headline and no exit status says more than what was seen.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use samehost_testing::mariadb::{MariaDb, SECRET, SECRET_IN_URL};
use samehost_testing::postgres::{self, Cluster};
use serde_json::Value;

use crate::login::Fake;
use crate::support::{Ended, MALLORY, Machine, free_port, wait_for};

/// A Laravel whose `.env` names a Redis; returns its directory.
fn with_redis(machine: &Machine, host: &str, port: u16, password: &str) -> String {
    machine.write("site/artisan", "#!/usr/bin/env php\n");
    machine.write("site/composer.json", "{\"require\":{\"laravel/framework\":\"^10\"}}\n");
    let text =
        format!("REDIS_CLIENT=phpredis\nREDIS_HOST={host}\nREDIS_PASSWORD={password}\nREDIS_PORT={port}\n");
    machine.write("site/.env", text);
    machine.path("site").display().to_string()
}

fn with_database(machine: &Machine, kind: &str, port: u16, login: [&str; 3]) -> String {
    machine.write("site/artisan", "#!/usr/bin/env php\n");
    machine.write("site/composer.json", "{\"require\":{\"laravel/framework\":\"^10\"}}\n");
    let [user, password, database] = login;
    let text = format!(
        "DB_CONNECTION={kind}\nDB_HOST=127.0.0.1\nDB_PORT={port}\nDB_DATABASE={database}\nDB_USERNAME={user}\nDB_PASSWORD=\"{password}\"\n"
    );
    machine.write("site/.env", text);
    machine.path("site").display().to_string()
}

/// Without the breaks of the lines.
fn said(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Nothing is called working, used or as expected, in words, by the status and in JSON, with an expectation and without.
fn is_no_success(machine: &Machine, target: &str, transport: &str, outcome: &str, words: &str) {
    for more in [&["--expect", transport][..], &[]] {
        let ended = machine.samehost(&[&["verify", target], more].concat());
        let text = said(&ended);
        assert_eq!(ended.status, 1, "{outcome}: {text}");
        assert!(text.contains(words), "{outcome}: {text}");
        for claim in
            ["a login works", "as expected", "uses the Unix socket", "uses TCP", "a connection opens"]
        {
            assert!(!text.contains(claim), "{outcome}: {claim}: {text}");
        }
        let ended = machine.samehost(&[&["verify", target, "--json"], more].concat());
        let found: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((ended.status, &found["verdict"]), (1, &"contradicted".into()), "{found:#}");
        assert_eq!(found["login"]["outcome"], outcome, "{found:#}");
        assert_ne!(found["as_expected"], true, "{found:#}");
        assert!(found["standing"].is_null() || found["standing"] == "written", "{found:#}");
    }
}

/// Each kind of fake, as whom it runs, and what is to be said of it.
const FAKES: &[(&str, u32, &str, &str)] = &[
    ("redis-refuses", 0, "refused", "the server refuses the login"),
    ("redis", MALLORY, "unproven", "not proved to be the server: no password was sent"),
    ("silent", 0, "silent", "no answer to the login came in time"),
    ("closes", 0, "closed", "closed before a login is answered"),
    ("garbage", 0, "other_protocol", "does not speak its protocol"),
    ("drips", 0, "other_protocol", "does not speak its protocol"),
];

#[test]
fn a_login_that_was_not_accepted_is_called_so_over_both_transports() {
    // Most of them let one wait: all at once.
    thread::scope(|scope| {
        for (kind, uid, outcome, words) in FAKES {
            let mut machine = Machine::new();
            let fake = Fake::start(&mut machine, *uid, kind);
            scope.spawn(move || {
                let site = with_redis(&machine, &fake.socket.display().to_string(), 0, "HuNtEr2");
                is_no_success(&machine, &site, "unix", outcome, words);
                let url = format!("redis://:HuNtEr2@127.0.0.1:{}", fake.port);
                is_no_success(&machine, &url, "tcp", outcome, words);
            });
        }
    });
    let machine = Machine::new();
    let nowhere = machine.path("nobody.sock").display().to_string();
    let site = with_redis(&machine, &nowhere, 0, "HuNtEr2");
    is_no_success(&machine, &site, "unix", "unreachable", "nobody is reached there");
    // A bare endpoint has nothing to compare with: something is missing.
    assert_eq!(machine.samehost(&["verify", &format!("unix:{nowhere}")]).status, 3);
}

#[test]
fn databases_that_refuse_or_are_none_are_no_success_and_the_right_login_is_tried_and_no_more() {
    let fakes = [
        ("mysql-clear", MALLORY, "mysql", "unproven"),
        ("postgres-clear", MALLORY, "pgsql", "unproven"),
        // Its first bytes are the head of a message that never ends.
        ("garbage", 0, "pgsql", "silent"),
        ("garbage", 0, "mysql", "other_protocol"),
        ("closes", 0, "mysql", "closed"),
        ("silent", 0, "mysql", "silent"),
    ];
    thread::scope(|scope| {
        for (kind, uid, protocol, outcome) in fakes {
            let mut machine = Machine::new();
            let fake = Fake::start(&mut machine, uid, kind);
            scope.spawn(move || {
                let site = with_database(&machine, protocol, fake.port, ["app", "HuNtEr2", "shop"]);
                is_no_success(&machine, &site, "tcp", outcome, "names TCP, and");
            });
        }
    });
    let machine = Machine::new();
    let (mariadb, postgres) = (MariaDb::start(&[]), Cluster::start(20));
    for (kind, port, right) in [
        ("mysql", mariadb.port, ["by_native", SECRET, "shop"]),
        ("pgsql", postgres.port, ["by_scram", postgres::SECRET, "shop"]),
    ] {
        let [user, password, database] = right;
        for wrong in [[user, "HuNtEr2", database], [user, password, "no_such_database"]] {
            let site = with_database(&machine, kind, port, wrong);
            is_no_success(&machine, &site, "tcp", "refused", "the server refuses the login");
        }
        let site = with_database(&machine, kind, port, right);
        let ended = machine.samehost(&["verify", &site]);
        assert!(ended.status == 0 && said(&ended).contains("a login works"), "{}", ended.both());
        // Nobody was seen: neither yes nor no.
        let ended = machine.samehost(&["verify", &site, "--expect", "tcp", "--json"]);
        let found: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((ended.status, &found["verdict"]), (5, &"undecided".into()), "{found:#}");
        assert_eq!((&found["as_expected"], &found["standing"]), (&Value::Null, &"tried".into()), "{found:#}");
        assert_eq!(machine.samehost(&["verify", &site, "--expect", "unix"]).status, 1);
    }
    // Accounts that are let in and may ask nothing.
    for (user, with) in [("expired", "PASSWORD EXPIRE"), ("spent", "WITH MAX_QUERIES_PER_HOUR 1")] {
        mariadb.sql(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'HuNtEr2' {with}"));
        mariadb.sql(&format!("GRANT ALL ON shop.* TO {user}@'%'"));
    }
    let spent = with_database(&machine, "mysql", mariadb.port, ["spent", "HuNtEr2", "shop"]);
    let _ = machine.samehost(&["verify", &spent]);
    let expired = with_database(&machine, "mysql", mariadb.port, ["expired", "HuNtEr2", "shop"]);
    is_no_success(&machine, &expired, "tcp", "refused", "the server refuses the login");
    let spent = with_database(&machine, "mysql", mariadb.port, ["spent", "HuNtEr2", "shop"]);
    is_no_success(&machine, &spent, "tcp", "refused", "the server refuses the login");
    // An account that has to come encrypted is let in so, as its own client would be.
    let encrypted = format!("mysql://by_tls:{SECRET_IN_URL}@127.0.0.1:{}/shop", mariadb.port);
    let ended = machine.samehost(&["verify", &encrypted, "--expect", "tcp"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
}

/// Starts a Redis with both doors and a password, and waits for it.
fn redis(machine: &mut Machine) -> (u16, String) {
    let (port, socket) = (free_port(), machine.path("redis.sock").display().to_string());
    let words =
        ["--port", &port.to_string(), "--unixsocket", &socket, "--unixsocketperm", "777", "--save", ""];
    let mut command = Command::new("redis-server");
    command.args(words).args(["--requirepass", "HuNtEr2"]).current_dir(machine.path("."));
    machine.start(command);
    wait_for("Redis", || UnixStream::connect(&socket).ok());
    (port, socket)
}

/// A program that works in a directory and is connected to a place, a path or a port.
fn connected(machine: &mut Machine, folder: &Path, place: &str) {
    let ready = machine.path("connected");
    let _ = std::fs::remove_file(&ready);
    let script = format!(
        "import socket, sys, time\nplace = sys.argv[1]\nif place.isdigit(): s = socket.create_connection(('127.0.0.1', int(place)))\nelse:\n    s = socket.socket(socket.AF_UNIX)\n    s.connect(place)\nopen('{}', 'w')\ntime.sleep(600)\n",
        ready.display()
    );
    // Its code lies there: a working directory alone vouches for nobody.
    let program = folder.join("worker.py");
    std::fs::write(&program, script).unwrap();
    let mut command = Command::new("/usr/bin/python3");
    command.arg(program).arg(place).current_dir(folder).uid(0);
    machine.start(command);
    wait_for("the program to connect", || ready.exists().then_some(()));
}

#[test]
fn an_application_that_is_connected_is_in_use_and_one_that_is_connected_elsewhere_contradicts() {
    let mut machine = Machine::new();
    let (port, socket) = redis(&mut machine);
    let site = with_redis(&machine, &socket, 0, "HuNtEr2");
    let status =
        |machine: &Machine, expected| machine.samehost(&["verify", &site, "--expect", expected]).status;
    // Somebody else's connection is not the application's.
    connected(&mut machine, Path::new("/"), &socket);
    assert_eq!(status(&machine, "unix"), 5);
    connected(&mut machine, Path::new(&site), &socket);
    let ended = machine.samehost(&["verify", &site, "--expect", "unix"]);
    assert!(ended.status == 0 && said(&ended).contains("as expected (unix)"), "{}", ended.both());
    assert_eq!(status(&machine, "tcp"), 1);
    // A wrong password is not made good by a connection that is open.
    with_redis(&machine, &socket, 0, "wrong");
    let ended = machine.samehost(&["verify", &site, "--expect", "unix"]);
    assert!(
        ended.status == 1 && said(&ended).contains("refuses the login; the application holds"),
        "{}",
        ended.both()
    );
    with_redis(&machine, &socket, 0, "HuNtEr2");
    connected(&mut machine, Path::new(&site), &port.to_string());
    let ended = machine.samehost(&["verify", &site, "--expect", "unix"]);
    assert!(ended.status == 1 && said(&ended).contains("and elsewhere: "), "{}", ended.both());
}

/// In a network of its own: other tests have a Redis as well.
const CLIENTS: &str = r#"
ip link set lo up
redis-server --port 6379 --unixsocket $D/r.sock --save "" --dir $D >/dev/null & 
until [ -S $D/r.sock ]; do sleep 0.05; done
hold() { python3 -c '
import socket, sys, time
over, name = sys.argv[1:]
s = socket.create_connection(("127.0.0.1", 6379)) if over == "tcp" else socket.socket(socket.AF_UNIX)
if over == "unix": s.connect(name + "/r.sock")
s.sendall(b"PING\r\n"); s.recv(100)
open(name + "/" + sys.argv[1] + "." + str(time.time()), "w")
time.sleep(600)' $1 $D & }
wait_for() { until [ $(ls $D/$1.* 2>/dev/null | wc -l) -ge $2 ]; do sleep 0.05; done; }
verify() { $SAMEHOST verify "$@"; echo "status $?"; }
verify redis --expect unix
hold unix; hold unix; wait_for unix 2
verify redis --expect unix
verify redis --expect tcp
hold tcp; wait_for tcp 1
verify redis --expect unix
kill $(jobs -p)
wait
"#;

#[test]
fn a_service_is_judged_by_all_its_clients() {
    let machine = Machine::new();
    let mut command = Command::new("unshare");
    command
        .args(["-n", "bash", "-c", CLIENTS])
        .env("D", machine.path("."))
        .env("SAMEHOST", env!("CARGO_BIN_EXE_samehost"));
    let ended = crate::support::bounded(command);
    let text = said(&ended);
    for (at, part) in [
        "redis: no client is connected now",
        "status 5",
        "redis: 2 clients: 2 over Unix sockets, as expected (unix)",
        "status 0",
        "redis: 2 clients: 2 over Unix sockets, but tcp was expected",
        "status 1",
        "redis: 3 clients: 2 over Unix sockets, 1 over TCP (python3 ",
        "but unix was expected",
        "status 1",
    ]
    .iter()
    .enumerate()
    {
        assert!(text.contains(part), "{at} {part}: {text}");
    }
    let statuses: Vec<&str> = text.match_indices("status ").map(|(at, _)| &text[at + 7..at + 8]).collect();
    assert_eq!(statuses, ["5", "0", "1", "1"], "{text}");
}

/// In a network of its own: an nginx before a program that lets it wait, and a visitor over TCP.
const HOPS: &str = r#"
ip link set lo up
cd $D
configure() { echo "user www-data; pid $D/nginx.pid; error_log $D/log; events {}
http { access_log off; server { listen 127.0.0.1:8080; location / { $1 } } }" > nginx.conf; }
python3 -c '
import socket
held = []
doors = [socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 9000))]
doors[0].bind("app.sock"); doors[0].listen(); import os, select
os.chmod("app.sock", 0o777)
while True:
    for door in select.select(doors, [], [])[0]: held.append(door.accept()[0]); open("held", "a").write("x")' &
until [ -S app.sock ]; do sleep 0.05; done
verify() { $SAMEHOST verify nginx "$@"; echo "status $?"; }
ask() { rm -f held; curl -s http://127.0.0.1:8080/ >/dev/null & until [ -s held ]; do sleep 0.05; done; }
configure "proxy_pass http://unix:$D/app.sock:;"
nginx -c $D/nginx.conf -e $D/log
verify --expect unix
ask
verify --expect unix
verify
kill $(cat nginx.pid); while [ -e nginx.pid ]; do sleep 0.05; done
configure "proxy_pass http://127.0.0.1:9000;"
nginx -c $D/nginx.conf -e $D/log
ask
verify --expect unix
kill $(cat nginx.pid); while [ -e nginx.pid ]; do sleep 0.05; done
configure "return 200;"
nginx -c $D/nginx.conf -e $D/log
# One that none of the others inherits.
(exec 3<>/dev/tcp/127.0.0.1/8080; > visiting; exec sleep 600) &
until [ -e visiting ]; do sleep 0.05; done
verify --expect unix
kill $(cat nginx.pid) $(jobs -p)
"#;

#[test]
fn a_web_server_is_judged_by_the_hops_that_it_makes_and_not_by_its_visitors() {
    let machine = Machine::new();
    let mut command = Command::new("unshare");
    command
        .args(["-n", "bash", "-c", HOPS])
        .env("D", machine.path("."))
        .env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin")
        .env("SAMEHOST", env!("CARGO_BIN_EXE_samehost"));
    let ended = crate::support::bounded(command);
    let text = said(&ended);
    let parts: Vec<&str> = text.split("status ").collect();
    for (at, needed, status) in [
        (0, "was not seen to use it", "5"),
        (1, "the application uses the Unix socket: nginx ", "0"),
        (2, "tcp:127.0.0.1:8080 uses TCP", "0"),
        (3, "uses TCP: nginx ", "1"),
        (4, "no client is connected now", "5"),
    ] {
        assert!(parts[at].contains(needed) && parts[at + 1].starts_with(status), "{at} {needed}: {text}");
        assert_eq!(parts[at].contains("nginx → "), at < 4, "{at}: {text}");
        let told = parts[at].contains("not judged: who calls nginx over TCP (1 of this machine)");
        assert_eq!(told, [1, 3, 4].contains(&at), "{at}: {text}");
    }
}

#[test]
fn each_account_of_a_pooler_is_asked_and_one_that_the_transport_shuts_out_contradicts() {
    let machine = Machine::new();
    let cluster = Cluster::start(20);
    let socket = cluster.socket();
    let folder = Path::new(socket.trim_start_matches("unix:")).parent().unwrap().display().to_string();
    let verify = |host: &str, users: &[(&str, &str)]| {
        let list: String = users.iter().map(|(user, word)| format!("\"{user}\" \"{word}\"\n")).collect();
        let list = machine.write("pool/userlist.txt", list).display().to_string();
        let text = format!(
            "[databases]\nshop = host={host} port={}\n[pgbouncer]\nlisten_port = 1\nauth_file = {list}\n",
            cluster.port
        );
        let ini = machine.write("pool/pgbouncer.ini", text).display().to_string();
        let ended = machine.samehost(&["verify", &ini]);
        assert!(!ended.both().contains(postgres::SECRET), "{}", ended.both());
        (ended.status, said(&ended))
    };
    let right = [("by_scram", postgres::SECRET), ("by_md5", postgres::SECRET)];
    let (status, text) = verify(&folder, &right);
    assert!(
        status == 0 && text.contains("as by_scram, by_md5: over the Unix socket a login works"),
        "{text}"
    );
    // Over TCP it is let in with TLS, and over the socket only as itself.
    let encrypted = [right[0], ("by_tls", postgres::SECRET)];
    let (status, text) = verify(&folder, &encrypted);
    assert!(
        status == 1 && text.contains("as by_tls names the Unix socket, and the server refuses the login"),
        "{text}"
    );
    assert!(text.contains("by_scram: a login works"), "{text}");
    let (status, text) = verify("127.0.0.1", &encrypted);
    assert!(status == 0 && text.contains("as by_scram, by_tls: over TCP a login works"), "{text}");
    // Another database's, or a console's: said, and no fault of this line's.
    let (status, text) = verify(&folder, &[right[0], ("by_md5", "HuNtEr2")]);
    assert!(status == 0 && text.contains("as by_scram: over the Unix socket a login works"), "{text}");
    assert!(text.contains("by_md5: the server refuses the login: "), "{text}");
    let (status, text) = verify(&folder, &[("by_md5", "HuNtEr2"), ("nobody_here", "HuNtEr2")]);
    assert!(
        status == 1 && text.contains("as by_md5, nobody_here names the Unix socket, and the server refuses"),
        "{text}"
    );
}
