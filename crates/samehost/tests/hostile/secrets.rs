//! Passwords stand in no output, and no output acts on a terminal.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Ended, MALLORY, Machine, bounded, copy_program, free_port, wait_for};

/// What breaks URLs, shells, JSON, HTML and careless masks.
const AWKWARD: &str = "p@:/%'\"$\\<& Wört9";
/// What acts on a terminal: the title, a colour, the C1 form of it, the direction of writing.
const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2J\u{202e}";

fn percent(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// The awkward password as anything may have written it.
fn forms() -> Vec<String> {
    let json = serde_json::to_string(AWKWARD).unwrap();
    let html =
        AWKWARD.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\'', "&#39;");
    vec![
        AWKWARD.to_owned(),
        percent(AWKWARD),
        percent(AWKWARD).to_lowercase(),
        json.trim_matches('"').to_owned(),
        html,
        AWKWARD.replace('\'', "'\\''"),
        AWKWARD.replace('\\', "\\\\").replace('\'', "\\'"),
        AWKWARD.replace('\\', "\\\\").replace('"', "\\\""),
        // The end of it alone, however it was cut.
        "Wört9".to_owned(),
    ]
}

fn has_password(text: &str) -> Option<String> {
    forms().into_iter().find(|form| text.contains(form.as_str()))
}

fn is_silent(what: &str, ended: &Ended) {
    assert_eq!(has_password(&ended.both()), None, "{what}: {}", ended.both());
}

fn is_harmless(what: &str, ended: &Ended) {
    let acts = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
    assert_eq!(ended.both().chars().find(acts), None, "{what}: {:?}", ended.both());
}

/// Runs samehost while every process's words and variables are looked at: none but those that were there before may hold
/// the password.
fn watched(machine: &Machine, arguments: &[&str]) -> Ended {
    let before = holders();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                seen.extend(holders().difference(&before).cloned());
            }
            seen
        });
        let done = machine.samehost(arguments);
        ended.store(true, Ordering::Relaxed);
        assert_eq!(watching.join().unwrap(), BTreeSet::new(), "the password stands in a list of processes");
        done
    })
}

/// The processes in whose words or variables the password stands.
fn holders() -> BTreeSet<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let texts = processes.flat_map(|path| ["cmdline", "environ"].map(|name| path.join(name)));
    let has = |path: &PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| has_password(&String::from_utf8_lossy(&bytes)).is_some())
    };
    texts.filter(has).map(|path| path.display().to_string()).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Below the state directory only backups have the password, and only their owner may read them.
fn state_is_private(machine: &Machine) {
    let mut backups = 0;
    for path in files_below(&machine.path("state")) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        if has_password(&text).is_some() {
            backups += 1;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", path.display());
            assert!(path.iter().any(|part| part == "backup"), "{} holds the password", path.display());
        }
    }
    assert!(backups > 0, "no backup holds the password: nothing was looked at");
}

/// A Redis of root's with the awkward password, at a port and at a socket, and an application that uses it, in a
/// directory whose name acts on a terminal.
struct Redis {
    machine: Machine,
    port: u16,
    env: PathBuf,
    socket: String,
}

fn redis() -> Redis {
    let mut machine = Machine::new();
    let port = free_port();
    std::fs::create_dir(machine.path("run")).unwrap();
    let socket = machine.path("run/redis.sock").display().to_string();
    let quoted = AWKWARD.replace('\\', "\\\\").replace('"', "\\\"");
    let folder = machine.path("").display().to_string();
    let conf = machine.write(
        "redis.conf",
        format!("bind 127.0.0.1\nport {port}\nunixsocket {socket}\nunixsocketperm 700\ndir {folder}\nsave \"\"\nrequirepass \"{quoted}\"\n"),
    );
    std::fs::set_permissions(&conf, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new("redis-server");
    command.arg(&conf);
    machine.start(command);
    wait_for("Redis' socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    machine.write("app\u{1b}[31m\u{202e}/manage.py", "#!/usr/bin/env python3\nimport django\n");
    let env = machine.write("app\u{1b}[31m\u{202e}/.env", env_text(&percent(AWKWARD), port));
    Redis { machine, port, env, socket }
}

fn env_text(password: &str, port: u16) -> String {
    format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://:{password}@127.0.0.1:{port}/0\n")
}

#[test]
fn an_awkward_password_of_redis_is_told_nowhere() {
    let redis = redis();
    let (machine, env) = (&redis.machine, redis.env.display().to_string());
    let base = ["switch", env.as_str(), "--user", "root"];
    let with = |more: &[&'static str]| [&base[..], more].concat();

    let planned = watched(machine, &with(&["--dry-run"]));
    assert_eq!(planned.status, 0, "{}", planned.both());
    assert!(planned.stdout.contains("***") && planned.stdout.contains(&redis.socket), "{}", planned.stdout);
    let json = machine.samehost(&with(&["--dry-run", "--json"]));
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["outcome"], "planned", "{value}");

    // Every kind of fault at the first points that write.
    let mut failed = Vec::new();
    for fault in ["error:3", "error:12", "full:6", "broken:9", "kill:10"] {
        let mut command = machine.command(&with(&["--yes"]));
        command.env("SAMEHOST_FAULT", fault);
        failed.push(bounded(command));
        failed.push(machine.samehost(&["switch", "recover", "--yes"]));
    }
    assert!(failed.iter().any(|ended| ended.status != 0), "no fault was met");
    std::fs::write(&redis.env, env_text(&percent(AWKWARD), redis.port)).unwrap();

    let done = watched(machine, &with(&["--yes"]));
    assert_eq!(done.status, 0, "{}", done.both());
    state_is_private(machine);
    let list = machine.samehost(&["switch", "list"]);
    let list_json = machine.samehost(&["switch", "list", "--json"]);
    let entries: serde_json::Value = serde_json::from_str(&list_json.stdout).unwrap();
    let files = entries.to_string();
    assert!(files.contains("\u{202e}") || files.contains("\\u202e"), "the name is kept in JSON: {files}");
    let verified = watched(machine, &["verify", &env]);

    for (what, ended) in [
        ("plan", &planned),
        ("json", &json),
        ("done", &done),
        ("list", &list),
        ("list as JSON", &list_json),
        ("verify", &verified),
    ] {
        is_silent(what, ended);
        is_harmless(what, ended);
    }
    for ended in &failed {
        is_silent("a fault", ended);
        is_harmless("a fault", ended);
    }
}

#[test]
fn a_refused_password_is_not_repeated() {
    let redis = redis();
    let (machine, env) = (&redis.machine, redis.env.display().to_string());
    // Another password than the server's, and the awkward one as the name of the user.
    for url in [format!(":{}x", percent(AWKWARD)), format!("{0}:{0}", percent(AWKWARD))] {
        std::fs::write(
            &redis.env,
            format!("DJANGO_SETTINGS_MODULE=s\nREDIS_URL=redis://{url}@127.0.0.1:{}/0\n", redis.port),
        )
        .unwrap();
        for arguments in [["switch", &env, "--user", "root", "--yes"].as_slice(), &["verify", &env]] {
            let ended = machine.samehost(arguments);
            is_harmless("a refusal", &ended);
            let own = ended.both();
            if url.starts_with(':') {
                assert_eq!(has_password(&own), None, "{own}");
            }
        }
        let switched = machine.samehost(&["switch", &env, "--user", "root", "--yes"]);
        assert_eq!(switched.status, 1, "{}", switched.both());
    }
    // A URL on the command line, with a server that does not answer and one that is not understood.
    for url in ["redis", "ftp", "rediss"] {
        let target = format!("{url}://:{}@127.0.0.1:1/0", percent(AWKWARD));
        let ended = machine.samehost(&["verify", &target]);
        assert_ne!(ended.status, 0);
        is_silent(url, &ended);
    }
}

#[test]
fn a_password_in_the_command_of_a_unit_is_not_shown() {
    let passwords =
        [("hunter2redis", "hunter2"), ("ab", " ab "), ("\"aWk wa#rd@:/<&9\"", "aWk"), ("'q\"x Z7'", "Z7")];
    // Each waits for ten seconds for a Redis that does not answer.
    std::thread::scope(|scope| {
        for (written, ends) in passwords {
            scope.spawn(move || told_of_a_unit(written, ends));
        }
    });
}

/// A password as a unit's command has it, and a part of it that a word of the environment is as well.
fn told_of_a_unit(written: &str, ends: &str) {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::fs::create_dir(machine.path("run")).unwrap();
    let socket = machine.path("run/redis.sock").display().to_string();
    let unit = machine.write(
        "etc/systemd/system/cache.service",
        format!(
            "[Service]\nEnvironment=\"A=b\" \"TOKEN={ends}\"\nExecStart=/usr/bin/redis-server --bind 127.0.0.1 --port {port} --requirepass {written} --save \"\"\n"
        ),
    );
    let name = unit.display().to_string();
    for format in [&[][..], &["--json"]] {
        let arguments = [&["switch", &name, "--socket", &socket, "--dry-run"][..], format].concat();
        let ended = machine.samehost(&arguments);
        let masked = ["***", "'***'", "\"***\"", "\\\"***\\\""].map(|mask| format!("--requirepass {mask}"));
        assert!(masked.iter().any(|mask| ended.stdout.contains(mask)), "{}", ended.both());
        assert!(ended.stdout.contains("--bind 127.0.0.1"), "the rest stays: {}", ended.both());
        assert!(!ended.both().contains(ends), "{written}: {}", ended.both());
    }
}

#[test]
fn words_of_a_server_do_not_act_on_the_terminal() {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        for _ in 0..2 {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = write!(stream, "-ERR hostile {ESCAPES} words\r\n");
        }
    });
    let target = format!("redis://127.0.0.1:{port}/0");
    for format in [&[][..], &["--json"]] {
        let ended = machine.samehost(&[&["verify", target.as_str()][..], format].concat());
        assert!(ended.both().contains("hostile"), "{}", ended.both());
        is_harmless("verify", &ended);
    }
    thread.join().unwrap();
}

#[test]
fn names_of_processes_and_paths_do_not_act_on_the_terminal() {
    let mut machine = Machine::new();
    let port = free_port();
    let folder = machine.folder_of("bin", MALLORY);
    // A file of this name is a process of this name.
    let program = folder.join("e\u{1b}[31ml\u{202e}x");
    copy_program("/usr/bin/python3", &program);
    let script = format!(
        "import socket; s=socket.socket(); s.bind(('127.0.0.1',{port})); s.listen(); c=socket.create_connection(('127.0.0.1',{port})); import time; time.sleep(60)"
    );
    let secret = "--password=hunter2word";
    machine.start_as(MALLORY, &program.display().to_string(), &["-S", "-c", &script, secret, ESCAPES]);
    wait_for("its listener", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    for arguments in [&["scan"][..], &["scan", "--json"]] {
        let ended = machine.samehost(arguments);
        assert!(ended.stdout.contains(&port.to_string()), "{}", ended.both());
        assert!(!ended.both().contains("hunter2word"), "{}", ended.both());
        is_harmless("scan", &ended);
    }
    let missing = machine.path(&format!("no{ESCAPES}where/.env")).display().to_string();
    for arguments in
        [&["switch", missing.as_str(), "--dry-run"][..], &["verify", &missing], &["switch", "undo", ESCAPES]]
    {
        let ended = machine.samehost(arguments);
        assert_ne!(ended.status, 0);
        is_harmless("a path", &ended);
    }
}

/// A server of a database in a directory of its own: what it runs as, and what ends when the machine does.
fn must(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_awkward_password_of_mariadb_is_told_nowhere() {
    let mut machine = Machine::new();
    let port = free_port();
    let data = machine.path("data").display().to_string();
    must(Command::new("mariadb-install-db").args([
        "--no-defaults",
        "--user=root",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        &format!("--datadir={data}"),
    ]));
    let socket = machine.path("m.sock").display().to_string();
    let mut server = Command::new("mariadbd");
    server.args(["--no-defaults", "--user=root", "--bind-address=127.0.0.1", "--skip-log-bin"]).args([
        format!("--datadir={data}"),
        format!("--socket={socket}"),
        format!("--port={port}"),
        format!("--pid-file={data}/pid"),
    ]);
    machine.start(server);
    wait_for("MariaDB", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let sql = AWKWARD.replace('\\', "\\\\").replace('\'', "\\'");
    let mut client = Command::new("mariadb")
        .args(["--no-defaults", "-u", "root", "-S", &socket])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let statements = ["localhost", "127.0.0.1"].map(|host| {
        format!("CREATE USER 'app'@'{host}' IDENTIFIED BY '{sql}'; GRANT ALL ON shop.* TO 'app'@'{host}';\n")
    });
    let text = format!("SET NAMES utf8mb4; CREATE DATABASE shop;\n{}", statements.concat());
    client.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(client.wait().unwrap().success());

    let php = AWKWARD.replace('\\', "\\\\").replace('\'', "\\'");
    let site = |password: &str| {
        format!(
            "<?php\ndefine('DB_NAME', 'shop');\ndefine('DB_USER', 'app');\ndefine('DB_PASSWORD', '{password}');\ndefine('DB_HOST', '127.0.0.1:{port}');\n$table_prefix = 'wp_';\nrequire_once ABSPATH . 'wp-settings.php';\n"
        )
    };
    let config = machine.write("site/wp-config.php", site(&php));
    let name = config.display().to_string();
    let all = [
        watched(&machine, &["switch", &name, "--user", "root", "--dry-run"]),
        watched(&machine, &["verify", &name]),
        watched(&machine, &["switch", &name, "--user", "root", "--yes"]),
    ];
    assert_eq!(all[2].status, 0, "{}", all[2].both());
    for ended in &all {
        is_silent("MariaDB", ended);
    }
    state_is_private(&machine);
    // Refused: the answer names the user, not the password.
    std::fs::write(&config, site(&format!("{php}x"))).unwrap();
    let refused = machine.samehost(&["switch", &name, "--user", "root", "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.both());
    assert!(refused.both().contains("app"), "{}", refused.both());
    is_silent("a refusal of MariaDB", &refused);
}
