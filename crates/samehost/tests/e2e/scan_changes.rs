//! `samehost scan --save` and `--since`: what changed, in a machine of its own with a real Redis, and what becomes of a
//! history that is damaged, full, of a later version, or written to by two at once.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use samehost_testing::free_port;
use serde_json::Value;

use crate::scan::{Held, is_root};
use crate::schemas::assert_valid;
use crate::support::{Ended, Home, SAMEHOST, not_tested, send, wait_for};

/// Namespaces in which nothing runs but what the test starts there.
struct Quiet {
    home: Home,
    /// With it all processes end that are in them.
    _holder: Held,
    pid: String,
}

impl Quiet {
    fn new() -> Self {
        let script = "ip link set lo up && exec sleep 600";
        let options = ["--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script];
        let holder = Held::start("unshare", &options);
        let is_up = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
        };
        let pid = wait_for("the namespaces", || children(holder.pid()).into_iter().find(is_up));
        Quiet { home: Home::new(), _holder: holder, pid: pid.to_string() }
    }

    /// A command line in it.
    fn inside<'a>(&'a self, line: &[&'a str]) -> Vec<&'a str> {
        [&["-t", &self.pid, "--net", "--pid", "--mount", "--"], line].concat()
    }

    fn start(&self, line: &[&str]) -> Inside {
        Inside(Held::start("nsenter", &self.inside(line)))
    }

    fn samehost(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new("nsenter");
        command.args(self.inside(&[&[SAMEHOST], arguments].concat()));
        command.env("XDG_STATE_HOME", self.home.path("state")).env("COLUMNS", "80").stdin(Stdio::null());
        let ended = Ended::of(&command.output().unwrap());
        let is_narrow = ended.stdout.lines().all(|line| line.chars().count() <= 80);
        assert!(is_narrow || arguments.contains(&"--json"), "{}", ended.stdout);
        ended
    }

    /// Waits until a scan finds this hop.
    fn wait_for_hop(&self, endpoint: &str) {
        wait_for(endpoint, || {
            let found: Value = serde_json::from_str(&self.samehost(&["scan", "--json"]).stdout).unwrap();
            let connections = found["connections"].as_array().unwrap();
            let address = endpoint.split_once(':').unwrap().1;
            let has_both = |one: &&Value| {
                one["server"]["address"] == address
                    && !one["client"]["pids"].as_array().unwrap().is_empty()
                    && !one["server"]["pids"].as_array().unwrap().is_empty()
            };
            connections.iter().find(has_both).map(|_| ())
        });
    }
}

/// A process in namespaces of their own, gone when dropped.
struct Inside(Held);

impl Drop for Inside {
    fn drop(&mut self) {
        // nsenter waits for the process that it made.
        for pid in children(self.0.pid()) {
            send(pid, Signal::KILL);
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// A stored scan each, the oldest first.
fn files(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.path("state/samehost/scans")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_hop_that_comes_moves_to_a_socket_and_goes_is_shown() {
    if !is_root() {
        not_tested("without root: what changed in namespaces of its own");
        return;
    }
    let quiet = Quiet::new();
    let since =
        |quiet: &Quiet| quiet.samehost(&["scan", "--save", "--since", "last", "--fail-on-change", "--quiet"]);
    let first = since(&quiet);
    assert_eq!((first.status, first.stderr.as_str()), (0, ""), "{}", first.stdout);
    assert!(first.stdout.starts_with("This is the first scan that is kept"), "{}", first.stdout);

    let socket = quiet.home.path("redis.sock").display().to_string();
    let directory = quiet.home.path("run").display().to_string();
    let server = [
        "redis-server", "--bind", "127.0.0.1", "--port", "6379", "--unixsocket", &socket, "--save", "",
        "--dir", &directory,
    ];
    let _redis = quiet.start(&server);
    wait_for("redis", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let shop = quiet.home.path("shop").display().to_string();
    symlink("/usr/bin/nc", &shop).unwrap();
    let over_tcp = quiet.start(&[&shop, "127.0.0.1", "6379"]);
    quiet.wait_for_hop("tcp:127.0.0.1:6379");
    let new = since(&quiet);
    assert_eq!(new.status, 1, "{}", new.both());
    for words in [
        "1 new TCP client, 1 new service since",
        "New over TCP\n  shop (root) → Redis tcp:127.0.0.1:6379, 1 connection",
    ] {
        assert!(new.stdout.contains(words), "{words}: {}", new.stdout);
    }
    let same = since(&quiet);
    assert_eq!(same.status, 0, "{}", same.both());
    assert!(
        same.stdout.starts_with("No change since ") && same.stdout.lines().count() == 1,
        "{}",
        same.stdout
    );

    drop(over_tcp);
    let over_unix = quiet.start(&[&shop, "-U", &socket]);
    let unix = format!("unix:{socket}");
    quiet.wait_for_hop(&unix);
    let moved = quiet.samehost(&["scan", "--since", "last", "--json"]);
    assert_eq!(moved.status, 0, "{}", moved.stderr);
    let found: Value = serde_json::from_str(&moved.stdout).unwrap();
    assert_valid(&found);
    assert_eq!(found["is_changed"], true);
    assert_eq!(found["changed_hops"].as_array().unwrap().len(), 1, "{found:#}");
    let hop = &found["changed_hops"][0];
    assert_eq!(
        (&hop["endpoint"], &hop["before"]),
        (&Value::from(unix.as_str()), &Value::from("tcp:127.0.0.1:6379"))
    );
    assert_eq!(
        (&hop["client"]["name"], &hop["service"]["kind"]),
        (&Value::from("shop"), &Value::from("redis"))
    );
    for list in ["new_hops", "gone_hops", "new_services", "gone_services", "changed_services"] {
        assert!(found[list].as_array().unwrap().is_empty(), "{list}: {found:#}");
    }
    let moved = since(&quiet);
    assert!(moved.status == 1 && moved.stdout.contains("Other endpoint"), "{}", moved.both());

    // A connection that is not open is no alarm, and neither is one that is open again.
    drop(over_unix);
    let idle = wait_for("the client to be gone", || {
        let ended = since(&quiet);
        ended.stdout.contains("Not connected now").then_some(ended)
    });
    assert!(idle.status == 0 && idle.stdout.starts_with("No change since "), "{}", idle.both());
    let _again = quiet.start(&[&shop, "-U", &socket]);
    quiet.wait_for_hop(&unix);
    let again = since(&quiet);
    assert!(
        again.status == 0 && again.stdout.contains("Seen again\n  shop (root) → Redis"),
        "{}",
        again.both()
    );

    let history = quiet.samehost(&["history", "--scans"]);
    assert_eq!(history.status, 0, "{}", history.stderr);
    for words in ["the first scan that is kept", "New over TCP", "Other endpoint", "without a change"] {
        assert!(history.stdout.contains(words), "{words}: {}", history.stdout);
    }
    let listed: Value =
        serde_json::from_str(&quiet.samehost(&["history", "--scans", "--json", "-"]).stdout).unwrap();
    let scans = listed["scans"].as_array().unwrap();
    assert_eq!(scans.len(), files(&quiet.home).len());
    assert_eq!(
        (scans[0]["changes"].is_null(), &scans[1]["changes"]["is_changed"]),
        (true, &Value::from(true))
    );

    // The first of all, by its time and by its file.
    let first = files(&quiet.home)[0].display().to_string();
    for since in ["2001-01-01", first.as_str()] {
        let ended = quiet.samehost(&["scan", "--since", since, "--json"]);
        let found: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(found["since"]["file"], first.as_str());
        assert_eq!(found["new_hops"][0]["endpoint"], unix.as_str(), "{found:#}");
    }
}

#[test]
fn a_scan_is_kept_for_its_user_alone_and_printed_ones_are_compared() {
    let home = Home::new();
    assert_eq!(home.run(&["scan", "--since", "last"]).status, 2, "nothing is kept");
    assert_eq!(home.run(&["scan", "--fail-on-change"]).status, 2, "since when?");
    let wrong = home.run(&["scan", "--since", "yesteryear"]);
    assert!(wrong.status == 2 && wrong.stderr.contains("2d"), "{}", wrong.stderr);
    assert_eq!(home.run(&["scan", "--save"]).status, 0);
    let [file] = files(&home).try_into().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_valid(&serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap());

    // A known service: of others a random port means nothing, and a client that nobody sees may be anybody, such as those of
    // other tests that are just closing.
    let port = free_port();
    let _server = Held::redis(&home, port, &home.path("r.sock"), &[]);
    let printed = home.path("printed.json");
    fs::write(&printed, home.run(&["scan", "--json"]).stdout).unwrap();
    let name = home.path("client").display().to_string();
    symlink("/usr/bin/nc", &name).unwrap();
    let client = Held::start(&name, &["127.0.0.1", &port.to_string()]);
    crate::scan::connection_of(&home, client.pid());
    let ended = home.run(&["scan", "--since", printed.to_str().unwrap(), "--json", "--fail-on-change"]);
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let endpoint = format!("tcp:127.0.0.1:{port}");
    let is_ours = |hop: &Value| hop["client"]["name"] == "client" && hop["endpoint"] == endpoint.as_str();
    let new = found["new_hops"].as_array().unwrap().iter();
    let changed = found["changed_hops"].as_array().unwrap().iter();
    assert!(new.chain(changed).any(is_ours), "{found:#}");
    let other = home.path("other.json");
    fs::write(&other, "{\"schema\":\"samehost.report/1\"}").unwrap();
    let ended = home.run(&["scan", "--since", other.to_str().unwrap()]);
    assert!(ended.status == 2 && ended.stderr.contains("samehost.report/1"), "{}", ended.stderr);
}

#[test]
fn a_file_that_cannot_be_read_is_left_out_with_its_reason() {
    let home = Home::new();
    assert_eq!(home.run(&["scan", "--save"]).status, 0);
    let [good] = files(&home).try_into().unwrap();
    let text = fs::read_to_string(&good).unwrap();
    let later = |name: &str, text: &str| {
        let path = good.with_file_name(name);
        fs::write(&path, text).unwrap();
        path
    };
    let cut = later("29990101T000000.000Z-1.json", &text[..text.len() / 2]);
    let newer = later("29990101T000000.000Z-2.json", &text.replace("inventory/1", "inventory/2"));
    let ended = home.run(&["scan", "--since", "last", "--json"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["since"]["file"], good.to_str().unwrap());
    for (file, reason) in [(&cut, "damaged"), (&newer, "written by a newer samehost (samehost.inventory/2)")]
    {
        let line = format!("left out: {}: {reason}", file.display());
        assert!(ended.stderr.contains(&line), "{}", ended.stderr);
        let named = home.run(&["scan", "--since", file.to_str().unwrap()]);
        assert!(named.status == 2 && named.stderr.contains(reason), "{}", named.stderr);
    }
    assert_eq!(home.run(&["history", "--scans"]).status, 0);
}

#[test]
fn several_scans_at_once_are_all_kept_and_what_a_kill_left_is_removed() {
    let home = Home::new();
    fs::create_dir_all(home.path("state/samehost/scans")).unwrap();
    fs::write(home.path("state/samehost/scans/.new-abc"), "{").unwrap();
    let start = |_| home.command(&["scan", "--save", "--quiet"]).stdout(Stdio::null()).spawn().unwrap();
    let running: Vec<_> = (0..4).map(start).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let kept = files(&home);
    assert_eq!(kept.len(), 4, "{kept:?}");
    for file in kept {
        assert_valid(&serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap());
    }
}

#[test]
fn a_full_disk_is_told_after_the_scan_is_shown() {
    if !is_root() {
        not_tested("without root: a full file system");
        return;
    }
    let home = Home::new();
    let state = home.path("state");
    let script = format!(
        "mount -t tmpfs -o size=4k none {0} && mkdir -p {0}/samehost/scans && chmod 700 {0}/samehost/scans && \
         head -c 4096 /dev/zero > {0}/full && \"$@\"; s=$?; ls -A {0}/samehost/scans; exit $s",
        state.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", SAMEHOST, "scan", "--save", "--json"]);
    let ended = Ended::of(&command.env("XDG_STATE_HOME", &state).stdin(Stdio::null()).output().unwrap());
    assert_eq!(ended.status, 3, "{}", ended.both());
    assert!(
        ended.stderr.contains("No space left") && ended.stderr.contains("samehost prune"),
        "{}",
        ended.stderr
    );
    let found: Value = serde_json::from_str(&ended.stdout).expect("the scan, and no file below it");
    assert_valid(&found);
}
