//! One knowledge in every verb: what is said of an address has the right server, the words of its reader, the number of its database,
//! and each value by its place.

use std::path::Path;

use samehost_testing::mariadb::MariaDb;

use super::stack::{Stack, free_port, in_one_line, is_root, page, wait_for};

fn dry(stack: &Stack, target: &Path) -> (i32, String) {
    let ended = stack.samehost(&["switch", &target.display().to_string(), "--user", "www-data", "--dry-run"]);
    (ended.status, in_one_line(&ended))
}

#[track_caller]
fn assert_said(stack: &Stack, target: &Path, status: i32, words: &[&str]) -> String {
    let (ended, said) = dry(stack, target);
    assert_eq!(ended, status, "{said}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    said
}

#[test]
fn other_values_at_an_address_that_moves_are_told_by_their_lines_and_columns() {
    if !is_root("other_values_at_an_address_that_moves_are_told_by_their_lines_and_columns") {
        return;
    }
    let mut stack = Stack::new();
    let (port, ..) = stack.redis();
    stack.write(
        "site/manage.py",
        "import os\nos.environ.setdefault(\"DJANGO_SETTINGS_MODULE\", \"shop.live\")\n",
    );
    let settings = format!(
        "CACHES = {{\"default\": {{\"BACKEND\": \"django.core.cache.backends.redis.RedisCache\", \"LOCATION\": \"redis://127.0.0.1:{port}/6\"}}}}\nLAYERS = {{\"hosts\": [(\"127.0.0.1\", {port}), (\"127.0.0.1\", {port})]}}\nSESSION_REDIS = {{\n    \"host\": \"127.0.0.1\",\n    \"port\": {port},\n    \"db\": 3,\n}}\n"
    );
    stack.write("site/shop/live.py", &settings);
    // Its directory alone: manage.py says where the settings are.
    assert_said(
        &stack,
        &stack.path("site"),
        0,
        &[
            "this would be done", "live.py:2:22: hosts leads to", "live.py:2:44: leads to",
            "live.py:4: host leads to",
        ],
    );
}

#[test]
fn every_text_file_of_a_directory_is_read() {
    if !is_root("every_text_file_of_a_directory_is_read") {
        return;
    }
    let mut stack = Stack::new();
    let (port, ..) = stack.redis();
    for (name, text) in [
        ("mail/main.cf", "smtpd_milters = inet:127.0.0.1:@PORT\n"),
        ("mail/dovecot-sql.conf.ext", "connect = host=127.0.0.1 port=@PORT dbname=a\n"),
        ("mail/50-user", "@dsn = ( ['DBI:mysql:database=a;host=127.0.0.1;port=@PORT', 'u', 'p'] );\n"),
        ("mail/hitch.conf", "backend = \"[127.0.0.1]:@PORT\"\n"),
        // Where OpenDKIM itself listens.
        ("mail/milter", "socket inet:@PORT@127.0.0.1\n"),
    ] {
        stack.write(name, &text.replace("@PORT", &port.to_string()));
    }
    let all = ["main.cf:1", "dovecot-sql.conf.ext:1", "50-user:1", "hitch.conf:1"];
    assert_said(&stack, &stack.path("mail"), 2, &all);
    // Beside a file that an editor knows as well.
    stack.write("mail/composer.json", "{ \"require\": { \"symfony/framework-bundle\": \"^7.0\" } }");
    stack.write("mail/.env", &format!("REDIS_URL=redis://127.0.0.1:{port}/5\n"));
    assert_said(&stack, &stack.path("mail"), 0, &[&all[..], &["this would be done"]].concat());
}

#[test]
fn a_file_of_a_servers_name_that_is_another_programs_is_told_by_its_lines() {
    if !is_root("a_file_of_a_servers_name_that_is_another_programs_is_told_by_its_lines") {
        return;
    }
    let mut stack = Stack::new();
    let (port, ..) = stack.redis();
    let file =
        stack.write("local.d/redis.conf", &format!("write_servers = \"127.0.0.1:{port}\";\ndb = \"3\";\n"));
    let said = assert_said(&stack, &file, 2, &["redis.conf:1: write_servers leads to tcp:127.0.0.1"]);
    assert!(!said.contains("does not start with it"), "{said}");
}

#[test]
fn words_by_hand_keep_the_number_of_the_database() {
    if !is_root("words_by_hand_keep_the_number_of_the_database") {
        return;
    }
    let mut stack = Stack::new();
    let (port, socket, _) = stack.redis();
    let socket = socket.display().to_string();
    let node = "{ \"dependencies\": { \"ioredis\": \"^5.3.2\" } }";
    stack.write("node/package.json", node);
    let env = stack.write("node/.env", &format!("REDIS_URL=redis://127.0.0.1:{port}/5\n"));
    let words = format!("REDIS_URL=unix://{socket}?db=5 (ioredis)");
    assert_said(&stack, &env, 1, &[&words, "database: 5 }"]);
    let env = stack.write("node/.env", &format!("REDIS_URL=redis://127.0.0.1:{port}\n"));
    assert_said(&stack, &env, 1, &[&format!("REDIS_URL=unix://{socket} (ioredis)"), "{ path: … } })"]);
}

#[test]
fn localhost_is_asked_of_the_library_that_reads_it() {
    if !is_root("localhost_is_asked_of_the_library_that_reads_it") {
        return;
    }
    let stack = Stack::new();
    let server = MariaDb::start(&[]);
    let (port, socket) = (server.port, server.socket());
    let php = stack
        .write("a.php", &format!("<?php\n$database_hostname = 'localhost';\n$database_port = '{port}';\n"));
    let of_tcp = format!("leads to tcp:localhost:{port}");
    let said = assert_said(
        &stack,
        &php,
        2,
        &["a.php:2: database_hostname leads to the default socket of its library"],
    );
    assert!(!said.contains(&of_tcp), "{said}");
    let unknown = stack.write("zabbix.conf", &format!("DBHost=localhost\nDBPort={port}\n"));
    assert_said(&stack, &unknown, 2, &[&of_tcp, "where its library is PHP's or C's, to the default socket"]);
    let of_go = stack.write("exporter", &format!("DSN=u:p@tcp(localhost:{port})/a\n"));
    let said = assert_said(&stack, &of_go, 2, &[&of_tcp]);
    assert!(!said.contains("default socket"), "{said}");
    // The same of a URL.
    let url = format!("mysql://root@localhost:{port}/mysql");
    for (client, tcp) in [("prisma", format!("localhost:{port}")), ("sqlx", format!("localhost:{port}"))] {
        let ended = stack.samehost(&["how", "--url", &url, "--client", client]);
        let said = in_one_line(&ended);
        assert!(ended.status == 0 && said.contains(&socket) && said.contains(&tcp), "{client}: {said}");
    }
    let said = in_one_line(&stack.samehost(&["verify", &url]));
    let both = format!("to Go, Java, Node, Rust and PyMySQL it means TCP, port {port}");
    assert!(said.contains(&both), "{said}");
    let of_go = format!("root@(localhost:{port})/mysql");
    let said = in_one_line(&stack.samehost(&["how", "--url", &of_go, "--client", "go-sql-driver"]));
    assert!(said.contains(&socket), "{said}");
}

#[test]
fn first_whether_the_server_can_with_the_line_of_its_own_file_and_then_its_directory() {
    if !is_root("first_whether_the_server_can_with_the_line_of_its_own_file_and_then_its_directory") {
        return;
    }
    let mut stack = Stack::new();
    let (web, port) = (free_port(), free_port());
    stack.write(
        "app/web.py",
        "def app(environ, start):\n    start('200 OK', [('Content-Type', 'text/plain')])\n    return [b'here']\n",
    );
    stack.write("app/gunicorn.conf.py", &format!("workers = 1\nbind = \"127.0.0.1:{port}\"\n"));
    let folder = stack.path("app").display().to_string();
    stack.start("sh", &["-c", &format!("cd {folder} && exec gunicorn web:app")]);
    let nginx = stack.nginx(&format!(
        "server {{ listen 127.0.0.1:{web}; location / {{ proxy_pass http://127.0.0.1:{port}; }} }}"
    ));
    wait_for("the application", || page(web, "/").filter(|(status, _)| *status == 200));
    let said = assert_said(
        &stack,
        &nginx,
        1,
        &[
            "--bind unix:/run/gunicorn/gunicorn.sock",
            "app/gunicorn.conf.py:2)",
            "the directory /run/gunicorn is not there",
        ],
    );
    assert!(said.find("listens on no Unix socket") < said.find("/run/gunicorn is not there"), "{said}");
}
