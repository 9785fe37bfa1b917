//! Who opens each connection, over TCP and to Unix sockets, and how long it waits there until it is accepted.
//!
//! TCP: a program at the tracepoint `inet_sock_set_state` notes, when a socket begins to connect, the
//! process whose system call that is; the kernel's notice of the connection's end has the same cookie. Looking at the sockets
//! again and again saw 0 to 90 % of the connections that were open for 0.4 to 3 ms, as the processor had time to; this has all.
//!
//! The note is made at SYN_SENT, in the task that connects. When the connection is established, the current task is anybody's.
//!
//! Unix: `sk_data_ready` passes with the *listener's* socket in the task that connects, when its connection stands in the queue. That
//! names the client's program and the listener, and so the service; which of the client's sockets it is, is not known. A program at
//! the entry of `security_unix_stream_connect` would have all three sockets. It was left out: many kernels refuse one there, and of a
//! connection that lives for a millisecond nobody asks which descriptor it was.
//!
//! How long connections wait there is a lower bound. Their end, `accept`, passes no tracepoint but that of each system call of the
//! machine. But the queue is first in, first out: where a connection is the fourth in it, the one three before it still waits.

use std::io;

use crate::map::{Kind, Map, long};
use crate::program::Arithmetic::{Add, And, ShiftRight, Subtract};
use crate::program::Register::{R0, R1, R2, R6, R7, R8, R9, R10};
use crate::program::{
    Assembly, Attached, COMM, COOKIE, Instruction, Label, NOW, PROCESS, Place, Program, Test, USER, call,
    compute, copy, copy_word, count, count_and_load, end, load_byte, load_half, load_long, load_word, set,
    store_long, store_number,
};
use crate::types::Types;

/// Connections that are known at once; the one that was used least recently goes for a new one.
/// The kernel's notice of a connection's end has its bytes and segments, and not its process, so a note
/// is kept until then, under the cookie that both have. With the table the right program was booked in
/// 100 % of each of three scans, where looks at the sockets took a sixth of a CPU and had 100, 0 and 0 %
/// (docs/decisions/0133).
const MOST: u32 = 1 << 16;
/// Bytes of [`Opened`]: process and thread, user, name.
const VALUE: usize = 32;
const NAME: usize = 16;

/// Places on the stack, of the cookie and of the value.
const KEY: i16 = -8;
const NOTE: i16 = -40;

/// Notes who opens connections over TCP, until it is dropped.
#[derive(Debug)]
pub struct Connects {
    notes: Map,
    _attached: Attached,
}

/// Who opened a connection, by the numbers of the first PID namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub pid: u32,
    pub thread: u32,
    pub uid: u32,
    /// The thread's name; bytes that are not UTF-8 are replaced.
    pub name: String,
}

impl Connects {
    /// Begins to note all connections of the machine.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_PERFMON, `NotFound` without the kernel's types, EINVAL before Linux 5.12.
    pub fn open() -> io::Result<Self> {
        let notes = Map::make(Kind::LeastRecentlyUsed, 8, VALUE, MOST)?;
        let number = Types::read()?.tracepoint("inet_sock_set_state")?;
        let program = Program::load(Place::Tracepoint, number, &of_tcp(&notes))?;
        Ok(Connects { _attached: program.watch()?, notes })
    }

    /// Who opened the connection whose client's end has this cookie (`idiag_cookie`, SO_COOKIE); `None` if it was opened
    /// before, or 65,536 others after it.
    #[must_use]
    pub fn opener(&self, cookie: u64) -> Option<Opened> {
        let note = self.notes.get(&cookie.to_ne_bytes())?;
        // The process in the upper half, and the group above the user.
        let (process, user) = (long(&note, 0), long(&note, 8));
        let name = name_of(note.get(VALUE - NAME..)?);
        Some(Opened { pid: (process >> 32) as u32, thread: process as u32, uid: user as u32, name })
    }
}

/// The name of a thread, which ends with a zero byte where it is shorter than its place.
fn name_of(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Notes the current task under the socket's cookie when its state becomes SYN_SENT: tracepoint
/// `inet_sock_set_state`. Its arguments are the socket, its old state and its new one. At SYN_SENT the
/// task is the one that connects; at ESTABLISHED, where the port is known, it is anybody's. A ring of
/// events was rejected: each would be read and kept until the connection ends, and this table is asked
/// for the few that matter. A classic tracepoint needs tracefs, which need not be mounted, and fentry was
/// refused on the kernel at hand (EPERM) (docs/decisions/0133).
fn of_tcp(notes: &Map) -> Vec<Instruction> {
    const TCP_SYN_SENT: i32 = 2;
    let mut program = Assembly::default();
    let out = program.label();
    program.put([copy(R6, R1), load_long(R1, R6, 16), copy_word(R1, R1)]);
    program.go_if(R1, Test::IsNot, TCP_SYN_SENT, out);
    program.put([load_long(R1, R6, 0), call(COOKIE), store_long(R10, KEY, R0)]);
    program.put([call(PROCESS), store_long(R10, NOTE, R0), call(USER), store_long(R10, NOTE + 8, R0)]);
    program.put([copy(R1, R10), compute(R1, Add, i32::from(NOTE) + 16), set(R2, NAME as i32), call(COMM)]);
    program.update(notes, [KEY, NOTE], 0);
    program.place(out);
    program.put([set(R0, 0), end()]);
    program.finish()
}

/// Programs that connect to Unix sockets at once, and listeners; the one that was used least recently goes for a new one.
const MOST_OPENERS: u32 = 1 << 12;
const MOST_LISTENERS: u32 = 1 << 10;
/// Moments at which connections came that are kept: of all listeners together, and of one. A connection that finds more than the
/// latter before it is compared with the oldest of them, so that its wait is a lower bound as well.
const MOST_ARRIVALS: u32 = 1 << 14;
const LAST_ARRIVALS: i32 = 128;
/// Nanoseconds after which a connection that still waits was not just about to be accepted.
const LONG: i32 = 5_000_000;

/// Bytes of an opener's key (the listener's cookie, user, name) and value (connections, process).
const OPENER_KEY: usize = 32;
const OPENER: usize = 16;
/// Bytes of a queue's value, and the places in it behind the number of connections: the most that waited, those that found it
/// full, those that found one that had waited for [`LONG`], and the longest wait that was found.
const QUEUE: usize = 40;
const QUEUE_MOST: i16 = 8;
const QUEUE_FULL: i16 = 16;
const QUEUE_LONG: i16 = 24;
const QUEUE_LONGEST: i16 = 32;

/// Notes who connects to Unix sockets, and how long connections wait there, until it is dropped.
#[derive(Debug)]
pub struct UnixConnects {
    openers: Map,
    queues: Map,
    _arrivals: Map,
    _attached: Attached,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixOpened {
    /// The listener's cookie (`udiag_cookie`).
    pub listener: u64,
    /// One of its processes, by the number of the first PID namespace.
    pub pid: u32,
    pub uid: u32,
    /// The name of the thread that connects.
    pub name: String,
    pub connections: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixQueue {
    /// The listener's cookie (`udiag_cookie`).
    pub listener: u64,
    /// All that came while it was watched.
    pub connections: u64,
    /// The most that waited at once.
    pub most_waiting: u64,
    /// Those that found it full: the next one is refused, or its client blocks.
    pub full: u64,
    /// Those that found one before them that had waited for 5 ms or more.
    pub behind_long: u64,
    /// The longest wait that was found, in nanoseconds; it may have been longer.
    pub longest: u64,
}

/// Where a `struct sock` has what the program reads, in bytes, by the running kernel's types.
struct Parts {
    family: i16,
    state: i16,
    waiting: i16,
    backlog: i16,
}

impl UnixConnects {
    /// Begins to note.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_PERFMON, `NotFound` without the kernel's types; before Linux 5.12 the verifier's words.
    pub fn open() -> io::Result<Self> {
        let types = Types::read()?;
        let (place, number) = match types.tracepoint("sk_data_ready") {
            Ok(number) => (Place::Tracepoint, number),
            // What nearly all sockets have for it, and listeners of Unix sockets always.
            Err(_) => (Place::Entry, types.function("sock_def_readable")?),
        };
        let common = types.offset("sock", "__sk_common")?;
        let parts = Parts {
            family: common + types.offset("sock_common", "skc_family")?,
            state: common + types.offset("sock_common", "skc_state")?,
            waiting: types.offset("sock", "sk_receive_queue")? + types.offset("sk_buff_head", "qlen")?,
            backlog: types.offset("sock", "sk_max_ack_backlog")?,
        };
        let openers = Map::make(Kind::LeastRecentlyUsed, OPENER_KEY, OPENER, MOST_OPENERS)?;
        let queues = Map::make(Kind::LeastRecentlyUsed, 8, QUEUE, MOST_LISTENERS)?;
        let arrivals = Map::make(Kind::LeastRecentlyUsed, 16, 8, MOST_ARRIVALS)?;
        let instructions = of_unix(&openers, &queues, &arrivals, &parts);
        let program = Program::load(place, number, &instructions)?;
        Ok(UnixConnects { _attached: program.watch()?, openers, queues, _arrivals: arrivals })
    }

    /// Who connected to which listener so far, and how often. A program is its user and its thread's name, not its process: one that
    /// starts anew for each connection is one row.
    #[must_use]
    pub fn openers(&self) -> Vec<UnixOpened> {
        let mut found = Vec::new();
        for key in self.openers.keys(2 * MOST_OPENERS as usize) {
            let Some(value) = self.openers.get(&key) else { continue };
            found.push(UnixOpened {
                listener: long(&key, 0),
                pid: long(&value, 8) as u32,
                uid: long(&key, 8) as u32,
                name: name_of(&key[OPENER_KEY - NAME..]),
                connections: long(&value, 0),
            });
        }
        found
    }

    /// The queues of the listeners to which somebody connected.
    #[must_use]
    pub fn queues(&self) -> Vec<UnixQueue> {
        let mut found = Vec::new();
        for key in self.queues.keys(2 * MOST_LISTENERS as usize) {
            let Some(value) = self.queues.get(&key) else { continue };
            found.push(UnixQueue {
                listener: long(&key, 0),
                connections: long(&value, 0),
                most_waiting: long(&value, QUEUE_MOST as usize),
                full: long(&value, QUEUE_FULL as usize),
                behind_long: long(&value, QUEUE_LONG as usize),
                longest: long(&value, QUEUE_LONGEST as usize),
            });
        }
        found
    }
}

/// Places on the stack: the opener's key, which begins with the listener's cookie, and its value; a moment's key and value; a queue's
/// value; the connection's number.
const COOKIE_AT: i16 = -32;
const OPENER_AT: i16 = -48;
const MOMENT: i16 = -64;
const TIME: i16 = -72;
const EMPTY: i16 = -112;
const NUMBER: i16 = -120;

/// Notes who connects to a Unix socket: `sk_data_ready`, or its function, whose argument is a socket, with one that listens.
///
/// Registers: `R6` the socket, then the queue's value, `R7` how many wait, `R8` the backlog, `R9` now.
fn of_unix(openers: &Map, queues: &Map, arrivals: &Map, parts: &Parts) -> Vec<Instruction> {
    const AF_UNIX: i32 = 1;
    /// Unix sockets that listen have this state as well.
    const TCP_LISTEN: i32 = 10;
    let mut program = Assembly::default();
    let out = program.label();
    program.put([load_long(R6, R1, 0), load_half(R2, R6, parts.family)]);
    program.go_if(R2, Test::IsNot, AF_UNIX, out);
    program.put([load_byte(R2, R6, parts.state)]);
    program.go_if(R2, Test::IsNot, TCP_LISTEN, out);
    program.put([load_word(R7, R6, parts.waiting), load_word(R8, R6, parts.backlog)]);
    program.put([copy(R1, R6), call(COOKIE), store_long(R10, COOKIE_AT, R0), call(NOW), copy(R9, R0)]);
    count_opener(&mut program, openers);
    find_queue(&mut program, queues, out);
    count_arrival(&mut program, arrivals);
    find_first(&mut program, arrivals, out);
    program.place(out);
    program.put([set(R0, 0), end()]);
    program.finish()
}

/// One more connection of the current task's program to this listener.
fn count_opener(program: &mut Assembly, openers: &Map) {
    let (is_new, done) = (program.label(), program.label());
    program.put([call(USER), copy_word(R0, R0), store_long(R10, COOKIE_AT + 8, R0)]);
    program.put([
        copy(R1, R10),
        compute(R1, Add, i32::from(COOKIE_AT) + 16),
        set(R2, NAME as i32),
        call(COMM),
    ]);
    program.put([call(PROCESS), compute(R0, ShiftRight, 32), store_long(R10, OPENER_AT + 8, R0)]);
    program.look_up(openers, COOKIE_AT);
    program.go_if(R0, Test::Is, 0, is_new);
    program.put([set(R1, 1), count(R0, 0, R1), load_long(R1, R10, OPENER_AT + 8), store_long(R0, 8, R1)]);
    program.go(done);
    program.place(is_new);
    program.put([store_number(R10, OPENER_AT, 1)]);
    program.update(openers, [COOKIE_AT, OPENER_AT], 0);
    program.place(done);
}

/// In `R6` the value of the listener's queue, which is made if this is its first connection.
fn find_queue(program: &mut Assembly, queues: &Map, out: Label) {
    const BPF_NOEXIST: i32 = 1;
    let is_known = program.label();
    program.look_up(queues, COOKIE_AT);
    program.go_if(R0, Test::IsNot, 0, is_known);
    program.put((0..QUEUE as i16 / 8).map(|word| store_number(R10, EMPTY + 8 * word, 0)));
    program.update(queues, [COOKIE_AT, EMPTY], BPF_NOEXIST);
    program.look_up(queues, COOKIE_AT);
    program.go_if(R0, Test::Is, 0, out);
    program.place(is_known);
    program.put([copy(R6, R0)]);
}

/// Numbers the connection, and keeps when it came, for those that come after it; counts how many wait.
fn count_arrival(program: &mut Assembly, arrivals: &Map) {
    let (is_no_more, has_room) = (program.label(), program.label());
    program.put([set(R1, 1), count_and_load(R6, 0, R1), store_long(R10, NUMBER, R1)]);
    program.put([load_long(R2, R10, COOKIE_AT), store_long(R10, MOMENT, R2)]);
    program.put([compute(R1, And, LAST_ARRIVALS - 1), store_long(R10, MOMENT + 8, R1)]);
    program.put([store_long(R10, TIME, R9)]);
    program.update(arrivals, [MOMENT, TIME], 0);
    program.put([load_long(R1, R6, QUEUE_MOST)]);
    program.go_if(R7, Test::IsAtMost, R1, is_no_more);
    program.put([store_long(R6, QUEUE_MOST, R7)]);
    program.place(is_no_more);
    // The kernel lets one more wait than the backlog says.
    program.go_if(R7, Test::IsAtMost, R8, has_room);
    program.put([set(R1, 1), count(R6, QUEUE_FULL, R1)]);
    program.place(has_room);
}

/// How long the first in the queue has waited: it came as many before this one as stand between them. Of those that came before
/// the notes began, or too long ago, nothing is known.
fn find_first(program: &mut Assembly, arrivals: &Map, out: Label) {
    let (is_near, is_no_longer) = (program.label(), program.label());
    program.go_if(R7, Test::IsLess, 2, out);
    program.put([compute(R7, Subtract, 1)]);
    program.go_if(R7, Test::IsLess, LAST_ARRIVALS, is_near);
    program.put([set(R7, LAST_ARRIVALS - 1)]);
    program.place(is_near);
    program.put([load_long(R1, R10, NUMBER)]);
    program.go_if(R1, Test::IsLess, R7, out);
    program.put([compute(R1, Subtract, R7), compute(R1, And, LAST_ARRIVALS - 1)]);
    program.put([store_long(R10, MOMENT + 8, R1)]);
    program.look_up(arrivals, MOMENT);
    program.go_if(R0, Test::Is, 0, out);
    program.put([load_long(R1, R0, 0)]);
    program.go_if(R9, Test::IsLess, R1, out);
    program.put([compute(R9, Subtract, R1), load_long(R1, R6, QUEUE_LONGEST)]);
    program.go_if(R9, Test::IsAtMost, R1, is_no_longer);
    program.put([store_long(R6, QUEUE_LONGEST, R9)]);
    program.place(is_no_longer);
    program.go_if(R9, Test::IsLess, LONG, out);
    program.put([set(R1, 1), count(R6, QUEUE_LONG, R1)]);
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    use super::*;

    fn cookie(of: &impl AsRawFd) -> u64 {
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

    #[test]
    fn connections_to_a_unix_socket_have_their_process_and_wait_as_long_as_they_do_as_root() {
        let path = std::env::temp_dir().join(format!("samehost-bpf-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        let connects = UnixConnects::open().expect("bpf(2) needs root");
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(UnixStream::connect(&path).expect("connected"));
            std::thread::sleep(Duration::from_millis(20));
        }
        // The first was accepted before the fourth came, which found the second waiting.
        let _first = listener.accept().expect("accepted");
        clients.push(UnixStream::connect(&path).expect("connected"));
        let _ = std::fs::remove_file(&path);
        let own = cookie(&listener);
        let openers: Vec<_> = connects.openers().into_iter().filter(|one| one.listener == own).collect();
        assert_eq!(openers.len(), 1, "{openers:?}");
        let name = std::fs::read_to_string("/proc/thread-self/comm").expect("the thread is here");
        assert_eq!((openers[0].connections, openers[0].name.as_str()), (4, name.trim_end()));
        let pids = std::fs::read_link("/proc/self/ns/pid").expect("/proc");
        if pids.as_os_str() == "pid:[4026531836]" {
            assert_eq!(openers[0].pid, std::process::id());
        }
        let queues: Vec<_> = connects.queues().into_iter().filter(|one| one.listener == own).collect();
        let [queue] = queues.as_slice() else { panic!("{queues:?}") };
        assert_eq!((queue.connections, queue.most_waiting, queue.full, queue.behind_long), (4, 3, 0, 3));
        assert!(queue.longest >= 40_000_000, "{queue:?}");
    }
}
