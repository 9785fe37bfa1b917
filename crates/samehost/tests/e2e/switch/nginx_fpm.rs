//! nginx and PHP-FPM over FastCGI: both files in one transaction, the pool listening at both places while nginx moves.

use std::path::Path;

use super::stack::{Stack, free_port, is_root, page, wait_for};
use crate::support::assert_verified;

pub(crate) struct Hop {
    pub(crate) stack: Stack,
    pub(crate) nginx: std::path::PathBuf,
    pub(crate) pool: std::path::PathBuf,
    pub(crate) web: u16,
    pub(crate) fpm: u16,
}

/// A site whose nginx reaches PHP-FPM over TCP.
pub(crate) fn hop() -> Hop {
    let mut stack = Stack::new();
    let (web, fpm) = (free_port(), free_port());
    stack.write("site/index.php", "<?php echo 'served by ', $_SERVER['REQUEST_URI'];");
    let pool = stack.fpm(&format!("127.0.0.1:{fpm}"));
    let root = stack.path("site");
    let nginx = stack.nginx(&format!(
        "    server {{\n        listen 127.0.0.1:{web};\n        root {};\n        location / {{\n            # PHP\n            fastcgi_pass 127.0.0.1:{fpm};\n            fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n            fastcgi_param REQUEST_URI $request_uri;\n            fastcgi_param REQUEST_METHOD $request_method;\n        }}\n    }}",
        root.display()
    ));
    wait_for("the site", || page(web, "/a").filter(|(status, _)| *status == 200));
    Hop { stack, nginx, pool, web, fpm }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn both_files_move_and_come_back() {
    if !is_root("both_files_move_and_come_back") {
        return;
    }
    let hop = hop();
    let before = Stack::facts(&[&hop.nginx, &hop.pool]);
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let url = format!("http://127.0.0.1:{}/b", hop.web);
    assert_verified(&url, "tcp", "nginx");
    assert_verified(&format!("tcp:127.0.0.1:{}", hop.fpm), "tcp", "php-fpm");
    let nginx = hop.nginx.display().to_string();

    let switch = |more: &[&str]| {
        let observed = ["switch", &nginx, "--socket", &socket, "--observe", "100ms"];
        hop.stack.samehost(&[&observed, more].concat())
    };
    let dry = switch(&["--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    assert!(dry.stdout.contains(&format!("+ fastcgi_pass unix:{socket};")), "{}", dry.stdout);
    assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before, "a dry run touches nothing");

    let ended = switch(&["--page", &url, "--accept", "other-files", "--yes"]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), hop.stack.log());
    for repeated in [&["switch", &nginx, "--socket", &socket, "--yes"][..], &["switch", &nginx, "--yes"]] {
        hop.stack.assert_nothing_to_do(repeated, &[&hop.nginx, &hop.pool]);
    }
    hop.stack.assert_followed(|| drop(page(hop.web, "/x")));
    assert!(text(&hop.nginx).contains(&format!("fastcgi_pass unix:{socket};")), "{}", text(&hop.nginx));
    assert!(text(&hop.pool).contains(&format!("listen = {socket}")), "{}", text(&hop.pool));
    assert_eq!(
        std::fs::read_dir(hop.pool.parent().unwrap()).unwrap().count(),
        1,
        "the copy of the pool is gone"
    );
    assert_eq!(page(hop.web, "/c"), Some((200, "served by /c".into())));
    assert_verified(&format!("unix:{socket}"), "unix", "php-fpm");
    wait_for("the port to be closed", || std::net::TcpStream::connect(("127.0.0.1", hop.fpm)).err());

    let id = hop.stack.only_switch();
    let undone = hop.stack.samehost(&["switch", "--undo", &id, "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before);
    wait_for("the site over TCP", || page(hop.web, "/d").filter(|(status, _)| *status == 200));

    // And the other way, from a socket that is there to a port that is not.
    let again = switch(&["--no-confirm", "--accept", "other-files", "--yes"]);
    assert_eq!(again.status, 0, "{}", again.both());
    let address = format!("127.0.0.1:{}", hop.fpm);
    let back = hop.stack.samehost(&[
        "switch",
        &nginx,
        "--to",
        "tcp",
        "--address",
        &address,
        "--page",
        &url,
        "--accept",
        "other-files",
        "--yes",
    ]);
    assert_eq!(back.status, 0, "{}\n{}", back.both(), hop.stack.log());
    assert!(text(&hop.nginx).contains(&format!("fastcgi_pass {address};")), "{}", text(&hop.nginx));
    assert!(text(&hop.pool).contains(&format!("listen = {address}")), "{}", text(&hop.pool));
    assert_eq!(page(hop.web, "/e"), Some((200, "served by /e".into())));
}
