//! uWSGI behind nginx: its `socket` speaks uwsgi and not HTTP. What `how` says of it is tried with both, and nginx alone is
//! not moved to a socket at which nobody listens.

use std::process::Command;

use serde_json::Value;

use super::stack::{Stack, free_port, in_one_line, is_root, page, wait_for};

const APP: &str = "def application(environ, start):\n    start('200 OK', [('Content-Type', 'text/plain')])\n    return [b'by uwsgi']\n";

/// nginx that passes everything on with this line, and uWSGI with these lines more.
fn served(pass: &str, listen: &str) -> (Stack, u16) {
    let mut stack = Stack::new();
    let web = free_port();
    stack.write("uwsgi/app.py", APP);
    let at = stack.path("uwsgi").display().to_string();
    let ini = stack.write(
        "uwsgi/app.ini",
        &format!(
            "[uwsgi]\nplugins = python3\nchdir = {at}\nmodule = app:application\nmaster = true\nprocesses = 1\n{}\nuid = www-data\ngid = www-data\nvacuum = true\ndie-on-term = true\n",
            listen.replace("%AT%", &at)
        ),
    );
    Command::new("chown").args(["www-data:", &at]).status().unwrap();
    stack.start("uwsgi", &["--ini", &ini.display().to_string()]);
    stack.nginx(&format!(
        "    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            include /etc/nginx/uwsgi_params;\n            {}\n        }}\n    }}",
        pass.replace("%AT%", &at)
    ));
    (stack, web)
}

#[test]
fn what_how_says_of_uwsgi_is_what_nginx_takes_and_no_client_of_http() {
    if !is_root("what_how_says_of_uwsgi_is_what_nginx_takes_and_no_client_of_http") {
        return;
    }
    let stack = Stack::new();
    let ended = stack.samehost(&["how", "uwsgi", "--json"]);
    let how: Value = serde_json::from_str(&ended.stdout).unwrap();
    let clients = how["clients"].as_array().unwrap();
    let names: Vec<&str> = clients.iter().map(|client| client["client"].as_str().unwrap()).collect();
    assert_eq!(names, ["nginx", "Apache"]);
    let usual = how["path"].as_str().unwrap();
    let pass = clients[0]["socket"].as_str().unwrap().replace(usual, "%AT%/uwsgi.sock");
    let setting = how["server"][0].as_str().unwrap();
    let lines = setting.split_once(": ").unwrap().1.replace(usual, "%AT%/uwsgi.sock").replace(" and ", "\n");
    let (stack, web) = served(&pass, &lines);
    let (status, body) = wait_for("the page", || page(web, "/").filter(|(status, _)| *status == 200));
    assert_eq!((status, body.as_str()), (200, "by uwsgi"));
    // A client of HTTP gets nothing there.
    let socket = stack.path("uwsgi/uwsgi.sock").display().to_string();
    let curl =
        Command::new("curl").args(["-sS", "--unix-socket", &socket, "http://localhost/"]).output().unwrap();
    assert_eq!(curl.status.code(), Some(52), "{}", String::from_utf8_lossy(&curl.stderr));
}

#[test]
fn nginx_alone_is_not_moved_to_a_socket_of_uwsgi_at_which_nobody_listens() {
    if !is_root("nginx_alone_is_not_moved_to_a_socket_of_uwsgi_at_which_nobody_listens") {
        return;
    }
    let port = free_port();
    let (stack, web) =
        served(&format!("uwsgi_pass 127.0.0.1:{port};"), &format!("socket = 127.0.0.1:{port}"));
    wait_for("the page", || page(web, "/").filter(|(status, _)| *status == 200));
    let file = stack.path("nginx/nginx.conf");
    let before = Stack::facts(&[&file]);
    let name = file.display().to_string();
    let wanted = stack.path("uwsgi/uwsgi.sock").display().to_string();
    for more in [&[][..], &["--socket", wanted.as_str()]] {
        let ended = stack.samehost(&[&["switch", &name, "--yes", "--confirm-within=0"], more].concat());
        assert_eq!(ended.status, 1, "{}", ended.both());
        assert!(
            in_one_line(&ended).contains("uWSGI") || in_one_line(&ended).contains("/run/uwsgi"),
            "{}",
            ended.both()
        );
        assert_eq!(Stack::facts(&[&file]), before);
    }
    assert_eq!(page(web, "/").unwrap().0, 200);
}
