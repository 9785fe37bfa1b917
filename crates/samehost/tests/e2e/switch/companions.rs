//! What stands beside the application: programs that read the same file, proxies whose service loses its client's address,
//! sandboxes, accounts that one transport has and the other has not.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use samehost_testing::mariadb::{MariaDb, SECRET};
use samehost_testing::postgres::{self, Cluster};

use super::stack::{Ended, Stack, free_port, in_one_line, is_root, wait_for};

/// A companion in another language that reads the same config.php at its start. It knows host and port only.
const PUSH: &str = r"
import re, socket, sys, time
text = open(sys.argv[1]).read()
name, _, port = re.search(r'\'dbhost\' => \'([^\']*)\'', text).group(1).partition(':')
database = socket.create_connection((name, int(port or 3306)))
print('connected', flush=True)
time.sleep(600)
";
/// Started with the file in its environment, and with the file open.
const IN_ENVIRONMENT: &str = "import time\nprint('connected', flush=True)\ntime.sleep(600)\n";
const HELD_OPEN: &str = "import sys, time\nheld = open(sys.argv[1].replace('+', ''))\nprint('connected', flush=True)\ntime.sleep(600)\n";

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// Starts one and waits for its first line.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended before it said anything");
        Running(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn python(stack: &Stack, program: &str, text: &str) -> Command {
    let script = stack.write(program, text);
    let mut command = Command::new("python3");
    command.arg(script);
    command
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn cloud(stack: &Stack, port: u16) -> PathBuf {
    let secret = SECRET.replace('\'', "\\'");
    stack.write(
        "cloud/config/config.php",
        &format!(
            "<?php\n$CONFIG = array (\n  'instanceid' => 'oc1234567890',\n  'dbtype' => 'mysql',\n  'version' => '30.0.2.2',\n  'dbname' => 'shop',\n  'dbhost' => '127.0.0.1:{port}',\n  'dbuser' => 'by_native',\n  'dbpassword' => '{secret}',\n  'installed' => true,\n);\n"
        ),
    )
}

#[test]
fn a_second_reader_of_the_file_is_named_before() {
    if !is_root("a_second_reader_of_the_file_is_named_before") {
        return;
    }
    let stack = Stack::new();
    let server = MariaDb::start(&[]);
    let config = cloud(&stack, server.port);
    let (file, root) = (name(&config), name(&stack.path("cloud")));
    let dry = || stack.samehost(&["switch", &root, "--user", "www-data", "--dry-run"]);
    let alone = dry();
    assert!(alone.status == 0 && !alone.both().contains("second-reader"), "{}", alone.both());
    let push = Running::start(python(&stack, "push.py", PUSH).arg(&file));
    let by_environment =
        Running::start(python(&stack, "backup.py", IN_ENVIRONMENT).env("CLOUD_CONFIG", &file));
    let by_descriptor = Running::start(python(&stack, "held.py", HELD_OPEN).arg(format!("+{file}")));
    let by_name = Running::start(
        python(&stack, "relative.py", PUSH).arg("config/config.php").current_dir(stack.path("cloud")),
    );
    let ended = dry();
    assert_eq!(ended.status, 0, "{}", ended.both());
    let said = in_one_line(&ended);
    for (process, how) in [
        (&push, "in its command line, and talks to tcp:127.0.0.1:"),
        (&by_environment, "in its environment"),
        (&by_descriptor, "open"),
        (&by_name, "in its command line, and talks to"),
    ] {
        let words = format!("python3 {} (root) has {file} {how}", process.pid());
        assert!(
            said.contains(&words) || said.contains(&words.replace("python3", "python3.11")),
            "{words}: {said}"
        );
    }
    // It is told in words that a program reads as well, and TCP stays open for it.
    let report: serde_json::Value = serde_json::from_str(
        &stack.samehost(&["switch", &root, "--user", "www-data", "--dry-run", "--json"]).stdout,
    )
    .unwrap();
    let codes =
        report["obstacles"].as_array().unwrap().iter().filter(|one| one["code"] == "second-reader").count();
    assert_eq!(codes, 4, "{report:#}");
}

/// A `.env` of an application that two programs read, one of them of its own language and by the same file.
#[test]
fn whoever_only_looks_at_a_file_is_no_reader() {
    if !is_root("whoever_only_looks_at_a_file_is_no_reader") {
        return;
    }
    let stack = Stack::new();
    let server = MariaDb::start(&[]);
    let config = cloud(&stack, server.port);
    let _pager = Running::start(Command::new("tail").args(["-f", "-n", "+1"]).arg(&config));
    let _other =
        Running::start(python(&stack, "other.py", IN_ENVIRONMENT).arg(stack.path("cloud/config/other.php")));
    let ended = stack.samehost(&["switch", &name(&config), "--user", "www-data", "--dry-run"]);
    assert!(ended.status == 0 && !ended.both().contains("second-reader"), "{}", ended.both());
}

/// A wp-config.php with this host and account.
fn blog(stack: &Stack, host: &str, user: &str) -> PathBuf {
    stack.write(
        "wp/wp-config.php",
        &format!(
            "<?php\ndefine( 'DB_NAME', 'shop' );\ndefine( 'DB_USER', '{user}' );\ndefine( 'DB_PASSWORD', 'moss' );\ndefine( 'DB_HOST', '{host}' );\n$table_prefix = 'wp_';\nrequire_once __DIR__ . '/wp-settings.php';\n"
        ),
    )
}

/// The statements of an advice for the database's administrator.
fn statements(said: &str, password: &str) -> String {
    let (_, rest) = said.split_once("mariadb -e \"").unwrap_or_else(|| panic!("no statement: {said}"));
    let (statements, _) = rest.split_once('"').unwrap();
    statements
        .replace("PASSWORD('PASSWORD')", &format!("PASSWORD('{password}')"))
        .replace("'PASSWORD'", &format!("'{password}'"))
        .replace("\\`", "`")
}

fn dry(stack: &Stack, file: &Path, to: &str) -> Ended {
    stack.samehost(&["switch", &name(file), "--to", to, "--user", "www-data", "--dry-run"])
}

/// Refused with an advice; the advice followed, the same command is a plan.
#[track_caller]
fn assert_advice_helps(stack: &Stack, server: &MariaDb, file: &Path, to: &str, account: &str, not: &str) {
    let refused = dry(stack, file, to);
    assert_eq!(refused.status, 1, "{}", refused.both());
    let said = in_one_line(&refused);
    assert!(said.contains(account), "{account}: {said}");
    assert!(not.is_empty() || !said.contains(not), "{not}: {said}");
    server.sql(&statements(&said, "moss"));
    let planned = dry(stack, file, to);
    assert_eq!(planned.status, 0, "{said}\n{}", planned.both());
}

#[test]
fn the_account_that_is_missing_is_named_for_its_direction_and_the_statement_helps() {
    if !is_root("the_account_that_is_missing_is_named_for_its_direction_and_the_statement_helps") {
        return;
    }
    let stack = Stack::new();
    let grant = |server: &MariaDb, account: &str, by: &str| {
        server.sql(&format!("CREATE USER {account} {by}; GRANT ALL PRIVILEGES ON shop.* TO {account}"));
    };
    // A server that resolves no names knows TCP's clients by their address.
    let server = MariaDb::start(&["--skip-name-resolve"]);
    let at_the_socket = format!("localhost:{}", server.socket());
    grant(&server, "'onlylocal'@'localhost'", "IDENTIFIED BY 'moss'");
    let file = blog(&stack, &at_the_socket, "onlylocal");
    assert_advice_helps(
        &stack,
        &server,
        &file,
        "tcp",
        "CREATE USER 'onlylocal'@'127.0.0.1'",
        "CREATE USER 'onlylocal'@'localhost'",
    );
    // The other direction: an account for TCP alone.
    grant(&server, "'onlytcp'@'127.0.0.1'", "IDENTIFIED BY 'moss'");
    let file = blog(&stack, &format!("127.0.0.1:{}", server.port), "onlytcp");
    assert_advice_helps(
        &stack,
        &server,
        &file,
        "unix",
        "CREATE USER 'onlytcp'@'localhost'",
        "CREATE USER 'onlytcp'@'127.0.0.1'",
    );
    // One that resolves them takes TCP's client for localhost.
    let server = MariaDb::start(&[]);
    grant(&server, "'named'@'127.0.0.1'", "IDENTIFIED BY 'moss'");
    let file = blog(&stack, &format!("127.0.0.1:{}", server.port), "named");
    assert_advice_helps(&stack, &server, &file, "unix", "CREATE USER 'named'@'localhost'", "");
    // What bars stands under one heading, what does not under another.
    grant(&server, "'half'@'127.0.0.1'", "IDENTIFIED BY 'moss'");
    let file = blog(&stack, &format!("127.0.0.1:{}", server.port), "half");
    let ended = dry(&stack, &file, "unix");
    let headings = ["In the way", "Warnings"].map(|heading| ended.stdout.matches(heading).count());
    assert!(headings[0] == 1 && headings[1] <= 1, "{}", ended.stdout);
}

#[test]
fn the_line_of_pg_hba_is_that_of_the_direction_and_helps() {
    if !is_root("the_line_of_pg_hba_is_that_of_the_direction_and_helps") {
        return;
    }
    let stack = Stack::new();
    let cluster = Cluster::start(20);
    let socket = cluster.socket();
    let directory = name(Path::new(socket.trim_start_matches("unix:")).parent().unwrap());
    // A database that one of the two lets nobody into.
    for (to, host, barring, kind) in [
        (
            "tcp",
            directory.as_str(),
            "host shop by_scram 127.0.0.1/32 reject",
            "host shop by_scram 127.0.0.1/32 scram-sha-256",
        ),
        ("unix", "127.0.0.1", "local shop by_scram reject", "local shop by_scram scram-sha-256"),
    ] {
        cluster.let_in_first(barring);
        stack.write("app/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n");
        stack.write("app/artisan", "#!/usr/bin/env php\n");
        let env = stack.write(
            "app/.env",
            &format!(
                "DB_CONNECTION=pgsql\nDB_HOST={host}\nDB_PORT={}\nDB_DATABASE=shop\nDB_USERNAME=by_scram\nDB_PASSWORD={}\n",
                cluster.port,
                postgres::SECRET
            ),
        );
        let refused = dry(&stack, &env, to);
        assert_eq!(refused.status, 1, "{}", refused.both());
        assert!(in_one_line(&refused).contains(kind), "{to}: {}", refused.both());
        cluster.let_in_first(kind);
        let planned = dry(&stack, &env, to);
        assert_eq!(planned.status, 0, "{to}: {}", planned.both());
    }
}

/// A client under the filter that RestrictAddressFamilies=AF_INET AF_INET6 makes, without systemd.
const SANDBOXED: &str = r"
import ctypes, os, struct, sys
def load(at): return struct.pack('HBBI', 0x20, 0, 0, at)
def jump(value, yes, no): return struct.pack('HBBI', 0x15, yes, no, value)
def answer(value): return struct.pack('HBBI', 0x06, 0, 0, value)
socket_call = {'x86_64': 41, 'aarch64': 198}[os.uname().machine]
code = load(0) + jump(socket_call, 0, 3) + load(16) + jump(1, 0, 1) + answer(0x00050000 | 97) + answer(0x7fff0000)
text = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure): _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(code) // 8, ctypes.addressof(text))), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_sandbox_that_may_forbid_unix_sockets_is_told_before_and_by_run() {
    if !is_root("a_sandbox_that_may_forbid_unix_sockets_is_told_before_and_by_run") {
        return;
    }
    let mut stack = Stack::new();
    let (port, socket, _) = stack.redis();
    let env = stack.write(
        "app/.env",
        &format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://127.0.0.1:{port}/0\n"),
    );
    stack.write(
        "app/manage.py",
        "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n",
    );
    let client = format!(
        "import socket, time\ns = socket.create_connection(('127.0.0.1', {port}))\nprint('connected', flush=True)\ntime.sleep(600)\n"
    );
    let plain = stack.write("app/client.py", &client);
    let _client = Running::start(
        python(&stack, "sandbox.py", SANDBOXED).arg("python3").arg(&plain).current_dir(stack.path("app")),
    );
    let ended = stack.samehost(&["switch", &name(&env), "--dry-run"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let said = in_one_line(&ended);
    for words in ["confinement", "Seccomp: 2", "RestrictAddressFamilies"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // `run --preload` under it leaves the connection with TCP, and says why.
    let map = format!("{port}={}", socket.display());
    let words = ["run", "--preload", "--map", &map, "--", "redis-cli", "-p", &port.to_string(), "ping"];
    let mut sandboxed = python(&stack, "sandbox.py", SANDBOXED);
    let ended = Ended::of(&sandboxed.arg(env!("CARGO_BIN_EXE_samehost")).args(words).output().unwrap());
    assert!(ended.stdout.contains("PONG"), "{}", ended.both());
    assert!(
        in_one_line(&ended).contains("the process may open no Unix socket: its sandbox forbids AF_UNIX"),
        "{}",
        ended.both()
    );
}

/// What answers 403 unless its sender is 127.0.0.1.
const APPLICATION: &str = "def application(environ, start):\n    if environ.get('REMOTE_ADDR') not in ('127.0.0.1', '::1'):\n        start('403 Forbidden', [('Content-Type', 'text/plain')])\n        return [b'no']\n    start('200 OK', [('Content-Type', 'text/plain')])\n    return [b'yes']\n";

#[test]
fn who_loses_its_clients_address_is_told_in_every_plan() {
    if !is_root("who_loses_its_clients_address_is_told_in_every_plan") {
        return;
    }
    let mut stack = Stack::new();
    let (web, port) = (free_port(), free_port());
    let sockets = stack.shared("run");
    let socket = sockets.join("app.sock");
    stack.write("app/app.py", APPLICATION);
    let app = name(&stack.path("app"));
    let bind = format!("127.0.0.1:{port}");
    stack.start(
        "gunicorn",
        &[
            "--workers",
            "1",
            "--bind",
            &bind,
            "--bind",
            &format!("unix:{}", socket.display()),
            "--chdir",
            &app,
            "app:application",
        ],
    );
    wait_for("gunicorn", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let site = |header: &str| {
        format!(
            "    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            proxy_pass http://127.0.0.1:{port};\n{header}        }}\n    }}"
        )
    };
    let passes = "            proxy_set_header X-Forwarded-For $remote_addr;\n";
    let nginx = stack.nginx(&site(passes));
    wait_for("nginx", || std::net::TcpStream::connect(("127.0.0.1", web)).ok());
    let to = ["--socket", socket.to_str().unwrap(), "--dry-run"];
    let plan = |file: &Path| stack.samehost(&[&["switch", &name(file)], &to[..]].concat());
    let said = in_one_line(&plan(&nginx));
    assert!(said.contains("client-address") && said.contains("X-Forwarded-For"), "{said}");
    // A file that no nginx runs by.
    let other = stack.write("other/nginx.conf", &format!("events {{}}\nhttp {{\n{}\n}}\n", site("")));
    let said = in_one_line(&plan(&other));
    assert!(said.contains("client-address") && said.contains("Pass it on from nginx"), "{said}");
}

#[test]
fn a_path_that_is_too_long_is_told_before_anything_starts() {
    if !is_root("a_path_that_is_too_long_is_told_before_anything_starts") {
        return;
    }
    let stack = Stack::new();
    let server = MariaDb::start(&[]);
    let config = cloud(&stack, server.port);
    let deep = stack.path(&"workspace-of-a-build/".repeat(6));
    std::fs::create_dir_all(&deep).unwrap();
    let socket = name(&deep.join("redis.sock"));
    let map = format!("6390={socket}");
    for words in [
        &["run", "--map", &map, "--", "true"][..],
        &["run", "--listen", &map, "--", "true"],
        &["verify", &format!("unix:{socket}")],
    ] {
        let ended = stack.samehost(words);
        assert_eq!(ended.status, 2, "{words:?}: {}", ended.both());
        let said = in_one_line(&ended);
        assert!(
            said.contains("107") && said.contains(&format!("{} bytes", socket.len())),
            "{words:?}: {said}"
        );
    }
    // The server has its socket already: the one that was asked for is none of its, and is told.
    let ended =
        stack.samehost(&["switch", &name(&config), "--user", "www-data", "--socket", &socket, "--dry-run"]);
    assert!(in_one_line(&ended).contains("is used for nothing") || ended.status == 1, "{}", ended.both());
    // What does not depend on the directory works in one that is deep.
    let mut command = stack.command(&[
        "run",
        "--preload",
        "--map",
        &format!("{}={}", server.port, server.socket()),
        "--",
        "true",
    ]);
    let ended = Ended::of(&command.env("TMPDIR", &deep).output().unwrap());
    assert_eq!(ended.status, 0, "{}", ended.both());
}

#[test]
fn a_default_in_the_settings_moves_where_no_variable_goes_before_it() {
    if !is_root("a_default_in_the_settings_moves_where_no_variable_goes_before_it") {
        return;
    }
    let stack = Stack::new();
    let cluster = Cluster::start_below(&stack.path(""), 20);
    let port = cluster.port.to_string();
    let settings = format!(
        "import os\nDATABASES = {{'default': {{\n  'ENGINE': 'django.db.backends.postgresql', 'NAME': 'shop',\n  'USER': 'by_scram', 'PASSWORD': '{}',\n  \
         'HOST': os.environ.get('DB_HOST', '127.0.0.1'),\n  'PORT': os.environ.get('DB_PORT', '{port}'),\n}}}}\n",
        postgres::SECRET
    );
    stack.write("app/shop/settings.py", &settings);
    stack.write(
        "app/manage.py",
        "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n",
    );
    let client = format!(
        "import socket, time\ns = socket.create_connection(('127.0.0.1', {port}))\nprint('connected', flush=True)\ntime.sleep(600)\n"
    );
    // A port that stands there with the default's own value changes nothing.
    for (variable, value, is_barred) in
        [("DB_HOST", "127.0.0.1", true), ("DB_PORT", "5499", true), ("DB_PORT", port.as_str(), false)]
    {
        let mut command = python(&stack, "app/client.py", &client);
        let _running = Running::start(command.env(variable, value).current_dir(stack.path("app")));
        let ended = stack.samehost(&["switch", &name(&stack.path("app")), "--dry-run"]);
        assert_eq!(ended.status, i32::from(is_barred), "{variable}={value}: {}", ended.both());
        let is_said = in_one_line(&ended).contains(&format!("sets {variable} to {value}"));
        assert_eq!(is_said, is_barred, "{variable}={value}: {}", ended.both());
    }
}

#[test]
fn a_variable_of_the_process_goes_before_the_file_and_its_advice_helps() {
    if !is_root("a_variable_of_the_process_goes_before_the_file_and_its_advice_helps") {
        return;
    }
    let mut stack = Stack::new();
    let (port, ..) = stack.redis();
    let url = format!("redis://127.0.0.1:{port}/0");
    let env = stack
        .write("app/.env", &format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL={url}\nDEBUG=off\n"));
    stack.write(
        "app/manage.py",
        "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n",
    );
    let client = format!(
        "import socket, time\ns = socket.create_connection(('127.0.0.1', {port}))\nprint('connected', flush=True)\ntime.sleep(600)\n"
    );
    let started = |variable: &str, value: &str| {
        let mut command = python(&stack, "app/client.py", &client);
        Running::start(command.env(variable, value).current_dir(stack.path("app")))
    };
    let dry = || stack.samehost(&["switch", &name(&env), "--dry-run"]);
    let first = started("REDIS_URL", &url);
    let refused = dry();
    assert_eq!(refused.status, 1, "{}", refused.both());
    let said = in_one_line(&refused);
    let (_, rest) = said.split_once("give it the new value (").unwrap_or_else(|| panic!("{said}"));
    let (value, _) = rest.split_once(");").unwrap();
    assert!(said.contains("effective-value") && said.contains(&format!("python3 {}", first.pid())), "{said}");
    drop(first);
    let second = started("REDIS_URL", value);
    let planned = dry();
    assert_eq!(planned.status, 0, "{}", planned.both());
    drop(second);
    // By another name it may go before, and that is told.
    let _third = started("CELERY_BROKER", &url);
    let planned = dry();
    assert_eq!(planned.status, 0, "{}", planned.both());
    assert!(
        in_one_line(&planned).contains("has CELERY_BROKER, which leads to tcp:127.0.0.1:"),
        "{}",
        planned.both()
    );
}
