//! HAProxy in front of nginx: both files in one transaction, nginx listening at both places while HAProxy moves. HAProxy
//! has a chroot, as distributions set it up, so the path in its file is not the socket's path on this machine.

use super::stack::{Stack, free_port, in_one_line, is_root, page, wait_for};
use crate::support::assert_verified;

#[test]
fn a_backend_moves_into_the_chroot_and_comes_back() {
    if !is_root("a_backend_moves_into_the_chroot_and_comes_back") {
        return;
    }
    let mut stack = Stack::new();
    let (web, app) = (free_port(), free_port());
    stack.write("site/index.html", "served");
    let root = stack.path("site").display().to_string();
    let log = stack.path("requests");
    let nginx = stack.nginx(&format!(
        "    log_format where '$request_uri $server_addr';\n    server {{\n        access_log {} where;\n        listen 127.0.0.1:{app};\n        root {root};\n        location / {{ try_files /index.html =404; }}\n    }}",
        log.display()
    ));
    let came_in = |target: &str| {
        let text = std::fs::read_to_string(&log).ok()?;
        let last = text.lines().rev().find_map(|line| line.strip_prefix(&format!("{target} ")));
        last.map(str::to_owned)
    };
    let sockets = stack.shared("jail/run");
    let jail = stack.path("jail").display().to_string();
    let haproxy = stack.write(
        "haproxy/haproxy.cfg",
        &format!(
            "global\n    chroot {jail}\n    user haproxy\n    group haproxy\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 5s\n    timeout server 5s\nfrontend www\n    bind 127.0.0.1:{web}\n    default_backend app\nbackend app\n    # nginx\n    server nginx 127.0.0.1:{app} check inter 1s\n"
        ),
    );
    let name = haproxy.display().to_string();
    stack.start("haproxy", &["-W", "-db", "-f", &name]);
    wait_for("the site", || page(web, "/a").filter(|(status, _)| *status == 200));
    assert_verified(&format!("http://127.0.0.1:{web}/"), "tcp", "haproxy");
    let before = Stack::facts(&[&nginx, &haproxy]);
    let (outside, url) = (stack.path("app.sock").display().to_string(), format!("http://127.0.0.1:{web}/b"));
    let switch = |socket: &str| {
        stack.samehost(&[
            "switch", &name, "--socket", socket, "--observe", "100ms", "--page", &url, "--accept",
            "other-files", "--yes",
        ])
    };

    let refused = switch(&outside);
    assert_eq!(refused.status, 1, "{}", refused.both());
    assert!(refused.both().contains("inside"), "{}", refused.both());
    assert_eq!(Stack::facts(&[&nginx, &haproxy]), before);

    let socket = sockets.join("app.sock").display().to_string();
    let arguments =
        ["switch", &name, "--socket", &socket, "--observe", "100ms", "--accept", "other-files", "--yes"];
    let second = "backend other\n    balance by-the-weather";
    let check = format!("haproxy -c -f {name} (as root)` failed");
    stack.assert_checked(&arguments, &haproxy, second, &[&check, "balance only supports 'roundrobin'"]);
    assert_eq!(std::fs::read(&nginx).unwrap(), before[&nginx].bytes);

    stack.assert_not_followed(&arguments, "haproxy", &[&nginx, &haproxy]);
    let before = Stack::facts(&[&nginx, &haproxy]);
    let ended = switch(&socket);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), stack.log());
    stack.assert_followed(|| drop(page(web, "/x")));
    stack.assert_nothing_to_do(&arguments, &[&nginx, &haproxy]);
    assert!(in_one_line(&ended).contains("option forwardfor"), "{}", ended.both());
    let text = std::fs::read_to_string(&haproxy).unwrap();
    assert!(text.contains("server nginx unix@/run/app.sock check inter 1s"), "{text}");
    assert!(std::fs::read_to_string(&nginx).unwrap().contains(&format!("listen unix:{socket}")));
    assert_verified(&format!("unix:{socket}"), "unix", "nginx");
    assert_eq!(page(web, "/c"), Some((200, "served".into())));
    // nginx says where the request came in.
    wait_for("a request over the socket", || {
        came_in("/c").filter(|address| *address == format!("unix:{socket}"))
    });

    let undone = stack.samehost(&["switch", "undo", &stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&nginx, &haproxy]), before);
    wait_for("the site", || page(web, "/e").filter(|(status, _)| *status == 200));
    wait_for("a request over TCP", || came_in("/e").filter(|address| address == "127.0.0.1"));

    // Since it was reloaded, HAProxy has other arguments and variables, which its check does not need.
    let again = switch(&socket);
    assert_eq!(again.status, 0, "{}\n{}", again.both(), stack.log());
    assert!(!in_one_line(&again).contains("is not run"), "{}", again.both());
}
