//! A directory of the test's own, processes of other users in it, and samehost as root beside them; gone with the test.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
pub(crate) use samehost_testing::{Ended, copy_program, free_port, wait_for};

/// An ordinary user who owns nothing here: a number without an account.
pub(crate) const MALLORY: u32 = 54_321;
/// Another one.
pub(crate) const ALICE: u32 = 54_322;
/// How long anything here may take before it counts as hanging.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A directory that everyone may pass, with a state directory of root's, and processes that end with it.
pub(crate) struct Machine {
    directory: tempfile::TempDir,
    children: Vec<Child>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = kill_process(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

impl Machine {
    /// Below /srv: /tmp is for nobody's services.
    pub(crate) fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests are about what root can be made to do: run them as root"
        );
        let directory = tempfile::Builder::new().prefix("samehost-hostile-").tempdir_in("/srv").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("state")).unwrap();
        fs::set_permissions(directory.path().join("state"), fs::Permissions::from_mode(0o700)).unwrap();
        Machine { directory, children: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of root's, with the directories that it needs.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A directory that belongs to a user.
    pub(crate) fn folder_of(&self, name: &str, uid: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(uid), Some(uid)).unwrap();
        path
    }

    /// A file that belongs to a user, in a directory that does too.
    pub(crate) fn write_as(&self, uid: u32, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.write(name, text);
        chown(&path, Some(uid), Some(uid)).unwrap();
        chown(path.parent().unwrap(), Some(uid), Some(uid)).unwrap();
        path
    }

    /// `samehost` as root, with a state directory of this machine.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        samehost_testing::samehost(env!("CARGO_BIN_EXE_samehost"), &self.path("state"), arguments)
    }

    /// Runs samehost as root; one that hangs is a failure of the test, and is ended.
    pub(crate) fn samehost(&self, arguments: &[&str]) -> Ended {
        bounded(self.command(arguments))
    }

    /// Starts a program as a user without any other group.
    pub(crate) fn start_as(&mut self, uid: u32, program: &str, arguments: &[&str]) -> u32 {
        let mut command = Command::new(program);
        command.args(arguments).uid(uid).gid(uid);
        self.start(command)
    }

    /// Starts a program, in a process group of its own, which ends with this machine.
    pub(crate) fn start(&mut self, mut command: Command) -> u32 {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let child = command
            .env("PATH", path)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; cargo xtask test installs it", command.get_program().display())
            });
        self.children.push(child);
        self.children.last().unwrap().id()
    }

    /// What the started programs wrote.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// Runs a command that has to end by itself within the limit.
pub(crate) fn bounded(mut command: Command) -> Ended {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let reading_errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} did not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ended::of(&Output { status, stdout: reading.join().unwrap(), stderr: reading_errors.join().unwrap() })
}

/// Whether a path is there.
pub(crate) fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
