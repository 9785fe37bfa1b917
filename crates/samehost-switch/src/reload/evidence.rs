//! Whether a program took a reload, as the kernel shows it. A signal is only a request: nginx that cannot bind an address
//! goes on with its old workers and says so nowhere but in its log, and a switch that goes on then proves the old
//! configuration.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use samehost_services::Kind;
use samehost_system::identity::stat_field;
use samehost_system::proc::{descriptors, pids};
use samehost_system::{Identity, interrupt, open, peer, start_time};

use super::{Stops, files_of, runs};

/// Time limit for workers to finish what they have begun.
const SETTLING: Duration = Duration::from_secs(10);
/// Interval between two looks.
const STEP: Duration = Duration::from_millis(2);
/// How much of a process's title is read, in bytes.
const LONGEST_TITLE: u64 = 4096;

/// A process before it is told to reload: what it is compared with afterwards.
/// nginx whose reload failed goes on as it was, and that counted as done, since nobody looked. A reload
/// has to show: by new workers, another program image, a successor with the same title, or, where a
/// server keeps its processes (PostgreSQL, PgBouncer), by a file that was opened (docs/decisions/0129).
pub(super) struct Before {
    pid: u32,
    start: Option<u64>,
    workers: Vec<(u32, Option<u64>)>,
    /// Address of its stack (proc(5), field 28 of stat); it changes with each execve(2).
    stack: Option<String>,
    title: String,
    executable: Option<PathBuf>,
    /// The sockets that it holds; a successor inherits those it listens on.
    sockets: Vec<u64>,
    /// Whether it executes itself again.
    executes: bool,
    /// Whether it reads its files again and keeps its processes: PostgreSQL, PgBouncer.
    keeps_processes: bool,
    files: Option<Opened>,
}

/// What became of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The kernel shows it.
    Taken,
    /// The process ended, and nothing took its place.
    Gone,
    /// It goes on as it was.
    NotTaken,
    /// There is nothing by which it could be seen, or the user interrupted the wait.
    Unknown,
}

impl Before {
    /// Looks at a process that is about to be told. `executes`: by a signal at which it executes itself again. `reads`:
    /// the files that changed.
    pub(super) fn of(pid: u32, executes: bool, reads: &[PathBuf]) -> Self {
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
    pub(super) fn wait(mut self, stops: Stops) -> Shown {
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
        let mut still_work = self.workers.iter().filter(|(worker, start)| {
            start_time(*worker) == *start && !title(*worker).contains("shutting down")
        });
        self.keeps_processes || still_work.next().is_none()
    }

    /// The process that took this one's place: the same program under the same title, with one of its sockets.
    fn successor(&self) -> Option<u32> {
        let heirs = self.sockets.iter().flat_map(|inode| peer::holders(*inode).pids);
        heirs.into_iter().find(|heir| {
            *heir != self.pid && executable(*heir) == self.executable && title(*heir) == self.title
        })
    }

    fn become_successor(&mut self, successor: u32) {
        self.pid = successor;
        self.start = start_time(successor);
        // Its workers are all new, and those of the one before are still waited for.
        self.stack = None;
    }
}

/// The only process that runs this program under this title and began later: the successor of one that is gone.
pub(super) fn successor(file: &str, title_before: &str, start: u64) -> Option<u32> {
    let mut found = Vec::new();
    for pid in pids() {
        let began_later = start_time(pid).is_some_and(|began| began > start);
        if began_later
            && executable(pid).is_some_and(|path| path == Path::new(file))
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
    Kind::all()
        .filter(|kind| kind.descriptor().reload_keeps_processes)
        .any(|kind| runs(identity, &files_of(kind)))
}

/// Child processes, with their start times.
fn children(pid: u32) -> Vec<(u32, Option<u64>)> {
    peer::children(pid).into_iter().map(|pid| (pid, start_time(pid))).collect()
}

fn stack(pid: u32) -> Option<String> {
    stat_field(pid, 28)
}

/// The command line of a process, which many servers replace by a title.
pub(super) fn title(pid: u32) -> String {
    let title = open::proc_file(&format!("/proc/{pid}/cmdline"), LONGEST_TITLE).unwrap_or_default();
    String::from_utf8_lossy(&title).trim_end_matches('\0').replace('\0', " ")
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
        (watched > 0).then_some(Opened { events, was_opened: false })
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
