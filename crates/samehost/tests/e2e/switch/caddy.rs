//! Caddy in front of nginx, with the proxy in an imported file. No signal reloads Caddy, so its command is given.

use super::stack::{Stack, free_port, in_one_line, is_root, page, wait_for};
use crate::support::assert_verified;

#[test]
fn an_imported_proxy_moves_and_comes_back() {
    if !is_root("an_imported_proxy_moves_and_comes_back") {
        return;
    }
    let mut stack = Stack::new();
    let (web, app, admin) = (free_port(), free_port(), free_port());
    let log = stack.path("requests");
    stack.write("site/index.html", "served");
    let nginx = stack.nginx(&format!(
        "    log_format where '$request_uri $http_host $server_addr';\n    server {{\n        access_log {} where;\n        listen 127.0.0.1:{app};\n        root {};\n        location / {{ try_files /index.html =404; }}\n    }}",
        log.display(),
        stack.path("site").display()
    ));
    let came_in = |target: &str| {
        let text = std::fs::read_to_string(&log).ok()?;
        let last = text.lines().rev().find_map(|line| line.strip_prefix(&format!("{target} ")));
        last.map(str::to_owned)
    };
    let main = stack.write(
        "caddy/Caddyfile",
        &format!(
            "{{\n\tadmin 127.0.0.1:{admin}\n\tauto_https off\n}}\nhttp://127.0.0.1:{web} {{\n\tbind 127.0.0.1\n\timport parts/*.caddy\n}}\n"
        ),
    );
    let part = stack.write("caddy/parts/app.caddy", &format!("reverse_proxy localhost:{app} # nginx\n"));
    let (name, home) = (main.display().to_string(), format!("HOME={}", stack.path("home").display()));
    let start = [&home, "caddy", "run", "--adapter", "caddyfile", "--config", &name];
    stack.start("env", &start);
    wait_for("the site", || page(web, "/a").filter(|(status, _)| *status == 200));
    assert_verified(&format!("http://127.0.0.1:{web}/"), "tcp", "caddy");
    let before = Stack::facts(&[&nginx, &main, &part]);
    let url = format!("http://127.0.0.1:{web}/b");
    let socket = stack.shared("sockets").join("app.sock").display().to_string();
    let arguments = [
        "switch", &name, "--socket", &socket, "--observe", "100ms", "--page", &url, "--accept",
        "other-files", "--yes",
    ];

    let refused = stack.samehost(&arguments);
    assert_eq!(refused.status, 1, "{}", refused.both());
    assert!(refused.both().contains("no signal reloads caddy"), "{}", refused.both());
    assert_eq!(Stack::facts(&[&nginx, &main, &part]), before);

    let reload = format!("caddy={home} caddy reload --adapter caddyfile --config {name}");
    let with_reload = [&arguments[..], &["--reload", &reload]].concat();
    let second = "http://127.0.0.1:1 {\n\tbind 127.0.0.1\n\tno-such-directive\n}";
    let check = format!("caddy validate --adapter caddyfile --config {name} (as root)` failed");
    stack.assert_checked(&with_reload, &main, second, &[&check, "unrecognized directive: no-such-directive"]);
    assert_eq!(std::fs::read(&part).unwrap(), before[&part].bytes);

    stack.assert_not_followed(&arguments, "caddy", &[&nginx, &main, &part]);
    let before = Stack::facts(&[&nginx, &main, &part]);
    let ended = stack.samehost(&with_reload);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), stack.log());
    stack.assert_followed(|| drop(page(web, "/x")));
    stack.assert_nothing_to_do(&with_reload, &[]);
    assert!(in_one_line(&ended).contains("reverse_proxy sends X-Forwarded-For"), "{}", ended.both());
    let text = std::fs::read_to_string(&part).unwrap();
    assert_eq!(text, format!("reverse_proxy unix/{socket} # nginx\n"));
    assert_eq!(page(web, "/c"), Some((200, "served".into())));
    // nginx says where the request came in, and for which host.
    let over_socket = format!("127.0.0.1 unix:{socket}");
    wait_for("a request over the socket", || came_in("/c").filter(|found| *found == over_socket));

    let undone = stack.samehost(&["switch", "undo", &stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&nginx, &main, &part]), before);
    wait_for("the site", || page(web, "/e").filter(|(status, _)| *status == 200));
    wait_for("a request over TCP", || came_in("/e").filter(|found| found == "127.0.0.1 127.0.0.1"));
}
