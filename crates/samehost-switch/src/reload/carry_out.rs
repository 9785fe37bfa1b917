//! Carries a reload out, and looks whether the program took it, as the kernel shows it. A signal is only a request:
//! nginx that cannot bind an address goes on with its old workers and says so nowhere but in its log, and a switch that
//! goes on then proves the old configuration.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use rustix::process::{Pid, kill_process};
use samehost_model::Redactor;
use samehost_services::Kind;
use samehost_system::identity::stat_field;
use samehost_system::proc::{descriptors, pids};
use samehost_system::{Identity, Run, interrupt, peer, start_time};
use samehost_transaction::ReloadError;

use super::{ReloadCommand, ReloadSignal, Signalled, UnitVerb, files_of, path_of, runs, title};

/// Time limit for a reload: systemd's own limit for a start.
const LIMIT: Duration = Duration::from_secs(90);
/// Time limit for workers to finish what they have begun.
const SETTLING: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stops {
    Yes,
    No,
}

/// Runs a reload command of a journal to put something back. An interrupt does not stop it, its time limit does.
///
/// # Errors
/// Why it failed, for people.
pub fn reload(words: &[String]) -> Result<(), ReloadError> {
    take(&ReloadCommand::from_words(words)?, &[], Stops::No)
}

/// Runs a reload command, until the user interrupts it, and looks whether the program took it.
///
/// A signal is a request: nginx's old workers still use what the next stage would take away. Going on as
/// soon as the signal is sent was rejected, so the next stage starts from a known state. `reads`: the
/// files that changed (docs/decisions/0038).
///
/// # Errors
/// As [`reload`]; and where the program goes on as it was.
pub(crate) fn reload_now(command: &ReloadCommand, reads: &[PathBuf]) -> Result<(), ReloadError> {
    take(command, reads, Stops::Yes)
}

fn take(command: &ReloadCommand, reads: &[PathBuf], stops: Stops) -> Result<(), ReloadError> {
    match command {
        ReloadCommand::Signal(to) => send(to, reads, stops),
        ReloadCommand::ChangedUnit(unit) => {
            run("systemctl", &["daemon-reload".to_owned()], stops)?;
            run("systemctl", &["restart", "--", unit].map(str::to_owned), stops)
        }
        ReloadCommand::Unit { verb: UnitVerb::Reload, unit } => reload_unit(unit, reads, stops),
        ReloadCommand::Unit { verb: UnitVerb::Restart, unit } => {
            run("systemctl", &["restart", "--", unit].map(str::to_owned), stops)
        }
        ReloadCommand::Shell(command) => run("sh", &["-c", command].map(str::to_owned), stops),
        ReloadCommand::Other(words) => match words.as_slice() {
            [program, words @ ..] => run(program, words, stops),
            [] => Ok(()),
        },
    }
}

/// Has systemd reload a unit, and looks whether its main process took it.
fn reload_unit(unit: &str, reads: &[PathBuf], stops: Stops) -> Result<(), ReloadError> {
    let before = main_pid(unit).map(|pid| Before::of(pid, false, reads));
    run("systemctl", &["reload", "--", unit].map(str::to_owned), stops)?;
    match before {
        Some(before) => taken(before.wait(stops), unit, reads),
        None => Ok(()),
    }
}

fn main_pid(unit: &str) -> Option<u32> {
    let words = ["show", "--property=MainPID", "--value", "--", unit].map(str::to_owned);
    let ended = Run::new("systemctl", &words, LIMIT).run().ok()?;
    ended.output.trim().parse().ok().filter(|pid| *pid > 1)
}

/// The process that gets a signal, or the one that took its place: PHP-FPM that runs as a daemon has another number
/// after each reload.
fn process(to: &Signalled) -> Result<Identity, ReloadError> {
    let Signalled { pid, start, file, title, .. } = to;
    if let Some(identity) = Identity::of(*pid)
        && identity.start == *start
    {
        let now = path_of(&identity);
        return match file {
            Some(file) if *file != now && identity.executable.is_none() => Err(ReloadError(format!(
                "process {pid} ran {file} and is ending: start its service, which then reads the files as they are"
            ))),
            Some(file) if *file != now => Err(ReloadError(format!(
                "process {pid} runs {now} by now, and not {file}: reload it yourself"
            ))),
            _ => Ok(identity),
        };
    }
    if let (Some(file), Some(title)) = (file, title)
        && let Some(heir) = successor(file, title, *start)
        && let Some(identity) = Identity::of(heir)
    {
        return Ok(identity);
    }
    Err(ReloadError(format!(
        "process {pid} is gone, and no process was found that took its place. If the service runs under another number, reload it by hand; if not, start it"
    )))
}

fn send(to: &Signalled, reads: &[PathBuf], stops: Stops) -> Result<(), ReloadError> {
    let identity = process(to)?;
    let Some(pid) = i32::try_from(identity.pid).ok().and_then(Pid::from_raw) else {
        return Err(ReloadError(format!("`{}` is not a process number", identity.pid)));
    };
    let before = Before::of(identity.pid, to.signal == ReloadSignal::Usr2, reads);
    if let Err(error) = kill_process(pid, to.signal.signal()) {
        return Err(ReloadError(format!("signal {} to {}: {error}", to.signal.name(), identity.pid)));
    }
    taken(before.wait(stops), &format!("{} ({})", path_of(&identity), identity.pid), reads)
}

/// Judges what a reload showed. Where nothing changed (a file is put back), a program that shows nothing is believed.
fn taken(shown: Shown, who: &str, reads: &[PathBuf]) -> Result<(), ReloadError> {
    match shown {
        Shown::Taken | Shown::Unknown => Ok(()),
        Shown::NotTaken if reads.is_empty() => Ok(()),
        Shown::NotTaken => Err(ReloadError(format!(
            "{who} did not take the change: it was told to reload, and goes on as it was. Its error log says why"
        ))),
        Shown::Gone => {
            Err(ReloadError(format!("{who} ended when it was told to reload, and nothing took its place")))
        }
    }
}

/// Runs a command; its output, without secrets, is the error if it fails.
fn run(program: &str, words: &[String], stops: Stops) -> Result<(), ReloadError> {
    let mut run = Run::new(program, words, LIMIT);
    if program == "sh" {
        run = run.of_the_operator();
    }
    if stops == Stops::No {
        run = run.to_the_end();
    }
    let ended = run.run().map_err(|error| ReloadError(error.to_string()))?;
    if ended.status.success() {
        return Ok(());
    }
    let words = words.join(" ");
    let message = format!("`{program} {words}` failed ({}): {}", ended.status, ended.output);
    Err(ReloadError(Redactor::default().message(&message)))
}

/// A process before it is told to reload: what it is compared with afterwards.
///
/// nginx whose reload failed goes on as it was, and that counted as done, since nobody looked. A reload
/// has to show: by new workers, another program image, a successor with the same title, or, where a
/// server keeps its processes (PostgreSQL, PgBouncer), by a file that was opened (docs/decisions/0129).
struct Before {
    pid: u32,
    start: Option<u64>,
    workers: Vec<(u32, Option<u64>)>,
    /// Address of its stack (proc(5), field 28 of stat); it changes with each execve(2).
    stack: Option<String>,
    title: String,
    executable: Option<PathBuf>,
    /// The sockets that it holds; a successor inherits those it listens on.
    sockets: Vec<u64>,
    executes: bool,
    /// Whether it reads its files again and keeps its processes: PostgreSQL, PgBouncer.
    keeps_processes: bool,
    files: Option<Opened>,
}

/// What became of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Taken,
    /// The process ended, and nothing took its place.
    Gone,
    NotTaken,
    /// There is nothing by which it could be seen, or the user interrupted the wait.
    Unknown,
}

impl Before {
    /// Looks at a process that is about to be told. `executes`: by a signal at which it executes itself again. `reads`:
    /// the files that changed.
    fn of(pid: u32, executes: bool, reads: &[PathBuf]) -> Self {
        let identity = Identity::of(pid);
        let keeps_processes = identity.as_ref().is_some_and(keeps_processes);
        Before {
            pid,
            start: start_time(pid),
            workers: children(pid),
            stack: stack(pid),
            title: title(pid),
            executable: executable(pid),
            sockets: descriptors::sockets_of(pid),
            executes,
            keeps_processes,
            files: Opened::watch(reads),
        }
    }

    /// Waits until the reload shows. nginx has new workers, and the old ones are gone or say in their title that they are
    /// shutting down; PHP-FPM, which executes itself again, has another stack and new workers, or, as a daemon, a
    /// successor with its sockets. Whoever goes on before the old workers are gone may take away what is still in use.
    fn wait(mut self, stops: Stops) -> Shown {
        let begun = Instant::now();
        loop {
            let shown = self.look();
            let is_over = match shown {
                Shown::Taken => self.old_workers_are_gone(),
                Shown::Gone => true,
                Shown::NotTaken | Shown::Unknown => false,
            };
            if is_over || begun.elapsed() >= SETTLING {
                return shown;
            }
            if stops == Stops::Yes && interrupt::is_requested() {
                return Shown::Unknown;
            }
            std::thread::sleep(STEP);
        }
    }

    fn look(&mut self) -> Shown {
        if self.start.is_none() || start_time(self.pid) != self.start {
            return match self.successor() {
                Some(successor) => {
                    self.become_successor(successor);
                    Shown::Taken
                }
                None => Shown::Gone,
            };
        }
        let was_read = self.files.as_mut().is_some_and(Opened::any);
        let has_workers = !self.workers.is_empty() && !self.keeps_processes;
        if self.executes && stack(self.pid) == self.stack {
            return Shown::NotTaken;
        }
        if has_workers {
            let has_new = children(self.pid).iter().any(|child| !self.workers.contains(child));
            return if has_new { Shown::Taken } else { Shown::NotTaken };
        }
        match &self.files {
            _ if self.executes || was_read => Shown::Taken,
            Some(_) => Shown::NotTaken,
            None => Shown::Unknown,
        }
    }

    fn old_workers_are_gone(&self) -> bool {
        if self.keeps_processes {
            return true;
        }
        for (worker, start) in &self.workers {
            if start_time(*worker) == *start && !title(*worker).contains("shutting down") {
                return false;
            }
        }
        true
    }

    /// The process that took this one's place: the same program under the same title, with one of its sockets.
    fn successor(&self) -> Option<u32> {
        for inode in &self.sockets {
            for heir in peer::holders(*inode).pids {
                if heir != self.pid && executable(heir) == self.executable && title(heir) == self.title {
                    return Some(heir);
                }
            }
        }
        None
    }

    fn become_successor(&mut self, successor: u32) {
        self.pid = successor;
        self.start = start_time(successor);
        // Its workers are all new, and those of the one before are still waited for.
        self.stack = None;
    }
}

/// The only process that runs this program under this title and began later: the successor of one that is gone.
fn successor(file: &str, title_before: &str, start: u64) -> Option<u32> {
    let mut found = Vec::new();
    for pid in pids() {
        if start_time(pid) > Some(start)
            && executable(pid).as_deref() == Some(Path::new(file))
            && title(pid) == title_before
        {
            found.push(pid);
        }
    }
    match found[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// Whether a program keeps its processes when it reads its files again.
fn keeps_processes(identity: &Identity) -> bool {
    Kind::all().any(|kind| kind.descriptor().reload_keeps_processes && runs(identity, &files_of(kind)))
}

fn children(pid: u32) -> Vec<(u32, Option<u64>)> {
    peer::children(pid).into_iter().map(|pid| (pid, start_time(pid))).collect()
}

fn stack(pid: u32) -> Option<String> {
    stat_field(pid, 28)
}

fn executable(pid: u32) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.to_string_lossy().trim_end_matches(" (deleted)").into())
}

/// Whether any of some files was opened since. Whoever opens one counts: a server that keeps its processes shows by
/// nothing else that it read its files, and this program does not open them meanwhile.
struct Opened {
    events: OwnedFd,
    was_opened: bool,
}

impl Opened {
    fn watch(files: &[PathBuf]) -> Option<Self> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let events = inotify::init(flags).ok()?;
        let mut watched = 0;
        for file in files {
            watched += usize::from(inotify::add_watch(&events, file, inotify::WatchFlags::OPEN).is_ok());
        }
        if watched == 0 {
            return None;
        }
        Some(Opened { events, was_opened: false })
    }

    fn any(&mut self) -> bool {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        while reader.next().is_ok() {
            self.was_opened = true;
        }
        self.was_opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_the_command_said() {
        fn words(text: &str) -> [String; 3] {
            ["sh", "-c", text].map(str::to_owned)
        }
        let ReloadError(error) = reload(&words("echo no such unit >&2; exit 3")).unwrap_err();
        assert!(error.contains("no such unit") && error.contains('3'), "{error}");
        assert!(reload(&words("exit 0")).is_ok());
        let gone = ["signal", "HUP", "1", "0"].map(str::to_owned);
        assert!(reload(&gone).unwrap_err().0.contains("is gone"));
    }

    #[test]
    fn a_process_is_reloaded_that_still_runs_the_same_program() {
        let own = Identity::of(std::process::id()).unwrap();
        let words = ["signal", "USR1", &own.pid.to_string(), &own.start.to_string(), "/usr/sbin/nginx"];
        let ReloadError(error) = reload(&words.map(str::to_owned)).unwrap_err();
        assert!(error.contains("and not /usr/sbin/nginx"), "{error}");
        assert!(!runs(&own, &files_of(Kind::Nginx)));
        let name = path_of(&own).rsplit('/').next().unwrap().to_owned();
        assert!(runs(&own, &[&name]));
    }

    #[test]
    fn a_file_that_was_opened_shows_a_reload_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("server.conf");
        std::fs::write(&file, "port 1\n").unwrap();
        let mut before = Before::of(std::process::id(), false, std::slice::from_ref(&file));
        // The tests of this process run beside it and start children.
        before.workers.clear();
        assert_eq!(before.look(), Shown::NotTaken);
        std::fs::read(&file).unwrap();
        assert_eq!(before.look(), Shown::Taken);
        let mut without = Before::of(std::process::id(), false, &[]);
        without.workers.clear();
        assert_eq!(without.look(), Shown::Unknown);
    }

    #[test]
    fn a_process_that_ended_without_an_heir_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut before = Before::of(child.id(), false, &[]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(before.look(), Shown::Gone);
    }
}
