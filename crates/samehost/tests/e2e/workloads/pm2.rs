//! What Node's descriptor says of pm2 and a socket, held against the real pm2.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use samehost_services::Kind;
use samehost_testing::wait_for;
use serde_json::Value;
use tempfile::TempDir;

use super::application_sockets::answers;
use super::support::kill;
use crate::clients::node;
use crate::scan::scan;
use crate::support::{Home, assert_verified};

/// Listens where its first argument says; where there is a second one, SIGINT closes the server.
const PAGE: &str = "
const server = require('node:http').createServer((request, response) => response.end());
const [place, close] = process.argv.slice(2);
server.listen(place);
if (close) process.on('SIGINT', () => server.close(() => process.exit(0)));
";

/// A pm2 of the test's own, ended when dropped.
struct Pm2 {
    program: PathBuf,
    folder: TempDir,
}

impl Drop for Pm2 {
    fn drop(&mut self) {
        let _ = self.command("022", &["kill", "--silent"]).output();
    }
}

impl Pm2 {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("pm").tempdir().unwrap();
        fs::write(folder.path().join("page.js"), PAGE).unwrap();
        let program = node().unwrap_or_else(|missing| panic!("{missing}")).join("node_modules/.bin/pm2");
        Pm2 { program, folder }
    }

    fn command(&self, umask: &str, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "umask $0; exec \"$@\"", umask])
            .arg(&self.program)
            .args(words)
            .current_dir(self.folder.path())
            .env("PM2_HOME", self.folder.path().join("home"))
            .env("PM2_DISABLE_VERSION_CHECK", "true")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> String {
        let output = self.command("022", words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Starts the page with these options and arguments.
    fn start(&self, options: &[&str], arguments: &[&str]) {
        let socket = self.socket().display().to_string();
        let first = ["start", "page.js", "--name", "page", "--silent"];
        self.run(&[&first[..], options, &["--", &socket], arguments].concat());
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("app.sock")
    }

    fn wait_until_served(&self) {
        wait_for("the page", || answers(&self.socket(), "/"));
    }

    /// The processes of the page, as pm2 lists them.
    fn processes(&self) -> Vec<Value> {
        let said = self.run(&["jlist", "--silent"]);
        serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_default()
    }

    /// What the page's processes wrote.
    fn logs(&self) -> String {
        let files = fs::read_dir(self.folder.path().join("home/logs")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
    }

    fn daemon(&self) -> u32 {
        fs::read_to_string(self.folder.path().join("home/pm2.pid")).unwrap().trim().parse().unwrap()
    }
}

fn pid(process: &Value) -> u32 {
    u32::try_from(process["pid"].as_u64().unwrap()).unwrap()
}

#[test]
fn pm2_gives_up_on_a_node_that_leaves_its_file_behind() {
    let said = &Kind::Node.descriptor().about_socket[3];
    assert!(said.contains("without -i") && said.contains("15 times") && said.contains("SIGINT"), "{said}");
    let pm2 = Pm2::new();
    pm2.start(&[], &[]);
    pm2.wait_until_served();
    pm2.run(&["restart", "page", "--silent"]);
    let ended = wait_for("pm2 to give up", || {
        pm2.processes().into_iter().find(|process| process["pm2_env"]["status"] == "errored")
    });
    // Beside those that failed it counts the one that was asked for, and on a busy machine such as ran for more than a second.
    let restarts = ended["pm2_env"]["restart_time"].as_u64().unwrap();
    assert!((15..=30).contains(&restarts), "{restarts}: {}", pm2.logs());
    assert!(pm2.logs().contains("EADDRINUSE"), "{}", pm2.logs());
    assert!(pm2.socket().exists() && answers(&pm2.socket(), "/").is_none());

    pm2.run(&["delete", "page", "--silent"]);
    fs::remove_file(pm2.socket()).unwrap();
    pm2.start(&[], &["close"]);
    pm2.wait_until_served();
    let before = pid(&pm2.processes()[0]);
    pm2.run(&["restart", "page", "--silent"]);
    pm2.wait_until_served();
    assert_ne!(pid(&pm2.processes()[0]), before);
}

#[test]
fn the_socket_of_a_cluster_of_pm2_is_pm2s_own() {
    let said = &Kind::Node.descriptor().about_socket[4];
    for words in ["pm2 -i", "umask of pm2's daemon", "`pm2 reload`", "killed daemon"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let pm2 = Pm2::new();
    assert!(pm2.command("007", &["ping"]).output().unwrap().status.success());
    pm2.start(&["-i", "2"], &[]);
    pm2.wait_until_served();
    let file = pm2.socket().metadata().unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o770, "that of the daemon, not of `pm2 start`");
    let is_same = || {
        let found = pm2.socket().metadata().unwrap();
        (found.ino(), found.mtime_nsec()) == (file.ino(), file.mtime_nsec())
    };
    let found = scan(&Home::new());
    let services = found["services"].as_array().unwrap();
    let service = services.iter().find(|service| service["pid"] == pm2.daemon());
    assert_eq!(service.map(|service| &service["kind"]), Some(&"node".into()), "{services:#?}");

    assert_verified(&format!("unix:{}", pm2.socket().display()), "unix", "node");

    kill(pid(&pm2.processes()[0]));
    pm2.wait_until_served();
    pm2.run(&["reload", "page", "--silent"]);
    pm2.wait_until_served();
    assert!(is_same(), "a worker that ends and a reload leave it");

    kill(pm2.daemon());
    wait_for("the workers' end", || answers(&pm2.socket(), "/").is_none().then_some(()));
    assert!(pm2.socket().exists());
    pm2.start(&["-i", "1"], &[]);
    wait_for("a worker's end", || pm2.logs().contains("EADDRINUSE").then_some(()));
    assert!(answers(&pm2.socket(), "/").is_none());
}
