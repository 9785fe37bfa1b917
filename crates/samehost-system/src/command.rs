//! Runs a program whose result matters, isolated from this program and bounded: a fixed environment, `/` as working
//! directory unless another is asked for, no new privileges (setuid programs gain none), a session of its own (without access to our terminal)
//! that is ended at the time limit and after an interrupt, and only the end of its output is kept. Input and output may lead nowhere,
//! also in a root directory without `/dev/null`, such as that of a container with one program.

use crate::refusal::{Asked, Refusal};
use crate::threads;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::accounts::{Account, User};
use crate::interrupt;

/// Where programs are looked for, whatever our own environment says.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of output that are kept: the end.
const KEPT: usize = 16 << 10;
const GRACE: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(5);

/// A program to run, with a fixed environment and a time limit.
/// Switch, login and scan each have to start programs, often as root and beside files that others chose.
/// What a program gets of the environment, which account it has and when it is ended is decided in this
/// one place. The crate knows no service, changes no file and prints nothing (docs/decisions/0078).
#[derive(Clone, Debug)]
pub struct Run {
    program: OsString,
    arguments: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    folder: PathBuf,
    account: Option<Account>,
    limit: Duration,
    ends_on_interrupt: bool,
    /// Whether it may leave processes in the background, which then keep their output, and gain privileges.
    is_of_the_operator: bool,
}

#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
}

impl Ended {
    /// How it failed: `exit status: 1`, and what it said, if anything.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.output.trim() {
            "" => format!("failed ({}) and said nothing", self.status),
            output => format!("failed ({}): {output}", self.status),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    #[error("{program} could not be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} did not end within {} s and was ended: {output}", limit.as_secs())]
    TimedOut { program: String, limit: Duration, output: String },
    #[error("interrupted while {program} ran")]
    Interrupted { program: String },
}

impl Run {
    /// A program, by an absolute path or a name in [`PATH`], its arguments, and its time limit. Its environment is PATH, LANG
    /// and HOME; its working directory is `/`.
    pub fn new(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        limit: Duration,
    ) -> Self {
        let fixed = [("PATH", PATH), ("LANG", "C")];
        let own = User::of(rustix::process::geteuid().as_raw());
        Run {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: fixed.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            folder: PathBuf::from("/"),
            account: None,
            limit,
            ends_on_interrupt: true,
            is_of_the_operator: false,
        }
        .variable("HOME", own.home)
    }

    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    /// Runs it as another account, with only that account's groups.
    #[must_use]
    pub fn account(mut self, account: Account) -> Self {
        self.account = Some(account);
        self
    }

    #[must_use]
    pub fn user(self, user: &User) -> Self {
        self.variable("HOME", &user.home).account(user.account.clone())
    }

    /// Ignores interrupts until it finishes or reaches its time limit: for programs that undo changes.
    #[must_use]
    pub fn to_the_end(mut self) -> Self {
        self.ends_on_interrupt = false;
        self
    }

    /// For a command that the user configured: background processes continue and keep their output, and
    /// setuid programs (sudo) gain privileges.
    #[must_use]
    pub fn of_the_operator(mut self) -> Self {
        self.is_of_the_operator = true;
        self
    }

    /// Runs the program until it finishes.
    ///
    /// # Errors
    /// When it could not be started or did not finish. A failure status is not an error.
    pub fn run(&self) -> Result<Ended, RunError> {
        let program = self.program.to_string_lossy().into_owned();
        let failed = |source| RunError::Start { program: program.clone(), source };
        let (mut output, child) = self.start().map_err(failed)?;
        let begun = Instant::now();
        let mut child = Group(child);
        loop {
            output.take();
            if let Some(status) = child.0.try_wait().map_err(failed)? {
                // Background processes may keep the pipe open: only what is there now is read.
                output.take();
                return Ok(Ended { status, output: output.text() });
            }
            if self.ends_on_interrupt && interrupt::is_requested() {
                return Err(RunError::Interrupted { program });
            }
            if begun.elapsed() > self.limit {
                return Err(RunError::TimedOut { program, limit: self.limit, output: output.text() });
            }
            std::thread::sleep(STEP);
        }
    }

    fn start(&self) -> io::Result<(Output, Child)> {
        let (output, out, err) = Output::new(self.is_of_the_operator)?;
        let program = found(&self.program)?;
        // A new session: another user's program must not reach our terminal, where it could insert input. Without setsid(1),
        // a program of our own user has to do with a process group.
        let mut command = match found("setsid".as_ref()) {
            Ok(setsid) => {
                let mut command = Command::new(setsid);
                command.arg(program);
                command
            }
            Err(error) if self.account.is_some() => return Err(error),
            Err(_) => {
                let mut command = Command::new(program);
                command.process_group(0);
                command
            }
        };
        command
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.folder)
            .stdin(nowhere())
            .stdout(out)
            .stderr(err);
        if let Some(account) = &self.account {
            // As root this also drops all supplementary groups.
            command.gid(account.gid).uid(account.uid);
        }
        let child = threads::apart(|| {
            if !self.is_of_the_operator {
                // Applies to this thread and to what it starts.
                rustix::thread::set_no_new_privs(true)?;
            }
            command.spawn()
        })
        .map_err(io::Error::from)??;
        Ok((output, child))
    }
}

/// The path of a program: an absolute path, or the first file of that name in [`PATH`].
///
/// # Errors
/// When there is none.
pub fn found(program: &OsStr) -> io::Result<PathBuf> {
    for directory in PATH.split(':') {
        // An absolute path replaces the directory.
        let path = Path::new(directory).join(program);
        if is_program(&path) {
            return Ok(path);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no such program in {PATH}")))
}

fn is_program(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) => metadata.is_file() && metadata.mode() & 0o111 != 0,
        Err(_) => false,
    }
}

/// Output of a program: a pipe, of which the end is kept, or a file, to which background processes can write
/// even when it is no longer read.
enum Output {
    Pipe(PipeReader, Vec<u8>),
    File(File),
}

impl Output {
    /// The output, and what the program gets as stdout and stderr.
    fn new(leaves_processes: bool) -> io::Result<(Self, Stdio, Stdio)> {
        if leaves_processes {
            let file = tempfile::tempfile()?;
            return Ok((Output::File(file.try_clone()?), file.try_clone()?.into(), file.into()));
        }
        let (reader, writer) = io::pipe()?;
        fcntl_setfl(&reader, fcntl_getfl(&reader)? | OFlags::NONBLOCK)?;
        Ok((Output::Pipe(reader, Vec::new()), writer.try_clone()?.into(), writer.into()))
    }

    fn take(&mut self) {
        let Output::Pipe(reader, output) = self else { return };
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            output.extend_from_slice(&buffer[..length]);
            let over = output.len().saturating_sub(KEPT);
            output.drain(..over);
            if length < buffer.len() {
                break;
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Output::Pipe(_, output) => text(output),
            Output::File(file) => {
                let length = match file.metadata() {
                    Ok(metadata) => metadata.len(),
                    Err(_) => 0,
                };
                let kept = length.min(KEPT as u64);
                let mut bytes = vec![0; kept as usize];
                let read = file.read_at(&mut bytes, length - kept).unwrap_or(0);
                text(&bytes[..read])
            }
        }
    }
}

/// A child whose process group is killed on drop unless the child has finished.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        let group = Pid::from_child(&self.0);
        let _ = kill_process_group(group, Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < GRACE && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(STEP);
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim().to_owned()
}

/// For a program that has nothing to read, or whose output nobody reads.
#[must_use]
pub fn nowhere() -> Stdio {
    at(Path::new("/dev/null"))
}

/// How many files a look at the machine and a process that is talked to have open at a time, and as many again.
const OPEN_AT_A_TIME: usize = 16;

/// Whether this process may have enough files open. With one or two to spare a part of what is looked at cannot be read, and was told
/// as what is not there: a server without a socket, a service that is down.
///
/// # Errors
/// With what to raise.
pub fn may_open_enough() -> Result<(), Refusal> {
    let opened: io::Result<Vec<File>> = (0..OPEN_AT_A_TIME).map(|_| File::open("/")).collect();
    match opened.map_err(|error| Errno::from_io_error(&error)) {
        Err(Some(errno @ (Errno::MFILE | Errno::NFILE))) => Err(Refusal::of(Asked::StartProcess, errno)),
        _ => Ok(()),
    }
}

/// Gives a program nothing to read, and its output to nobody.
pub fn silenced(command: &mut Command) -> &mut Command {
    command.stdin(nowhere()).stdout(nowhere()).stderr(nowhere())
}

/// `null`, or where that is missing a file in memory: it is empty at first, and what is written is gone with the program.
fn at(null: &Path) -> Stdio {
    if let Ok(null) = File::options().read(true).write(true).open(null) {
        return null.into();
    }
    match memfd_create("nowhere", MemfdFlags::CLOEXEC) {
        Ok(file) => file.into(),
        Err(_) => Stdio::null(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::at;
    use super::*;

    fn sh(script: &str) -> Run {
        Run::new("sh", ["-c", script], Duration::from_secs(20))
    }

    #[test]
    fn it_sees_nothing_of_ours() {
        let ended =
            sh("pwd; env | sort; grep NoNewPrivs /proc/self/status; echo no >&2; exit 3").run().unwrap();
        assert_eq!(ended.status.code(), Some(3));
        let lines: Vec<&str> = ended.output.lines().filter(|line| !line.starts_with("PWD=")).collect();
        assert_eq!(lines[0], "/");
        let known = ["HOME=", "LANG=C", "PATH=", "OLDPWD", "SHLVL", "_="];
        for line in &lines[1..lines.len() - 2] {
            assert!(known.iter().any(|name| line.starts_with(name)), "{lines:?}");
        }
        assert_eq!(lines[lines.len() - 2..], ["NoNewPrivs:\t1", "no"]);
    }

    #[test]
    fn it_and_what_it_started_end_at_the_limit() {
        let run = Run::new("sh", ["-c", "echo $$; sleep 60 & wait"], Duration::from_millis(300));
        let RunError::TimedOut { output, .. } = run.run().unwrap_err() else { panic!("it should time out") };
        fn is_gone(group: Pid) -> bool {
            rustix::process::test_kill_process_group(group).is_err()
        }
        let group = Pid::from_raw(output.parse().unwrap()).unwrap();
        let begun = Instant::now();
        while !is_gone(group) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(STEP);
        }
        assert!(is_gone(group));
    }

    #[test]
    fn what_stays_in_the_background_is_not_waited_for() {
        let begun = Instant::now();
        let ended = sh("sleep 40 & echo started").run().unwrap();
        assert_eq!(ended.output, "started");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_server_that_the_operators_command_leaves_behind_keeps_its_output() {
        let script =
            "(sleep 0.3; echo late; echo still there >&2; touch $DONE) & grep NoNewPrivs /proc/self/status";
        let directory = tempfile::tempdir().unwrap();
        let done = directory.path().join("done");
        let ended = sh(script).variable("DONE", &done).of_the_operator().to_the_end().run().unwrap();
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(own.contains(&ended.output) && ended.output.starts_with("NoNewPrivs"), "{ended:?}");
        let begun = Instant::now();
        while !done.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it ended with us");
            std::thread::sleep(STEP);
        }
    }

    #[test]
    fn our_terminal_is_out_of_its_reach() {
        // Session, process group and process have the same id: fields 6, 5 and 1 of proc(5)'s stat.
        let ended = Run::new("cat", ["/proc/self/stat"], GRACE * 20).run().unwrap();
        let fields: Vec<&str> = ended.output.split(' ').collect();
        assert_eq!((fields[0], fields[0]), (fields[4], fields[5]), "{ended:?}");
        assert_eq!(fields[6], "0", "it has a terminal");
    }

    #[test]
    fn it_can_be_somebody_else_as_root() {
        assert!(
            rustix::process::geteuid().is_root(),
            "only root can be somebody else: run this test as root"
        );
        let account = Account { uid: 65534, gid: 65534, groups: Vec::new() };
        assert_eq!(sh("id -u; id -G").account(account).run().unwrap().output, "65534\n65534");
        assert!(matches!(Run::new("/no/such", [""], GRACE).run(), Err(RunError::Start { .. })));
    }

    #[test]
    fn without_dev_null_nothing_is_read_and_all_is_written() {
        fn nowhere() -> Stdio {
            at(Path::new("/nonexistent/null"))
        }
        let script = "test -z \"$(cat)\" && echo out && echo error >&2";
        let mut sh = Command::new("sh");
        let status = sh.args(["-c", script]).stdin(nowhere()).stdout(nowhere()).stderr(nowhere()).status();
        assert!(status.unwrap().success());
    }
}
