//! Starts the program with a preloaded library that connects and binds otherwise, and waits for the last of its processes. The
//! library is a copy with the maps of this run, in a private directory, which is removed at the end.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::Pid;
use samehost_model::Endpoint;
use samehost_preload::{Counted, Direction, Entry, Stay, counted, library};
use tempfile::TempDir;

use super::connects::network_of;
use super::maps::Map;
use super::supervisor::{RunError, Started};
use super::tally::{Kept, Reason, Tally};
use super::watchers::{Processes, RESPITE, Signals};

const LIBRARY: &str = "library.so";
const COUNTERS: &str = "counters";
/// The loader's list of libraries, separated by colons or spaces.
const LD_PRELOAD: &str = "LD_PRELOAD";
/// Others may load the library, if they are told where it is: the program may become another user.
const TRAVERSABLE: u32 = 0o711;
const FOR_ALL_TO_LOAD: u32 = 0o444;
/// Whoever else could shorten the file of the counters would end all that count in it (SIGBUS).
const OWN: u32 = 0o600;

/// Time between two looks where the program listens, until it does.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// A server that starts takes less; a JVM with a large application does not always.
const NOT_THERE: Duration = Duration::from_secs(20);

/// What a program runs with: whom it connects to, and where it listens.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    pub connects: Vec<Map>,
    pub listens: Vec<Map>,
}

/// A program that runs with a library in front of its C library, for those that listen and where seccomp
/// is denied. The kernel allows one that answers in a chain, some container runtimes forbid it, and
/// kernels before 5.9 lack it. The maps are written into a copy of the library, not into a variable: a
/// program that clears its environment keeps them. That copy is in a directory of its own; a memory file
/// by its path in `/proc` was rejected, because it would be gone with `run` while the program goes on
/// (docs/decisions/0126).
pub struct Preloaded {
    processes: Processes,
    directory: TempDir,
    /// systemd-tmpfiles leaves a directory alone that is locked.
    _lock: File,
    ports: Ports,
    /// What was at the paths of the sockets when the program was started.
    before: Vec<FileId>,
}

impl Preloaded {
    pub fn start(command: &[OsString], ports: Ports) -> Result<Started<Preloaded>, RunError> {
        let directory = directory()?;
        let (file, counters) = (directory.path().join(LIBRARY), directory.path().join(COUNTERS));
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        let network = network_of(&socket).map(u64::from_ne_bytes);
        write(&file, FOR_ALL_TO_LOAD, &library(&ports.entries(), network, &counters.to_string_lossy())?)?;
        write(&counters, OWN, &[0; samehost_preload::COUNTERS])?;
        let lock = File::open(directory.path())?;
        flock(&lock, FlockOperation::LockShared).map_err(io::Error::from)?;
        let before = ports.listens.iter().map(file_of).collect();
        let signals = Signals::take_over()?;
        match spawn(command, &file, &signals.before) {
            Ok(program) => {
                let processes = Processes::new(signals.waiting, program);
                Ok(Started::Running(Box::new(Preloaded { processes, directory, _lock: lock, ports, before })))
            }
            Err(error) => Ok(Started::Failed(error)),
        }
    }

    /// Waits until no process is left, also one that outlives the program, and removes what they leave behind. Returns the program's
    /// exit status, and what was counted. `tell` is told at once where the program listens at its port after all.
    pub fn supervise(mut self, tell: &dyn Fn(&str)) -> io::Result<(u8, Tally)> {
        let begun = Instant::now();
        // Ports whose listening is settled: told of, or at the socket.
        let mut settled = vec![false; self.ports.listens.len()];
        loop {
            let mut waits = [PollFd::new(&self.processes.signals, PollFlags::IN)];
            let is_waited_for = settled.contains(&false);
            match poll(&mut waits, is_waited_for.then_some(&GLANCE)) {
                Ok(0) => self.look_where_it_listens(begun.elapsed() > NOT_THERE, &mut settled, tell),
                Ok(_) if !self.processes.take_signals()? => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => sleep(RESPITE),
            }
        }
        for (map, before) in self.ports.listens.iter().zip(&self.before) {
            remove_socket(map, *before);
        }
        // Somebody may have tidied up: then nothing was counted.
        let counted = counted(&fs::read(self.directory.path().join(COUNTERS)).unwrap_or_default());
        let mut tally = Tally::of_others();
        for ((direction, map), its) in self.ports.all().zip(&counted) {
            let name = match direction {
                Direction::Connects => map.to_string(),
                Direction::Listens => map.as_of_server(),
            };
            let stayed = its.stayed.iter().map(|(why, number)| (reason(*why, its), *number));
            tally.counted(name, its.over_unix, stayed);
        }
        Ok((self.processes.exit_status(), tally))
    }

    /// Tells of each port at which the program listens over TCP; where it is late, also of each socket that is not there.
    fn look_where_it_listens(&self, is_late: bool, settled: &mut [bool], tell: &dyn Fn(&str)) {
        let counted = counted(&fs::read(self.directory.path().join(COUNTERS)).unwrap_or_default());
        let listens = self.ports.listens.iter().zip(counted.iter().skip(self.ports.connects.len()));
        for ((map, its), settled) in listens.zip(settled).filter(|(_, settled)| !**settled) {
            let name = map.as_of_server();
            if let Some((why, _)) = its.stayed.iter().find(|(_, number)| *number > 0) {
                tell(&format!("{name}: the program listens over TCP: {}", reason(*why, its)));
            } else if its.over_unix == 0 && is_late {
                let seconds = NOT_THERE.as_secs();
                tell(&format!(
                    "{name}: nobody listens there after {seconds} s. If the program serves by now, it does at its port: a static program, or one of another user, is not reached"
                ));
            } else if its.over_unix == 0 {
                continue;
            }
            *settled = true;
        }
    }
}

impl Ports {
    /// In the order in which the library has them.
    fn all(&self) -> impl Iterator<Item = (Direction, &Map)> {
        let connects = self.connects.iter().map(|map| (Direction::Connects, map));
        connects.chain(self.listens.iter().map(|map| (Direction::Listens, map)))
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (direction, map) in self.all() {
            let socket = match &map.socket {
                Endpoint::Abstract(name) => [b"\0", name.as_bytes()].concat(),
                other => {
                    let path = other.path().map(|path| path.as_os_str().as_bytes());
                    [path.unwrap_or_default(), b"\0"].concat()
                }
            };
            entries.push(Entry { direction, address: map.address, port: map.port, socket });
        }
        entries
    }
}

/// A private directory that a library can be loaded from.
fn directory() -> Result<TempDir, RunError> {
    let places: Vec<PathBuf> = [Some(env::temp_dir()), env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)]
        .into_iter()
        .flatten()
        .chain(["/dev/shm".into(), "/var/tmp".into()])
        .collect();
    let made = places.iter().filter(|place| may_have_a_library(place)).find_map(|place| {
        let mut builder = tempfile::Builder::new();
        builder.prefix("samehost-run-").permissions(fs::Permissions::from_mode(TRAVERSABLE));
        builder.tempdir_in(place).ok()
    });
    made.ok_or_else(|| {
        let names: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        RunError::Directory(names.join(", "))
    })
}

/// Makes a file with this mode, whatever the umask.
fn write(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWN).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

fn may_have_a_library(place: &Path) -> bool {
    // The loader would take what stands behind them for another library.
    let is_plain = !place.as_os_str().as_bytes().iter().any(|byte| [b' ', b':'].contains(byte));
    place.is_absolute()
        && is_plain
        && statvfs(place).is_ok_and(|about| !about.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

fn spawn(command: &[OsString], library: &Path, mask: &SigSet) -> io::Result<Pid> {
    let words = command.iter().map(|word| c_string(word)).collect::<io::Result<Vec<_>>>()?;
    let environment = environment(library).map(|(name, value)| {
        let mut line = name;
        line.push("=");
        line.push(value);
        c_string(&line)
    });
    let environment = environment.collect::<io::Result<Vec<_>>>()?;
    let name = words.first().ok_or_else(|| io::Error::other("no program"))?;
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    attributes.set_sigmask(mask)?;
    // Rust's start ignores it.
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    let actions = PosixSpawnFileActions::init()?;
    let program = posix_spawnp(name, &actions, &attributes, &words, &environment)?;
    Pid::from_raw(program.as_raw()).ok_or_else(|| io::Error::other("no process"))
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// This process' environment, with the library behind those that are preloaded already.
fn environment(library: &Path) -> impl Iterator<Item = (OsString, OsString)> {
    let mut preloaded = env::var_os(LD_PRELOAD).unwrap_or_default();
    if !preloaded.is_empty() {
        preloaded.push(":");
    }
    preloaded.push(library);
    let others = env::vars_os().filter(|(name, _)| name != LD_PRELOAD);
    others.chain([(LD_PRELOAD.into(), preloaded)])
}

/// What is at a path: device, inode, and when that was made or changed: the number of a file that was removed is used again.
type FileId = Option<(u64, u64, i64, i64)>;

fn file_of(map: &Map) -> FileId {
    let about = fs::symlink_metadata(map.socket.path()?).ok()?;
    Some((about.dev(), about.ino(), about.ctime(), about.ctime_nsec()))
}

/// A server leaves the file of its socket, at which clients would ask in vain. What was there before is not this one's.
fn remove_socket(map: &Map, before: FileId) {
    let Some(path) = map.socket.path() else { return };
    if file_of(map).is_none_or(|file| Some(file) == before) {
        return;
    }
    let Err(error) = UnixStream::connect(path) else { return };
    if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) {
        let _ = fs::remove_file(path);
    }
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.file_type().is_socket())
}

fn reason(why: Stay, its: &Counted) -> Reason {
    match why {
        Stay::NoAnswer => Reason::NoAnswer(io::Error::from_raw_os_error(its.error)),
        Stay::Network => Reason::OtherRights("a socket of another network namespace"),
        Stay::Signals => Reason::Signals,
        Stay::Bound => Reason::Bound,
        Stay::Option => Reason::Option("SO_MARK, SO_BINDTODEVICE or SO_ZEROCOPY"),
        Stay::Epoll => Reason::Kept(Kept::ByEpoll),
        Stay::Duplicate => Reason::Kept(Kept::ByDuplicate),
        Stay::Forbidden => Reason::NoUnixSocket,
        Stay::NotReplaced => Reason::NotReplaced(io::Error::other("the kernel refused it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_what_is_counted() {
        fn map(text: &str) -> Map {
            text.parse().expect("a map")
        }
        let ports = Ports { connects: vec![map("1=/a"), map("2=abstract:b")], listens: vec![map("3=/c")] };
        let sockets: Vec<Vec<u8>> = ports.entries().into_iter().map(|entry| entry.socket).collect();
        assert_eq!(sockets, [&b"/a\0"[..], b"\0b", b"/c\0"]);
        let directions: Vec<Direction> = ports.all().map(|(direction, _)| direction).collect();
        assert_eq!(directions, [Direction::Connects, Direction::Connects, Direction::Listens]);
    }

    #[test]
    fn a_library_that_was_preloaded_before_stays_in_front() {
        let found = environment(Path::new("/x/library.so"));
        let preloaded = found.filter(|(name, _)| name == LD_PRELOAD).map(|(_, value)| value);
        let preloaded: Vec<OsString> = preloaded.collect();
        let before = env::var(LD_PRELOAD).map(|before| format!("{before}:")).unwrap_or_default();
        assert_eq!(preloaded, [OsString::from(format!("{before}/x/library.so"))]);
    }
}
