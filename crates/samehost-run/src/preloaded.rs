//! Starts the program with a preloaded library that connects and binds otherwise, and waits for the last of its processes. The
//! library is a copy with the maps of this run, in a private directory, which is removed at the end.
//!
//! Whether the library reaches a program is found out before it is started: static programs load none, Go makes its system calls
//! itself, and the loader takes none where a program gets rights by its file. That only looks.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, getegid, geteuid};
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

/// Time between two looks at the counters, until the program listens at all of its ports.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// When it is told that nobody listens. A server that starts takes less; a JVM with a large application does not always.
const NOT_THERE: Duration = Duration::from_secs(20);

/// The maps of a program: of ports that it connects to, and of those where it listens.
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
    /// Starts the program with its copy of the library. The signals of this process wait from now on, and orphans become its
    /// children.
    ///
    /// # Errors
    /// When something that the start needs is missing. A program that cannot be executed is [`Started::Failed`].
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
        let counted = self.counted();
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

    /// What the library has counted so far, map by map; nothing if somebody has tidied up.
    fn counted(&self) -> Vec<Counted> {
        counted(&fs::read(self.directory.path().join(COUNTERS)).unwrap_or_default())
    }

    /// Tells of each port at which the program listens over TCP; where it is late, also of each socket that is not there.
    fn look_where_it_listens(&self, is_late: bool, settled: &mut [bool], tell: &dyn Fn(&str)) {
        let counted = self.counted();
        let listens = self.ports.listens.iter().zip(counted.iter().skip(self.ports.connects.len()));
        for ((map, its), settled) in listens.zip(settled) {
            if *settled {
                continue;
            }
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
                other => match other.path() {
                    Some(path) => [path.as_os_str().as_bytes(), b"\0"].concat(),
                    None => b"\0".to_vec(),
                },
            };
            entries.push(Entry { direction, address: map.address, port: map.port, socket });
        }
        entries
    }
}

/// A private directory that a library can be loaded from.
fn directory() -> Result<TempDir, RunError> {
    let mut places = vec![env::temp_dir()];
    places.extend(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    places.extend(["/dev/shm".into(), "/var/tmp".into()]);
    for place in &places {
        if !may_have_a_library(place) {
            continue;
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix("samehost-run-").permissions(fs::Permissions::from_mode(TRAVERSABLE));
        if let Ok(directory) = builder.tempdir_in(place) {
            return Ok(directory);
        }
    }
    let names: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(RunError::Directory(names.join(", ")))
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
    let Ok(about) = statvfs(place) else { return false };
    place.is_absolute() && is_plain && !about.f_flag.contains(StatVfsMountFlags::NOEXEC)
}

fn spawn(command: &[OsString], library: &Path, mask: &SigSet) -> io::Result<Pid> {
    let words = command.iter().map(|word| c_string(word)).collect::<io::Result<Vec<_>>>()?;
    let mut lines = Vec::new();
    for (mut line, value) in environment(library) {
        line.push("=");
        line.push(value);
        lines.push(c_string(&line)?);
    }
    let Some(name) = words.first() else { return Err(io::Error::other("no program")) };
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    attributes.set_sigmask(mask)?;
    // Rust's start ignores it.
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    let actions = PosixSpawnFileActions::init()?;
    let program = posix_spawnp(name, &actions, &attributes, &words, &lines)?;
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
    let now = file_of(map);
    if now.is_none() || now == before {
        return;
    }
    let Err(error) = UnixStream::connect(path) else { return };
    if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) {
        let _ = fs::remove_file(path);
    }
}

fn is_socket(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(about) => about.file_type().is_socket(),
        Err(_) => false,
    }
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

/// The longest first line of a script that the kernel reads, in bytes.
const LONGEST_LINE: usize = 256;
const LONGEST_TABLE: usize = 1 << 20;
const SET_USER: u32 = 0o4_000;
const SET_GROUP: u32 = 0o2_000;
const CAPABILITIES: &str = "security.capability";
/// Sections that every program of Go has.
const OF_GO: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];

/// A program's file, and why a preloaded library does not reach it. None where nothing speaks against it.
pub fn hindrance(name: &OsStr) -> Option<(PathBuf, &'static str)> {
    let path = found(name)?;
    let file = File::open(&path).ok()?;
    // One script may name another: the kernel follows a few. Here the first interpreter counts.
    let program = interpreter(&file).unwrap_or(path);
    let why = of_file(&program)?;
    Some((program, why))
}

/// The file of a program, as execvp(3) finds it.
fn found(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// What a script's first line names: `#!/bin/sh`, `#!/usr/bin/env python3`.
fn interpreter(file: &File) -> Option<PathBuf> {
    let mut bytes = [0; LONGEST_LINE];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let first = Path::new(words.next()?);
    if first.file_name() == Some(OsStr::new("env")) {
        return found(words.find(|word| !word.as_bytes().starts_with(b"-"))?);
    }
    Some(first.to_owned())
}

fn of_file(path: &Path) -> Option<&'static str> {
    let about = fs::metadata(path).ok()?;
    let is_other_user = about.mode() & SET_USER != 0 && about.uid() != geteuid().as_raw();
    let is_other_group = about.mode() & SET_GROUP != 0 && about.gid() != getegid().as_raw();
    if is_other_user || is_other_group {
        return Some("it runs as another user or group (set-user-ID)");
    }
    if !geteuid().is_root() && rustix::fs::getxattr(path, CAPABILITIES, &mut [0_u8; 64]).is_ok() {
        return Some("it has file capabilities");
    }
    of_elf(&Elf::open(path)?)
}

fn of_elf(elf: &Elf) -> Option<&'static str> {
    if elf.is_short {
        return Some("it is a program of 32 bits");
    }
    if let Some(names) = elf.sections()
        && names.iter().any(|name| OF_GO.contains(&name.as_slice()))
    {
        return Some("it is written in Go, which makes its system calls itself");
    }
    (!elf.has_interpreter()?).then_some("it is a static program")
}

/// A program's file. Only little-endian ELF files of 64 bits are understood.
struct Elf {
    file: File,
    header: [u8; 64],
    is_short: bool,
}

impl Elf {
    fn open(path: &Path) -> Option<Elf> {
        let file = File::open(path).ok()?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        let is_short = header[4] == 1;
        header.starts_with(b"\x7fELF").then_some(Elf { file, header, is_short })
    }

    /// `None` for longer tables than programs have.
    fn bytes(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length).ok()?;
        if length > LONGEST_TABLE {
            return None;
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// A table of the file, by where the header says where it is, and how many entries of which length it has.
    fn table(&self, offset: usize, count: usize, length: usize) -> Option<Vec<Vec<u8>>> {
        let (count, length) = (number(&self.header, count, 2), number(&self.header, length, 2));
        let bytes = self.bytes(number(&self.header, offset, 8), count * length)?;
        Some(bytes.chunks_exact((length as usize).max(1)).map(<[u8]>::to_vec).collect())
    }

    fn has_interpreter(&self) -> Option<bool> {
        const PT_INTERP: u64 = 3;
        let segments = self.table(32, 56, 54)?;
        Some(segments.iter().any(|segment| number(segment, 0, 4) == PT_INTERP))
    }

    /// The names of its sections.
    fn sections(&self) -> Option<Vec<Vec<u8>>> {
        let sections = self.table(40, 60, 58)?;
        let names = sections.get(number(&self.header, 62, 2) as usize)?;
        let names = self.bytes(number(names, 24, 8), number(names, 32, 8))?;
        Some(names.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
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

    #[test]
    fn a_dynamic_program_is_reached_also_by_a_script() {
        assert_eq!(hindrance(OsStr::new("env")), None);
        let folder = tempfile::tempdir().expect("a directory");
        for line in ["#!/bin/sh\n", "#! /usr/bin/env -S sh -e\n", "#!/usr/bin/env sh"] {
            let script = folder.path().join("script");
            fs::write(&script, line).expect("written");
            assert_eq!(hindrance(script.as_os_str()), None, "{line}");
        }
        assert_eq!(hindrance(OsStr::new("/nowhere/to/be/found")), None);
    }

    #[test]
    fn what_a_library_does_not_reach_is_named() {
        let folder = tempfile::tempdir().expect("a directory");
        let program = folder.path().join("program");
        let mut header = [0; 64];
        header[..5].copy_from_slice(b"\x7fELF\x01");
        fs::write(&program, header).expect("written");
        assert_eq!(hindrance(program.as_os_str()), Some((program.clone(), "it is a program of 32 bits")));
        header[4] = 2;
        fs::write(&program, header).expect("written");
        assert_eq!(hindrance(program.as_os_str()).map(|(_, why)| why), Some("it is a static program"));
        fs::write(&program, "no program").expect("written");
        assert_eq!(hindrance(program.as_os_str()), None);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&program, Some(65_534), None).expect("given away");
            fs::set_permissions(&program, fs::Permissions::from_mode(SET_USER | 0o755)).expect("set");
            let why = hindrance(program.as_os_str()).map(|(_, why)| why);
            assert_eq!(why, Some("it runs as another user or group (set-user-ID)"));
        }
    }

    #[test]
    fn sections_and_segments_of_this_program_are_read() {
        let elf = Elf::open(&env::current_exe().expect("its path")).expect("an ELF file");
        assert!(!elf.is_short && elf.has_interpreter() == Some(cfg!(not(target_env = "musl"))));
        let names = elf.sections().expect("sections");
        assert!(names.contains(&b".text".to_vec()));
        assert!(!names.iter().any(|name| OF_GO.contains(&name.as_slice())));
    }
}
