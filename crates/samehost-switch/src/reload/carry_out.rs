//! Carries a reload out, and looks whether the program took it, as the kernel shows it. A signal is only a request:
//! nginx that cannot bind an address goes on with its old workers and says so nowhere but in its log, and a switch that
//! goes on then proves the old configuration.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use samehost_model::Redactor;
use samehost_services::Kind;
use samehost_system::identity::stat_field;
use samehost_system::proc::{descriptors, pids};
use samehost_system::{Identity, Run, interrupt, peer, start_time};
use samehost_transaction::ReloadError;

use super::{
    PlannedReload, ReloadCommand, ReloadSignal, Reloaded, Signalled, UnitVerb, files_of, path_of, runs, title,
};

/// Time limit for a reload: systemd's own limit for a start.
const LIMIT: Duration = Duration::from_secs(90);
/// Time limit for workers to finish what they have begun.
const SETTLING: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(2);
/// Looks at a process that is there and cannot be read in /proc, before that is told.
const LOOKS: u32 = 50;

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
    take(&ReloadCommand::from_words(words)?, &[], &[], Stops::No)
}

/// Runs a reload command, until the user interrupts it, and looks whether the program took it.
///
/// A signal is a request: nginx's old workers still use what the next stage would take away. Going on as
/// soon as the signal is sent was rejected, so the next stage starts from a known state. `reads`: the
/// files that changed.
///
/// # Errors
/// As [`reload`]; and where the program goes on as it was.
pub(crate) fn reload_now(planned: &PlannedReload, reads: &[PathBuf]) -> Result<(), ReloadError> {
    take(&planned.command, &planned.of, reads, Stops::Yes)
}

fn take(
    command: &ReloadCommand,
    of: &[Reloaded],
    reads: &[PathBuf],
    stops: Stops,
) -> Result<(), ReloadError> {
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
        ReloadCommand::Shell(command) => run_for(command, of, reads, stops),
        ReloadCommand::Other(words) => match words.as_slice() {
            [program, words @ ..] => run(program, words, stops),
            [] => Ok(()),
        },
    }
}

/// Runs a command of the user's, and looks whether the servers took what it was to make them take. `true` ended well, nginx went on
/// as it was, and the switch was called done.
fn run_for(command: &str, of: &[Reloaded], reads: &[PathBuf], stops: Stops) -> Result<(), ReloadError> {
    let mut before: Vec<Before> = of.iter().map(|one| Before::of(one.pid, one.restarts, reads)).collect();
    run("sh", &["-c", command].map(str::to_owned), stops)?;
    for (one, before) in of.iter().zip(&mut before) {
        let Reloaded { kind, pid, restarts } = one;
        match before.wait(stops) {
            // Whether a server is there again is asked at its address; what only connects is there when its file was read again.
            Shown::Gone if *restarts || before.is_read_again(stops) => {}
            Shown::Gone => {
                return Err(ReloadError(format!(
                    "`{command}` ended {kind} ({pid}), and nothing took its place"
                )));
            }
            Shown::NotTaken => {
                return Err(ReloadError(format!(
                    "{kind} ({pid}) did not take the change: `{command}` was run, and it goes on as it was. Say what makes it take it: --reload '{kind}=COMMAND'"
                )));
            }
            Shown::Taken | Shown::Unknown => {}
        }
    }
    Ok(())
}

/// Has systemd reload a unit, and looks whether its main process took it.
fn reload_unit(unit: &str, reads: &[PathBuf], stops: Stops) -> Result<(), ReloadError> {
    let before = main_pid(unit).map(|pid| Before::of(pid, false, reads));
    run("systemctl", &["reload", "--", unit].map(str::to_owned), stops)?;
    match before {
        Some(mut before) => taken(before.wait(stops), unit, reads),
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
    let found = identity_of(*pid).filter(|identity| identity.start == *start);
    // One that is ending has no program any more.
    if let Some(identity) = &found
        && begun(*pid).is_some()
        && (file.is_none() || identity.executable.is_some())
    {
        let now = path_of(identity);
        return match file {
            Some(file) if *file != now => Err(ReloadError(format!(
                "process {pid} runs {now} by now, and not {file}: reload it yourself"
            ))),
            _ => Ok(identity.clone()),
        };
    }
    if let (Some(file), Some(title)) = (file, title)
        && let Some(heir) = successor(file, title, *start)
        && let Some(identity) = Identity::of(heir)
    {
        return Ok(identity);
    }
    if let (Some(_), Some(file)) = (found, file) {
        return Err(ReloadError(format!(
            "process {pid} ran {file} and has ended, and no other of this program took its place: start its service, which then reads the files as they are"
        )));
    }
    Err(gone(
        *pid,
        format!(
            "process {pid} is gone, and no process was found that took its place. If the service runs under another number, reload it by hand; if not, start it"
        ),
    ))
}

fn send(to: &Signalled, reads: &[PathBuf], stops: Stops) -> Result<(), ReloadError> {
    let identity = process(to)?;
    let Some(pid) = i32::try_from(identity.pid).ok().and_then(Pid::from_raw) else {
        return Err(ReloadError(format!("`{}` is not a process number", identity.pid)));
    };
    // SIGTERM is to end it.
    if to.signal != ReloadSignal::Term {
        has_handler(identity.pid, to.signal, stops)?;
    }
    let mut before = Before::of(identity.pid, to.signal == ReloadSignal::Usr2, reads);
    if let Err(error) = kill_process(pid, to.signal.signal()) {
        return Err(ReloadError(format!("signal {} to {}: {error}", to.signal.name(), identity.pid)));
    }
    taken(before.wait(stops), &format!("{} ({})", path_of(&identity), identity.pid), reads)
}

/// What becomes of a signal that a process gets, by `/proc/PID/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It has a handler, or keeps it blocked and takes it by sigwait(3) or signalfd(2).
    Handled,
    Ignored,
    /// It has neither: the process would end.
    Ends,
}

/// Waits until a process has a handler for a signal, so that none is sent that would end it. PHP-FPM that is just starting, or
/// executes itself again for the reload before, dies of SIGUSR2. Waiting a fixed time was rejected: what the kernel shows is certain.
fn has_handler(pid: u32, signal: ReloadSignal, stops: Stops) -> Result<(), ReloadError> {
    let waiting = Instant::now();
    loop {
        let fate = fate(pid, signal.signal());
        if fate == Some(Fate::Handled) {
            return Ok(());
        }
        let is_over = waiting.elapsed() >= SETTLING || (stops == Stops::Yes && interrupt::is_requested());
        let name = signal.name();
        match fate {
            None => return Err(gone(pid, format!("process {pid} ended before it was told to reload"))),
            Some(Fate::Ignored) if is_over => {
                return Err(ReloadError(format!(
                    "process {pid} ignores SIG{name}, by which it should reload: reload it by hand"
                )));
            }
            Some(Fate::Ends) if is_over => {
                return Err(ReloadError(format!(
                    "process {pid} has no handler for SIG{name}, and would end: none was sent. When it has started, reload it: kill -{name} {pid}"
                )));
            }
            Some(_) => std::thread::sleep(STEP),
        }
    }
}

/// `None` where the process is gone.
fn fate(pid: u32, signal: Signal) -> Option<Fate> {
    begun(pid)?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let is_in = |mask: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(mask))?;
        let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
        Some(mask & (1 << (signal.as_raw() - 1)) != 0)
    };
    if is_in("SigCgt:")? || (is_in("SigBlk:")? && !is_in("SigIgn:")?) {
        return Some(Fate::Handled);
    }
    Some(if is_in("SigIgn:")? { Fate::Ignored } else { Fate::Ends })
}

/// When a process began; `None` where it has ended. One that nobody waited for has ended too: where the first process of a container
/// reaps nobody, it keeps its number and its time for ever. One that cannot be read for a moment is looked at again: "ended" was said
/// of a PHP-FPM that served.
fn begun(pid: u32) -> Option<u64> {
    again(pid, || match stat_field(pid, 3)?.as_str() {
        "Z" | "X" => Some(None),
        _ => start_time(pid).map(Some),
    })
    .flatten()
}

/// Who a process is, with its program, which one that is ending has no more.
fn identity_of(pid: u32) -> Option<Identity> {
    let whole = || Identity::of(pid).filter(|found| found.executable.is_some() || begun(pid).is_none());
    again(pid, whole).or_else(|| Identity::of(pid))
}

/// What a look at a process shows, while it is there.
fn again<T>(pid: u32, look: impl Fn() -> Option<T>) -> Option<T> {
    for _ in 0..LOOKS {
        let seen = look();
        if seen.is_some() || !is_there(pid) {
            return seen;
        }
        std::thread::sleep(STEP);
    }
    None
}

/// Whether the kernel has a process of this number, also where /proc cannot be read.
fn is_there(pid: u32) -> bool {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    number.is_some_and(|number| test_kill_process(number) != Err(Errno::SRCH))
}

/// Whether a process is there that cannot be read in /proc.
fn is_unreadable(pid: u32) -> bool {
    is_there(pid) && stat_field(pid, 3).is_none()
}

/// Why there is no process to look at: this, unless it is there and cannot be read.
fn gone(pid: u32, why: String) -> ReloadError {
    if is_unreadable(pid) {
        return ReloadError(format!(
            "process {pid} is there, and what /proc has of it could not be read: reload it by hand"
        ));
    }
    ReloadError(why)
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
    let message = format!("`{program} {words}` {}", ended.in_words());
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
    workers: Vec<(u32, u64)>,
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
            start: begun(pid),
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
    fn wait(&mut self, stops: Stops) -> Shown {
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

    /// Waits until a process that was started anew has read the files; true where they cannot be watched.
    fn is_read_again(&mut self, stops: Stops) -> bool {
        let Some(files) = &mut self.files else { return true };
        let waiting = Instant::now();
        while !files.any() {
            if waiting.elapsed() >= SETTLING || (stops == Stops::Yes && interrupt::is_requested()) {
                return false;
            }
            std::thread::sleep(STEP);
        }
        true
    }

    fn look(&mut self) -> Shown {
        if self.start.is_none() || begun(self.pid) != self.start {
            return match self.successor() {
                Some(successor) => {
                    self.become_successor(successor);
                    Shown::Taken
                }
                None if is_unreadable(self.pid) => Shown::Unknown,
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
            if begun(*worker) == Some(*start) && !title(*worker).contains("shutting down") {
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
        self.start = begun(successor);
        // Its workers are all new, and those of the one before are still waited for.
        self.stack = None;
    }
}

/// The only process that runs this program under this title and began later: the successor of one that is gone.
fn successor(file: &str, title_before: &str, start: u64) -> Option<u32> {
    let mut found = Vec::new();
    for pid in pids() {
        if begun(pid) > Some(start)
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

/// The children of a process that have not ended.
fn children(pid: u32) -> Vec<(u32, u64)> {
    peer::children(pid).into_iter().filter_map(|pid| Some((pid, begun(pid)?))).collect()
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

    /// bash that has a handler for SIGUSR2 only after a moment, which ends it with 7.
    const LATE: &str = "sleep 0.4 & wait; trap 'exit 7' USR2; while :; do sleep 0.05; done";

    fn words_for(child: &std::process::Child, signal: &str) -> Vec<String> {
        let start = start_time(child.id()).unwrap();
        ["signal", signal, &child.id().to_string(), &start.to_string()].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_signal_waits_for_its_handler_and_never_ends_a_program() {
        let mut late = std::process::Command::new("bash").args(["-c", LATE]).spawn().unwrap();
        // What a reload shows is another matter: this one ends by its own handler.
        let _ = reload(&words_for(&late, "USR2"));
        assert_eq!(late.wait().unwrap().code(), Some(7), "it ended by its handler, and by no signal");
    }

    #[test]
    fn a_program_without_a_handler_gets_no_signal() {
        let mut never = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let ReloadError(error) = reload(&words_for(&never, "USR2")).unwrap_err();
        assert!(error.contains("has no handler") && error.contains("none was sent"), "{error}");
        assert!(never.try_wait().unwrap().is_none(), "it still runs");
        never.kill().unwrap();
        // Killed and not waited for: it has ended, whatever its number says.
        while begun(never.id()).is_some() {
            std::thread::sleep(STEP);
        }
        assert!(start_time(never.id()).is_some());
        let ReloadError(error) = reload(&words_for(&never, "HUP")).unwrap_err();
        assert!(error.contains("is gone"), "{error}");
        never.wait().unwrap();
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
