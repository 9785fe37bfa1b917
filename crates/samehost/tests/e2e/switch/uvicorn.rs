//! nginx in front of uvicorn, which listens on one address only: nginx holds both addresses while it restarts on its socket.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::stack::{Ended, Stack, free_port, in_one_line, is_root, must, page, wait_for};
use crate::support::assert_verified;

/// Says its path and the host that it was asked for.
const APP: &str = "
async def app(scope, receive, send):
    host = dict(scope['headers']).get(b'host', b'').decode()
    body = f\"served {scope['path']} to {host}\".encode()
    headers = [(b'content-type', b'text/plain'), (b'content-length', str(len(body)).encode())]
    await send({'type': 'http.response.start', 'status': 200, 'headers': headers})
    await send({'type': 'http.response.body', 'body': body})
";

/// Ends the process that the unit's command started, and starts what the unit with its drop-in then says, as systemd would.
const RESTART: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
if [ -e pid ]; then kill "$(cat pid)"; while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.05; done; fi
[ "$1" = stop ] && exit
units=/etc/systemd/system
command=$(cat $units/app.service $units/app.service.d/*.conf 2>/dev/null | sed -n 's/^ExecStart=//p' | tail -1)
$command >>log 2>&1 </dev/null & echo $! >pid
"#;

/// What a test started; it ends with it.
struct Service(String);

impl Drop for Service {
    fn drop(&mut self) {
        must(&self.0, &["stop"]);
    }
}

/// Set where the directory of units is a private one.
const INSIDE: &str = "SAMEHOST_TEST_OWN_UNITS";

/// The test once more, in a mount namespace whose /etc/systemd/system is empty.
#[test]
fn the_server_behind_nginx_moves_and_comes_back() {
    if !is_root("the_server_behind_nginx_moves_and_comes_back") {
        return;
    }
    if std::env::var_os(INSIDE).is_some() {
        return moves_and_comes_back();
    }
    let own_units = "mount -t tmpfs tmpfs /etc/systemd/system && exec \"$@\"";
    let ended = Command::new("unshare")
        .args(["--mount", "sh", "-c", own_units, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "switch::uvicorn::the_server_behind_nginx_moves_and_comes_back", "--nocapture"])
        .env(INSIDE, "yes")
        .output()
        .unwrap();
    let ended = Ended::of(&ended);
    assert!(ended.status == 0 && ended.stdout.contains("1 passed"), "{}", ended.both());
}

fn moves_and_comes_back() {
    let mut stack = Stack::new();
    let (web, port) = (free_port(), free_port());
    stack.write("page.py", APP);
    let folder = stack.path("").display().to_string();
    let unit = Path::new("/etc/systemd/system/app.service");
    fs::write(
        unit,
        format!(
            "[Unit]\nDescription=The site's application\n\n[Service]\nUser=root\nExecStart=/usr/bin/uvicorn page:app --app-dir {folder} --lifespan off --host 127.0.0.1 --port {port}\n"
        ),
    )
    .unwrap();
    let restart = stack.write("restart", RESTART).display().to_string();
    must("chmod", &["755", &restart]);
    must(&restart, &[]);
    let service = Service(restart.clone());
    let nginx = stack.nginx(&format!(
        "    upstream app {{\n        server 127.0.0.1:{port};\n    }}\n    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            proxy_set_header Host $host;\n            proxy_pass http://app;\n        }}\n    }}"
    ));
    wait_for("the application", || page(web, "/a").filter(|(status, _)| *status == 200));
    assert_verified(&format!("tcp:127.0.0.1:{port}"), "tcp", "uvicorn");
    let before = Stack::facts(&[&nginx, unit]);
    let socket = stack.shared("run").join("app.sock").display().to_string();
    let (reload, url) = (format!("uvicorn={restart}"), format!("http://127.0.0.1:{web}/b"));
    let (config, unit_name) = (nginx.display().to_string(), unit.display().to_string());
    let arguments =
        ["switch", &config, &unit_name, "--socket", &socket, "--reload", &reload, "--page", &url, "--yes"];

    let refused = stack.samehost(&["switch", &config, &unit_name, "--socket", &socket, "--dry-run"]);
    let said = in_one_line(&refused);
    assert!(
        refused.status == 1 && said.contains("Say how it takes the change: --reload 'uvicorn=COMMAND'"),
        "{said}"
    );
    let ended = stack.samehost(&arguments);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), stack.log());
    let kept = in_one_line(&ended).contains("it is kept where the page stays as it was until then");
    assert!(kept, "{}", ended.both());
    stack.assert_nothing_to_do(&arguments, &[]);
    stack.assert_followed(|| drop(page(web, "/x")));
    let drop_in = Path::new("/etc/systemd/system/app.service.d/50-samehost.conf");
    let text = fs::read_to_string(drop_in).unwrap();
    assert!(text.contains(&format!("--lifespan off --uds {socket}\n")), "{text}");
    let text = fs::read_to_string(&nginx).unwrap();
    assert!(text.contains(&format!("server unix:{socket};")), "{text}");
    assert!(!text.contains(&format!("127.0.0.1:{port}")), "{text}");
    assert_eq!(page(web, "/c"), Some((200, "served /c to 127.0.0.1".into())));
    assert_verified(&format!("unix:{socket}"), "unix", "uvicorn");

    let undone = stack.samehost(&["switch", "undo", &stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&nginx, unit]), before);
    assert!(!drop_in.exists(), "the drop-in was the switch's own");
    wait_for("the application over TCP", || page(web, "/d").filter(|(status, _)| *status == 200));
    drop(service);
}
