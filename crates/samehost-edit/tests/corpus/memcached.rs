//! The proof of the `memcached` editor: Debian's own start script starts a real server with the file, in a network of
//! its own; the server says its settings, and the kernel where it listens. Red Hat's file is read by a shell, which
//! takes it apart as systemd does (there is no systemd here).

use std::collections::BTreeSet;
use std::path::Path;

use crate::case::Case;
use crate::sandbox;

const LEAST_CASES: usize = 35;

const SCRIPT: &str = r#"
case "$1" in
*/sysconfig/*) (. "$1"; exec memcached -p "${PORT:-11211}" -u memcache -m 64 -c 1024 $OPTIONS) >/run/log 2>&1 & ;;
*) perl /usr/share/memcached/scripts/systemd-memcached-wrapper "$1" >/run/log 2>&1 & ;;
esac
await_listeners
listeners
socket="$(find /run -type s)"
if [ -n "$socket" ]; then
    stat -c 'mode of the socket: %a' "$socket"
    set -- -U "$socket"
else
    echo 'mode of the socket: none'
    set -- 127.0.0.1 "$(ss -Hlnt | sed -nE 's/.*[^ ]*:([0-9]+) +[^ ]+:\*.*/\1/p' | head -n1)"
fi
printf 'stats settings\r\nquit\r\n' | nc "$@" | tr -d '\r' | grep -vE ' (umask|END)' | sed 's/^STAT /setting: /'
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    sandbox::facts_and_listeners(&sandbox::run(SCRIPT, file, root))
}

/// What the server should say afterwards.
fn expected(fact: &str, case: &Case) -> String {
    let to = case.word("to").expect("to:");
    let mode = case.word("access").and_then(|access| access.rsplit(':').next());
    let (what, value) = fact.split_once(": ").unwrap_or((fact, ""));
    if let Some(path) = to.strip_prefix("unix:") {
        return match (what, value.split(' ').next().unwrap_or_default()) {
            ("listens on TCP", _) => format!("{what}: "),
            ("listens on Unix", _) => format!("{what}: {path}"),
            ("mode of the socket", _) if value == "none" => {
                format!("{what}: {}", mode.or(case.word("mode")).unwrap_or("700"))
            }
            ("setting", "domain_socket") => format!("{what}: domain_socket {path}"),
            ("setting", "tcp_backlog") => case
                .word("backlog")
                .map_or_else(|| fact.into(), |backlog| format!("{what}: tcp_backlog {backlog}")),
            _ => fact.into(),
        };
    }
    let (host, port) = to.trim_start_matches("tcp:").rsplit_once(':').expect("a port");
    match (what, value.split(' ').next().unwrap_or_default()) {
        ("listens on TCP", _) => format!("{what}: {host}:{port}"),
        ("listens on Unix", _) => format!("{what}: "),
        ("mode of the socket", _) => format!("{what}: none"),
        ("setting", "domain_socket") => format!("{what}: domain_socket NULL"),
        ("setting", "tcpport") => format!("{what}: tcpport {port}"),
        ("setting", "inter") => format!("{what}: inter {host}"),
        _ => fact.into(),
    }
}

#[test]
fn corpus() {
    crate::run("memcached", LEAST_CASES, ask, expected);
}
