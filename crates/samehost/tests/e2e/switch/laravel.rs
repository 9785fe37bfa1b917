//! An application with a Laravel-style `.env`: PHP behind nginx, its database on MariaDB or on MySQL.

use samehost_testing::mariadb::{MariaDb, SECRET};

use crate::workloads::support::newest;

use super::stack::{Stack, free_port, is_root, page, wait_for};

/// What the application does with its settings, as Laravel's config/database.php has it.
const APPLICATION: &str = r#"<?php
$env = [];
foreach (file(__DIR__ . '/../.env', FILE_IGNORE_NEW_LINES) as $line) {
    if (preg_match('/^([A-Z_]+)=(?:"(.*)"|(.*))$/', $line, $m)) {
        $env[$m[1]] = ($m[2] ?? '') !== '' ? $m[2] : ($m[3] ?? '');
    }
}
// What the web server gives goes before the file.
foreach (['DB_SOCKET', 'DB_HOST', 'DB_PORT'] as $name) {
    $env[$name] = $_SERVER[$name] ?? $env[$name] ?? '';
}
$socket = $env['DB_SOCKET'];
$dsn = $socket !== '' ? "mysql:unix_socket=$socket" : "mysql:host={$env['DB_HOST']};port={$env['DB_PORT']}";
$db = new PDO("$dsn;dbname={$env['DB_DATABASE']}", $env['DB_USERNAME'], stripslashes($env['DB_PASSWORD']));
if (str_starts_with($_SERVER['REQUEST_URI'] ?? '', '/orders')) {
    exit('<h1>Orders</h1> ' . $db->query('SELECT COUNT(*) FROM shop.orders')->fetchColumn());
}
echo $db->query("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()")->fetchColumn();
"#;

const CONFIG: &str = "<?php return ['connections' => ['mysql' => ['unix_socket' => env('DB_SOCKET', ''), 'host' => env('DB_HOST', '127.0.0.1')]]];\n";

#[test]
fn its_env_moves_and_comes_back() {
    if is_root("its_env_moves_and_comes_back") {
        moves_and_comes_back(&MariaDb::start(&[]), "by_native", "MariaDB", "");
    }
}

#[test]
fn an_application_on_a_real_mysql_moves_is_proved_and_comes_back() {
    if is_root("an_application_on_a_real_mysql_moves_is_proved_and_comes_back") {
        moves_and_comes_back(&MariaDb::start_mysql(&newest("usr/sbin/mysqld")), "by_sha2", "mysql 9.", "");
    }
}

#[test]
fn a_host_that_nginx_gives_bars_nothing_where_the_socket_decides_and_a_socket_does() {
    if !is_root("a_host_that_nginx_gives_bars_nothing_where_the_socket_decides_and_a_socket_does") {
        return;
    }
    let server = MariaDb::start(&[]);
    let host = format!("fastcgi_param DB_HOST 127.0.0.1; fastcgi_param DB_PORT {};", server.port);
    moves_and_comes_back(&server, "by_native", "MariaDB", &host);
    for given in ["fastcgi_param DB_SOCKET \"\";", "fastcgi_param DB_SOCKET /run/other.sock;"] {
        let (stack, ..) = application(&server, "by_native", &format!("{host} {given}"));
        let ended = stack.samehost(&["switch", &stack.path("app").display().to_string(), "--dry-run"]);
        let said = ended.both().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(ended.status == 1 && said.contains("a web server sets DB_SOCKET"), "{given}: {said}");
        assert!(!said.contains("a web server sets DB_HOST"), "{said}");
    }
}

/// The application, with this account of a server and with lines more of nginx; its `.env`, and its port.
fn application(server: &MariaDb, user: &str, given: &str) -> (Stack, std::path::PathBuf, u16) {
    let mut stack = Stack::new();
    let web = free_port();
    stack.write("app/public/index.php", APPLICATION);
    stack.write("app/config/database.php", CONFIG);
    stack.write("app/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n");
    stack.write("app/artisan", "#!/usr/bin/env php\n");
    let env = stack.write(
        "app/.env",
        &format!(
            "APP_NAME=Shop\nAPP_ENV=production\nAPP_KEY=base64:c2VjcmV0IGtleSBvZiB0aGUgYXBwbGljYXRpb24=\n\nDB_CONNECTION=mysql\nDB_HOST=127.0.0.1\nDB_PORT={}\nDB_DATABASE=shop\nDB_USERNAME={user}\nDB_PASSWORD=\"{SECRET}\"\n\nLOG_CHANNEL=stack\n",
            server.port
        ),
    );
    let pool = stack.shared("sockets").join("fpm.sock");
    stack.fpm(&format!("{}\nlisten.owner = www-data", pool.display()));
    let root = stack.path("app/public");
    stack.nginx(&format!(
        "    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            fastcgi_pass unix:{};\n            fastcgi_param SCRIPT_FILENAME {}/index.php;\n            fastcgi_param REQUEST_URI $request_uri;\n            fastcgi_param REQUEST_METHOD $request_method;\n            {given}\n        }}\n    }}",
        pool.display(),
        root.display()
    ));
    (stack, env, web)
}

/// The application, with this account of a server that says so of itself, and with lines more of nginx.
fn moves_and_comes_back(server: &MariaDb, user: &str, says: &str, given: &str) {
    let (stack, env, web) = application(server, user, given);
    wait_for("the application", || {
        page(web, "/").filter(|(status, body)| *status == 200 && body.contains("127.0.0.1"))
    });
    let before = Stack::facts(&[&env]);
    let app = stack.path("app").display().to_string();
    let url = format!("http://127.0.0.1:{web}/orders");

    let ended = stack.samehost(&["switch", &app, "--page", &url, "--yes"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    stack.assert_nothing_to_do(&["switch", &app, "--page", &url, "--yes"], &[&env]);
    stack.assert_followed(|| drop(page(web, "/")));
    let text = std::fs::read_to_string(&env).unwrap();
    assert!(text.contains(&format!("DB_SOCKET={}", server.socket())), "{text}");
    let (status, host) = page(web, "/").unwrap();
    assert_eq!((status, host.as_str()), (200, "localhost"), "the server sees a socket");
    let words = ["verify", &env.display().to_string(), "--expect", "unix", "--wait", "5s", "--json"];
    let proved = stack.while_requested(|| drop(page(web, "/")), &words);
    assert_eq!(proved.status, 0, "{}", proved.both());
    let account = format!("account {user}@localhost");
    assert!(proved.stdout.contains(says) && proved.stdout.contains(&account), "{}", proved.stdout);

    let undone = stack.samehost(&["switch", "undo", &stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&env]), before);
    assert!(page(web, "/").unwrap().1.contains("127.0.0.1"));
    for said in [&ended, &proved, &undone] {
        for secret in ["hunter2", "c2VjcmV0"] {
            assert!(!said.both().contains(secret), "{}", said.both());
        }
    }
}
