//! Who opens each TCP connection. A program at the tracepoint `inet_sock_set_state` notes, when a socket begins to connect, the
//! process whose system call that is; the kernel's notice of the connection's end has the same cookie. Looking at the sockets
//! again and again saw 0 to 90 % of the connections that were open for 0.4 to 3 ms, as the processor had time to; this has all.
//!
//! The note is made at SYN_SENT, in the task that connects. When the connection is established, the current task is anybody's.

use std::io;

use crate::function::{COMM, COOKIE, PROCESS, UPDATE, USER};
use crate::instruction::Register::{R0, R1, R2, R3, R4, R6, R10};
use crate::instruction::{
    Instruction, add, call, copy, end, load_long, map, set, skip_unless_int, store_long,
};
use crate::map::{Kind, Map};
use crate::program::{Attached, Place, Program};
use crate::types::Types;

/// Connections that are known at once; the one that was used least recently goes for a new one.
const MOST: u32 = 1 << 16;
/// Bytes of [`Opened`]: process and thread, user, name.
const VALUE: usize = 32;
const NAME: usize = 16;

/// `TCP_SYN_SENT`.
const CONNECTS: i32 = 2;
/// Places on the stack: the cookie, and the value.
const KEY: i16 = -8;
const NOTE: i16 = -40;

/// Notes who connects, until it is dropped.
#[derive(Debug)]
pub struct Connects {
    notes: Map,
    _attached: Attached,
}

/// Who opened a connection, by the numbers of the first PID namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub pid: u32,
    /// The thread of that process.
    pub thread: u32,
    pub uid: u32,
    /// The thread's name; bytes that are not UTF-8 are replaced.
    pub name: String,
}

impl Connects {
    /// Begins to note.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_PERFMON, `NotFound` without the kernel's types, EINVAL before Linux 5.12.
    pub fn open() -> io::Result<Self> {
        let notes = Map::make(Kind::LeastRecentlyUsed, 8, VALUE, MOST)?;
        let number = Types::read()?.tracepoint("inet_sock_set_state")?;
        let program = Program::load(Place::Tracepoint, number, &instructions(&notes))?;
        Ok(Connects { _attached: program.watch()?, notes })
    }

    /// Who opened the connection whose client's end has this cookie (`idiag_cookie`, SO_COOKIE); `None` if it was opened
    /// before, or 65,536 others after it.
    #[must_use]
    pub fn opener(&self, cookie: u64) -> Option<Opened> {
        let note = self.notes.get(&cookie.to_ne_bytes())?;
        let word = |at: usize| Some(u32::from_ne_bytes(note.get(at..at + 4)?.try_into().ok()?));
        let name = note.get(VALUE - NAME..)?;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        // Numbers of 64 bits: the process in the upper half, and the group above the user.
        let (low, high) = if cfg!(target_endian = "little") { (0, 4) } else { (4, 0) };
        Some(Opened {
            pid: word(high)?,
            thread: word(low)?,
            uid: word(8 + low)?,
            name: String::from_utf8_lossy(&name[..length]).into_owned(),
        })
    }
}

/// Notes the current task under the socket's cookie when its state becomes SYN_SENT. Arguments of the tracepoint: the socket,
/// its old state, its new one.
fn instructions(notes: &Map) -> Vec<Instruction> {
    let note = [
        &[
            load_long(R1, R6, 0),
            call(COOKIE),
            store_long(R10, KEY, R0),
            call(PROCESS),
            store_long(R10, NOTE, R0),
            call(USER),
            store_long(R10, NOTE + 8, R0),
            copy(R1, R10),
            add(R1, i32::from(NOTE) + 16),
            set(R2, NAME as i32),
            call(COMM),
        ][..],
        &map(R1, notes),
        &[copy(R2, R10), add(R2, i32::from(KEY)), copy(R3, R10), add(R3, i32::from(NOTE)), set(R4, 0)],
        &[call(UPDATE)],
    ]
    .concat();
    [
        &[copy(R6, R1), load_long(R1, R6, 16), skip_unless_int(R1, CONNECTS, note.len() as i16)][..],
        &note,
        &[set(R0, 0), end()],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    fn cookie(of: &TcpStream) -> u64 {
        let mut cookie = 0_u64;
        let mut bytes = size_of::<u64>() as libc::socklen_t;
        // SAFETY: SO_COOKIE writes at most `bytes` bytes, as many as the number has.
        let result = unsafe {
            libc::getsockopt(
                of.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut bytes,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        cookie
    }

    #[test]
    fn a_connection_has_its_process_over_both_families_as_root() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).expect("a port");
            let place = listener.local_addr().expect("its port");
            let before = TcpStream::connect(place).expect("connected");
            let connects = Connects::open().expect("bpf(2) needs root");
            let client = TcpStream::connect(place).expect("connected");
            let (server, _) = listener.accept().expect("accepted");
            let opened = connects.opener(cookie(&client)).expect("it was noted");
            // In a PID namespace the numbers are those outside.
            let pids = std::fs::read_link("/proc/self/ns/pid").expect("/proc");
            if pids.as_os_str() == "pid:[4026531836]" {
                assert_eq!(opened.pid, std::process::id(), "{opened:?}");
            }
            assert!(opened.thread >= opened.pid, "{opened:?}");
            let own = std::fs::read_to_string("/proc/thread-self/comm");
            assert_eq!(opened.name, own.expect("the thread is here").trim_end());
            assert_eq!(connects.opener(cookie(&before)), None, "it was opened before");
            assert_eq!(connects.opener(cookie(&server)), None, "it was accepted");
        }
    }
}
