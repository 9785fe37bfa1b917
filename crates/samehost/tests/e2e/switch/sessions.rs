//! Sessions of PHP in Redis: a pool of PHP-FPM names the server, scan finds the hop, and one switch moves it while readers
//! go on with their sessions.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::stack::{Stack, free_port, in_one_line, is_root, page, wait_for};

const PASSWORD: &str = "hunter2sessions";

/// Counts the pages of a session; `slow` keeps the connection for a while.
const PAGE: &str = r#"<?php
parse_str($_SERVER['QUERY_STRING'] ?? '', $query);
session_id($query['id'] ?? 'reader');
if (!session_start()) {
    http_response_code(500);
}
$_SESSION['pages'] = ($_SESSION['pages'] ?? 0) + 1;
if (isset($query['slow'])) {
    sleep(4);
}
echo $_SESSION['pages'];
"#;

/// A site whose sessions are in a private Redis that has both.
struct Site {
    stack: Stack,
    /// The file that names the server.
    file: std::path::PathBuf,
    /// What stands before the path in its line.
    setting: &'static str,
    web: u16,
    redis: u16,
    socket: String,
}

impl Site {
    fn new(is_in_the_pool: bool) -> Self {
        let mut stack = Stack::new();
        let (web, redis) = (free_port(), free_port());
        let socket = stack.shared("sockets").join("redis.sock").display().to_string();
        let port = redis.to_string();
        let options =
            ["--bind", "127.0.0.1", "--port", &port, "--unixsocket", &socket, "--unixsocketperm", "666"];
        let more = ["--requirepass", PASSWORD, "--save", "", "--databases", "4"];
        stack.start("redis-server", &[&options[..], &more].concat());
        stack.write("site/index.php", PAGE);
        let listen = stack.path("sockets/fpm.sock").display().to_string();
        let [handler, setting] = if is_in_the_pool {
            ["php_value[session.save_handler]", "php_value[session.save_path]"]
        } else {
            ["session.save_handler", "session.save_path"]
        };
        let lines = format!(
            "{handler} = redis\n{setting} = \"tcp://127.0.0.1:{redis}?auth={PASSWORD}&database=2\" ; sessions\n"
        );
        let ini = (!is_in_the_pool).then(|| stack.write("php/php.ini", &format!("[Session]\n{lines}")));
        let of_the_pool = if is_in_the_pool { &*lines } else { "" };
        let pool = stack.fpm(&format!("{listen}\nlisten.owner = www-data\n{of_the_pool}"));
        let file = ini.unwrap_or(pool);
        let root = stack.path("site").display().to_string();
        stack.nginx(&format!(
            "    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            fastcgi_pass unix:{listen};\n            fastcgi_param SCRIPT_FILENAME {root}/index.php;\n            fastcgi_param QUERY_STRING $query_string;\n            fastcgi_param REQUEST_METHOD $request_method;\n        }}\n    }}"
        ));
        wait_for("the site", || page(web, "/?id=first").filter(|(status, _)| *status == 200));
        Site { stack, file, setting, web, redis, socket }
    }

    fn asked(&self, words: &[&str]) -> String {
        let port = self.redis.to_string();
        let mut command = Command::new("redis-cli");
        command.args(["--no-auth-warning", "-a", PASSWORD, "-p", &port]).args(words);
        String::from_utf8(command.output().expect("redis-cli").stdout).unwrap()
    }

    /// Waits until a page has a connection to Redis: of this kind, as Redis marks it.
    fn wait_for_a_session_over(&self, what: &str, is_it: impl Fn(&str) -> bool) {
        let web = self.web;
        let slow = std::thread::spawn(move || page(web, "/?id=slow&slow=1"));
        wait_for(what, || self.asked(&["client", "list"]).lines().any(&is_it).then_some(()));
        assert_eq!(slow.join().unwrap().unwrap().0, 200);
    }
}

fn is_of_a_socket(line: &str) -> bool {
    line.contains(" flags=U") && line.contains(" db=2 ")
}

fn is_of_tcp(line: &str) -> bool {
    line.contains(" flags=N") && line.contains(" db=2 ")
}

#[test]
fn the_sessions_of_a_pool_move_and_no_reader_loses_one() {
    if is_root("the_sessions_of_a_pool_move_and_no_reader_loses_one") {
        sessions_move(&Site::new(true), "session.save_path of pool www");
    }
}

#[test]
fn the_sessions_of_a_php_ini_move_and_no_reader_loses_one() {
    if is_root("the_sessions_of_a_php_ini_move_and_no_reader_loses_one") {
        sessions_move(&Site::new(false), "session.save_path");
    }
}

fn sessions_move(site: &Site, setting: &str) {
    let before = Stack::facts(&[&site.file]);
    let now = format!("tcp:127.0.0.1:{}", site.redis);
    site.wait_for_a_session_over("a session over TCP", is_of_tcp);

    let web = site.web;
    let is_over = Arc::new(AtomicBool::new(false));
    let slow = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(page(web, "/?id=slow&slow=1").unwrap().0, 200);
            }
        }
    });
    let scan = site.stack.samehost(&["scan", "--json", "--quiet", "--observe", "3s"]);
    is_over.store(true, Ordering::Relaxed);
    slow.join().unwrap();
    let found: Value = serde_json::from_str(&scan.stdout).unwrap();
    let all = found["advice"].as_array().unwrap();
    let hop = all.iter().find(|one| one["now"] == now.as_str()).unwrap_or_else(|| panic!("{now}: {all:#?}"));
    assert!(hop["client"].as_str().unwrap().starts_with("php-fpm"), "{hop:#}");

    let stop = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut pages = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                pages.push(page(web, "/?id=reader"));
            }
            pages
        }
    });
    let file = site.file.display().to_string();
    let ended = site.stack.samehost(&["switch", &file, "--observe", "100ms", "--yes"]);
    stop.store(true, Ordering::Relaxed);
    let pages = reader.join().unwrap();
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), site.stack.log());
    site.stack.assert_nothing_to_do(&["switch", &file, "--observe", "100ms", "--yes"], &[]);
    let counted: Vec<usize> =
        pages.iter().map(|page| page.as_ref().map_or(0, |(_, body)| body.parse().unwrap_or(0))).collect();
    assert!(counted.len() > 2 && counted.iter().copied().eq(1..=counted.len()), "{pages:?}");
    let text = std::fs::read_to_string(&site.file).unwrap();
    let line = format!("{} = \"unix://{}?auth={PASSWORD}&database=2\" ; sessions", site.setting, site.socket);
    assert!(text.contains(&line), "{text}");
    let proof = format!("• {setting} logs in over unix:{}", site.socket);
    assert!(in_one_line(&ended).contains(&proof), "{}", ended.both());
    assert!(!ended.both().contains("hunter2"), "{}", ended.both());
    site.wait_for_a_session_over("a session over the socket", is_of_a_socket);
    if site.file.ends_with("www.conf") {
        // A php.ini is every PHP's of its directory; where several run, whose connection it is cannot be told.
        site.stack.assert_followed(|| drop(page(web, "/?id=other")));
    }

    let undone = site.stack.samehost(&["switch", "undo", &site.stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&site.file]), before);
    site.wait_for_a_session_over("a session over TCP again", is_of_tcp);
    let (status, body) = page(web, "/?id=reader").unwrap();
    assert_eq!((status, body), (200, (counted.len() + 1).to_string()));
}
