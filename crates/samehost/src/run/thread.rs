//! A thread of the program, seen through its directory in `/proc`. The directory is opened once: what is read through it is
//! this thread's, or fails, when its number is given to another meanwhile.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::OwnedFd;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use samehost_system::proc::descriptors::inode_of;

/// `PIDFD_THREAD`, since Linux 6.9: the thread itself, whose descriptors may not be those of its process.
const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// Most files are shorter, in bytes.
const ROOM: usize = 4096;

pub struct Thread {
    directory: OwnedFd,
    pub number: u32,
}

/// A socket of the program.
pub struct Socket {
    /// Another descriptor of it.
    pub own: OwnedFd,
    pub inode: u64,
    pub never_waits: bool,
    pub closes_on_exec: bool,
    /// Whether the program gets signals about it.
    pub signals: bool,
}

/// Who else would keep the old socket when it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    ByEpoll,
    ByDuplicate,
}

impl Thread {
    pub fn open(number: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, format!("/proc/{number}"), flags, Mode::empty())?;
        Ok(Thread { directory, number })
    }

    /// Its memory, as it is now: also after another thread has executed another program.
    pub fn memory(&self, access: OFlags) -> io::Result<File> {
        self.file("mem", access)
    }

    pub fn read(&self, name: &str) -> io::Result<String> {
        let mut file = self.file(name, OFlags::RDONLY)?;
        // `read_to_end` would ask for the length first, which files in /proc do not have.
        let (mut text, mut length) = (vec![0; ROOM], 0);
        loop {
            length += file.read(&mut text[length..])?;
            // These files are given whole where there is room.
            if length < text.len() {
                break;
            }
            text.resize(2 * length, 0);
        }
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }

    /// Where a link leads: a namespace, a descriptor.
    pub fn link(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.directory, name, Vec::new())?.into_bytes())
    }

    /// Device and inode of what a link leads to.
    pub fn identity(&self, name: &str) -> io::Result<(u64, u64)> {
        let found = statat(&self.directory, name, AtFlags::empty())?;
        Ok((found.st_dev, found.st_ino))
    }

    /// The inode of the socket that a descriptor is; None for what is no socket.
    pub fn socket_inode(&self, descriptor: i32) -> Option<u64> {
        inode_of(&self.link(&format!("fd/{descriptor}")).ok()?)
    }

    /// The socket behind a descriptor. `is_waiting` says whether the thread is still the one that was meant.
    pub fn socket(&self, descriptor: i32, is_waiting: impl Fn() -> bool) -> io::Result<Option<Socket>> {
        let (process, is_leaders) = self.process()?;
        if !is_waiting() {
            return Err(Errno::SRCH.into());
        }
        let own = match pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()) {
            // What is no descriptor is not ours to complain about.
            Err(Errno::BADF) => return Ok(None),
            own => own?,
        };
        let found = rustix::fs::fstat(&own)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Ok(None);
        }
        let inode = found.st_ino;
        if is_leaders && self.socket_inode(descriptor) != Some(inode) {
            return Err(io::Error::other("its threads do not share their descriptors"));
        }
        let about = self.read(&format!("fdinfo/{descriptor}"))?;
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap_or_default();
        Ok(Some(Socket {
            own,
            inode,
            never_waits: flags & libc::O_NONBLOCK != 0,
            closes_on_exec: flags & libc::O_CLOEXEC != 0,
            signals: flags & libc::O_ASYNC != 0,
        }))
    }

    /// Who else in this process holds a socket, or watches it, under whatever descriptor.
    pub fn kept(&self, descriptor: i32, inode: u64) -> io::Result<Option<Kept>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&self.directory, "fd", flags, Mode::empty())?;
        let mut entries = Dir::new(folder)?;
        while let Some(entry) = entries.next() {
            let name = entry?.file_name().to_owned();
            let Ok(Ok(other)) = name.to_str().map(str::parse::<i32>) else { continue };
            let Ok(target) = readlinkat(entries.fd()?, &name, Vec::new()) else { continue };
            if target.as_bytes() == b"anon_inode:[eventpoll]" {
                if self.read(&format!("fdinfo/{other}")).is_ok_and(|text| watches(&text, inode)) {
                    return Ok(Some(Kept::ByEpoll));
                }
            } else if other != descriptor && inode_of(target.as_bytes()) == Some(inode) {
                return Ok(Some(Kept::ByDuplicate));
            }
        }
        Ok(None)
    }

    fn file(&self, name: &str, access: OFlags) -> io::Result<File> {
        Ok(File::from(openat(&self.directory, name, access | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// The thread, or, on older kernels, the first of its process; whether it is that.
    fn process(&self) -> io::Result<(OwnedFd, bool)> {
        let of = |number: u32| Pid::from_raw(number as i32).ok_or(Errno::SRCH);
        match pidfd_open(of(self.number)?, OF_THREAD) {
            Err(Errno::INVAL) => {
                let status = self.read("status")?;
                let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
                let leader = leader.and_then(|number| number.trim().parse().ok()).ok_or(Errno::SRCH)?;
                Ok((pidfd_open(of(leader)?, PidfdFlags::empty())?, true))
            }
            found => Ok((found?, false)),
        }
    }
}

/// Bytes of a thread's memory. They are that thread's only if it still waits for an answer afterwards.
pub fn memory_of(thread: u32, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let from = RemoteIoVec { base: usize::try_from(at).ok()?, len: length };
    let to = &mut [IoSliceMut::new(&mut bytes)];
    let read = process_vm_readv(nix::unistd::Pid::from_raw(thread as i32), to, &[from]).ok()?;
    (read == length).then_some(bytes)
}

/// Whether an epoll's `fdinfo` lists a socket: `tfd: 5 events: 19 data: 5 pos:0 ino:1e240 sdev:8`.
fn watches(text: &str, inode: u64) -> bool {
    let wanted = format!("ino:{inode:x}");
    text.lines().any(|line| line.starts_with("tfd:") && line.split_whitespace().any(|word| word == wanted))
}

impl Socket {
    /// Whether it is a TCP socket over IP.
    pub fn is_tcp(&self) -> bool {
        let protocol = sockopt::socket_protocol(&self.own).ok().flatten();
        let protocol = protocol.map(|protocol| protocol.as_raw().get() as i32);
        matches!(protocol, Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
    }

    pub fn is_unix(&self) -> bool {
        sockopt::socket_domain(&self.own).is_ok_and(|domain| domain == AddressFamily::UNIX)
    }

    /// Names the socket as long as this kernel runs.
    pub fn cookie(&self) -> io::Result<u64> {
        Ok(sockopt::socket_cookie(&self.own)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoll_lists_what_it_watches() {
        let text = "pos:\t0\nflags:\t02000002\ntfd:        5 events:       19 data:                5  pos:0 ino:1e240 sdev:8\n";
        assert!(watches(text, 0x1e240));
        assert!(!watches(text, 0x1e24));
        assert!(!watches("ino:\t1e240\n", 0x1e240));
    }

    #[test]
    fn this_thread_is_seen() {
        let thread = Thread::open(std::process::id()).expect("this process");
        let text = *b"here";
        assert_eq!(memory_of(thread.number, text.as_ptr() as u64, 4).as_deref(), Some(&text[..]));
        assert_eq!(memory_of(thread.number, 8, 4), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let number = std::os::fd::AsRawFd::as_raw_fd(&listener);
        let socket = thread.socket(number, || true).expect("readable").expect("a socket");
        assert!(socket.is_tcp() && !socket.is_unix() && socket.closes_on_exec && !socket.never_waits);
        assert_eq!(
            thread.kept(number, socket.inode).expect("readable"),
            Some(Kept::ByDuplicate),
            "`own` is one"
        );
        let inode = socket.inode;
        drop(socket);
        assert_eq!(thread.kept(number, inode).expect("readable"), None);
        let epoll =
            rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).expect("an epoll");
        let data = rustix::event::epoll::EventData::new_u64(1);
        rustix::event::epoll::add(&epoll, &listener, data, rustix::event::epoll::EventFlags::IN)
            .expect("watched");
        assert_eq!(thread.kept(number, inode).expect("readable"), Some(Kept::ByEpoll));
        assert!(thread.socket(0, || true).is_ok_and(|socket| socket.is_none_or(|socket| !socket.is_tcp())));
    }
}
