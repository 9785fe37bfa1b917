//! What measuring leaves open to others, and what it does to servers that run.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use samehost_testing::mariadb::{MariaDb, SECRET_IN_URL};
use samehost_testing::postgres::{Cluster, SECRET as PASSWORD};
use samehost_testing::{TINY, metered};
use serde_json::Value;

use crate::support::{ALICE, Ended, MALLORY, Machine, copy_program, free_port, is_there, wait_for};

/// A measurement that goes on until it is ended.
const LONG: &[&str] = &["--trial-time", "10s", "--budget", "60s", "--quiet", "--json", "-"];
/// Mallory's request to a PHP-FPM: his own script, by FastCGI; prints what that prints, or why there is no connection.
const ATTACK: &str = r#"<?php
[, $port, $script] = $argv;
$to = @stream_socket_client("tcp://127.0.0.1:$port", $number, $why, 3);
if (!$to) { echo "no way in: $why\n"; exit(1); }
$pair = fn($name, $value) => chr(strlen($name)) . chr(strlen($value)) . $name . $value;
$names = $pair('SCRIPT_FILENAME', $script) . $pair('REQUEST_METHOD', 'GET');
$record = fn($type, $body) => pack('CCnnCC', 1, $type, 1, strlen($body), 0, 0) . $body;
fwrite($to, $record(1, pack('nCx5', 1, 0)) . $record(4, $names) . $record(4, '') . $record(5, ''));
stream_set_timeout($to, 5);
echo stream_get_contents($to);
"#;

/// What he would have run: who he is then, and whether a file for the web server's group is open to him.
const LOOT: &str = r#"<?php
$status = file_get_contents('/proc/self/status');
preg_match('/^Uid:\s+(\d+)/m', $status, $uid);
preg_match('/^Groups:(.*)$/m', $status, $groups);
echo "OWNED uid={$uid[1]} groups=[", trim($groups[1]), "] secret=", @file_get_contents(__DIR__ . '/secret') ?: 'closed', "\n";
"#;

/// A private PHP-FPM of a measurement, as root sees it.
struct Found {
    directory: PathBuf,
    master: u32,
    port: u16,
}

/// A measurement that runs, ended with the test.
struct Measuring(Child);

impl Drop for Measuring {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::INT,
        );
        let _ = self.0.wait();
    }
}

fn start(machine: &Machine, runtime: &Path, arguments: &[&str]) -> Measuring {
    let mut command = machine.command(&[&["bench"], arguments, LONG].concat());
    command
        .env("XDG_RUNTIME_DIR", runtime)
        .env("TMPDIR", runtime)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Measuring(command.spawn().unwrap())
}

/// A directory in which private servers live, as /run is.
fn runtime(machine: &Machine) -> PathBuf {
    let path = machine.path("run");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn find_php_fpm(runtime: &Path) -> Option<Found> {
    for entry in fs::read_dir(runtime).unwrap().flatten() {
        let file = entry.path().join("php-fpm.conf");
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let port = text.lines().find_map(|line| line.strip_prefix("listen = 127.0.0.1:"))?.parse().ok()?;
        let title = format!("php-fpm: master process ({})", file.display());
        let master = fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let is_it = line.starts_with(&title) && has_children(&process.path());
            is_it.then(|| process.file_name().to_str()?.parse().ok()).flatten()
        })?;
        return Some(Found { directory: entry.path(), master, port });
    }
    None
}

fn has_children(process: &Path) -> bool {
    let tasks = process.join("task").read_dir().into_iter().flatten().flatten();
    tasks
        .into_iter()
        .any(|task| fs::read_to_string(task.path().join("children")).is_ok_and(|text| !text.is_empty()))
}

/// The attack as Mallory; `inside` a process' network, which he cannot enter, to see that it would have worked there.
fn attack(machine: &Machine, found: &Found, inside: Option<u32>) -> String {
    let (script, loot) = (machine.path("mallory/attack.php"), machine.path("mallory/loot.php"));
    let words =
        ["php", script.to_str().unwrap(), &found.port.to_string(), loot.to_str().unwrap()].map(str::to_owned);
    let mut command = match inside {
        None => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).uid(MALLORY).gid(MALLORY);
            command
        }
        Some(pid) => {
            let mut command = Command::new("nsenter");
            let user = [
                format!("--net=/proc/{pid}/ns/net"),
                format!("--setuid={MALLORY}"),
                format!("--setgid={MALLORY}"),
            ];
            command.args(user).arg("--").args(&words);
            command
        }
    };
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn armed() -> (Machine, PathBuf) {
    let machine = Machine::new();
    machine.write_as(MALLORY, "mallory/attack.php", ATTACK);
    machine.write_as(MALLORY, "mallory/loot.php", LOOT);
    let secret = machine.write("mallory/secret", "the password of every site");
    chown(&secret, Some(0), group("www-data")).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
    let runtime = runtime(&machine);
    (machine, runtime)
}

fn group(name: &str) -> Option<u32> {
    let text = fs::read_to_string("/etc/group").unwrap();
    text.lines().find(|line| line.starts_with(&format!("{name}:")))?.split(':').nth(2)?.parse().ok()
}

/// What the attack got where it works: the user, its groups and the secret.
fn nobody_elses(loot: &str) -> u32 {
    let owned = loot.split("OWNED ").nth(1).unwrap_or_else(|| panic!("the attack is none: {loot}"));
    assert!(owned.contains("secret=closed"), "{owned}");
    let uid: u32 = owned.strip_prefix("uid=").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(owned.contains("groups=[]"), "{owned}");
    for file in ["/etc/passwd", "/etc/group"] {
        let text = fs::read_to_string(file).unwrap();
        assert!(
            !text.lines().any(|line| line.split(':').nth(2) == Some(&uid.to_string())),
            "{uid} is in {file}"
        );
    }
    uid
}

#[test]
fn nobody_reaches_the_php_fpm_that_fastcgi_measures_and_its_user_has_nothing() {
    let (machine, runtime) = armed();
    let _measuring = start(&machine, &runtime, &["fastcgi", "--connections", "2"]);
    let found = wait_for("the private PHP-FPM", || find_php_fpm(&runtime));
    let outside = attack(&machine, &found, None);
    assert!(outside.starts_with("no way in"), "{outside}");
    let uid = nobody_elses(&attack(&machine, &found, Some(found.master)));
    assert_ne!(uid, 0);

    let of =
        |path: &Path| fs::metadata(path).map(|metadata| (metadata.uid(), metadata.mode() & 0o777)).unwrap();
    assert_eq!(of(&found.directory), (uid, 0o700));
    assert_eq!(of(&found.directory.join("stderr")).0, uid, "made before the directory was given away");
    // Nothing else of the machine belongs to it.
    let owned = Command::new("find")
        .args(["/etc", "/home", "/opt", "/root", "/run", "/srv", "/var", "-xdev", "-uid", &uid.to_string()])
        .output()
        .unwrap();
    let owned = String::from_utf8_lossy(&owned.stdout).into_owned();
    assert_eq!(owned.lines().find(|line| !Path::new(line).starts_with(&runtime)), None);
}

#[test]
fn nobody_reaches_the_php_fpm_of_a_private_wordpress() {
    let (machine, runtime) = armed();
    let _measuring = start(&machine, &runtime, &["wordpress", "--fpm", "tcp"]);
    let found = wait_for("the private PHP-FPM", || find_php_fpm(&runtime));
    let outside = attack(&machine, &found, None);
    assert!(outside.starts_with("no way in"), "{outside}");
    nobody_elses(&attack(&machine, &found, Some(found.master)));
}

/// `samehost bench` as Alice, by way of a shell.
fn as_alice(machine: &Machine, before: &str, arguments: &[&str]) -> Output {
    let home = machine.folder_of("alice", ALICE);
    // The program as somebody else than root finds it.
    let program = machine.path("samehost");
    if !is_there(&program) {
        copy_program(env!("CARGO_BIN_EXE_samehost"), &program);
    }
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{before} \"$@\""), "sh"])
        .arg(program)
        .arg("bench")
        .args(arguments)
        .args(TINY);
    for name in ["HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME", "TMPDIR"] {
        command.env(name, &home);
    }
    command.uid(ALICE).gid(ALICE).stdin(Stdio::null()).output().unwrap()
}

/// In a user namespace of her own, where she lets nobody have another.
const DENIED: &str = "exec unshare --user --map-current-user --keep-caps sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"' sh";

#[test]
fn an_ordinary_user_has_the_port_in_a_network_of_his_own_or_not_at_all() {
    let machine = Machine::new();
    let output = as_alice(&machine, "exec", &["fastcgi"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = report["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning["code"] == "own_network"), "{warnings:?}");
    let evidence = report["evidence"].to_string();
    assert!(evidence.contains("AF_INET stream tcp") && evidence.contains("AF_UNIX stream"), "{evidence}");
    for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
        assert!(metered(trial, "server_cpu_us_per_op").is_none_or(|cpu| cpu > 0.0), "{trial}");
    }

    let refused = as_alice(&machine, DENIED, &["fastcgi"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    for words in ["user.max_user_namespaces is 0", "--transports unix", "run this as root"] {
        assert!(said.contains(words), "{said}");
    }
    let alone = as_alice(&machine, DENIED, &["fastcgi", "--transports", "unix"]);
    assert_eq!(alone.status.code(), Some(0), "{}", String::from_utf8_lossy(&alone.stderr));
}

#[test]
fn root_without_the_right_to_a_network_is_refused_the_port_too() {
    let (machine, runtime) = armed();
    let samehost = machine.command(&[&["bench", "fastcgi"], TINY].concat());
    let output = Command::new("setpriv")
        .arg("--bounding-set=-sys_admin")
        .arg(samehost.get_program())
        .args(samehost.get_args())
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("--cap-add SYS_ADMIN") && said.contains("--transports unix"), "{said}");
    assert_eq!(fs::read_dir(&runtime).unwrap().count(), 0);
}

#[test]
fn a_supervisor_removes_no_directory_that_is_not_ours() {
    let machine = Machine::new();
    let kept = machine.write("precious/file", "kept");
    let named = machine.write("samehost-1-0/file", "kept");
    // Mallory's, with a mark that he made himself.
    let forged = machine.write_as(MALLORY, "samehost-1-1/.samehost", "samehost-1-1");
    for file in [&kept, &named, &forged] {
        let directory = file.parent().unwrap().to_str().unwrap();
        let ended = machine.samehost(&["supervise", directory, "--", "true"]);
        assert_ne!(ended.status, 0);
        assert!(ended.stderr.contains("not a private directory of samehost"), "{}", ended.stderr);
        assert!(is_there(file), "{}", file.display());
    }
}

/// A tiny measurement of a server that runs, where nobody can be asked.
fn measured(machine: &Machine, arguments: &[&str]) -> Ended {
    machine.samehost(&[&["bench"], arguments, TINY].concat())
}

/// The words that are missing in what was said.
fn assert_says(ended: &Ended, words: &[&str]) {
    for word in words {
        assert!(ended.stderr.contains(word), "`{word}` in: {}", ended.stderr);
    }
}

/// A counter of a MariaDB since its start.
fn status_of(server: &MariaDb, name: &str) -> u64 {
    let row = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
    row.split('\t').nth(1).unwrap().trim().parse().unwrap()
}

#[test]
fn a_mariadb_in_use_is_written_to_by_consent_alone_and_keeps_its_log_and_connections() {
    let server = MariaDb::start(&["--max-connections=40", "--log-bin=samehost-test", "--server-id=1"]);
    server.sql("CREATE USER plain@'127.0.0.1' IDENTIFIED BY 'x'; GRANT ALL ON shop.* TO plain@'127.0.0.1'");
    let machine = Machine::new();
    let position = || server.sql("SHOW MASTER STATUS");
    let before = position();
    let url = server.tcp(&format!("by_native:{SECRET_IN_URL}")) + "/shop";
    let one = ["mysql", "--tcp", &url, "--transports", "tcp", "--statement", "update", "--rows", "1k"];

    let unasked = measured(&machine, &one);
    assert_eq!(unasked.status, 2, "{}", unasked.stderr);
    assert_says(
        &unasked,
        &[
            "nothing was written",
            "use --yes",
            "1000 rows",
            "kept out of it (sql_log_bin=0)",
            "of 40 connections",
        ],
    );
    let many = measured(&machine, &[&one[..], &["--connections", "20", "--yes"]].concat());
    assert_eq!(many.status, 2, "{}", many.stderr);
    assert_says(
        &many,
        &["nothing was written", "more than a quarter", "(--connections)", "--yes=over-limits"],
    );
    assert_eq!(server.left(), "0");
    assert_eq!(
        server.sql("SHOW GLOBAL STATUS LIKE 'Com_create_table'"),
        "Com_create_table\t1",
        "the test's own"
    );
    assert_eq!(position(), before);

    let agreed = measured(&machine, &[&one[..], &["--yes"]].concat());
    assert_eq!(agreed.status, 0, "{}", agreed.stderr);
    assert_eq!(position(), before, "a thousand rows and every update are in no log");
    // A connection for each query sends what an application would send, and nothing of ours.
    let (sets, connections) = (status_of(&server, "Com_set_option"), status_of(&server, "Connections"));
    let read = ["mysql", "--tcp", &url, "--transports", "tcp", "--rows", "1k", "--connect", "per-query"];
    let by_connection = measured(&machine, &[&read[..], &["--yes"]].concat());
    assert_eq!(by_connection.status, 0, "{}", by_connection.stderr);
    let (sets, connections) =
        (status_of(&server, "Com_set_option") - sets, status_of(&server, "Connections") - connections);
    assert!(connections > 60 && sets < connections / 3, "{sets} statements SET in {connections} connections");
    let plain = format!("mysql://plain:x@127.0.0.1:{}/shop", server.port);
    let logged =
        measured(&machine, &["mysql", "--tcp", &plain, "--transports", "tcp", "--rows", "10", "--yes"]);
    assert_eq!(logged.status, 0, "{}", logged.stderr);
    assert_says(&logged, &["may not keep out of it (BINLOG ADMIN)"]);
    assert_ne!(position(), before);
    assert_eq!(server.left(), "0");
}

#[test]
fn a_postgres_in_use_is_written_to_by_consent_alone_and_keeps_its_connections() {
    let cluster = Cluster::start(12);
    let machine = Machine::new();
    let url = cluster.tcp(&format!("by_scram:{PASSWORD}"));
    let one = ["postgres", "--tcp", &url, "--transports", "tcp"];
    let number = || cluster.sql("shop", "SELECT pg_current_xact_id()").parse::<u64>().unwrap();
    let before = number();
    let unasked = measured(&machine, &one);
    assert_eq!(unasked.status, 2, "{}", unasked.stderr);
    assert_says(
        &unasked,
        &["nothing was written", "use --yes", "makes a table samehost_", "of 9 connections", "wal_level"],
    );
    // Three of twelve are the administrators'; of nine that are left, two may be taken.
    let many = measured(&machine, &[&one[..], &["--connections", "3", "--yes"]].concat());
    assert_eq!(many.status, 2, "{}", many.stderr);
    assert_says(&many, &["use at most 2 (--connections)"]);
    assert_eq!(number(), before + 1, "no transaction but this test's own wrote");
    // What only reads needs no consent, and keeps to the limit all the same.
    let reads = ["--statement", "select-1", "--read-only", "yes"];
    assert_eq!(measured(&machine, &[&one[..], &reads].concat()).status, 0);
    let many = measured(&machine, &[&one[..], &reads, &["--connections", "3"]].concat());
    assert_eq!(many.status, 2, "{}", many.stderr);
}

/// A Redis that caches, with a replica, and a full memory.
fn redis(machine: &mut Machine) -> (u16, u16) {
    let ports = [free_port(), free_port()];
    for (name, port) in ["primary", "replica"].iter().zip(ports) {
        let directory = machine.path(name);
        fs::create_dir(&directory).unwrap();
        let mut command = samehost_testing::redis_server(port, &directory);
        command.args(["--maxmemory", "16mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"]);
        if *name == "replica" {
            command.args(["--replicaof", &format!("127.0.0.1 {}", ports[0])]);
        }
        machine.start(command);
    }
    (ports[0], ports[1])
}

fn ask(port: u16, words: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-p", &port.to_string()]).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_redis_in_use_loses_no_key_and_its_replica_and_its_log_are_told_of() {
    let mut machine = Machine::new();
    let (primary, _) = redis(&mut machine);
    wait_for("the replica", || {
        ask(primary, &["INFO", "replication"]).contains("connected_slaves:1").then_some(())
    });
    assert_eq!(ask(primary, &["SET", "shop:basket", "three apples"]), "OK");
    wait_for("the first rewrite", || {
        let info = ask(primary, &["INFO", "persistence"]);
        (info.contains("aof_rewrite_in_progress:0") && info.contains("rdb_bgsave_in_progress:0"))
            .then_some(())
    });
    let url = format!("redis://127.0.0.1:{primary}");
    let set = ["redis", "--tcp", &url, "--transports", "tcp", "--command", "set"];
    let unasked = measured(&machine, &set);
    assert_eq!(unasked.status, 2, "{}", unasked.stderr);
    assert_says(
        &unasked,
        &["nothing was written", "1 replica gets all", "append-only file is on", "maxclients", "allkeys-lru"],
    );
    let large = measured(&machine, &[&set[..], &["--size", "8m", "--yes"]].concat());
    assert_eq!(large.status, 2, "{}", large.stderr);
    assert_says(&large, &["gives up others' keys (allkeys-lru)", "--size", "nothing was written"]);
    assert_eq!(
        (ask(primary, &["DBSIZE"]), ask(primary, &["GET", "shop:basket"])),
        ("1".into(), "three apples".into())
    );
    assert!(ask(primary, &["INFO", "stats"]).contains("evicted_keys:0"));
    let ping = ["redis", "--tcp", &url, "--transports", "tcp", "--command", "ping"];
    assert_eq!(measured(&machine, &ping).status, 0, "it writes nothing, and nobody is asked");
}

#[test]
fn on_a_terminal_a_person_is_asked_and_a_burst_needs_a_yes_too() {
    let mut machine = Machine::new();
    let (primary, _) = redis(&mut machine);
    wait_for("the server", || (ask(primary, &["PING"]) == "PONG").then_some(()));
    let line = format!(
        "{} bench redis --tcp redis://127.0.0.1:{primary} --transports tcp --min-blocks 2 --max-blocks 2 --trial-time 50ms --quiet",
        env!("CARGO_BIN_EXE_samehost")
    );
    let answered = |answer: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("XDG_STATE_HOME", machine.path("state"));
        command.env("TERM", "dumb");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, said) = answered("n\n");
    assert!(
        status == Some(2) && said.contains("Do this? [y/N]") && said.contains("nothing was measured"),
        "{said}"
    );
    assert_eq!(ask(primary, &["INFO", "commandstats"]).matches("cmdstat_set:").count(), 0, "nothing was set");
    let (status, said) = answered("y\n");
    assert_eq!(status, Some(0), "{said}");

    let endpoint = format!("tcp:127.0.0.1:{primary}");
    let burst = ["connect", "--pattern", "burst", "--tcp", &endpoint, "--transports", "tcp"];
    let unasked = machine.samehost(&[&["bench"], &burst[..], &["--quiet"]].concat());
    assert_eq!(unasked.status, 2, "{}", unasked.stderr);
    assert_says(
        &unasked,
        &["128 connections at once", "may wait to be accepted there (its backlog)", "use --yes"],
    );
}

/// A server of root's that tells the password wherever it has a say; its port.
fn telltale(machine: &mut Machine, kind: &str, password: &str) -> u16 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/fake_server.py");
    let port = free_port();
    let log = machine.write(&format!("{kind}/heard"), "");
    let mut command = Command::new("/usr/bin/python3");
    command.args([script, kind]).arg(log).arg(port.to_string()).env("REPEATS", password);
    machine.start(command);
    wait_for("the server", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    port
}

/// Every file below a directory, as text.
fn texts_below(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.is_dir() {
        true => texts_below(&path),
        false => String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned(),
    };
    entries.map(text).collect()
}

#[test]
fn what_a_measured_server_says_tells_no_password() {
    let mut machine = Machine::new();
    let password = "sesame-Of-the-shop-9";
    let redis = telltale(&mut machine, "redis-repeats", password);
    let url = format!("redis://app:{password}@127.0.0.1:{redis}");
    let html = machine.path("state/report.html").display().to_string();
    let words = ["redis", "--tcp", &url, "--transports", "tcp", "--yes", "--html", &html];
    let measured = measured(&machine, &words);
    assert!(measured.stdout.contains("\"version\": \"7.0-***\""), "{}", measured.both());
    let stored = texts_below(&machine.path("state"));
    assert!(stored.contains("samehost.samples/") && stored.contains("<html"), "{stored}");
    for (what, told) in [("the output", measured.both()), ("a file", stored)] {
        assert!(!told.contains(password), "{what}: {told}");
    }

    let mysql = telltale(&mut machine, "mysql-repeats", password);
    // From the URL, the environment and the client's own file: it is the same password.
    let home = machine.path("home");
    fs::create_dir(&home).unwrap();
    let file = machine.write("home/.my.cnf", format!("[client]\npassword={password}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let with = format!("mysql://app:{password}@127.0.0.1:{mysql}/d");
    let without = format!("mysql://app@127.0.0.1:{mysql}/d");
    for (url, variable) in [(&with, None), (&without, Some("MYSQL_PWD")), (&without, None)] {
        let mut command = machine.command(&["bench", "mysql", "--tcp", url, "--transports", "tcp", "--yes"]);
        command.args(TINY).env("HOME", &home);
        variable.map(|name| command.env(name, password));
        let ended = crate::support::bounded(command);
        assert_ne!(ended.status, 0);
        assert!(ended.stderr.contains("who said ***"), "{variable:?}: {}", ended.both());
        assert!(!ended.both().contains(password), "{variable:?}: {}", ended.both());
    }
}
