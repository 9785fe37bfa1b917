//! thin.yml, proved by Thin: its runner reads the file and its controller says with which options each server would be
//! started; and once the servers are started for real.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::disk::Disk;
use samehost_edit::{Goal, Move, editor, propose};

#[test]
fn thin_yml() {
    crate::run("thin-yml", 10, ask, crate::facts::moved);
}

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/thin_yml/ask.rb");
    let mut command = Command::new("ruby");
    command.arg(script).arg(file).current_dir(root).env("LANG", "C.UTF-8");
    crate::facts::of(command)
}

/// Stops the servers however the test ends.
struct Stop<'a>(&'a Path);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let _ = Command::new("thin").args(["stop", "-C"]).arg(self.0).output();
    }
}

#[test]
fn the_servers_of_an_edited_file_listen_at_their_sockets() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().display();
    let file = root.path().join("thin.yml");
    std::fs::write(root.path().join("config.ru"), "run lambda { |_| [200, {}, ['ok']] }\n").unwrap();
    let text = format!(
        "chdir: {folder}\nrackup: config.ru\naddress: 127.0.0.1\nport: 3000\nservers: 2\npid: {folder}/thin.pid\nlog: {folder}/thin.log\n"
    );
    std::fs::write(&file, text).unwrap();
    let editor = editor("thin-yml").unwrap();
    let reading = editor.read(&file, &Disk::default()).unwrap();
    let moves: Vec<Move> = reading
        .settings
        .into_iter()
        .enumerate()
        .map(|(number, setting)| {
            let path = root.path().join(format!("thin.{number}.sock"));
            Move { setting, goal: Goal::client(samehost_model::Endpoint::Unix(path)) }
        })
        .collect();
    let proposals = propose(editor, &file, &Disk::default(), &moves).unwrap();
    std::fs::write(&file, &proposals[0].after).unwrap();
    let _stop = Stop(&file);
    let output = Command::new("thin").args(["start", "-C"]).arg(&file).output().expect("thin (package thin)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    for number in 0..2 {
        let path = root.path().join(format!("thin.{number}.sock"));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while UnixStream::connect(&path).is_err() {
            assert!(std::time::Instant::now() < deadline, "{} never listened", path.display());
            std::thread::yield_now();
        }
    }
}
