//! What a client asks for beside its address: a switch is refused, with the sentence that the application would print, where
//! a Unix socket does not give it; and it is made where the application's library goes without.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use samehost_testing::mariadb::{MariaDb, SECRET as MY_SECRET};
use samehost_testing::postgres::{Cluster, SECRET};
use serde_json::Value;

use super::stack::{Ended, Stack, free_port, in_one_line, is_root, must, page, wait_for};

/// What node-postgres prints where it asks for TLS over a Unix socket.
const NO_TLS: &str = "The server does not support SSL connections";

/// A program with `pg` of Node that keeps a connection, and answers with the server's word of its TLS.
const SERVER: &str = r"const fs = require('node:fs'), http = require('node:http'), pg = require('pg');
for (const line of fs.readFileSync(__dirname + '/.env', 'utf8').split('\n')) {
  const at = line.indexOf('=');
  if (at > 0) process.env[line.slice(0, at)] = line.slice(at + 1).replace(/^'(.*)'$/, '$1').replace(/^(?:\x22)(.*)(?:\x22)$/, '$1');
}
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 1, idleTimeoutMillis: 0 %MORE% });
http.createServer(async (request, response) => {
  try {
    const { rows } = await pool.query('select ssl from pg_stat_ssl where pid = pg_backend_pid()');
    response.end(`TLS ${rows[0].ssl}\n`);
  } catch (error) {
    response.statusCode = 500;
    response.end(`${error.message}\n`);
  }
}).listen(Number(process.env.PORT), '127.0.0.1');
";

/// A program with `pg` of Node, and its PostgreSQL with TLS.
struct NodeApp {
    // Ends before the directory that it is in.
    cluster: Cluster,
    stack: Stack,
    web: u16,
}

impl NodeApp {
    /// With these options of its pool beside the URL, and this query in the URL.
    fn new(more: &str, query: &str) -> Self {
        let stack = Stack::new();
        let cluster = Cluster::start_below(&stack.path(""), 20);
        let web = free_port();
        let port = cluster.port;
        let url = format!("postgres://by_scram:{SECRET}@127.0.0.1:{port}/shop{query}");
        stack.write("app/.env", &format!("PORT={web}\nDATABASE_URL={url}\n"));
        stack.write(
            "app/package.json",
            "{ \"name\": \"stats\", \"dependencies\": { \"pg\": \"^8.11.0\" } }\n",
        );
        stack.write("app/server.js", &SERVER.replace("%MORE%", more));
        NodeApp { cluster, stack, web }
    }

    /// Starts it as www-data, and asks it once.
    fn start(&mut self) -> (u16, String) {
        let packages = crate::clients::node().unwrap_or_else(|missing| panic!("{missing}"));
        let command = format!(
            "cd {} && exec setpriv --reuid=www-data --regid=www-data --clear-groups -- env NODE_PATH={}/node_modules node server.js",
            self.stack.path("app").display(),
            packages.display()
        );
        self.stack.start("sh", &["-c", &command]);
        wait_for("the program", || page(self.web, "/"))
    }

    fn switch(&self, more: &[&str]) -> Ended {
        let app = self.stack.path("app").display().to_string();
        self.stack.samehost(&[&["switch", &app, "--yes", "--confirm-within=0"], more].concat())
    }

    fn env(&self) -> PathBuf {
        self.stack.path("app/.env")
    }

    /// The same program at the socket, by a second process; what it answers.
    fn at_the_socket(&mut self) -> (u16, String) {
        let text = fs::read_to_string(self.env()).unwrap();
        let directory = self.cluster.socket();
        let directory = directory.strip_prefix("unix:").unwrap().rsplit_once("/.s.").unwrap().0.to_owned();
        let sign = if text.contains('?') { '&' } else { '?' };
        self.web = free_port();
        let mut lines: Vec<String> = vec![format!("PORT={}", self.web)];
        let url = text.lines().find(|line| line.starts_with("DATABASE_URL=")).unwrap();
        lines.push(format!("{url}{sign}host={directory}"));
        self.stack.write("app/.env", &format!("{}\n", lines.join("\n")));
        self.start()
    }
}

#[test]
fn tls_that_a_program_asks_for_in_its_code_is_seen_at_the_server() {
    if !is_root("tls_that_a_program_asks_for_in_its_code_is_seen_at_the_server") {
        return;
    }
    let mut app = NodeApp::new(", ssl: { rejectUnauthorized: false }", "");
    assert_eq!(app.start(), (200, "TLS true\n".to_owned()));
    let before = Stack::facts(&[&app.env()]);
    let ended = app.switch(&[]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = in_one_line(&ended);
    for needed in ["encryption", "connection of node", "has TLS (TLSv1.3", NO_TLS, "--accept encryption"] {
        assert!(said.contains(needed), "{needed}: {said}");
    }
    assert!(!said.contains(SECRET), "{said}");
    assert_eq!(Stack::facts(&[&app.env()]), before);
    let passed = app.switch(&["--accept", "encryption", "--dry-run"]);
    assert_eq!(passed.status, 0, "{}", passed.both());
    // It is what the program prints in the end.
    let (status, body) = app.at_the_socket();
    assert_eq!((status, body.trim()), (500, NO_TLS));
}

#[test]
fn tls_in_the_code_of_a_program_that_does_not_run_is_found_in_its_sources() {
    if !is_root("tls_in_the_code_of_a_program_that_does_not_run_is_found_in_its_sources") {
        return;
    }
    let app = NodeApp::new(", ssl: { rejectUnauthorized: false }", "");
    let ended = app.switch(&["--user", "www-data"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = in_one_line(&ended);
    for needed in ["app/server.js:6", "asks for TLS", NO_TLS] {
        assert!(said.contains(needed), "{needed}: {said}");
    }
}

#[test]
fn a_program_without_tls_moves_and_one_that_does_not_run_is_noted() {
    if !is_root("a_program_without_tls_moves_and_one_that_does_not_run_is_noted") {
        return;
    }
    let mut app = NodeApp::new("", "");
    let unseen = app.switch(&["--dry-run", "--user", "www-data"]);
    assert_eq!(unseen.status, 0, "{}", unseen.both());
    assert!(in_one_line(&unseen).contains("whether its code asks for TLS"), "{}", unseen.both());
    assert_eq!(app.start(), (200, "TLS false\n".to_owned()));
    let ended = app.switch(&[]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(!in_one_line(&ended).contains("encryption"), "{}", ended.both());
    app.web = free_port();
    let text = fs::read_to_string(app.env()).unwrap();
    let moved: Vec<&str> = text.lines().filter(|line| !line.starts_with("PORT=")).collect();
    assert!(moved[0].contains("host="), "{text}");
    app.stack.write("app/.env", &format!("PORT={}\n{}\n", app.web, moved.join("\n")));
    assert_eq!(app.start(), (200, "TLS false\n".to_owned()));
}

#[test]
fn tls_in_the_url_bars_where_the_library_asks_for_it_over_a_socket_too() {
    if !is_root("tls_in_the_url_bars_where_the_library_asks_for_it_over_a_socket_too") {
        return;
    }
    let refused = ["?sslmode=require", "?sslmode=no-verify", "?sslmode=prefer", "?ssl=true"];
    for query in refused {
        let mut app = NodeApp::new("", query);
        let before = Stack::facts(&[&app.env()]);
        let ended = app.switch(&["--user", "www-data"]);
        assert_eq!(ended.status, 1, "{query}: {}", ended.both());
        let said = in_one_line(&ended);
        let word = format!("{} (", query.trim_start_matches('?'));
        for needed in [word.as_str(), "app/.env:2", NO_TLS] {
            assert!(said.contains(needed), "{needed}: {said}");
        }
        assert_eq!(Stack::facts(&[&app.env()]), before);
        let (status, body) = app.at_the_socket();
        assert_eq!((status, body.trim()), (500, NO_TLS), "{query}");
    }
    for query in ["?sslmode=disable", "?ssl=0", "?application_name=require"] {
        let app = NodeApp::new("", query);
        let ended = app.switch(&["--user", "www-data", "--dry-run"]);
        assert_eq!(ended.status, 0, "{query}: {}", ended.both());
    }
}

/// A Django project whose settings have no password, with psql in its place: libpq finds the password as Django's does.
struct Settings {
    cluster: Cluster,
    stack: Stack,
}

impl Settings {
    fn new(options: &str) -> Self {
        let stack = Stack::new();
        let cluster = Cluster::start_below(&stack.path(""), 20);
        let text = format!(
            "DEBUG = False\nDATABASES = {{\n    \"default\": {{\n        \"ENGINE\": \"django.db.backends.postgresql\",\n        \"NAME\": \"shop\",\n        \"USER\": \"by_scram\",\n        \"HOST\": \"127.0.0.1\",\n        \"PORT\": \"{}\",\n{options}    }}\n}}\n",
            cluster.port
        );
        stack.write("app/settings.py", &text);
        stack.write(
            "app/manage.py",
            "import os\nos.environ.setdefault(\"DJANGO_SETTINGS_MODULE\", \"settings\")\n",
        );
        fs::create_dir(stack.path("home")).unwrap();
        Settings { cluster, stack }
    }

    /// A file of the application's user, readable by nobody else.
    fn private(&self, name: &str, text: &str) -> String {
        let path = self.stack.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let path = path.display().to_string();
        must("chown", &["-R", "www-data:", &path]);
        path
    }

    /// These words as www-data with these variables, in the project's directory.
    fn as_the_application(&self, variables: &str, words: &str) -> String {
        format!(
            "cd {}/app && exec setpriv --reuid=www-data --regid=www-data --clear-groups -- env HOME={0}/home {variables} {words}",
            self.stack.path("").display().to_string().trim_end_matches('/')
        )
    }

    fn psql(&self, host: &str, sql: &str) -> String {
        format!("psql -wXAtq -h {host} -p {} -U by_scram -d shop -c \"{sql}\"", self.cluster.port)
    }

    /// A script of the application that holds a connection over TCP, and whose child logs in: psql itself is nobody's application.
    fn start(&mut self, variables: &str) {
        let (words, port) = (self.psql("127.0.0.1", "select pg_sleep(600)"), self.cluster.port);
        let held = format!("held = socket.create_connection((\"127.0.0.1\", {port}))");
        self.stack.write("app/worker.py", &format!("import os, socket\n{held}\nos.system({words:?})\n"));
        let worker = self.as_the_application(variables, "/usr/bin/python3 worker.py");
        self.stack.start("sh", &["-c", &worker]);
        wait_for("the application", || {
            let asked = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'by_scram' AND query LIKE '%pg_sleep(600)%'";
            (self.cluster.sql("postgres", asked) == "1").then_some(())
        });
    }

    fn directory(&self) -> String {
        let socket = self.cluster.socket();
        socket.strip_prefix("unix:").unwrap().rsplit_once("/.s.").unwrap().0.to_owned()
    }

    /// What psql answers as the application over the socket.
    fn over_the_socket(&self, variables: &str) -> String {
        let words = self.as_the_application(variables, &self.psql(&self.directory(), "select 'in'"));
        let output = Command::new("sh").args(["-c", &words]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn switch(&self, more: &[&str]) -> Ended {
        let file = self.stack.path("app/settings.py").display().to_string();
        self.stack.samehost(&[&["switch", &file, "--yes", "--confirm-within=0"], more].concat())
    }
}

#[test]
fn a_password_file_is_read_by_host_and_the_line_that_is_missing_is_named() {
    if !is_root("a_password_file_is_read_by_host_and_the_line_that_is_missing_is_named") {
        return;
    }
    let mut app = Settings::new("");
    let port = app.cluster.port;
    let file = app.private("home/.pgpass", &format!("# mine\n127.0.0.1:{port}:shop:by_scram:{SECRET}\n"));
    app.start("");
    let settings = app.stack.path("app/settings.py");
    let before = Stack::facts(&[&settings]);
    let ended = app.switch(&[]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = in_one_line(&ended);
    let missing = format!("{}:{port}:shop:by_scram:PASSWORD", app.directory());
    for needed in ["password-file", &format!("{file}:2"), "fe_sendauth: no password supplied", &missing] {
        assert!(said.contains(needed), "{needed}: {said}");
    }
    assert!(!said.contains(SECRET), "{said}");
    assert_eq!(Stack::facts(&[&settings]), before);
    assert!(app.over_the_socket("").contains("fe_sendauth: no password supplied"));

    // The advice, applied.
    let line = missing.replace("PASSWORD", SECRET);
    app.private("home/.pgpass", &format!("127.0.0.1:{port}:shop:by_scram:{SECRET}\n{line}\n"));
    assert_eq!(app.over_the_socket("").trim(), "in");
    let ended = app.switch(&["--json"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let login = report["hops"][0]["login"].as_str().unwrap();
    assert!(login.contains(&format!("with the password in {file}:2")), "{login}");
}

#[test]
fn a_line_for_every_host_and_a_file_of_the_environment_are_enough() {
    if !is_root("a_line_for_every_host_and_a_file_of_the_environment_are_enough") {
        return;
    }
    for (name, variables, host) in [
        ("home/.pgpass", "", "*"),
        ("other", "PGPASSFILE=%DIR%/other", "*"),
        ("none", "PGPASSWORD=%SECRET%", "x"),
    ] {
        let mut app = Settings::new("");
        let variables = variables.replace("%DIR%/", &app.stack.path("").display().to_string());
        let variables = variables.replace("%SECRET%", SECRET);
        app.private(name, &format!("{host}:*:shop:by_scram:{SECRET}\n"));
        app.start(&variables);
        assert_eq!(app.over_the_socket(&variables).trim(), "in", "{name}");
        let ended = app.switch(&["--dry-run"]);
        assert_eq!(ended.status, 0, "{name}: {}", ended.both());
        assert!(!ended.both().contains(SECRET), "{}", ended.both());
    }
}

#[test]
fn libpq_goes_without_tls_and_not_without_channel_binding_or_gssapi() {
    if !is_root("libpq_goes_without_tls_and_not_without_channel_binding_or_gssapi") {
        return;
    }
    let binding = "channel binding required, but SSL not in use";
    for (option, variables, sentence) in [
        ("sslmode", "", None),
        ("channel_binding", "", Some(binding)),
        ("", "PGCHANNELBINDING=require", Some(binding)),
        ("", "PGSSLMODE=require", None),
    ] {
        let line = match option {
            "" => String::new(),
            name => format!("        \"OPTIONS\": {{\"{name}\": \"require\"}},\n"),
        };
        let mut app = Settings::new(&line);
        app.private("home/.pgpass", &format!("*:*:*:*:{SECRET}\n"));
        let of_psql = match option {
            "channel_binding" => "PGCHANNELBINDING=require",
            "sslmode" => "PGSSLMODE=require",
            _ => variables,
        };
        app.start(variables);
        let answer = app.over_the_socket(of_psql);
        let ended = app.switch(&["--dry-run"]);
        let said = in_one_line(&ended);
        match sentence {
            None => {
                assert_eq!((answer.trim(), ended.status), ("in", 0), "{of_psql}: {said}");
            }
            Some(sentence) => {
                assert!(answer.contains(sentence), "{answer}");
                assert_eq!(ended.status, 1, "{of_psql}: {said}");
                assert!(said.contains(sentence), "{said}");
            }
        }
    }
    // GSSAPI is refused before anything is asked: no server here has it.
    let app = Settings::new("        \"OPTIONS\": {\"gssencmode\": \"require\"},\n");
    let ended = app.switch(&["--dry-run", "--user", "www-data"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    assert!(in_one_line(&ended).contains("GSSAPI encryption required"), "{}", ended.both());
}

#[test]
fn a_service_of_libpq_completes_the_login_and_its_words_count() {
    if !is_root("a_service_of_libpq_completes_the_login_and_its_words_count") {
        return;
    }
    for (more, status) in [("", 0), ("channel_binding=require\n", 1)] {
        let mut app = Settings::new("");
        let yml = format!(
            "production:\n  adapter: postgresql\n  host: 127.0.0.1\n  port: {}\n  service: shop\n",
            app.cluster.port
        );
        fs::remove_file(app.stack.path("app/settings.py")).unwrap();
        let file = app.stack.write("app/config/database.yml", &yml).display().to_string();
        app.private(
            "home/.pg_service.conf",
            &format!("[shop]\nuser=by_scram\npassword={SECRET}\ndbname=shop\n{more}"),
        );
        app.start(&format!("PGPASSWORD={SECRET}"));
        let ended = app.stack.samehost(&["switch", &file, "--dry-run", "--yes"]);
        assert_eq!(ended.status, status, "{}", ended.both());
        let said = in_one_line(&ended);
        let word = if status == 0 {
            "user by_scram"
        } else {
            "channel_binding=require (in the file of its service)"
        };
        assert!(said.contains(word), "{said}");
        assert!(!said.contains(SECRET), "{said}");
    }
}

#[test]
fn phps_mysql_with_tls_has_none_over_a_socket_and_an_account_that_requires_it_is_told() {
    if !is_root("phps_mysql_with_tls_has_none_over_a_socket_and_an_account_that_requires_it_is_told") {
        return;
    }
    let server = MariaDb::start(&[]);
    let stack = Stack::new();
    let secret = MY_SECRET.replace('\'', "\\'");
    let config = |user: &str, more: &str| {
        let text = format!(
            "<?php\ndefine( 'DB_NAME', 'shop' );\ndefine( 'DB_USER', '{user}' );\ndefine( 'DB_PASSWORD', '{secret}' );\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n{more}$table_prefix = 'wp_';\nif ( ! defined( 'ABSPATH' ) ) {{ define( 'ABSPATH', __DIR__ . '/' ); }}\nrequire_once ABSPATH . 'wp-settings.php';\n",
            server.port
        );
        stack.write("site/wp-settings.php", "<?php\n");
        let file = stack.write("site/wp-config.php", &text).display().to_string();
        let ended = stack.samehost(&["switch", &file, "--user", "www-data", "--yes", "--dry-run"]);
        (ended.status, in_one_line(&ended))
    };
    let (status, said) = config("by_native", "define( 'MYSQL_CLIENT_FLAGS', MYSQLI_CLIENT_SSL );\n");
    assert_eq!(status, 1, "{said}");
    for needed in ["MYSQL_CLIENT_FLAGS", "site/wp-config.php:6", "Cannot connect to MySQL using SSL"] {
        assert!(said.contains(needed), "{needed}: {said}");
    }
    let script = format!(
        "mysqli_report(MYSQLI_REPORT_OFF); $m = mysqli_init(); $m->real_connect('localhost', 'by_native', '{secret}', 'shop', 0, '{}', MYSQLI_CLIENT_SSL | MYSQLI_CLIENT_SSL_DONT_VERIFY_SERVER_CERT); echo mysqli_connect_error();",
        server.socket().trim_start_matches("unix:")
    );
    let output = Command::new("php").args(["-r", &script]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("Cannot connect to MySQL using SSL"),
        "{output:?}"
    );
    let (status, said) = config("by_native", "// define( 'MYSQL_CLIENT_FLAGS', MYSQLI_CLIENT_SSL );\n");
    assert_eq!(status, 0, "{said}");

    let account =
        format!("CREATE USER by_tls@localhost IDENTIFIED BY '{}' REQUIRE SSL", MY_SECRET.replace('\'', "''"));
    server.sql(&account);
    server.sql("GRANT ALL ON *.* TO by_tls@localhost");
    let (status, said) = config("by_tls", "");
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("ALTER USER 'by_tls'@'localhost' REQUIRE NONE"), "{said}");
    server.sql("ALTER USER 'by_tls'@'localhost' REQUIRE NONE");
    let (status, said) = config("by_tls", "");
    assert_eq!(status, 0, "{said}");
}

#[test]
fn prisma_prefers_tls_and_fails_where_it_requires_it() {
    if !is_root("prisma_prefers_tls_and_fails_where_it_requires_it") {
        return;
    }
    for (query, status) in [("?sslmode=require", 1), ("?sslmode=prefer", 0), ("?connection_limit=2", 0)] {
        let app = NodeApp::new("", query);
        app.stack.write("app/package.json", "{ \"dependencies\": { \"@prisma/client\": \"^6.0.0\" } }\n");
        let ended = app.switch(&["--user", "www-data", "--dry-run"]);
        assert_eq!(ended.status, status, "{query}: {}", ended.both());
        let fails = in_one_line(&ended).contains("server does not support TLS");
        assert_eq!(fails, status == 1, "{query}: {}", ended.both());
    }
}

#[test]
fn a_library_that_is_not_known_bars_with_what_is_not_known() {
    if !is_root("a_library_that_is_not_known_bars_with_what_is_not_known") {
        return;
    }
    for (more, status) in [("PGSSLMODE=require\n", 1), ("PGSSLMODE=prefer\n", 0)] {
        let app = NodeApp::new("", "");
        fs::remove_file(app.stack.path("app/package.json")).unwrap();
        let port = app.cluster.port;
        app.stack.write(
            "app/.env",
            &format!("PGHOST=127.0.0.1\nPGPORT={port}\nPGUSER=by_scram\nPGPASSWORD={SECRET}\nPGDATABASE=shop\n{more}"),
        );
        let ended = app.switch(&["--user", "www-data", "--dry-run"]);
        assert_eq!(ended.status, status, "{more}: {}", ended.both());
        let said = in_one_line(&ended);
        assert_eq!(said.contains("Which library connects is not known"), status == 1, "{said}");
        let passed = app.switch(&["--user", "www-data", "--dry-run", "--accept", "encryption"]);
        assert_eq!(passed.status, 0, "{}", passed.both());
    }
}
