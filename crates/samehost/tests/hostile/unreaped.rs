//! A container whose first process reaps nobody, as most have: what ended keeps its number there for ever. PHP-FPM as a daemon has another
//! number after each reload, and the one before stays behind.

use std::fs;
use std::process::Command;

use crate::support::{Machine, bounded, free_port};

/// The first process of a PID namespace: it waits for the script, and for nobody else.
const FIRST: &str = "import os, sys
child = os.fork()
if child == 0: os.execvp('bash', ['bash', '-c', *sys.argv[1:]])
os.waitpid(child, 0)";

const SCRIPT: &str = r#"cd "$1"; fpm=$(ls /usr/sbin/php-fpm* | tail -1)
    page() { curl -s -m 5 "http://127.0.0.1:$2/"; }
    until_served() { for i in $(seq 200); do [ "$(page x "$1")" = served ] && return; sleep 0.05; done; echo "no page"; }
    $fpm --daemonize --fpm-config $1/php/php-fpm.conf; nginx -c $1/nginx/nginx.conf -e $1/nginx.log
    until_served $2; first=$(cat $1/fpm.pid)
    "$0" switch $1/nginx/nginx.conf --socket $1/sockets/fpm.sock --observe 200ms --yes --confirm-within 0 --accept other-files </dev/null; echo "switch $?"
    until_served $2; second=$(cat $1/fpm.pid); [ "$first" = "$second" ] || echo "another number"
    grep -q '^State:.*Z' /proc/$first/status && echo "unreaped"
    "$0" switch undo --yes </dev/null; echo "undo $?"
    until_served $2; grep -q "$1/sockets/fpm.sock" /proc/net/unix && echo "the pool is left" || echo "no pool is left"
    echo "$(page x $2) at last"
    kill $(cat $1/nginx/pid) $(cat $1/fpm.pid)"#;

#[test]
fn a_service_that_runs_under_another_number_is_reloaded_where_nobody_reaps() {
    let machine = Machine::new();
    let (fpm, web) = (free_port(), free_port());
    let at = machine.path("").display().to_string();
    let at = at.trim_end_matches('/');
    for folder in ["sockets", "t"] {
        fs::create_dir(machine.path(folder)).unwrap();
    }
    machine.write("site/index.php", "<?php echo 'served';");
    machine.write(
        "php/pool.d/www.conf",
        format!("[www]\nuser = www-data\ngroup = www-data\nlisten = 127.0.0.1:{fpm}\npm = static\npm.max_children = 2\n"),
    );
    machine.write(
        "php/php-fpm.conf",
        format!("[global]\npid = {at}/fpm.pid\nerror_log = {at}/fpm.log\nsystemd_interval = 0\ninclude = {at}/php/pool.d/*.conf\n"),
    );
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {at}/t;\n"))
        .concat();
    machine.write("nginx/nginx.conf", format!("user www-data;\nworker_processes 1;\npid {at}/nginx/pid;\nerror_log {at}/nginx.log;\nevents {{ worker_connections 64; }}\nhttp {{\n    access_log off;\n{temporary}    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            fastcgi_pass 127.0.0.1:{fpm};\n            fastcgi_param SCRIPT_FILENAME {at}/site/index.php;\n            fastcgi_param REQUEST_METHOD $request_method;\n        }}\n    }}\n}}\n"));
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child", "/usr/bin/python3", "-c", FIRST, SCRIPT])
        .args([env!("CARGO_BIN_EXE_samehost"), at, &web.to_string()])
        .env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin")
        .env("XDG_STATE_HOME", machine.path("state"));
    let ended = bounded(command);
    for words in ["switch 0", "another number", "unreaped", "undo 0", "no pool is left", "served at last"] {
        assert!(
            ended.stdout.contains(words),
            "{words}: {}\n{}",
            ended.both(),
            fs::read_to_string(machine.path("fpm.log")).unwrap_or_default()
        );
    }
}
