//! PgBouncer and PostgreSQL: the hop behind the pooler moves to the socket and back while clients work, and is seen.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use samehost_login::postgres::LoggedIn;
use samehost_login::{Credentials, Expected, ServerAddress};
use samehost_model::{Endpoint, Protocol, Secret};
use samehost_testing::postgres::{Cluster, SECRET};
use serde_json::Value;

use super::stack::{Stack, free_port, in_one_line, is_root, must, wait_for};

/// PostgreSQL and, before it, PgBouncer.
struct Pooled {
    // Ends before the directory that it is in.
    cluster: Cluster,
    stack: Stack,
    ini: PathBuf,
    port: u16,
}

/// A database behind PgBouncer, reached over TCP; `listed` is the password in the list of users.
fn pooled(listed: &str) -> Pooled {
    let mut stack = Stack::new();
    let cluster = Cluster::start_below(&stack.path(""), 20);
    let port = free_port();
    let run = stack.shared("run").display().to_string();
    let users =
        stack.write("pool/userlist.txt", &format!("\"by_scram\" \"{listed}\"\n")).display().to_string();
    let ini = stack.write(
        "pool/pgbouncer.ini",
        &format!(
            "[databases]\n; the shop\nshop = host=127.0.0.1 port={} dbname=shop\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir = {run}\nauth_type = scram-sha-256\nauth_file = {users}\npool_mode = transaction\n",
            cluster.port
        ),
    );
    must("chown", &["postgres:", &run, &users]);
    must("chmod", &["600", &users]);
    let name = ini.display().to_string();
    stack.start(
        "setpriv",
        &["--reuid=postgres", "--regid=postgres", "--clear-groups", "--", "pgbouncer", &name],
    );
    let pooled = Pooled { cluster, stack, ini, port };
    wait_for("PgBouncer", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    pooled
}

impl Pooled {
    fn url(&self) -> String {
        format!("postgres://by_scram:{SECRET}@127.0.0.1:{}/shop", self.port)
    }

    /// What a command prints as JSON.
    fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.stack.samehost(&[arguments, &["--json"]].concat());
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.both()))
    }
}

/// A client of the pooler, logged in.
fn client(port: u16) -> Result<LoggedIn, String> {
    let login = Credentials {
        user: Some("by_scram".into()),
        password: Some(Secret::new(SECRET)),
        database: Some("shop".into()),
    };
    let address = ServerAddress::new(Endpoint::Tcp { host: "127.0.0.1".into(), port }, login);
    let expected = Expected::of_service(Protocol::Postgres);
    LoggedIn::begin(&address, false, &expected, Duration::from_secs(20)).map_err(|error| error.to_string())
}

/// The transport by which the server is reached, as it says.
fn reached(client: &mut LoggedIn) -> Result<&'static str, String> {
    let seen = client.seen().map_err(|error| error.to_string())?;
    seen.transport().ok_or_else(|| "no answer".to_owned())
}

/// Clients that ask without a pause until they are stopped: one on a connection that stays, one with a new connection
/// each time.
struct Clients {
    stop: Arc<AtomicBool>,
    /// The transport behind the pooler, as each saw it last.
    last: [Arc<Mutex<&'static str>>; 2],
    threads: Vec<JoinHandle<Result<u64, String>>>,
}

impl Clients {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let last: [Arc<Mutex<&str>>; 2] = [Arc::default(), Arc::default()];
        let ask = |number: usize| {
            let (stop, last) = (Arc::clone(&stop), Arc::clone(&last[number]));
            std::thread::spawn(move || {
                let (mut asked, mut kept) = (0, client(port)?);
                while !stop.load(Ordering::Relaxed) {
                    if number == 1 {
                        kept = client(port)?;
                    }
                    *last.lock().unwrap() = reached(&mut kept)?;
                    asked += 1;
                }
                Ok(asked)
            })
        };
        let threads = (0..2).map(ask).collect();
        Clients { stop, threads, last }
    }

    /// Waits until both saw this transport.
    fn wait_for(&self, transport: &str) {
        wait_for(transport, || {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a client has failed");
            self.last.iter().all(|last| *last.lock().unwrap() == transport).then_some(())
        });
    }

    /// What went wrong, if anything did.
    fn stop(self) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| {
            let asked = thread.join().unwrap()?;
            if asked > 0 { Ok(()) } else { Err("nothing was asked".into()) }
        })
    }
}

#[test]
fn the_hop_behind_a_pooler_moves_and_comes_back_and_no_client_fails() {
    if !is_root("the_hop_behind_a_pooler_moves_and_comes_back_and_no_client_fails") {
        return;
    }
    let pooled = pooled(SECRET);
    let name = pooled.ini.display().to_string();
    let before = Stack::facts(&[&pooled.ini]);
    let clients = Clients::start(pooled.port);
    clients.wait_for("tcp");

    let dry = pooled.stack.samehost(&["switch", &name, "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    assert!(dry.stdout.contains("kill -HUP") && !dry.both().contains(SECRET), "{}", dry.both());
    assert_eq!(Stack::facts(&[&pooled.ini]), before, "a dry run touches nothing");

    pooled.stack.assert_not_followed(
        &["switch", &name, "--confirm-within=0", "--yes"],
        "pgbouncer",
        &[&pooled.ini],
    );
    let before = Stack::facts(&[&pooled.ini]);
    let ended = pooled.stack.samehost(&["switch", &name, "--confirm-within=0", "--yes"]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), pooled.stack.log());
    pooled.stack.assert_nothing_to_do(&["switch", &name, "--confirm-within=0", "--yes"], &[&pooled.ini]);
    assert!(ended.stdout.contains("user by_scram, Unix socket"), "{}", ended.stdout);
    pooled.stack.assert_followed(|| drop(client(pooled.port)));
    let socket = pooled.cluster.socket();
    let folder = socket.strip_prefix("unix:").unwrap().rsplit_once('/').unwrap().0;
    let text = std::fs::read_to_string(&pooled.ini).unwrap();
    let line = format!("shop = host={folder} port={} dbname=shop\n", pooled.cluster.port);
    assert!(text.contains(&line), "{text}");
    clients.wait_for("unix");

    let id = pooled.stack.only_switch();
    let undone = pooled.stack.samehost(&["switch", "undo", &id, "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&pooled.ini]), before);
    clients.wait_for("tcp");
    clients.stop().unwrap_or_else(|error| panic!("{error}\n{}", pooled.stack.log()));
}

#[test]
fn both_hops_are_seen() {
    if !is_root("both_hops_are_seen") {
        return;
    }
    let pooled = pooled(SECRET);
    let mut held = wait_for("a client", || client(pooled.port).ok());
    assert_eq!(reached(&mut held), Ok("tcp"));

    let found = pooled.json(&["verify", &pooled.url(), "--expect", "tcp"]);
    let server = pooled.cluster.port;
    let proofs = found["proofs"].as_array().unwrap();
    let by =
        |name: &str| proofs.iter().find(|proof| proof["by"] == name).unwrap_or_else(|| panic!("{found:#}"));
    assert!(by("peer")["says"].as_str().unwrap().contains("PgBouncer"), "{found:#}");
    assert!(by("server")["transport"].is_null(), "it sees another connection: {found:#}");
    let behind = by("behind it")["says"].as_str().unwrap();
    assert!(behind.contains(&format!("PostgreSQL at tcp:127.0.0.1:{server}, 1 connection")), "{behind}");
    assert!(found["notes"].to_string().contains("reaches the server over TCP"), "{found:#}");

    let scan = pooled.json(&["scan"]);
    let is_to = |port: u16| {
        let address = format!("127.0.0.1:{port}");
        scan["connections"].as_array().unwrap().iter().any(|one| one["server"]["address"] == address)
    };
    assert!(is_to(pooled.port) && is_to(server), "{:#}", scan["connections"]);
}

#[test]
fn where_the_passwords_are_listed_as_hashes_an_account_can_be_named() {
    if !is_root("where_the_passwords_are_listed_as_hashes_an_account_can_be_named") {
        return;
    }
    let pooled = pooled("SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy");
    let before = Stack::facts(&[&pooled.ini]);
    let name = pooled.ini.display().to_string();
    let arguments = ["switch", &name, "--dry-run"];
    let ended = pooled.stack.samehost(&arguments);
    assert_eq!(ended.status, 1, "{}", ended.both());
    assert!(ended.stdout.contains("in PGUSER and PGPASSWORD"), "{}", ended.both());

    let mut named = pooled.stack.command(&arguments);
    let named = named.env("PGUSER", "by_scram").env("PGPASSWORD", SECRET).output().unwrap();
    let said = String::from_utf8_lossy(&named.stdout);
    assert!(named.status.success() && said.contains("user by_scram, Unix"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    assert_eq!(Stack::facts(&[&pooled.ini]), before);
}

#[test]
fn every_user_of_the_list_is_tried_and_no_connection_vouches_for_two_databases() {
    if !is_root("every_user_of_the_list_is_tried_and_no_connection_vouches_for_two_databases") {
        return;
    }
    let pooled = pooled(SECRET);
    let users = pooled.ini.with_file_name("userlist.txt");
    let listed = std::fs::read_to_string(&users).unwrap() + "\"other\" \"of-other\"\n";
    std::fs::write(&users, listed).unwrap();
    let second = format!("\nother = host=127.0.0.1 port={} dbname=shop\n\n[pgbouncer]", pooled.cluster.port);
    let text = std::fs::read_to_string(&pooled.ini).unwrap();
    std::fs::write(&pooled.ini, text.replacen("\n[pgbouncer]", &second, 1)).unwrap();
    pooled.cluster.sql("shop", "create role other login password 'of-other'");
    pooled.cluster.let_in_first("host all other 127.0.0.1/32 scram-sha-256");
    let name = pooled.ini.display().to_string();
    let words = ["switch", &name, "--confirm-within=0", "--yes"];
    let ended = pooled.stack.samehost(&words);
    assert_eq!(ended.status, 1, "{}", ended.both());
    assert!(in_one_line(&ended).contains("local shop other scram-sha-256"), "{}", ended.both());
    assert!(!ended.both().contains("of-other"), "{}", ended.both());

    pooled.cluster.let_in_first("local all other scram-sha-256");
    let ended = pooled.stack.samehost(&words);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), pooled.stack.log());
    let clients = Clients::start(pooled.port);
    clients.wait_for("unix");
    let found = pooled.json(&["verify", &name, "--expect", "unix", "--wait", "1s"]);
    assert!(!found.to_string().contains("in_use"), "{found:#}");
    assert!(found.to_string().contains("serves others too"), "{found:#}");
    clients.stop().unwrap_or_else(|error| panic!("{error}\n{}", pooled.stack.log()));
}
