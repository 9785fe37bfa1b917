//! A place of its own for a real server: a network in which every port is free, an empty /run, and nothing left behind,
//! because all its processes are in a process namespace that ends with the script.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The script's first lines: a loopback network and empty directories for sockets. `await_listeners` returns once something
/// listens and nothing more comes; whatever else `ss -l` shows, as the unconnected socket of a name lookup, is no listener.
const PREPARE: &str = "set -u
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p /run/redis /run/valkey /run/mysqld /run/memcached /run/postgresql /run/app
chmod 1777 /run /run/*
listeners() { ss -Hlntx | sed -nE 's/^u_[a-z]+ +LISTEN +[0-9]+ +([0-9]+) +(.*) [0-9]+ +\\* 0 *$/unix \\1 \\2/p;s/^tcp +LISTEN +[0-9]+ +([0-9]+) +([^ ]+) .*/tcp \\1 \\2/p' | sed -E 's/ +$//'; }
await_listeners() {
    before=
    for turn in $(seq 1000); do
        now=\"$(listeners)\"
        [ -n \"$now\" ] && [ \"$now\" = \"$before\" ] && return
        before=\"$now\"
        sleep 0.02
    done
    echo 'nothing listens, or ever something else does:'
    cat /run/log
    ps ax
    exit 1
}
";

/// Runs a script there; gives its standard output. The file is `$1`, the case's directory `$2`.
pub(crate) fn run(script: &str, file: &Path, root: &Path) -> String {
    let root_map: &[&str] = if is_root() { &[] } else { &["--map-root-user"] };
    let output = Command::new("timeout")
        .args(["--signal=KILL", "60", "unshare"])
        .args(root_map)
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["sh", "-c", &format!("{PREPARE}{script}"), "sh"])
        .args([file, root])
        .output()
        .expect("timeout and unshare (packages coreutils and util-linux) are needed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}: the script failed: {text}{}",
        file.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    text.replace(&root.display().to_string(), "{root}")
}

/// The lines of a text, as facts.
pub(crate) fn facts(text: &str) -> BTreeSet<String> {
    text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The same, with the lines of `listeners` as two facts.
pub(crate) fn facts_and_listeners(text: &str) -> BTreeSet<String> {
    let (listening, mut facts): (BTreeSet<String>, _) =
        facts(text).into_iter().partition(|fact| fact.starts_with("tcp ") || fact.starts_with("unix "));
    facts.extend(listeners(listening.iter().map(String::as_str)));
    facts
}

/// The listeners that `listeners` printed, as two facts: all of TCP, and all Unix sockets; with what may wait there.
pub(crate) fn listeners<'a>(lines: impl Iterator<Item = &'a str>) -> [String; 2] {
    let (mut tcp, mut unix) = (BTreeSet::new(), BTreeSet::new());
    for line in lines {
        if let Some(rest) = line.strip_prefix("tcp ") {
            tcp.insert(rest.split_once(' ').map_or(rest, |(_, address)| address));
        } else if let Some(rest) = line.strip_prefix("unix ") {
            unix.insert(rest.split_once(' ').map_or(rest, |(_, path)| path));
        }
    }
    let list = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join(", ");
    [format!("listens on TCP: {}", list(tcp)), format!("listens on Unix: {}", list(unix))]
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}
