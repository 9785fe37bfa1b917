//! A thread of the program, seen through its directory in `/proc`. The directory is opened once and kept: what is read through
//! it is this thread's, or fails, when its number is given to another meanwhile.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags, fcntl_getfl, openat, readlinkat, statx,
};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use samehost_system::proc::descriptors::inode_of;

/// `PIDFD_THREAD`, since Linux 6.9: the thread itself, whose descriptors may not be those of its process.
const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Bytes that are read of a file at first; most files are shorter.
const FIRST_READ: usize = 4096;
/// Threads that are kept open; each takes three descriptors.
const KEPT: usize = 16;

pub struct Threads {
    directory: OwnedFd,
    /// Those that asked last, the last one at the end.
    kept: Vec<Rc<Thread>>,
}

pub struct Thread {
    directory: OwnedFd,
    status: File,
    descriptor: OwnedFd,
    /// Whether `descriptor` is its own. On older kernels it is of the first thread of its process.
    is_its_own: bool,
    pub number: u32,
}

/// A socket of the program, and what its descriptor has set.
pub struct Socket {
    /// A duplicate of the program's.
    pub own: OwnedFd,
    pub inode: u64,
    /// O_NONBLOCK.
    pub never_waits: bool,
    /// O_ASYNC: the program gets signals about it.
    pub signals: bool,
}

/// A directory: device, inode, and the mount that it is reached by.
/// Device and inode alone compared root directories before, and a bind mount shares them while it has
/// another view of what is mounted below. The mount namespace is not asked for: paths begin at the root
/// directory, and the same mount belongs to one namespace. The mount of `run` itself is alive, so its
/// number is nobody else's (docs/decisions/0115).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    device: (u32, u32),
    inode: u64,
    mount: u64,
}

impl Threads {
    /// Through the `/proc` that is mounted here, which must be the one of this process' own PID namespace: in another the
    /// same numbers are other threads.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, "/proc", flags, Mode::empty())?;
        let own = getpid().as_raw_nonzero().to_string();
        let is_ours = match readlinkat(&directory, "self", Vec::new()) {
            Ok(number) => number.to_bytes() == own.as_bytes(),
            Err(_) => false,
        };
        if !is_ours {
            return Err(io::Error::other(
                "/proc is of another PID namespace, and shows other processes under the same numbers; mount it again \
                 (unshare --mount-proc)",
            ));
        }
        Ok(Threads { directory, kept: Vec::new() })
    }

    /// The thread that has a number now. It is the one that asked if that still waits afterwards.
    pub fn of(&mut self, number: u32) -> io::Result<Rc<Thread>> {
        if let Some(at) = self.kept.iter().position(|thread| thread.number == number) {
            let thread = self.kept.remove(at);
            // While it lives nobody else has its number.
            if !has_ended(&thread.descriptor) {
                self.kept.push(thread.clone());
                return Ok(thread);
            }
        }
        let thread = Rc::new(Thread::open(&self.directory, number)?);
        // Without a descriptor of its own it would not be seen to end.
        if thread.is_its_own {
            if self.kept.len() >= KEPT {
                self.kept.remove(0);
            }
            self.kept.push(thread.clone());
        }
        Ok(thread)
    }

    pub fn forget(&mut self) {
        self.kept.clear();
    }
}

impl Thread {
    /// Kernels before 6.9 have no pidfd of a thread; there it is that of the first thread of its process.
    fn open(proc: &OwnedFd, number: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(proc, number.to_string(), flags, Mode::empty())?;
        let status = openat(&directory, "status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let status = File::from(status);
        let (descriptor, is_its_own) = match pidfd_open(process_id(number)?, OF_THREAD) {
            Err(Errno::INVAL) => {
                let text = whole(|room, at| status.read_at(room, at))?;
                let leader = leader(&text).ok_or(Errno::SRCH)?;
                (pidfd_open(process_id(leader)?, PidfdFlags::empty())?, false)
            }
            found => (found?, true),
        };
        Ok(Thread { directory, status, descriptor, is_its_own, number })
    }

    /// A pidfd of it; on kernels before 6.9 of its process.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Its process, users and groups, where this kernel says them of a thread.
    pub fn identity(&self) -> Option<samehost_seccomp::Identity> {
        if self.is_its_own { samehost_seccomp::identity(self.descriptor.as_fd()).ok() } else { None }
    }

    pub fn status(&self) -> io::Result<String> {
        whole(|room, at| self.status.read_at(room, at))
    }

    pub fn read(&self, name: &str) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.directory, name, flags, Mode::empty())?);
        whole(|room, _| file.read(room))
    }

    pub fn link(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.directory, name, Vec::new())?.into_bytes())
    }

    /// The directory that a link leads to.
    ///
    /// # Errors
    /// Also where the kernel does not tell the mount (statx(2), Linux 5.8).
    pub fn directory(&self, name: impl AsRef<Path>) -> io::Result<Directory> {
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let found = statx(&self.directory, name.as_ref(), AtFlags::empty(), wanted)?;
        if !StatxFlags::from_bits_retain(found.stx_mask).contains(wanted) {
            return Err(io::Error::other("this kernel does not say by which mount a directory is reached"));
        }
        let device = (found.stx_dev_major, found.stx_dev_minor);
        Ok(Directory { device, inode: found.stx_ino, mount: found.stx_mnt_id })
    }

    /// The inode of the socket that a descriptor is; None for other descriptors.
    pub fn socket_inode(&self, descriptor: i32) -> Option<u64> {
        inode_of(&self.link(&format!("fd/{descriptor}")).ok()?)
    }

    /// The socket behind a descriptor; None for other descriptors, and for numbers that are none.
    pub fn socket(&self, descriptor: i32) -> io::Result<Option<Socket>> {
        let own = match pidfd_getfd(&self.descriptor, descriptor, PidfdGetfdFlags::empty()) {
            // EBADF: the kernel reports it to the program.
            Err(Errno::BADF) => return Ok(None),
            own => own?,
        };
        let found = rustix::fs::fstat(&own)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Ok(None);
        }
        let inode = found.st_ino;
        if !self.is_its_own && self.socket_inode(descriptor) != Some(inode) {
            return Err(io::Error::other("its threads do not share their descriptors"));
        }
        let flags = fcntl_getfl(&own)?;
        Ok(Some(Socket {
            own,
            inode,
            never_waits: flags.contains(OFlags::NONBLOCK),
            signals: flags.bits() & libc::O_ASYNC as u32 != 0,
        }))
    }

    pub fn closes_on_exec(&self, descriptor: i32) -> io::Result<bool> {
        let about = self.read(&format!("fdinfo/{descriptor}"))?;
        for line in about.lines() {
            let Some(flags) = line.strip_prefix("flags:") else { continue };
            if let Ok(flags) = i32::from_str_radix(flags.trim(), 8) {
                return Ok(flags & libc::O_CLOEXEC != 0);
            }
        }
        Err(io::Error::other("its flags are not said"))
    }

    pub fn epolls(&self) -> io::Result<Vec<i32>> {
        let mut found = Vec::new();
        self.each_descriptor(|descriptor, target| {
            if target == b"anon_inode:[eventpoll]" {
                found.push(descriptor);
            }
        })?;
        Ok(found)
    }

    /// Another descriptor of a socket in this process.
    pub fn duplicate(&self, descriptor: i32, inode: u64) -> io::Result<Option<i32>> {
        let mut found = None;
        self.each_descriptor(|other, target| {
            if other != descriptor && inode_of(target) == Some(inode) {
                found = Some(other);
            }
        })?;
        Ok(found)
    }

    /// Whether the epoll set behind a descriptor has a socket, by its list of all that it has.
    pub fn watches(&self, epoll: i32, inode: u64) -> io::Result<bool> {
        Ok(lists(&self.read(&format!("fdinfo/{epoll}"))?, inode))
    }

    /// Passes on each descriptor of the process and where its link leads. The time grows with their number.
    fn each_descriptor(&self, mut look: impl FnMut(i32, &[u8])) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&self.directory, "fd", flags, Mode::empty())?;
        let mut entries = Dir::new(folder)?;
        while let Some(entry) = entries.next() {
            let name = entry?.file_name().to_owned();
            let Ok(Ok(descriptor)) = name.to_str().map(str::parse::<i32>) else { continue };
            let Ok(target) = readlinkat(entries.fd()?, &name, Vec::new()) else { continue };
            look(descriptor, target.as_bytes());
        }
        Ok(())
    }
}

/// The first thread of a process, by the `status` of any.
fn leader(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn process_id(number: u32) -> Result<Pid, Errno> {
    Pid::from_raw(number as i32).ok_or(Errno::SRCH)
}

/// Whether the thread, or the process, behind a pidfd has ended.
pub fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut look = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut look, Some(&now)), Ok(0))
}

/// A file of /proc, read as a whole. `read_to_end` would ask for the length first, which these files do not have. They are
/// given whole where there is room, so a read that leaves room is the last.
fn whole(mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>) -> io::Result<String> {
    let (mut text, mut length) = (vec![0; FIRST_READ], 0);
    loop {
        length += read(&mut text[length..], length as u64)?;
        if length < text.len() {
            break;
        }
        text.resize(2 * length, 0);
    }
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// Bytes of a thread's memory that it may read itself. They are that thread's only if it still waits for an answer afterwards.
pub fn memory_of(thread: u32, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let from = RemoteIoVec { base: usize::try_from(at).ok()?, len: length };
    let to = &mut [IoSliceMut::new(&mut bytes)];
    let read = process_vm_readv(nix::unistd::Pid::from_raw(thread as i32), to, &[from]).ok()?;
    (read == length).then_some(bytes)
}

/// Writes to a thread's memory where it may write itself: `/proc/TID/mem` would write to what is read-only too. It must be
/// known to wait just before.
pub fn write_memory_of(thread: u32, at: u64, bytes: &[u8]) -> Option<()> {
    let to = RemoteIoVec { base: usize::try_from(at).ok()?, len: bytes.len() };
    let thread = nix::unistd::Pid::from_raw(thread as i32);
    let written = process_vm_writev(thread, &[IoSlice::new(bytes)], &[to]).ok()?;
    (written == bytes.len()).then_some(())
}

/// Whether an epoll's `fdinfo` lists a socket: `tfd: 5 events: 19 data: 5 pos:0 ino:1e240 sdev:8`.
fn lists(text: &str, inode: u64) -> bool {
    let wanted = format!("ino:{inode:x}");
    text.lines().any(|line| line.starts_with("tfd:") && line.split_whitespace().any(|word| word == wanted))
}

impl Socket {
    /// Whether it is a socket of TCP, or of Multipath TCP.
    pub fn is_tcp(&self) -> bool {
        let Ok(Some(protocol)) = sockopt::socket_protocol(&self.own) else { return false };
        matches!(protocol.as_raw().get() as i32, libc::IPPROTO_TCP | libc::IPPROTO_MPTCP)
    }

    pub fn is_unix(&self) -> bool {
        sockopt::socket_domain(&self.own) == Ok(AddressFamily::UNIX)
    }

    /// Names the socket as long as this kernel runs.
    pub fn cookie(&self) -> io::Result<u64> {
        Ok(sockopt::socket_cookie(&self.own)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::event::epoll;

    use super::*;

    fn own() -> Rc<Thread> {
        Threads::open().expect("/proc").of(std::process::id()).expect("this process")
    }

    #[test]
    fn an_epoll_lists_what_it_watches() {
        let text = "pos:\t0\nflags:\t02000002\ntfd:        5 events:       19 data:                5  pos:0 ino:1e240 sdev:8\n";
        assert!(lists(text, 0x1e240));
        assert!(!lists(text, 0x1e24));
        assert!(!lists("ino:\t1e240\n", 0x1e240));
    }

    #[test]
    fn this_thread_is_seen() {
        let thread = own();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let number = listener.as_raw_fd();
        let socket = thread.socket(number).expect("readable").expect("a socket");
        assert!(socket.is_tcp() && !socket.is_unix() && !socket.never_waits);
        assert!(thread.closes_on_exec(number).expect("readable"));
        let twin = thread.duplicate(number, socket.inode).expect("readable");
        assert_eq!(twin, Some(socket.own.as_raw_fd()));
        let inode = socket.inode;
        drop(socket);
        assert_eq!(thread.duplicate(number, inode).expect("readable"), None);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        assert!(thread.epolls().expect("readable").contains(&epoll.as_raw_fd()));
        assert!(!thread.watches(epoll.as_raw_fd(), inode).expect("readable"));
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(1), epoll::EventFlags::IN).expect("watched");
        assert!(thread.watches(epoll.as_raw_fd(), inode).expect("readable"));
        assert!(thread.socket(0).is_ok_and(|socket| socket.is_none_or(|socket| !socket.is_tcp())));
    }

    #[test]
    fn memory_is_what_the_thread_itself_may_read_and_write() {
        let (thread, mut text) = (std::process::id(), *b"here");
        assert_eq!(memory_of(thread, text.as_ptr() as u64, 4).as_deref(), Some(&text[..]));
        assert_eq!(memory_of(thread, 8, 4), None);
        assert_eq!(write_memory_of(thread, text.as_mut_ptr() as u64, b"gone"), Some(()));
        assert_eq!(&std::hint::black_box(text), b"gone");
        static CONSTANT: [u8; 4] = *b"stay";
        assert_eq!(write_memory_of(thread, CONSTANT.as_ptr() as u64, b"gone"), None);
        assert_eq!(&std::hint::black_box(CONSTANT), b"stay");
    }

    #[test]
    fn a_thread_that_ended_is_not_taken_for_another() {
        let mut threads = Threads::open().expect("/proc");
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
        let thread = threads.of(child.id()).expect("it lives");
        assert!(
            !has_ended(&thread.descriptor) && Rc::ptr_eq(&thread, &threads.of(child.id()).expect("it lives"))
        );
        drop(child.stdin.take());
        child.wait().expect("ended");
        assert!(has_ended(&thread.descriptor) && thread.status().is_err());
        assert!(threads.of(child.id()).is_err());
    }
}
