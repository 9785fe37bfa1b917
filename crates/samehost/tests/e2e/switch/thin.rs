//! nginx in front of two Thin servers: nginx holds both addresses while Thin restarts on its sockets.

use std::process::Command;

use super::stack::{Stack, free_port, is_root, must, page, wait_for};
use crate::support::assert_verified;

struct Thin(String);

impl Drop for Thin {
    fn drop(&mut self) {
        let _ = Command::new("thin").args(["-C", &self.0, "stop"]).output();
    }
}

/// Two ports side by side that nobody listens at.
fn two_ports() -> u16 {
    wait_for("two free ports", || {
        let port = free_port();
        let next = port.checked_add(1)?;
        std::net::TcpListener::bind(("127.0.0.1", next)).ok().map(|_| port)
    })
}

#[test]
fn both_backends_move_and_come_back() {
    if !is_root("both_backends_move_and_come_back") {
        return;
    }
    let mut stack = Stack::new();
    let (web, first) = (free_port(), two_ports());
    stack.write(
        "app/config.ru",
        "run ->(env) { [200, { 'Content-Type' => 'text/plain' }, [\"served #{env['PATH_INFO']} to #{env['HTTP_HOST']}\"]] }\n",
    );
    let sockets = stack.shared("run");
    let app = stack.path("app").display().to_string();
    let yml = stack.write(
        "app/thin.yml",
        &format!(
            "---\n# The servers of this site\nchdir: {app}\nrackup: {app}/config.ru\naddress: 127.0.0.1\nport: {first}\nservers: 2\ndaemonize: true\nenvironment: production\npid: {app}/thin.pid\nlog: {app}/thin.log\n"
        ),
    );
    let name = yml.display().to_string();
    must("thin", &["-C", &name, "start"]);
    let thin = Thin(name.clone());
    let nginx = stack.nginx(&format!(
        "    upstream app {{\n        server 127.0.0.1:{first};\n        server 127.0.0.1:{};\n    }}\n    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            proxy_set_header Host $host;\n            proxy_pass http://app;\n        }}\n    }}",
        first + 1
    ));
    wait_for("the application", || page(web, "/a").filter(|(status, _)| *status == 200));
    assert_verified(&format!("tcp:127.0.0.1:{first}"), "tcp", "thin");
    let before = Stack::facts(&[&nginx, &yml]);
    let socket = sockets.join("thin.sock").display().to_string();
    // Stopped by the pid files, started by the configuration as it then is.
    let restart = stack.write(
        "restart",
        &format!(
            "#!/bin/sh\nfor pid in {app}/thin.*.pid; do kill $(cat $pid) && while [ -e $pid ]; do sleep 0.05; done; done\nexec thin -C {name} start\n"
        ),
    );
    must("chmod", &["755", &restart.display().to_string()]);
    let (reload, url) = (format!("thin={}", restart.display()), format!("http://127.0.0.1:{web}/b"));
    let config = nginx.display().to_string();
    let arguments =
        ["switch", &config, &name, "--socket", &socket, "--reload", &reload, "--page", &url, "--yes"];

    let ended = stack.samehost(&arguments);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), stack.log());
    stack.assert_nothing_to_do(&arguments, &[]);
    stack.assert_followed(|| drop(page(web, "/x")));
    let text = std::fs::read_to_string(&nginx).unwrap();
    for index in 0..2 {
        assert!(text.contains(&format!("server unix:{}/thin.{index}.sock;", sockets.display())), "{text}");
    }
    assert!(!text.contains(&format!("127.0.0.1:{first}")), "{text}");
    assert_eq!(page(web, "/c"), Some((200, "served /c to 127.0.0.1".into())));
    assert_verified(&format!("unix:{}/thin.0.sock", sockets.display()), "unix", "thin");

    let undone = stack.samehost(&["switch", "--undo", &stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&nginx, &yml]), before);
    wait_for("the application over TCP", || page(web, "/d").filter(|(status, _)| *status == 200));
    drop(thin);
}
