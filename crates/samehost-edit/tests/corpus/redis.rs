//! The proof of the `redis` editor: a real server is started with the configuration in a network of its own, and says
//! where it listens; so does the kernel.

use std::collections::BTreeSet;
use std::path::Path;

use crate::case::Case;
use crate::sandbox;

const LEAST_CASES: usize = 60;

/// Starts the server, asks the kernel, then the server for everything that its configuration says.
const SCRIPT: &str = r#"
redis-server "$1" --daemonize no --logfile "" --dir "$2" --save "" >/run/log 2>&1 &
for turn in $(seq 2000); do
    grep -qi 'ready to accept' /run/log && break
    sleep 0.01
done
grep -qi 'ready to accept' /run/log || { tail -n2 /run/log; exit 1; }
listeners
find /run -type s -printf 'mode of the socket: %m\n'
password=$(sed -n 's/^requirepass //p' "$1" | tr -d '"')
port=$(ss -Hlnt | awk '{print $4}' | sed -n 's/.*://p' | head -n1)
address=$(ss -Hlnt | awk '{print $4}' | sed -n 's/:[0-9]*$//p' | tr -d '[]' | head -n1)
if [ -n "$port" ]; then set -- -h "$address" -p "$port"; else set -- -s "$(ss -Hlnx | awk '{print $5}')"; fi
[ -n "$password" ] && export REDISCLI_AUTH="$password"
redis-cli "$@" config get '*' | paste -d ' ' - - | sed 's/^/says: /'
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let mut facts = sandbox::facts_and_listeners(&sandbox::run(SCRIPT, file, root));
    if !facts.iter().any(|fact| fact.starts_with("mode of")) {
        facts.insert("mode of the socket: none".into());
    }
    facts
}

/// What the server should say afterwards.
fn expected(fact: &str, case: &Case) -> String {
    let to = case.word("to").expect("to:");
    let stays = case.word("stays") == Some("yes");
    let mode = case.word("mode").or(case.word("access").and_then(|access| access.rsplit(':').next()));
    let (what, value) = fact.split_once(": ").unwrap_or((fact, ""));
    let key = value.split(' ').next().unwrap_or_default();
    if let Some(path) = to.strip_prefix("unix:") {
        let closes = !stays && case.word("move").is_some_and(|from| from.starts_with("tcp"));
        return match (what, key) {
            ("listens on Unix", _) => format!("{what}: {path}"),
            ("listens on TCP", _) if closes => format!("{what}: "),
            ("mode of the socket", _) => match (mode, value) {
                (Some(mode), _) => format!("{what}: {mode}"),
                (None, "none") => format!("{what}: 755"),
                _ => fact.into(),
            },
            ("says", "unixsocket") => format!("says: unixsocket {path}"),
            ("says", "port") if closes => "says: port 0".into(),
            ("says", "unixsocketperm") => {
                mode.map_or_else(|| fact.into(), |mode| format!("says: unixsocketperm {mode}"))
            }
            ("says", "tcp-backlog") => case
                .word("backlog")
                .map_or_else(|| fact.into(), |backlog| format!("says: tcp-backlog {backlog}")),
            _ => fact.into(),
        };
    }
    let address = to.strip_prefix("tcp:").expect("tcp or unix");
    let (host, port) = address.rsplit_once(':').expect("a port");
    match (what, key) {
        ("listens on TCP", _) if case.word("tcp").is_some() => {
            format!("{what}: {}", case.word("tcp").unwrap_or_default())
        }
        ("listens on TCP", _) => format!("{what}: {address}"),
        ("listens on Unix", _) if !stays => format!("{what}: "),
        ("mode of the socket", _) if !stays => format!("{what}: none"),
        ("says", "unixsocket") if !stays => "says: unixsocket".into(),
        ("says", "unixsocketperm") if !stays => "says: unixsocketperm 0".into(),
        ("says", "port") => format!("says: port {port}"),
        ("says", "bind") if fact.contains('*') => format!("says: bind {}", host.trim_matches(['[', ']'])),
        _ => fact.into(),
    }
}

#[test]
fn corpus() {
    crate::run("redis", LEAST_CASES, ask, expected);
}
