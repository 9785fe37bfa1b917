//! The application is its own processes: nobody else's connection lifts a bar, and what its own environment says goes
//! before any file, whatever format that has.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use samehost_testing::mariadb::{MariaDb, SECRET as MY_SECRET};
use samehost_testing::postgres::{Cluster, SECRET};

use crate::support::{ALICE, Ended, MALLORY, Machine, free_port, wait_for};

fn in_one_line(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A program of Node that asks for TLS in its code and does not run, and a PostgreSQL.
struct NodeApp {
    cluster: Cluster,
    machine: Machine,
}

impl NodeApp {
    fn new() -> Self {
        let machine = Machine::new();
        let cluster = Cluster::start_below(&machine.path(""), 20);
        let url = format!("postgres://by_scram:{SECRET}@127.0.0.1:{}/shop", cluster.port);
        machine.write("app/.env", format!("DATABASE_URL={url}\n"));
        machine.write(
            "app/package.json",
            "{ \"name\": \"stats\", \"dependencies\": { \"pg\": \"^8.11.0\" } }\n",
        );
        machine.write(
            "app/server.js",
            "const { Pool } = require('pg');\nmodule.exports = new Pool({ connectionString: process.env.DATABASE_URL, ssl: { rejectUnauthorized: false } });\n",
        );
        NodeApp { cluster, machine }
    }

    fn switch(&self) -> Ended {
        let app = self.machine.path("app").display().to_string();
        self.machine.samehost(&["switch", &app, "--user", "www-data", "--yes", "--confirm-within=0"])
    }

    /// A `psql` of that user without TLS, which works in this directory; it is connected.
    fn psql_in(&mut self, folder: &str) {
        let account = std::fs::read_to_string("/etc/passwd").unwrap();
        let line = account.lines().find(|line| line.starts_with("www-data:")).unwrap().to_owned();
        let uid: u32 = line.split(':').nth(2).unwrap().parse().unwrap();
        let to =
            format!("host=127.0.0.1 port={} user=by_scram dbname=shop sslmode=disable", self.cluster.port);
        let mut command = Command::new("psql");
        command.args([&to, "-c", "select pg_sleep(300)"]).env("PGPASSWORD", SECRET).uid(uid).gid(uid);
        command.env("HOME", "/nonexistent").current_dir(folder);
        self.machine.start(command);
        wait_for("psql", || {
            let asked = self.cluster.sql("shop", "select count(*) from pg_stat_activity where query like '%pg_sleep(300)%' and query not like '%count%'");
            asked.contains('1').then_some(())
        });
    }

    fn assert_barred(&self) {
        let ended = self.switch();
        assert_eq!(ended.status, 1, "{}", ended.both());
        let told = in_one_line(&ended);
        assert!(told.contains("encryption") && told.contains("app/server.js:2"), "{told}");
    }
}

#[test]
fn a_connection_of_another_program_of_the_same_user_lifts_no_bar() {
    let mut app = NodeApp::new();
    app.assert_barred();
    app.psql_in("/");
    app.assert_barred();
}

#[test]
fn a_backup_that_works_in_the_directory_of_the_application_lifts_no_bar() {
    let mut app = NodeApp::new();
    let folder = app.machine.path("app").display().to_string();
    app.psql_in(&folder);
    app.assert_barred();
}

/// A program of a directory that keeps a connection to a port open, with these variables.
fn client(machine: &mut Machine, port: u16, folder: &str, variables: &[(&str, &str)]) {
    let code = format!(
        "import socket, time\nheld = socket.create_connection(('127.0.0.1', {port}))\nopen('{}', 'w').write('x')\ntime.sleep(600)\n",
        machine.path("connected").display()
    );
    let _ = std::fs::remove_file(machine.path("connected"));
    let script = machine.write(&format!("{folder}/client.py"), code);
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).current_dir(machine.path(folder));
    for (name, value) in variables {
        command.env(name, value);
    }
    machine.start(command);
    wait_for("the client", || machine.path("connected").exists().then_some(()));
}

fn rails(machine: &Machine, port: u16) -> String {
    machine.write("app/Gemfile", "source 'https://rubygems.org'\ngem 'rails'\n");
    let text = format!(
        "production:\n  adapter: mysql2\n  host: 127.0.0.1\n  port: {port}\n  database: shop\n  username: by_native\n  password: {MY_SECRET:?}\n"
    );
    machine.write("app/config/database.yml", text).display().to_string()
}

#[test]
fn a_url_in_the_environment_goes_before_database_yml() {
    let mut machine = Machine::new();
    let server = MariaDb::start(&[]);
    let file = rails(&machine, server.port);
    let url = format!("mysql2://by_native:x@127.0.0.1:{}/shop", server.port);
    client(&mut machine, server.port, "app", &[("DATABASE_URL", &url)]);
    let ended =
        machine.samehost(&["switch", &file, "--yes", "--confirm-within=0", "--reload", "application=true"]);
    let told = in_one_line(&ended);
    assert_eq!(ended.status, 1, "{told}");
    assert!(told.contains("effective-value") && told.contains("sets DATABASE_URL"), "{told}");
    assert!(!told.contains("by_native:x@"), "a password is shown: {told}");
}

#[test]
fn a_url_in_the_environment_of_somebody_else_or_to_elsewhere_bars_no_database_yml() {
    let mut machine = Machine::new();
    let server = MariaDb::start(&[]);
    let file = rails(&machine, server.port);
    std::fs::create_dir(machine.path("elsewhere")).unwrap();
    let url = format!("mysql2://by_native:x@127.0.0.1:{}/shop", server.port);
    client(&mut machine, server.port, "elsewhere", &[("DATABASE_URL", &url)]);
    client(&mut machine, server.port, "app", &[("DATABASE_URL", "mysql2://by_native:x@192.0.2.9:3306/shop")]);
    let ended = machine.samehost(&["switch", &file, "--dry-run"]);
    let told = in_one_line(&ended);
    assert!(!told.contains("effective-value"), "{told}");
    assert_eq!(ended.status, 0, "{told}");
}

#[test]
fn an_address_of_libpq_in_the_environment_goes_before_the_settings_of_django() {
    let mut machine = Machine::new();
    let cluster = Cluster::start_below(&machine.path(""), 20);
    machine.write(
        "app/manage.py",
        "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n",
    );
    let text = format!(
        "DATABASES = {{\n    'default': {{\n        'ENGINE': 'django.db.backends.postgresql',\n        'NAME': 'shop',\n        'USER': 'by_scram',\n        'PASSWORD': '{SECRET}',\n        'HOST': '127.0.0.1',\n        'PORT': '{}',\n    }},\n}}\n",
        cluster.port
    );
    let file = machine.write("app/shop/settings.py", text).display().to_string();
    client(&mut machine, cluster.port, "app", &[("PGHOSTADDR", "127.0.0.1")]);
    let ended = machine.samehost(&["switch", &file, "--dry-run"]);
    let told = in_one_line(&ended);
    assert_eq!(ended.status, 1, "{told}");
    assert!(told.contains("effective-value") && told.contains("sets PGHOSTADDR"), "{told}");
}

#[test]
fn a_file_of_php_that_asks_for_a_variable_is_beaten_by_it() {
    let mut machine = Machine::new();
    let server = MariaDb::start(&[]);
    let text = format!(
        "import os\nDATABASES = {{\n    'default': {{\n        'ENGINE': 'django.db.backends.mysql',\n        'NAME': 'shop',\n        'USER': 'by_native',\n        'PASSWORD': {MY_SECRET:?},\n        'HOST': '127.0.0.1',\n        'PORT': '{}',\n    }},\n}}\nREPLICA = os.environ.get('SHOP_REPLICA_HOST')\n",
        server.port
    );
    machine.folder_of("app", MALLORY);
    let file = machine.write("app/settings.py", text).display().to_string();
    let place = format!("127.0.0.1:{}", server.port);
    client(&mut machine, server.port, "app", &[("SHOP_REPLICA_HOST", &place)]);
    let ended = machine.samehost(&["switch", &file, "--dry-run"]);
    let told = in_one_line(&ended);
    assert!(told.contains("SHOP_REPLICA_HOST"), "{told}");
}

/// Debian's www-data.
const WEB: u32 = 33;

#[test]
fn a_strangers_connection_is_no_login_of_an_application_that_does_not_run() {
    let (mut machine, port) = (Machine::new(), free_port());
    let socket = machine.path("r.sock");
    let mut redis = Command::new("redis-server");
    redis.args(["--bind", "127.0.0.1", "--save", "", "--unixsocketperm", "770", "--port", &port.to_string()]);
    redis.arg("--unixsocket").arg(&socket);
    machine.start(redis);
    wait_for("Redis", || socket.exists().then_some(()));
    // The neighbour's user may open it, and the application's may not.
    chown(&socket, None, Some(WEB)).unwrap();
    let file = machine.write_as(
        MALLORY,
        "app/.env",
        format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://127.0.0.1:{port}/0\n"),
    );
    machine.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
    let code = format!(
        "<?php $held = stream_socket_client('tcp://127.0.0.1:{port}'); file_put_contents('{}', 'x'); sleep(600);\n",
        machine.folder_of("second", WEB).join("connected").display()
    );
    let script = machine.write("second/worker.php", code).display().to_string();
    machine.start_as(WEB, "/usr/bin/php", &[&script]);
    wait_for("the neighbour", || machine.path("second/connected").exists().then_some(()));
    let app = machine.path("app").display().to_string();
    let switch = |user: &[&str]| {
        let words = [&["switch", &app, "--yes", "--confirm-within=0"], user].concat();
        let ended = machine.samehost(&words);
        (ended.status, in_one_line(&ended))
    };
    // Its permissions say whose it is; where anyone may read it, nothing does.
    set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let (status, told) = switch(&[]);
    assert_eq!(status, 1, "{told}");
    assert!(told.contains(&format!("as user {MALLORY}")) && told.contains("ermission denied"), "{told}");
    set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let (status, told) = switch(&[]);
    assert_eq!(status, 1, "{told}");
    assert!(told.contains("as whom it connects is not known") && told.contains("--user NAME"), "{told}");
    let (status, told) = switch(&["--user", "www-data"]);
    assert_eq!(status, 0, "{told}");
}

#[test]
fn a_program_that_holds_no_connection_is_seen_and_asked_as_who_it_is() {
    let mut machine = Machine::new();
    let (port, socket) = (free_port(), machine.path("redis.sock"));
    let mut redis = Command::new("redis-server");
    redis.args(["--port", &port.to_string(), "--save", "", "--unixsocketperm", "777", "--unixsocket"]);
    redis.arg(&socket).current_dir(machine.path("."));
    machine.start(redis);
    wait_for("Redis", || socket.exists().then_some(()));
    let text = |host: String| format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL={host}/0\n");
    machine.write_as(ALICE, "app/.env", text(format!("redis://127.0.0.1:{port}")));
    machine.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
    let ready = machine.folder_of("ready", ALICE).join("x").display().to_string();
    let script =
        machine.write("app/worker.py", format!("import time; open('{ready}', 'w'); time.sleep(600)\n"));
    let pid = machine.start_as(ALICE, "/usr/bin/python3", &[&script.display().to_string()]);
    wait_for("the program", || Path::new(&ready).exists().then_some(()));
    let app = machine.path("app").display().to_string();
    let ended = machine.samehost(&["switch", &app, "--dry-run"]);
    let told = in_one_line(&ended);
    assert!(ended.status == 0 && told.contains(&format!("as python3 ({ALICE})")), "{told}");
    let ended = machine.samehost(&["verify", &app, "--expect", "tcp"]);
    let told = in_one_line(&ended);
    let seen = format!("seen, and connected neither there nor elsewhere: python3 {pid}");
    assert!(ended.status == 5 && told.contains(&seen), "{told}");
}
